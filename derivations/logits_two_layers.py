"""The logits of a model with two layers of three heads: all 16 terms.

Run it to write the document logits_two_layers.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(3, 3))
derivation = sc.derive(arch, target="logits", form="enumerated")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
