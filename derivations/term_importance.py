"""The term-importance algorithm truncates the sum over paths.

Run it to write the document term_importance.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("term_importance")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
