"""The path expansion is the only one, and each of its terms can be measured.

Run it to write the document uniqueness.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("uniqueness")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
