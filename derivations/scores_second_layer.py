"""The scores of a second-layer head, two layers of three heads: all 16 terms.

Run it to write the document scores_second_layer.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(3, 3))
derivation = sc.derive(arch, target="scores:L1H0", form="enumerated")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
