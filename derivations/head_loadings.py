"""Head loadings: from feature to feature through a layer.

Run it to write the document head_loadings.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("head_loadings")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
