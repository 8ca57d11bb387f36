"""Sums of the absolute values of terms, estimated from a sample, without listing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.budgets import Budget
from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.seam import higher
from symcircuits.core.shown import Shown
from symcircuits.core.text import argument, many, mebibytes, setting, shown, whole
from symcircuits.core.walk import Mark
from symcircuits.model import Run
from symcircuits.search.best_first import Found, Tree
from symcircuits.search.pairs import pair_sizes
from symcircuits.search.suffixes import Functional
from symcircuits.search.trees import trees
from symcircuits.values.evaluate import Values
from symcircuits.values.measure import Measure, resolved
from symcircuits.values.unembedding import with_mean
from symcircuits.work.pools import OutOfTime
from symcircuits.work.progress import OnProgress, told_by

__all__ = ["Sample", "sample"]

Array = npt.NDArray[Any]
WEIGHTS = ("uniform", "bound")
_DRAW_BYTES = 1000  # of a drawn term: its path, size and probability
_KEPT = 2000  # suffixes whose choices are cached: samples share the last heads of a path


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Sample(Shown):
    """Terms drawn at random, and the estimated sum of the sizes of all: ``estimate`` and its standard error.

    ``sizes [k]`` of the drawn terms, ``chances [k]``: their probabilities; ``bound``: a proved upper bound on the sum
    (infinite if none is proved; for norms it adds up all rows, and may exceed the sum of norms);
    ``count``: the number of terms; ``reached``: the limit that ended it early, if one did.
    """

    expansion: Expansion
    measure: Measure
    weights: str
    terms: tuple[Term, ...]
    sizes: Array
    chances: Array
    bound: float
    count: int
    seed: int = 0
    reached: str = ""

    @property
    def estimate(self) -> float:
        """``mean(size / chance)``: its expectation is the sum of the sizes of all terms. nan if none was drawn."""
        none = float("nan") if self.count else 0.0
        return float((self.sizes / self.chances).mean()) if len(self.terms) else none

    @property
    def error(self) -> float:
        """The standard error of the estimate; 0 if there is nothing to draw."""
        if len(self.terms) < 2:
            return float("inf") if self.count else 0.0
        return float((self.sizes / self.chances).std(ddof=1) / np.sqrt(len(self.terms)))

    def text(self, width: int = 100, top: int = 10) -> str:
        """The estimate in words, and the ``top`` largest of the drawn terms."""
        return self._text(width, top=top)

    def json(self, top: int = 10) -> dict[str, Any]:
        """The same as plain data (schema in docs/json.md)."""
        return higher(dict, "Sample.json")(self, top)

    def __repr__(self) -> str:
        return higher(str, "Sample.line")(self)


def sample(
    values: Values, k: int = 1000, by: Measure | None = None, *, seed: int = 0, weights: str = "bound",
    max_seconds: float | None = None, max_memory: int = 2**30,
    progress: OnProgress | bool = None,
) -> Sample:  # fmt: skip
    """Draw k terms (with replacement), and estimate the sum of the sizes of all: unbiased, with a standard error.

    A path is drawn from the readout back, head by head. ``weights="uniform"``: by the number of paths behind each
    choice, so all paths are equally likely. ``"bound"``: by a bound on the sum of the sizes behind it (the pairwise
    bound of :func:`~symcircuits.search.largest.largest`, with sums in place of maxima), so large terms are likely. Then
    ``E[size / chance] = sum of sizes``, because every term other than 0 has a positive probability. If few terms hold
    most of the sum, uniform draws may miss them all, and then the error is too small as well. For score terms the key
    path is drawn after the query path, from those that combine with it. The same seed draws the same terms. Source: own
    derivation (importance sampling).

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((3, 3, 3)), seed=1).run([1, 2, 3])
    >>> values = sc.evaluate(sc.logits(run.model.architecture), run)
    >>> found = values.sample(400, sc.logit())
    >>> exact = sum(abs(value[-1, found.measure.token]) for value in values)
    >>> bool(abs(found.estimate - exact) < 4 * found.error), bool(exact <= found.bound)
    (True, True)
    """
    budget = Budget(max_seconds=max_seconds, max_memory=max_memory)
    expansion = values.expansion
    k, seed = whole("k", k, 0), whole("seed", seed, 0)
    _check(k, weights, budget.max_memory)
    measure = resolved(values, by)
    seen, read = with_mean(values, measure)
    run, told = seen.run, told_by(progress)
    terms, bound = list[Term](), float("inf")
    sizes, chances = np.zeros(k if expansion.count else 0), np.ones(k if expansion.count else 0)
    with np.errstate(over="ignore", invalid="ignore"):
        found = trees(read, expansion, run, budget, moments=False)
        try:
            drawn = _Drawn(read, expansion, run, found, weights == "bound", rng=np.random.default_rng(seed))
            bound = drawn.bound
            for i in range(len(sizes)):
                if budget.late:
                    raise OutOfTime
                one, sizes[i], chances[i] = drawn.draw()
                terms.append(one)
                if told:
                    told("draws", i + 1, len(sizes))
        except OutOfTime:
            budget.ended()
    n = len(terms)
    return Sample(
        expansion, measure, weights, tuple(terms), sizes=sizes[:n], chances=chances[:n], bound=bound,
        count=expansion.count, seed=seed, reached=budget.reached,
    )  # fmt: skip


def _check(k: int, weights: str, max_memory: int) -> None:
    if weights not in WEIGHTS:
        raise ValueError(f'weights must be "uniform" or "bound", not {shown(weights)}')
    if k * _DRAW_BYTES > max_memory:
        raise ValueError(
            f"{many(k)} draws need about {mebibytes(k * _DRAW_BYTES)}, and {argument('max_memory')} is "
            f"{mebibytes(max_memory)}: draw fewer; the error falls with the root of their number"
        )


class _Choices:
    """The possible continuations of a suffix: the paths that end there and the heads, with their probabilities."""

    __slots__ = ("chances", "ended", "found", "total", "weights")

    def __init__(self, found: Functional, ended: list[Found], weights: Array) -> None:
        self.found, self.ended, self.weights = found, ended, weights
        self.total = float(weights.sum())
        if not self.total < float("inf"):
            raise ValueError(
                "bounds on the sizes of terms, or their number, leave the range of float64, so probabilities cannot be "
                f"computed from them: draw with {setting('weights', 'uniform')}, or scale the weights"
            )
        self.chances = np.cumsum(weights / self.total) if self.total > 0 else weights


class _Paths:
    """Paths of one tree, drawn at random."""

    def __init__(self, tree: Tree, bound: bool, rng: np.random.Generator) -> None:
        self.tree, self.bound, self.rng = tree, bound, rng
        self.kept: dict[tuple[Any, ...], _Choices] = {}

    def root(self) -> _Choices:
        return self._choices((), lambda: self.tree.start())

    def most(self) -> float:
        """A bound on the sum of the sizes of all paths."""
        found, ended = self.tree.start()
        _, numbers, largest, sums = self._met(found)
        each, whole = self.tree.bounds.pairwise(found, largest)[0], self.tree.bounds.summed(found, sums)
        behind = float(np.minimum(whole, numbers * each)[numbers > 0].sum())
        total = (behind + sum(one.size + one.off for one in ended)) * (1 + 1e-12)
        return float("inf") if np.isnan(total) else total

    def draw(self) -> tuple[Found, float]:
        """A path, and its probability."""
        here, chance, tree = self.root(), 1.0, self.tree
        while True:
            i = min(int(np.searchsorted(here.chances, self.rng.random(), side="right")), len(here.weights) - 1)
            while not here.weights[i]:
                i -= 1  # rounding at the upper end
            chance *= here.weights[i] / here.total
            if i < len(here.ended):
                return here.ended[i], float(chance)
            f, found = i - len(here.ended), here.found
            here = self._choices((f, *found.heads), lambda f=f, found=found: tree.expand(found, f))

    def _choices(self, heads: tuple[int, ...], make: Any) -> _Choices:
        name = (self.tree.key, *heads)
        if name not in self.kept:
            found, ended = make()
            weights = self._weights(found, ended, self.bound)
            if not weights.any():  # all terms behind are 0, and equally likely
                weights = self._weights(found, ended, False)
            choices = _Choices(found, ended, weights)
            if len(self.kept) >= _KEPT:
                self.kept.clear()
            self.kept[name] = choices
        return self.kept[name]

    def _weights(self, found: Functional, ended: list[Found], bound: bool) -> Array:
        """The weight of each path that ends here, and of each head that may precede a suffix."""
        _, numbers, _, sums = self._met(found)
        if not bound:
            return np.concatenate([np.ones(len(ended)), numbers])
        behind = np.where(numbers > 0, self.tree.bounds.pairwise(found, sums)[0], 0.0)
        return np.concatenate([[one.size + one.off for one in ended], behind])

    def _met(self, found: Functional) -> tuple[Any, Array, Array, Array]:
        """The bounds for the heads before a suffix, and the numbers of paths as floating-point numbers."""
        marks, counts, largest, sums = self.tree.bounds.met(self.tree.wanted, found.mark, self.tree.key)
        return marks, np.array([float(min(n, 10**300)) for n in counts[: found.limit]]), largest, sums


class _Drawn:
    """Terms drawn at random: a path, or a query path and then a key path that combines with it."""

    def __init__(
        self, measure: Measure, expansion: Expansion, run: Run, found: tuple[Tree, ...], bound: bool,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self.measure, self.expansion, self.run = measure, expansion, run
        self.sides = [_Paths(tree, bound, rng) for tree in found]
        self.keys: dict[Mark, int] = {}
        head = expansion.readout.head
        turns = run.arrays[f"R_{head}"] if f"R_{head}" in run.arrays and not measure.signed else None
        self.turns = None if turns is None else np.asarray(turns, np.float64)
        self.bound = self.sides[0].most() if bound and len(found) == 1 else float("inf")

    def draw(self) -> tuple[Term, float, float]:
        """A term, its size and its probability."""
        one, chance = self.sides[0].draw()
        if len(self.sides) == 1:
            return self._finite(self.expansion._term(one.path), one.size), one.size, chance
        keys = self.sides[1]
        mark = self.expansion.sides[0].mark(one.path)
        keys.tree.key = self.keys.setdefault(mark, len(self.keys) + 1)
        keys.tree.wanted = lambda m: self.expansion.accepts((mark, m))
        other, more = keys.draw()
        query, key = self._turned(one.value), self._turned(other.value)
        size = abs(float(pair_sizes(self.measure.kind, self.run, self.expansion, query, key[None], 0)[0]))
        return self._finite(self.expansion._term(one.path, other.path), size), size, chance * more

    def _finite(self, term: Term, size: float) -> Term:
        """The term; raises ValueError if its size is not a finite number."""
        if not size < float("inf"):
            raise ValueError(
                f"term {self.expansion.index(term):,} ({term.label}) has the size {size}: numbers leave the range of "
                "float64 during the computation; scale the weights"
            )
        return term

    def _turned(self, rows: Array) -> Array:
        return rows if self.turns is None else np.asarray((rows[..., None, :] @ self.turns)[..., 0, :])
