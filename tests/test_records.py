"""Records stay as they are: nothing in them can be written to, and they come through a pickle with the same numbers."""

import pickle
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import made
from plain import featured_models
from test_tensors import runs

import symcircuits as sc
from symcircuits.core.expansion import Expansion
from symcircuits.model import Model, Run
from symcircuits.sympy_layer.lambdify import lambdify_words

TOKENS = [[3, 1, 4], [1, 5, 9]]


def arrays_in(record: Any) -> Iterator[tuple[str, Any]]:
    """All arrays of a record, with where they stand."""
    for name in getattr(type(record), "__dataclass_fields__", ()):
        value = getattr(record, name)
        parts = (
            value if isinstance(value, Mapping) else dict(enumerate(value)) if isinstance(value, tuple) else {"": value}
        )
        yield from ((f"{name} {key}", part) for key, part in parts.items() if isinstance(part, np.ndarray))


@pytest.fixture(scope="module")
def own() -> Model:
    arch = sc.transformer((2, 2), "standard", norm="LN", mlps=[0], biases=True, multipliers=["m_E", "r", "m_U"])
    model = sc.random_model(arch, seed=1, d_vocab=10, d_model=6)
    return model.with_(sc.readout(np.ones(6), "probe", normed=True), sc.source("extra", np.ones(6), 1, of="added"))


@given(featured_models(), st.sampled_from(["float64", "float32"]))
def test_nothing_in_a_run_can_be_written_to(model: Model, number: str) -> None:
    run = model.run(TOKENS, number)
    for name, array in [*arrays_in(run), *run.arrays.items(), *arrays_in(model)]:
        assert not array.flags.writeable, name
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_nor_in_one_with_readouts_and_sources(own: Model) -> None:
    for number in ("float64", "float32"):
        run = own.run(TOKENS, number)
        found = [*arrays_in(run), *run.arrays.items(), *arrays_in(own), *run.to(np).arrays.items()]
        assert len(found) > 150
        assert [name for name, array in found if hasattr(array, "flags") and array.flags.writeable] == []


def test_what_is_given_stays_as_it_was() -> None:
    """Arrays of somebody else can be written to as before, those of tokens too."""
    arch = sc.transformer((2, 2), "standard", norm="LN", mlps=[0])
    drawn = sc.random_model(arch, seed=1, d_vocab=10, d_model=6)
    given = {name: np.array(w) for name, w in drawn.weights.items()}
    rows, tokens = np.ones((3, 6)), np.array(TOKENS)
    model = Model(arch, given, drawn.score_scale)
    run = model.with_(sc.source("rows", rows, 1)).run(tokens)
    assert len(dict(run.arrays)) > 20
    assert all(array.flags.writeable for array in (*given.values(), rows, tokens))
    tensors = {"W_E": given["W_E"], "A_L0H0": np.eye(3)}
    sc.Tensors(model.architecture, tensors, TOKENS[0])
    assert all(array.flags.writeable for array in tensors.values())
    tokens[:] = 0
    assert run.tokens.tolist() == TOKENS


def test_tensors_cannot_be_exchanged() -> None:
    found = sc.Tensors(sc.attention_only((1,)), {"W_E": np.ones((2, 5)), "A_L0H0": np.eye(3)}, [1, 2, 3])
    with pytest.raises(TypeError, match="does not support item assignment"):
        found.arrays["W_E"] = np.zeros((2, 5))  # type: ignore[index]


@given(runs(max_terms=40))
def test_what_is_handed_out_does_not_lead_back(drawn: tuple[Expansion, Run]) -> None:
    """Whatever of values, sums and reductions can be written to may be, and nothing after it changes."""
    expansion, run = drawn

    def everything(source: Any) -> list[Any]:
        values = sc.evaluate(expansion, source)
        found = [*(np.asarray(values.value(t)) for t in expansion), values.total(), *values.by_order().values()]
        found += [*values.by_composition().values(), *values.by_source().values()]
        return found + [block.values for block in sc.evaluate(expansion, source).measure()]

    for source in (run, run.to(np)):
        first = everything(source)
        kept = [np.array(array) for array in first]
        for array in first:
            if array.flags.writeable:
                array[...] = 7
        for again, wanted in zip(everything(source), kept, strict=True):
            assert np.array_equal(again, wanted, equal_nan=True)


# ------------------------------------------------------------------------------------------------- pickles
@given(runs(max_terms=40))
def test_arrays_of_a_run_come_through_a_pickle(drawn: tuple[Expansion, Run]) -> None:
    expansion, run = drawn
    moved = run.to(np, dtype="float32")
    again = pickle.loads(pickle.dumps(moved))
    for values, wanted in zip(sc.evaluate(expansion, again), sc.evaluate(expansion, moved), strict=True):
        assert np.array_equal(values, wanted)
        assert values.dtype == np.float32
    values = pickle.loads(pickle.dumps(sc.evaluate(expansion, run.to(np))))
    assert np.array_equal(values.total(), sc.evaluate(expansion, run.to(np)).total())


def test_tensors_come_through_a_pickle() -> None:
    run = sc.random_model(sc.attention_only((2,)), seed=1, d_vocab=10).run(TOKENS)
    given = {k: v for k, v in run.arrays.items() if k not in ("t", "X0")}
    again = pickle.loads(pickle.dumps(sc.Tensors(run.model.architecture, given, TOKENS)))
    assert repr(again) == "<Tensors of attention-only, heads 2, on tokens [2, 3]: NumPy, float64 on cpu>"
    assert np.array_equal(sc.evaluate(sc.logits(again.architecture), again).total().shape, (2, 3, 10))
    assert isinstance(again.arrays, type(sc.Tensors(run.model.architecture, given, TOKENS).arrays))


def test_functions_of_terms_come_through_a_pickle_and_to_workers() -> None:
    arch = sc.transformer((2, 2), "rotary", norm="LN", mlps=[0], biases=True)
    run = sc.random_model(arch, seed=1, d_vocab=10).run(TOKENS)
    arrays = dict(run.arrays)
    terms = [*list(sc.logits(arch))[::7], *list(sc.scores(arch, "L1H0"))[::29]]
    for term in terms:
        function = term.lambdify()
        again = pickle.loads(pickle.dumps(function))
        assert (again.arguments, again.source) == (function.arguments, function.source)
        assert np.array_equal(again(**arrays), function(**arrays))
    cubic = sc.logits(sc.transformer((1, 1), softmax=False)).unfrozen()
    assert pickle.loads(pickle.dumps(cubic[5].lambdify())).source == cubic[5].lambdify().source
    many = lambdify_words(term.word for term in terms)
    for found, wanted in zip(pickle.loads(pickle.dumps(many))(arrays), many(arrays), strict=True):
        assert np.array_equal(found, wanted)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        sent = pool.submit(terms[0].lambdify(), **arrays), pool.submit(many, arrays), pool.submit(total, run.to(np))
        assert np.array_equal(sent[0].result(), terms[0].lambdify()(**arrays))
        assert all(map(np.array_equal, sent[1].result(), many(arrays)))
        assert np.array_equal(sent[2].result(), total(run.to(np)))


def total(arrays: sc.Tensors) -> Any:
    """What a worker computes of arrays that it was sent."""
    return sc.evaluate(sc.logits(arrays.architecture), arrays).total()


@pytest.mark.parametrize("name", sorted(sc.theorems()))
def test_a_theorem_comes_through_a_pickle(name: str) -> None:
    derivation = made(name)
    assert pickle.loads(pickle.dumps(derivation)).text() == derivation.text()


def test_draws_are_compared_as_objects(own: Model) -> None:
    values = sc.evaluate(sc.logits(own.architecture), own.run(TOKENS[0]))
    first, second = values.sample(3), values.sample(3)
    assert first == first
    assert first != second
    assert len({first, second}) == 2


def test_a_value_is_of_a_term(own: Model) -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match=r"value takes a term \(see expansion\[i\]\), not 3"):
        sc.evaluate(sc.logits(own.architecture), own.run(TOKENS[0])).value(wrong)


def test_no_queries_are_refused(own: Model) -> None:
    with pytest.raises(ValueError, match="queries is empty"):
        sc.explain(own, TOKENS[0], queries=[])
