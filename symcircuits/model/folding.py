"""Folding: gains and biases of norms moved into the weights that read them; the function of the model is unchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import FINAL
from symcircuits.core.text import need
from symcircuits.model.transformer import Model

__all__ = ["fold"]


def fold(model: Model) -> Model:
    """The same model with the gains and biases of its norms folded into the weights that read them.

    A norm gives ``z diag(gain) + 1 b_N^T`` with ``z`` centred (LN) and divided by sigma; a reader ``W``, ``b`` of it
    reads ``z`` by ``W' = W diag(gain)`` and ``b' = b + W b_N``. So ``b_N`` becomes part of b_Q, b_K, b_V, b_U
    and of b_in, b_gate of an MLP; sigma and centring stay in the norm, and patterns, logits and terms are unchanged
    except for names: terms of ``b_N`` are part of those of the bias that absorbed it. Computed in float64; a
    model without gains and norm biases is returned unchanged. Raises ValueError if positions enter queries and
    keys after a norm with gain (shortformer): a weight with that gain would multiply the position too.
    Source: own derivation; TransformerLens's ``fold_layer_norm`` for the order.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> model = random_model(attention_only((2, 2), norm="LN", biases=True))
    >>> folded = fold(model)
    >>> folded.architecture.gains, "b_N_L0" in folded.weights
    (frozenset(), False)
    >>> bool(np.allclose(folded.run([1, 2, 3]).logits, model.run([1, 2, 3]).logits))
    True
    """
    need("fold", model, Model)
    arch = model.architecture
    readers = {label: _readers(model, label) for label in arch.norm_labels if label[0] in "LM" or label == FINAL}
    through = sorted(r.name for r in arch.readings if r.norm)
    if through:
        raise ValueError(
            f"the readout {through[0]!r} reads through a norm: fold the model first, then attach it, with directions "
            "that include the gain of that norm, as the weights of the folded model do"
        )
    gains = {label for label in readers if f"gain_{label}" in model.weights}
    biases = {label for label in readers if f"b_N_{label}" in model.weights}
    if not gains and not biases:
        return model
    late = sorted(label for label in gains if label[0] == "L") if arch.positions == "shortformer" else []
    if late:
        raise ValueError(
            f"the gain of the norm {late[0]} cannot be folded: positions enter queries and keys after it "
            "(shortformer), so a weight that includes the gain would multiply the position too"
        )
    weights: dict[str, Array] = {name: np.asarray(w, dtype=np.float64) for name, w in model.weights.items()}
    names = set(arch.biases)
    with np.errstate(over="ignore", invalid="ignore"):  # the model raises on a weight that is not finite
        for label, read_by in readers.items():
            gain, shift = weights.pop(f"gain_{label}", None), weights.pop(f"b_N_{label}", None)
            names.discard(f"b_N[{label}]")
            for glyph, owner in read_by:
                weight, bias, name = _names(glyph, owner)
                if shift is not None and (added := weights[weight] @ shift).any():
                    weights[bias] = weights.get(bias, 0) + added
                    names.add(name)
                if gain is not None:
                    weights[weight] = weights[weight] * gain
    architecture = replace(arch, biases=frozenset(names), gains=arch.gains - gains)
    folded = [w for w, found in (("gains", gains), ("biases", biases)) if found]
    note = f"the {' and '.join(folded)} of the norms were folded into the weights that read them"
    return replace(model, architecture=architecture, weights=weights, notes=(*model.notes, note))


def _readers(model: Model, label: str) -> list[tuple[str, str]]:
    """The readers of a norm: glyph and owner of each weight, ("W_Q", "L0H1")."""
    arch = model.architecture
    if label == FINAL:
        return [("W_U", "")]
    layer = int(label[1:])
    if label[0] == "M":
        return [(glyph, f"L{layer}") for glyph in (("W_in", "W_gate") if arch.gated else ("W_in",))]
    queries = [("W_Q", str(head)) for head in arch.layer_heads(layer)]
    return queries + [(glyph, shared) for shared in arch.key_values(layer) for glyph in ("W_K", "W_V")]


def _names(glyph: str, owner: str) -> tuple[str, str, str]:
    """The argument names of a weight and of its bias, and the name of that bias in an architecture."""
    bias, at = f"b{glyph[1:]}", f"_{owner}" if owner else ""
    return f"{glyph}{at}", f"{bias}{at}", f"{bias}[{owner}]" if owner else bias
