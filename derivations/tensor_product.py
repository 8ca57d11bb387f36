"""The tensor product of a pattern and a matrix.

Run it to write the document tensor_product.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("tensor_product")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
