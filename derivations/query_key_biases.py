"""Query and key biases: which terms softmax does not see, and one matrix per head that contains them.

Run it to write the document query_key_biases.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("query_key_biases")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
