"""Which numbers stay the same when the weights change and the model does not: what a ranking by them means.

None of the changes of the weights below changes what the model computes, so a number that they change depends on
how the weights are written. Every cell of the table is computed: the number before and after, on one run. Source:
paper, "Residual Stream" (no privileged basis), "Activation Properties"; the other changes: own derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from symcircuits.circuits.circuit import Circuit, circuit
from symcircuits.circuits.composition import composition_scores
from symcircuits.circuits.losses import loss_by_order
from symcircuits.core.architecture import Head, attention_only
from symcircuits.core.expansion import expand
from symcircuits.core.shown import Shown
from symcircuits.core.text import whole
from symcircuits.model import Model, Run, change_basis, pattern_without, random_model, rerun
from symcircuits.values.evaluate import Values, evaluate
from symcircuits.values.measure import logit, norm

__all__ = ["CHANGES", "NUMBERS", "Invariances", "invariances"]

Array = npt.NDArray[Any]
STAYS: Final = 1e-9  # relative change up to which a number counts as unchanged
_TOKENS: Final = 6
_FIRST, _SECOND = 0, 1  # the outputs of a logit and of a difference


class Seen(NamedTuple):
    """A run, and the names that the heads of the original model have in it."""

    run: Run
    names: Mapping[str, str]

    @property
    def heads(self) -> list[str]:
        """The heads, in the order of the original model."""
        return list(self.names.values())

    def values(self, target: str = "logits") -> Values:
        """The values of the terms of a target."""
        return evaluate(expand(self.run.model.architecture, target), self.run)

    @property
    def chain(self) -> tuple[str, str]:
        """The first head of the first layer that has heads, and of the last."""
        labels = list(self.names)
        return self.names[labels[0]], self.names[next(h for h in labels if h[:2] == labels[-1][:2])]


# ------------------------------------------------------------------------------------- changes of the weights
def _stream(model: Model, draws: np.random.Generator) -> tuple[Model, None]:
    return change_basis(model, _invertible(draws, model.d_model)), None


def _rotation(model: Model, draws: np.random.Generator) -> tuple[Model, None]:
    return change_basis(model, np.linalg.qr(draws.normal(size=(model.d_model,) * 2))[0]), None


def _heads(model: Model, draws: np.random.Generator) -> tuple[Model, None]:
    sizes = {str(head): len(model.weights[f"W_V_{head}"]) for head in model.architecture.all_heads}
    bases = {head: (_invertible(draws, size), _invertible(draws, size)) for head, size in sizes.items()}
    return change_basis(model, head_bases=bases), None


def _split(model: Model, draws: np.random.Generator) -> tuple[Model, None]:
    shift = draws.normal(size=model.d_model)
    w = model.weights
    return _with(model, W_E=w["W_E"] + shift[:, None], W_pos=w["W_pos"] - shift), None


def _outputs(model: Model, draws: np.random.Generator) -> tuple[Model, None]:
    return _with(model, W_U=model.weights["W_U"] + draws.normal(size=model.d_model)), None


def _constants(model: Model, draws: np.random.Generator) -> tuple[Model, None]:
    """Part of each value bias goes to the bias of its layer: rows of patterns sum to one, so it arrives whole."""
    new = {name: np.array(w) for name, w in model.weights.items()}
    for head in model.architecture.all_heads:
        shift = draws.normal(size=len(new[f"b_V_{head}"]))
        new[f"b_V_{head}"] -= shift
        new[f"b_O_L{head.layer}"] += new[f"W_O_{head}"] @ shift
    return _with(model, **new), None


def _order(model: Model, draws: np.random.Generator) -> tuple[Model, dict[str, str]]:
    """The heads of each layer in reverse order."""
    new, names = dict(model.weights), {}
    counts = model.architecture.heads
    for head in model.architecture.all_heads:
        other = Head(head.layer, counts[head.layer] - 1 - head.number)
        names[str(head)] = str(other)
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
            if f"{name}_{head}" in new:
                new[f"{name}_{other}"] = model.weights[f"{name}_{head}"]
    scales = {names[h]: scale for h, scale in model.score_scale.items()}
    return replace(model, weights=new, score_scale={h: scales[h] for h in model.score_scale}), names


def _with(model: Model, **weights: Array) -> Model:
    return replace(model, weights={**model.weights, **weights})


def _invertible(draws: np.random.Generator, size: int) -> Array:
    """A matrix with a small condition number, so nothing is lost to rounding, that is not a rotation."""
    left, right = (np.linalg.qr(draws.normal(size=(size, size)))[0] for _ in range(2))
    return np.asarray(left * draws.uniform(0.5, 2, size) @ right)


# name: the change in words, and the model after it (with new names of heads, if they change)
CHANGES: Final[Mapping[str, tuple[str, Callable[..., tuple[Model, dict[str, str] | None]]]]] = {
    "GL(d_model)": ("another basis of the stream, by any invertible matrix", _stream),
    "O(d_model)": ("another basis of the stream, by a rotation", _rotation),
    "head bases": ("other bases of queries and keys, and of values, inside each head", _heads),
    "embed/pos": ("a vector added to every token embedding and taken from every position", _split),
    "W_U shift": ("a vector added to every row of W_U", _outputs),
    "b_V to b_O": ("constants moved from value biases to b_O, as rows of patterns sum to one", _constants),
    "head order": ("heads of a layer in another order, numbers by their new names", _order),
}


# ------------------------------------------------------------------------------------------------ the numbers
def _probabilities(seen: Seen) -> Array:
    rows = np.asarray(seen.run.logits)
    weights = np.exp(rows - rows.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def _term(seen: Seen, target: str = "logits") -> Array:
    """The term of the embedding through a head of the first layer and one of the last."""
    values = seen.values(target)
    return np.asarray(evaluate(values.expansion.from_source("embed").through_sequence(*seen.chain), seen.run).total())


def _measured(seen: Seen, by: Any, target: str = "logits") -> Array:
    values = seen.values(target)
    chosen = values.expansion.from_source("embed").through_sequence(*seen.chain)
    return np.concatenate([block.values for block in evaluate(chosen, seen.run).measure(by)])


def _through(seen: Seen) -> Array:
    found = [evaluate(seen.values().expansion.through(head), seen.run).total() for head in seen.heads]
    return np.stack([one[..., _FIRST] - one[..., _SECOND] for one in found])


def _source_difference(seen: Seen) -> Array:
    found = seen.values().by_source()["embed"]
    return np.asarray(found[..., _FIRST] - found[..., _SECOND])


def _centred_source(seen: Seen) -> Array:
    by_source = seen.values().by_source()
    found = by_source["embed"] + by_source.get("pos", 0)
    return np.asarray(found[..., _FIRST] - found.mean(-1))


def _by_order(seen: Seen, difference: bool) -> Array:
    found = np.stack(list(seen.values().by_order().values()))
    return np.asarray(found[..., _FIRST] - found[..., _SECOND]) if difference else found


def _composition_parts(seen: Seen) -> Array:
    """Parts of a head's scores by composition type, centred along the keys as for softmax, allowed entries."""
    label = seen.chain[1]
    allowed = np.asarray(seen.run.masks[f"L{seen.run.model.architecture.head(label).layer}"], bool)
    found = np.stack(list(seen.values(f"scores:{label}").by_composition().values()))
    means = np.where(allowed, found, 0).sum(-1, keepdims=True) / allowed.sum(-1, keepdims=True)
    return np.asarray(np.where(allowed, found - means, 0))


def _scores(seen: Seen, what: str) -> Array:
    found = composition_scores(seen.run.model, "K")
    names = {label: i for i, label in enumerate(found.labels)}
    places = [names[h] for h in seen.heads]
    array = found.array if what == "score" else found.tight
    return np.asarray(array.filled(0.0))[np.ix_(places, places)]


def _weighted(by: str) -> Callable[[Seen], Array]:
    of = logit(_FIRST) if by == "effect" else None
    return lambda seen: np.stack([seen.values().weighted_pattern(head, by, of) for head in seen.heads])


def _in_order(values: Array) -> Array:
    return np.asarray(values[np.lexsort((values.imag, np.round(values.real, 6)))])


def _spectrum(seen: Seen, start: str, end: str, what: str) -> Array:
    made = circuit(seen.run.model, "OV", seen.chain[1], start=start, end=end)
    if what == "eigenvalues":
        return _in_order(made.eigenvalues)
    return np.asarray(made.svd.values)


def _key_term(seen: Seen) -> Array:
    """The score term of the token at the query and of the output of a head of the first layer at the key."""
    first, last = seen.chain
    scores = seen.values(f"scores:{last}")
    chosen = scores.expansion.from_source("embed", "query").from_source("embed", "key").through(first, "key").order(1)
    return np.asarray(evaluate(chosen, seen.run).total())


def _without_k(seen: Seen) -> Array:
    """The pattern of a head of the last layer without the K-composition terms of its scores."""
    label = seen.chain[1]
    return pattern_without(seen.run, label, np.asarray(seen.values(f"scores:{label}").by_composition()["K"]))


def _without_head(seen: Seen) -> Array:
    """The effect of a head of the first layer on the difference of two logits, everything after it recomputed."""
    change = np.asarray(rerun(seen.run, removed=[seen.chain[0]]).logits) - np.asarray(seen.run.logits)
    return np.asarray(change[..., _FIRST] - change[..., _SECOND])


def _losses(seen: Seen) -> Array:
    return np.array(loss_by_order(seen.values()).after)


def _circuit(seen: Seen, kind: str) -> Circuit:
    """The bigram table, the OV circuit, or the QK circuit of a head of the last layer, or with one of the first."""
    (first, last), model = seen.chain, seen.run.model
    if kind in ("direct", "OV"):
        return circuit(model, kind, *([last] if kind == "OV" else []))
    return circuit(model, "QK", last, key=first if kind == "K" else ())


# number: how it is computed
NUMBERS: Final[Mapping[str, Callable[[Seen], Array]]] = {
    "patterns": lambda seen: np.stack([seen.run.patterns[h] for h in seen.heads]),
    "probabilities; loss": _probabilities,
    "logits": lambda seen: np.asarray(seen.run.logits),
    "value of a term": _term,
    "norm of a term of the logits": lambda seen: _measured(seen, norm()),
    "norm of a term of the stream": lambda seen: _measured(seen, norm(), "stream"),
    "part of a term in a logit": lambda seen: _measured(seen, logit(_FIRST)),
    "part of a term in a logit difference": lambda seen: _measured(seen, logit(_FIRST, against=_SECOND)),
    "part of a term in a logit less the mean": lambda seen: _term(seen)[..., _FIRST] - _term(seen).mean(-1),
    "terms from the embedding, in a logit difference": _source_difference,
    "embedding and position together, in a logit less the mean": _centred_source,
    "terms through a head, in a logit difference": _through,
    "sums by order": lambda seen: _by_order(seen, difference=False),
    "sums by order, in a logit difference": lambda seen: _by_order(seen, difference=True),
    "parts of scores by composition, centred": _composition_parts,
    "norm of a score term": lambda seen: np.array([np.linalg.norm(_key_term(seen))]),
    "part of a term in a score": _key_term,
    "pattern without a part of the scores": _without_k,
    "change without a head, in a logit difference": _without_head,
    "loss after each order": _losses,
    "entries of W_U W_E": lambda seen: _circuit(seen, "direct").array(),
    "entries and diagonal of W_U W_OV W_E": lambda seen: _circuit(seen, "OV").array(),
    "entries of W_E^T W_QK W_E": lambda seen: _circuit(seen, "QK").array(),
    "entries and diagonal of the circuit of K-composition": lambda seen: _circuit(seen, "K").array(),
    "eigenvalues of the circuit of K-composition": lambda seen: _in_order(_circuit(seen, "K").eigenvalues),
    "composition score": lambda seen: _scores(seen, "score"),
    "composition score, tight": lambda seen: _scores(seen, "tight"),
    "eigenvalues of W_U W_OV W_E": lambda seen: _spectrum(seen, "embed", "logits", "eigenvalues"),
    "singular values of W_U W_OV W_E": lambda seen: _spectrum(seen, "embed", "logits", "svd"),
    "eigenvalues of W_OV": lambda seen: _spectrum(seen, "stream", "stream", "eigenvalues"),
    "singular values of W_OV": lambda seen: _spectrum(seen, "stream", "stream", "svd"),
    "pattern weighted by |v|": _weighted("value"),
    "pattern weighted by |W_O v|": _weighted("output"),
    "pattern weighted by the effect on a logit": _weighted("effect"),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Invariances(Shown):
    """The result of :func:`invariances`: by number and by change, the largest relative change of that number.

    ``found[number, change]`` is whether it stays (a relative change of at most 1e-9); ``changed`` has the sizes.
    """

    changed: Mapping[str, Mapping[str, float]]

    def __getitem__(self, at: tuple[str, str]) -> bool:
        number, change = at
        return self.changed[number][change] <= STAYS

    def stays(self, number: str) -> tuple[str, ...]:
        """The changes under which a number stays."""
        return tuple(change for change in self.changed[number] if self[number, change])

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "changes": {name: said for name, (said, _) in CHANGES.items()},
            "numbers": {number: {c: self[number, c] for c in by_change} for number, by_change in self.changed.items()},
        }


def invariances(seed: int = 0) -> Invariances:
    """Which numbers printed by this package stay the same under changes of the weights that leave the model unchanged.

    Computed on a random attention-only model of two layers with positions and biases: every number before and after
    every change. The table is about kinds of numbers, and valid for every model that allows the change; norms of
    the stream depend on its basis, and allow no change of it. Source: own derivation.

    >>> import symcircuits as sc
    >>> found = sc.invariances()
    >>> found["composition score", "O(d_model)"], found["composition score", "GL(d_model)"]
    (True, False)
    >>> found.stays("part of a term in a logit difference")
    ('GL(d_model)', 'O(d_model)', 'head bases', 'W_U shift', 'b_V to b_O', 'head order')
    """
    seed = whole("seed", seed, 0)
    arch = attention_only((3, 2), positions="standard", biases=["b_Q", "b_K", "b_V", "b_O"])
    draws = np.random.default_rng(seed)
    model = random_model(arch, seed=seed, d_vocab=7, d_model=8, d_head=3)
    tokens = draws.integers(0, model.d_vocab, _TOKENS)
    before = {name: number(_seen(model, tokens)) for name, number in NUMBERS.items()}
    changed: dict[str, dict[str, float]] = {name: {} for name in NUMBERS}
    for change, (_, made) in CHANGES.items():
        other, names = made(model, draws)
        after = _seen(other, tokens, names)
        for name, number in NUMBERS.items():
            was = before[name]
            size = float(np.abs(was).max(initial=0.0)) or 1.0
            changed[name][change] = float(np.abs(number(after) - was).max(initial=0.0)) / size
    return Invariances(changed)


def _seen(model: Model, tokens: Array, names: Mapping[str, str] | None = None) -> Seen:
    own = {str(head): str(head) for head in model.architecture.all_heads}
    return Seen(model.run(tokens), own if names is None else names)
