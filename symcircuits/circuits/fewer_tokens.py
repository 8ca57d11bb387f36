"""The same circuits over fewer tokens: full circuits of a large vocabulary, with less work.

The nonzero eigenvalues of ``W_U X W_E`` are those of ``X (W_E W_U)``, and those of ``W_E^T X W_E`` are those of
``X (W_E W_E^T)``: a vocabulary of d_model tokens has the same, ``W_E' = W_E W_U`` and ``W_U' = 1``, or ``W_E'`` with
``W_E' W_E'^T = W_E W_E^T``. So products with the vocabulary are made once per model, and not per head. Properties
of single tokens, such as a diagonal, are computed for some tokens. Source: own derivation (cyclic products; QR).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from symcircuits.circuits.factoring import triangle
from symcircuits.model import Model

__all__ = ["MOST_TOKENS", "of_tokens", "same_ov_spectrum", "same_qk_spectrum", "some_tokens"]

MOST_TOKENS: Final = 4096  # up to which all entries of a full circuit are computed
_SEED: Final = 20211222


def same_ov_spectrum(model: Model) -> Model:
    """A model whose OV circuits have the same nonzero eigenvalues; unchanged if that would have no fewer tokens.

    >>> import symcircuits as sc
    >>> model = sc.random_model(sc.attention_only((1,)), d_vocab=40, d_model=4, d_head=2)
    >>> one, other = (sc.circuit(m, "OV", "L0H0").eigenvalues for m in (model, same_ov_spectrum(model)))
    >>> same_ov_spectrum(model).d_vocab, bool(np.allclose(one, other))
    (4, True)
    """
    d = model.d_model
    if model.d_vocab <= 2 * d:
        return model
    product = model.weights["W_E"].astype(np.float64) @ model.weights["W_U"].astype(np.float64)
    return _with(model, product, np.eye(d))


def same_qk_spectrum(model: Model) -> Model:
    """The same for QK circuits, composed ones too, which read tokens on both sides.

    >>> import symcircuits as sc
    >>> model = sc.random_model(sc.attention_only((1,)), d_vocab=40, d_model=4, d_head=2)
    >>> one, other = (sc.circuit(m, "QK", "L0H0").eigenvalues for m in (model, same_qk_spectrum(model)))
    >>> bool(np.allclose(one, other))
    True
    """
    if model.d_vocab <= 2 * model.d_model:
        return model
    root = triangle(model.weights["W_E"].T.astype(np.float64)).T
    return _with(model, root, np.zeros((len(root), model.d_model)))


def some_tokens(model: Model, most: int = MOST_TOKENS) -> Sequence[int]:
    """All tokens, or ``most`` of them, drawn at random with a fixed seed, in order."""
    if model.d_vocab <= most:
        return range(model.d_vocab)
    drawn = np.random.default_rng(_SEED).choice(model.d_vocab, most, replace=False)
    return sorted(int(token) for token in drawn)


def of_tokens(model: Model, tokens: Sequence[int]) -> Model:
    """The model with these tokens only, as inputs and as outputs; unchanged if they are all.

    >>> import symcircuits as sc
    >>> model = sc.random_model(sc.attention_only((1,)), d_vocab=6)
    >>> few = of_tokens(model, [1, 4])
    >>> bool(np.allclose(sc.circuit(few, "OV", "L0H0").array(), sc.circuit(model, "OV", "L0H0").block([1, 4], [1, 4])))
    True
    """
    if len(tokens) == model.d_vocab:
        return model
    chosen = list(tokens)
    ends = model.weights.get("W_U", np.zeros((model.d_vocab, model.d_model)))
    return _with(model, model.weights["W_E"][:, chosen], ends[chosen])


def _with(model: Model, embedding: np.ndarray, ends: np.ndarray) -> Model:
    """With another embedding and unembedding; circuits have no output biases."""
    weights = {**model.weights, "W_E": embedding}
    if "W_U" in weights:
        weights["W_U"] = ends
    if "b_U" in weights:
        weights["b_U"] = np.zeros(len(ends))
    return replace(model, weights=weights)
