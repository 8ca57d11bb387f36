"""The eigenvalues of a circuit are those of a small matrix.

Run it to write the document eigenvalue_tricks.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("eigenvalue_tricks")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
