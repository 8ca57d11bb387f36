"""The second witness: real transformers, computed with NumPy from the definition of the transformer.

Nothing here depends on how the algebra describes a model (its branches and programs); of the architecture it uses the
description alone. ``weights`` lists the weights, ``forward`` is the forward pass and ``attending`` the effect of
positions in it, ``transformer`` holds the weights and the record of a run, ``edits`` runs it again with changes,
``reruns`` with many changes at once, ``over_ring`` is the forward pass with patterns, norms and MLP outputs given,
``instances`` makes random models and changes of basis, ``folding`` moves gains into weights, ``attached`` defines
attached readouts and sources, ``tensors`` holds arrays of other libraries, ``tokens`` and ``checks`` validate
arguments.
"""

from symcircuits.model.attached import Attachment, readout, source
from symcircuits.model.attending import Rotary
from symcircuits.model.edits import (
    Edited,
    end_of,
    of_outputs,
    pattern_without,
    rerun,
    rerun_without_path,
    with_ends,
    with_outputs,
)
from symcircuits.model.folding import fold
from symcircuits.model.forward import ACTIVATIONS, Settings
from symcircuits.model.instances import change_basis, random_model
from symcircuits.model.over_ring import Frozen, frozen, matrices_of
from symcircuits.model.reruns import rerun_each
from symcircuits.model.tensors import TensorFactors, Tensors
from symcircuits.model.tokens import read_tokens
from symcircuits.model.transformer import Arrays, Model, Run
from symcircuits.model.weights import matrix_names, weight_axes

__all__ = [
    "ACTIVATIONS", "Arrays", "Attachment", "Edited", "Frozen", "Model", "Rotary", "Run", "Settings", "TensorFactors",
    "Tensors", "change_basis", "end_of", "fold", "frozen", "matrices_of", "matrix_names", "of_outputs",
    "pattern_without", "random_model", "read_tokens", "readout", "rerun", "rerun_each", "rerun_without_path", "source",
    "weight_axes", "with_ends", "with_outputs",
]  # fmt: skip
