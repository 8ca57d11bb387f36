"""Reading formulas: whatever is printed here is read back, and what cannot be read is refused with its place."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import sympy
from hypothesis import example, given
from hypothesis import strategies as st

from symcircuits.checking.check import check
from symcircuits.checking.matching import Spelling, letters_of
from symcircuits.checking.reading import MAX_WORDS, Formula, ReadError, read
from symcircuits.core.architecture import Architecture, attention_only
from symcircuits.core.expansion import Expansion, Term, expand, logits, scores
from symcircuits.core.notation import Notation, letter_text, scale_text
from symcircuits.core.words import scalar_argument, scalar_order
from symcircuits.derivation.derive import derive
from symcircuits.sympy_layer.streams import recursion
from tests.strategies import cases

ARCH = attention_only((2, 2), "standard", True)
PLAIN = attention_only((2, 2))


def texts(formula: Formula) -> list[str]:
    """The words of a formula in text notation, abbreviated."""
    return [
        (f"{w.coefficient} * " if w.coefficient != 1 else "")
        + "".join(f"{scale_text(s)} * " for s in w.scales)
        + " @ ".join(f.text for f in Spelling(ARCH).fuse(w.letters))
        for w in formula.words
    ]


def their_text(term: Term, abbreviated: bool) -> str:
    """A term in TransformerLens's convention."""
    letters = letters_of(term.word.fused)
    letters = letters if abbreviated else Spelling(term.readout.architecture).unfuse(letters)
    front = "".join(f"{scale_text(s)} * " for s in term.word.scales)
    return front + " @ ".join(letter_text(*f, Notation("transformerlens")) for f in letters)


def noncommutative(term: Term) -> Any:
    """A term as a product of noncommutative SymPy symbols."""
    letters = [
        (sympy.transpose if f.marked else lambda x: x)(sympy.Symbol(f.symbol.argument, commutative=False))
        for f in term.word.fused
    ]
    return sympy.Mul(*[sympy.Symbol(scalar_argument(s)) for s in term.word.scales], *letters)


WRITTEN: dict[str, tuple[str, Callable[[Term], Any]]] = {
    "text": ("paper", lambda t: t.text),
    "unfused": ("paper", lambda t: "".join(f"{scale_text(s)} " for s in t.word.scales)
                + " ".join(f.text for f in t.word.factors)),
    "transformerlens": ("transformerlens", lambda t: their_text(t, True)),
    "transformerlens unfused": ("transformerlens", lambda t: their_text(t, False)),
    "latex": ("paper", lambda t: t.latex()),
    "notebook": ("paper", lambda t: t._repr_latex_()),
    "sympy": ("paper", lambda t: t.expr),
    "sympy matrices": ("paper", lambda t: t.matrix_expr()),
    "sympy's text": ("paper", lambda t: " @ ".join(f.symbol.argument + ".T" * f.marked for f in t.word.fused)),
    "noncommutative": ("paper", noncommutative),
    "term": ("paper", lambda t: t),
    "word": ("paper", lambda t: t.word),
}  # fmt: skip


def sample(expansion: Expansion, seed: int, most: int = 12) -> list[Term]:
    """Some terms, the first and the last among them."""
    step = max(1, expansion.count // most)
    numbers = {0, expansion.count - 1, *range(seed % step, expansion.count, step)} if expansion.count else set()
    return [expansion[i] for i in sorted(numbers)]


@pytest.mark.parametrize("way", WRITTEN)
@given(case=cases(max_terms=400, max_layers=3, max_heads=3), seed=st.integers(0, 10**6))
def test_every_term_is_read_back(way: str, case: tuple[Architecture, str], seed: int) -> None:
    arch, target = case
    convention, write = WRITTEN[way]
    for term in sample(expand(arch, target), seed):
        [word] = read(write(term), arch, convention).words
        scales = () if way == "sympy's text" else term.word.scales
        assert (word.coefficient, tuple(sorted(word.scales, key=scalar_order))) == (1, scales)
        assert Spelling(arch).fuse(word.letters) == letters_of(term.word.fused)


@pytest.mark.parametrize("target", ["logits", "stream", "scores:L1H0"])
@pytest.mark.parametrize("arch", [PLAIN, ARCH, attention_only((1, 2), "shortformer", ["b_V", "b_Q"])])
def test_printed_displays_are_read_back(arch: Architecture, target: str) -> None:
    expansion = expand(arch, target)
    if expansion.count <= 40:
        found = read(expansion._repr_latex_(), arch)
        assert texts(found) == [t.text for t in expansion]
        assert target == "stream" or found.target == target
    latex = derive(arch, target).latex()
    displays = re.findall(r"\\begin\{(?:align\*|alignat\*)\}.*?\\end\{(?:align\*|alignat\*)\}", latex, re.DOTALL)
    [terms] = [d for d in displays if r"\textcolor" in d and r"\right\}" not in d] or [None]
    if terms is not None:
        assert sorted(texts(read(terms, arch))) == sorted(t.text for t in expansion)
    families = [d for d in displays if r"\right\}" in d]
    assert families
    assert all(sorted(texts(read(d, arch))) == sorted(t.text for t in expansion) for d in families)


@pytest.mark.parametrize("target", ["logits", "scores:L1H1"])
def test_what_sympy_builds_is_read_and_multiplied_out(target: str) -> None:
    expansion = expand(ARCH, target)
    assert sorted(texts(read(recursion(ARCH, target), ARCH))) == sorted(t.text for t in expansion)
    whole = sympy.MatAdd(*(t.matrix_expr() for t in expansion))
    assert sorted(texts(read(whole, ARCH))) == sorted(t.text for t in expansion)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("X0 W_U.T", ["X0 @ W_U.T"]),
        ("t W_E^T W_U^{\\top}", ["X0 @ W_U.T"]),
        ("(X0)(W_U.T)", ["X0 @ W_U.T"]),
        ("(W_U X0.T).T", ["X0 @ W_U.T"]),
        ("((W_U X0.T).T.T^{T})", ["X0 @ W_U.T"]),
        ("(X0 + P) @ W_U.T", ["X0 @ W_U.T", "P @ W_U.T"]),
        ("(X0 + P).T", ["X0.T", "P.T"]),
        ("2 X0 - 3*(P + P)", ["2 * X0", "-3 * P", "-3 * P"]),
        ("-X0 + -P", ["-1 * X0", "-1 * P"]),
        ("X0 · P", ["X0 @ P"]),
        ("X0 @ scale[L1H0] * scale[1.1] P", ["scale[L1H0] * scale[L1H1] * X0 @ P"]),
        ("A [ l1h1 ] X_0", ["A[L1H1] @ X0"]),
        ("W_O[L0H0] @ W_V[L0H0]", ["W_OV[L0H0]"]),
        ("W_Q[L1H0].T @ W_K[L1H0]", ["W_QK[L1H0]"]),
        ("W_Q[L1H0].T @ W_K[L1H1]", ["W_Q[L1H0].T @ W_K[L1H1]"]),
        ("b_O[L1]", ["b_O[L1]"]),
        ("logits = X0 W_U.T", ["X0 @ W_U.T"]),
        (r"\left(X_0 + P\right)\,W_U^{\mathsf{T}}", ["X0 @ W_U.T", "P @ W_U.T"]),
        (r"$$ X_{0} \\ &\quad \cdot W_U^\top $$", ["X0 @ W_U.T"]),
        ("(X0 + P) (A[L0H0] + A[L0H1]).T", ["X0 @ A[L0H0].T", "X0 @ A[L0H1].T", "P @ A[L0H0].T", "P @ A[L0H1].T"]),
    ],
)
def test_ways_to_write(written: str, words: list[str]) -> None:
    assert texts(read(written, ARCH)) == words


def test_transformerlens_transposes_weights_but_not_qk() -> None:
    written = "W_E @ QK[L1H0] @ OV[L0H1].T @ W_E.T + W_pos @ W_V[L0H0] @ W_O[L0H0] @ W_U + ones @ b_O[L0]"
    assert texts(read(written, ARCH, "transformerlens")) == [
        "W_E.T @ W_QK[L1H0] @ W_OV[L0H1] @ W_E", "P @ W_OV[L0H0].T @ W_U.T", "ones @ b_O[L0].T",
    ]  # fmt: skip


def test_positions_are_kept() -> None:
    [first, second] = read("X0 @ W_U.T + ( A[L0H0] @ P )", ARCH).words
    assert [f.at for f in first.factors + second.factors] == [0, 5, 15, 25]
    assert (first.at, second.at) == (0, 15)


@pytest.mark.parametrize(
    ("written", "target"),
    [("logits = X0", "logits"), ("stream = X0", "stream"), (r"\mathrm{logits} &= X_0", "logits"),
     ("X_2 = X0", "stream"), ("X_{2} &= X0", "stream"), ("S[L1H0] = X0", "scores:L1H0"),
     (r"S^{\mathrm{L1H1}} &= X_0", "scores:L1H1"),
     ("X0", None)],
)  # fmt: skip
def test_the_left_hand_side_names_the_target(written: str, target: str | None) -> None:
    assert read(written, PLAIN).target == target


# --------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("written", "position", "says"),
    [
        ("", 0, "empty"),
        (" \n", 0, "empty"),
        ("X0 @ W_VO[L0H1]", 5, "unknown symbol 'W_VO'; did you mean W_OV?"),
        ("X0 @ OV[L0H1]", 5, "here it is W_OV"),
        ("X0 @ W_ov[L0H1]", 5, "did you mean W_OV?"),
        ("X0 @ X_3", 5, "there is no stream after 3 layers"),
        ("X0 @ A[L5H0]", 5, "there is no head L5H0: the model has 2 layers"),
        ("X0 @ A[L1H7]", 5, "layer 1 has 2 heads"),
        ("X0 @ A[h_1]", 5, "not the name of a head"),
        ("b_O[L7]", 0, "there is no layer L7"),
        ("b_O[L0H0]", 0, "not the name of a layer"),
        ("X0 @ A", 5, "needs a label"),
        ("W_U[L0H0]", 0, "W_U has no label"),
        ("(X0", 0, "never closed"),
        ("X0)", 2, "never opened"),
        ("X0 + ()", 6, "a formula is missing here"),
        ("X0 +", 3, "a term is missing"),
        ("X0 @", 3, "missing after this"),
        ("@ X0", 0, "missing before this"),
        ("X0 @ @ X0", 5, "missing before this"),
        ("X0 @ + P", 5, "missing before this"),
        ("2", 0, "a matrix is expected"),
        ("X0 + scale[L1H0]", 0, "a matrix is expected"),
        ("0.5 X0", 4, "not a whole number"),
        ("1" * 30 + " X0", 0, "more than 18 digits"),
        ("X0 / 2", 0, "not a whole number"),
        ("X0^2", 0, "X0 has no label"),
        ("X0.S", 2, "only .T may follow"),
        ("A[L0H0][L0H1]", 0, "a symbol has only one label"),
        ("A^{L0H0}[L0H1]", 0, "a symbol has only one label"),
        ("A[L0H0]^{L0H0}", 0, "a symbol has only one label"),
        ("(X0)^{L0H0}", 4, "parentheses cannot have a label"),
        (r"\alpha X_0", 0, "needs a label"),
        (r"\vartheta X_0", 0, "unknown symbol"),
        (r"\hline X_0", 0, "LaTeX command"),
        (r"X_0 \\ \input{/etc/passwd}", 7, "LaTeX command"),
        (r"X_0 } W_U", 4, "never opened"),
        (r"\textcolor{red}{ X_0", 0, "never closed"),
        (r"X_0 + \cdots", 6, "dots cannot be read; write all of the terms"),
        ("X0 + ...", 5, "dots cannot be read; write all of the terms"),
        (r"\sum A^{h}", 0, "a sum sign needs a range"),
        ("logits = X0 = P", 14, "give only one formula here"),
        ("X_1 = X0", 6, "give only one formula here"),
        ("S[L9H9] = X0", 0, "no head L9H9"),
        ("X0 != P", 3, "only = between formulas is checked"),
        (r"\sqrt{X_0} P", 0, "a root must be of a dimension"),
        ("naïve", 0, "unknown symbol"),
        ("X0 \x00", 3, "U+0000"),
        ("X0 😀", 3, "unknown character"),
        ("__import__('os').system('true')", 16, "only .T may follow"),
        ("X0; print(1)", 2, "unknown character"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(written: str, position: int, says: str) -> None:
    with pytest.raises(ReadError) as caught:
        read(written, PLAIN)
    assert says in str(caught.value)
    assert caught.value.position == position


def test_the_place_is_shown() -> None:
    with pytest.raises(ReadError) as caught:
        read("X0 @ W_U.T\n + " + "A[L0H0] @ " * 20 + "Q @ " + "X0 @ " * 20 + "P", PLAIN)
    line, mark = caught.value.place.splitlines()
    assert line[mark.index("^")] == "Q"
    assert len(line) < 70


A, B = (sympy.Symbol(n, commutative=False) for n in ("A_L0H0", "t"))


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        (sympy.Symbol("A_L0H0"), "SymPy has lost the order"),
        (sympy.Symbol("Y", commutative=False), "unknown symbol 'Y'"),
        (A**-1 * B, "the power"),
        (A ** (10**9), "the power"),
        (A * sympy.Rational(1, 2), "cannot be read"),
        (sympy.exp(A), "cannot be read"),
        (sympy.Integer(3), "a matrix is expected"),
        (sympy.MatrixSymbol("A_L7H0", 2, 2), "there is no head L7H0"),
        (sympy.Identity(3) * sympy.MatrixSymbol("t", 3, 3) + sympy.ZeroMatrix(3, 3), None),
        (sympy.ZeroMatrix(3, 3), "cannot be read"),
        (sympy.Integer(10) ** 30 * A, "a coefficient is larger than"),
    ],
)
def test_sympy_expressions_that_are_no_formula(expression: Any, says: str | None) -> None:
    if says is None:
        assert texts(read(expression, PLAIN)) == ["t"]
        return
    with pytest.raises(ReadError, match=re.escape(says)):
        read(expression, PLAIN)


def test_sympy_powers_and_coefficients() -> None:
    assert texts(read(2 * A**3 * B - B, PLAIN)) == ["-1 * t", "2 * A[L0H0] @ A[L0H0] @ A[L0H0] @ t"]


@pytest.mark.parametrize("formula", [None, 3, ["X0"], b"X0"])
def test_what_is_no_formula_at_all(formula: Any) -> None:
    with pytest.raises(TypeError, match="a formula is"):
        read(formula, PLAIN)


def test_columns_are_not_for_the_names_that_are_printed_here() -> None:
    for own in ("OV[L0H0]", logits(attention_only((2,)))[1].expr):
        with pytest.raises(ReadError, match="the names that symcircuits prints have a row for each token"):
            check(own, attention_only((2,)), convention="columns")


def test_an_unknown_convention_is_refused() -> None:
    with pytest.raises(ValueError, match="convention must be"):
        read("X0", PLAIN, "mine")


MILLION = 1_000_000


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("X0 @ " * MILLION + "X0", "characters"),
        ("P " * 999_000, "more than 1,000 factors"),
        ("2 " * 900_000, "factors"),
        ("(X0 + P)" * 200, f"at most {MAX_WORDS:,}"),
        ("+".join(["P"] * 500_000), f"more than {MAX_WORDS:,}"),
        ("(" * 9_000 + "X0" + ")" * 9_000, None),
        ("(" * 9_000 + "X0" + ").T" * 9_000, None),
        ("(" * MILLION, "nested more than"),
        ("(" * 9_000 + "+".join(["P"] * 9_000) + ").T" * 9_000, "too many steps"),
        ("-" * MILLION + "X0", None),
        ("[" * MILLION, "label in brackets"),
        ("A[" * MILLION, "label"),
        ("{" * MILLION, "nested more than"),
        ("^" * MILLION, "superscript"),
        ("X0^{" * 400_000, "never closed"),
        ("A" * MILLION, "unknown symbol"),
        ("A_L" * 600_000, "unknown symbol"),
        ("1" * MILLION, "digits"),
        (r"\right\}\;\text{" * 100_000, "LaTeX command"),
        (r"\begin{" * 200_000, "LaTeX command"),
        ("\\" * (MILLION // 5), "a formula is missing here"),
        pytest.param("\\" * MILLION, "a formula is missing here", marks=pytest.mark.slow),
        (" " * 1_999_000 + "!", "unknown character"),
        ("X0 = " * 100_000 + "X0", "equations"),
        ("\n" * MILLION, "empty"),
        (r"\begin{align}" * 50_000, "a formula is missing here"),
        ("'" * (MILLION // 10), "in quotes"),
        pytest.param("'" * MILLION, "in quotes", marks=pytest.mark.slow),
        ("X0 +\n" * 100_000 + "X0", f"more than {MAX_WORDS:,} words"),
        ("X0 W_U.T\n" * 20_000, "more than 10,000 lines"),
        ("ov = model.W_V[0, 1] @ model.W_O[0, 1]\n" * 20_000, "the code has more than 10,000 lines"),
        ("A^{" * 1_000 + "h" + "}" * 1_000, "more than 1,000 characters"),
    ],
    ids=lambda v: v[:12] if v else "read",
)
@pytest.mark.usefixtures("limited")  # what grew with the square of a million characters would take hours
@pytest.mark.sampled(12)
def test_huge_input_is_refused_or_read(written: str, says: str | None) -> None:
    if says is None:
        assert len(read(written, ARCH).words) == 1
    else:
        with pytest.raises(ReadError) as caught:
            read(written, ARCH)
        assert says in str(caught.value)
        assert len(str(caught.value)) < 600


PIECES = [
    "A", "[L0H0]", "[L9H9]", "[", "]", "X0", "X_0", "W_{OV}", "^{", "}", "{", "^T", ".T", "(", ")", "+", "-", "@", "*",
    " ", "\n", "\\", "\\,", "\\mathsf{T}", "\\mathrm{L0H0}", "\\textcolor{red}{", "\\text{x}",
    "\\right\\}\\;", "\\end{a}",
    "2", "=", "logits", "scale", "s^", "&", "$", "%", "#", "~", "é", "\x00", "😀", "_", ".", "t", "W_QK",
    "\\begin{align}",
]  # fmt: skip


@given(
    st.one_of(st.lists(st.sampled_from(PIECES)).map("".join), st.text()), st.sampled_from(["paper", "transformerlens"])
)
@example("\\" + "mathbf{1}", "paper")
def test_any_text_is_read_or_refused(written: str, convention: str) -> None:
    found = fault = None
    try:
        found = read(written, ARCH, convention)
    except ReadError as refused:
        fault = refused
    if fault is not None:
        assert 0 <= fault.position <= len(written)
    if found is not None:
        assert found.words
        assert all(w.factors for w in found.words)


@given(st.lists(st.booleans(), max_size=5))
def test_parentheses_and_transposes_agree_with_the_letters(flips: list[bool]) -> None:
    term = scores(ARCH, "L1H0")[40]
    text, letters = term.text.partition("* ")[2], letters_of(term.word.fused)
    for flip in flips:
        text = f"({text})" + (".T" if flip else "")
    wanted = letters if sum(flips) % 2 == 0 else tuple(f.T for f in reversed(letters))
    assert Spelling(ARCH).fuse(read(text, ARCH).words[0].letters) == wanted


@pytest.mark.slow
def test_a_sum_as_long_as_the_limit_is_read() -> None:
    expansion = logits(attention_only((24, 24, 30)))
    text = " + ".join(t.text for t in expansion[:MAX_WORDS])
    assert len(read(text[:1_999_999].rpartition(" + ")[0], attention_only((24, 24, 30))).words) > 10_000
