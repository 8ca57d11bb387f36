"""Attention without softmax: a sum over triples of paths, nothing held fixed.

Run it to write the document attention_without_softmax.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("attention_without_softmax")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
