"""What calls say of what they were given in place of what they take: one short TypeError, whatever it is."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.checking.faults import ReadError
from symcircuits.core.text import brief, need
from symcircuits.values.measure import Measure

ARCH = sc.attention_only((2, 2))
MODEL = sc.random_model(ARCH, seed=1)
RUN = MODEL.run([1, 2, 3])
TERMS = sc.logits(ARCH)


class Live:
    """A live model: its repr is a page."""

    cfg: Any = None

    def state_dict(self) -> dict[str, Any]:
        raise AssertionError("nothing is read of what is only refused")

    def __repr__(self) -> str:
        return "Live(\n" + "x" * 3000


# Every public function with arguments that it takes; those it takes an object of ours for are tried with everything.
VALUES = sc.evaluate(TERMS, RUN)
ENTRIES = sc.evaluate(sc.scores(ARCH, "L1H0"), RUN)
CALLS: dict[str, list[Any]] = {
    "expand": [ARCH, "logits"], "logits": [ARCH], "scores": [ARCH, "L1H0"], "stream": [ARCH],
    "check": ["W_U @ W_E", ARCH], "random_model": [ARCH], "readout": [np.ones((1, 16))],
    "source": ["s", np.ones((3, 16)), 1], "change_basis": [MODEL], "fold": [MODEL], "load": [Path("no/such")],
    "from_arrays": [{}, {}], "from_cache": [Live(), {}, [1]], "evaluate": [TERMS, RUN], "verify": [MODEL, [1, 2]],
    "derive": [ARCH], "theorem": ["ablation"], "theorems": [], "explain": [MODEL, [1, 2]],
    "explain_many": [MODEL, [[1, 2]]], "compare_with_reference": [MODEL, {"tokens": [1], "logits": [1]}],
    "remove_heads": [RUN, "L0H0"], "remove_scores": [RUN, "L1H0", "K"], "norm": [True], "logit": [1, 2],
    "score_entry": [1, 0], "attention_only": [(2, 2)], "transformer": [(2, 2)], "Tensors": [ARCH, {}],
    "Model": [ARCH, {}], "symbolic": [ARCH], "read": [sc.logits(ARCH)[1].expr, ARCH],
    "composition_scores": [MODEL, "K"], "circuit": [MODEL, "OV", "L0H0"],
    "invariances": [0],
}  # fmt: skip
# And the methods of what they give.
METHODS: dict[str, tuple[Any, list[Any]]] = {
    "blocks": (TERMS, [4]), "census": (TERMS, [0]), "export": (TERMS, ["no/such/folder/x.csv"]),
    "largest": (VALUES, [2, sc.norm()]), "sample": (VALUES, [2, sc.norm()]), "sum_of_squares": (VALUES, [sc.norm()]),
    "loss_by_order": (VALUES, [[0], "nats"]), "loss_effects": (VALUES, ["head", [0], "nats"]),
    "transport": (VALUES, [TERMS[1]]), "weighted_pattern": (VALUES, ["L0H0", "effect", sc.logit(1)]),
    "summary": (VALUES, [sc.logit(1)]), "measure": (ENTRIES, [sc.score_entry(1, 0)]),
}  # fmt: skip
OURS = (sc.Architecture, sc.Model, sc.Run, sc.Expansion, Measure)
THINGS = [
    None, 3, True, float("nan"), "gpt2", [1], {}, Live(), object(), ARCH, MODEL, RUN, TERMS, sc.Model, np.ones(3),
    b"x", lambda: 0,
]  # fmt: skip
# Where what has an architecture, a model, or the path of one, is taken as well.
DESCRIBED = ("expand", "logits", "scores", "stream", "derive", "verify", "explain", "explain_many", "symbolic")
TAKEN = {("check", 1), ("read", 1), *((name, 0) for name in DESCRIBED)}


def test_every_public_function_is_tried() -> None:
    functions = {n for n in sc.__all__ if inspect.isfunction(getattr(sc, n))}
    assert functions == {n for n in CALLS if n not in ("Tensors", "Model")}


def fault_of(name: str, arguments: list[Any], /, **more: Any) -> Exception | None:
    try:
        made = getattr(METHODS[name][0] if name in METHODS else sc, name)(*arguments, **more)
        if inspect.isgenerator(made):
            next(made)
    except (TypeError, ValueError, OSError) as fault:
        return fault
    return None


@pytest.mark.parametrize("name", [*CALLS, *METHODS])
def test_what_a_call_does_not_take_is_refused_in_one_short_sentence(name: str) -> None:
    arguments, tried = METHODS[name][1] if name in METHODS else CALLS[name], 0
    for place, right in enumerate(arguments):
        for thing in THINGS:
            fault = fault_of(name, [*arguments[:place], thing, *arguments[place + 1 :]])
            if (
                isinstance(right, OURS)
                and type(thing) is not type(right)
                and (name, place) not in TAKEN
                and (thing is not None or name not in METHODS)
            ):
                assert isinstance(fault, TypeError), (thing, fault)
            if fault is not None:
                tried += 1
                assert len(str(fault)) < 300, (thing, fault)
                assert "\n" not in str(fault) or isinstance(fault, ReadError)  # which shows where
                assert "object has no attribute" not in str(fault)
    assert tried or not arguments


# What carries on with work that was begun, and what is called back or handed on.
HANDED = {"progress", "executor", "workers"}


def by_name(name: str) -> list[str]:
    """The arguments of a function that have a default, or are given by name alone."""
    given = list(inspect.signature(getattr(sc, name)).parameters.values())
    return [p.name for p in given if p.name not in HANDED and (p.kind is p.KEYWORD_ONLY or p.default is not p.empty)]


@pytest.mark.parametrize(("name", "key"), [(n, k) for n in CALLS if n not in ("Tensors", "Model") for k in by_name(n)])
def test_what_an_argument_by_name_does_not_take_is_refused_in_one_short_sentence(name: str, key: str) -> None:
    """No AttributeError or IndexError, and no words of Python's own about what cannot be gone through or multiplied."""
    places = list(inspect.signature(getattr(sc, name)).parameters).index(key)
    for thing in [*THINGS, {"a": 1}, "\x00", [None], 10**30]:
        fault = fault_of(name, CALLS[name][:places], **{key: thing})
        if fault is not None:
            assert len(str(fault)) < 300, (thing, fault)
            assert "\n" not in str(fault) or isinstance(fault, ReadError)
            for words in ("has no attribute", "is not iterable", "unsupported operand", "cannot unpack"):
                assert words not in str(fault), (thing, fault)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sc.logits(Live()), r"a live model is read by symcircuits\.load\(model\)$"),
        (lambda: sc.verify(Live()), r"not a Live; a live model is read by symcircuits\.load\(model\)$"),
        (lambda: sc.verify("gpt2"), r"not 'gpt2'; a model is read from its folder by symcircuits\.load\(path\)$"),
        (lambda: sc.fold(ARCH), r"not an Architecture; random_model\(architecture\) makes one of random weights$"),
        (lambda: sc.derive("m"), r"derive takes an architecture .* or a model .* not 'm'; a model is read"),
        (lambda: sc.scores(RUN, "L0H0"), r"not a Run; give its \.model$"),
        (lambda: sc.evaluate(TERMS, MODEL), r"not a Model; give model\.run\(tokens\)$"),
        (lambda: sc.evaluate(RUN, TERMS), r"takes an expansion .* not a Run$"),
        (lambda: sc.evaluate(ARCH, RUN).measure(), r"not an Architecture; give logits\(architecture\)$"),
        (lambda: sc.explain(TERMS), r"explain takes a model .*, the path of one, .*; give evaluate\(expansion, run\)$"),
        (lambda: sc.fold(sc.Model), r"fold takes a model \(see load and from_arrays\), not the class Model$"),
    ],
)
def test_what_to_do_is_said(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_what_is_long_is_not_printed() -> None:
    assert brief("a" * 100) == "a str"
    assert brief(["\n"]) == r"['\n']"
    assert brief(Live()) == "a Live"
    assert need("fold", MODEL, sc.Model) is None


@pytest.mark.parametrize("tokens", [3, "x", type, {}, object()])
def test_tokens_for_an_architecture_are_read_as_for_a_model(tokens: Any) -> None:
    with pytest.raises(ValueError, match="tokens are whole numbers in a list or array of shape"):
        sc.verify(ARCH, tokens)
