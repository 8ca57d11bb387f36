"""Layer norm in the expansion: what folds into weights, and the scale that stays on the source side.

Run it to write the document layer_norm.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("layer_norm")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
