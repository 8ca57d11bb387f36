"""The scores of a second-layer head whose keys are those of its group.

Run it to write the document scores_grouped_queries.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.transformer(heads=(4, 4), groups=(2, 2))
derivation = sc.derive(arch, target="scores:L1H3", form="enumerated")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
