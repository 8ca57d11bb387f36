"""What calls say of what they were given in place of what they take: one short TypeError, whatever it is."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symcircuits as sc
from symcircuits.checking.faults import ReadError
from symcircuits.core import text
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
    "invariances": [0], "isolate": [RUN, TERMS[1]],
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
def test_what_an_argument_by_name_does_not_take_is_refused_in_one_short_sentence(
    name: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No AttributeError or IndexError, and no words of Python's own about what cannot be gone through or multiplied."""
    monkeypatch.setattr("shutil.which", lambda _: None)  # what is taken for true does not run Coq
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


# ----------------------------------------------------------------------------------------- at the limits of words
def test_what_is_shown_whole_and_what_by_its_kind() -> None:
    """Up to 60 characters on one line; of a large object, or one of no plain kind, only what it is."""
    assert text.brief("a" * 58) == repr("a" * 58)
    assert text.brief("a" * 59) == "a str"
    assert text.brief("ab", 4) == "'ab'"
    assert text.brief("abc", 4) == "a str"
    assert text.brief("a\nb") == repr("a\nb")  # its repr is on one line
    assert text.brief(np.arange(3)) == "array([0, 1, 2])"
    assert text.brief(np.zeros((2, 2))) == text.brief(np.zeros(60)) == "a ndarray"
    assert text.brief([10**4400]) == "a list with a very long number in it"
    assert text.brief(10**4400) == "a int with a very long number in it"
    assert text.brief(np.zeros(2000)) == "a ndarray"  # its repr is short
    assert text.brief(np.zeros(59)[:0]) == "array([], dtype=float64)"
    for module in ("builders", "numpy_like"):  # of no library of arrays, whatever it says of its size
        small = type("Small", (), {"size": 1, "__module__": module, "__repr__": lambda self: "small"})()
        assert text.brief(small) == "a Small"
    assert text.brief(int) == "the class int"
    assert text.brief(object()) == "an object"
    assert text.brief(None) == "None"


def test_numbers_for_people() -> None:
    for number, said in (
        (0, "0"), (999, "999"), (1000, "1,000"), (10**60 - 1, ",".join(["999"] * 20)), (10**60, "about 1.0e60"),
        (25 * 10**60, "about 2.5e61"), (10**5000, "about 1.0e5000"),
    ):  # fmt: skip
        assert text.many(number) == said
        assert text.amount(number, "term") == f"{said} terms"
    assert text.amount(1, "term") == "1 term"


def test_bytes_for_people() -> None:
    for size, said in (
        (0, "0 bytes"), (1, "1 byte"), (1023, "1,023 bytes"), (1024, "0.000977 MiB"), (2**20, "1 MiB"),
        (99 * 2**20, "99 MiB"), (100 * 2**20, "100 MiB"), (2500 * 2**20, "2,500 MiB"),
        (2**69, "562,949,953,421,312 MiB"), (2**70, "1,125,899,906,842,624 MiB"), (2**300, "about 1.9e84 MiB"),
    ):  # fmt: skip
        assert text.mebibytes(size) == said


def test_whole_numbers_are_shown_by_their_digits_while_these_are_few() -> None:
    assert text.shown(10**18 - 1) == "9" * 18
    assert text.shown(10**18) == "1,000,000,000,000,000,000"
    assert text.shown(-(10**18)) == "-1,000,000,000,000,000,000"
    assert text.shown(1 - 10**18) == "-" + "9" * 18
    assert text.shown(np.int64(3)) == "3"
    assert text.shown(True) == "True"
    assert text.shown(1.5) == "1.5"


def test_places_are_counted_from_either_end() -> None:
    assert [text.place("row", n, 3) for n in (0, 2, -1, -3)] == [0, 2, 2, 0]
    assert [text.place("token", n, 3, negative=False) for n in (0, 2)] == [0, 2]
    for number, negative in ((3, True), (-4, True), (3, False), (-1, False)):
        with pytest.raises(ValueError, match=f"row {number} does not exist: there are 3, counted from 0"):
            text.place("row", number, 3, negative=negative)
    assert text.whole("k", 0, 0) == 0
    assert text.whole("k", -5) == -5
    with pytest.raises(ValueError, match="k must be a whole number, 1 or more, not 0"):
        text.whole("k", 0, 1)
    with pytest.raises(ValueError, match=r"k must be a whole number, not 1\.0"):
        text.whole("k", 1.0)


def test_seconds_are_a_number_from_0_on() -> None:
    for fine in (None, 0, 0.0, 1e-9, 10**6, float("inf")):
        text.seconds("max_seconds", fine)
    for wrong in (-1e-9, float("nan"), True, "1", 1j):
        with pytest.raises(ValueError, match="max_seconds must be seconds, 0 or more, not"):
            text.seconds("max_seconds", wrong)
    assert text.finite("x", 2) == 2.0
    for wrong in (float("inf"), float("nan"), True, "1", 10**400):
        with pytest.raises(ValueError, match="x must be a finite number, not"):
            text.finite("x", wrong)


def test_what_is_needed_is_made_of_what_was_given() -> None:
    """A hint where it is known how; of what is no object of ours, of classes and of strangers there is none."""
    arch = sc.attention_only((1,))
    model = sc.random_model(arch)
    run, expansion = model.run([1]), sc.logits(arch)
    tensors = type("Tensors", (), {"__module__": "symcircuits.model"})()  # types alone are looked at
    for given_there, kinds, hint in (
        (run, ["Architecture"], "give its .model.architecture"),
        (model, ["Architecture"], "give its .architecture"),
        (expansion, ["Architecture"], "give its .architecture"),
        (model, ["Architecture", "Model"], ""),
        (model, ["Run"], "give model.run(tokens)"),
        (expansion, ["Values"], "give evaluate(expansion, run)"),
        (expansion, ["Run"], ""),
        (run, ["Model"], "give its .model"),
        (tensors, ["Run"], "Tensors have arrays only"),
        (tensors, ["Model"], ""),
        (tensors, ["Architecture"], "give its .architecture"),
        (arch, ["Model"], "random_model(architecture) makes one of random weights"),
        (arch, ["Expansion"], "give logits(architecture)"),
        (arch, ["Run"], ""),
        ("folder", ["Model"], "a model is read from its folder by symcircuits.load(path)"),
        ("folder", ["Architecture"], "a model is read from its folder by symcircuits.load(path).architecture"),
        ("folder", ["Run"], "a model is read from its folder by symcircuits.load(path).run(tokens)"),
        ("folder", ["Term"], ""),
        (3, ["Model"], ""),
        (sc.Model, ["Model"], ""),
        (Live(), ["Model"], "a live model is read by symcircuits.load(model)"),
        (Live(), ["Run"], "a live model is read by symcircuits.load(model).run(tokens)"),
        (Live, ["Model"], ""),
    ):
        said = str(text.not_taken("call", given_there, kinds))
        assert said.partition("; ")[2] == hint, (given_there, kinds)
        assert said.startswith("call takes ")
