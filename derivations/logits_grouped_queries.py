"""The logits of heads that share keys and values in groups, for any number of heads and groups.

Run it to write the document logits_grouped_queries.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.transformer(heads=(4, 4), groups=(2, 2), biases=["b_V"])
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
