"""Removing a head removes the terms through it.

Run it to write the document ablation.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("ablation")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
