"""Witness 1: what SymPy multiplies out is every term once, rightly typed; and a wrong list is noticed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import sympy
from hypothesis import given
from strategies import cases

import symcircuits.sympy_layer.streams as symbolic
from symcircuits.core.architecture import Architecture, attention_only
from symcircuits.core.expansion import Expansion, expand
from symcircuits.core.programs import Branch, Program, Readout, readout
from symcircuits.core.words import Factor
from symcircuits.sympy_layer.streams import (
    Key,
    multiply_out,
    polynomial_terms,
    read_terms,
    recursion,
    symbolic_terms,
    tally,
    word_tokens,
)


def listed(expansion: Expansion) -> Counter[Key]:
    """The fast enumeration as a multiset of the same keys."""
    return Counter((word_tokens(t.word), t.composition, t.orders) for t in expansion)


# --------------------------------------------------------------------------------------- right expansions
@given(cases(max_terms=300))
def test_every_term_is_read_once_with_its_type(case: tuple[Architecture, str]) -> None:
    found, wanted = tally(symbolic_terms(*case)), listed(expand(*case))
    assert found == wanted
    assert set(found.values()) == {1}


@given(cases(max_terms=1500))
def test_commuting_letters_give_the_same_terms(case: tuple[Architecture, str]) -> None:
    assert polynomial_terms(*case) == {tuple(sorted(tokens)): n for (tokens, _, _), n in listed(expand(*case)).items()}


@pytest.mark.parametrize(
    ("heads", "target", "options", "counts"),
    [
        ((12, 12), "logits", {}, {"none": 25, "V": 144}),
        ((12, 12), "scores:L1H7", {}, {"none": 1, "Q": 12, "K": 12, "QK": 144}),
        ((3, 5), "logits", {}, {"none": 9, "V": 15}),
        ((), "logits", {"biases": True}, {"none": 2}),
        ((0, 2), "scores:L1H0", {}, {"none": 1}),
        ((3, 3), "scores:L1H0", {"positions": "shortformer", "biases": True}, None),
        ((2, 2), "scores:L1H1", {"positions": "standard", "scale": False}, {"none": 4, "Q": 8, "K": 8, "QK": 16}),
    ],
)
def test_known_answers(heads: tuple[int, ...], target: str, options: dict, counts: dict | None) -> None:
    terms = symbolic_terms(attention_only(heads, **options), target)
    seen = Counter(t.composition for t in terms)
    assert seen == counts if counts else len(terms) == 100
    assert {t.scales for t in terms} == {("scale[L1H7]",) if target == "scores:L1H7" else terms[0].scales}


def test_three_layers_of_twelve() -> None:
    arch = attention_only((12, 12, 12))
    found = tally(symbolic_terms(arch, "logits"))
    assert len(found) == 2197
    assert found == listed(expand(arch, "logits"))


def test_the_larger_witness_reaches_further() -> None:
    arch = attention_only((12, 12, 12))
    found = polynomial_terms(arch, "scores:L2H3")
    assert (len(found), set(found.values())) == (28561, {1})
    assert found.keys() == {tuple(sorted(word_tokens(t.word))) for t in expand(arch, "scores:L2H3")}


def test_a_term_as_text() -> None:
    terms = symbolic_terms(attention_only((1, 1)), "scores:L1H0")
    term = next(t for t in terms if t.composition == "K")
    assert term.text == (
        "scale[L1H0] * t @ W_E.T @ W_Q[L1H0].T @ W_K[L1H0] @ W_O[L0H0] @ W_V[L0H0] @ W_E @ t.T @ A[L0H0].T"
    )
    assert (term.orders, term.multiplicity) == ((0, 1), 1)


# ------------------------------------------------------------------------------------- what SymPy does
def test_the_recursion_is_not_multiplied_out() -> None:
    expression = recursion(attention_only((2, 2)), "logits")
    assert len(expression.atoms(sympy.Add)) == 2  # one sum a layer
    assert len(sympy.Add.make_args(expression)) < 9


def test_sympy_transposes_sums_and_products() -> None:
    a, b, c = sympy.symbols("A_L0H0 W_E t", commutative=False)
    turned = sympy.transpose(a * (b + c) * a)
    assert (
        multiply_out(turned - sympy.transpose(a) * (sympy.transpose(b) + sympy.transpose(c)) * sympy.transpose(a)) == 0
    )
    assert [t.tokens for t in read_terms(multiply_out(sympy.transpose(a * b * c)))] == [("t.T", "W_E.T", "A[L0H0].T")]


def test_a_repeated_letter_is_read_as_often_as_it_stands() -> None:
    a, b, t = sympy.symbols("A_L0H0 A_L1H0 t", commutative=False)
    (squared,) = read_terms(a * a * t)
    assert (squared.tokens, squared.orders) == (("A[L0H0]", "A[L0H0]", "t"), (2,))
    (turned,) = read_terms(sympy.transpose(a * a * t))
    assert turned.tokens == ("t.T", "A[L0H0].T", "A[L0H0].T")
    (product,) = read_terms((a * b) ** 2 * t)
    assert product.tokens == ("A[L0H0]", "A[L1H0]", "A[L0H0]", "A[L1H0]", "t")


def test_a_coefficient_is_a_multiplicity() -> None:
    a, t = sympy.symbols("A_L0H0 t", commutative=False)
    terms = read_terms(multiply_out(a * (t + t) - t))
    assert sorted(term.multiplicity for term in terms) == [-1, 2]
    assert tally(terms)[("A[L0H0]", "t"), "none", (1,)] == 2


def test_nothing_is_no_term() -> None:
    assert read_terms(sympy.S.Zero) == []


@pytest.mark.parametrize("wrong", ["t / 2", "t ** (-1)", "A * (t + 1)", "2 ** t", "sin(t)"])
def test_what_is_no_sum_of_products_is_refused(wrong: str) -> None:
    t, a = sympy.symbols("t A_L0H0", commutative=False)
    expression = sympy.sympify(wrong, {"t": t, "A": a})
    with pytest.raises(ValueError, match="cannot read"):
        read_terms(expression)


@pytest.mark.parametrize("function", [recursion, symbolic_terms, polynomial_terms])
def test_an_unknown_target_is_refused(function) -> None:
    with pytest.raises(ValueError, match="unknown target"):
        function(attention_only((1,)), "loggits")
    with pytest.raises(ValueError, match="no head L3H0"):
        function(attention_only((1,)), "scores:L3H0")


# ------------------------------------------------------------------------------ corruptions are noticed
ARCH = attention_only((2, 2), biases=("b_V",))
TARGETS = ["logits", "scores:L1H0"]


def corrupt(terms: Counter[Key], how: str) -> Counter[Key]:
    """The multiset with one term spoilt."""
    bad = Counter(terms)
    tokens, composition, orders = key = max(terms, key=lambda k: (len(k[0]), k))
    bad[key] -= 1
    bad = +bad
    patterns = [i for i, t in enumerate(tokens) if t.startswith("A[")]
    if how == "dropped":
        return bad
    if how == "doubled":
        bad[key] += 2
    elif how == "reordered":
        i, j = patterns[0], patterns[0] + 1
        bad[(*tokens[:i], tokens[j], tokens[i], *tokens[j + 1 :]), composition, orders] += 1
    elif how == "transposed":
        first = next(i for i, t in enumerate(tokens) if t.startswith("W_O["))
        turned = tokens[first].removesuffix(".T") if tokens[first].endswith(".T") else tokens[first] + ".T"
        bad[(*tokens[:first], turned, *tokens[first + 1 :]), composition, orders] += 1
    elif how == "another head":
        bad[tuple(t.replace("L0H1", "L0H0") for t in tokens), composition, orders] += 1
    elif how == "mislabelled":
        bad[tokens, "none" if composition != "none" else "V", orders] += 1
    elif how == "wrong orders":
        bad[tokens, composition, (*orders[:-1], orders[-1] + 1)] += 1
    elif how == "scale forgotten":
        bad[tuple(t for t in tokens if not t.startswith("scale")), composition, orders] += 1
    return bad


CORRUPTIONS = ["dropped", "doubled", "reordered", "transposed", "another head", "mislabelled", "wrong orders"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", CORRUPTIONS)
def test_a_corrupted_list_differs(target: str, how: str) -> None:
    witness = tally(symbolic_terms(ARCH, target))
    assert witness == listed(expand(ARCH, target))
    assert witness != corrupt(listed(expand(ARCH, target)), how)


def test_a_forgotten_scale_differs() -> None:
    witness = tally(symbolic_terms(ARCH, "scores:L1H0"))
    assert witness != corrupt(witness, "scale forgotten")


def mutated(target: Readout, how: str) -> Readout:
    """The readout with its recursion spoilt, as a wrong description of the architecture would have it."""
    if how == "no scale":
        return replace(target, scale="")

    def spoil(branch: Branch) -> Branch:
        if branch.head is None or branch.head.label != "L0H1":
            return branch
        other = next(b for layer in target.sides[0] for b in layer.branches if b.head and b.head.label == "L0H0")
        return {
            "transposed": replace(branch, right=tuple(f.T for f in reversed(branch.right))),
            "other pattern": replace(branch, left=other.left),
            "no pattern": replace(branch, left=()),
            "pattern transposed": replace(branch, left=(Factor(branch.left[0].symbol, True),)),
        }[how]

    def program(layers: Program) -> Program:
        return tuple(replace(layer, branches=tuple(map(spoil, layer.branches))) for layer in layers)

    return replace(target, sides=tuple(map(program, target.sides)))


MUTATIONS = [(t, how) for t in TARGETS for how in ("transposed", "other pattern", "no pattern", "pattern transposed")]


@pytest.mark.parametrize(("target", "how"), [*MUTATIONS, ("scores:L1H0", "no scale")])
def test_a_wrong_recursion_differs(monkeypatch: pytest.MonkeyPatch, target: str, how: str) -> None:
    monkeypatch.setattr(symbolic, "readout", lambda arch, name: mutated(readout(arch, name), how))
    wanted = listed(expand(ARCH, target))
    assert tally(symbolic_terms(ARCH, target)) != wanted
    assert polynomial_terms(ARCH, target).keys() != {tuple(sorted(tokens)) for tokens, _, _ in wanted}


def test_what_the_larger_witness_cannot_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swapped factors pass there, as its docstring says, and not with noncommutative letters."""

    def swapped(arch: Architecture, name: str) -> Readout:
        right = readout(arch, name)
        side = tuple(
            replace(layer, branches=tuple(replace(b, right=b.right[::-1]) for b in layer.branches))
            for layer in right.sides[0]
        )
        return replace(right, sides=(side,))

    wanted = listed(expand(ARCH, "logits"))
    monkeypatch.setattr(symbolic, "readout", swapped)
    assert polynomial_terms(ARCH, "logits").keys() == {tuple(sorted(tokens)) for tokens, _, _ in wanted}
    assert tally(symbolic_terms(ARCH, "logits")) != wanted
