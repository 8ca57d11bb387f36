"""The sum of the squares of all terms, without listing them: exact by second moments, or estimated by random signs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.budgets import Budget
from symcircuits.core.expansion import Expansion
from symcircuits.core.programs import Branch, Source
from symcircuits.core.text import whole
from symcircuits.core.walk import Mark, Matrices
from symcircuits.model import Run
from symcircuits.search.best_first import Tree
from symcircuits.search.trees import trees
from symcircuits.values.evaluate import Values
from symcircuits.values.finite import finite
from symcircuits.values.measure import Measure, resolved
from symcircuits.values.unembedding import with_mean

__all__ = ["Squares", "squares", "squares_of"]

Array = npt.NDArray[Any]
SAMPLES = 64
_BLOCK_BYTES = 2**21  # of a stream for several choices of signs: small enough for the cache


@dataclass(frozen=True, slots=True)
class Squares:
    """``value``: the sum of the squares of all terms; ``error``: its standard error if it is an estimate, else 0."""

    value: float
    error: float
    exact: bool
    by: str

    def __str__(self) -> str:
        return f"{self.value:.6g}" if self.exact else f"{self.value:.4g} +- {self.error:.2g} (estimated)"


def squares(
    values: Values, by: Measure | None = None, *, samples: int = SAMPLES, seed: int = 0, max_memory: int = 2**30
) -> Squares:
    """The sum of the squares of all terms of an expansion, at any depth, without listing them.

    If the second moments of all heads fit in memory, the result is exact except for
    rounding: ``K_h = sum over paths into h of vec(Z) vec(Z)^T``, ``K_h = (A_h (x) I) (sum of y y^T over sources +
    sum_g (I (x) C)^T K_g (I (x) C)) (A_h (x) I)^T`` with ``C = W_O^{g T} W_V^{h T}``, and at the readout ``sum |L Z
    R|^2 = <L^T L (x) R R^T, K>``; of score terms, pairs of a query u and a key v, ``sum <u, v>^2 = <sum u^T u, sum
    v^T v>``, and the same for ``|Q K^T|^2``. Otherwise by random signs: with a sign for each head and source,
    distinct paths have distinct products of signs, so ``E |sum of signed terms|^2 = sum |term|^2``, and a signed sum
    is one walk; the mean over ``samples`` of them and its standard error. Source: own derivation.

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> values = sc.evaluate(sc.logits(run.model.architecture), run)
    >>> found = values.sum_of_squares()
    >>> listed = sum(float((value**2).sum()) for value in values)
    >>> found.exact, bool(abs(found.value - listed) < 1e-12 * listed)
    (True, True)
    """
    expansion = values.expansion
    measure = resolved(values, by)
    seen, read = with_mean(values, measure)
    run = seen.run
    samples, seed, budget = whole("samples", samples, 2), whole("seed", seed, 0), Budget(max_memory=max_memory)
    with np.errstate(over="ignore", invalid="ignore"):  # nan is detected in the sum
        found = squares_of(read, expansion, run, trees(read, expansion, run, budget), budget, samples, seed)
    if not found.value + found.error < float("inf"):
        finite(values, "the sum of the squares of all terms", np.array(float("nan")))
    return replace(found, by=str(measure))


def squares_of(
    measure: Measure, expansion: Expansion, run: Run, found: tuple[Tree, ...], budget: Budget, samples: int = SAMPLES,
    seed: int = 0,
) -> Squares:  # fmt: skip
    """The same, for existing trees; nan if there is no time for an estimate."""
    exact = _exact(measure, expansion, found)
    if exact is not None:
        return Squares(exact, 0.0, True, str(measure))
    values = _signed_squares(measure, expansion, run, found, budget, samples, seed)
    if len(values) < 2:
        return Squares(float("nan"), float("nan"), False, str(measure))
    return Squares(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), False, str(measure))


def _exact(measure: Measure, expansion: Expansion, found: tuple[Tree, ...]) -> float | None:
    if len(found) == 1:
        return found[0].squares()
    turned = f"R_{expansion.readout.head}" in found[0].net.matrices.matrices and measure.kind == "norm"
    if measure.kind == "masked norm" or turned or not all(f.has_moments for f in found):
        return None
    sides = [_outer_sums(tree) for tree in found]
    return sum(
        float((u * v).sum()) for q, u in sides[0].items() for k, v in sides[1].items() if expansion.accepts((q, k))
    )


def _outer_sums(tree: Tree) -> dict[Mark, Array]:
    """By mark the sum of ``u^T u`` over the paths of a side, ``[batch, m, m]``, summed over its rows."""
    net, bounds, root = tree.net, tree.bounds, tree.root
    assert bounds.moments is not None
    sums: dict[Mark, Array] = {}
    for one in tree.start()[1]:
        mark = net.fold(*net.paths.mark(one.path))
        sums[mark] = sums.get(mark, 0) + one.value.swapaxes(-1, -2) @ one.value
    rows = (root.rows.swapaxes(-1, -2) @ root.rows).reshape(net.batch, 1, 1, -1)
    for mark, moments in bounds.moments.items():
        whole = Mark(mark.order, net.joints.met(mark.bits, 0))
        for f in range(len(net.heads)):
            cols = net.writes[f] @ root.cols
            sums[whole] = sums.get(whole, 0) + cols.T @ (rows @ moments[f])[:, :, 0] @ cols
    return sums


class _Signed:
    """The algebra of matrices with a sign for each head and source, for several choices of signs at once."""

    def __init__(self, base: Matrices, rng: np.random.Generator, samples: int) -> None:
        self.base, self.rng, self.samples = base, rng, samples
        self._signs: dict[Any, Array] = {}

    def _sign(self, of: Any, value: Array) -> Array:
        if of not in self._signs:
            self._signs[of] = self.rng.choice([-1.0, 1.0], self.samples)
        return np.asarray(value * self._signs[of].reshape(-1, *(1,) * 3))

    def source(self, source: Source) -> Array:
        value = np.asarray(self.base.source(source))
        value = self._sign(("source", source.name, source.head), value if value.ndim == 3 else value[None])
        return value if source.head is None else self._sign(source.head, value)

    def branch(self, branch: Branch, value: Array) -> Array:
        if branch.head is None:
            return np.asarray(self.base.branch(branch, value))
        value = np.asarray(self.base.chain(branch.right[:-1], value))
        for f in reversed(branch.left):
            value = self.base.factor(f) @ value
        value = self.base.scaled(branch.scales, value)
        return np.asarray(
            self.base.chain(branch.right[-1:], self._sign(branch.head, value))
        )  # applied where it is narrow

    def add(self, values: Sequence[Array]) -> Array:
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total

    def readout(self, source: Source, value: Array) -> Array:
        """The term of a source that the readout adds."""
        return self._sign(("source", source.name, source.head), value)


def _signed_squares(
    measure: Measure, expansion: Expansion, run: Run, found: tuple[Tree, ...], budget: Budget, samples: int, seed: int
) -> Array:
    """``|sum of signed terms|^2`` for each choice of signs."""
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK_BYTES // (8 * run.tokens.size * run.model.d_model * (1 + found[0].net.cap)))
    squared: list[Array] = []
    while (done := sum(map(len, squared))) < samples and not budget.late:
        count = min(block, samples - done)
        sides = [_signed_sums(tree, rng, count) for tree in found]
        if len(sides) == 1:
            total = sum((value for mark, value in sides[0].items() if expansion.accepts((mark,))), np.zeros((1,) * 4))
        else:
            total = _pair_sums(measure, expansion, run, found, sides)
        total = np.broadcast_to(total, (count, *total.shape[1:])).reshape(count, -1)
        squared.append((total**2).sum(1))
    return np.concatenate(squared) if squared else np.zeros(0)


def _signed_sums(tree: Tree, rng: np.random.Generator, count: int) -> dict[Mark, Array]:
    """By mark the signed sum that is read, ``[count, batch, r, m]``."""
    net, algebra = tree.net, _Signed(tree.net.matrices, rng, count)
    root, met = tree.summed
    sums = {m: net.apply(root, v[..., net.tokens, :]) for m, v in net.sums(algebra).items()}
    for source, value, _ in met:
        mark = Mark(0, net.paths.source_bits(source))
        sums[mark] = sums.get(mark, 0) + algebra.readout(source, value)
    return sums


def _pair_sums(
    measure: Measure, expansion: Expansion, run: Run, found: tuple[Tree, ...], sides: list[dict[Mark, Array]]
) -> Array:
    """Signed queries times signed keys."""
    head, total = expansion.readout.head, np.zeros((1,) * 4)
    turns = run.arrays[f"R_{head}"] if measure.kind != "score entry" and f"R_{head}" in run.arrays else None
    if turns is not None:
        sides = [{m: (v[..., None, :] @ turns)[..., 0, :] for m, v in side.items()} for side in sides]
    for q, u in sides[0].items():
        for k, v in sides[1].items():
            if expansion.accepts((q, k)):
                total = total + u @ v.swapaxes(-1, -2)
    if measure.kind == "masked norm":
        assert head is not None
        total = total * run.masks[f"L{head.layer}"]
    return total
