"""Composition scores: what they consist of and depend on.

Run it to write the document composition_scores.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("composition_scores")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
