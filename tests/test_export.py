"""Words as SymPy expressions and as NumPy functions: in order, on squares, on batches, and in what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from strategies import cases, examples
from sympy.matrices.exceptions import ShapeError

from symcircuits.core.architecture import Architecture, attention_only
from symcircuits.core.expansion import expand, logits, scores, stream
from symcircuits.core.words import Factor, Index, Space, Symbol, Word
from symcircuits.model import random_model
from symcircuits.sympy_layer.expressions import word_matrix
from symcircuits.sympy_layer.lambdify import lambdify_word, lambdify_words
from symcircuits.values.evaluate import evaluate

Arrays = dict[str, Any]
N, D, DH, V, VO = 5, 6, 3, 7, 4
SIZES = {"n_context": N, "d_model": D, "d_head": DH, "d_vocab": V, "d_vocab_out": VO}


# --------------------------------------------------------------------------- a plain forward computation
def random_arrays(
    arch: Architecture, seed: int = 0, batch: tuple[int, ...] = (), square: int = 0, whole: bool = False
) -> Arrays:
    """All arrays of a model with these patterns, in the paper's shapes.

    ``square``: every size the same. ``whole``: whole numbers, so that results are exact (modulo 2**64).
    """
    rng = np.random.default_rng(seed)
    n, d, dh, v, vo = (square,) * 5 if square else (N, D, DH, V, VO)
    shapes: dict[str, tuple[int, ...]] = {"t": (*batch, n, v), "W_E": (d, v), "P": (n, d), "W_U": (vo, d), "b_U": (vo,)}
    for h in arch.all_heads:
        shapes |= {f"A_{h}": (*batch, n, n), f"W_O_{h}": (d, dh)} | {f"W_{g}_{h}": (dh, d) for g in "QKV"}
        shapes |= {f"b_{g}_{h}": (dh,) for g in "QKV"} | {f"scale_{h}": (), f"R_{h}": (n, dh, dh)}
    for layer in range(arch.n_layers):
        shapes |= {f"b_O_L{layer}": (d,)} | ({f"mlp_L{layer}": (*batch, n, d)} if layer in arch.mlps else {})
    for label in arch.norm_labels:
        shapes |= {f"D_{label}": (*batch, n, n), "C": (d, d), f"gain_{label}": (d, d), f"b_N_{label}": (d,)}
    if arch.qk_norm:
        for h in arch.all_heads:
            for label in (f"Q{h}", f"K{arch.key_value(h)}"):
                shapes |= {f"D_{label}": (*batch, n, n), f"gain_{label[0]}{h.layer}": (dh, dh)}
    shapes |= {name.replace("[", "_").rstrip("]"): () for name in sorted(arch.multipliers)}
    arrays: Arrays = {
        name: rng.integers(-4, 5, shape) if whole else rng.standard_normal(shape) for name, shape in shapes.items()
    }
    for name, array in arrays.items():  # the matrices of norms are symmetric
        if name.startswith(("D_", "gain_")) or name == "C":
            arrays[name] = array + array.swapaxes(-1, -2)
    for h in arch.all_heads:
        for glyph in ("W_K", "W_V", "b_K", "b_V"):  # a group has those of its first head
            arrays[f"{glyph}_{h}"] = arrays.setdefault(f"{glyph}_{arch.key_value(h)}", arrays[f"{glyph}_{h}"])
        arrays[f"W_OV_{h}"] = arrays[f"W_O_{h}"] @ arrays[f"W_V_{h}"]
        arrays[f"W_QK_{h}"] = arrays[f"W_Q_{h}"].T @ arrays[f"W_K_{h}"]
    return arrays


def bias(arch: Architecture, arrays: Arrays, kind: str, where: str = "") -> Any:
    name = f"{kind}[{where}]" if where else kind
    return arrays[f"{kind}_{where}" if where else kind] if name in arch.biases else 0


def forward(arch: Architecture, arrays: Arrays, target: str) -> Any:
    """The target from its definition, patterns held fixed: token by token, head by head, no paths."""
    kind, _, which = target.partition(":")

    def norm(x: Any, label: str) -> Any:
        if arch.norm is None:
            return x
        x = np.einsum("...mn,...nd->...md", arrays[f"D_{label}"], x)
        x = np.einsum("...nd,ed->...ne", x, arrays["C"]) if arch.norm == "LN" else x
        x = np.einsum("...nd,ed->...ne", x, arrays[f"gain_{label}"]) if label in arch.gains else x
        return x + bias(arch, arrays, "b_N", label)

    def times(x: Any, name: str) -> Any:
        return x * arrays[name.replace("[", "_").rstrip("]")] if name in arch.multipliers else x

    x = times(np.einsum("...nv,dv->...nd", arrays["t"], arrays["W_E"]), "m_E")
    if arch.positions == "standard":
        x = x + arrays["P"]
    for layer, count in enumerate(arch.heads):
        if kind == "scores" and layer == arch.head(which).layer:
            y, shared = norm(x, f"L{layer}"), arch.key_value(arch.head(which))
            read = y + arrays["P"] if arch.positions == "shortformer" else y
            q = np.einsum("...nd,hd->...nh", read, arrays[f"W_Q_{which}"]) + bias(arch, arrays, "b_Q", which)
            k = np.einsum("...nd,hd->...nh", read, arrays[f"W_K_{which}"]) + bias(arch, arrays, "b_K", shared)
            if arch.qk_norm:
                scaled = []
                for rows, label in ((q, f"Q{which}"), (k, f"K{shared}")):
                    rows = np.einsum("...mn,...nh->...mh", arrays[f"D_{label}"], rows)
                    scaled.append(np.einsum("...nh,eh->...ne", rows, arrays[f"gain_{label[0]}{layer}"]))
                q, k = scaled
            if arch.positions == "rotary":
                q, k = (np.einsum("...nh,nhe->...ne", rows, arrays[f"R_{which}"]) for rows in (q, k))
            return np.einsum("...qh,...kh->...qk", q, k) * (arrays[f"scale_{which}"] if arch.scale else 1)
        r = f"r[L{layer}]"
        written, y = x + times(bias(arch, arrays, "b_O", f"L{layer}"), r), norm(x, f"L{layer}")
        written = written + times(arrays[f"mlp_L{layer}"], f"r[M{layer}]") if layer in arch.mlps else written
        for h in (f"L{layer}H{i}" for i in range(count)):
            shared = arch.key_value(arch.head(h))
            v = np.einsum("...nd,hd->...nh", y, arrays[f"W_V_{h}"]) + bias(arch, arrays, "b_V", shared)
            z = np.einsum("...qk,...kh->...qh", arrays[f"A_{h}"], v)
            written = written + times(np.einsum("...qh,dh->...qd", z, arrays[f"W_O_{h}"]), r)
        x = written
    if kind == "logits":
        logits = np.einsum("...nd,vd->...nv", norm(x, "final"), arrays["W_U"])
        return times(logits + bias(arch, arrays, "b_U"), "m_U")
    return x


# ------------------------------------------------------------------------------- every term, summed up
@examples(25)
@given(cases(max_terms=25, max_layers=3, max_heads=4), st.sampled_from([(), (2,), (3, 2)]), st.integers(0, 9))
def test_the_terms_sum_to_the_forward_computation(
    case: tuple[Architecture, str], batch: tuple[int, ...], seed: int
) -> None:
    arch, target = case
    arrays = random_arrays(arch, seed, batch, whole=True)
    values = [term.lambdify()(**arrays) for term in expand(arch, target)]
    np.testing.assert_array_equal(sum(values), forward(arch, arrays, target), strict=True)


@given(cases(max_terms=300, max_layers=3, max_heads=4), st.sampled_from([(), (2,)]), st.integers(0, 4))
def test_one_function_for_all_terms(case: tuple[Architecture, str], batch: tuple[int, ...], square: int) -> None:
    arch, target = case
    arrays = random_arrays(arch, 1, batch, square, whole=True)
    values = lambdify_words(term.word for term in expand(arch, target))(arrays)
    assert len(values) == expand(arch, target).count
    np.testing.assert_array_equal(sum(values), forward(arch, arrays, target), strict=True)


def test_one_function_for_all_equals_one_for_each() -> None:
    arch = attention_only((2, 2), positions="shortformer", biases=True)
    arrays = random_arrays(arch, 3, (2,))
    terms = list(scores(arch, "L1H1"))
    for term, value in zip(terms, lambdify_words(t.word for t in terms)(arrays), strict=True):
        assert np.array_equal(value, term.lambdify()(**arrays))


def test_no_words() -> None:
    assert lambdify_words([])({}) == []


# -------------------------------------------------- products, which stock routes get wrong without notice
CONTEXT = Space("context")
M = Symbol("A", "L0H0", Index(CONTEXT), Index(CONTEXT, True))
K = Symbol("A", "L0H1", Index(CONTEXT), Index(CONTEXT, True))
TURN = Symbol("W_E", "", Index(CONTEXT, True), Index(CONTEXT, True))  # so that M.T may stand before it
m, k, e = Factor(M), Factor(K), Factor(TURN)
PRODUCTS: dict[str, tuple[tuple[Factor, ...], Callable[..., Any]]] = {
    "MN": ((m, k), lambda a, b, w: np.matmul(a, b)),
    "NM": ((k, m), lambda a, b, w: np.matmul(b, a)),
    "MNM": ((m, k, m), lambda a, b, w: np.linalg.multi_dot([a, b, a])),
    "NMN": ((k, m, k), lambda a, b, w: np.linalg.multi_dot([b, a, b])),
    "MM": ((m, m), lambda a, b, w: np.linalg.matrix_power(a, 2)),
    "MMNNM": ((m, m, k, k, m), lambda a, b, w: np.linalg.multi_dot([a, a, b, b, a])),
    "MtWN": ((M.T, e, k), lambda a, b, w: np.linalg.multi_dot([a.T, w, b])),
    "MtMt": ((M.T, M.T), lambda a, b, w: np.linalg.matrix_power(a, 2).T),
    "NtMtW": ((K.T, M.T, e), lambda a, b, w: np.linalg.multi_dot([b.T, a.T, w])),
    "M": ((m,), lambda a, b, w: a),
    "Mt": ((M.T,), lambda a, b, w: a.T),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("scaled", [False, True])
def test_products_of_square_matrices(name: str, scaled: bool) -> None:
    factors, plain = PRODUCTS[name]
    a, b, w = np.random.default_rng(0).standard_normal((3, 3, 3))
    word = Word(factors, ("L1H0",) if scaled else ())
    value = lambdify_word(word)(A_L0H0=a, A_L0H1=b, W_E=w, scale_L1H0=0.5)
    np.testing.assert_allclose(value, plain(a, b, w) * (0.5 if scaled else 1), rtol=1e-13)
    assert not np.shares_memory(value, a)


@pytest.mark.parametrize("name", ["MN", "MNM", "MM", "MtMt", "Mt"])
def test_products_of_batches(name: str) -> None:
    factors, plain = PRODUCTS[name]
    a, b = np.random.default_rng(1).standard_normal((2, 4, 3, 3))
    value = lambdify_word(Word(factors))(A_L0H0=a, A_L0H1=b)
    wanted = np.stack([plain(x, y, None) for x, y in zip(a, b, strict=True)])
    np.testing.assert_allclose(value, wanted, rtol=1e-13)


def test_a_batch_of_patterns_on_one_row_of_tokens() -> None:
    arch = attention_only((2,))
    arrays, one = random_arrays(arch, 2, (3,)), random_arrays(arch, 2)
    value = logits(arch)[1].lambdify()(**{**arrays, "t": one["t"]})
    single = {**arrays, "t": one["t"], "A_L0H1": one["A_L0H1"]}
    wanted = [logits(arch)[1].lambdify()(**{**single, "A_L0H0": a}) for a in arrays["A_L0H0"]]
    np.testing.assert_allclose(value, wanted, rtol=1e-13)


# ------------------------------------------------------------------------------- SymPy matrix expressions
SHAPES = {"logits": ("n_context", "d_vocab_out"), "stream": ("n_context", "d_model"), "scores": ("n_context",) * 2}


def letters(expression: Any) -> list[str]:
    """The matrices of a product in the order in which they stand, powers written out."""
    found = []
    for f in expression.args if expression.is_MatMul else [expression]:
        base, power = (f.args[0], int(f.args[1])) if isinstance(f, sympy.MatPow) else (f, 1)
        if base.is_Matrix:
            found += [str(base)] * power
    return found


@given(cases(max_terms=100, max_layers=3, max_heads=4))
def test_shapes_and_order_of_every_term(case: tuple[Architecture, str]) -> None:
    arch, target = case
    shape = SHAPES[target.partition(":")[0]]
    for term in expand(arch, target):
        expression = term.matrix_expr()
        assert tuple(map(str, expression.shape)) == shape
        assert tuple(map(str, expression.doit().shape)) == shape
        assert tuple(map(str, expression.T.shape)) == shape[::-1]
        if " @ R[" in term.word.text:  # the two sides, each inside Turned
            query, key = expression.args[-2], expression.args[-1].args[0]
            assert [letters(side.args[0])[0] for side in (query, key)]
            assert query.args[1] == key.args[1]
            continue
        tokens = term.word.text.rpartition(" * ")[2].replace("X0.T", "W_E @ t.T").replace("X0", "t @ W_E.T")
        names = [t.replace("[", "_").replace("]", "") for t in tokens.split(" @ ")]
        wanted = ["1" if n.startswith("ones") else n for n in names]
        assert letters(expression) == wanted == letters(expression.doit())
        sized = word_matrix(term.word, sizes=SIZES)
        assert sized.shape == sized.doit().shape == tuple(SIZES[s] for s in shape)


def test_a_term_as_sympy_prints_it() -> None:
    expression = scores(attention_only((1, 1)), "L1H0")[3].matrix_expr()
    text = "scale_L1H0*A_L0H0*t*W_E.T*W_OV_L0H0.T*W_QK_L1H0*W_OV_L0H0*W_E*t.T*A_L0H0.T"
    assert str(expression) == str(expression.doit()) == text
    assert isinstance(expression, sympy.MatMul)
    assert {str(s) for f in expression.args if f.is_Matrix for s in f.shape} == {"n_context", "d_model", "d_vocab"}


def test_equal_neighbours_stay_two_factors() -> None:
    expression = word_matrix(Word((m, m, k)))
    assert str(expression) == "A_L0H0*A_L0H0*A_L0H1"
    assert letters(expression.doit()) == ["A_L0H0", "A_L0H0", "A_L0H1"]


def test_given_sizes_are_checked_by_sympy() -> None:
    expression = word_matrix(logits(attention_only((1,)))[1].word, sizes=SIZES)
    wrong = sympy.MatrixSymbol("W", 5, 5)
    with pytest.raises(ShapeError):
        expression * wrong
    assert (expression * sympy.MatrixSymbol("W", VO, 2)).shape == (N, 2)


def test_sizes_may_differ_by_head_and_be_symbols() -> None:
    term = next(t for t in stream(attention_only((2,), biases=("b_V",))) if t.sources == ("b_V[L0H1]",))
    assert "W_O_L0H1" in str(term.matrix_expr())
    size = sympy.Symbol("k", integer=True, positive=True)
    given = {"d_head_L0H1": 9, "d_head": 2, "d_model": size}
    b = next(a for a in word_matrix(term.word, sizes=given).args if "b_V" in str(a))
    assert b.shape == (1, 9)
    b = next(a for a in word_matrix(term.word, sizes={"d_head": 2}).args if "b_V" in str(a))
    assert b.shape == (1, 2)
    assert word_matrix(term.word, sizes={"d_model": size, "n_context": np.int64(1)}).shape == (1, size)


@pytest.mark.parametrize(
    "sizes", [{"d_width": 3}, {"d_model": 0}, {"d_model": 1.5}, {"d_model": True}, {"n_context": "7"}]
)
def test_wrong_sizes_are_refused(sizes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="size"):
        word_matrix(logits(attention_only((1,)))[0].word, sizes=sizes)


def test_one_of_everything() -> None:
    word = scores(attention_only((1,), biases=True), "L0H0")[3].word
    sized = word_matrix(word, sizes=dict.fromkeys(SIZES, 1))
    assert sized.shape == sized.doit().shape == (1, 1)


# ----------------------------------------------------------------------------------------- the arguments
ARCH = attention_only((2, 2), positions="standard", biases=True)
ARRAYS = random_arrays(ARCH)


def term_of(target: str, label: str, arch: Architecture = ARCH) -> Any:
    return next(t for t in expand(arch, target) if t.label == label).lambdify()


def test_arguments_in_order_of_first_appearance() -> None:
    assert term_of("logits", "embed -> L0H1").arguments == ("A_L0H1", "t", "W_E", "W_OV_L0H1", "W_U")
    assert term_of("logits", "b_V[L0H1] -> L0H1").arguments == ("A_L0H1", "b_V_L0H1", "W_O_L0H1", "W_U")
    assert term_of("scores:L1H0", "b_Q[L1H0] | pos").arguments == ("scale_L1H0", "b_Q_L1H0", "W_K_L1H0", "P")
    assert term_of("scores:L1H0", "embed | b_O[L0]").arguments == ("scale_L1H0", "t", "W_E", "W_QK_L1H0", "b_O_L0")


def test_source_and_repr() -> None:
    term = term_of("scores:L1H0", "pos | embed -> L0H0")
    assert term.source == (
        "scale_L1H0*(P @ W_QK_L1H0 @ W_OV_L0H0 @ W_E @ t.swapaxes(-1, -2) @ A_L0H0.swapaxes(-1, -2))"
    )
    assert term.source in repr(term)
    only = {n: ARRAYS[n] for n in term.arguments}
    np.testing.assert_array_equal(eval(term.source, dict(only)), term(**only))


def test_parts_stand_in_for_a_product() -> None:
    whole = {n: a for n, a in ARRAYS.items() if n.split("_L")[0] not in ("W_O", "W_V", "W_Q", "W_K")}
    parts = {n: a for n, a in ARRAYS.items() if n.split("_L")[0] not in ("W_OV", "W_QK")}
    for target, label in [("logits", "embed -> L0H1 -> L1H0"), ("scores:L1H0", "embed -> L0H1 | pos -> L0H0")]:
        term = term_of(target, label)
        np.testing.assert_allclose(term(**parts), term(**whole), rtol=1e-12)
    wrong = {**parts, "W_V_L0H1": parts["W_V_L0H1"].T}
    with pytest.raises(ValueError, match=r"W_V_L0H1 \[d_head_L0H1, d_model\] .*\[3, 6\], not \[6, 3\]; its transpose"):
        term_of("logits", "embed -> L0H1")(**wrong)


def test_missing_arguments_are_listed() -> None:
    term = term_of("scores:L1H0", "embed | embed -> L0H1")
    with pytest.raises(TypeError) as fault:
        term(t=ARRAYS["t"], W_O_L0H1=ARRAYS["W_O_L0H1"])
    assert str(fault.value) == (
        "missing 5 arguments: scale_L1H0, a number (score scale); W_E [d_model, d_vocab] (token embedding); "
        "W_QK_L1H0 [d_model, d_model] (W_Q.T @ W_K), or both W_Q_L1H0 and W_K_L1H0; "
        "W_OV_L0H1 [d_model, d_model] (W_O @ W_V), or both W_O_L0H1 and W_V_L0H1; "
        "A_L0H1 [..., n_context, n_context] (attention pattern)"
    )


@pytest.mark.parametrize("name", ["W_OV", "A", "W_OV_L0H1_", "W_X", "b_O_L0H1", "scale", "A_L0", "X1", "a_L0H0"])
def test_unknown_arguments_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match="there is no argument"):
        term_of("logits", "embed -> L0H1")(**ARRAYS, **{name: 1})
    with pytest.raises(TypeError, match="did you mean W_OV_L0H1"):
        term_of("logits", "embed -> L0H1")(**ARRAYS, W_OV_L0H01X=1)


def test_arguments_may_stand_in_their_order() -> None:
    term = term_of("logits", "embed")
    by_name = term(**ARRAYS)
    np.testing.assert_array_equal(term(*(ARRAYS[name] for name in term.arguments)), by_name)
    with pytest.raises(TypeError, match="t is given twice, by position and by name"):
        term(ARRAYS["t"], **ARRAYS)
    with pytest.raises(TypeError, match="4 arguments were given, but the term has t, W_E, W_U"):
        term(*[ARRAYS["t"]] * 4)


def test_the_batch_of_the_tokens_is_the_batch_of_every_term() -> None:
    arch = attention_only((1,), "standard", biases=True)
    run = random_model(arch, seed=1).run([[1, 2, 3], [3, 2, 0]])
    for expansion in (logits(arch), scores(arch, "L0H0")):
        for term, value in zip(expansion, evaluate(expansion, run), strict=True):
            np.testing.assert_allclose(term.lambdify()(**run.arrays), value, atol=1e-12)
            assert term.lambdify()(**run.arrays).shape == value.shape


WRONG_SHAPES = {
    "a transposed weight": (
        {"W_E": (V, D)},
        r"W_E \[d_model, d_vocab\].*\[6, 7\], not \[7, 6\]; its transpose would fit",
    ),
    "transposed tokens": (
        {"t": (V, N)},
        r"t \[\.\.\., n_context, d_vocab\].*\[\.\.\., 5, 7\], not \[7, 5\]; its transpose",
    ),
    "a batch transposed": (
        {"t": (2, V, N)},
        r"t .*must have shape \[\.\.\., 5, 7\], not \[2, 7, 5\]; its transpose would",
    ),
    "a pattern of other tokens": ({"A_L0H1": (4, 4)}, r"t .*\[\.\.\., 4, 7\], not \[5, 7\]; n_context is 4 in A_L0H1$"),
    "no square pattern": ({"A_L0H1": (5, 4)}, r"A_L0H1 .*\[\.\.\., 5, 5\], not \[5, 4\]; n_context is 5 in t$"),
    "a wrong weight": ({"W_U": (VO, 5)}, r"W_U \[d_vocab_out, d_model\].*\[4, 6\], not \[4, 5\]; d_model is 6 in W_E$"),
    "no square product": ({"W_OV_L0H1": (D, 5)}, r"W_OV_L0H1 .*\[6, 6\], not \[6, 5\]; d_model is 6 in W_E$"),
    "one axis": ({"W_E": (D,)}, r"W_E .*\[6, 7\], not \[6\]"),
    "a number": ({"W_E": ()}, r"W_E .*\[6, 7\], not \[\]"),
    "tokens of one axis": ({"t": (V,)}, r"t .*\[\.\.\., 5, 7\], not \[7\]$"),
    "too many axes": ({"W_U": (2, VO, D)}, r"W_U .*\[\?, 6\], not \[2, 4, 6\]; only t and A have leading axes"),
    "batches that differ": ({"t": (2, N, V), "A_L0H1": (3, N, N)}, r"the leading .*: A_L0H1 \[3\], t \[2\]"),
}


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_wrong_shapes_are_refused(name: str) -> None:
    shapes, message = WRONG_SHAPES[name]
    arrays = {**ARRAYS, **{n: np.ones(s) for n, s in shapes.items()}}
    with pytest.raises(ValueError, match="^" + message):
        term_of("logits", "embed -> L0H1")(**arrays)
    with pytest.raises(ValueError, match="^" + message):
        lambdify_words([t.word for t in expand(ARCH, "logits") if t.label == "embed -> L0H1"])(arrays)


@pytest.mark.parametrize("shape", [(1, DH), (DH + 1,), (DH, 2), (1, DH, 1)])
def test_wrong_biases_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^b_V_L0H1 \[d_head_L0H1, 1\].*must have shape|^W_O_L0H1") as fault:
        term_of("logits", "b_V[L0H1] -> L0H1")(**{**ARRAYS, "b_V_L0H1": np.ones(shape)})
    assert ("its transpose would fit" in str(fault.value)) == (shape == (1, DH))


@pytest.mark.parametrize("value", ["x", None, [1.0, 2.0], np.ones((1, 1))])
def test_a_scale_is_one_number(value: Any) -> None:
    with pytest.raises(ValueError, match="scale_L1H0 must be one number"):
        term_of("scores:L1H0", "embed | embed")(**{**ARRAYS, "scale_L1H0": value})


@pytest.mark.parametrize("value", [[[1, 2], [3]], "abc", [["a", "b"]]])
def test_what_is_no_array_of_numbers_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="W_E"):
        term_of("logits", "embed")(**{**ARRAYS, "W_E": value})


# ------------------------------------------------------------------------------- constants, and dtypes
def test_biases_as_rows_or_columns() -> None:
    term = term_of("logits", "b_V[L0H1] -> L0H1")
    columns = {n: a[:, None] if n.startswith("b_") else a for n, a in ARRAYS.items()}
    np.testing.assert_array_equal(term(**columns), term(**ARRAYS))
    assert term(**ARRAYS).shape == (N, VO)


def test_what_is_constant_over_the_context() -> None:
    term = term_of("logits", "b_U")
    one = term(b_U=ARRAYS["b_U"])
    np.testing.assert_array_equal(one, ARRAYS["b_U"][None])
    for name in ("t", "P", "A_L0H1"):
        np.testing.assert_array_equal(term(b_U=ARRAYS["b_U"], **{name: ARRAYS[name]}), np.tile(one, (N, 1)))
    for ones in (np.ones(3), np.ones((3, 1))):
        np.testing.assert_array_equal(term(b_U=ARRAYS["b_U"], ones=ones), np.tile(one, (3, 1)))
    assert "ones" not in term.arguments
    four = term_of("logits", "b_V[L0H1] -> L0H1")(**{**ARRAYS, "A_L0H1": np.eye(4)})  # its own arguments come first
    assert four.shape == (4, VO)
    pair = term_of("scores:L1H0", "b_Q[L1H0] | b_K[L1H0]")
    assert pair(**{n: ARRAYS[n] for n in pair.arguments}).shape == (1, 1)
    assert pair(**ARRAYS).shape == (N, N)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("scale", [0.5, np.float64(0.5), np.array(0.5), 1])
def test_the_dtype_is_kept(dtype: Any, scale: Any) -> None:
    arrays = {n: a.astype(dtype) if np.ndim(a) else scale for n, a in ARRAYS.items()}
    arrays["t"] = np.eye(N, V, dtype=np.int64)  # one-hot, whole numbers
    for value in lambdify_words(t.word for t in scores(ARCH, "L1H0"))(arrays):
        assert value.dtype == dtype
    assert term_of("logits", "embed")(**{**arrays, "t": arrays["t"].astype(bool)}).dtype == dtype
    assert term_of("logits", "b_U")(**arrays).dtype == dtype


def test_lists_whole_numbers_and_fractions() -> None:
    term = term_of("logits", "embed", attention_only(()))
    assert term(t=[[True, False]], W_E=[[2, 3]], W_U=[[5]]).tolist() == [[10]]
    small = np.array([[200]], dtype=np.uint8)
    assert term(t=small, W_E=small, W_U=small).tolist() == [[8_000_000]]
    third = np.array([[Fraction(1, 3)]])
    assert term(t=third, W_E=third, W_U=third).tolist() == [[Fraction(1, 27)]]


def test_the_input_is_left_alone() -> None:
    arrays = {n: np.array(a) for n, a in ARRAYS.items()}
    for term in expand(ARCH, "stream"):
        value = term.lambdify()(**arrays)
        value += 1
    assert all(np.array_equal(arrays[n], ARRAYS[n]) for n in ARRAYS)
