"""Sizes of logit terms without the vocabulary: a smaller unembedding with the same norms and the chosen entries.

With ``W_U = Q T`` (Q with orthonormal columns, T square) a term ``Y W_U^T`` has the Frobenius norm of ``Y T^T``, which
has ``d_model`` columns and not ``d_vocab_out``. So the terms are evaluated with T in place of ``W_U``, and with one
more row for each token whose logit is wanted. With a bias ``[W_U b_U] = Q [T b]``, so sums of terms that include that
of ``b_U`` keep their norms too. Source: own derivation (orthonormal columns keep lengths).

T is the triangle of the QR decomposition. If norms are needed to float32 precision only, and ``W_U`` is well enough
conditioned, it is computed from the Gram matrix ``W_U^T W_U``, in float64: a fifth of the time. The relative error of
a norm is then at most some ``u cond(W_U)^2``, u that of float64: not good enough for a run in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.model import Model, Run, with_ends

if TYPE_CHECKING:
    from symcircuits.values.evaluate import Values
    from symcircuits.values.measure import Measure

__all__ = ["Compact", "compact", "with_mean"]

# By model and type, T, and a key that shows whether an array was written to since, which the owner of the arrays
# may do.
_TRIANGLES: WeakKeyDictionary[Model, dict[np.dtype[Any], tuple[Array, Array]]] = WeakKeyDictionary()
_BLOCK = 2**27  # numbers of an unembedding decomposed at a time
_GRAM_ROWS = 2048  # rows whose products are added at a time
_GRAM_ERROR = 64 * float(np.finfo(np.float64).eps) / 2  # of a Gram matrix, relative to its norm


class Compact:
    """A small unembedding for sizes: ``matrices`` that replace the run's, and how results are read."""

    def __init__(self, values: Values, tokens: Sequence[int]) -> None:
        arrays, dtype, chosen = values.run.arrays, values.run.dtype, list(tokens)
        w_u, triangle = arrays["W_U"], _known_triangle(values.run)
        self.width, self.mean = len(triangle), bool(chosen)
        rows = [triangle[:, : w_u.shape[1]], w_u[chosen], *([_mean(w_u)] if chosen else [])]
        self.matrices = {"W_U": np.vstack(rows).astype(dtype)}
        if "b_U" in arrays:
            bias = [triangle[:, -1], arrays["b_U"][chosen], *([_mean(arrays["b_U"])] if chosen else [])]
            self.matrices["b_U"] = np.concatenate(bias)[:, None].astype(dtype)

    def read(self, values: Array) -> tuple[Array, Array, Array]:
        """Of values ``[..., width + tokens + 1]``: columns with the norms of terms, the chosen entries, and the mean.

        Without chosen tokens there is no mean either.
        """
        end = values.shape[-1] - self.mean
        return values[..., : self.width], values[..., self.width : end], values[..., end:]


def with_mean(values: Values, by: Measure) -> tuple[Values, Measure]:
    """For a centred logit, the same values with two outputs, the chosen one and the mean of all, and their difference.

    Any other measure, filled in, is unchanged. So code for the difference of two logits computes this too.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2,)), d_vocab=50, d_model=4).run([1, 2, 3])
    >>> values = sc.evaluate(sc.logits(run.model.architecture), run)
    >>> two, difference = with_mean(values, sc.logit(7, against="mean").on(values.expansion, run))
    >>> bool(np.allclose(two.total()[:, 0] - two.total()[:, 1], run.logits[:, 7] - run.logits.mean(-1)))
    True
    """
    if by.kind != "centred logit":
        return values, by
    run, weights = values.run, values.run.model.weights
    ends = {
        name: np.concatenate([weights[name][by.chosen], _mean(weights[name])])
        for name in ("W_U", "b_U") if name in weights
    }  # fmt: skip
    seen = with_ends(run, ends)
    return type(values)(values.expansion, seen), replace(by, kind="logit difference", token=0, against=1)


def _mean(rows: Array) -> Array:
    """The mean of all rows, as one row; in float64."""
    return np.asarray(rows.mean(0, keepdims=True, dtype=np.float64))


def _known_triangle(run: Run) -> Array:
    """T, with b as its last column if there is a bias: computed once for all runs of a model in a type."""
    w_u, b_u = run.arrays["W_U"], run.arrays.get("b_U")
    along = np.asarray(np.random.default_rng(0).standard_normal(w_u.shape[1]), w_u.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        mark = w_u @ along if b_u is None else np.concatenate([w_u @ along, b_u])
    known = _TRIANGLES.setdefault(run.model, {})
    if run.dtype not in known or not np.array_equal(known[run.dtype][1], mark):
        known[run.dtype] = _triangle(w_u, b_u, float(np.finfo(run.dtype).eps) / 2), mark
    return known[run.dtype][0]


def _triangle(matrix: Array, column: Array | None = None, unit: float = 0.0) -> Array:
    """A square root T of ``M^T M``, in float64; for a large M block by block, without a copy of it.

    ``column``: one more column of M. ``unit``: the relative accuracy of norms ``|T x|``, 0: as accurate
    as possible. By a QR decomposition, ``[T; B] = Q' T'``: ``T^T T`` is that of the rows before, so ``T'^T T'`` is
    that of all rows so far; or by :func:`_of_gram`, if that is accurate enough.
    """
    found = _of_gram(matrix, column, unit) if unit > _GRAM_ERROR else None
    if found is not None:
        return found
    columns = matrix.shape[1] + (column is not None)
    each, triangle = max(4 * columns, _BLOCK // columns), np.zeros((0, columns))
    for start in range(0, len(matrix), each):
        triangle = np.asarray(np.linalg.qr(_rows(matrix, column, start, each, triangle), mode="r"))
    return triangle


def _rows(matrix: Array, column: Array | None, start: int, each: int, before: Array) -> Array:
    """Some rows of a matrix with that column, below those of another, in float64."""
    part = matrix[start : start + each]
    block = np.empty((len(before) + len(part), before.shape[1]))
    block[: len(before)], block[len(before) :, : matrix.shape[1]] = before, part
    if column is not None:
        block[len(before) :, -1] = column[start : start + each]
    return block


def _of_gram(matrix: Array, column: Array | None, unit: float) -> Array | None:
    """The triangle by Cholesky's decomposition of the Gram matrix; None if its error may exceed ``unit``.

    ``||T x|^2 - |M x|^2| <= e |M|^2 |x|^2`` with e the error of the Gram matrix, so the relative error of a norm is at
    most ``e cond(M)^2 / 2``.
    """
    columns = matrix.shape[1] + (column is not None)
    gram, none = np.zeros((columns, columns)), np.zeros((0, columns))
    for start in range(0, len(matrix), _GRAM_ROWS):
        block = _rows(matrix, column, start, _GRAM_ROWS, none)
        gram += block.T @ block  # a product of a matrix with itself: half the work
    if not np.isfinite(gram).all():
        return None
    squares = np.linalg.eigvalsh(gram)
    if not squares[-1] * _GRAM_ERROR < squares[0] * unit:
        return None
    return np.asarray(np.linalg.cholesky(gram).T)


def compact(values: Values, tokens: Sequence[int]) -> Compact | None:
    """The small unembedding, if the target is logits and the vocabulary larger than the stream; else None.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2,)), d_vocab=50, d_model=4).run([1, 2, 3])
    >>> small = compact(sc.evaluate(sc.logits(run.model.architecture), run), [7])
    >>> same, entries, mean = small.read(run.streams[-1] @ small.matrices["W_U"].T)
    >>> bool(np.isclose(np.linalg.norm(run.logits), np.linalg.norm(same)) and np.allclose(run.logits[:, [7]], entries))
    True
    """
    if values.expansion.target != "logits":
        return None
    rows, columns = values.run.arrays["W_U"].shape
    small = columns + ("b_U" in values.run.arrays) + len(tokens) + bool(tokens)
    return Compact(values, tokens) if rows > small else None
