"""Second-layer scores with the position in queries and keys only: it does not pass through earlier heads.

Run it to write the document scores_shortformer.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.attention_only(heads=(12, 12), positions="shortformer")
derivation = sc.derive(arch, target="scores:L1H0", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
