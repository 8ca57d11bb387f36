"""Patching paths replaces their terms.

Run it to write the document path_patching.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("path_patching")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
