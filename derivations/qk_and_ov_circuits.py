"""One layer consists of two circuits per head.

Run it to write the document qk_and_ov_circuits.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("qk_and_ov_circuits")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
