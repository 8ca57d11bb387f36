"""Second-layer scores with the position embedding in the stream: a second source on each side.

Run it to write the document scores_positions.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(12, 12), positions="standard")
derivation = sc.derive(arch, target="scores:L1H0", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
