"""One table of letters: every letter that an architecture can make has its row, and is what the row says."""

import re

import numpy as np
import pytest
from hypothesis import given

import symcircuits as sc
from symcircuits.core.architecture import Architecture
from symcircuits.core.symbols import (
    ABBREVIATIONS,
    FLIPPED,
    LETTERS,
    OF_TOKENS,
    READERS,
    SHORT_NAMES,
    SOMETIMES,
    SYMMETRIC,
)
from symcircuits.core.words import Factor, Symbol
from symcircuits.loaders.transformerlens import to_paper
from tests.strategies import all_targets, architectures

LABELS = {
    "": r"",
    "head": r"L\d+H\d+",
    "group": r"L\d+[HG]\d+",
    "layer": r"[LM]\d+",
    "norm": r"[LM]\d+|final|[QK](\d+|L\d+[HG]\d+)",
}

AXES = {  # the spaces of a kind, without what has been done to a vector in it
    "context": "token", "in": "input", "out": "output", "input": "model", "model": "model", "qk": "query",
    "query": "query", "key": "query", "ov": "value", "mlp": "hidden", "one": "one",
}  # fmt: skip


def symbols_of(architecture: Architecture) -> set[Symbol]:
    """Every symbol of the programs of an architecture, and what it abbreviates."""
    found: set[Symbol] = set()

    def take(factors: tuple[Factor, ...]) -> None:
        for factor in factors:
            found.add(factor.symbol)
            take(factor.symbol.parts)

    for target in all_targets(architecture):
        for side in sc.expand(architecture, target).readout.sides:
            for layer in side:
                for branch in layer.branches:
                    take((*branch.left, *branch.right))
                for source in layer.sources:
                    take(source.factors)
    return found


@given(architectures())
def test_every_symbol_has_a_row_and_is_what_it_says(architecture: Architecture) -> None:
    for symbol in symbols_of(architecture):
        if symbol.own:
            continue
        row = LETTERS[symbol.glyph]
        assert re.fullmatch(LABELS[row.label], symbol.label), symbol
        assert not symbol.parts or {p.symbol.glyph for p in symbol.parts} == {*row.parts}, symbol
        kinds = [index.space.kind.rpartition("_")[2] for index in (symbol.row, symbol.col)]
        sizes = {"query" if kind in ("key", "qk") else kind for kind in kinds}  # a rotation turns one into the other
        assert len(sizes) == 1 or symbol.glyph not in SYMMETRIC, symbol
        if symbol.glyph != "gain" or symbol.label[0] not in "QK":  # those of queries and keys are in query space
            assert row.axes == (AXES[kinds[0]], AXES[kinds[1]]), symbol


@given(architectures(max_terms=200))
def test_weights_are_the_letters_that_are_not_of_tokens(architecture: Architecture) -> None:
    run = sc.random_model(architecture, d_model=4, d_head=2).run([0])
    for symbol in symbols_of(architecture):
        assert symbol.argument in run.arrays
        if symbol.own or symbol.parts or symbol.glyph in ("P", "C", "R"):  # rows of W_pos in use; made, not stored
            continue
        assert (symbol.argument in run.model.weights) == (symbol.glyph not in OF_TOKENS), symbol


def test_abbreviations_are_of_letters() -> None:
    assert {part for parts in ABBREVIATIONS.values() for part in parts} <= set(LETTERS)


@pytest.mark.parametrize(
    ("name", "shape"), [("W_Q", (2, 5, 3)), ("W_K", (2, 5, 3)), ("W_V", (2, 5, 3)), ("W_O", (2, 3, 5))]
)
def test_what_flips_is_stored_transposed_in_transformerlens(name: str, shape: tuple[int, ...]) -> None:
    stored = np.arange(30.0).reshape(shape)
    assert LETTERS[name].flips
    assert np.array_equal(to_paper({f"blocks.0.attn.{name}": stored})[f"{name}_L0H1"], stored[1].T)


def test_what_depends_on_the_tokens_is_of_tokens() -> None:
    """Of two runs on other tokens those arrays differ, and no other."""
    model = sc.random_model(sc.transformer((2, 2), mlps=True, norm="LN", biases=True), seed=1)
    apart = model.with_(sc.source("feature", np.linspace(-1, 1, model.d_model), 1))
    one, other = apart.run([1, 2, 3]), apart.run([4, 5, 6])
    differ = {name for name in one.arrays if not np.array_equal(one.arrays[name], other.arrays[name])}
    of_tokens = {name for name in one.arrays if any(name == g or name.startswith(f"{g}_") for g in OF_TOKENS)}
    assert differ == of_tokens - {"ones"}
    assert {"t", "A_L0H0", "D_final", "mlp_L1", "rest_L1"} <= differ


def test_in_transformerlens_no_weight_of_a_term_is_transposed() -> None:
    terms = sc.logits(sc.attention_only((1,), biases=True)).written("transformerlens")
    texts = [term.text for term in terms]
    assert [text for text in texts if ".T" in text] == []
    assert "ones @ b_U" in texts


@pytest.mark.parametrize("name", ["W_gate", "W_in", "W_out", "b_in", "b_out", "b_gate", "b_N", "gain", "m_E", "m_U"])
def test_names_of_features_that_a_model_lacks_are_free(name: str) -> None:
    plain = sc.logits(sc.attention_only((1,)))
    assert plain.written("row", {"A": name})[1].text.startswith(f"{name}[L0H0] @ ")


# ------------------------------------------------------------------------------- the table, column by column
BIASES = {"b_N", "b_V", "b_O", "b_Q", "b_K", "b_U", "b_in", "b_gate", "b_out"}
MATRICES = {"W_E", "W_U", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_gate", "W_out"}


def test_what_transformerlens_has_transposed() -> None:
    """It multiplies rows by weights from the right and adds rows: every matrix, and every bias, here a column.

    Not what is added row by row (positions), what is diagonal, and W_QK, which is the same in both.
    """
    assert BIASES | MATRICES | {"W_OV"} == FLIPPED
    assert {name for name, letter in LETTERS.items() if letter.axes and letter.axes[1] == "one"} == BIASES | {"ones"}


def test_what_equals_its_transpose_is_symmetric() -> None:
    """Of all square matrices of runs, with norms of both kinds, rotations and masks."""
    seen: dict[str, bool] = {}
    for norm, positions in (("LN", None), ("RMS", "rotary")):
        arch = sc.transformer((2, 2), positions, norm=norm, mlps=True, biases=True)
        run = sc.random_model(arch, d_model=4, d_head=4, d_vocab=4, seed=1).run([1, 0, 2, 3])
        for symbol in symbols_of(arch):
            array = np.asarray(run.arrays[symbol.argument])
            if symbol.row.space.kind != symbol.col.space.kind and symbol.glyph not in ("D", "C", "gain", "A", "R"):
                continue
            square = np.diag(array) if array.ndim == 1 else array
            if square.shape[-1] == square.shape[-2]:
                same = np.allclose(square, np.swapaxes(square, -1, -2))
                seen[symbol.glyph] = seen.get(symbol.glyph, True) and same
    assert {"D", "C", "gain", "A"} <= set(seen)
    assert {glyph for glyph, same in seen.items() if same} == set(SYMMETRIC)


def test_letters_of_every_model_are_never_free() -> None:
    """Those of attention alone, and what they abbreviate; a name of any other is free where a model has it not."""
    plain = sc.logits(sc.attention_only((1,)))
    every = {symbol.glyph for symbol in symbols_of(sc.attention_only((1,), biases=True))}
    every |= {"X0", "Y", "W_OV", "W_QK", "scale"}
    assert set(LETTERS) - every == SOMETIMES
    for name in every - {"A"}:
        with pytest.raises(ValueError, match=f"'{name}'"):
            plain.written("row", {"A": name})
    for name in SOMETIMES:
        assert plain.written("row", {"A": name})[1].text.startswith(f"{name}[L0H0] @ ")


def test_what_reads_the_stream_for_a_query_or_a_key() -> None:
    """Its name has a Q or a K, and no norm: those are labelled so."""
    assert {name for name in LETTERS if set("QK") & set(name.partition("_")[2])} == set(READERS)


def test_what_a_letter_abbreviates_is_a_product_of_the_run() -> None:
    run = sc.random_model(sc.attention_only((1,)), d_model=4, d_head=2, seed=1).run([1, 0, 2])
    arrays = run.arrays
    assert ABBREVIATIONS == {"X0": ("t", "W_E"), "W_OV": ("W_O", "W_V"), "W_QK": ("W_Q", "W_K")}
    assert SHORT_NAMES == {"W_OV": "OV", "W_QK": "QK"}
    np.testing.assert_allclose(arrays["X0"], arrays["t"] @ arrays["W_E"].T)
