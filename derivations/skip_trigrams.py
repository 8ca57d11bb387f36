"""The skip-trigrams of a head factorise, which causes bugs.

Run it to write the document skip_trigrams.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("skip_trigrams")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
