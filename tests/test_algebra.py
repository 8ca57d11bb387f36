"""The types: right words pass, and each wrong formula is refused by the rule that it breaks."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import cases, examples

from symcircuits.core.architecture import Architecture, Head, attention_only
from symcircuits.core.expansion import Expansion, expand, logits, scores
from symcircuits.core.programs import readout
from symcircuits.core.rules import check_finished, score_sides
from symcircuits.core.words import (
    Factor,
    IllTyped,
    Index,
    Space,
    Symbol,
    Word,
    contraction_fault,
    fuse,
    product,
    transpose,
    unfuse,
)  # fmt: skip


def symbols(arch: Architecture) -> dict[str, Symbol]:
    """Every letter of an architecture, by its name in text notation."""
    found: dict[str, Symbol] = {}
    targets = ["stream", *(["logits"] if arch.unembed else []), *(f"scores:{h}" for h in arch.all_heads)]
    for layer in (layer for target in targets for side in readout(arch, target).sides for layer in side):
        factors = [f for s in layer.sources for f in s.factors] + [f for b in layer.branches for f in b.left + b.right]
        found |= {f.symbol.text: f.symbol for f in factors}
    (found["X0"],) = (f.symbol for f in fuse((Factor(found["t"]), found["W_E"].T)))
    for h in arch.all_heads:
        pairs = (
            [Factor(found[f"W_O[{h}]"]), Factor(found[f"W_V[{arch.key_value(h)}]"])],
            [found[f"W_Q[{h}]"].T, Factor(found[f"W_K[{arch.key_value(h)}]"])],
        )
        found |= {f.symbol.text: f.symbol for pair in pairs for f in fuse(pair)}
    return found


ARCH = attention_only((2, 2, 2), "standard", True)
NAMES = symbols(ARCH)
SHORT = symbols(attention_only((2, 2, 2), "shortformer", True))


def factors(text: str, names: dict[str, Symbol] = NAMES) -> tuple[Factor, ...]:
    """Factors read from text notation, unchecked."""
    return tuple(Factor(names[f.removesuffix(".T")], f.endswith(".T")) for f in text.split(" @ "))


def word(text: str, names: dict[str, Symbol] = NAMES) -> Word:
    """A word read from text notation, with its scales."""
    *scales, rest = text.split(" * ")
    return Word(factors(rest, names), tuple(s.removeprefix("scale[").removesuffix("]") for s in scales))


# -------------------------------------------------------------------------------------------- right words
@examples(100)
@given(cases(max_terms=100))
def test_every_term_is_a_finished_word(case: tuple[Architecture, str]) -> None:
    arch, target = case
    for term in expand(arch, target):
        w = term.word
        assert check_finished(w, scaled=arch.scale, multipliers=arch.multipliers) is check_finished(w) is w
        scaled = not arch.scale
        if target.startswith("scores"):
            with pytest.raises(IllTyped, match="Rule 3"):
                check_finished(w, scaled=scaled)
        else:
            check_finished(w, scaled=scaled)
        assert w == w.T.T
        assert w.T.text.count("@") == w.text.count("@")
        assert (w.T.row, w.T.col) == (w.col, w.row)
        assert w.T.scales == w.scales


@pytest.mark.parametrize(
    "text",
    [
        "X0",
        "X0 @ W_U.T",
        "t @ W_E.T @ W_U.T",
        "P @ W_U.T",
        "ones @ b_U.T",
        "ones @ b_O[L2].T",
        "A[L1H0] @ A[L0H1] @ X0 @ W_OV[L0H1].T @ W_OV[L1H0].T @ W_U.T",
        "A[L1H0] @ A[L0H1] @ X0 @ W_V[L0H1].T @ W_O[L0H1].T @ W_OV[L1H0].T @ W_U.T",
        "A[L2H0] @ A[L0H1] @ ones @ b_V[L0H1].T @ W_O[L0H1].T @ W_OV[L2H0].T",
        "A[L1H0] @ X0 @ W_OV[L1H0].T",
        "X0 @ W_QK[L1H0] @ X0.T",
        "scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T",
        "scale[L1H0] * A[L0H0] @ X0 @ W_OV[L0H0].T @ W_Q[L1H0].T @ W_K[L1H0] @ W_OV[L0H1] @ W_E @ t.T @ A[L0H1].T",
        "scale[L1H0] * ones @ b_Q[L1H0].T @ b_K[L1H0] @ ones.T",
        "scale[L1H0] * ones @ b_Q[L1H0].T @ W_K[L1H0] @ P.T",
    ],
)
def test_right_words(text: str) -> None:
    w = word(text)
    assert check_finished(w) is w
    short = text.replace("t @ W_E.T", "X0").replace("W_E @ t.T", "X0.T")
    short = re.sub(r"W_V(\S+)\.T @ W_O\1\.T", r"W_OV\1.T", short)
    assert w.text == re.sub(r"W_Q(\S+)\.T @ W_K\1", r"W_QK\1", short)


def test_abbreviations_are_equal_to_what_they_abbreviate() -> None:
    pairs = [
        ("A[L0H1] @ X0 @ W_OV[L0H1].T", "A[L0H1] @ t @ W_E.T @ W_V[L0H1].T @ W_O[L0H1].T"),
        ("W_OV[L0H1]", "W_O[L0H1] @ W_V[L0H1]"),
        ("X0 @ W_QK[L0H0] @ X0.T", "X0 @ W_Q[L0H0].T @ W_K[L0H0] @ W_E @ t.T"),
        ("W_QK[L0H0].T", "W_K[L0H0].T @ W_Q[L0H0]"),
    ]
    for short, long in pairs:
        assert word(short) == word(long)
        assert hash(word(short)) == hash(word(long))
        assert fuse(factors(long)) == factors(short)
        assert unfuse(factors(short)) == unfuse(factors(long))
        assert word(long).text == short
        assert word(short).T == word(long).T
        assert fuse(transpose(factors(long))) == transpose(factors(short))
    assert word("W_OV[L0H1]") != word("W_OV[L0H1].T")
    assert word("W_OV[L0H1]") != word("W_OV[L0H0]")
    assert word("scale[L1H0] * X0") != word("X0")


def test_only_what_belongs_together_is_abbreviated() -> None:
    other_heads = (
        "W_V[L1H0].T @ W_O[L0H0].T",
        "W_O[L0H0] @ W_V[L1H0]",
        "W_Q[L1H0].T @ W_K[L1H1]",
        "W_K[L1H1].T @ W_Q[L1H0]",
    )
    other_order = "W_O[L0H0].T @ W_V[L0H0].T", "W_V[L0H0] @ W_O[L0H0]", "W_E.T @ t", "t.T @ W_E"
    transposes = "W_O[L0H0].T @ W_V[L0H0]", "W_Q[L0H0] @ W_K[L0H0].T", "W_K[L0H0] @ W_Q[L0H0]", "t @ W_E", "W_E.T @ t.T"
    for text in (*other_heads, *other_order, *transposes, "W_E @ W_E.T"):
        assert fuse(factors(text)) == factors(text)


@given(cases(max_terms=100))
def test_unfuse_and_fuse_are_inverse(case: tuple[Architecture, str]) -> None:
    for term in expand(*case):
        w = term.word
        assert unfuse(w.fused) == unfuse(w.factors) == w.factors
        assert fuse(w.factors) == fuse(w.fused) == w.fused
        assert Word(w.fused, w.scales) == w
        assert not any(f.symbol.parts for f in w.factors)
        assert Word(fuse(w.T.factors)).factors == w.T.factors


def test_the_shape_of_every_letter() -> None:
    """The paper's shapes: rows and columns, vector or reader."""
    model, context, one = Space("model"), Space("context"), Space("one")
    for glyph, row, col in [
        ("W_Q", Index(Space("qk", "L1H0")), Index(model, True, 1)),
        ("W_K", Index(Space("qk", "L1H0"), True), Index(model, True, 1)),
        ("W_V", Index(Space("ov", "L1H0")), Index(model, True, 1)),
        ("W_O", Index(model, False, 2), Index(Space("ov", "L1H0"), True)),
        ("W_OV", Index(model, False, 2), Index(model, True, 1)),
        ("W_QK", Index(model, True, 1), Index(model, True, 1)),
        ("A", Index(context, False, 2), Index(context, True, 1)),
        ("b_V", Index(Space("ov", "L1H0")), Index(one, True)),
        ("b_Q", Index(Space("qk", "L1H0")), Index(one, True)),
        ("b_K", Index(Space("qk", "L1H0"), True), Index(one, True)),
    ]:
        symbol = NAMES[f"{glyph}[L1H0]"]
        assert (symbol.row, symbol.col) == (row, col)
        assert (Factor(symbol).row, Factor(symbol).col) == (symbol.T.col, symbol.T.row) == (row, col)
        assert (symbol.text, symbol.argument) == (f"{glyph}[L1H0]", f"{glyph}_L1H0")
        assert symbol.branch == ("L1H0" if glyph in ("A", "W_O", "W_OV") else "")
    for text, row, col in [
        ("W_E", Index(model, False, 0), Index(Space("vocab_in"), True)),
        ("W_U", Index(Space("vocab_out")), Index(model, True, 3)),
        ("X0", Index(context, False, 0), Index(model, False, 0)),
        ("t", Index(context, False, 0), Index(Space("vocab_in"))),
        ("P", Index(context, False, 0), Index(model, False, 0)),
        ("ones", Index(context), Index(one)),
        ("b_O[L1]", Index(model, False, 2), Index(one, True)),
        ("b_U", Index(Space("vocab_out")), Index(one, True)),
    ]:
        assert (NAMES[text].row, NAMES[text].col, NAMES[text].text) == (row, col, text)
        assert NAMES[text].argument == text.replace("[", "_").rstrip("]")
    assert SHORT["P"].col == Index(Space("attention_input"), False, 0)
    assert SHORT["W_Q[L1H0]"].col == Index(Space("attention_input"), True, 1) == SHORT["W_K[L1H0]"].col
    assert SHORT["W_V[L1H0]"].col == Index(model, True, 1)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (Index(Space("context"), False, 1), "a vector of the context written at point 1"),
        (Index(Space("context"), True, 0), "a reader of the context that reads at point 0"),
        (Index(Space("context")), "a vector of the context"),
        (Index(Space("model"), False, 0), "a vector of the model space written at point 0"),
        (Index(Space("attention_input"), True, 2), "a reader of the query/key input that reads at point 2"),
        (Index(Space("vocab_in"), True), "a reader of the input vocabulary"),
        (Index(Space("vocab_out")), "a vector of the output vocabulary"),
        (Index(Space("one"), True), "a reader of the one-dimensional space"),
        (Index(Space("ov", "L0H1"), True), "a reader of the value space of L0H1"),
        (Index(Space("qk", "L0H1")), "a vector of the query/key space of L0H1"),
    ],
)
def test_indices_are_named(index: Index, text: str) -> None:
    assert str(index) == text
    assert str(index.space) in text


def test_who_reads_what() -> None:
    model, attention = Space("model"), Space("attention_input")
    assert model.readable_by(model)
    assert model.readable_by(attention)
    assert not attention.readable_by(model)
    assert not Space("qk", "L0H0").readable_by(Space("qk", "L0H1"))
    assert not Space("qk", "L0H0").readable_by(Space("ov", "L0H0"))
    normed = Space("normed_model", "L1")
    assert normed.readable_by(Space("normed_input", "L1"))
    for other in ("L0", "L2"):  # norms of other layers
        assert not normed.readable_by(Space("normed_input", other))


@pytest.mark.parametrize("value", [Space("model"), Index(Space("one")), NAMES["W_U"], NAMES["W_U"].T, word("X0")])
def test_letters_are_values(value: Any) -> None:
    """They do not change, and as there are many of them they have no dictionaries."""
    name = next(iter(type(value).__slots__))
    with pytest.raises(AttributeError):
        setattr(value, name, getattr(value, name))
    assert not hasattr(value, "__dict__")


def test_factors() -> None:
    a = Factor(NAMES["A[L0H1]"])
    assert (a.text, a.T.text, a.T.T) == ("A[L0H1]", "A[L0H1].T", a)
    assert a.symbol.T == a.T
    assert (a.T.row, a.T.col) == (a.col, a.row)
    assert [f.text for f in transpose(factors("W_O[L0H0] @ W_V[L0H0].T"))] == ["W_V[L0H0]", "W_O[L0H0].T"]
    assert product(()) == ()
    assert product([a]) == (a,)
    w = word("scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T")
    assert (w.text, w.row, w.col) == ("scale[L1H0] * X0 @ W_QK[L1H0] @ X0.T", NAMES["t"].row, NAMES["t"].row)
    assert score_sides(w) == (word("X0 @ W_Q[L1H0].T"), word("X0 @ W_K[L1H0].T"))


# ------------------------------------------------------------------------------------------ wrong formulas
VECTORS, READERS = "both are vectors; a product needs one vector and one reader", "both are readers; a product needs"
LATE = "cannot read what is written at point"

PRODUCTS = [
    # a transpose dropped or extra
    ("W_QK[L1H0] @ W_OV[L0H0].T", "W_QK[L1H0]", "W_OV[L0H0].T", READERS),
    ("A[L0H0] @ X0 @ W_OV[L0H0] @ W_U.T", "X0", "W_OV[L0H0]", VECTORS),
    ("X0 @ W_OV[L0H0].T @ W_QK[L1H0] @ W_OV[L0H1].T @ X0.T", "W_QK[L1H0]", "W_OV[L0H1].T", READERS),
    ("X0 @ W_U", "X0", "W_U", VECTORS),
    # W_QK maps readers: it takes two vectors and hands on nothing
    ("W_U @ W_QK[L0H0] @ W_E", "W_U", "W_QK[L0H0]", READERS),
    # A_q^T X, as the paper prints it
    ("A[L0H0].T @ X0", "A[L0H0].T", "X0", VECTORS),
    ("A[L0H0].T @ X0 @ W_QK[L1H0] @ X0.T", "A[L0H0].T", "X0", VECTORS),
    ("X0 @ W_QK[L1H0] @ X0.T @ A[L0H0]", "X0.T", "A[L0H0]", VECTORS),
    # layers in reverse, or two heads of one layer
    ("W_OV[L0H1] @ W_OV[L1H0]", "W_OV[L0H1]", "W_OV[L1H0]", LATE),
    ("A[L0H1] @ A[L1H0]", "A[L0H1]", "A[L1H0]", LATE),
    ("X0 @ W_OV[L1H0].T @ W_OV[L0H1].T", "W_OV[L1H0].T", "W_OV[L0H1].T", LATE),
    ("A[L1H0] @ A[L1H1] @ X0", "A[L1H0]", "A[L1H1]", LATE),
    ("W_OV[L1H0] @ W_OV[L1H0]", "W_OV[L1H0]", "W_OV[L1H0]", LATE),
    ("W_QK[L0H0] @ W_OV[L0H1]", "W_QK[L0H0]", "W_OV[L0H1]", LATE),
    ("X0 @ W_OV[L1H0].T @ W_QK[L1H0]", "W_OV[L1H0].T", "W_QK[L1H0]", LATE),
    ("ones @ b_O[L1].T @ W_OV[L1H0].T", "b_O[L1].T", "W_OV[L1H0].T", LATE),
    # factors of different heads, or of different roles
    ("W_O[L0H0] @ W_V[L0H1]", "W_O[L0H0]", "W_V[L0H1]", "value space of L0H0 cannot read a vector of the value space"),
    ("W_O[L0H0] @ W_Q[L0H0]", "W_O[L0H0]", "W_Q[L0H0]", "cannot read a vector of the query/key space of L0H0"),
    ("W_V[L0H0].T @ W_K[L0H0]", "W_V[L0H0].T", "W_K[L0H0]", "query/key space of L0H0 cannot read a vector"),
    ("W_Q[L0H0].T @ W_K[L0H1]", "W_Q[L0H0].T", "W_K[L0H1]", "query/key space of L0H1 cannot read"),
    ("W_Q[L0H0].T @ W_Q[L0H0]", "W_Q[L0H0].T", "W_Q[L0H0]", VECTORS),
    ("W_K[L0H0].T @ W_K[L0H0]", "W_K[L0H0].T", "W_K[L0H0]", READERS),
    ("ones @ b_Q[L0H0].T @ W_O[L0H0].T", "b_Q[L0H0].T", "W_O[L0H0].T", "cannot read a vector of the query/key space"),
    ("ones @ b_V[L0H0].T @ W_O[L0H1].T", "b_V[L0H0].T", "W_O[L0H1].T", "value space of L0H1 cannot read"),
    ("ones @ b_U.T @ W_U.T", "b_U.T", "W_U.T", "cannot read a vector of the output vocabulary"),
    ("X0 @ W_E", "X0", "W_E", VECTORS),
    ("t @ W_U.T", "t", "W_U.T", "cannot read a vector of the input vocabulary"),
    ("X0 @ A[L0H0]", "X0", "A[L0H0]", VECTORS),
]  # fmt: skip


@pytest.mark.parametrize(("text", "left", "right", "fault"), PRODUCTS, ids=[p[0] for p in PRODUCTS])
def test_wrong_products(text: str, left: str, right: str, fault: str) -> None:
    for build in (product, Word):
        with pytest.raises(IllTyped) as caught:
            build(factors(text))
        error, message = caught.value, str(caught.value)
        assert (error.rule, error.left, error.right) == (1, left, right)
        a, b = (NAMES[f.removesuffix(".T")] for f in (left, right))
        a, b = Factor(a, left.endswith(".T")), Factor(b, right.endswith(".T"))
        assert message.startswith(
            f"{left} @ {right} cannot be multiplied: {left} offers {a.col}, {right} offers {b.row}; "
        )
        assert fault in message
        assert message.endswith("Rule 1 (products): same space, one vector and one reader, and nothing is read before "
                                "it is written.")  # fmt: skip


def test_position_enters_queries_and_keys_only() -> None:
    for text in ("P @ W_OV[L0H0].T", "A[L0H0] @ P @ W_V[L0H0].T", "P @ W_U.T"):
        with pytest.raises(
            IllTyped, match=r"a reader of the model space cannot read a vector of the query/key input\. Rule 1"
        ):
            word(text, SHORT)
    for text in ("P @ W_QK[L0H0] @ P.T", "P @ W_QK[L2H0] @ W_OV[L1H0] @ X0.T @ A[L1H0].T", "X0 @ W_QK[L2H1] @ P.T"):
        assert check_finished(word(text, SHORT)).text == text
    assert word("A[L0H0] @ P @ W_OV[L0H0].T").text
    for text, fault in (("P", "must end in the model space"), ("P.T", "must start at the context")):
        with pytest.raises(IllTyped, match=rf"{text} is not a finished word: it {fault} .*{text} offers"):
            check_finished(word(text, SHORT))


WORDS = [
    # A or W_OV dropped on one side, or doubled across layers
    ("X0 @ W_OV[L0H0].T @ W_U.T", "", "W_OV[L0H0].T", ": W_OV[L0H0].T on the right has no partner on the other side"),
    ("A[L0H0] @ X0 @ W_U.T", "A[L0H0]", "", "A[L0H0] on the left has no partner on the other side (number 1"),
    ("A[L1H0] @ A[L0H0] @ X0 @ W_OV[L0H0].T", "A[L1H0]", "", "A[L1H0] on the left has no partner"),
    ("A[L0H0] @ X0 @ W_OV[L0H0].T @ W_OV[L1H0].T", "", "W_OV[L1H0].T", "(number 2 read outward from X0)"),
    ("ones @ b_V[L0H0].T @ W_O[L0H0].T", "", "W_O[L0H0].T", "the two sides of ones do not belong together"),
    ("A[L0H0] @ ones @ b_O[L0].T", "A[L0H0]", "", "A[L0H0] on the left"),
    # the pattern of another head
    ("A[L0H1] @ X0 @ W_OV[L0H0].T", "A[L0H1]", "W_OV[L0H0].T", "A[L0H1] on the left meets W_OV[L0H0].T on the right"),
    ("A[L1H1] @ A[L0H0] @ X0 @ W_OV[L0H0].T @ W_OV[L1H0].T", "A[L1H1]", "W_OV[L1H0].T", "(number 2 read outward"),
    ("A[L2H0] @ A[L0H0] @ X0 @ W_OV[L0H0].T @ W_OV[L1H0].T", "A[L2H0]", "W_OV[L1H0].T", "(number 2"),
    ("A[L2H0] @ A[L1H0] @ X0 @ W_OV[L0H0].T @ W_OV[L1H0].T", "A[L1H0]", "W_OV[L0H0].T", "(number 1"),
    ("A[L0H1] @ ones @ b_V[L0H0].T @ W_O[L0H0].T", "A[L0H1]", "W_O[L0H0].T", "meets"),
    # on one side of a score
    ("A[L0H0] @ X0 @ W_QK[L1H0] @ X0.T", "A[L0H0]", "", "together on the query side: A[L0H0] on the left"),
    ("X0 @ W_QK[L1H0] @ X0.T @ A[L0H0].T", "A[L0H0]", "", "together on the key side: A[L0H0] on the left"),
    ("X0 @ W_OV[L0H0].T @ W_QK[L1H0] @ X0.T @ A[L0H0].T", "", "W_OV[L0H0].T", "together on the query side"),
    ("A[L0H0] @ X0 @ W_OV[L0H0].T @ W_QK[L1H0] @ W_OV[L0H1] @ X0.T @ A[L0H0].T", "A[L0H0]", "W_OV[L0H1].T", "key side"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "left", "right", "fault"), WORDS, ids=[w[0] for w in WORDS])
def test_wrong_words(text: str, left: str, right: str, fault: str) -> None:
    with pytest.raises(IllTyped) as caught:
        check_finished(word(text))
    assert (caught.value.rule, caught.value.left, caught.value.right) == (2, left, right)
    assert fault in str(caught.value)
    assert (
        "Rule 2 (words): the branches named on the left (patterns, norms) and on the right (W_OV or W_O, gains)"
        in str(caught.value)
    )


@pytest.mark.parametrize(
    ("text", "left", "right", "fault"),
    [
        ("t", "", "t", "must end in the model space .* but t offers a vector of the input vocabulary"),
        ("ones", "", "ones", "but ones offers a vector of the one-dimensional space"),
        ("X0 @ W_V[L0H0].T", "", "W_V[L0H0].T", r"but W_V\[L0H0\].T offers a vector of the value space of L0H0"),
        ("X0 @ W_Q[L0H0].T", "", "W_Q[L0H0].T", r"but W_Q\[L0H0\].T offers a vector of the query/key space of L0H0"),
        ("A[L1H0] @ A[L0H0]", "A[L1H0]", "", r"A\[L1H0\] @ A\[L0H0\] is not a finished word: it holds patterns only"),
        ("W_E @ t.T", "X0.T", "", "must start at the context .* X0.T offers a vector of the model space written at"),
        ("W_OV[L0H0]", "W_OV[L0H0]", "", "must start at the context"),
        ("t.T @ A[L0H0].T", "t.T", "", "must start at the context .* but t.T offers a vector of the input vocabulary"),
        ("ones.T @ A[L0H0].T", "ones.T", "", "but ones.T offers a vector of the one-dimensional space"),
        ("X0 @ W_QK[L0H0]", "W_K[L0H0].T", "", "is not a finished word on the key side"),
        ("W_QK[L0H0] @ X0.T", "W_Q[L0H0].T", "", "is not a finished word on the query side"),
        ("W_QK[L0H0]", "W_Q[L0H0].T", "", "on the query side"),
    ],
)
def test_unfinished_words(text: str, left: str, right: str, fault: str) -> None:
    with pytest.raises(IllTyped, match=fault) as caught:
        check_finished(word(text))
    assert (caught.value.rule, caught.value.left, caught.value.right) == (2, left, right)


def test_query_and_key_swapped() -> None:
    for text in ("X0 @ W_QK[L1H0].T @ X0.T", "X0 @ W_K[L1H0].T @ W_Q[L1H0] @ P.T"):
        with pytest.raises(
            IllTyped, match=r"query and key are swapped: W_K\[L1H0\]\.T is left of W_Q\[L1H0\]"
        ) as caught:
            check_finished(word(text))
        assert (caught.value.rule, caught.value.left, caught.value.right) == (3, "W_K[L1H0].T", "W_Q[L1H0]")
    with pytest.raises(IllTyped, match="swapped"):
        check_finished(word("A[L0H0] @ X0 @ W_OV[L0H0].T @ W_QK[L1H0] @ X0.T").T)


@pytest.mark.parametrize("text", ["X0", "W_QK[L0H0] @ X0.T @ X0 @ W_QK[L0H0]"])
def test_one_place_where_query_meets_key(text: str) -> None:
    given_factors = unfuse(factors(text))
    unchecked = object.__new__(Word)
    object.__setattr__(unchecked, "factors", given_factors)
    object.__setattr__(unchecked, "scales", ())
    with pytest.raises(IllTyped, match=f"has {text.count('QK')} places where a query meets a key") as caught:
        score_sides(unchecked)
    assert caught.value.rule == 3


SCORE = "X0 @ W_QK[L1H0] @ X0.T"


@pytest.mark.parametrize(
    ("text", "scaled", "fault"),
    [
        (SCORE, True, "carries no scale; the score scale of L1H0 must occur once, scale[L1H0]"),
        (f"scale[L1H0] * scale[L1H0] * {SCORE}", True, "carries scale[L1H0] * scale[L1H0]; "),
        (f"scale[L1H0] * scale[L1H0] * {SCORE}", None, "must occur once, scale[L1H0]"),
        (f"scale[L1H1] * {SCORE}", True, "carries scale[L1H1]; the score scale of L1H0 must occur once, scale[L1H0]"),
        (f"scale[L1H1] * {SCORE}", None, "carries scale[L1H1]"),
        (f"scale[L1H0] * {SCORE}", False, "carries scale[L1H0]; the score scale of L1H0 must not occur (this"),
        ("scale[L1H1] * ones @ b_Q[L1H0].T @ b_K[L1H0] @ ones.T", None, "the score scale of L1H0"),
        ("scale[L0H0] * X0 @ W_U.T", None, "a score scale precedes a word that is not a score"),
        ("scale[L0H0] * X0", True, "a score scale precedes a word that is not a score"),
    ],
)
def test_wrong_scales(text: str, scaled: bool | None, fault: str) -> None:
    with pytest.raises(IllTyped) as caught:
        check_finished(word(text), scaled=scaled)
    assert caught.value.rule == 3
    assert fault in str(caught.value)
    assert "Rule 3 (scores)" in str(caught.value)
    assert caught.value.left == ("" if text.endswith(("W_U.T", "X0")) else text.rpartition(" * ")[0] or "no scale")


@pytest.mark.parametrize(
    ("taken", "rule", "fault"),
    [
        ({"D"}, 2, "the two sides of X0 do not belong together on the query side"),
        ({"gain"}, 2, "the two sides of X0 do not belong together on the query side"),
        ({"D", "gain"}, 3, "scales the queries of another head"),
        ({"R"}, 3, "is not where the queries of"),
        ({"W_Q"}, 3, "is not where the queries of"),
    ],
)
def test_queries_have_the_norm_and_the_rotation_of_their_head(taken: set[str], rule: int, fault: str) -> None:
    """Both heads share keys, so that only the query side can tell which of them it is; either head's is refused."""
    arch = attention_only((2, 2), "rotary", True, qk_norm=True, groups=(1, 1))
    terms = [scores(arch, head)[0].word for head in ("L1H0", "L1H1")]
    for right, other in (terms, terms[::-1]):
        mixed = zip(right.factors, other.factors, strict=True)
        with pytest.raises(IllTyped, match=fault) as caught:
            check_finished(Word(tuple(o if o.symbol.glyph in taken else f for f, o in mixed), right.scales))
        assert caught.value.rule == rule


@pytest.mark.parametrize("text", ["D[L0] @ X0", "D[final] @ X0"])
def test_a_norm_of_a_reader_does_not_end_in_the_stream(text: str) -> None:
    """A norm without centring and gain has no matrix on the right, so its D could be taken for the stream's."""
    names = symbols(attention_only((1,), None, True, norm="RMS", gains=()))
    with pytest.raises(IllTyped) as caught:
        check_finished(word(text, names))
    norm = text.split()[0]
    assert f"starts with {norm}, the norm of a reader of the stream, but it ends in the stream" in str(caught.value)
    assert (caught.value.rule, caught.value.left) == (2, norm)
    assert check_finished(word("X0", names)).text == "X0"


@pytest.mark.parametrize(
    ("text", "start", "side"),
    [
        ("X0 @ W_U.T", "X0", ""),
        ("D[L0] @ X0 @ W_U.T", "D[L0]", ""),
        ("X0 @ W_QK[L0H0] @ X0.T @ D[L0].T", "X0", " on the query side"),
        ("D[L0] @ X0 @ W_QK[L0H0] @ X0.T", "X0", " on the key side"),
        ("D[L0] @ X0 @ W_QK[L0H0] @ X0.T @ D[final].T", "D[final]", " on the key side"),
    ],
)
def test_what_reads_through_a_norm_starts_with_it(text: str, start: str, side: str) -> None:
    """Where the norm leaves no matrix on the right, its reader says through which norm it reads."""
    with pytest.raises(IllTyped, match=rf"reads{side} through the norm (L0|final), so the word must start") as caught:
        check_finished(word(text, symbols(attention_only((1,), norm="RMS", gains=()))))
    assert (caught.value.rule, caught.value.left) == (2, start)


def test_a_word_is_not_empty() -> None:
    with pytest.raises(IllTyped, match="at least one factor") as caught:
        Word(())
    assert (caught.value.rule, caught.value.left, caught.value.right) == (1, "", "")
    assert isinstance(caught.value, ValueError)


# ------------------------------------------------------------------------------- corruptions of right words
Corruption = tuple[str, tuple[Factor, ...], tuple[str, ...]]


def corruptions(w: Word, arch: Architecture, names: dict[str, Symbol]) -> Iterator[Corruption]:
    """Everything that a slip of one step makes of a word: its factors and scales, abbreviated or written out."""
    for fs in {w.fused, w.factors}:
        for i, f in enumerate(fs):
            yield "drop", fs[:i] + fs[i + 1 :], w.scales
            yield "double", fs[: i + 1] + fs[i:], w.scales
            yield "transpose", (*fs[:i], f.T, *fs[i + 1 :]), w.scales
            if i + 1 < len(fs):
                yield "swap", (*fs[:i], fs[i + 1], f, *fs[i + 2 :]), w.scales
            for j in range(i + 2, len(fs)):
                yield "exchange", (*fs[:i], fs[j], *fs[i + 1 : j], f, *fs[j + 1 :]), w.scales
            for other in names.values():
                if other.glyph == f.symbol.glyph and other != f.symbol:
                    yield "mislabel", (*fs[:i], Factor(other, f.transposed), *fs[i + 1 :]), w.scales
        yield "reverse", fs[::-1], w.scales
        yield "transpose all", transpose(fs), w.scales
        yield "transpose each", tuple(f.T for f in fs), w.scales
        heads = {f.symbol.label for f in fs if f.symbol.label.count("H")}
        for a in heads:
            for b in arch.all_heads:
                if b.label != a:
                    moved = [names[f.symbol.text.replace(f"[{a}]", f"[{b}]")] for f in fs if renamed(f, a, b, names)]
                    if len(moved) == len(fs):
                        both = zip(moved, fs, strict=True)
                        yield "another head", tuple(Factor(s, f.transposed) for s, f in both), w.scales
    yield "scale dropped", w.factors, w.scales[1:]
    for i, s in enumerate(w.scales):
        yield "scale doubled", w.factors, (*w.scales, s)
        for other in (*(b.label for b in arch.all_heads), *arch.multipliers):
            yield "another scale", w.factors, (*w.scales[:i], other, *w.scales[i + 1 :])


def renamed(f: Factor, a: str, b: Head, names: dict[str, Symbol]) -> bool:
    return f.symbol.text.replace(f"[{a}]", f"[{b}]") in names


def accepted(fs: tuple[Factor, ...], scales: tuple[str, ...], arch: Architecture) -> Word | None:
    """The word, if the types take it."""
    try:
        return check_finished(Word(fs, scales), scaled=arch.scale, multipliers=arch.multipliers)
    except IllTyped:
        return None


@examples(60)
@given(st.data(), cases(max_terms=400, max_layers=3, max_heads=3))
def test_a_corrupted_word_is_refused_or_is_another_right_word(
    data: st.DataObject, case: tuple[Architecture, str]
) -> None:
    """What the types take after a slip is a term of this expansion, or of another target of the same model.

    The second happens in three ways: without ``W_U`` logits are the stream; without a score scale nothing tells
    whose scores are meant when W_QK and its biases are another head's; and a side may be left out altogether.
    """
    arch, target = case
    e, names = expand(arch, target), symbols(arch)
    w = e[data.draw(st.integers(0, e.count - 1))].word
    known = {t.text for t in e}
    for kind, fs, scales in corruptions(w, arch, names):
        found = accepted(fs, scales, arch)
        if found is None or found == w or found.text in known:
            continue
        assert found.text in others(arch, target, found), (kind, w.text, found.text)


def others(arch: Architecture, target: str, found: Word) -> set[str]:
    """The terms of the other target that this word can only belong to."""
    if target == "logits":
        return {t.text for t in expand(arch, "stream")}
    if target.startswith("scores") and not arch.scale:
        owners = {f.symbol.label for f in found.factors if f.symbol.glyph in ("W_Q", "b_Q")}
        return {t.text for owner in owners for t in scores(arch, owner)} if len(owners) == 1 else set()
    return set()


def refused(e: Expansion, names: dict[str, Symbol]) -> list[tuple[str, str]]:
    """The corruptions of all terms that are taken and are not terms of the expansion."""
    known = {t.text for t in e}
    taken = []
    for term in e:
        for kind, fs, scales in corruptions(term.word, e.architecture, names):
            found = accepted(fs, scales, e.architecture)
            if found is not None and found.text not in known:
                taken.append((kind, found.text))
    return taken


def test_corruptions_of_every_term_of_one_model() -> None:
    arch = attention_only((2, 2), "standard", True)
    names = symbols(arch)
    assert refused(scores(arch, "L1H1"), names) == []
    left = refused(logits(arch), names)
    assert {kind for kind, _ in left} == {"drop"}
    assert {text for _, text in left} == {t.text for t in expand(arch, "stream")}
    assert refused(expand(arch, "stream"), names) == []


@pytest.mark.parametrize("written", [None, 0, 1, 2])
@pytest.mark.parametrize("read", [None, 0, 1, 2])
@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("at", [False, True])
def test_nothing_is_read_before_it_is_written(written: int | None, read: int | None, by: bool, at: bool) -> None:
    """At one point an MLP reads what the heads wrote, and not what it writes itself."""
    vector, reader = Index(Space("model"), False, written, by), Index(Space("model"), True, read, at)
    known = written is not None and read is not None
    later = known and (written, by and at) > (read, False)
    for pair in ((vector, reader), (reader, vector)):
        assert bool(contraction_fault(*pair)) is later
