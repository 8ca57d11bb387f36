"""How symbols and words are written: three notations, other names for symbols, and nothing printed twice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.checking.matching import Spelling, letters_of
from symcircuits.checking.reading import read
from symcircuits.core.architecture import Architecture, Head, attention_only, transformer
from symcircuits.core.expansion import Expansion, Term, expand, logits, scores, stream
from symcircuits.core.notation import (
    NOTATIONS,
    ROW,
    Notation,
    as_notation,
    factor_latex,
    form,
    glyph_latex,
    latex_label,
    product_latex,
    scale_latex,
    symbol_latex,
    word_latex,
    word_text,
)
from symcircuits.core.programs import embedding, pattern, weight
from symcircuits.core.words import Factor, Word, fuse
from tests.strategies import cases

ARCH = attention_only((2, 2), "standard", True)


def test_symbols() -> None:
    a = pattern(Head(0, 11))
    assert latex_label("L0H11") == r"\mathrm{L0H11}"
    assert symbol_latex(a) == r"A^{\mathrm{L0H11}}"
    assert symbol_latex(a, True) == factor_latex(a.T) == r"A^{\mathrm{L0H11}\,\mathsf{T}}"
    assert factor_latex(Factor(a)) == symbol_latex(a, False)
    assert scale_latex("L1H0") == r"s^{\mathrm{L1H0}}"
    w_u = logits(ARCH)[0].word.factors[-1]
    assert (factor_latex(w_u), factor_latex(w_u.T)) == (r"W_U^{\mathsf{T}}", "W_U")
    assert product_latex([Factor(a), w_u]) == r"A^{\mathrm{L0H11}}\,W_U^{\mathsf{T}}"
    assert product_latex([]) == ""
    assert [factor_latex(f) for f in embedding()] == ["t", r"W_E^{\mathsf{T}}"]
    for glyph in ("W_Q", "W_K", "W_V", "W_O"):
        assert symbol_latex(weight(ARCH, glyph, Head(1, 0))) == glyph + r"^{\mathrm{L1H0}}"


def test_generic_heads_and_streams() -> None:
    assert [latex_label(label) for label in ("h", "h_1", "h_12", "L0")] == ["h", "h_{1}", "h_{12}", r"\mathrm{L0}"]
    assert [latex_label(label) for label in ("G(h)", "G(h_12)")] == ["G(h)", "G(h_{12})"]
    assert latex_label("G(L0H1)") == r"G(\mathrm{L0H1})"
    assert [glyph_latex(glyph) for glyph in ("X0", "X1", "X12", "P")] == ["X_0", "X_{1}", "X_{12}", "P"]


@pytest.mark.parametrize(
    ("latex", "word"),
    [
        (r"X_0\,W_U^{\mathsf{T}}", logits(ARCH)[0].word),
        (r"P\,W_U^{\mathsf{T}}", logits(ARCH)[1].word),
        (r"\mathbf{1}\,b_O^{\mathrm{L0}\,\mathsf{T}}\,W_U^{\mathsf{T}}", logits(ARCH)[2].word),
        (r"\mathbf{1}\,b_U^{\mathsf{T}}", logits(ARCH).from_source("b_U")[0].word),
        (
            r"A^{\mathrm{L1H0}}\,A^{\mathrm{L0H1}}\,X_0\,W_{OV}^{\mathrm{L0H1}\,\mathsf{T}}\,W_{OV}^{\mathrm{L1H0}\,\mathsf{T}}",
            stream(ARCH).through("L0H1").through("L1H0")[0].word,
        ),
        (
            r"A^{\mathrm{L0H0}}\,\mathbf{1}\,b_V^{\mathrm{L0H0}\,\mathsf{T}}\,W_O^{\mathrm{L0H0}\,\mathsf{T}}",
            stream(ARCH).from_source("b_V")[0].word,
        ),
        (
            r"s^{\mathrm{L1H0}}\,X_0\,W_{QK}^{\mathrm{L1H0}}\,W_{OV}^{\mathrm{L0H0}}\,X_0^{\mathsf{T}}\,"
            r"A^{\mathrm{L0H0}\,\mathsf{T}}",
            scores(ARCH, "L1H0").where("K")[0].word,
        ),
        (
            r"s^{\mathrm{L1H0}}\,\mathbf{1}\,b_Q^{\mathrm{L1H0}\,\mathsf{T}}\,b_K^{\mathrm{L1H0}}\,\mathbf{1}^{\mathsf{T}}",
            scores(ARCH, "L1H0").from_source("b_Q").from_source("b_K")[0].word,
        ),
        (
            r"\mathbf{1}\,b_Q^{\mathrm{L0H0}\,\mathsf{T}}\,W_K^{\mathrm{L0H0}}\,X_0^{\mathsf{T}}",
            scores(attention_only((1,), None, True, scale=False), "L0H0").from_source("b_Q")[0].word,
        ),
    ],
)
def test_words(latex: str, word: Word) -> None:
    assert word_latex(word) == latex
    assert word_latex(Word(fuse(word.factors), word.scales)) == latex


_MULTIPLIER = r"(^|\* )(m_[EU]|r\[[LM]\d+\]) @"


@given(cases(max_terms=100))
def test_latex_says_what_the_text_says(case: tuple[Architecture, str]) -> None:
    """The LaTeX of every term, turned into text notation, is its text."""
    for term in expand(*case):
        assert term.latex() == word_latex(term.word)
        text = term.latex().replace(r"\mathbf{1}", "ones").replace("X_0", "X0").replace(r"\,\mathsf{T}}", "}^T")
        text = text.replace(r"^{\mathsf{T}}", "^T").replace(r"\,", " @ ").replace("{OV}", "OV").replace("{QK}", "QK")
        text = text.replace(r"\Gamma", "gain").replace("R_{j-i}", "R").replace("M^", "mlp^")
        text = re.sub(r"\^\{\\mathrm\{(\w+)\}\}", r"[\1]", text).replace("^T", ".T")
        text = re.sub(r"^s\[(\w+)\] @", r"scale[\1] *", text)
        while re.search(_MULTIPLIER, text):
            text = re.sub(_MULTIPLIER, r"\1\2 *", text)
        assert text == term.text


def test_every_letter_can_be_written() -> None:
    for target in ("logits", "scores:L1H1"):
        for term in expand(ARCH, target):
            assert "_" not in re.sub(r"_(\w|\{\w+\})", "", word_latex(term.word))


@pytest.mark.parametrize("scale", [True, False])
def test_entrywise_products_are_enclosed_and_transposed(scale: bool) -> None:
    """Each word of them that is more than a symbol stands in parentheses, and the transpose is of the whole."""
    head = transformer((1,), softmax=False, scale=scale)
    pattern = logits(head).unfrozen()[-1].word
    inside = "scale[L0H0] * X0 @ W_QK[L0H0] @ X0.T" if scale else "X0 @ W_QK[L0H0] @ X0.T"
    latex = r"s^{\mathrm{L0H0}}\,"[: None if scale else 0] + r"X_0\,W_{QK}^{\mathrm{L0H0}}\,X_0^{\mathsf{T}}"
    latex = rf"\left(\mathcal{{M}}^{{\mathrm{{L0}}}}\odot \left({latex}\right)\right)"
    assert word_text(pattern) == f"(mask[L0] * ({inside})) @ X0 @ W_OV[L0H0].T @ W_U.T"
    assert word_text(pattern.T) == f"W_U @ W_OV[L0H0] @ X0.T @ (mask[L0] * ({inside})).T"
    assert factor_latex(pattern.factors[0]) == latex
    assert factor_latex(pattern.factors[0].T) == latex + r"^{\mathsf{T}}"


def test_entrywise_products_are_written_alike_by_words_and_notations() -> None:
    arch = transformer((2, 1), softmax=False, mlps=True, bilinear=True, multipliers=True)
    for term in logits(arch).unfrozen()[:200]:
        for word in (term.word, term.word.T):
            assert word_text(word) == word.text


# ---------------------------------------------------------------------------------------------- the notations
@pytest.mark.parametrize(
    ("term", "paper", "theirs"),
    [
        (
            logits(ARCH).through("L0H1").through("L1H0")[0],
            "(A[L1H0] @ A[L0H1] (x) W_U @ W_OV[L1H0] @ W_OV[L0H1] @ W_E) t",
            "A[L1H0] @ A[L0H1] @ X0 @ OV[L0H1] @ OV[L1H0] @ W_U",
        ),
        (logits(ARCH)[0], "(Id (x) W_U @ W_E) t", "X0 @ W_U"),
        (logits(ARCH)[1], "(Id (x) W_U) P", "P @ W_U"),
        (stream(ARCH)[1], "P", "P"),
        (logits(ARCH).from_source("b_U")[0], "(Id (x) b_U) ones", "ones @ b_U"),
        (logits(ARCH).from_source("b_O[L0]")[0], "(Id (x) W_U @ b_O[L0]) ones", "ones @ b_O[L0] @ W_U"),
        (
            stream(ARCH).from_source("b_V")[0],
            "(A[L0H0] (x) W_O[L0H0] @ b_V[L0H0]) ones",
            "A[L0H0] @ ones @ b_V[L0H0] @ W_O[L0H0]",
        ),
        (
            scores(ARCH, "L1H0").through("L0H0", "query").through("L0H1", "key").from_source("embed", "query")[0],
            "scale[L1H0] * (A[L0H0] (x) A[L0H1] (x) W_E.T @ W_OV[L0H0].T @ W_QK[L1H0] @ W_OV[L0H1] @ W_E)(t, t)",
            "scale[L1H0] * A[L0H0] @ X0 @ OV[L0H0] @ QK[L1H0] @ OV[L0H1].T @ X0.T @ A[L0H1].T",
        ),
        (
            scores(ARCH, "L1H0").from_source("pos", "query").through("L0H1", "key")[0],
            "scale[L1H0] * (Id (x) A[L0H1] (x) W_QK[L1H0] @ W_OV[L0H1] @ W_E)(P, t)",
            "scale[L1H0] * P @ QK[L1H0] @ OV[L0H1].T @ X0.T @ A[L0H1].T",
        ),
        (
            scores(ARCH, "L1H0").from_source("b_Q").from_source("b_K")[0],
            "scale[L1H0] * (Id (x) Id (x) b_Q[L1H0].T @ b_K[L1H0])(ones, ones)",
            "scale[L1H0] * ones @ b_Q[L1H0] @ b_K[L1H0].T @ ones.T",
        ),
        (
            scores(attention_only((1, 1), "shortformer", scale=False), "L1H0").from_source("pos")[0],
            "(Id (x) Id (x) W_E.T @ W_QK[L1H0])(t, P)",
            "X0 @ QK[L1H0] @ P.T",
        ),
    ],
)
def test_the_notations(term: Term, paper: str, theirs: str) -> None:
    assert term.written("paper").text == paper
    assert term.written("transformerlens").text == theirs
    assert term.written("row").text == term.text == term.word.text
    found = form(term.word, Notation("paper"))
    assert (found is None) == (paper == "P")


def test_latex_of_the_notations() -> None:
    term = scores(ARCH, "L1H0").where("K").from_source("embed")[0]
    assert term.written("paper").latex() == (
        r"s^{\mathrm{L1H0}}\,\bigl(\mathrm{Id} \otimes A^{\mathrm{L0H0}} \otimes W_E^{\mathsf{T}}\,"
        r"W_{QK}^{\mathrm{L1H0}}\,W_{OV}^{\mathrm{L0H0}}\,W_E\bigr)\bigl(t,\; t\bigr)"
    )
    assert term.written("transformerlens", {"W_OV": "V_out", "A": "Omega"}).latex() == (
        r"s^{\mathrm{L1H0}}\,X_0\,W_{QK}^{\mathrm{L1H0}}\,V_{\mathrm{out}}^{\mathrm{L0H0}\,\mathsf{T}}\,X_0^{\mathsf{T}}\,"
        r"\Omega^{\mathrm{L0H0}\,\mathsf{T}}"
    )
    assert logits(ARCH)[1].written("paper").latex() == r"\bigl(\mathrm{Id} \otimes W_U\bigr)\,P"


def test_a_notation_goes_with_the_selection_and_changes_nothing_else() -> None:
    e = scores(ARCH, "L1H0").written("paper", {"A": "Q"})
    chosen = e.through("L0H1").order(2)
    assert chosen[0].notation == next(iter(chosen)).notation == chosen.head(1)[0].notation == e.notation
    assert chosen[0].text.startswith("scale[L1H0] * (Q[L0H0] (x) Q[L0H1]")
    plain = scores(ARCH, "L1H0")
    assert (e, hash(e)) == (plain, hash(plain))
    assert e[3] == plain[3]
    assert hash(e[3]) == hash(plain[3])
    assert (e.index(plain[5]), plain.index(e[5])) == (5, 5)
    assert e.written() is not e
    assert e.written().notation == ROW
    assert repr(e[0]) == "<Term embed | embed (none): scale[L1H0] * (Id (x) Id (x) W_E.T @ W_QK[L1H0] @ W_E)(t, t)>"
    values = sc.evaluate(e, sc.random_model(ARCH).run([1, 2]))
    assert all(e[block.start].notation == e.notation for block in values.blocks())


# --------------------------------------------------------------------------------------------- names of symbols
@pytest.mark.parametrize(
    ("name", "symbols", "message"),
    [
        ("column", {}, "notation must be one of row, paper, transformerlens, not 'column'"),
        ("row", {"W_X": "M"}, "there is no symbol 'W_X'; did you mean"),
        ("row", {"W_OV": "W_V"}, "W_OV cannot be printed as 'W_V': so is W_V; give one of the two another name"),
        ("row", {"W_OV": "M", "W_QK": "M"}, "W_QK cannot be printed as 'M': so is W_OV"),
        ("row", {"A": "X_0"}, "A cannot be printed as 'X_0': so is X0"),
        ("row", {"A": "X0"}, "'X0' cannot be the name of a symbol: it stands for a stream"),
        ("row", {"A": "s"}, "A cannot be printed as 's': so is scale"),
        ("row", {"A": "scale"}, "so is scale"),
        ("row", {"A": "ones"}, "so is ones"),
        ("row", {"A": "Omega", "t": "Ω"}, "t cannot be printed as 'Ω': so is A"),
        ("transformerlens", {"A": "OV"}, "A cannot be printed as 'OV': so is W_OV"),
        ("row", {"W_OV": "L0H1"}, "W_OV: 'L0H1' cannot be the name of a symbol: it stands for the label"),
        ("row", {"W_OV": ""}, "W_OV: the name of a symbol must not be empty"),
        ("row", {"W_OV": "M\x07"}, "W_OV: the name of a symbol has no control characters"),
        ("row", {"W_OV": 3}, "W_OV: the name of a symbol is a string, not 3"),
        ("row", ["W_OV", "M"], "symbols map names to names"),
        ("row", 3, "symbols map names to names"),
    ],
)
def test_what_a_notation_refuses(name: str, symbols: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Notation(name, symbols)


def test_names_may_be_swapped_and_given_to_what_a_model_lacks() -> None:
    swapped = Notation("row", {"W_Q": "W_K", "W_K": "W_Q"})
    assert swapped.names == {"W_K": "W_Q", "W_Q": "W_K"}
    assert Notation("row", {"W_V": "W_OV", "W_OV": "V"}).names == {"W_OV": "V", "W_V": "W_OV"}
    names = {"W_OV": "M", "A": "P"}
    assert logits(attention_only((1,))).written(symbols=names)[1].text == "P[L0H0] @ X0 @ M[L0H0].T @ W_U.T"
    short = attention_only((1, 1), "shortformer")
    assert logits(short).written(symbols=names)[1].text == "P[L0H0] @ X0 @ M[L0H0].T @ W_U.T"
    message = "A cannot be printed as 'P': so is P; give one of the two another name"
    for written in (logits(ARCH).written, logits(ARCH)[0].written, scores(short, "L1H0").written):
        with pytest.raises(ValueError, match=message):
            written(symbols=names)
    with pytest.raises(ValueError, match=message):
        sc.derive(short, "scores:L1H0", symbols=names)
    assert scores(short, "L1H0").written(symbols={**names, "P": "E"})[1].text.endswith("@ E.T")


def test_notations_are_values() -> None:
    a, b = Notation("paper", {"A": "B", "t": "u"}), Notation("paper", (("t", "u"), ("A", "B")))
    assert (a, hash(a)) == (b, hash(b))
    assert as_notation(a, {"t": "w"}).names == {"A": "B", "t": "w"}
    assert as_notation(a) is a
    assert as_notation("paper", {"A": "B", "t": "u"}) == a
    assert a.json() == {"name": "paper", "convention": a.convention, "symbols": {"A": "B", "t": "u"}}
    assert Notation("paper").products == ROW
    with pytest.raises(AttributeError):
        a.name = "row"  # type: ignore[misc]


# ------------------------------------------------------------------------- what is printed is read and computed
NAMES: list[Mapping[str, str]] = [
    {},
    {"W_OV": "M", "A": "Psi", "X0": "x_in", "scale": "sigma"},
    {"W_OV": r"\input{/etc/passwd}", "A": "$x_1%", "W_U": "a_b^c~#&{}", "t": "@ .T", "scale": 'q"', "W_E": "[L0H1]"},
    {"A": "W_OV", "W_OV": "A", "P": "W_E", "W_E": "P", "ones": "one", "X0": "z"},
]


def sampled(expansion: Expansion, seed: int) -> list[Term]:
    """Some terms, the first and the last among them."""
    n = expansion.count
    return [expansion[i] for i in sorted({0, n - 1, *(seed * k % n for k in range(1, 6))})] if n else []


@given(case=cases(max_terms=300, max_layers=3, max_heads=3), seed=st.integers(0, 10**6), names=st.sampled_from(NAMES))
def test_products_are_read_back(case: tuple[Architecture, str], seed: int, names: Mapping[str, str]) -> None:
    """Text and LaTeX of every term in the row and TransformerLens's notation, whatever symbols are called."""
    arch, target = case
    assume(not arch.mlps or "M" not in names.values())  # what an MLP writes is called M
    for convention in ("row", "transformerlens"):
        expansion = expand(arch, target).written(convention, names)
        for term in sampled(expansion, seed):
            for printed in (term.text, term.latex(), term._repr_latex_()):
                [word] = read(printed, arch, convention, names).words
                assert (word.coefficient, word.scales) == (1, term.word.scales)
                assert Spelling(arch).fuse(word.letters) == letters_of(term.word.fused)


@pytest.mark.parametrize(
    "arch",
    [
        attention_only(()), attention_only((2, 2)), attention_only((1, 2), "standard", True),
        attention_only((2, 1), "shortformer", True, scale=False), attention_only((1, 1, 1), "standard", ["b_V", "b_O"]),
        attention_only((2, 1), unembed=False, biases=["b_V[L0H1]"]),
    ],
)  # fmt: skip
@pytest.mark.sampled(1)
def test_check_reads_every_term_in_their_convention(arch: Architecture) -> None:
    heads = [f"scores:{h}" for h in arch.all_heads]
    for target in ["stream", *(["logits"] if arch.unembed else []), *heads]:
        for i, term in enumerate(expand(arch, target).written("transformerlens")):
            verdict = sc.check(term.text, arch, target, "transformerlens")
            assert (verdict.right, [t.number for t in verdict.terms], verdict.terms[0].text) == (True, [i], term.text)
            assert sc.check(term.latex(), arch, target, "transformerlens").right
            if any(f.symbol.glyph in ("W_OV", "W_O", "W_U", "b_V", "b_Q", "b_K") for f in term.word.fused):
                assert not sc.check(term.latex(), arch, target, "row").right


SLOT = re.compile(r"([A-Za-z]\w*)(?:\[(\w+)\])?(\.T)?")


def matrix(text: str, arrays: Mapping[str, Any], n: int) -> Any:
    """A product of matrices in the paper's shapes, from its text; ``Id`` is the identity on tokens."""
    if text == "Id":
        return np.eye(n)
    value = None
    for glyph, label, turned in (SLOT.fullmatch(f).groups() for f in text.split(" @ ")):  # type: ignore[union-attr]
        a = arrays[f"{glyph}_{label}" if label else glyph]
        a = a.T if turned else a
        value = a if value is None else np.einsum("ij,jk->ik", value, a)
    return value


def map_value(text: str, arrays: Mapping[str, Any], n: int) -> Any:
    """The value of a term in the paper's notation, read from its text and summed over the indices of its tensor."""
    *scales, body = text.split(" * ")
    factor = prod(arrays[argument(scale)] for scale in scales)
    found = re.fullmatch(r"\((.*)\)(?: (\S+)|\((\S+), (\S+)\))", body)
    if not found:
        return factor * arrays[argument(body)]
    if " @ R[" in found[1]:  # another matrix between for every pair of tokens
        a_q, a_k, weights = found[1].split(" (x) ")
        before, turned, after = re.fullmatch(r"(.*) @ (R\[\w+\]) @ (.*)", weights).groups()  # type: ignore[union-attr]
        x = matrix(a_q, arrays, n) @ arrays[argument(found[3])] @ matrix(before, arrays, n)
        y = matrix(a_k, arrays, n) @ arrays[argument(found[4])] @ matrix(after, arrays, n).T
        r = arrays[argument(turned)]
        return factor * np.array([[x[i] @ r[i] @ r[j].T @ y[j] for j in range(n)] for i in range(n)])
    slots = [matrix(slot, arrays, n) for slot in found[1].split(" (x) ")]
    if found[2]:
        a, w = slots
        return factor * np.einsum("ij,ab,jb->ia", a, w if found[1].split(" (x) ")[1] != "Id" else np.eye(w.shape[0]),
                         arrays[argument(found[2])])  # fmt: skip
    a_q, a_k, w = slots
    x, y = arrays[argument(found[3])], arrays[argument(found[4])]
    value = np.einsum("iu,jv,ab,ua,vb->ij", a_q, a_k, w, x, y)
    return value * factor


def argument(text: str) -> str:
    """The argument name of a symbol in text notation."""
    return text.replace("[", "_").rstrip("]")


@given(case=cases(max_terms=200, max_layers=3, max_heads=3), seed=st.integers(0, 10**6))
def test_maps_have_the_value_of_their_terms(case: tuple[Architecture, str], seed: int) -> None:
    """The tensor form, summed over its six (or four) indices, is the term that SymPy's function computes."""
    arch, target = case
    run = sc.random_model(arch, d_model=5, d_head=2, d_vocab=4, seed=seed).run([3, 1, 2])
    arrays = dict(run.arrays) | {"ones": np.ones((3, 1))}
    columns = {name: a[:, None] if name[:2] == "b_" and a.ndim == 1 else a for name, a in arrays.items()}
    columns |= {name: np.diag(a) for name, a in arrays.items() if name.startswith("gain_")}
    for term in sampled(expand(arch, target).written("paper"), seed):
        value = term.lambdify()(**run.arrays)
        np.testing.assert_allclose(map_value(term.text, columns, 3), value, rtol=1e-9, atol=1e-9)


def test_the_evaluator_sees_a_wrong_map() -> None:
    arch = attention_only((2, 2))
    run = sc.random_model(arch, d_model=5, d_head=2, d_vocab=4).run([3, 1, 2])
    term = scores(arch, "L1H0").where("QK")[1].written("paper")
    right = map_value(term.text, run.arrays, 3)
    wrong = [
        term.text.replace("A[L0H0] (x) A[L0H1]", "A[L0H1] (x) A[L0H0]"),  # query and key
        term.text.replace("W_OV[L0H0].T", "W_OV[L0H0]"),  # a transpose
        term.text.replace("A[L0H0]", "A[L0H0].T"),  # the transposes that the paper prints
        term.text.replace("scale[L1H0] * ", ""),
    ]
    for text in wrong:
        assert text != term.text
        assert abs(map_value(text, run.arrays, 3) - right).max() > 1e-6, text


# ------------------------------------------------------------------------------------ nothing is printed twice
@pytest.mark.parametrize("name", ["r", "m_E", "m_U", "scale"])
def test_a_multiplier_takes_its_name_only_where_there_is_one(name: str) -> None:
    with_all, plain = transformer((1, 1), multipliers=True), attention_only((1, 1))
    for target in ("logits", "scores:L1H0"):
        with pytest.raises(ValueError, match=f"A cannot be printed as '{name}': so is {name};"):
            expand(with_all, target).written("row", {"A": name})
        if name != "scale":
            assert expand(plain, target).written("row", {"A": name})[1].text.count(f"{name}[L0H0]") == 1


def drawn_notation() -> st.SearchStrategy[Notation]:
    return st.builds(Notation, st.sampled_from(NOTATIONS), st.sampled_from(NAMES))


@given(
    cases(max_terms=300, max_layers=3, max_heads=3), cases(max_terms=300, max_layers=3, max_heads=3),
    st.integers(0, 10**9), st.integers(0, 10**9), drawn_notation(),
)  # fmt: skip
def test_two_terms_are_never_printed_alike(
    one: tuple[Architecture, str], other: tuple[Architecture, str], i: int, j: int, notation: Notation
) -> None:
    """Different terms of any expansions print different text and LaTeX in one notation, equal ones the same."""
    expansions = [expand(*one), expand(*other)]
    assume(all(e.count for e in expansions))
    for first, second in (expansions, expansions[:1] * 2, expansions[1:] * 2):
        a, b = first[i % first.count], second[j % second.count]
        same = (a.word.scales, letters_of(a.word.factors)) == (b.word.scales, letters_of(b.word.factors))
        assert (word_text(a.word, notation) == word_text(b.word, notation)) == same
        assert (word_latex(a.word, notation) == word_latex(b.word, notation)) == same


@given(cases(max_terms=60, max_layers=3, max_heads=2), drawn_notation())
@example((attention_only((1, 1), "standard", True), "scores:L1H0"), Notation("paper"))
def test_no_two_terms_of_an_expansion_are_printed_alike(case: tuple[Architecture, str], notation: Notation) -> None:
    words = [term.word for term in expand(*case)]
    for printed in (word_text, word_latex):
        assert len({printed(word, notation) for word in words}) == len(words)


@given(cases(max_terms=100, max_layers=3, max_heads=2), st.integers(0, 10**9))
def test_two_notations_print_alike_only_the_same_product(case: tuple[Architecture, str], i: int) -> None:
    expansion = expand(*case)
    assume(expansion.count)
    word = expansion[i % expansion.count].word
    printed = {name: word_text(word, Notation(name)) for name in NOTATIONS}
    weights = [f for f in word.fused if f.symbol.glyph[:2] in ("W_", "b_") and f.symbol.glyph != "W_QK"]
    assert (printed["row"] == printed["transformerlens"]) == (
        not weights and not any(f.symbol.glyph == "W_QK" for f in word.fused)
    )
    assert (printed["row"] == printed["paper"]) == (form(word, Notation("paper")) is None)


def test_names_that_would_hide_a_difference_are_refused() -> None:
    """Position and embedding under one name: two terms would print the same formula, so the names are refused."""
    e = logits(attention_only((1,), "standard"))
    with pytest.raises(ValueError, match="X0 cannot be printed as 'P': so is P"):
        e.written(symbols={"X0": "P"})
    with pytest.raises(ValueError, match="so is"):
        e.written(symbols={"P": "X_0"})
    quoted = e.written(symbols={"P": "A[L0H0] @ X0 @ W_OV[L0H0].T"})
    assert quoted[1].text == '"A[L0H0] @ X0 @ W_OV[L0H0].T" @ W_U.T' != e[2].text


@pytest.mark.parametrize("names", [{}, {"A": "P", "W_OV": "W_out", "X0": "Psi", "t": "é"}])
@pytest.mark.parametrize("convention", ["row", "transformerlens"])
def test_displays_are_read_back(convention: str, names: Mapping[str, str]) -> None:
    arch = attention_only((2, 2), biases=["b_V"])
    for target in ("logits", "scores:L1H0"):
        expansion = expand(arch, target)
        found = read(expansion.written(convention, names).latex(), arch, convention, names)
        assert found.target == target
        assert [Spelling(arch).fuse(w.letters) for w in found.words] == [letters_of(t.word.fused) for t in expansion]
