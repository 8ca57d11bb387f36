"""The scores of a second-layer head with any number of heads below, as the paper prints them.

Run it to write the document scores_generic.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(3, 3))
derivation = sc.derive(arch, target="scores:L1H0", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
