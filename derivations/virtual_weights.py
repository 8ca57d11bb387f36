"""Virtual weights between any two components.

Run it to write the document virtual_weights.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("virtual_weights")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
