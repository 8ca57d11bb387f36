"""Heads that attend at fixed offsets form a convolution.

Run it to write the document convolution.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("convolution")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
