"""The SymPy layer: streams multiplied out are the enumeration, any expression is read as typed terms or refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import cases, examples

import symcircuits as sc
from symcircuits.checking.faults import ReadError
from symcircuits.core.architecture import Architecture
from symcircuits.core.attachments import Part, Reading
from symcircuits.core.expansion import expand
from symcircuits.core.words import IllTyped
from symcircuits.sympy_layer.letters import LetterSymbol
from symcircuits.sympy_layer.reading import TypedTerm
from symcircuits.sympy_layer.streams import read_terms

Arrays = dict[str, Any]
LETTERS = ("OV", "factors")
FORMS = ("symbols", "matrix")
ONE_EACH = sc.attention_only((1, 1))
BIASED = sc.attention_only((2, 2), positions="standard", biases=True)
ATTACHED = sc.transformer((2, 2), norm="LN", mlps=True, biases=True).attached(
    Reading("probe", 1, norm="finalL1"), Reading("a b", 2), Part("feature 12", 1, "mlp"), Part("steer", 1, "added")
)
SPLIT = sc.attention_only((2, 2)).attached(Part("sae 1", 1), Part("sae 2", 1))
TRANSPOSES = (sp.transpose, sp.Transpose)


def plain(name: str) -> Any:
    """A symbol as a user makes it."""
    return sp.Symbol(name, commutative=name.startswith(("scale", "m_", "r_")))


def value(expression: Any, arrays: Arrays) -> Any:
    """A noncommutative expression in numbers, by the meaning of its nodes; no printer, no lambdify."""
    if expression.is_Symbol:
        return arrays[expression.name]
    if isinstance(expression, TRANSPOSES):
        return np.swapaxes(value(expression.args[0], arrays), -1, -2)
    parts = [float(part) if part.is_Number else value(part, arrays) for part in expression.args]
    if expression.is_Add:
        return sum(parts[1:], parts[0])
    assert expression.is_Mul
    found = parts[0]
    for part in parts[1:]:
        found = found @ part if np.ndim(found) and np.ndim(part) else found * part
    return found


def sized(model: sc.Model) -> Arrays:
    """The arrays of a run, its biases as columns."""
    run = model.run([1, 2, 3, 4])
    return {k: np.asarray(v)[:, None] if np.ndim(v) == 1 else np.asarray(v) for k, v in run.arrays.items()}


# -------------------------------------------------------------------------- 1, 2: streams, multiplied out
@examples(30)
@given(cases(max_terms=120), st.sampled_from(LETTERS))
def test_sympy_multiplies_out_to_the_enumeration(case: tuple[Architecture, str], letters: str) -> None:
    arch, target = case
    e, s = expand(arch, target), sc.symbolic(arch, letters)
    assert sp.expand(s.target(target)) == e.as_expr(letters) == sum(term.as_expr(letters) for term in e)
    assert e.expr == sum(e.exprs) == e.as_expr("OV")


@pytest.mark.parametrize("arch", [ATTACHED, SPLIT], ids=["readouts and sources", "split"])
@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.sampled(2)
def test_what_is_attached_is_multiplied_out_too(arch: Architecture, letters: str) -> None:
    s = sc.symbolic(arch, letters)
    for target in arch.targets(arch.all_heads):
        assert sp.expand(s.target(target)) == expand(arch, target).as_expr(letters)
        assert [t.term for t in sc.read(s.target(target), arch)] == list(expand(arch, target))


def test_streams_are_not_multiplied_out() -> None:
    s = sc.symbolic(sc.attention_only((12, 12)))
    assert s.logits.is_Mul
    assert len(s.logits.args) == 2
    assert len(sp.expand(s.logits).args) == 169
    assert s.X[1].is_Add
    assert len(s.X[1].args) == 13
    assert s.stream == s.X[2]
    assert len(sp.Add.make_args(s.scores("L1H3"))) == 1


def test_the_scores_are_those_of_the_paper() -> None:
    """``s X_1 W_QK X_1^T``, with ``X_1`` as it stands."""
    s = sc.symbolic(ONE_EACH)
    w_qk, scale = LetterSymbol("W_QK_L1H0"), LetterSymbol("scale_L1H0")
    assert s.scores("L1H0") == scale * s.X[1] * w_qk * sp.transpose(s.X[1])
    assert s.logits == s.X[2] * sp.transpose(LetterSymbol("W_U"))
    factors = sc.symbolic(ONE_EACH, letters="factors")
    q, k = (sp.transpose(LetterSymbol(f"W_{side}_L1H0")) for side in "QK")
    assert factors.scores("L1H0") == scale * factors.X[1] * q * sp.transpose(factors.X[1] * k)


@pytest.mark.parametrize("wrong", [{"letters": "QK"}, {"form": "matrices"}, {"n_context": 3}, {"letters": None}])
def test_another_spelling_or_form_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        sc.symbolic(ONE_EACH, **wrong)


# ------------------------------------------------------------------------------------- 10: the recursion
@examples(25)
@given(cases(max_terms=150), st.sampled_from(LETTERS))
def test_the_streams_satisfy_the_recursion(case: tuple[Architecture, str], letters: str) -> None:
    s = sc.symbolic(case[0], letters)
    for layer in range(case[0].n_layers):
        heads = sum(s.heads(layer))
        assert sp.expand(s.X[layer + 1] - (s.X[layer] + heads + s.others(layer))) == 0
        if heads != 0:
            assert sp.expand(s.X[layer + 1] - (s.X[layer] + heads + s.others(layer) + s.head((layer, 0)))) != 0


def test_a_stream_that_is_cut_off_is_refused() -> None:
    s = sc.symbolic(SPLIT)
    assert s.X[0] is None
    with pytest.raises(ValueError, match="split into sources at point 1"):
        s.head("L0H0")


# -------------------------------------------------------------------------------------- 3: reading back
@examples(30)
@given(cases(max_terms=100), st.sampled_from(LETTERS), st.sampled_from(FORMS), st.booleans())
def test_any_expression_of_the_model_is_read(
    case: tuple[Architecture, str], letters: str, form: str, multiplied: bool
) -> None:
    arch, target = case
    e = expand(arch, target)
    expression = sc.symbolic(arch, letters, form).target(target)
    found = sc.read(sp.expand(expression) if multiplied and form == "symbols" else expression, arch)
    assert [(t.coefficient, t.term, t.word) for t in found] == [(1, term, term.word) for term in e]
    assert [(t.composition, t.order, t.orders, t.label, t.target) for t in found] == [
        (term.composition, term.order, term.orders, term.label, target) for term in e
    ]


@pytest.mark.parametrize("matrices", [False, True])
def test_symbols_of_one_s_own_are_read(matrices: bool) -> None:
    n, d, v = 5, 7, 11
    shapes = {"A_L0H0": (n, n), "t": (n, v), "W_E": (d, v), "W_OV_L0H0": (d, d), "W_QK_L1H0": (d, d)}
    a, t, e, ov, qk = (sp.MatrixSymbol(name, *shape) if matrices else plain(name) for name, shape in shapes.items())
    x0 = t * sp.transpose(e)
    x1 = x0 + a * x0 * sp.transpose(ov)
    for expression in (x1 * qk * sp.transpose(x1), sp.expand(x1 * qk * sp.transpose(x1))):
        found = sc.read(expression, ONE_EACH)
        assert [term.composition for term in found] == ["none", "K", "Q", "QK"]
        assert [term.text for term in found] == [term.text.partition(" * ")[2] for term in sc.scores(ONE_EACH, "L1H0")]


def test_the_witness_reads_w_qk_as_one_letter() -> None:
    a, t, e, ov, qk = sp.symbols("A_L0H0 t W_E W_OV_L0H0 W_QK_L1H0", commutative=False)
    x0 = t * sp.transpose(e)
    x1 = x0 + a * x0 * sp.transpose(ov)
    found = read_terms(sp.expand(x1 * qk * sp.transpose(x1)))
    assert sorted(term.composition for term in found) == ["K", "Q", "QK", "none"]
    turned = read_terms(sp.expand(sp.transpose(x1 * qk * sp.transpose(x1))))
    assert {term.tokens for term in turned} != {term.tokens for term in found}
    with pytest.raises(ValueError, match="A_L0H0 is a commuting symbol"):
        read_terms(sp.Symbol("A_L0H0") * t)
    with pytest.raises(ValueError, match="W_XY_L0H0"):
        read_terms(plain("W_XY_L0H0") * t)


def test_coefficients_are_exact_and_equal_words_are_added_up() -> None:
    e = sc.logits(ONE_EACH)
    x0, w = sc.symbolic(ONE_EACH).X[0], sp.transpose(LetterSymbol("W_U"))
    spelled = e[1].expr + 2 * e[1].as_expr("factors") - x0 * w / 3
    found = sc.read(spelled, ONE_EACH)
    assert [(str(t.coefficient), t.label) for t in found] == [("-1/3", "embed"), ("3", "embed -> L0H0")]
    assert sc.read(e[1].expr - e[1].as_expr("factors"), ONE_EACH) == []
    assert sc.read(sp.S.Zero, ONE_EACH) == []
    assert [t.term for t in sc.read(e, ONE_EACH)] == list(e)
    assert [t.term for t in sc.read(e[2], ONE_EACH)] == [e[2]]


def test_streams_heads_and_targets_are_told_apart() -> None:
    s = sc.symbolic(ONE_EACH)
    both = sc.read(s.X[1] + s.logits, ONE_EACH)
    assert [t.target for t in both] == ["logits"] * 4 + ["stream"] * 2
    assert [t.label for t in sc.read(s.head("L1H0"), ONE_EACH)] == ["embed -> L1H0", "embed -> L0H0 -> L1H0"]


def test_unscaled_scores_are_read_as_they_stand() -> None:
    e = sc.scores(ONE_EACH, "L1H0")
    [found] = sc.read(e[3].expr / LetterSymbol("scale_L1H0"), ONE_EACH)
    assert found.term == e[3]
    assert found.text == e[3].text.partition(" * ")[2]
    assert repr(found) == f"<TypedTerm {e[3].label} (QK): {found.text}>"


# ----------------------------------------------------------------- corruptions: typed otherwise, or refused
def factors_of(product: Any) -> tuple[list[Any], list[Any]]:
    numbers, letters = product.args_cnc()
    return numbers, letters


def turned(letter: Any) -> Any:
    return letter.args[0] if isinstance(letter, sp.transpose) else sp.transpose(letter)


def corrupted(product: Any, how: str, at: int, arch: Architecture) -> Any:
    numbers, letters = factors_of(product)
    i = at % len(letters)
    if how == "transposed":
        letters[i] = turned(letters[i])
    elif how == "swapped":
        j = (i + 1) % len(letters)
        letters[i], letters[j] = letters[j], letters[i]
    elif how == "doubled factor":
        letters.insert(i, letters[i])
    elif how == "dropped":
        del letters[i]
    else:
        other = {"L0H0": "L0H1", "L0H1": "L1H0", "L1H0": "L0H0", "L1H1": "L1H0", "L0": "L1", "L1": "L0"}
        renamed = {
            s: LetterSymbol(s.name.replace(label, other[label]))
            for s in letters[i].free_symbols
            for label in list(other)[:4]
            if s.name.endswith(label)
        }
        letters[i] = letters[i].xreplace(renamed)
    return sp.Mul(*numbers, *letters)


HOWS = ["transposed", "swapped", "doubled factor", "dropped", "wrong head"]
LARGE = sc.transformer((2, 2), norm="LN", mlps=True, biases=True, multipliers=True)


@examples(150)
@given(
    st.sampled_from([BIASED, LARGE, sc.attention_only((2, 2), positions="rotary")]),
    st.sampled_from(["logits", "stream", "scores:L1H0", "scores:L1H1"]),
    st.sampled_from(HOWS),
    st.integers(0, 10**6),
    st.integers(0, 30),
    st.sampled_from(LETTERS),
)
def test_a_corrupted_term_is_refused_or_is_another_term(
    arch: Architecture, target: str, how: str, number: int, at: int, letters: str
) -> None:
    e = expand(arch, target)
    term = e[number % e.count]
    right = term.as_expr(letters)
    wrong = corrupted(right, how, at, arch)
    if wrong == right:  # a symmetric matrix was transposed, or there was no head to exchange
        assert [t.term for t in sc.read(wrong, arch)] == [term]
        return
    fault = ""
    try:
        [found] = sc.read(wrong, arch)
    except ValueError as refused:
        fault = str(refused)
    if fault:
        named = any(s.name in fault or s.name.partition("_")[0] in fault for s in right.free_symbols)
        assert named or (wrong.is_number and "alone is not a matrix" in fault)  # its only letter was dropped
        return
    assert found.term != term or found.word != term.word
    assert found.coefficient == 1
    assert sp.expand(wrong - found.term.as_expr(letters)) == 0 or not found.word.scales


def test_a_doubled_term_has_another_coefficient() -> None:
    e = sc.logits(BIASED)
    found = sc.read(e.expr + e[3], BIASED)
    assert [t.coefficient for t in found] == [2 if i == 3 else 1 for i in range(e.count)]


T, WE, A, OV, WU = (plain(name) for name in ("t", "W_E", "A_L0H0", "W_OV_L0H0", "W_U"))
X0 = T * sp.transpose(WE)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: sp.Symbol("A_L0H0") * X0 * sp.transpose(OV), "A_L0H0 is a commuting symbol, so SymPy has lost"),
        (lambda: 0.5 * X0, "0.5.* is a floating-point number"),
        (lambda: sp.oo * X0, "oo is not a finite number"),
        (lambda: sp.zoo * X0, "zoo is not a finite number"),
        (lambda: sp.nan * X0, "nan is not a finite number"),
        (lambda: plain("W_ov_L0H0") * X0, "unknown symbol 'W_ov_L0H0' .did you mean W_OV_L0H0"),
        (lambda: sp.Symbol("d_head") * X0, "unknown symbol 'd_head'"),
        (lambda: plain("lambda") * X0, "unknown symbol 'lambda'"),
        (lambda: plain("A_L7H0") * X0 * sp.transpose(OV), "there is no head L7H0"),
        (lambda: plain("A_L0H5") * X0 * sp.transpose(OV), "there is no head L0H5"),
        (lambda: plain("mlp_L0"), r"mlp\[L0\] is not a symbol of"),
        (lambda: sp.Symbol("m_E") * X0, "m_E is not a scale or multiplier"),
        (lambda: sp.sin(T), "sin.t. cannot be read"),
        (lambda: sp.sqrt(2) * X0, "sqrt.2. cannot be read"),
        (lambda: X0 * T**-1, r"1/t|t\*\*\(-1\)"),
        (lambda: T ** sp.Symbol("k"), "the power of t"),
        (lambda: T**5000, "the power of t"),
        (lambda: sp.Integer(3), "3 alone is not a matrix"),
        (lambda: sp.Symbol("scale_L1H0"), "scale.L1H0. alone"),
        (lambda: X0 + 1, "1 alone is not a matrix"),
        (lambda: A * X0 * OV, r"W_OV?\[L0H0\]"),
        (lambda: A * X0 * sp.transpose(OV) * WU, "W_U"),
        (lambda: A * X0, r"A\[L0H0\] on the left has no partner"),
        (lambda: sp.Symbol("scale_L1H0") * X0, "a score scale precedes a word that is not a score"),
        (lambda: sp.transpose(X0), "X0.T is not a finished word"),
        (lambda: sp.Sum(X0, (sp.Symbol("i"), 1, sp.Symbol("n"))), "substitute numbers"),
        (lambda: sp.Derivative(sp.Function("f")(sp.Symbol("x")), sp.Symbol("x")), "cannot be read"),
        (lambda: sp.Mul(*[T + WE] * 40, evaluate=False), "1,099,511,627,776 products or more"),
        (lambda: (T + WE) ** 900, "products or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_typed_is_refused(wrong: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sc.read(wrong(), ONE_EACH)


@pytest.mark.parametrize("wrong", ["t*W_E", object(), None, [1, "a"], 1j])
def test_what_is_not_an_expression_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        sc.read(wrong, ONE_EACH)


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = X0
    for _ in range(1500):
        deep = sp.Mul(A, sp.Add(deep, X0, evaluate=False), evaluate=False)
    with pytest.raises(ValueError, match=r"nested too deeply|products or more|A\[L0H0\]"):
        sc.read(deep, ONE_EACH)


# ------------------------------------------------------------------- 4, 5, 6: terms and expansions in SymPy
def test_an_expansion_as_one_expression() -> None:
    e = sc.scores(BIASED, "L1H0").where(composition="K")
    assert e.expr == sum(e.exprs) == sp.Add(*(t.expr for t in e))
    whole = e.matrix_expr(n_context=7)
    assert whole.shape == (7, 7)
    assert list(whole.args) == [t.matrix_expr(n_context=7) for t in e]
    assert {s.name for s in e.matrix_expr("factors").atoms(sp.MatrixSymbol)} >= {"W_Q_L1H0", "W_K_L1H0"}
    assert sp.expand(sc.symbolic(ONE_EACH, form="matrix").logits) == sc.logits(ONE_EACH).matrix_expr()


def test_no_terms_and_too_many() -> None:
    none = sc.scores(ONE_EACH, "L0H0").through("L1H0")
    assert (none.count, none.expr, none.exprs, none.lambdify()()) == (0, 0, [], [])
    for call in (none.matrix_expr, lambda: none.lambdify(total=True)):
        with pytest.raises(ValueError, match="there are no terms"):
            call()
    deep = sc.logits(sc.attention_only((12,) * 12))
    for call in (lambda: deep.expr, lambda: deep.exprs, deep.matrix_expr, deep.lambdify, lambda: sp.latex(deep)):
        with pytest.raises(ValueError, match="23,298,085,122,481 terms are too many"):
            call()


def test_sizes_are_positive_integers() -> None:
    shape = sc.logits(ONE_EACH)[1].matrix_expr().shape
    assert all(size.is_integer and size.is_positive for size in shape)
    k = sp.Symbol("k", integer=True, positive=True)
    assert sc.symbolic(ONE_EACH, form="matrix", n_context=k).logits.shape == (k, shape[1])
    with pytest.raises(ValueError, match="size n_context must be a whole number"):
        sc.symbolic(ONE_EACH, form="matrix", n_context=1.5)


@pytest.mark.parametrize("arch", [BIASED, sc.attention_only((2, 1), positions="rotary"), LARGE])
def test_one_function_for_all_terms(arch: Architecture) -> None:
    model = sc.random_model(arch, n_context=4)
    run = model.run([[1, 2, 3, 4], [5, 6, 7, 8]])
    for target in ("logits", "scores:L1H0"):
        e = sc.expand(arch, target)
        values, total = e.lambdify()(**run.arrays), e.lambdify(total=True)(**run.arrays)
        assert len(values) == e.count
        for term, one in zip(e, values, strict=True):
            assert np.array_equal(one, term.lambdify()(**run.arrays))
        np.testing.assert_allclose(total, sc.evaluate(e, run).total(), atol=1e-12)
        assert total.shape[0] == 2
        again = pickle.loads(pickle.dumps(e.lambdify(total=True)))
        assert np.array_equal(again(**run.arrays), total)
    f = e.lambdify()
    assert np.array_equal(f(*(run.arrays[name] for name in f.arguments))[0], values[0])
    with pytest.raises(TypeError, match="missing"):
        f()
    with pytest.raises(TypeError, match="there is no argument 'A_L0H9x'"):
        f(**run.arrays, A_L0H9x=1)


def test_sympy_prints_terms_and_expansions() -> None:
    e = sc.scores(ONE_EACH, "L1H0")
    term = e[1]
    assert sp.latex(term) == term.latex()
    assert sp.latex(e) == " + ".join(t.latex() for t in e)
    assert sp.latex(e.written("transformerlens")) == " + ".join(t.written("transformerlens").latex() for t in e)
    assert sp.sstr(term) == str(term.expr)
    assert sp.sstr(e) == str(e.expr)
    assert sp.sympify(term) == term.expr
    assert sp.sympify(e) == e.expr


def test_terms_are_added_up() -> None:
    a, b, *_ = sc.logits(ONE_EACH)
    assert a + b == a.expr + b.expr == b + a
    assert sum([a, b]) == a + b
    assert a - b == sp.expand(-(b - a))
    assert a + b.expr == a.expr + b
    assert 3 * a == a * 3 == a + a + a
    assert a - a == 0
    assert 1 - a == 1 - a.expr


def test_patterns_multiplied_out_have_matrices_alone() -> None:
    term = sc.logits(sc.attention_only((1,), softmax=False)).unfrozen()[1]
    assert term.matrix_expr().shape == (sp.Symbol("n_context", integer=True, positive=True), sc.logits(ONE_EACH)[0]
                                        .matrix_expr().shape[1])  # fmt: skip
    with pytest.raises(ValueError, match=r"is an entrywise product.*matrix_expr"):
        _ = term.expr


# ------------------------------------------------------------------ 7: what SymPy does with the expressions
@pytest.mark.parametrize("name", ["A_L0H0", "W_OV_L0H0"])
@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
def test_a_derivative_is_that_of_the_numbers(name: str, target: str) -> None:
    """By a letter: in the direction of the identity; in any direction with a letter for it; by a shaped matrix."""
    s = sc.symbolic(ONE_EACH)
    expression, letter = s.target(target), s.symbols[name]
    arrays = sized(sc.random_model(ONE_EACH, n_context=4, d_model=4))
    rng, h = np.random.default_rng(0), 1e-5

    def along(direction: Any) -> Any:
        up, down = ({**arrays, name: arrays[name] + sign * h * direction} for sign in (1, -1))
        return (value(expression, up) - value(expression, down)) / (2 * h)

    np.testing.assert_allclose(value(sp.diff(expression, letter), arrays), along(np.eye(4)), atol=1e-7)
    eps, step = sp.Symbol("eps"), plain("step")
    changed = sp.expand(expression.subs(letter, letter + eps * step)).coeff(eps)
    direction = rng.standard_normal((4, 4))
    np.testing.assert_allclose(value(changed, {**arrays, "step": direction}), along(direction), atol=1e-7)

    m = sc.symbolic(ONE_EACH, form="matrix", n_context=4, d_model=4)
    shaped = m.target(target)
    symbols = sorted(shaped.free_symbols, key=str)
    gradient = sp.lambdify(symbols, shaped.diff(m.symbols[name]))(*(_given(s, arrays) for s in symbols))
    np.testing.assert_allclose(np.einsum("ab,abij->ij", direction, gradient), along(direction), atol=1e-7)


def _given(symbol: Any, arrays: Arrays) -> Any:
    sizes = {"d_vocab": arrays["W_E"].shape[1], "d_vocab_out": arrays["W_U"].shape[0]}
    return arrays[symbol.name] if symbol.name in arrays else sizes[symbol.name]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arch", [BIASED, LARGE, ATTACHED])
def test_the_symbols_are_those_of_the_expressions(form: str, arch: Architecture) -> None:
    s = sc.symbolic(arch, form=form)
    kinds = sp.Symbol if form == "symbols" else sp.MatrixSymbol
    stand = {str(x) for x in s.logits.atoms(kinds)}
    numbers = {name for name in s.symbols if name.startswith(("m_", "r_"))}
    assert stand | numbers == set(s.symbols)
    assert all(str(symbol) == name for name, symbol in s.symbols.items())
    assert numbers == {m.replace("[", "_").rstrip("]") for m in arch.multipliers}


def test_deep_models_are_built_at_once() -> None:
    """As many nodes as there are heads, whatever the number of terms: what is shared is made once."""
    deep = sc.attention_only((12,) * 12)
    for form in FORMS:
        s = sc.symbolic(deep, form=form)
        assert len(s.symbols) == 2 * 144 + 3
        assert len(s.stream.args) == len(s.X[11].args) + 12
        assert s.scores("L11H3").args[-1] is not None
        assert len(s.logits.args) == 2


def test_a_head_is_removed_by_substitution() -> None:
    s = sc.symbolic(BIASED)
    e = sc.logits(BIASED)
    left = [t.term for t in sc.read(s.logits.subs(s.symbols["A_L0H1"], 0), BIASED)]
    assert left == [t for t in e if t not in set(e.through("L0H1"))]
    assert s.logits.replace(s.symbols["A_L0H1"], sp.S.Zero) == s.logits.subs(s.symbols["A_L0H1"], 0)
    a, b = s.symbols["W_OV_L0H0"], plain("M")
    assert sp.transpose(a).subs(a, b * a) == sp.transpose(a) * sp.transpose(b)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arch", [BIASED, sc.attention_only((1, 1), positions="rotary"), ATTACHED])
def test_everything_pickles(form: str, arch: Architecture) -> None:
    s = sc.symbolic(arch, form=form)
    again = pickle.loads(pickle.dumps(s))
    assert again.logits == s.logits
    for target in arch.targets(arch.all_heads):
        assert pickle.loads(pickle.dumps(s.target(target))) == again.target(target)


def test_symmetric_letters_and_numbers_are_their_own_transpose() -> None:
    for name in ("D_L0", "C", "gain_final", "gain_Q1", "D_KL0H1", "scale_L1H0", "r_M0", "m_U"):
        assert sp.transpose(LetterSymbol(name)) == LetterSymbol(name)
    for name in ("A_L0H0", "W_QK_L0H0", "R_L0H0", "P", "b_O_L0"):
        assert sp.transpose(LetterSymbol(name)) != LetterSymbol(name)


def test_letters_are_real() -> None:
    x = sc.symbolic(BIASED).X[1]
    assert sp.adjoint(x) == sp.transpose(x)
    assert sp.conjugate(x) == x
    assert sp.adjoint(sp.transpose(x)) == x
    assert sp.transpose(sp.transpose(x)) == x


# ------------------------------------------------------------------------------- 8: lambdify by SymPy itself
@pytest.mark.parametrize("modules", ["numpy", "math", "mpmath", None])
def test_letters_without_shape_are_not_lambdified(modules: str | None) -> None:
    s, e = sc.symbolic(ONE_EACH), sc.logits(ONE_EACH)
    symbols = list(s.symbols.values())
    for expression in (s.logits, e.expr, e[1], list(e), sp.transpose(s.symbols["W_U"])):
        with pytest.raises(ValueError, match=r"symbol without shape.*lambdify\(\)"):
            sp.lambdify(symbols, expression, modules)
    with pytest.raises(TypeError, match=r"its function is .lambdify\(\)"):
        sp.lambdify(symbols, e, modules)


@pytest.mark.parametrize("positions", [None, "standard", "rotary"])
@pytest.mark.parametrize("multiplied", [False, True])
def test_shaped_expressions_are_lambdified_right(positions: str | None, multiplied: bool) -> None:
    arch = sc.attention_only((2, 1), positions, biases=positions is not None)
    model = sc.random_model(arch, n_context=4)
    run, arrays = model.run([1, 2, 3, 4]), sized(model)
    for target in ("logits", "scores:L1H0"):
        s = sc.symbolic(arch, form="matrix", n_context=4)
        expression = sc.expand(arch, target).matrix_expr(n_context=4) if multiplied else s.target(target)
        symbols = sorted((x for x in expression.free_symbols if x.name in arrays), key=str)
        found = sp.lambdify(symbols, expression)(*(arrays[x.name] for x in symbols))
        np.testing.assert_allclose(found, sc.evaluate(sc.expand(arch, target), run).total(), atol=1e-12)


# ------------------------------------------------------------------------------------- 11: LaTeX and check
@examples(20)
@given(cases(max_terms=40), st.sampled_from(LETTERS), st.booleans())
def test_latex_of_an_expression_is_checked(case: tuple[Architecture, str], letters: str, multiplied: bool) -> None:
    arch, target = case
    expression = sc.symbolic(arch, letters).target(target)
    text = sp.latex(sp.expand(expression) if multiplied else expression)
    if expression == 0:
        return
    assert sc.check(text, arch, target).right
    assert not sc.check(text.replace("W_E", "W_U", 1) if "W_E" in text else text + " + X_0", arch, target).right


WRITTEN = [
    sc.attention_only((2, 2)),
    sc.attention_only((2, 2), biases=True),
    sc.attention_only((1, 2), "standard", biases=["b_V", "b_O"]),
    sc.attention_only((2, 1), positions="rotary"),
    sc.transformer((1, 2), norm="LN"),
    sc.transformer((1, 1), norm="RMS", mlps=True),
    sc.transformer((2, 2), groups=(1, 1)),
    sc.transformer((1, 1), norm="LN", biases=True),
    sc.transformer((1, 1), norm="LN", biases=True, positions="rotary"),
]


@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize("arch", WRITTEN, ids=str)
@pytest.mark.parametrize("written", ["letters", "shaped", "plain symbols"])
@pytest.mark.sampled(5)
def test_latex_of_every_form_is_checked(arch: Architecture, letters: str, written: str) -> None:
    s = sc.symbolic(arch, letters=letters, form="matrix" if written == "shaped" else "symbols")
    last = arch.all_heads[-1].label
    named = {"logits": s.logits, "stream": s.X[2], f"scores:{last}": s.scores(last), "the stream after 1 layer": s.X[1],
             f"what head {last} adds": s.head(last)}  # fmt: skip
    for target, expression in named.items():
        if written == "plain symbols":
            plain = {x: sp.Symbol(x.name, commutative=x.is_commutative) for x in expression.free_symbols}
            expression = expression.xreplace(plain)
        text = sp.latex(expression)
        verdict = sc.check(text, arch)
        assert (verdict.right, verdict.where) == (True, ()), (target, verdict)
        assert target in (verdict.target, verdict.message.removeprefix("Right: this is ").rstrip("."))
        for old, new in ((last, "L0H7"), (r"^{T}", ""), ("t W", "W"), (r"t W_E^{\mathsf{T}}", "t")):
            if old in text:
                with suppress(ReadError):
                    assert not sc.check(text.replace(old, new, 1), arch).right, text.replace(old, new, 1)


def test_typed_terms_are_public() -> None:
    [term] = sc.read(sc.logits(sc.attention_only(()))[0], sc.attention_only(()))
    assert isinstance(term, TypedTerm)
    assert isinstance(pickle.loads(pickle.dumps(term)), TypedTerm)
    with pytest.raises(IllTyped):
        sc.read(sp.transpose(LetterSymbol("W_U")) * LetterSymbol("t"), sc.attention_only(()))
