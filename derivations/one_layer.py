"""The logits of one layer of three heads: the direct path and one term per head.

Run it to write the document one_layer.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(3,))
derivation = sc.derive(arch, target="logits", form="enumerated")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
