"""The logits of parallel blocks, whose MLPs and heads read the same input: the same expansion, other MLP outputs.

Run it to write the document logits_parallel_blocks.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.transformer(heads=(2, 2), norm="RMS", gains=False, mlps=True, parallel=True)
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
