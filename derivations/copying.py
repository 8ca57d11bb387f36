"""Positive eigenvalues are necessary but not sufficient for copying.

Run it to write the document copying.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("copying")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
