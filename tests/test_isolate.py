"""Terms measured by running the frozen model with only some heads and one source kept."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import symcircuits as sc
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import Expansion, Term, expand
from symcircuits.model import frozen, matrices_of, random_model
from symcircuits.values.isolate import isolate
from symcircuits.verification.isolated import FIRST, LISTED, check_isolated
from tests.strategies import cases, examples

ARCH = sc.attention_only((2, 2))
TOKENS = [[3, 1, 4], [1, 5, 9]]


@examples(60)
@given(cases(max_terms=60, max_layers=3, max_heads=3))
def test_every_term_of_any_architecture_is_what_evaluate_gives(case: tuple[Architecture, str]) -> None:
    """Norms, MLPs, groups, all positions, some biases, multipliers, no scale, on a batch."""
    architecture, target = case
    expansion, run = expand(architecture, target), random_model(architecture, seed=1).run(TOKENS)
    for term, value in zip(expansion, sc.evaluate(expansion, run), strict=True):
        found = isolate(run, term)
        assert found.shape == value.shape
        assert np.abs(found - value).max() <= 1e-11 * (1 + np.abs(value).max()), term.label
    check = check_isolated([expansion], seed=3)
    assert check.passed, check.what
    assert (check.error, check.bound, check.details["sampled"]) == (0, 0, 0)


def test_attached_sources_and_readouts() -> None:
    model = random_model(sc.transformer((2, 2), norm="LN", mlps=True, biases=True), seed=2)
    rows = np.random.default_rng(0).standard_normal((2, len(TOKENS[0]), model.d_model))
    attached = model.with_(
        sc.source("feature 12", rows[0], 1), sc.source("part", rows[1], 1, of="mlp"),
        sc.source("push", rows[1], 1, of="added"), sc.readout(rows[0], name="probe", normed=True),
    )  # fmt: skip
    run = attached.run(TOKENS[0])
    for target in ("logits", "readout:probe", "scores:L1H1"):
        expansion = expand(attached.architecture, target)
        assert check_isolated([expansion]).passed
        for term, value in zip(expansion, sc.evaluate(expansion, run), strict=True):
            np.testing.assert_allclose(isolate(run, term), value, atol=1e-12)


def test_the_type_of_the_run_is_kept() -> None:
    run = random_model(ARCH, seed=1).run(TOKENS, np.float32)
    term = sc.logits(ARCH)[-1]
    found = isolate(run, term)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, list(sc.evaluate(sc.logits(ARCH), run))[-1], atol=1e-4)


def test_the_alternating_sum_is_that_of_runs_with_heads_removed() -> None:
    """Written out for the virtual head: X(both) - X(first) - X(second) + X(none)."""
    run = random_model(ARCH, seed=1).run(TOKENS)
    w = matrices_of(run)

    def kept(*heads: str) -> Any:
        off = {f"W_O_{h}": 0 * w[f"W_O_{h}"] for h in map(str, ARCH.all_heads) if h not in heads}
        return frozen(ARCH, {**w, **off}, _floats()).logits

    by_hand = kept("L0H1", "L1H0") - kept("L0H1") - kept("L1H0") + kept()
    [term] = [t for t in sc.logits(ARCH) if t.label == "embed -> L0H1 -> L1H0"]
    np.testing.assert_allclose(isolate(run, term), by_hand, atol=1e-13)


def _floats() -> Any:
    from symcircuits.arrays.rings import Floats

    return Floats()


def test_the_term_alone_says_what_is_measured_and_not_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A term whose word cannot be formed, and a walk that ends in an error, are measured all the same."""
    run, terms = random_model(ARCH, seed=1).run(TOKENS), list(sc.logits(ARCH))
    right = [isolate(run, term) for term in terms]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the machinery of the expansion was used")

    monkeypatch.setattr(Term, "word", property(refuse))
    for name in ("walk", "Matrices", "walk_marked"):
        monkeypatch.setattr(f"symcircuits.core.walk.{name}", refuse)
    for term, value in zip(terms, right, strict=True):
        assert np.array_equal(isolate(run, term), value)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"run": 3}, TypeError, r"isolate\(run, term\) takes a run"),
        ({"term": "embed"}, TypeError, r"isolate\(run, term\) takes a term"),
        ({"term": sc.logits(sc.attention_only((2, 3)))[0]}, ValueError, "this term is of .*heads 2,3.* is .*heads 2,2"),
        ({"max_runs": 3}, ValueError, "needs 4 runs of the frozen model, .*max_runs is 3"),
        ({"max_runs": 0}, ValueError, "max_runs must be a whole number, 1 or more, not 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    given_ = {"run": random_model(ARCH).run(TOKENS), "term": sc.logits(ARCH)[-1], **change}
    with pytest.raises(error, match=message):
        isolate(given_.pop("run"), given_.pop("term"), **given_)


def test_terms_with_nothing_held_fixed_are_not_measured() -> None:
    architecture = sc.transformer((1,), softmax=False)
    run = random_model(architecture).run(TOKENS)
    with pytest.raises(TypeError, match="takes a term"):
        isolate(run, next(iter(sc.logits(architecture).unfrozen())))  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------- the row of verify
def test_a_sample_is_said() -> None:
    deep = sc.attention_only((12,) * 12)
    check = check_isolated([sc.logits(deep), sc.scores(deep, "L0H3")])
    assert check.passed
    assert FIRST < check.details["sampled"] < LISTED
    assert f"{check.details['sampled']} of them a sample of targets with more than {LISTED:,} terms" in check.what


def test_of_a_sample_too_a_wrong_word_is_refused() -> None:
    deep = sc.attention_only((12,) * 12)
    swapped = {"L0H0": "L0H1"}

    def wrong(e: Expansion) -> Iterator[Term]:
        for term in e:
            path = term.paths[0]
            other = tuple(deep.head(swapped.get(str(h), str(h))) for h in path.heads)
            yield replace(term, paths=(path._replace(heads=other),)) if term.order else term

    class Called(Term):
        """A term with the word of another."""

        __slots__ = ("own",)
        word = property(lambda self: self.own.word)

    def misnamed(e: Expansion) -> Iterator[Term]:
        for term, other in zip(e, wrong(e), strict=False):
            called = Called(term.readout, term.paths)
            object.__setattr__(called, "own", other)
            yield called

    check = check_isolated([sc.logits(deep)], terms=misnamed)
    assert check.passed is False
    assert check.what.startswith("logits: embed -> L0H0 is not A[L0H1] @ ")


def test_nothing_measured_is_a_failure() -> None:
    check = check_isolated([sc.logits(ARCH)], terms=lambda e: iter(()))
    assert check.passed is False
    assert check.what == "logits: no term was looked at"


@pytest.mark.parametrize("number", range(9))
def test_a_missing_term_and_one_that_is_there_twice_are_seen(number: int) -> None:
    for times in (0, 2):
        terms = [t for i, t in enumerate(sc.logits(ARCH)) for _ in range(times if i == number else 1)]
        check = check_isolated([sc.logits(ARCH)], terms=lambda e, terms=terms: iter(terms))
        assert (check.passed, check.error) == (False, 1)
        assert check.what == "logits: the measured terms do not add up to the run with all heads and sources"
