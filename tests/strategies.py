"""What Hypothesis draws, and the plain oracle that the kernel is held to.

The oracle is written from the definition of the transformer and knows nothing of walks or ranks: a term is a
source, and in each later layer the residual stream or one head, all combinations by ``itertools.product``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from symcircuits.core.architecture import Architecture, transformer
from symcircuits.core.expansion import Expansion

KINDS = ("embed", "pos", "mlp", "b_N", "b_V", "b_O", "b_Q", "b_K", "b_U")  # the order of sources
HeadPair = tuple[int, int]


def examples(number: int, **more: Any) -> settings:
    """So many examples of a property where others have 40: each profile (conftest.py) has fewer or more of all."""
    return settings(max_examples=max(1, number * settings.default.max_examples // 40), **more)


# --------------------------------------------------------------------------------------------- counting
def path_count(arch: Architecture, n_layers: int) -> int:
    """Number of paths to the stream after that many layers: ``c_{l+1} = (1 + H) c_l + (sources of layer l)``."""
    count = 2 if arch.positions == "standard" else 1
    for layer in range(n_layers):
        count += arch.heads[layer] * count
        count += sum(f"b_V[{group(arch, layer, i)}]" in arch.biases for i in range(arch.heads[layer]))
        count += (f"b_N[L{layer}]" in arch.biases) * arch.heads[layer]
        count += (f"b_O[L{layer}]" in arch.biases) + (layer in arch.mlps)
    return count


def group(arch: Architecture, layer: int, i: int) -> str:
    """The label of the keys and values of a head: its own, or its group's."""
    if arch.groups is None or arch.groups[layer] == arch.heads[layer]:
        return f"L{layer}H{i}"
    return f"L{layer}G{i // (arch.heads[layer] // arch.groups[layer])}"


def term_count(arch: Architecture, target: str) -> int:
    """Number of terms of a target, by the recursion alone."""
    kind, _, head = target.partition(":")
    if kind != "scores":
        last = ("b_U" in arch.biases) + ("b_N[final]" in arch.biases)
        return path_count(arch, len(arch.heads)) + (last if kind == "logits" else 0)
    layer, i = (int(n) for n in head[1:].split("H"))
    paths = path_count(arch, layer) + (arch.positions == "shortformer") + (f"b_N[L{layer}]" in arch.biases)
    return (paths + (f"b_Q[{head}]" in arch.biases)) * (paths + (f"b_K[{group(arch, layer, i)}]" in arch.biases))


# ------------------------------------------------------------------------------------------- strategies
@st.composite
def architectures(
    draw: DrawFn,
    max_layers: int = 4,
    max_heads: int = 5,
    max_terms: int | None = 2000,
    unembed: bool | None = None,
    features: bool = True,
) -> Architecture:
    """Any architecture whose stream has at most ``max_terms`` terms (None: any number).

    ``features``: norms, MLPs and key/value groups too, in one of two of them.
    """
    heads = [draw(st.integers(0, max_heads)) for _ in range(draw(st.integers(0, max_layers)))]
    positions = draw(st.sampled_from([None, "standard", "shortformer", *(["rotary", "alibi"] if features else [])]))
    biases = draw(st.sampled_from([False, True, "some"]))
    more: dict[str, Any] = draw(_features(len(heads))) if features and draw(st.booleans()) else {}
    if positions == "alibi":
        more.pop("softmax", None)
    while (
        max_terms is not None
        and path_count(transformer(heads, positions, bool(biases), **more), len(heads)) > max_terms
    ):
        heads[heads.index(max(heads))] -= 1
    if more and draw(st.booleans()):
        more["groups"] = [draw(st.sampled_from([g for g in range(1, n + 1) if n % g == 0] or [0])) for n in heads]
    unembed = draw(st.booleans()) if unembed is None else unembed
    if features and draw(st.booleans()):
        more["multipliers"] = draw(_multipliers(len(heads), more.get("mlps", ()), unembed))
    more |= {"scale": draw(st.booleans()), "causal": draw(st.booleans()), "unembed": unembed}
    plain = transformer(heads, positions, **more)
    possible = possible_biases(plain)
    if biases == "some":
        biases = draw(st.sets(st.sampled_from(possible))) if possible else False
    if plain.norm_labels and draw(st.booleans()):
        more["gains"] = draw(st.sets(st.sampled_from(plain.norm_labels)))
    return transformer(heads, positions, biases, **more)


@st.composite
def _features(draw: DrawFn, n_layers: int) -> dict[str, Any]:
    mlps = draw(st.sets(st.integers(0, n_layers - 1))) if n_layers else set[int]()
    found: dict[str, Any] = {"norm": draw(st.sampled_from(["LN", "RMS", None])), "mlps": mlps}
    found["qk_norm"] = draw(st.sampled_from([False, False, True]))
    found["softmax"] = draw(st.sampled_from([True, True, False]))
    found["capped"] = found["softmax"] and draw(st.sampled_from([False, False, True]))
    return found | ({kind: draw(st.booleans()) for kind in ("gated", "parallel", "bilinear")} if mlps else {})


def _multipliers(n_layers: int, mlps: Iterable[int], unembed: bool) -> SearchStrategy[Any]:
    """Some multipliers, or all."""
    names = ["m_E", *(["m_U"] if unembed else [])]
    names += [f"r[L{layer}]" for layer in range(n_layers)] + [f"r[M{layer}]" for layer in mlps]
    return st.one_of(st.just(True), st.sets(st.sampled_from(names)))


def possible_biases(arch: Architecture) -> list[str]:
    """The names of all biases that there can be."""
    names = ["b_U"] if arch.unembed else []
    names += [f"b_N[{label}]" for label in arch.norm_labels] if arch.norm == "LN" else []
    for layer, count in enumerate(arch.heads):
        names.append(f"b_O[L{layer}]")
        names += [f"b_Q[L{layer}H{i}]" for i in range(count)]
        shared = dict.fromkeys(group(arch, layer, i) for i in range(count))
        names += [f"{kind}[{label}]" for label in shared for kind in ("b_V", "b_K")]
    inside = ("b_in", "b_out", "b_gate") if arch.gated else ("b_in", "b_out")
    return names + [f"{kind}[L{layer}]" for layer in arch.mlps for kind in inside]


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
    """One path: its source, its heads (earliest first), its factors and its multipliers as text."""

    source: str
    heads: tuple[HeadPair, ...]
    factors: tuple[str, ...]
    numbers: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[Any, ...]:
        """Order, heads, source."""
        kind, _, where = self.source.partition("[")
        layer = int(where[1:-1]) if kind in ("b_O", "mlp") else 0
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
    """The factors of the transposed product, as text; what norms do is symmetric."""
    return tuple(
        f if f[:2] in ("D[", "C", "ga") else f.removesuffix(".T") if f.endswith(".T") else f + ".T"
        for f in reversed(tuple(factors))
    )


def norm_factors(arch: Architecture, label: str) -> tuple[list[str], list[str]]:
    """What a norm puts on the left and on the right of the stream that is read through it."""
    if not arch.norm:
        return [], []
    return [f"D[{label}]"], ["C"] * (arch.norm == "LN") + [f"gain[{label}]"] * (label in arch.gains)


def read_through(
    arch: Architecture, label: str, found: list[Route], reader: str, numbers: tuple[str, ...] = ()
) -> list[Route]:
    """The routes to the stream, read by a matrix through a norm, and the norm's bias."""
    left, right = norm_factors(arch, label)
    read = [Route(r.source, r.heads, (*left, *r.factors, *right, reader), r.numbers + numbers) for r in found]
    bias = f"b_N[{label}]"
    return read + ([Route(bias, (), ("ones", f"{bias}.T", reader), numbers)] if bias in arch.biases else [])


def times(arch: Architecture, name: str) -> tuple[str, ...]:
    """A multiplier, where it is there."""
    return (name,) if name in arch.multipliers else ()


def front(numbers: Iterable[str]) -> str:
    """Multipliers in front of a term: that of the embedding, of the layers (attention first), of the logits."""

    def place(name: str) -> tuple[int, int, str]:
        return (1, int(name[3:-1]), name) if name[0] == "r" else (0 if name == "m_E" else 2, 0, name)

    return "".join(f"{name} * " for name in sorted(numbers, key=place))


def routes(arch: Architecture, n_layers: int) -> list[Route]:
    """All paths to the residual stream after that many layers, unsorted."""
    found: list[Route] = []

    def start(
        source: str, layer: int, core: list[str], inside: tuple[HeadPair, ...] = (), numbers: tuple[str, ...] = ()
    ) -> None:
        skip_or_head = [[None, *((at, i) for i in range(arch.heads[at]))] for at in range(layer, n_layers)]
        for choice in itertools.product(*skip_or_head):
            through = [head for head in choice if head is not None]
            factors = core
            for at, i in through:
                left, right = norm_factors(arch, f"L{at}")
                factors = [f"A[L{at}H{i}]", *left, *factors, *right, f"W_OV[L{at}H{i}].T"]
            passed = tuple(n for at, _ in through for n in times(arch, f"r[L{at}]"))
            found.append(Route(source, (*inside, *through), tuple(factors), numbers + passed))

    start("embed", 0, ["X0"], (), times(arch, "m_E"))
    if arch.positions == "standard":
        start("pos", 0, ["P"])
    for layer in range(n_layers):
        r = times(arch, f"r[L{layer}]")
        for i in range(arch.heads[layer]):
            h, shared, bias = f"L{layer}H{i}", group(arch, layer, i), f"b_N[L{layer}]"
            if bias in arch.biases:
                start(bias, layer + 1, [f"A[{h}]", "ones", f"{bias}.T", f"W_OV[{h}].T"], ((layer, i),), r)
            if f"b_V[{shared}]" in arch.biases:
                core = [f"A[{h}]", "ones", f"b_V[{shared}].T", f"W_O[{h}].T"]
                start(f"b_V[{shared}]", layer + 1, core, ((layer, i),), r)
        if layer in arch.mlps:
            start(f"mlp[L{layer}]", layer + 1, [f"mlp[L{layer}]"], (), times(arch, f"r[M{layer}]"))
        if f"b_O[L{layer}]" in arch.biases:
            start(f"b_O[L{layer}]", layer + 1, ["ones", f"b_O[L{layer}].T"], (), r)
    return found


def oracle(arch: Architecture, target: str) -> list[Row]:
    """All terms of a target, in order."""
    kind, _, head = target.partition(":")
    if kind != "scores":
        found = routes(arch, len(arch.heads))
        if kind == "logits":
            found = read_through(arch, "final", found, "W_U.T", times(arch, "m_U"))
            found += [Route("b_U", (), ("ones", "b_U.T"), times(arch, "m_U"))] if "b_U" in arch.biases else []
        return [Row((r,), front(r.numbers) + " @ ".join(r.factors)) for r in sorted(found, key=lambda r: r.rank)]
    layer, number = (int(n) for n in head[1:].split("H"))
    stream, shared = routes(arch, layer), group(arch, layer, number)
    sides = []
    for reader, bias in ((f"W_Q[{head}].T", f"b_Q[{head}]"), (f"W_K[{shared}].T", f"b_K[{shared}]")):
        side = read_through(arch, f"L{layer}", stream, reader)
        side += [Route("pos", (), ("P", reader))] if arch.positions == "shortformer" else []
        side += [Route(bias, (), ("ones", f"{bias}.T"))] if bias in arch.biases else []
        if arch.qk_norm:
            name = reader[2] + (head if reader[2] == "Q" else shared)
            around = f"D[{name}]", f"gain[{name[0]}{layer}]"
            side = [Route(r.source, r.heads, (around[0], *r.factors, around[1]), r.numbers) for r in side]
        sides.append(sorted(side, key=lambda r: r.rank))
    scale = f"scale[{head}] * " if arch.scale else ""
    rows, turned = [], [f"R[{head}]"] if arch.positions == "rotary" else []
    for q, k in itertools.product(*sides):
        text = " @ ".join((*q.factors, *turned, *transposed(k.factors)))
        before = scale + front(q.numbers + k.numbers)
        rows.append(Row((q, k), before + text.replace(f"W_Q[{head}].T @ W_K[{shared}]", f"W_QK[{head}]")))
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


def by_sequence(first: HeadPair, second: HeadPair, side: str) -> Selection:
    """Heads that stand next to each other in a path, in this order."""
    names = [f"L{layer}H{i}" for layer, i in (first, second)]
    return Selection(
        f"through_sequence({names}, {side})",
        lambda e: e.through_sequence(*names, side=side),
        lambda row: any((first, second) in itertools.pairwise(r.heads) for r in _looked_at(row, side)),
    )


def by_source(wanted: tuple[str, ...], side: str) -> Selection:
    chosen = wanted[0] if len(wanted) == 1 else wanted

    def meets(row: Row) -> bool:
        return any(r.source in wanted or r.source.partition("[")[0] in wanted for r in _looked_at(row, side))

    return Selection(f"from_source({chosen!r}, {side})", lambda e: e.from_source(chosen, side=side), meets)


def invisible(arch: Architecture) -> Selection:
    return Selection("softmax_invisible", lambda e: e.softmax_invisible(), lambda row: unseen_by_softmax(row, arch))


def unseen_by_softmax(row: Row, arch: Architecture) -> bool:
    """Softmax does not see what is the same for every key: a bias that meets no norm and is not turned.

    Behind a soft cap it sees everything.
    """
    key = row.routes[1]
    moved = any(f.startswith("D[") for f in key.factors) or " @ R[" in row.text
    return arch.softmax and not arch.capped and key.source[:2] == "b_" and not moved


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
    reach = int(target.partition("L")[2].partition("H")[0]) if scores else len(arch.heads)  # others are refused
    pairs = [(a, b) for a in heads for b in heads if a[0] < b[0] < reach]
    if pairs:
        choices.append(st.sampled_from(pairs).flatmap(lambda p: side.map(lambda s: by_sequence(*p, s))))
    names = sorted({r.source for row in oracle(arch, target) for r in row.routes})
    names += sorted({n.partition("[")[0] for n in names} - set(names))
    choices.append(st.builds(by_source, st.lists(st.sampled_from(names), min_size=1, max_size=2).map(tuple), side))
    if scores:
        choices.append(st.just(invisible(arch)))
    return st.one_of(choices)
