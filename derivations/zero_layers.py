"""The logits of a model without layers: the direct path, a bigram table.

Run it to write the document zero_layers.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=())
derivation = sc.derive(arch, target="logits", form="enumerated")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
