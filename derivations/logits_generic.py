"""The logits of two layers with any numbers of heads, as the paper prints them.

Run it to write the document logits_generic.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(3, 3))
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
