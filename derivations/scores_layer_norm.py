"""The scores of a second-layer head through layer norms: the query's scale on the left, the key's on the right.

Run it to write the document scores_layer_norm.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

arch = sc.transformer(heads=(2, 2), norm="LN")
derivation = sc.derive(arch, target="scores:L1H0", form="generic")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
