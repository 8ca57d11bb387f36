"""Talking heads are heads with mixed matrices.

Run it to write the document talking_heads.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("talking_heads")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
