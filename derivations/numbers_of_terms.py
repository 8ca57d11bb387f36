"""How many terms there are.

Run it to write the document numbers_of_terms.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("numbers_of_terms")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
