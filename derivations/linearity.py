"""Linear in the tokens with the patterns held fixed, and not otherwise.

Run it to write the document linearity.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("linearity")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
