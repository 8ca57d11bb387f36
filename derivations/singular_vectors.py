"""What a head reads and writes: the singular vectors of its OV matrix.

Run it to write the document singular_vectors.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("singular_vectors")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
