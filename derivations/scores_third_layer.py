"""The scores of a third-layer head, any numbers of heads below: a set of layers on each side.

Run it to write the document scores_third_layer.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(3, 3, 3))
derivation = sc.derive(arch, target="scores:L2H0", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
