"""MLPs in the expansion: their input and output expand, the GeLU in between does not.

Run it to write the document mlp.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("mlp")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
