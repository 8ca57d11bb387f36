"""The bases of the stream and of every head are arbitrary.

Run it to write the document basis_freedom.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("basis_freedom")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
