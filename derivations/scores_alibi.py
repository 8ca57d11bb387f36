"""The scores of a second-layer head with the ALiBi bias, which is not a path term.

Run it to write the document scores_alibi.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(2, 2), positions="alibi")
derivation = sc.derive(arch, target="scores:L1H0", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
