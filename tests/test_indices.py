"""Every argument that counts or chooses something: what is a whole number, where it must lie, and what is said."""

import inspect
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.core.expansion import expand
from symcircuits.explanation.ablation import remove_heads
from symcircuits.explanation.score_parts import largest_score_terms
from tests.measures import measure_of


class Index(NamedTuple):
    """An argument: a call with it, one value that is right, how many there are, and what else is not refused."""

    call: Callable[[Any], Any]
    right: int
    size: int | None = None  # None: as large as one likes
    negative: bool = False
    none: bool = False  # whether None may stand there
    fault: type[Exception] = ValueError


@cache
def model() -> sc.Model:
    return sc.random_model(sc.attention_only((2, 2), positions="standard"), d_vocab=9, d_vocab_out=5, seed=1)


@cache
def run() -> sc.Run:
    probe = sc.readout(np.eye(3, 16), "probe")
    return model().with_(probe).run([[1, 2, 3, 4], [4, 3, 2, 1]])


def of(target: str) -> sc.Expansion:
    return expand(run().model.architecture, target)


@cache
def tensors() -> Any:
    return run().to(np.zeros(1))


def first(found: Iterator[Any]) -> Any:
    return next(iter(found))


N, N_SCORES = 18, 36  # terms of the logits, and of the scores of L1H0
METHODS: dict[str, list[Any]] = {"largest": [2], "sample": [3], "sum_of_squares": [], "summary": []}


def measures() -> Iterator[tuple[str, Index]]:
    """What a measure chooses, where one number of each term is asked for."""
    for name, first_ones in METHODS.items():

        def choose(kind: str, target: str, name: str = name, first_ones: Any = first_ones) -> Any:
            def with_(word: Any) -> Any:
                values = sc.evaluate(of(target), run())
                return lambda v: getattr(values, name)(*first_ones, by=measure_of(kind, **{"row": 0} | word(v)))

            return with_

        yield from _choices(name, choose)


def _choices(name: str, call: Any) -> Iterator[tuple[str, Index]]:
    logit, two, entry = call("logit", "logits"), call("logit difference", "logits"), call("score entry", "scores:L1H0")
    read, both = call("direction", "readout:probe"), call("direction difference", "readout:probe")
    yield f"{name} row", Index(logit(lambda v: {"row": v}), 1, 2, negative=True)
    yield f"{name} position", Index(logit(lambda v: {"position": v}), 1, 4, negative=True)
    yield f"{name} token", Index(logit(lambda v: {"token": v}), 4, 5, none=True)
    yield f"{name} against", Index(two(lambda v: {"token": 0, "against": v}), 4, 5, none=True)
    yield f"{name} query", Index(entry(lambda v: {"position": v, "key": 0}), 3, 4, negative=True)
    yield f"{name} row of scores", Index(entry(lambda v: {"row": v, "key": 0}), 1, 2, negative=True)
    yield f"{name} key", Index(entry(lambda v: {"key": v}), 3, 4, negative=True, none=True)
    yield f"{name} direction", Index(read(lambda v: {"token": v}), 2, 3, none=True)
    yield f"{name} direction against", Index(both(lambda v: {"token": 0, "against": v}), 2, 3, none=True)


def reductions() -> Iterator[tuple[str, Index]]:
    """Measures and values of all terms, on runs and on arrays of other libraries."""
    for on, given in (("run", run), ("tensors", tensors)):

        def contributions(target: str = "logits", given: Any = given, **more: Any) -> Any:
            ranged = {name: more.pop(name) for name in ("size", "start", "stop") if name in more}
            by = sc.logit(**{"token": 0} | more)
            return first(sc.evaluate(of(target), given()).measure(by, **ranged))

        def entries(given: Any = given, position: Any = 0, key: Any = 0, **more: Any) -> Any:
            return first(sc.evaluate(of("scores:L1H0"), given()).measure(sc.score_entry(position, key), **more))

        def norms(given: Any = given, **more: Any) -> Any:
            return first(sc.evaluate(of("logits"), given()).measure(**more))

        def values(given: Any = given, **more: Any) -> Any:
            return first(sc.evaluate(of("logits"), given()).blocks(**more))

        yield f"contributions token, {on}", Index(lambda v, f=contributions: f(token=v), 4, 5)
        yield f"contributions against, {on}", Index(lambda v, f=contributions: f(against=v), 4, 5, none=True)
        yield f"contributions direction, {on}", Index(lambda v, f=contributions: f("readout:probe", token=v), 2, 3)
        yield f"contributions position, {on}", Index(lambda v, f=contributions: f(position=v), 3, 4, negative=True)
        yield f"entries position, {on}", Index(lambda v, f=entries: f(position=v), 3, 4, negative=True)
        yield f"entries key, {on}", Index(lambda v, f=entries: f(key=v), 3, 4, negative=True)
        for name, f in (("norms", norms), ("contributions", contributions), ("entries", entries), ("values", values)):
            none, last = name == "values", N_SCORES if name == "entries" else N
            yield f"{name} size, {on}", Index(lambda v, f=f: f(size=v), 2, none=none)
            yield (
                f"{name} start, {on}",
                Index(lambda v, f=f: f(start=v), 2, last + 1),
            )
            yield (
                f"{name} stop, {on}",
                Index(lambda v, f=f: f(stop=v), 2, last + 1, none=True),
            )


def counts() -> Iterator[tuple[str, Index]]:
    """Numbers of terms, samples, seeds, sizes."""
    yield "largest k", Index(lambda v: sc.evaluate(of("logits"), run()).largest(v), 2)
    yield (
        "largest max_expansions",
        Index(lambda v: sc.evaluate(of("logits"), run()).largest(2, max_expansions=v), 2, none=True),
    )
    yield "sample k", Index(lambda v: sc.evaluate(of("logits"), run()).sample(v), 2, size=10**7)
    yield "sample seed", Index(lambda v: sc.evaluate(of("logits"), run()).sample(2, seed=v), 2)
    yield "squares samples", Index(lambda v: sc.evaluate(of("logits"), run()).sum_of_squares(samples=v), 2)
    yield "squares seed", Index(lambda v: sc.evaluate(of("logits"), run()).sum_of_squares(seed=v), 2)
    for name in ("largest", "sample", "sum_of_squares"):
        f = getattr(sc.evaluate(of("logits"), run()), name)
        yield f"{name} max_memory", Index(lambda v, f=f: f(max_memory=v), 2**30)
    one, e = [1, 2, 3], of("logits")
    for word, none in (("top", False), ("start", False), ("stop", True), ("max_terms", True)):
        most = N + 1 if word == "start" else None
        yield (
            f"summary {word}",
            Index(
                lambda v, w=word: sc.evaluate(sc.logits(model().architecture), model().run(one)).summary(**{w: v}),
                2,
                most,
                none=none,
            ),
        )
    yield "blocks size", Index(lambda v: list(e.blocks(v)), 2)
    yield "blocks start", Index(lambda v: list(e.blocks(start=v)), 2)
    yield "blocks stop", Index(lambda v: list(e.blocks(stop=v)), 2, none=True)
    yield "census start", Index(lambda v: e.census(start=v), 2)
    yield "census stop", Index(lambda v: e.census(start=0, stop=v), 2, none=True)
    yield "order", Index(lambda v: e.order(v), 2)
    yield "head", Index(lambda v: e.head(v), 2)
    yield "unfrozen head", Index(lambda v: sc.logits(sc.attention_only((1,), softmax=False)).unfrozen().head(v), 2)
    for size in ("d_vocab", "d_model", "d_head", "d_vocab_out", "n_context", "d_mlp"):
        none = size in ("d_vocab_out", "d_mlp")
        yield (
            f"random_model {size}",
            Index(lambda v, s=size: sc.random_model(sc.attention_only((1,)), **{s: v}), 2, none=none),
        )
    yield "random_model seed", Index(lambda v: sc.random_model(sc.attention_only((1,)), seed=v), 2)
    yield "verify seed", Index(lambda v: sc.verify(sc.attention_only((1,)), seed=v, targets="logits"), 2)
    yield "verify max_terms", Index(lambda v: sc.verify(sc.attention_only((1,)), max_terms=v, targets="logits"), 2)
    yield "derive seed", Index(lambda v: sc.derive(sc.attention_only((1,)), seed=v), 2)
    yield "theorem seed", Index(lambda v: sc.theorem("linearity", seed=v), 2)
    yield "score terms", Index(lambda v: largest_score_terms(run(), "L1H0", v), 2)


def explained() -> Iterator[tuple[str, Index]]:
    two = [[1, 2, 3, 4], [4, 3, 2, 1]]
    yield "explain row", Index(lambda v: sc.explain(model(), two, by=sc.logit(row=v)), 1, 2, negative=True, none=True)
    yield "explain position", Index(lambda v: sc.explain(model(), two, by=sc.logit(position=v)), 3, 4, negative=True)
    yield "explain token", Index(lambda v: sc.explain(model(), two, by=sc.logit(v)), 4, 5, none=True)
    yield "explain against", Index(lambda v: sc.explain(model(), two, by=sc.logit(0, against=v)), 4, 5, none=True)
    yield "explain top", Index(lambda v: sc.explain(model(), two, top=v), 2)
    yield "explain max_terms", Index(lambda v: sc.explain(model(), two, max_terms=v), 2)
    yield "explain queries", Index(lambda v: sc.explain(model(), two, queries=[v]), 3, 4, negative=True)
    yield "score columns", Index(lambda v: sc.explain(model(), two).score_columns("L1H0", v), 2)
    rows = [[1, 2, 3, 4]]
    yield (
        "many position",
        Index(lambda v: sc.explain_many(model(), rows, by=sc.logit(position=v), skip_bad=False), 3, 4, negative=True),
    )
    yield "many token", Index(lambda v: sc.explain_many(model(), rows, by=sc.logit(v)), 4, 5, none=True)
    yield "many against", Index(lambda v: sc.explain_many(model(), rows, by=sc.logit(0, against=v)), 4, 5, none=True)
    for key, size in (("position", 4), ("target", 5)):
        yield (
            f"prompt {key}",
            Index(
                lambda v, k=key: sc.explain_many(model(), [{"tokens": [1, 2, 3, 4], k: v}]),
                3,
                size,
                key == "position",
                True,
            ),
        )


def described() -> Iterator[tuple[str, Index]]:
    """Layers, heads and points of the stream."""
    arch = sc.transformer((2, 2), mlps=True)
    mlps = sc.random_model(arch, seed=1)
    yield "heads", Index(lambda v: sc.attention_only((v,)), 2, size=100_001)
    yield "groups", Index(lambda v: sc.attention_only((2,), groups=(v,)), 2, size=3)
    yield "mlps", Index(lambda v: sc.transformer((2, 2), mlps=[v]), 1, 2)
    yield "head layer", Index(lambda v: arch.head((v, 0)), 1, 2)
    yield "head number", Index(lambda v: arch.head((0, v)), 1, 2)
    yield "through", Index(lambda v: sc.logits(arch).through((v, 0)), 1, 2)
    yield "scores", Index(lambda v: sc.scores(arch, (v, 0)), 1, 2)
    yield "remove_heads", Index(lambda v: remove_heads(run(), (v, 0)), 1, 2)
    yield "readout layer", Index(lambda v: mlps.with_(sc.readout(np.ones(16), layer=v)), 2, 3, none=True)
    yield "readout layer of an MLP", Index(lambda v: mlps.with_(sc.readout(np.ones(16), layer=v, at="mlp")), 1, 2)
    yield "source layer", Index(lambda v: mlps.with_(sc.source("one", np.ones(16), v)), 2, 3)
    yield "source layer of an MLP", Index(lambda v: mlps.with_(sc.source("one", np.ones(16), v, of="mlp")), 1, 2)


INDICES = dict([*measures(), *reductions(), *counts(), *explained(), *described()])


@pytest.mark.parametrize("name", INDICES)
def test_an_index_is_a_whole_number_that_is_there(name: str) -> None:
    index = INDICES[name]
    small = np.int8 if index.right < 128 else np.int32
    for right in (index.right, np.int64(index.right), small(index.right), np.array(index.right)):
        index.call(right)
    wrong = [True, np.True_, 1.0, np.float64(1), "1", np.array([1.0]), np.array(1.0), (1,), b"1", 1j]
    wrong += [] if index.none else [None]
    wrong += [] if index.negative else [-1, np.int64(-1)]
    wrong += [-index.size - 1] if index.negative and index.size else []
    wrong += [index.size, np.int64(index.size), 10**30] if index.size else []
    wrong += [10**5000] if index.size and "layer" not in name else []  # too long for Python to print
    for value in wrong:
        with pytest.raises(index.fault) as seen:
            index.call(value)
        assert len(str(seen.value)) < 400, value
        assert "digits" not in str(seen.value), value
    if index.negative:
        index.call(-1)


def test_numbers_that_come_back_are_plain() -> None:
    """What is given as an integer of NumPy can be written as JSON."""
    e, token = of("logits"), np.int64(1)
    json.dumps(sc.evaluate(e, run()).sample(np.int32(3), sc.logit(token, row=0), seed=np.int64(1)).json())
    json.dumps(sc.evaluate(e, run()).largest(np.int32(3), sc.logit(token, position=np.int8(1), row=0)).json())
    json.dumps(sc.explain(model(), [1, 2, 3], by=sc.logit(token), top=np.int16(2)).json())
    probed = model().with_(sc.readout(np.ones(16), layer=np.int64(1)), sc.source("one", np.ones(16), np.int64(1)))
    assert [type(one.layer) for one in probed.architecture.attachments] == [int, int]


def test_terms_of_an_expansion_are_numbered_as_those_of_a_list() -> None:
    e = of("logits")
    block = next(e.blocks())
    for terms in (e, block):
        assert terms[np.int64(3)] == terms[3] == terms[3 - len(e)]
        for wrong in (True, np.True_, 1.0, "1", None, np.array(1.0)):
            with pytest.raises(TypeError, match="numbered by whole numbers"):
                terms[wrong]  # type: ignore[index]
        for beyond in (len(e), -len(e) - 1, 10**30, 10**5000):
            with pytest.raises(IndexError, match="does not exist"):
                terms[beyond]


WHOLE = (
    "token", "against", "row", "position", "key", "start", "stop", "k", "size", "top", "samples", "seed", "max_terms",
    "max_expansions", "max_memory", "d_vocab", "d_model", "d_head", "d_vocab_out", "n_context", "d_mlp", "layer",
)  # fmt: skip


def test_every_such_argument_of_the_public_functions_is_looked_at() -> None:
    """A new one needs a line above."""
    tested = {word for name in INDICES for word in name.replace(",", "").split()}
    for name in sc.__all__:
        thing = getattr(sc, name)
        if inspect.isfunction(thing):
            for word in inspect.signature(thing).parameters:
                if word in WHOLE:
                    assert word in tested, (name, word)
