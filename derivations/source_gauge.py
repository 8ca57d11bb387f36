"""Terms by source depend on the split between token and position embedding.

Run it to write the document source_gauge.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("source_gauge")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
