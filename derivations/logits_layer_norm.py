"""The logits of two layers of any number of heads through layer norms, with the scale of every token held fixed.

Run it to write the document logits_layer_norm.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.transformer(heads=(2, 2), norm="LN", biases=["b_N"])
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
