"""With identity heads, the direct path is not a special case.

Run it to write the document identity_heads.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("identity_heads")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
