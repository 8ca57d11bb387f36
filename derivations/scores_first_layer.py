"""The scores of a first-layer head: one term, through the QK circuit.

Run it to write the document scores_first_layer.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(3,))
derivation = sc.derive(arch, target="scores:L0H0", form="enumerated")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
