"""Pointer arithmetic: a rotation moves a position by one.

Run it to write the document pointer_arithmetic.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("pointer_arithmetic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
