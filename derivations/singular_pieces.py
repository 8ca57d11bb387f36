"""A term is a sum of rank-one pieces.

Run it to write the document singular_pieces.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("singular_pieces")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
