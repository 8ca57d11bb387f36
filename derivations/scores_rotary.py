"""The scores of a second-layer head with rotary positions, which rotate its queries and keys.

Run it to write the document scores_rotary.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(2, 2), positions="rotary")
derivation = sc.derive(arch, target="scores:L1H0", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
