"""The logits of three layers with any numbers of heads: a family for every set of layers.

Run it to write the document three_layers_generic.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(3, 3, 3))
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
