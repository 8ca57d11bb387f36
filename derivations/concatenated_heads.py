"""Concatenated heads times one output matrix are a sum of heads.

Run it to write the document concatenated_heads.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("concatenated_heads")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
