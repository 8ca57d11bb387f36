"""verify: it holds for what is right, and every mistake is refused by the checks that can see it."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.core import expansion as expanded
from symcircuits.core import programs as described
from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.attachments import Part, Reading
from symcircuits.core.expansion import Expansion, Term, expand
from symcircuits.core.paths import Path, Paths
from symcircuits.core.programs import Branch, Layer, Program, Readout, Source
from symcircuits.core.text import amount
from symcircuits.core.words import Factor, IllTyped, Word
from symcircuits.model import random_model
from symcircuits.tables.blocks import COMPOSITIONS
from symcircuits.values.evaluate import evaluate
from symcircuits.verification import every_head
from symcircuits.verification import prime_field as exact
from symcircuits.verification import rows as witnessed
from symcircuits.verification import verify as verification
from symcircuits.verification.every_head import check_every_head
from symcircuits.verification.isolated import check_isolated
from symcircuits.verification.names import SAMPLE, check_names, read_paths
from symcircuits.verification.printed_words import Printed
from symcircuits.verification.rows import (
    check_algebra,
    check_basis,
    check_lambdified,
    check_monomials,
    check_polynomial,
    check_transformer,
    check_types,
)
from symcircuits.verification.same_words import check_words
from symcircuits.verification.verify import ROWS, Check, Report, default_targets, verify
from tests.strategies import cases, examples

RECORD = sc.attention_only((3, 3))
DEEP = sc.attention_only((2, 2, 1))
EXACT = {
    "types", "same names", "same page", "same algebra", "same letters", "same words", "same polynomial",
    "isolated terms", "basis freedom",
}  # fmt: skip


def scaled(model: sc.Model) -> sc.Model:
    """The model with another score scale for each head, so that one cannot stand for another."""
    scales = {label: 0.4 + 0.05 * i for i, label in enumerate(model.score_scale)}
    return sc.Model(model.architecture, model.weights, scales)


@pytest.fixture(scope="module")
def runs() -> Callable[[Architecture], Any]:
    made: dict[Architecture, Any] = {}

    def run(arch: Architecture) -> Any:
        if arch not in made:
            made[arch] = scaled(random_model(arch, seed=1)).run([3, 1, 4, 1, 5])
        return made[arch]

    return run


# ------------------------------------------------------------------------------------------- what is right
# The rows of a model with softmax that has not too many terms.
ASKED_FOR = ("same letters", "same words", "every head", "proved", "proved by Lean")  # or for more terms
USUAL = [r for r in ROWS if r not in ASKED_FOR and not r.startswith("nothing frozen")]
KINDS: dict[str, dict[str, Any]] = {
    "the record": {"heads": (3, 3)},
    "12 + 12 heads": {"heads": (12, 12)},
    "zero layers": {"heads": ()},
    "layers without heads": {"heads": (0, 2, 0)},
    "no heads at all, position in queries and keys": {"heads": (0,), "positions": "shortformer"},
    "unequal": {"heads": (1, 3, 2)},
    "biases": {"heads": (2, 3), "biases": True},
    "some biases": {"heads": (2, 2), "biases": ["b_V[L0H1]", "b_O[L1]", "b_K", "b_U"]},
    "shortformer": {"heads": (2, 2), "positions": "shortformer"},
    "shortformer, biases": {"heads": (2, 1), "positions": "shortformer", "biases": True},
    "standard": {"heads": (2, 2), "positions": "standard", "biases": True},
    "no scale": {"heads": (2, 2), "scale": False},
    "bidirectional": {"heads": (2, 2), "causal": False},
    "without unembedding": {"heads": (2, 2), "unembed": False, "biases": True},
    "without most": {"heads": (2, 2), "unembed": False, "scale": False, "causal": False},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.sampled(6)
def test_what_is_right_holds(kind: dict[str, Any]) -> None:
    arch = sc.attention_only(**kind)
    report = verify(arch)
    assert report.ok, report
    assert all(c.passed is True for c in report.checks)
    targets = 1 + (sum(arch.heads) > 0)
    assert [c.name for c in report.checks] == [r for r in USUAL for _ in range(targets)]
    for c in report.checks:
        assert c.error is not None
        assert c.bound is not None
        if c.name in EXACT:
            assert (c.error, c.bound) == (0, 0)
        else:
            assert 0 <= c.error <= c.bound < 1e-12


def test_the_records_check_agrees_to_1e_12() -> None:
    """Vocabulary 11, d_model 16, d_head 4, 3 + 3 heads, 7 tokens: logits and scores, lambdified and fast."""
    for seed in range(3):
        report = verify(RECORD, seed=seed)
        assert report.ok
        floats = [c for c in report.checks if c.name.startswith("same transformer")]
        assert len(floats) == 4
        for c in floats:
            assert c.error < 1e-13
            assert c.bound < 1e-12
            assert (c.details["tokens"], c.details["dtype"]) == ([7], "float64")


def test_a_model_with_tokens() -> None:
    model = random_model(
        sc.attention_only((2, 2), "standard", True), d_vocab=5, d_head=9, d_model=4, n_context=3, seed=7
    )
    for tokens, shape in (([1, 2, 3], [3]), ([[0, 1], [4, 4]], [2, 2]), ([2], [1]), (None, [3])):
        report = verify(model, tokens)
        assert report.ok, report
        assert {tuple(c.details["tokens"]) for c in report.checks if "tokens" in c.details} == {tuple(shape)}
    assert report.subject == model.name


@pytest.mark.parametrize("weight_scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(
    ("d_model", "d_head", "heads", "tokens"),
    [(64, 1, (2, 2), 32), (16, 1, (3, 3), 7), (256, 4, (2, 2), 32), (16, 2, (1,), 7)],
)
def test_a_small_d_head(d_model: int, d_head: int, heads: tuple[int, ...], tokens: int, weight_scale: float) -> None:
    """q and k are small by cancellation, and W_QK is far larger than they are."""
    sizes = {"d_model": d_model, "d_head": d_head, "weight_scale": weight_scale}
    report = verify(random_model(sc.attention_only(heads), **sizes), np.arange(tokens) % 11)
    assert report.ok, report


def test_one_word_vocabulary() -> None:
    assert verify(random_model(RECORD, d_vocab=1, d_model=1, d_head=3), [0, 0]).ok


def test_a_float32_model_is_verified_in_float64() -> None:
    model = random_model(RECORD)
    weights = {k: v.astype(np.float32) for k, v in model.weights.items()}
    report = verify(sc.Model(RECORD, weights, model.score_scale), [1, 2, 3])
    assert report.ok
    assert all(c.bound < 1e-12 for c in report.checks)


def test_chosen_targets() -> None:
    report = verify(RECORD, targets=["scores:L1H2", "stream", "scores:L1H2"])
    assert report.ok
    assert {c.target for c in report.checks} == {"scores of L1H2", "stream"}
    assert {c.target for c in verify(RECORD, targets="logits").checks} == {"logits"}


@pytest.mark.parametrize(
    ("subject", "how", "error", "message"),
    [
        (RECORD, {"targets": ["scores:L2H0"]}, ValueError, "there is no head L2H0"),
        (RECORD, {"targets": ["loss"]}, ValueError, "unknown target 'loss'"),
        (RECORD, {"targets": []}, ValueError, "no targets"),
        (sc.attention_only((1,), unembed=False), {"targets": ["logits"]}, ValueError, "no unembedding"),
        (RECORD, {"tokens": [11]}, ValueError, "11"),
        (RECORD, {"tokens": []}, ValueError, "token"),
        (RECORD, {"tokens": [0.5]}, ValueError, "0.5"),
        ((3, 3), {}, TypeError, "an architecture .* or a model .*, not"),
    ],
)
def test_bad_input_is_refused(subject: Any, how: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        verify(subject, **how)


# -------------------------------------------------------------------------------------------- above the limit
def test_rows_above_the_limit_say_why_and_the_others_run() -> None:
    report = verify(RECORD, max_terms=10)
    rows = {(c.name, c.target): c for c in report.checks}
    for name in ("types", "same algebra", "same transformer, lambdified"):
        row = rows[name, "logits"]
        assert (row.passed, row.error, row.bound) == (None, None, None)
        assert row.what == "16 terms or more, the limit is 10"
    assert rows["same letters", "logits"].passed  # by commuting polynomials
    for name in ("same polynomial", "basis freedom", "same transformer"):
        assert rows[name, "logits"].passed
    assert "too many terms to list" in rows["same polynomial", "logits"].what
    scores = next(c for (name, target), c in rows.items() if name == "types" and target.startswith("scores"))
    assert scores.passed  # the three heads of the first layer; those of the second are left out, and it says so
    assert scores.what == "3 words accepted by the rules of types; not scores:L1H0 and 2 more: above the limit"
    assert report.ok
    assert re.search(r"all checks passed, 3 rows not run \(", report.text())


def test_twelve_layers_of_twelve_heads_by_the_walk() -> None:
    group = [expand(sc.attention_only((12,) * 12), "scores:L11H11")]
    run = random_model(group[0].architecture).run([1, 2, 3])
    for check in (check_polynomial(group, trials=1), check_basis(group), check_transformer(group, run)):
        assert check.passed, check
    for check in (check_types(group), check_algebra(group), check_lambdified(group, run)):
        assert check.passed is None
        assert f"{13**22:,} terms or more" in check.what
    assert check_monomials(group) is None


def test_sympy_proves_2197_terms() -> None:
    check = check_algebra([sc.logits(sc.attention_only((12, 12, 12)))])
    assert check.passed
    assert check.details["terms"] == 2197


def test_large_models_are_represented_by_one_head_a_layer() -> None:
    assert default_targets(RECORD) == ["logits", *(f"scores:L{i}H{j}" for i in range(2) for j in range(3))]
    assert default_targets(sc.attention_only((12, 0, 12, 12))) == ["logits", *(f"scores:L{i}H11" for i in (0, 2, 3))]
    assert default_targets(sc.attention_only((), unembed=False)) == ["stream"]


# --------------------------------------------------------------------- every head, where one stands for its layer
LARGE = sc.attention_only((8, 8, 8))


def early(head: Head, side: str = "K") -> Any:
    """One head's keys (or queries) read the stream one layer too early."""

    def wrap(program: Any) -> Any:
        def planted(arch: Architecture, h: Head, s: str) -> Program:
            right = program(arch, h, s)
            return (*right[:-2], right[-1]) if (h, s) == (head, side) else right

        return planted

    return "_side_program", wrap


def swapped(head: Head) -> Any:
    """One head's scores have query and key exchanged."""
    return readouts(lambda r: replace(r, sides=r.sides[::-1]) if r.target == f"scores:{head}" else r)


def of_its_neighbour(head: Head) -> Any:
    """One head's readout is the next one's, under its name."""
    return (
        "_side_program",
        lambda program: lambda arch, h, s: program(arch, other(arch, h) if h == head else h, s),
    )


@pytest.mark.parametrize("plant", [early, swapped, of_its_neighbour])
@pytest.mark.parametrize("arch", [LARGE, sc.attention_only((2, 2, 2))], ids=["large", "small"])
@pytest.mark.sampled(3)
def test_a_fault_of_one_head_is_seen_whatever_stands_for_it(arch: Architecture, plant: Any, mutate: Any) -> None:
    """Planted where no other row of a large model looks: one head of the last layer, not the one that stands for it."""
    head = Head(2, arch.heads[2] - 2)
    mutate(*plant(head))
    report = verify(arch)
    failed = {c.name: c.what for c in report.checks if c.passed is False}
    assert not report.ok
    assert set(failed) == {"every head"} if arch is LARGE else "same polynomial" in failed
    assert any(f"scores:{head}" in what for what in failed.values())


@pytest.mark.parametrize("layer", range(3))
@pytest.mark.parametrize("number", [0, 3, 6])
def test_no_head_is_left_out(layer: int, number: int, mutate: Any) -> None:
    head = Head(layer, number)
    mutate(*of_its_neighbour(head))
    check = check_every_head(LARGE, LARGE.all_heads, LARGE.all_heads[7::8])
    assert check.passed is False
    assert f"scores:{head}" in check.what


def test_the_number_of_terms_is_told_by_the_forward_pass(mutate: Any) -> None:
    mutate(*early(Head(2, 3)))
    check = check_every_head(LARGE, LARGE.all_heads, ())
    assert check.what == "scores:L2H3 has 729 terms by the walk, by the forward pass in ones 6,561"


@pytest.mark.parametrize(("name", "said"), [("softmax_invisible", True), ("composition", "Q"), ("label", "embed")])
def test_first_words_are_looked_at(name: str, said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has the right number and value, but not the right names."""
    monkeypatch.setattr(Term, name, property(lambda self: said))
    assert check_every_head(LARGE, LARGE.all_heads, ()).passed is False


def test_what_is_too_much_for_polynomials_is_told_by_its_letters() -> None:
    """Of scores the heads of both sides have letters, and so has what reads: none of it is a number of heads."""
    row = check_monomials([sc.logits(sc.attention_only((6000,)))])
    assert row is not None
    assert (row.passed, row.what) == (None, "6,001 terms are too many for polynomials in 6,001 letters or more")


def test_what_was_sampled_is_named() -> None:
    report = verify(LARGE)
    assert report.ok
    [row] = [c for c in report.checks if c.name == "every head"]
    assert row.target == "scores of L0H0 ... L2H7 (24 heads)"
    assert row.what.startswith("each of 24 heads: as many terms as the forward pass in ones, its first terms")
    assert row.what.endswith("in the other rows L0H7, L1H7, L2H7 represent their layers")
    assert row.details["sampled"] == ["L0H7", "L1H7", "L2H7"]
    alone = check_every_head(LARGE, LARGE.all_heads, (Head(1, 7),)).what
    assert alone.endswith("in the other rows L1H7 represents its layer")
    assert "every head" in report.text()
    assert not [c for c in verify(RECORD).checks if c.name == "every head"]  # all were looked at in all rows


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_head_of_what_is_right(kind: dict[str, Any]) -> None:
    arch = sc.attention_only(**kind)
    if arch.all_heads:
        assert check_every_head(arch, arch.all_heads, ()).passed


FEATURES: list[dict[str, Any]] = [
    {"norm": "LN", "mlps": True, "biases": True, "positions": "standard"},
    {"norm": "RMS", "qk_norm": True, "positions": "rotary", "groups": (1, 2)},
    {"mlps": True, "bilinear": True, "gated": True, "softmax": False, "multipliers": True},
    {"parallel": True, "mlps": [0], "biases": True, "positions": "alibi"},
]


@pytest.mark.parametrize("features", FEATURES, ids=lambda f: " ".join(f))
def test_every_head_with_every_feature(features: dict[str, Any]) -> None:
    arch = sc.transformer((2, 2), **features)
    own = Part("feature", 1), Part("steering", 1, "added"), Reading("probe", 1)
    for each in (arch, arch.attached(*own)):
        assert check_every_head(each, each.all_heads, ()).passed


def test_heads_beyond_the_work_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_head, "WORK", 100)
    check = check_every_head(LARGE, LARGE.all_heads, ())
    assert check.passed
    assert "of 5 heads among them the first terms" in check.what


# ------------------------------------------------------------------------------------- a row that cannot be made
@pytest.mark.parametrize(
    "fault", [ZeroDivisionError("by zero"), RecursionError(), MemoryError("4 GB\nmore"), KeyError("A")]
)
@pytest.mark.parametrize("row", ["check_types", "check_basis", "check_lambdified", "check_layers", "check_every_head"])
def test_an_exception_in_a_row_fails_that_row(row: str, fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> Check:
        raise fault

    monkeypatch.setattr(verification, row, broken)
    monkeypatch.setattr(verification, "TOTAL_LIMIT", 10)
    report = verify(random_model(sc.attention_only((2, 2)), seed=1))
    failed = [c for c in report.checks if c.passed is False]
    assert failed
    assert not report.ok
    assert len({c.name for c in failed}) == 1
    assert all(c.what.startswith(type(fault).__name__) and "\n" not in c.what for c in failed)
    json.dumps(report.json(), allow_nan=False)
    assert "FAIL" in report.text()


def test_the_chance_of_a_false_pass_is_that_of_the_lemma() -> None:
    check = check_polynomial([sc.logits(RECORD)])
    details = check.details
    assert (details["degree"], details["trials"], details["k"], details["p"]) == (9, 2, [5, 5], 2**31 - 1)
    assert details["false_pass"] == (9 / (2**31 - 1)) ** 2
    assert details["listed"] == 16
    assert check_polynomial([sc.logits(RECORD)], trials=1).details["false_pass"] == 9 / (2**31 - 1)


# ----------------------------------------------------------------------------------------------- the report
def test_the_report_as_data() -> None:
    found = json.loads(json.dumps(verify(RECORD).json(), allow_nan=False))
    assert (found["ok"], found["schema"]) == (True, "symcircuits.verify/1")
    assert len(found["checks"]) == 2 * len(USUAL) == 18  # of logits and of scores
    for check in found["checks"]:
        assert {"name", "passed", "error", "bound"} <= set(check)
        assert check["passed"] is True
    assert len({c["name"] for c in found["checks"]}) == 18


def test_ok_only_if_all_hold() -> None:
    def report(*passed: bool | None) -> Report:
        return Report("x", tuple(Check("types", "logits", p, 0, 0, "") for p in passed), 0.0)

    assert report(True, None, True).ok
    assert not report(True, False).ok
    assert not report(None, False).ok
    assert not report(None, None).ok  # nothing was asked
    assert not report().ok


def test_what_is_no_number_is_no_number_in_json() -> None:
    row = Check("same transformer", "logits", False, float("nan"), float("inf"), "").json()
    assert (row["error"], row["bound"]) == (None, None)
    json.dumps(row, allow_nan=False)


def test_progress_names_every_row() -> None:
    said: list[tuple[str, int, int]] = []
    report = verify(sc.attention_only((1,)), progress=lambda *step: said.append(step))
    assert sorted(what for what, _, _ in said) == sorted(f"{c.name}: {c.target}" for c in report.checks)
    assert all(0 < done <= total for _, done, total in said)
    assert [done for _, done, _ in said] == sorted(done for _, done, _ in said)


# ------------------------------------------------------------------------------------------ corrupted terms
@dataclass(frozen=True, eq=False)
class Loose(Term):
    """A term whose word nobody checked yet; ``checked`` ones are typed when they are looked at, as terms are.

    What is ``said`` of it (composition, orders, label, softmax_invisible) may differ from what its paths say.
    """

    factors: tuple[Factor, ...]
    scales: tuple[str, ...]
    said: tuple[tuple[str, Any], ...] = ()
    checked: bool = False

    def saying(self, **said: Any) -> "Loose":
        return replace(self, said=(*self.said, *said.items()))

    def __eq__(self, other: object) -> bool:
        """As a term its paths tell it from others: so nothing but what the rows look at is wrong."""
        return isinstance(other, Term) and (self.readout, self.paths) == (other.readout, other.paths)

    __hash__ = Term.__hash__

    @property
    def word(self) -> Word:
        if self.checked:
            return Word(self.factors, self.scales)
        word = object.__new__(Word)
        object.__setattr__(word, "factors", self.factors)
        object.__setattr__(word, "scales", self.scales)
        return word

    def _say(self, name: str) -> Any:
        return dict(self.said).get(name, getattr(Term(self.readout, self.paths), name))

    composition = property(lambda self: self._say("composition"))
    orders = property(lambda self: self._say("orders"))
    label = property(lambda self: self._say("label"))
    softmax_invisible = property(lambda self: self._say("softmax_invisible"))


def loose(expansion: Expansion) -> list[Loose]:
    return [Loose(t.readout, t.paths, t.word.factors, t.word.scales) for t in Expansion.__iter__(expansion)]


Edit = Callable[[Loose], list[Loose]]


def exchange(old: str, new: str) -> Edit:
    """Put a run of factors in the place of another, both in text notation with nothing abbreviated."""

    def edit(term: Loose) -> list[Loose]:
        expansions = [sc.logits(DEEP), *(sc.scores(DEEP, h) for h in ("L1H0", "L2H0"))]
        known = {f.symbol.text: f.symbol for e in expansions for t in loose(e) for f in t.factors}
        texts, wanted = [f.text for f in term.factors], old.split(" @ ")
        places = [i for i in range(len(texts)) if texts[i : i + len(wanted)] == wanted]
        assert len(places) == 1, (old, texts)
        put = [Factor(known[s.removesuffix(".T")], s.endswith(".T")) for s in new.split(" @ ") if s]
        i = places[0]
        return [replace(term, factors=(*term.factors[:i], *put, *term.factors[i + len(wanted) :]))]

    return edit


def then(*edits: Edit) -> Edit:
    def edit(term: Loose) -> list[Loose]:
        for e in edits:
            (term,) = e(term)
        return [term]

    return edit


def corrupted(expansion: Expansion, edit: Edit, number: int = -1) -> list[Loose]:
    """All terms, one of them (the last) edited."""
    terms = loose(expansion)
    number %= len(terms)
    return [*terms[:number], *edit(terms[number]), *terms[number + 1 :]]


# The last logit term of DEEP: A[L2H0] @ A[L1H1] @ A[L0H1] @ X0 @ W_OV[L0H1].T @ W_OV[L1H1].T @ W_OV[L2H0].T @ W_U.T.
# The last score term of L2H0: A[L1H1] @ A[L0H1] @ X0 @ W_OV[L0H1].T @ W_OV[L1H1].T @ W_QK[L2H0] @ (the same).T.
OV = "W_V[{0}].T @ W_O[{0}].T"
SWAP_VALUES = exchange(f"{OV.format('L0H1')} @ {OV.format('L1H1')}", f"{OV.format('L1H1')} @ {OV.format('L0H1')}")
SWAP_PATTERNS = exchange("A[L1H1] @ A[L0H1]", "A[L0H1] @ A[L1H1]")
# types, same Names, same Algebra, same Letters, same Polynomial, Basis freedom, same transformer, lambdified (X)
ALL = "tNALPBX"
TABLE: dict[str, tuple[str, Edit, str]] = {
    # what is wrong: (target, edit, which checks see it)
    "drop": ("both", lambda t: [], " NALP X"),
    "double": ("both", lambda t: [t, t], " NALP X"),
    "transpose W_OV": ("both", exchange(OV.format("L0H1"), "W_O[L0H1] @ W_V[L0H1]"), "tNALPBX"),
    "swap the values": ("both", SWAP_VALUES, "tNA P X"),
    "swap the patterns": ("both", SWAP_PATTERNS, "tNA P X"),
    "reverse a chain": ("both", then(SWAP_VALUES, SWAP_PATTERNS), "tNA P X"),
    "mislabel the composition": ("both", lambda t: [t.saying(composition="none")], " NAL   "),
    "mislabel the orders": ("both", lambda t: [t.saying(orders=tuple(n + 1 for n in t.orders))], " NAL   "),
    "another head's pattern": ("both", exchange("A[L0H1]", "A[L0H0]"), "tNALP X"),
    "another head's W_OV": ("both", exchange(OV.format("L0H1"), OV.format("L0H0")), "t ALP X"),
    "another head's W_V": ("both", exchange("W_V[L0H1].T", "W_V[L0H0].T"), "tNALPBX"),
    "another head altogether": (
        "both", then(exchange("A[L0H1]", "A[L0H0]"), exchange(OV.format("L0H1"), OV.format("L0H0"))), " NALP X",
    ),
    "a pattern dropped": ("both", exchange("A[L0H1] @ t", "t"), "tNALP X"),
    "a pattern transposed": ("both", exchange("A[L0H1]", "A[L0H1].T"), "tNALP X"),
    "forget the scale": ("scores", lambda t: [replace(t, scales=())], "t ALP X"),
    "the scale twice": ("scores", lambda t: [replace(t, scales=t.scales * 2)], "t ALP X"),
    "another head's scale": ("scores", lambda t: [replace(t, scales=("L1H0",))], "t ALP X"),
    "transpose W_QK": ("scores", exchange("W_Q[L2H0].T @ W_K[L2H0]", "W_K[L2H0].T @ W_Q[L2H0]"), "tNALP X"),
    "the key side's W_OV transposed": ("scores", exchange("W_O[L0H1] @ W_V[L0H1]", OV.format("L0H1")), "tNALPBX"),
    "another head's W_QK": (
        "scores", exchange("W_Q[L2H0].T @ W_K[L2H0]", "W_Q[L1H0].T @ W_K[L1H0]"), "tNALP X",
    ),
    "W_QK where W_U is": ("logits", exchange("W_U.T", "W_Q[L2H0].T @ W_K[L2H0]"), "tNALPB-"),
}  # fmt: skip
CASES = [
    pytest.param(target, edit, sees, id=f"{name}, {target.partition(':')[0]}")
    for name, (which, edit, sees) in TABLE.items()
    for target in ("logits", "scores:L2H0")
    if which in ("both", target.partition(":")[0])
]


def outcome(check: Callable[[], Check | None]) -> bool:
    """Whether a check refuses."""
    found = check()
    assert found is not None
    assert found.passed is not None
    assert found.passed or found.error > 0  # what fails says how much differs
    assert found.passed or found.error > found.bound
    return not found.passed


def names_refuse(group: list[Expansion], wrong: list[Loose]) -> bool:
    """Whether the row of names refuses terms, or one of their words cannot be read as it is ill-typed."""
    try:
        return outcome(lambda: check_names(group, terms=lambda e: iter([replace(t, checked=True) for t in wrong])))
    except IllTyped:
        return True


def lines_of(terms: list[Loose]) -> Printed:
    """Terms as they would be printed."""
    orders = np.array([t.orders for t in terms]).T
    types = np.array([COMPOSITIONS.index(t.composition) for t in terms])
    return Printed("".join(t.word.text + "\n" for t in terms).encode(), tuple(orders), types)


@pytest.mark.parametrize(("target", "edit", "sees"), CASES)
def test_what_each_check_sees(target: str, edit: Edit, sees: str, runs: Any) -> None:
    """The table: which check refuses which mistake, and which cannot see it; each is refused by some check."""
    expansion = expand(DEEP, target)
    wrong = corrupted(expansion, edit)
    group = [expansion]

    def terms(e: Expansion) -> Iterable[Any]:
        return iter(wrong)

    found = [
        outcome(lambda: check_types(group, terms=[replace(t, checked=True) for t in wrong])),
        names_refuse(group, wrong),
        outcome(lambda: check_algebra(group, terms=terms)),
        outcome(lambda: check_monomials(group, (0, 1000), terms=terms)),
        outcome(lambda: check_polynomial(group, terms=terms)),
        outcome(lambda: check_basis(group, terms=terms)),
    ]
    assert outcome(lambda: check_words(group, lines=lambda e: [lines_of(wrong)]))  # sees each of them
    assert outcome(lambda: check_isolated(group, terms=terms)) is (sees[4] == "P")  # what changes a value
    if sees[6] != "-":  # where NumPy itself refuses the shapes
        found.append(outcome(lambda: check_lambdified(group, runs(DEEP), terms=terms)))
    seen = "".join(letter if refused else " " for letter, refused in zip(ALL, found, strict=False))
    assert seen.ljust(7, "-") == sees
    assert sees.strip()


@pytest.mark.parametrize("target", ["logits", "scores:L2H0"])
def test_terms_left_alone_hold(target: str, runs: Any) -> None:
    """The same road with nothing corrupted: so it is the corruption that is refused."""
    group = [expand(DEEP, target)]

    def terms(e: Expansion) -> Iterable[Any]:
        return iter(loose(e))

    assert check_types(group, terms=[replace(t, checked=True) for t in loose(group[0])]).passed
    assert not names_refuse(group, loose(group[0]))
    for check in (check_names, check_algebra, check_polynomial, check_basis, check_isolated):
        assert check(group, terms=terms).passed
    assert check_monomials(group, (0, 1000), terms=terms).passed
    assert check_words(group, lines=lambda e: [lines_of(loose(e))]).passed
    assert check_lambdified(group, runs(DEEP), terms=terms).passed


@pytest.mark.parametrize(("target", "edit", "sees"), CASES)
@pytest.mark.sampled(12)
def test_verify_refuses_every_corruption(target: str, edit: Edit, sees: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the enumeration itself corrupted, the report is not ok, and it says which rows fail."""
    wrong = [replace(t, checked=True) for t in corrupted(expand(DEEP, target), edit)]
    monkeypatch.setattr(Expansion, "__iter__", lambda self: iter(wrong))
    report = verify(DEEP, targets=[target])
    assert not report.ok
    assert "FAIL" in report.text()
    assert not report.json()["ok"]
    failed = {c.name for c in report.checks if c.passed is False}
    assert "same algebra" in failed  # SymPy sees each of them, types of composition too
    assert ("same names" in failed) is (sees[1] == "N")
    if sees[4] == "P":
        assert {"same polynomial", "isolated terms"} <= failed


@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
@pytest.mark.parametrize("edit", [lambda t: [], lambda t: [t, t]], ids=["dropped", "doubled"])
def test_every_single_term_counts(target: str, edit: Edit) -> None:
    """Of 3 + 3 heads: each dropped and each doubled term is seen by SymPy and in the prime field."""
    expansion = expand(RECORD, target)
    assert expansion.count == 16
    for i in range(16):
        wrong = corrupted(expansion, edit, i)
        assert len(wrong) in (15, 17)
        algebra = check_algebra([expansion], terms=lambda e, wrong=wrong: iter(wrong))
        assert (algebra.passed, algebra.error) == (False, 1)
        polynomial = check_polynomial([expansion], trials=1, terms=lambda e, wrong=wrong: iter(wrong))
        assert polynomial.passed is False
        assert polynomial.error == polynomial.details["k"][0] ** 2  # in every entry


def test_a_fault_is_shown_by_example() -> None:
    expansion = sc.logits(RECORD)
    dropped = check_algebra([expansion], terms=lambda e: loose(e)[1:])
    assert dropped.what == "logits: missing here: t @ W_E.T @ W_U.T (none)"
    doubled = check_algebra([expansion], terms=lambda e: [loose(e)[0], *loose(e)])
    assert doubled.what == "logits: not in SymPy's result: t @ W_E.T @ W_U.T (none)"
    polynomial = check_polynomial([expansion], terms=lambda e: loose(e)[1:])
    assert polynomial.what.startswith("logits: the sum of the terms differs from the forward pass in 25 of 25 entries")


# ------------------------------------------------------------------------------------ corrupted evaluations
VALUE_EDITS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "drop": lambda v: v[:-1],
    "drop the first": lambda v: v[1:],
    "double": lambda v: [*v, v[-1]],
    "another term": lambda v: [*v[:-1], v[-2]],
    "a sign": lambda v: [*v[:-1], -v[-1]],
    "forget the scale": lambda v: [*v[:-1], v[-1] * 2],
    "transpose": lambda v: [*v[:-1], v[-1].T if v[-1].shape[0] == v[-1].shape[1] else v[-1][::-1]],
    "a token late": lambda v: [*v[:-1], np.roll(v[-1], 1, axis=0)],
    "no number": lambda v: [*v[:-1], v[-1] * np.nan],
    "infinite": lambda v: [*v[:-1], v[-1] / 0.0],
    "nothing": lambda v: [],
}


@pytest.mark.parametrize("edit", VALUE_EDITS.values(), ids=VALUE_EDITS)
@pytest.mark.parametrize("target", ["logits", "stream", "scores:L2H0"])
def test_a_wrong_evaluation_is_refused(target: str, edit: Callable[[list[Any]], list[Any]], runs: Any) -> None:
    group, run = [expand(DEEP, target)], runs(DEEP)

    def values(e: Expansion) -> Iterator[Any]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return iter(edit(list(evaluate(e, run))))

    assert check_transformer(group, run).passed
    assert check_transformer(group, run, values=lambda e: iter(evaluate(e, run))).passed
    check = check_transformer(group, run, values=values)
    assert check.passed is False
    assert check.what.startswith(f"{target}: the model differs from")


@pytest.mark.parametrize("i", range(16))
@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
def test_every_single_value_counts(target: str, i: int, runs: Any) -> None:
    group, run = [expand(RECORD, target)], runs(RECORD)

    def dropped(e: Expansion) -> Iterator[Any]:
        return (v for j, v in enumerate(evaluate(e, run)) if j != i)

    assert check_transformer(group, run, values=dropped).passed is False


def test_one_wrong_head_among_many_is_the_one_reported(runs: Any) -> None:
    run, group = runs(RECORD), [sc.scores(RECORD, h) for h in RECORD.all_heads]

    def values(e: Expansion) -> Iterator[Any]:
        found = evaluate(e, run)
        return (v * 1.001 for v in found) if e.target == "scores:L1H1" else iter(found)

    check = check_transformer(group, run, values=values)
    assert check.passed is False
    assert check.details["worst"] == "scores:L1H1"


# --------------------------------------------------------------------------------- corrupted architectures
@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Any], None]]:
    """Put something else in the place of a part of the description; models are left as they are."""
    exact._all_symbols.cache_clear()

    def put(name: str, wrap: Any) -> None:
        monkeypatch.setattr(described, name, wrap(getattr(described, name)))

    yield put
    exact._all_symbols.cache_clear()


def branches(edit: Callable[[Architecture, Branch], Branch]) -> Any:
    """Edit every head of every layer."""

    def wrap(layer_of: Any) -> Any:
        def layer(arch: Architecture, number: int) -> Layer:
            right = layer_of(arch, number)
            return replace(right, branches=tuple(edit(arch, b) for b in right.branches))

        return layer

    return "_block", wrap


def sources(edit: Callable[[Source], list[Source]]) -> Any:
    """Edit every source that enters in a layer."""

    def wrap(layer_of: Any) -> Any:
        def layer(arch: Architecture, number: int) -> Layer:
            right = layer_of(arch, number)
            return replace(right, sources=tuple(chain.from_iterable(edit(s) for s in right.sources)))

        return layer

    return "_block", wrap


def layers(edit: Callable[[Layer], Layer]) -> Any:
    return "_block", lambda layer_of: lambda arch, number: edit(layer_of(arch, number))


def readouts(edit: Callable[[Readout], Readout]) -> Any:
    return "Readout", lambda make: lambda *args: edit(make(*args))


def programs(edit: Callable[[Any, Architecture, int], Program]) -> Any:
    return "stream_program", lambda program: lambda arch, n: edit(program, arch, n)


def other(arch: Architecture, head: Head) -> Head:
    return Head(head[0], (head[1] + 1) % arch.heads[head[0]])


def transposed_ov(arch: Architecture, b: Branch) -> Branch:
    return replace(b, right=tuple(f.T for f in reversed(b.right)))


def of_another_head(glyph: str) -> Callable[[Architecture, Branch], Branch]:
    def edit(arch: Architecture, b: Branch) -> Branch:
        assert b.head is not None
        head = other(arch, b.head)
        if glyph == "A":
            return replace(b, left=(Factor(described.pattern(head)), *b.left[1:]))
        new = described.weight(arch, glyph, head).T
        return replace(b, right=tuple(new if f.symbol.glyph == glyph else f for f in b.right))

    return edit


BIASED = sc.attention_only((2, 2), "standard", True)
SHORT = sc.attention_only((2, 2), "shortformer", True)
PLAIN = sc.attention_only((2, 2))
NORMED = sc.transformer((2, 2), None, True, norm="LN", mlps=True)
GROUPED = sc.transformer((2, 4), None, True, groups=(1, 2))


def norms(edit: Callable[[Any], Any]) -> Any:
    """Edit what every norm is to the algebra."""
    return "norm", lambda norm: lambda arch, label, point: edit(norm(arch, label, point))


def destination_side(arch: Architecture, b: Branch) -> Branch:
    return replace(b, left=b.left[::-1])


MUTATIONS: dict[str, tuple[Architecture, Any]] = {
    "W_OV transposed": (PLAIN, branches(transposed_ov)),
    "another head's pattern": (PLAIN, branches(of_another_head("A"))),
    "another head's W_V": (PLAIN, branches(of_another_head("W_V"))),
    "another head's W_O": (PLAIN, branches(of_another_head("W_O"))),
    "a pattern transposed": (PLAIN, branches(lambda a, b: replace(b, left=(b.left[0].T,)))),
    "a pattern missing": (PLAIN, branches(lambda a, b: replace(b, left=()))),
    "patterns and values exchanged in place": (PLAIN, branches(lambda a, b: replace(b, left=b.right, right=b.left))),
    "W_V and W_O in reverse": (PLAIN, branches(lambda a, b: replace(b, right=b.right[::-1]))),
    "layers in reverse": (PLAIN, programs(lambda p, a, n: (p(a, n)[0], *p(a, n)[:0:-1]))),
    "no skip connection": (PLAIN, layers(lambda layer: replace(layer, skip=False))),
    "a head missing": (PLAIN, layers(lambda layer: replace(layer, branches=layer.branches[1:]))),
    "the scale missing": (PLAIN, readouts(lambda r: replace(r, scale=""))),
    "another head's scale": (
        PLAIN, readouts(lambda r: replace(r, scale=r.scale and r.scale.replace("H0", "H1"))),
    ),
    "query and key swapped": (PLAIN, readouts(lambda r: replace(r, sides=r.sides[::-1]))),
    "the key side twice": (PLAIN, readouts(lambda r: replace(r, sides=r.sides[-1:] * len(r.sides)))),
    "scores read a layer too late": (
        PLAIN, ("_side_program", lambda side: lambda a, h, s: side(a, h, s)[:1] + side(a, Head(h.layer, 0), s)[2:]),
    ),
    "b_V dropped": (BIASED, sources(lambda s: [] if s.kind == "b_V" else [s])),
    "b_V not moved by its pattern": (BIASED, sources(lambda s: [replace(s, left=())])),
    "b_V of another head": (
        BIASED, sources(lambda s: [replace(s, left=(s.left[0].T,))] if s.kind == "b_V" else [s]),
    ),
    "b_O dropped": (BIASED, sources(lambda s: [] if s.kind == "b_O" else [s])),
    "b_O doubled": (BIASED, sources(lambda s: [s, replace(s, name=s.name + "'")] if s.kind == "b_O" else [s])),
    "position dropped": (BIASED, programs(lambda p, a, n: p(replace(a, positions=None), n))),
    "shortformer position in values too": (SHORT, programs(lambda p, a, n: p(replace(a, positions="standard"), n))),
    "shortformer position dropped": (
        SHORT, ("_side_program", lambda side: lambda a, h, s: side(replace(a, positions=None), h, s)),
    ),
    "b_Q and b_K dropped": (
        SHORT, ("_side_program", lambda side: lambda a, h, s: side(replace(a, biases=frozenset()), h, s)),
    ),
    "norms on the destination side": (NORMED, branches(destination_side)),
    "norms dropped": (NORMED, norms(lambda n: replace(n, left=()))),
    "gain and centring exchanged": (NORMED, norms(lambda n: replace(n, right=n.right[::-1]))),
    "the gain dropped": (NORMED, norms(lambda n: replace(n, right=n.right[:1]))),
    "the centring dropped": (NORMED, norms(lambda n: replace(n, right=n.right[1:]))),
    "another layer's norm": (NORMED, ("norm", lambda norm: lambda a, label, point: norm(a, "final", point))),
    "b_N dropped": (NORMED, ("_reading", lambda read: lambda a, *rest: read(replace(a, bias=()), *rest))),
    "b_N in heads dropped": (NORMED, sources(lambda s: [] if s.kind == "b_N" else [s])),
    "what an MLP writes dropped": (NORMED, sources(lambda s: [] if s.kind == "mlp" else [s])),
    "keys and values of another group": (
        GROUPED, ("weight", lambda w: lambda a, g, h: w(a, g, h if g in ("W_O", "W_Q") else Head(h.layer, 3 - h.number))
                  if h.layer else w(a, g, h)),
    ),
}  # fmt: skip


def groups_of(arch: Architecture) -> list[list[Expansion]]:
    return [[expand(arch, "logits")], [expand(arch, f"scores:{h}") for h in arch.all_heads]]


@pytest.mark.parametrize(("arch", "mutation"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_wrong_description_is_refused_by_the_prime_field(arch: Architecture, mutation: Any, mutate: Any) -> None:
    """SymPy and the enumeration follow the description, right or wrong; the model does not."""
    mutate(*mutation)
    by_walk = [check_polynomial(g, limit=0) for g in groups_of(arch)]
    assert any(c.passed is False for c in by_walk)  # without a single word: types have no part in it
    listed = [check_polynomial(g) for g in groups_of(arch)]
    assert [c.passed for c in listed] == [c.passed for c in by_walk]


@pytest.mark.parametrize(("arch", "mutation"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_wrong_description_is_refused_by_the_transformer(arch: Architecture, mutation: Any, mutate: Any) -> None:
    """By the error of the evaluation, or because the wrong formula cannot even be evaluated.

    One mistake is none for a softmax model: ``A 1 b_V^T = 1 b_V^T``, as the rows of a pattern sum to one.
    """
    mutate(*mutation)
    run = scaled(random_model(arch, seed=2)).run([1, 2, 3, 4])
    refused = {"fast": 0, "lambdified": 0}
    for group in groups_of(arch):
        for name, check in (("fast", check_transformer), ("lambdified", check_lambdified)):
            try:
                refused[name] += check(group, run).passed is False
            except (ValueError, NotImplementedError, TypeError, StopIteration, KeyError, IndexError):
                refused[name] += 1
    seen = mutation is not MUTATIONS["b_V not moved by its pattern"][1]
    assert refused["fast"] > 0 or not seen
    assert (refused["lambdified"] > 0) is seen


@pytest.mark.parametrize(
    "name", ["W_OV transposed", "another head's pattern", "the scale missing", "layers in reverse"]
)
def test_verify_refuses_a_wrong_description(name: str, mutate: Any) -> None:
    arch, mutation = MUTATIONS[name]
    mutate(*mutation)
    report = verify(arch)
    assert not report.ok
    failed = {c.name for c in report.checks if c.passed is False}
    assert {"same polynomial", "same transformer", "same transformer, lambdified"} <= failed


def test_a_right_description_holds_where_the_wrong_ones_fail() -> None:
    for arch in (PLAIN, BIASED, SHORT, NORMED, GROUPED):
        assert all(check_polynomial(g, limit).passed for g in groups_of(arch) for limit in (0, 5000))


# -------------------------------------------------------------------------------------------------- names
@given(cases(max_terms=300), st.integers(0, 99))
@examples(40)
def test_names_are_right_on_every_architecture(case: tuple[Architecture, str], seed: int) -> None:
    expansion = expand(*case)
    listed = check_names([expansion], seed)
    assert (listed.passed, listed.error, listed.bound) == (True, 0, 0)
    assert listed.what.startswith(f"{amount(expansion.count, 'term')} listed: paths, labels")
    drawn = check_names([expansion], seed, limit=0)
    assert (drawn.passed, drawn.details) == (True, {"seed": seed})
    assert drawn.what.startswith(f"{SAMPLE} drawn at random: paths, labels")


def test_names_of_13_to_the_12_terms() -> None:
    arch = sc.attention_only((12,) * 12)
    check = check_names([sc.logits(arch)])
    assert (check.passed, check.target) == (True, "logits")
    assert check.what.startswith("200 drawn at random: ")
    both = check_names([sc.scores(arch, h) for h in ("L1H0", "L11H11")])
    assert both.passed
    assert both.what.startswith("169 terms listed and 200 drawn at random: ")


def test_what_the_row_of_names_says_it_looked_at() -> None:
    rows = [c for c in verify(RECORD, max_terms=10).checks if c.name == "same names"]
    assert [c.what.partition(":")[0] for c in rows] == ["200 drawn at random", "3 terms listed and 600 drawn at random"]
    assert [check_names([sc.logits(RECORD)]).what.partition(":")[0]] == ["16 terms listed"]


def test_paths_are_read_off_the_letters() -> None:
    labels = {t.label: read_paths(t.word) for t in sc.scores(BIASED, "L1H1")}
    assert labels["b_V[L0H1] -> L0H1 | b_K[L1H1]"] == (("b_V[L0H1]", ("L0H1",)), ("b_K[L1H1]", ()))
    assert labels["pos | b_O[L0]"] == (("pos", ()), ("b_O[L0]", ()))
    deep = expand(sc.attention_only((1, 1, 1)), "logits")
    assert read_paths(deep[-1].word) == (("embed", ("L0H0", "L1H0", "L2H0")),)


def neighbour(head: Head | None) -> Head | None:
    return None if head is None else Head(head.layer, (1, 0)[head.number])


def exchanged(of_branches: bool = False, of_sources: bool = False, names: bool = False) -> Any:
    """The two heads of a layer exchanged: of its branches, of its b_V sources, in the names of those."""

    def branch(b: Branch) -> Branch:
        return replace(b, head=neighbour(b.head)) if of_branches else b

    def source(s: Source) -> Source:
        if s.kind != "b_V":
            return s
        return replace(
            s,
            head=neighbour(s.head) if of_sources else s.head,
            name=f"b_V[{neighbour(s.head)}]" if names else s.name,
        )

    def edit(layer: Layer) -> Layer:
        return replace(layer, branches=tuple(map(branch, layer.branches)), sources=tuple(map(source, layer.sources)))

    return layers(edit)


def says(name: str, wrong: Callable[[Any], Any], of: type = Term) -> Callable[[pytest.MonkeyPatch], None]:
    """A property whose value is wrong."""
    right = inspect.getattr_static(of, name)  # where it stands in a base too
    value = getattr(right, "fget", None) or getattr(right, "func", right)

    def put(monkeypatch: pytest.MonkeyPatch) -> None:
        if isinstance(right, FunctionType):
            monkeypatch.setattr(of, name, lambda self, *args: wrong(value(self, *args)))
        else:
            monkeypatch.setattr(of, name, property(lambda self: wrong(value(self))))

    return put


def numbered(wrong: Callable[[Expansion, int], int]) -> Callable[[pytest.MonkeyPatch], None]:
    """``e[i]`` is another term."""
    right = Expansion.__getitem__
    return lambda monkeypatch: monkeypatch.setattr(
        Expansion, "__getitem__", lambda self, i: right(self, wrong(self, i) % self.count)
    )


def shifted(counts: dict[Any, int]) -> dict[Any, int]:
    """The numbers of a table, each for the next key."""
    return dict(zip(counts, [*counts.values()][1:] + [*counts.values()][:1], strict=True))


# What is wrong: (patch, where no other row can see it, whether it is seen in terms drawn at random)
MISNAMED: dict[str, tuple[Any, Architecture | None, bool]] = {
    "heads of two branches exchanged": (exchanged(of_branches=True), PLAIN, True),
    "heads of branches and b_V sources exchanged": (exchanged(True, True), BIASED, True),
    "heads of branches and b_V sources exchanged, names too": (exchanged(True, True, True), BIASED, True),
    "heads of b_V sources exchanged": (exchanged(of_sources=True), None, True),
    "names of b_V sources exchanged": (exchanged(names=True), BIASED, True),
    "Paths.counts + 7": (says("counts", lambda c: {m: n + 7 for m, n in c.items()}, Paths), None, True),
    "Expansion.count = 999": (says("count", lambda n: 999, Expansion), None, True),
    "Expansion.count one too small": (says("count", lambda n: n - 1, Expansion), None, True),
    "Term.label, of the other side": (says("label", lambda s: " | ".join(s.split(" | ")[::-1]) + "'"), None, True),
    "Path.label, latest head first": (says("label", lambda s: " -> ".join(s.split(" -> ")[::-1]), Path), None, True),
    "Term.softmax_invisible": (says("softmax_invisible", lambda b: not b), None, True),
    "Term.softmax_invisible never": (says("softmax_invisible", lambda b: False), None, True),
    "Term.orders": (says("orders", lambda o: (o[0] + 1, *o[1:])), None, True),
    "Term.orders, key first": (says("orders", lambda o: o[::-1]), None, True),
    "Term.order": (says("order", lambda n: n + 1), None, True),
    "Term.composition": (says("composition", lambda c: "none"), None, True),
    "e[i] is the next": (numbered(lambda e, i: i + 1), None, True),
    "e[i] counts from the end": (numbered(lambda e, i: -1 - i), None, True),
    "e[0] and e[1] exchanged": (numbered(lambda e, i: (1, 0)[i] if i < 2 else i), None, True),
    "e.index is the next": (says("index", lambda n: n + 1, Expansion), None, True),
    "e.index of terms in reverse": (says("index", lambda n: 17 - n, Expansion), None, True),
    "counts_by_order": (says("counts_by_order", shifted, Expansion), None, False),
    "counts_by_composition": (says("counts_by_composition", shifted, Expansion), None, False),
}


@pytest.mark.parametrize(("patch", "alone", "drawn"), MISNAMED.values(), ids=MISNAMED)
@pytest.mark.sampled(8)
def test_the_row_of_names_refuses(
    patch: Any, alone: Architecture | None, drawn: bool, mutate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(patch, tuple):
        mutate(*patch)
    else:
        patch(monkeypatch)
    groups = groups_of(BIASED)
    for limit, seen in ((5000, True), (1, drawn)):
        found = [check_names(g, limit=limit) for g in groups]
        assert any(c.passed is False for c in found) is seen, found
        assert all(c.passed or (c.error > c.bound and c.what.startswith(("logits", "scores:L"))) for c in found)
    if alone:  # the words are right, and what all others look at; measured terms are found by their names
        report = verify(alone)
        assert not report.ok
        assert {c.name for c in report.checks if c.passed is False} == {"same names", "isolated terms"}


@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
def test_the_row_of_names_counts_every_term(target: str) -> None:
    expansion = expand(RECORD, target)
    for i in range(16):
        for edit, count in ((lambda t: [], 15), (lambda t: [t, t], 17)):
            wrong = corrupted(expansion, edit, i)
            check = check_names([expansion], terms=lambda e, wrong=wrong: iter(wrong))
            assert check.passed is False
            assert check.error > 16 - i - (count == 17)  # all that come later have another number, too
    many = sc.logits(sc.attention_only((20, 20)))  # of whose numbers not every one is looked up
    assert many.count > 2 * SAMPLE
    terms = list(many)
    assert check_names([many], terms=lambda e: iter(terms)).passed
    for wrong in (terms[:-1], [*terms, terms[-1]]):
        check = check_names([many], terms=lambda e, wrong=wrong: iter(wrong))
        assert (check.passed, check.error > 0) == (False, True)


@pytest.mark.parametrize(
    "said", [{"label": "embed"}, {"softmax_invisible": True}, {"orders": (9,)}, {"composition": "QK"}]
)
def test_the_row_of_names_sees_a_single_term(said: dict[str, Any]) -> None:
    for target in ("logits", "scores:L1H0"):
        terms = loose(expand(RECORD, target))
        wrong = [*terms[:3], terms[3].saying(**said), *terms[4:]]
        check = check_names([expand(RECORD, target)], terms=lambda e, wrong=wrong: iter(wrong))
        assert check.passed is False
        assert f"{target}, term 3: " in check.what


def test_two_types_exchanged_do_not_cancel() -> None:
    expansion = sc.scores(RECORD, "L1H0")
    terms = loose(expansion)
    i, j = (next(i for i, t in enumerate(terms) if t.composition == c) for c in "QK")
    wrong = [replace(t, said=(("composition", {i: "K", j: "Q"}.get(n, t.composition)),)) for n, t in enumerate(terms)]
    assert [t.composition for t in wrong].count("Q") == expansion.counts_by_composition()["Q"]
    assert check_names([expansion], terms=lambda e: iter(wrong)).error == 2


# ---------------------------------------------------------------------------- composition types above the limit
def mistyped(orders: tuple[int, ...]) -> str:
    """Every type another: Q for K, QK for none; V for none."""
    right = described_types(orders)
    return {"Q": "K", "K": "Q", "QK": "none", "V": "none"}.get(right, "QK" if len(orders) == 2 else "V")


described_types = expanded.composition_of


@pytest.mark.parametrize("target", ["logits", "scores:L1H0"])
def test_every_type_mislabelled_is_refused_above_the_limit(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts by type and types of terms are wrong alike: SymPy's letters tell, and the letters of the word."""
    assert verify(RECORD, targets=[target], max_terms=10).ok
    monkeypatch.setattr(expanded, "composition_of", mistyped)
    monkeypatch.setattr("symcircuits.core.terms.composition_of", mistyped)
    found = {c.name: c for c in verify(RECORD, targets=[target], max_terms=10).checks}
    assert {name for name, c in found.items() if c.passed is False} == {"same names", "same letters"}
    assert found["same letters"].error == 2 * 16  # each is missing, and there is another
    assert found["same letters"].what.endswith("polynomials have 16 terms, and 32 differ from the enumeration")
    below = verify(RECORD, targets=[target])
    assert {c.name for c in below.checks if c.passed is False} == {"same names", "same algebra"}


def test_orders_of_the_other_side_are_refused_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    group = [sc.scores(RECORD, "L1H0")]
    assert check_monomials(group, (0, 100)).passed
    says("orders", lambda o: o[::-1])(monkeypatch)
    check = check_monomials(group, (0, 100))
    assert (check.passed, check.error) == (False, 2 * 6)  # those of Q and of K; of none and QK both orders are equal


# ---------------------------------------------------------------------------------------- looking at nothing
EMPTY: Any = {"terms": lambda e: iter(())}


@pytest.mark.parametrize("target", ["logits", "stream", "scores:L1H0"])
def test_a_check_that_saw_nothing_does_not_hold(target: str, runs: Any) -> None:
    group, run = [expand(RECORD, target)], runs(RECORD)
    for check in (
        check_types(group, terms=[]),
        check_names(group, **EMPTY),
        check_algebra(group, **EMPTY),
        check_monomials(group, (0, 100), **EMPTY),
        check_polynomial(group, **EMPTY),
        check_basis(group, **EMPTY),
        check_lambdified(group, run, **EMPTY),
        check_transformer(group, run, values=lambda e: iter(())),
    ):
        assert check is not None
        assert check.passed is False, check


def test_one_empty_target_among_others_does_not_hold() -> None:
    group = [sc.scores(RECORD, h) for h in RECORD.all_heads]

    def terms(e: Expansion) -> Iterator[Any]:
        return iter(()) if e.target == "scores:L1H1" else iter(loose(e))

    for check in (check_names, check_algebra, check_polynomial, check_basis):
        assert check(group, terms=terms).passed is False


def test_two_empty_witnesses_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """If SymPy found no term and the enumeration none, nothing was compared."""
    group = [sc.logits(RECORD)]
    monkeypatch.setattr(witnessed, "symbolic_terms", lambda arch, target: [])
    monkeypatch.setattr(witnessed, "polynomial_terms", lambda arch, target: {})
    assert check_algebra(group, **EMPTY).passed is False
    assert check_monomials(group, (0, 100), **EMPTY).passed is False


def test_no_trial_is_no_check() -> None:
    with pytest.raises(ValueError, match="trials must be 1 or more"):
        check_polynomial([sc.logits(RECORD)], trials=0)


def test_an_empty_enumeration_is_refused_by_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Expansion, "__iter__", lambda self: iter(()))
    report = verify(RECORD)
    assert not report.ok
    assert {c.name for c in report.checks if c.passed is False} >= {
        "types", "same names", "same page", "same algebra", "same polynomial", "isolated terms", "basis freedom",
        "same transformer, lambdified",
    }  # fmt: skip


def test_an_ill_typed_term_is_a_failed_row_and_no_crash() -> None:
    wrong = replace(loose(sc.logits(RECORD))[-1], checked=True)
    broken = replace(wrong, factors=wrong.factors[::-1])
    with pytest.raises(IllTyped):
        _ = broken.word
    check = check_polynomial([sc.logits(RECORD)], terms=lambda e: iter([broken]))
    assert check.passed is False
    assert "a term is not a word" in check.what
    assert check_types([sc.logits(RECORD)], terms=[broken]).error == 1
