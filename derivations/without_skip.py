"""Without the residual stream, only paths of full length remain.

Run it to write the document without_skip.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("without_skip")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
