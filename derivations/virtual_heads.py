"""A product of heads is a head.

Run it to write the document virtual_heads.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("virtual_heads")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
