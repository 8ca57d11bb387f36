"""The logits with the position embedding in the stream: a second source, twice as many terms.

Run it to write the document logits_positions.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(12, 12), positions="standard")
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
