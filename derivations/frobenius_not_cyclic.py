"""The Frobenius norm is not cyclic.

Run it to write the document frobenius_not_cyclic.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("frobenius_not_cyclic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
