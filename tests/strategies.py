"""What Hypothesis draws, and the plain oracle that the kernel is held to.

The oracle is written from the definition of the transformer and knows nothing of walks or ranks: a term is a
source, and in each later layer the residual stream or one head, all combinations by ``itertools.product``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from symcircuits.architecture import Architecture, attention_only
from symcircuits.expansion import Expansion

KINDS = ("embed", "pos", "b_V", "b_O", "b_Q", "b_K", "b_U")  # the order of sources
HeadPair = tuple[int, int]


# --------------------------------------------------------------------------------------------- counting
def path_count(arch: Architecture, n_layers: int) -> int:
    """Number of paths to the stream after that many layers: ``c_{l+1} = (1 + H) c_l + (biases of layer l)``."""
    count = 2 if arch.positions == "standard" else 1
    for layer in range(n_layers):
        count += arch.heads[layer] * count
        count += sum(f"b_V[L{layer}H{i}]" in arch.biases for i in range(arch.heads[layer]))
        count += f"b_O[L{layer}]" in arch.biases
    return count


def term_count(arch: Architecture, target: str) -> int:
    """Number of terms of a target, by the recursion alone."""
    kind, _, head = target.partition(":")
    if kind != "scores":
        return path_count(arch, len(arch.heads)) + (kind == "logits" and "b_U" in arch.biases)
    paths = path_count(arch, int(head[1:].split("H")[0])) + (arch.positions == "shortformer")
    return (paths + (f"b_Q[{head}]" in arch.biases)) * (paths + (f"b_K[{head}]" in arch.biases))


# ------------------------------------------------------------------------------------------- strategies
@st.composite
def architectures(
    draw: DrawFn,
    max_layers: int = 4,
    max_heads: int = 5,
    max_terms: int | None = 2000,
    unembed: bool | None = None,
) -> Architecture:
    """Any attention-only architecture whose stream has at most ``max_terms`` terms (None: any number)."""
    heads = [draw(st.integers(0, max_heads)) for _ in range(draw(st.integers(0, max_layers)))]
    positions = draw(st.sampled_from([None, "standard", "shortformer"]))
    biases = draw(st.sampled_from([False, True, "some"]))
    while max_terms is not None and path_count(attention_only(heads, positions, bool(biases)), len(heads)) > max_terms:
        heads[heads.index(max(heads))] -= 1
    unembed = draw(st.booleans()) if unembed is None else unembed
    possible = possible_biases(heads, unembed)
    if biases == "some":
        biases = draw(st.sets(st.sampled_from(possible))) if possible else False
    scale, causal = draw(st.booleans()), draw(st.booleans())
    return attention_only(heads, positions, biases, scale=scale, causal=causal, unembed=unembed)


def possible_biases(heads: Iterable[int], unembed: bool) -> list[str]:
    """The names of all biases that there can be."""
    names = ["b_U"] if unembed else []
    for layer, count in enumerate(heads):
        names.append(f"b_O[L{layer}]")
        names += [f"{kind}[L{layer}H{i}]" for i in range(count) for kind in ("b_V", "b_Q", "b_K")]
    return names


def all_targets(arch: Architecture) -> list[str]:
    """Every target of an architecture."""
    heads = [f"scores:L{layer}H{i}" for layer, count in enumerate(arch.heads) for i in range(count)]
    return ["stream", *(["logits"] if arch.unembed else []), *heads]


def targets(arch: Architecture, max_terms: int | None = 2000) -> SearchStrategy[str]:
    """A target with at most that many terms: the whole model as often as the heads of its last layer or any head."""
    fit = [t for t in all_targets(arch) if max_terms is None or term_count(arch, t) <= max_terms]
    whole, scores = ([t for t in fit if t.startswith("scores") == wanted] for wanted in (False, True))
    last = [t for t in scores if t.partition("H")[0] == scores[-1].partition("H")[0]]
    return st.one_of(*(st.sampled_from(some) for some in (whole[::-1], scores, last) if some))


@st.composite
def cases(draw: DrawFn, max_terms: int | None = 2000, **limits: Any) -> tuple[Architecture, str]:
    """An architecture and one of its targets, with at most that many terms."""
    arch = draw(architectures(max_terms=max_terms, **limits))
    return arch, draw(targets(arch, max_terms))


# ----------------------------------------------------------------------------------------------- oracle
@dataclass(frozen=True)
class Route:
    """One path: its source, its heads (earliest first) and its factors as text."""

    source: str
    heads: tuple[HeadPair, ...]
    factors: tuple[str, ...]

    @property
    def rank(self) -> tuple[Any, ...]:
        """Order, heads, source."""
        kind, _, where = self.source.partition("[")
        layer = int(where[1:-1]) if kind == "b_O" else 0
        return len(self.heads), self.heads, KINDS.index(kind), layer

    @property
    def label(self) -> str:
        return " -> ".join([self.source, *(f"L{layer}H{i}" for layer, i in self.heads)])


@dataclass(frozen=True)
class Row:
    """One term: a route, or the routes of query and key, and the whole as text."""

    routes: tuple[Route, ...]
    text: str

    @property
    def orders(self) -> tuple[int, ...]:
        return tuple(len(r.heads) for r in self.routes)

    @property
    def composition(self) -> str:
        if len(self.routes) == 1:
            return "none" if len(self.routes[0].heads) < 2 else "V"
        found = {(False, False): "none", (True, False): "Q", (False, True): "K", (True, True): "QK"}
        return found[bool(self.routes[0].heads), bool(self.routes[1].heads)]

    @property
    def label(self) -> str:
        return " | ".join(r.label for r in self.routes)


def transposed(factors: Iterable[str]) -> tuple[str, ...]:
    """The factors of the transposed product, as text."""
    return tuple(f.removesuffix(".T") if f.endswith(".T") else f + ".T" for f in reversed(tuple(factors)))


def routes(arch: Architecture, n_layers: int) -> list[Route]:
    """All paths to the residual stream after that many layers, unsorted."""
    found: list[Route] = []

    def start(source: str, layer: int, core: list[str], inside: tuple[HeadPair, ...] = ()) -> None:
        skip_or_head = [[None, *((at, i) for i in range(arch.heads[at]))] for at in range(layer, n_layers)]
        for choice in itertools.product(*skip_or_head):
            through = [head for head in choice if head is not None]
            names = [f"L{at}H{i}" for at, i in through]
            factors = [f"A[{h}]" for h in reversed(names)] + core + [f"W_OV[{h}].T" for h in names]
            found.append(Route(source, (*inside, *through), tuple(factors)))

    start("embed", 0, ["X0"])
    if arch.positions == "standard":
        start("pos", 0, ["P"])
    for layer in range(n_layers):
        for i in range(arch.heads[layer]):
            h = f"L{layer}H{i}"
            if f"b_V[{h}]" in arch.biases:
                start(f"b_V[{h}]", layer + 1, [f"A[{h}]", "ones", f"b_V[{h}].T", f"W_O[{h}].T"], ((layer, i),))
        if f"b_O[L{layer}]" in arch.biases:
            start(f"b_O[L{layer}]", layer + 1, ["ones", f"b_O[L{layer}].T"])
    return found


def oracle(arch: Architecture, target: str) -> list[Row]:
    """All terms of a target, in order."""
    kind, _, head = target.partition(":")
    if kind != "scores":
        found = routes(arch, len(arch.heads))
        if kind == "logits":
            found = [Route(r.source, r.heads, (*r.factors, "W_U.T")) for r in found]
            found += [Route("b_U", (), ("ones", "b_U.T"))] if "b_U" in arch.biases else []
        return [Row((r,), " @ ".join(r.factors)) for r in sorted(found, key=lambda r: r.rank)]
    stream = routes(arch, int(head[1:].split("H")[0]))
    if arch.positions == "shortformer":
        stream.append(Route("pos", (), ("P",)))
    query = [Route(r.source, r.heads, (*r.factors, f"W_Q[{head}].T")) for r in stream]
    key = [Route(r.source, r.heads, (*r.factors, f"W_K[{head}].T")) for r in stream]
    query += [Route("b_Q[" + head + "]", (), ("ones", f"b_Q[{head}].T"))] if f"b_Q[{head}]" in arch.biases else []
    key += [Route("b_K[" + head + "]", (), ("ones", f"b_K[{head}].T"))] if f"b_K[{head}]" in arch.biases else []
    front = f"scale[{head}] * " if arch.scale else ""
    rows = []
    for q, k in itertools.product(sorted(query, key=lambda r: r.rank), sorted(key, key=lambda r: r.rank)):
        text = " @ ".join((*q.factors, *transposed(k.factors)))
        rows.append(Row((q, k), front + text.replace(f"W_Q[{head}].T @ W_K[{head}]", f"W_QK[{head}]")))
    return rows


# ------------------------------------------------------------------------------------------- selections
@dataclass(frozen=True)
class Selection:
    """One condition: how an expansion selects by it, and which of the oracle's rows meet it."""

    name: str
    select: Callable[[Expansion], Expansion]
    meets: Callable[[Row], bool]

    def __repr__(self) -> str:
        return self.name


def _looked_at(row: Row, side: str) -> tuple[Route, ...]:
    return row.routes if side == "either" else (row.routes[("query", "key").index(side)],)


def by_order(orders: tuple[int, ...]) -> Selection:
    return Selection(f"order{orders}", lambda e: e.order(*orders), lambda r: sum(r.orders) in orders)


def by_composition(wanted: tuple[str, ...]) -> Selection:
    chosen = wanted[0] if len(wanted) == 1 else wanted
    return Selection(f"where({chosen!r})", lambda e: e.where(composition=chosen), lambda r: r.composition in wanted)


def by_head(head: HeadPair, side: str) -> Selection:
    name = f"L{head[0]}H{head[1]}"
    return Selection(
        f"through({name}, {side})",
        lambda e: e.through(name, side) if side != "either" else e.through(head),
        lambda row: any(head in r.heads for r in _looked_at(row, side)),
    )


def by_source(wanted: tuple[str, ...], side: str) -> Selection:
    chosen = wanted[0] if len(wanted) == 1 else wanted

    def meets(row: Row) -> bool:
        return any(r.source in wanted or r.source.partition("[")[0] in wanted for r in _looked_at(row, side))

    return Selection(f"from_source({chosen!r}, {side})", lambda e: e.from_source(chosen, side=side), meets)


def invisible() -> Selection:
    return Selection("softmax_invisible", lambda e: e.softmax_invisible(), lambda r: r.routes[1].source[:2] == "b_")


def selections(arch: Architecture, target: str) -> SearchStrategy[Selection]:
    """One condition that makes sense for this target."""
    scores = target.startswith("scores")
    side = st.sampled_from(["either", "query", "key"] if scores else ["either"])
    types = ["none", "Q", "K", "QK"] if scores else ["none", "V"]
    orders = st.integers(0, 2 * len(arch.heads) + 1)
    choices = [
        st.lists(orders, min_size=1, max_size=3).map(tuple).map(by_order),
        st.lists(st.sampled_from(types), min_size=1, max_size=2, unique=True).map(tuple).map(by_composition),
    ]
    heads = [(layer, i) for layer, count in enumerate(arch.heads) for i in range(count)]
    if heads:
        choices.append(st.builds(by_head, st.sampled_from(heads), side))
    names = sorted({r.source for row in oracle(arch, target) for r in row.routes})
    names += sorted({n.partition("[")[0] for n in names} - set(names))
    choices.append(st.builds(by_source, st.lists(st.sampled_from(names), min_size=1, max_size=2).map(tuple), side))
    if scores:
        choices.append(st.just(invisible()))
    return st.one_of(choices)
