"""The logits of two layers with layer norms and MLPs: the output of each MLP is a separate source.

Run it to write the document logits_mlps.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.transformer(heads=(2, 2), norm="LN", mlps=True)
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
