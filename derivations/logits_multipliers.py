"""The logits of two layers of any number of heads, with multipliers for the embedding, the layers and the logits.

Run it to write the document logits_multipliers.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.transformer(heads=(2, 2), biases=["b_O"], mlps=True, multipliers=True)
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
