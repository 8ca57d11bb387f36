"""The walk in several algebras: counts, polynomials, exact matrices, against a recursion written here."""

from collections import Counter
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import architectures, cases, examples, group, oracle, routes, term_count

from symcircuits.core.architecture import Architecture, Head, attention_only
from symcircuits.core.expansion import expand
from symcircuits.core.programs import Branch, Layer, Source, readout
from symcircuits.core.walk import Counts, Joints, Mark, Marked, Matrices, Walks, walk, walk_marked
from symcircuits.core.words import Factor, Index, Space, Symbol

SIZES = {"one": 1, "context": 3, "vocab_in": 4, "vocab_out": 2, "model": 3, "attention_input": 3, "qk": 2, "ov": 2}


class Whole:
    """Matrices of Python integers: exact."""

    @staticmethod
    def matmul(a: Any, b: Any) -> Any:
        return a @ b

    @staticmethod
    def add(a: Any, b: Any) -> Any:
        return a + b

    @staticmethod
    def times(scalar: Any, a: Any) -> Any:
        return scalar * a

    @staticmethod
    def transpose(a: Any) -> Any:
        return a.swapaxes(-1, -2)


def random_matrices(arch: Architecture, seed: int) -> dict[str, Any]:
    """Random integers for every letter; a column of ones where the definition has one."""
    rng = np.random.default_rng(seed)

    def draw(*shape: str) -> Any:
        return rng.integers(-9, 10, size=[SIZES[s] for s in shape]).astype(object)

    found = {"ones": np.ones((SIZES["context"], 1), dtype=int).astype(object)}
    found |= {"t": draw("context", "vocab_in"), "W_E": draw("model", "vocab_in"), "P": draw("context", "model")}
    found |= {"W_U": draw("vocab_out", "model"), "b_U": draw("vocab_out", "one")}
    for layer, count in enumerate(arch.heads):
        found[f"b_O_L{layer}"] = draw("model", "one")
        for i in range(count):
            h = f"L{layer}H{i}"
            found |= {f"W_Q_{h}": draw("qk", "model"), f"W_K_{h}": draw("qk", "model"), f"W_V_{h}": draw("ov", "model")}
            found |= {f"W_O_{h}": draw("model", "ov"), f"A_{h}": draw("context", "context")}
            found |= {f"b_{x}_{h}": draw("ov" if x == "V" else "qk", "one") for x in "QKV"}
            for glyph in ("W_K", "W_V", "b_K", "b_V"):  # a group has those of its first head
                found[f"{glyph}_{h}"] = found.setdefault(f"{glyph}_{group(arch, layer, i)}", found[f"{glyph}_{h}"])
        found[f"mlp_L{layer}"] = draw("context", "model")
    for h in arch.all_heads if arch.qk_norm else ():
        for label in (f"Q{h}", f"K{arch.key_value(h)}"):
            found[f"D_{label}"] = symmetric(draw("context", "context"))
            found.setdefault(f"gain_{label[0]}{h.layer}", symmetric(draw("qk", "qk")))
    for label in arch.norm_labels:  # general matrices: how they stand is what is tested
        found |= {f"D_{label}": draw("context", "context"), f"b_N_{label}": draw("model", "one")}
        found |= {"C": symmetric(draw("model", "model")), f"gain_{label}": symmetric(draw("model", "model"))}
        found[f"D_{label}"] = symmetric(found[f"D_{label}"])
    numbers = sorted(name.replace("[", "_").rstrip("]") for name in arch.multipliers)
    return found | {name: int(rng.integers(2, 10)) for name in numbers}


def symmetric(m: Any) -> Any:
    """As the matrices of norms are, so that text, which marks no transpose of them, says all."""
    return m + m.T


def definition(arch: Architecture, target: str, m: dict[str, Any]) -> list[Any]:
    """The stream or logits, or queries and keys, by the definition of the transformer with its patterns given."""

    def bias(name: str, label: str) -> Any:
        there = f"{name}[{label}]" if label else name
        return m["ones"] @ m[f"{name}_{label}" if label else name].T if there in arch.biases else 0

    def times(name: str, x: Any) -> Any:
        return m[name] * x if name.replace("r_", "r[") + "]" * name.startswith("r_") in arch.multipliers else x

    kind, _, head = target.partition(":")
    depth = int(head[1:].split("H")[0]) if head else len(arch.heads)

    def norm(x: Any, label: str) -> Any:
        if arch.norm is None:
            return x
        x = m[f"D_{label}"] @ x
        x = x @ m["C"] if arch.norm == "LN" else x
        return (x @ m[f"gain_{label}"] if label in arch.gains else x) + bias("b_N", label)

    x = times("m_E", m["t"] @ m["W_E"].T) + (m["P"] if arch.positions == "standard" else 0)
    for layer in range(depth):
        out, y = bias("b_O", f"L{layer}"), norm(x, f"L{layer}")
        for i in range(arch.heads[layer]):
            h, g = f"L{layer}H{i}", group(arch, layer, i)
            out = out + m[f"A_{h}"] @ (y @ m[f"W_V_{g}"].T + bias("b_V", g)) @ m[f"W_O_{h}"].T
        x = x + times(f"r_L{layer}", out) + (times(f"r_M{layer}", m[f"mlp_L{layer}"]) if layer in arch.mlps else 0)
    if kind == "stream":
        return [x]
    if kind == "logits":
        return [times("m_U", norm(x, "final") @ m["W_U"].T + bias("b_U", ""))]
    y = norm(x, f"L{depth}") + (m["P"] if arch.positions == "shortformer" else 0)
    shared = group(arch, depth, int(head.split("H")[1]))
    sides = [y @ m[f"W_{side}_{h}"].T + bias(f"b_{side}", h) for side, h in (("Q", head), ("K", shared))]
    if arch.qk_norm:
        names = (f"Q{head}", f"K{shared}")
        sides = [m[f"D_{n}"] @ s @ m[f"gain_{n[0]}{depth}"] for n, s in zip(names, sides, strict=True)]
    return sides


def value_of(text: str, m: dict[str, Any]) -> Any:
    """A term in text notation multiplied out; R, which turns rows, counts as one here: the walk does not see it.

    Nor does it see the score scale.
    """
    product: Any = None
    *numbers, letters = text.split(" * ")
    for f in letters.split(" @ "):
        if f.startswith("R["):
            continue
        glyph, _, label = f.removesuffix(".T").rstrip("]").partition("[")
        name = glyph + (f"_{label}" if label else "")
        if glyph == "X0":
            matrix = m["t"] @ m["W_E"].T
        elif glyph == "W_OV":
            matrix = m[f"W_O_{label}"] @ m[f"W_V_{label}"]
        elif glyph == "W_QK":
            matrix = m[f"W_Q_{label}"].T @ m[f"W_K_{label}"]
        else:
            matrix = m[name]
        matrix = matrix.T if f.endswith(".T") else matrix
        product = matrix if product is None else product @ matrix
    for name in (n.replace("[", "_").rstrip("]") for n in numbers if not n.startswith("scale")):
        product = m[name] * product
    return product


# ------------------------------------------------------------------------------------------------- numbers
@given(architectures(max_layers=10, max_heads=12, max_terms=None))
def test_counts(arch: Architecture) -> None:
    for target in ("stream", *(["logits"] if arch.unembed else [])):
        assert walk(readout(arch, target).sides[0], Counts()) == term_count(arch, target)
    for head in arch.all_heads:
        query, key = (walk(side, Counts()) for side in readout(arch, f"scores:{head}").sides)
        assert query * key == term_count(arch, f"scores:{head}")


@given(cases(max_terms=400))
def test_polynomials(case: tuple[Architecture, str]) -> None:
    """Counts split by order, and by which heads and sources are met."""
    arch, target = case
    sides = readout(arch, target).sides
    heads = {h: 1 << i for i, h in enumerate(arch.all_heads[:3])}
    sources = {"embed": 8, "b_O": 16}
    for i, side in enumerate(sides):
        found = walk(side, Marked(Counts(), heads, lambda s: sources.get(s.kind, 0)))
        rows = {r.routes[i] for r in oracle(arch, target)}
        expected = Counter(
            Mark(
                len(r.heads),
                sum(bit for h, bit in heads.items() if h in r.heads) + sources.get(r.source.partition("[")[0], 0),
            )
            for r in rows
        )
        assert found == expected


def test_the_polynomial_of_two_layers() -> None:
    program = readout(attention_only((12, 12)), "logits").sides[0]
    assert walk(program, Marked(Counts(), {}, lambda s: 0)) == {Mark(0, 0): 1, Mark(1, 0): 24, Mark(2, 0): 144}
    through = walk(program, Marked(Counts(), {Head(1, 3): 1}, lambda s: 2))
    assert through == {Mark(0, 2): 1, Mark(1, 2): 23, Mark(1, 3): 1, Mark(2, 2): 132, Mark(2, 3): 12}


def test_a_feature_is_met_once_however_often() -> None:
    """A bit that a source and several heads give is one bit."""
    b_v = Source("b_V[L1H0]", letter("b"), head=Head(1, 0))
    program = (
        Layer((), (Source("embed", letter("x")),)),
        Layer((Branch(Head(0, 0), (), ()),)),
        Layer((Branch(Head(1, 0), (), ()),), (b_v,)),
        Layer((Branch(Head(2, 0), (), ()),), skip=False),
    )
    same = dict.fromkeys((Head(0, 0), Head(1, 0), Head(2, 0)), 1)
    every = {Mark(1, 1): 1, Mark(2, 1): 3, Mark(3, 1): 1}
    assert walk(program, Marked(Counts(), same, lambda s: 1)) == every
    assert walk(program, Marked(Counts(), same, lambda s: 0)) == every
    assert walk(program, Marked(Counts(), {}, lambda s: 1 if s is b_v else 2)) == {
        Mark(1, 2): 1,
        Mark(2, 1): 1,
        Mark(2, 2): 2,
        Mark(3, 2): 1,
    }


@pytest.mark.parametrize(
    "features",
    [(), ("a",), ("a", "b"), ("ab",), ("ab", "bc"), ("ab", "bc", "ac"), ("b", "ab", "c"), ("aa", "ba", "b")],
    ids=lambda features: " ".join(features) or "none",
)
def test_joined_pieces_have_what_the_whole_has(features: tuple[str, ...]) -> None:
    """A feature is a head that a path goes through, or two heads that follow on one another, however often."""
    joints = Joints(len(features) if any(len(f) == 2 for f in features) else 0)
    bits = dict.fromkeys("abc", 0)
    for i, feature in enumerate(features):
        for head, bit in zip(feature, joints.pair(i) if len(feature) == 2 else (1 << i,), strict=True):
            bits[head] |= bit
    for path in ("".join(heads) for n in range(5) for heads in product("abc", repeat=n)):
        has = sum(1 << i for i, f in enumerate(features) if f in path)
        for cut in range(len(path) + 1):
            begun = reduce(lambda known, head: joints.grown(known, bits[head]), path[:cut], 0)
            tail = reduce(lambda known, head: joints.led(bits[head], known), reversed(path[cut:]), 0)
            assert joints.met(begun, tail) == has


# ------------------------------------------------------------------------------------------------ matrices
@examples(60)
@given(cases(max_terms=150), st.integers(0, 2**32))
def test_matrices_are_the_definition_and_the_sum_of_the_terms(case: tuple[Architecture, str], seed: int) -> None:
    arch, target = case
    m = random_matrices(arch, seed)
    program = readout(arch, target).sides
    found = [walk(side, Matrices(m, Whole())) for side in program]
    expected = definition(arch, target, m)
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a, b)
    whole = expected[0] if len(expected) == 1 else expected[0] @ expected[1].T
    listed = [value_of(t.text, m) for t in expand(arch, target)]
    assert np.array_equal(reduce(np.add, listed), whole)
    assert np.array_equal(reduce(np.add, [value_of(r.text, m) for r in oracle(arch, target)]), whole)


@given(cases(max_terms=100, max_layers=3), st.integers(0, 2**32))
def test_matrices_by_order_and_head(case: tuple[Architecture, str], seed: int) -> None:
    """The parts of a marked walk are the sums of the terms with that mark."""
    arch, target = case
    m = random_matrices(arch, seed)
    head = arch.all_heads[0] if arch.all_heads else Head(0, 0)
    algebra = Marked(Matrices(m, Whole()), {head: 1}, lambda s: 2 if s.kind == "b_V" else 0)
    sides = [walk(side, algebra) for side in readout(arch, target).sides]
    if len(sides) == 1:
        found: dict[Any, Any] = {(mark,): value for mark, value in sides[0].items()}
    else:
        found = {(q, k): a @ b.swapaxes(-1, -2) for q, a in sides[0].items() for k, b in sides[1].items()}
    expected: dict[Any, Any] = {}
    for row in oracle(arch, target):
        marks = tuple(Mark(len(r.heads), (head in r.heads) + 2 * r.source.startswith("b_V")) for r in row.routes)
        expected[marks] = expected.get(marks, 0) + value_of(row.text, m)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[marks], expected[marks]) for marks in found)


def test_matrices_on_a_batch() -> None:
    arch = attention_only((2, 2), "standard", True)
    one, two = random_matrices(arch, 1), random_matrices(arch, 2)
    batched = {"t", *(name for name in one if name.startswith("A_"))}
    both = {name: np.stack([one[name], two[name]]) if name in batched else one[name] for name in one}
    program = readout(arch, "logits").sides[0]
    found = walk(program, Matrices(both, Whole()))
    for i, m in enumerate((one, one | {name: two[name] for name in batched})):
        assert np.array_equal(found[i], walk(program, Matrices(m, Whole())))


def test_known_values_of_sources() -> None:
    """An embedding may be looked up: then neither t nor W_E is asked for."""
    m = random_matrices(attention_only((2, 1)), 3)
    program = readout(attention_only((2, 1), "standard", True), "logits").sides[0]
    rest = {name: matrix for name, matrix in m.items() if name not in ("t", "W_E")}
    known = {"embed": m["t"] @ m["W_E"].T}
    assert np.array_equal(walk(program, Matrices(rest, Whole(), known)), walk(program, Matrices(m, Whole())))


def test_chains_of_factors() -> None:
    arch = attention_only((1,))
    m = random_matrices(arch, 0)
    algebra = Matrices(m, Whole())
    w_v = Symbol("W_V", "L0H0", Index(Space("ov")), Index(Space("model"), True))
    assert np.array_equal(algebra.factor(Factor(w_v)), m["W_V_L0H0"])
    assert np.array_equal(algebra.factor(w_v.T), m["W_V_L0H0"].T)
    batched = Matrices({"W_V_L0H0": np.arange(24).reshape(2, 3, 4)}, Whole()).factor(w_v.T)
    assert np.array_equal(batched, np.stack([np.arange(12).reshape(3, 4).T, np.arange(12, 24).reshape(3, 4).T]))
    assert np.array_equal(algebra.chain([w_v.T], m["P"]), m["P"] @ m["W_V_L0H0"].T)
    assert np.array_equal(algebra.chain([w_v.T, Factor(w_v)]), m["W_V_L0H0"].T @ m["W_V_L0H0"])
    assert algebra.chain([], 5) == 5
    assert np.array_equal(algebra.add([m["P"]]), m["P"])
    assert np.array_equal(algebra.add([m["P"], m["P"], m["P"]]), 3 * m["P"])
    two = Branch(None, (w_v.T, Factor(w_v)), (w_v.T, Factor(w_v)))
    w, p = m["W_V_L0H0"], m["P"]
    assert np.array_equal(algebra.branch(two, p), w.T @ w @ p @ w.T @ w)


# -------------------------------------------------------------------------------------- programs of any shape
def letter(name: str) -> tuple[Factor, ...]:
    return (Factor(Symbol(name, "", Index(Space("context")), Index(Space("model")))),)


def test_the_empty_sum() -> None:
    branch = Branch(None, (), ())
    for program in ((), (Layer(),), (Layer((branch,)), Layer((branch,), skip=False))):
        assert walk(program, Counts()) is None
        assert walk_marked(program, Marked(Counts(), {}, lambda s: 0)) == {}


def test_layers_with_and_without_skip() -> None:
    source, one, two = Source("embed", letter("X0")), Branch(Head(0, 0), (), ()), Branch(Head(0, 1), (), ())
    first = Layer((), (source,))
    assert walk((first,), Counts()) == 1
    assert walk((first, Layer()), Counts()) == 1
    assert walk((first, Layer(skip=False)), Counts()) is None
    assert walk((first, Layer((one, two))), Counts()) == 3
    assert walk((first, Layer((one, two), skip=False)), Counts()) == 2
    assert walk((first, Layer((one, two), (source,), skip=False)), Counts()) == 3
    assert walk((Layer((one,), (source,)), Layer((two,), (source, source))), Counts()) == 4
    assert walk((first, Layer(skip=False), first), Counts()) == 1


def test_a_layer_that_stands_at_several_places_is_walked_at_each() -> None:
    """What is remembered of a layer is what it gives after the layers before it, not what it gives elsewhere."""
    source, branch = Source("embed", letter("X0")), Branch(Head(0, 0), (), ())
    first, second = Layer((branch,), (source,)), Layer((branch, branch), (source,))
    programs = [
        (first, second, second, first),
        (second, first),
        (second, second, second),
        (first,),
        (first, first, first),
    ]
    walks = Walks(Counts())
    expected = [27, 3, 13, 1, 7]  # n becomes 2n + 1 in the first and 3n + 1 in the second, nothing becomes 1
    assert [walks.walk(program) for program in programs + programs] == expected + expected
    assert [walk(program, Counts()) for program in programs] == expected


def test_whole_paths_are_marked_by_what_they_have_alone() -> None:
    """How a piece ends matters while it grows; of whole paths that end alike or not the same is remembered."""
    joints, (a, b) = Joints(1), (Head(0, 0), Head(1, 0))
    ends, starts = joints.pair(0)
    layers = [Layer((Branch(head, (), ()),)) for head in (a, b)]
    algebra = Marked(Counts(), {a: ends, b: starts}, lambda s: 0, joints)
    found = walk_marked((Layer((), (Source("embed", letter("X0")),)), *layers), algebra)
    assert found == {Mark(0, 0): 1, Mark(1, 0): 2, Mark(2, 1): 1}
    assert algebra.whole({Mark(1, ends): 3, Mark(1, 0): 5, Mark(2, ends | 1): 7}) == {Mark(1, 0): 8, Mark(2, 1): 7}


@pytest.mark.parametrize("n_layers", [0, 1, 5])
def test_routes_of_the_oracle_are_counted_by_the_walk(n_layers: int) -> None:
    arch = attention_only((2,) * n_layers, "standard", True, unembed=False)
    assert walk(readout(arch, "stream").sides[0], Counts()) == len(routes(arch, n_layers))


def test_rows_are_turned_one_by_one() -> None:
    """Where positions are rotary row i meets the i-th matrix of R; elsewhere rows stay as they are."""
    rng = np.random.default_rng(0)
    rows, turns = rng.integers(-9, 10, (3, 2)).astype(object), rng.integers(-9, 10, (3, 2, 2)).astype(object)
    algebra = Matrices({"R_L0H1": turns}, Whole())
    assert np.array_equal(algebra.turned(Head(0, 1), rows), np.stack([rows[i] @ turns[i] for i in range(3)]))
    assert algebra.turned(Head(0, 0), rows) is rows


@given(st.data(), st.integers(0, 99))
def test_sums_through_neighbours_are_exact(data: st.DataObject, seed: int) -> None:
    """In whole numbers: the walk's sum over paths in which one head stands directly before another."""
    arch = data.draw(architectures(max_layers=4, max_heads=3, max_terms=150, features=False))
    heads = arch.all_heads
    pairs = [(a, b) for a in heads for b in heads if a.layer < b.layer]
    assume(pairs)
    first, second = data.draw(st.sampled_from(pairs))
    e = expand(arch, "stream").through_sequence(str(first), str(second))
    matrices = Matrices(random_matrices(arch, seed), Whole())
    sums = walk_marked(e.readout.sides[0], e.sides[0].algebra(matrices))
    total = sum((v for m, v in sums.items() if e.accepts((m,))), np.zeros((3, 3), dtype=object))
    listed = sum((matrices.chain(t.word.factors) for t in e), np.zeros((3, 3), dtype=object))
    assert (total == listed).all()
