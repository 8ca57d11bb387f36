"""Query and key biases: what softmax does not see of them, and one matrix a head that holds them.

Run it to write the document query_key_biases.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("query_key_biases")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
