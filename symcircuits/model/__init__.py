"""The second witness: real transformers, computed with NumPy from the definition of the transformer.

Nothing here sees how the algebra describes a model (its branches and programs); of the architecture it takes the
description alone. ``transformer`` has the weights and the forward pass, ``over_ring`` the forward pass with
patterns given, ``instances`` random models and changes of basis, ``tokens`` and ``checks`` what is refused.
"""

from symcircuits.model.instances import change_basis, random_model
from symcircuits.model.over_ring import Frozen, frozen, matrices_of, matrix_names
from symcircuits.model.tokens import read_tokens
from symcircuits.model.transformer import Arrays, Model, Run, weight_axes

__all__ = [
    "Arrays", "Frozen", "Model", "Run", "change_basis", "frozen", "matrices_of", "matrix_names", "random_model",
    "read_tokens", "weight_axes",
]  # fmt: skip
