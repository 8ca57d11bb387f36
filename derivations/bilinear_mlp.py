"""A bilinear MLP in the expansion: a sum over ordered pairs of paths, with nothing held fixed.

Run it to write the document bilinear_mlp.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("bilinear_mlp")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
