"""All biases are one bias of the logits.

Run it to write the document bias_collapse.tex beside this file.
"""

from pathlib import Path

import symcircuits as sc

derivation = sc.theorem("bias_collapse")

if __name__ == "__main__":
    print(derivation.save(Path(__file__).with_suffix(".tex")).name)
