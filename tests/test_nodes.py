"""The kinds of nodes of derivations: each is known to the traversal, to every printer and to an evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import symcircuits as sc
from symcircuits.core.notation import NOTATIONS, Notation
from symcircuits.core.words import Word
from symcircuits.derivation.alibi import AlibiTerm
from symcircuits.derivation.derive import theorems
from symcircuits.derivation.examples import Elementwise, Literal, TinyModel, TwoLayers
from symcircuits.derivation.expressions import stream_symbol
from symcircuits.derivation.frames import make_frame
from symcircuits.derivation.multiplying import count_polynomial, multiply_out
from symcircuits.derivation.nodes import (
    NODES,
    Apply,
    CountOf,
    Elementary,
    Expr,
    Family,
    HeadCount,
    Identity,
    Number,
    Product,
    Sign,
    Special,
    Spelled,
    Sum,
    SumOver,
    Target,
    Tensor,
    Transposed,
    every_node,
    fold,
    mapped,
    node,
    parts,
    with_parts,
)
from symcircuits.derivation.other_runs import AtTokens, Changed, CountIn, ImportanceRun, Kept, Rebased, Without
from symcircuits.derivation.printing.displays import expr_latex
from symcircuits.derivation.printing.forms import shown
from symcircuits.derivation.printing.styles import LatexStyle, TextStyle
from symcircuits.derivation.printing.text import expr_text
from symcircuits.derivation.real_models import ModelLogits, RealModel
from symcircuits.derivation.result_checker import ResultChecker, _exact
from symcircuits.derivation.specials import (
    Beside,
    Difference,
    Entrywise,
    HeadWidth,
    Inverse,
    Kronecker,
    Masked,
    Named,
    NamedMatrix,
    Parentheses,
    Rank,
    Ratio,
    Scaled,
    SquaredNorm,
    Trace,
    Vectorised,
    Zero,
)
from symcircuits.derivation.symbols_used import symbols_used
from symcircuits.derivation.values import Instance

assert theorems(), "the nodes of all results are registered"
ARCH = sc.attention_only((2, 2), "alibi")
FRAME = make_frame(ARCH, "logits", "enumerated")
X, HEAD = FRAME.terms[0][1], FRAME.terms[1][1]
assert isinstance(HEAD, Word)
A, W = Word(HEAD.factors[:1]), Word((HEAD.factors[3],))
W_U = HEAD.factors[-1].T
T, V, ONE = NamedMatrix("T"), Named("V", "V", A, flips=True), Literal((("1", "1/2"), ("0", "2")))

# kind of node -> expressions of that kind, and what they are: each is evaluated as that
SAMPLES: dict[type, tuple[str, tuple[Expr, ...]]] = {
    Word: ("matrix", (X, HEAD, Word((stream_symbol(1),)))),
    Spelled: ("matrix", (Spelled(HEAD),)),
    Product: ("matrix", (Product((A, Word(HEAD.factors[1:]))), Product((A, A), ("L1H0",)))),
    Sum: ("matrix", (Sum((X, HEAD)), Sum(()))),
    SumOver: ("matrix", (SumOver("h_1", 0, X),)),
    Transposed: ("matrix", (Transposed(A), Transposed(Sum((A, A))))),
    Identity: ("operator", (Identity(),)),
    Tensor: ("operator", (Tensor((A, W)), Tensor((Identity(), W)))),
    Apply: ("matrix", (Apply(Tensor((A, W)), (X,)),)),
    Target: ("matrix", (Target("logits"), Target("scores:L1H0"))),
    Family: ("matrix", (Family(HEAD, "none", Number(1), 1), Family(Sum((X, HEAD)), "none", Number(2)))),
    Number: ("count", (Number(3), Number(-12_345))),
    HeadCount: ("count", (HeadCount(1),)),
    Elementary: ("count", (Elementary(2, (0, 1)),)),
    CountOf: ("count", (CountOf(Sum((X, HEAD))), CountOf(X, order=0), CountOf(X, composition="none"))),
    AlibiTerm: ("matrix", (AlibiTerm("L1H0"),)),
    Named: ("matrix", (V,)),
    Parentheses: ("matrix", (Parentheses(Product((A, A))),)),
    Beside: ("matrix", (Beside((A, T)),)),
    Scaled: ("matrix", (Scaled("2", A), Scaled("a", A))),
    Masked: ("matrix", (Masked(A),)),
    Entrywise: ("matrix", (Entrywise(A, T),)),
    SquaredNorm: ("matrix", (SquaredNorm(A), SquaredNorm(V))),
    Difference: ("matrix", (Difference(A, T),)),
    Kronecker: ("matrix", (Kronecker(A, T),)),
    Vectorised: ("matrix", (Vectorised(A), Vectorised(T, "columns"))),
    Trace: ("matrix", (Trace(A), Trace(V))),
    Ratio: ("matrix", (Ratio(Trace(A), SquaredNorm(T)),)),
    NamedMatrix: (
        "matrix",
        (
            T,
            NamedMatrix("Q", "orthogonal"),
            NamedMatrix("D", "diagonal"),
            NamedMatrix("C", "centring", flips=True),
            NamedMatrix("u", "vector"),
            NamedMatrix("Z", "shift"),
        ),
    ),
    Inverse: ("matrix", (Inverse(T),)),
    Zero: ("matrix", (Zero(),)),
    Rebased: ("matrix", (Rebased("logits", T),)),
    AtTokens: ("matrix", (AtTokens("logits", T),)),
    Changed: ("matrix", (Changed("logits", "c", (("W_E", T),)),)),
    Without: ("matrix", (Without("logits", "L0H1"),)),
    Kept: ("matrix", (Kept("logits", (("L0H1",),)),)),
    ImportanceRun: ("matrix", (ImportanceRun(2), ImportanceRun(2, "X", 1), ImportanceRun(2, "Y", 1))),
    Rank: ("matrix", (Rank(A), Rank(V))),
    HeadWidth: ("matrix", (HeadWidth(),)),
    CountIn: ("count", (CountIn("logits", (2, 1)),)),
    Literal: ("exact", (ONE,)),
    TinyModel: ("exact", (TinyModel(ONE), TinyModel(ONE, ONE))),
    TwoLayers: ("exact", (TwoLayers(ONE), TwoLayers(ONE, without=True, held=True))),
    Elementwise: ("exact", (Elementwise("gelu", ONE),)),
    ModelLogits: ("model", (ModelLogits(),)),
}


def evaluated(expr: Expr, how: str) -> object:
    """The value of an expression by the evaluator of its kind."""
    at = Instance(ARCH, "logits", 4, trials=1)
    match how:
        case "matrix":
            return at.value(expr)
        case "operator":
            return at.act(expr, [at.drawn["x"]])
        case "count":
            return count_polynomial(expr, at.heads)
        case "exact":
            return _exact(expr)
        case "model":
            return RealModel("a model", {}).run((1,), 0).value(expr)
    raise TypeError(f"{type(expr).__name__} is evaluated by nothing")


def as_text(expr: Expr, _: str) -> object:
    return [expr_text(expr, TextStyle(Notation(name))) for name in NOTATIONS]


def as_latex(expr: Expr, _: str) -> object:
    return [expr_latex(expr, LatexStyle(Notation(name))) for name in NOTATIONS]


def faults(kind: type) -> Iterator[str]:
    """What does not know a kind of node."""
    how, samples = SAMPLES.get(kind, ("", ()))
    if not samples:
        yield f"{kind.__name__} has no sample in SAMPLES"
    for expr in samples:
        assert type(expr) is kind
        for name, use in {"text": as_text, "LaTeX": as_latex, "values": evaluated}.items():
            try:
                use(expr, how)
            except TypeError as fault:
                yield f"{name}: {fault}"


@pytest.mark.parametrize("kind", NODES)
def test_every_kind_of_node_is_known_to_printers_and_to_an_evaluator(kind: type) -> None:
    assert list(faults(kind)) == []


def test_a_kind_that_nothing_knows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True)
    class Novelty:
        body: Expr

    assert list(faults(Novelty)) == ["Novelty has no sample in SAMPLES"]
    sample: Expr = Novelty(X)  # type: ignore[assignment]
    monkeypatch.setitem(SAMPLES, Novelty, ("matrix", (sample,)))
    with pytest.raises(TypeError, match="Novelty is not a kind of node; register its class with @node"):
        parts(sample)
    monkeypatch.setitem(NODES, Novelty, ("body",))
    assert list(faults(Novelty)) == [
        "text: Novelty cannot be written",
        "LaTeX: Novelty cannot be written",
        "values: Novelty cannot be evaluated to a matrix",
    ]
    assert parts(sample) == (X,)
    assert with_parts(sample, [HEAD]) == Novelty(HEAD)  # type: ignore[comparison-overlap]
    for rules in (multiply_out, lambda expr: count_polynomial(expr, lambda _: 1)):
        with pytest.raises(TypeError, match=r"Novelty cannot be (multiplied out|counted)"):
            rules(sample)


def test_a_class_is_registered_by_the_decorator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symcircuits.derivation.nodes.NODES", kinds := dict(NODES))

    @node("left", "right")
    @dataclass(frozen=True, slots=True)
    class Pair:
        left: Expr
        right: Expr

    assert kinds[Pair] == ("left", "right")
    assert parts(Pair(X, HEAD)) == (X, HEAD)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- going through
EVERY = [expr for _, samples in SAMPLES.values() for expr in samples]


@pytest.mark.parametrize("expr", EVERY, ids=repr)
def test_a_node_is_made_of_its_parts(expr: Expr) -> None:
    inside = parts(expr)
    assert with_parts(expr, inside) == expr
    assert mapped(expr, lambda part: part) is expr
    assert list(every_node(expr)) == [expr, *(found for part in inside for found in every_node(part))]
    if isinstance(expr, Special):  # what a special node prints is what it is made of
        assert inside == tuple(part for part in expr.written() if not isinstance(part, Sign))
    with pytest.raises(ValueError, match=f"has {len(inside)} parts here, not {len(inside) + 1}"):
        with_parts(expr, [*inside, X])
    if inside:
        changed = with_parts(expr, [ONE for _ in inside])
        assert set(parts(changed)) == {ONE}
        assert type(changed) is type(expr)


@pytest.mark.parametrize("expr", EVERY, ids=repr)
def test_what_is_shown_is_shown_once(expr: Expr) -> None:
    """A page shows its expressions as a notation has them, and doing so twice changes nothing."""
    for name in NOTATIONS:
        notation = Notation(name)
        once = shown(expr, notation)
        if not any(isinstance(found, Tensor) for found in every_node(expr)):  # W is turned each time
            assert shown(once, notation) == once


def test_sizes_and_symbols_go_through_every_node() -> None:
    checker = ResultChecker(FRAME, ())
    for kind, (how, samples) in SAMPLES.items():
        for expr in samples:
            assert checker.size(expr) >= (kind in (Word, Spelled, Product, Tensor, Apply, Target))
            assert how != "matrix" or checker.size(Product((expr, A))) == checker.size(expr) + 1
    assert symbols_used([])[0] == set()


def test_a_fold_says_what_it_cannot_do() -> None:
    rules = {Number: lambda number, _: number.value, Sum: lambda _, values: sum(values)}
    assert fold(Sum((Number(1), Sum((Number(2), Number(3))))), rules, "added") == 6
    with pytest.raises(TypeError, match="HeadCount cannot be added"):
        fold(Sum((Number(1), HeadCount(0))), rules, "added")
    with pytest.raises(TypeError, match="Scaled cannot be added"):
        fold(Scaled("2", Number(1)), rules, "added")
    assert fold(Scaled("2", Number(1)), {**rules, Special: lambda special, values: len(values)}, "counted") == 1


def test_operators_multiply_out_by_the_same_rules() -> None:
    both = Product((Tensor((A, W)), Sum((Identity(), Tensor((A, W))))), ("L1H0",))
    first, second = multiply_out(both)
    assert (len(first.factors), len(first.right), len(second.factors), len(second.right)) == (1, 1, 2, 2)
    assert second.right == (W.T.factors * 2)
    with pytest.raises(TypeError, match="a term of an operator is not a word"):
        _ = first.expr
    with pytest.raises(TypeError, match="a tensor with Sum in it cannot be multiplied out"):
        multiply_out(Tensor((A, Sum((W, W)))))
    with pytest.raises(TypeError, match="Masked cannot be multiplied out"):
        multiply_out(Masked(A))


def test_traces_ratios_and_differences_are_what_plain_loops_give() -> None:
    at = Instance(ARCH, "logits", 4, trials=2)
    a, t, p = at.value(A), at.value(T), at.ring.p
    for draw in range(2):
        trace = sum(int(a[draw, i, i]) for i in range(4))
        square = sum(int(entry) ** 2 for entry in t[draw].ravel())
        assert int(at.value(Trace(A))[draw, 0, 0]) == trace % p
        assert int(at.value(Ratio(Trace(A), SquaredNorm(T)))[draw, 0, 0]) * square % p == trace % p
        difference = at.value(Difference(A, T))[draw]
        assert all(int(difference[i, j]) == int(a[draw, i, j] - t[draw, i, j]) % p for i in range(4) for j in range(4))


def test_a_changed_model_has_the_changed_matrices_and_no_others() -> None:
    at = Instance(ARCH, "logits", 4, trials=1)
    doubled = Sum((Word((W_U,)), Word((W_U,))))
    twice = at.value(Changed("logits", "c", (("W_U", doubled),)))
    assert (twice == 2 * at.value(Target("logits")) % at.ring.p).all()
    assert (at.value(Changed("stream", "c", (("W_U", doubled),))) == at.value(Target("stream"))).all()
