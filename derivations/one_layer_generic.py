"""The logits of one layer with any number of heads, as the paper prints them.

Run it to write the document one_layer_generic.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(3,))
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
