"""The logits of two layers of any number of heads through RMS norms, which do not centre.

Run it to write the document logits_rms_norm.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.transformer(heads=(2, 2), norm="RMS")
derivation = sc.derive(arch, target="logits", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
