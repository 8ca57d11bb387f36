"""The logits of two layers with value, output and unembedding biases: each bias is a separate source.

Run it to write the document logits_biases.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(2, 2), biases=True)
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
