"""Scores with query and key biases, and the terms that softmax cannot see.

Run it to write the document scores_query_key_biases.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(2, 2), biases=["b_Q", "b_K"])
derivation = sc.derive(arch, target="scores:L1H0", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
