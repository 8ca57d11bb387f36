"""The row "same words": what is printed is the recursion multiplied out, and what is printed wrongly is refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from strategies import cases

import symcircuits as sc
from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.attachments import Part, Reading
from symcircuits.core.programs import Branch
from symcircuits.core.words import Factor
from symcircuits.tables.blocks import TermBlock, _Canvas
from symcircuits.tables.codes import Side
from symcircuits.tables.printing import _TwoWords
from symcircuits.tables.wording import Fronts, Wording
from symcircuits.verification import same_words
from symcircuits.verification.packed_words import Words
from symcircuits.verification.printed_words import Printed, printed
from symcircuits.verification.result import Check
from symcircuits.verification.rows import LETTERS_LIMIT, MAX_TERMS
from symcircuits.verification.same_words import MAX_WORDS, check_words
from symcircuits.verification.verify import verify

ABOVE = (MAX_TERMS, MAX_WORDS)
PLAIN = sc.attention_only((8, 8, 1))  # 6,561 score terms of L2H0, which SymPy is not given
FULL = sc.transformer((4, 4, 1), "rotary", True, norm="LN", multipliers=True, qk_norm=True)
LOGITS = sc.transformer((8, 8, 8, 8), norm="LN", biases=["b_V"])


def looked_at(check: Check | None) -> Check:
    assert check is not None
    assert check.passed is not None
    assert (check.passed, check.bound) == (not check.error, 0)
    return check


def checked(arch: Architecture, target: str) -> Check:
    """The row, for what is above SymPy's limit."""
    expansion = sc.expand(arch, target)
    assert expansion.count > MAX_TERMS
    return looked_at(check_words([expansion], ABOVE))


# ------------------------------------------------------------------------------------------------ what is right
@given(st.data())
def test_what_is_right_passes(data: DataObject) -> None:
    arch, target = data.draw(cases(max_terms=3000))
    expansion = sc.expand(arch, target)
    check = looked_at(check_words([expansion]))
    assert check.passed, check.what
    assert check.details == {"terms": expansion.count, "not_looked_at": []}


OWN = (Part("feature @ 12", 1), Part("a * b", 1, "added"), Part('"@"', 0, "added"), Reading("é @ * probe", 1))


@pytest.mark.parametrize("scores", [True, False])
def test_names_with_signs_are_read(scores: bool) -> None:
    arch = sc.transformer((2, 2, 2), norm="LN", biases=True).attached(*OWN)
    target = "scores:L2H1" if scores else f"readout:{OWN[-1].name}"
    check = looked_at(check_words([sc.expand(arch, target)]))
    assert check.passed, check.what


@pytest.mark.parametrize("arch", [PLAIN, FULL, LOGITS])
def test_above_the_limit_of_sympy(arch: Architecture) -> None:
    target = "logits" if arch is LOGITS else "scores:L2H0"
    check = checked(arch, target)
    assert check.passed, check.what
    count = sc.expand(arch, target).count
    assert check.details == {"terms": count, "not_looked_at": []}
    assert check.what.startswith(f"the recursion multiplied out in integers: {count:,} words, the same as printed")


# -------------------------------------------------------------------------------------------- what is not looked at
def test_below_the_limit_of_sympy_it_is_not_asked() -> None:
    group = [sc.scores(sc.attention_only((2, 2)), h) for h in ("L0H0", "L1H0")]
    assert check_words(group, ABOVE) is None
    check = looked_at(check_words(group, (1, MAX_WORDS)))
    assert (check.target, check.details["terms"]) == ("scores of L1H0", 9)


def test_what_is_too_much_is_named_and_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    arch = sc.attention_only((3, 3, 2))
    group = [sc.scores(arch, h) for h in arch.all_heads]
    check = looked_at(check_words(group, (1, 100)))
    assert check.target == "scores of L1H0, L1H1, L1H2"
    assert check.what.endswith("; not scores:L2H0 and 1 more: above the limit")
    assert check.details["not_looked_at"] == ["scores:L2H0", "scores:L2H1"]
    monkeypatch.setattr(same_words, "MAX_LETTERS", 500)  # 16 words of 12 letters: two heads, and no third
    check = looked_at(check_words(group, (1, 100)))
    assert check.details["not_looked_at"] == ["scores:L1H2", "scores:L2H0", "scores:L2H1"]
    monkeypatch.setattr(same_words, "MAX_LETTERS", 100)
    none = check_words(group, (1, 100))
    assert none is not None
    assert (none.passed, none.error, none.bound) == (None, None, None)
    assert none.what == "192 letters or more, the limit is 100"
    none = check_words(group, (100, 200))
    assert none is not None
    assert (none.passed, none.what) == (None, "256 terms or more, the limit is 200")


def test_heads_that_are_too_much_are_said_by_verify() -> None:
    rows = {(c.name, c.target): c for c in verify(sc.attention_only((8, 8, 8, 8))).checks}
    assert rows["same words", "logits"].details["terms"] == 9**4
    scores = rows["same words", "scores of L2H7"]
    assert scores.passed
    assert scores.what.endswith("; not scores:L3H7: above the limit")


def test_a_wrong_head_that_is_not_looked_at_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row never speaks of what it did not look at: a faulty head beyond the limit leaves it as it was."""
    group = [sc.scores(sc.attention_only((3, 3, 2)), h) for h in ("L1H0", "L2H0")]

    def lines(e: sc.Expansion) -> Iterator[Printed]:
        assert e.target == "scores:L1H0"
        return printed(e.blocks())

    check = looked_at(check_words(group, (1, 100), lines))
    assert (check.passed, check.target) == (True, "scores of L1H0")


# ------------------------------------------------------------------------------------------------ what is refused
Patch = Callable[[pytest.MonkeyPatch], None]


def lines_changed(change: Callable[[list[bytes]], list[bytes]]) -> Patch:
    """The lines of the first block otherwise."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        right = TermBlock.joined

        def joined(self: TermBlock, what: str, between: bytes = b"\n", escape: Any = str) -> bytes:
            text = right(self, what, between, escape)
            return between.join(change(text.split(between))) if not self.start else text

        monkeypatch.setattr(TermBlock, "joined", joined)

    return patch


def line_edited(old: bytes, new: bytes) -> Patch:
    """In one line that has it, one piece of text is another; the line is longer than most."""

    def change(lines: list[bytes]) -> list[bytes]:
        i = max(range(len(lines)), key=lambda i: (old in lines[i], lines[i].count(b"A[L")))
        assert old in lines[i]
        return [*lines[:i], lines[i].replace(old, new, 1), *lines[i + 1 :]]

    return lines_changed(change)


def one_path_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the integers of the enumeration one term goes through another head."""
    right = _Canvas.block

    def block(self: _Canvas, expansion: sc.Expansion, start: int) -> TermBlock:
        if not start:
            row = int(np.flatnonzero(self.heads[0][0] == 1)[-1])
            self.heads[0][0, row] = 2
        return right(self, expansion, start)

    monkeypatch.setattr(_Canvas, "block", block)


def branches_changed(change: Callable[[Branch], Branch], side: int = 0) -> Patch:
    """What L0H1 puts left and right is otherwise, where words are put together."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        made, right = [0], Side.__init__

        def init(self: Side, *how: Any) -> None:
            right(self, *how)
            if made[0] == side:
                self.branches[Head(0, 1)] = change(self.branches[Head(0, 1)])
            made[0] += 1

        monkeypatch.setattr(Side, "__init__", init)

    return patch


def attribute(owner: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, make(getattr(owner, name)))


def moved(factors: tuple[Factor, ...], glyph: str, to: int) -> tuple[Factor, ...]:
    letter = next(f for f in factors if f.symbol.glyph == glyph)
    rest = [f for f in factors if f is not letter]
    return (*rest[:to], letter, *rest[to:])


def early_rotation(right: Any) -> Any:
    """R before what the query is read by, instead of behind it."""

    def meeting(self: Any, query: Any, way: Any) -> str:
        joint = self.words.signs.joint
        middle = self.words.product(self.words.turned + query.outer_right)
        return joint + middle + joint + right(self, query._replace(outer_right=()), way).split(joint, 2)[2]

    return meeting


def chain_reversed(right: Any) -> Any:
    """The patterns of one path in the order of layers, where it should be the reverse."""

    def strand(self: Side, core: Any, before: Any, after: Any) -> Any:
        found = right(self, core, before, after)
        first = found.parts[0][0]
        if first[-1].startswith("A["):
            first[-1] = "".join(f"A[{pattern}" for pattern in reversed(first[-1].split("A[")[1:]))
        return found

    return strand


WRONG: dict[str, tuple[Architecture, Patch]] = {
    "a term dropped": (PLAIN, lines_changed(lambda lines: lines[:100] + lines[101:])),
    "a term twice": (PLAIN, lines_changed(lambda lines: [*lines, lines[7]])),
    "a term twice in the place of another": (PLAIN, lines_changed(lambda lines: [*lines[:-1], lines[7]])),
    "all terms dropped": (PLAIN, lines_changed(lambda lines: [])),
    "a path of another head": (PLAIN, one_path_changed),
    "a letter transposed": (PLAIN, branches_changed(lambda b: replace(b, right=tuple(f.T for f in b.right[::-1])))),
    "a pattern transposed": (PLAIN, branches_changed(lambda b: replace(b, left=(b.left[0].T,)))),
    "a key's pattern not transposed": (PLAIN, branches_changed(lambda b: replace(b, left=(b.left[0].T,)), side=1)),
    "two letters swapped": (PLAIN, branches_changed(lambda b: replace(b, right=b.right[::-1]))),
    "two heads' patterns swapped": (PLAIN, line_edited(b"A[L1H7] @ A[L0H7]", b"A[L0H7] @ A[L1H7]")),
    "two heads' values swapped": (
        PLAIN, line_edited(b"W_OV[L0H7].T @ W_OV[L1H7].T", b"W_OV[L1H7].T @ W_OV[L0H7].T"),
    ),
    "another head's pattern": (PLAIN, line_edited(b"A[L0H7] @ X0", b"A[L0H6] @ X0")),
    "another head's values": (PLAIN, line_edited(b"W_OV[L0H7].T", b"W_OV[L0H6].T")),
    "a head that there is not": (PLAIN, line_edited(b"A[L0H7] @ X0", b"A[L0H9] @ X0")),
    "query and key swapped": (PLAIN, line_edited(b"W_QK[L2H0]", b"W_QK[L2H0].T")),
    "a sum for a product": (PLAIN, line_edited(b" @ X0 @", b" + X0 @")),
    "a scalar's sign for a product": (PLAIN, line_edited(b" @ X0 @", b" * X0 @")),
    "no scale": (PLAIN, line_edited(b"scale[L2H0] * ", b"")),
    "the scale twice": (PLAIN, line_edited(b"scale[L2H0] * ", b"scale[L2H0] * scale[L2H0] * ")),
    "the scale in a product": (PLAIN, line_edited(b"scale[L2H0] * ", b"scale[L2H0] @ ")),
    "a wrong order of a chain": (PLAIN, attribute(Side, "strand", chain_reversed)),
    "no rotation": (FULL, line_edited(b" @ R[L2H0] @ ", b" @ ")),
    "the rotation transposed": (FULL, line_edited(b"R[L2H0]", b"R[L2H0].T")),
    "the rotation in another place": (FULL, attribute(_TwoWords, "meeting", early_rotation)),
    "the gain before the centring": (FULL, branches_changed(lambda b: replace(b, right=moved(b.right, "gain", 0)))),
    "the gain behind the values": (FULL, branches_changed(lambda b: replace(b, right=moved(b.right, "gain", 2)))),
    "no gain": (
        FULL, branches_changed(lambda b: replace(b, right=tuple(f for f in b.right if f.symbol.glyph != "gain"))),
    ),
    "the norm outside the pattern": (FULL, branches_changed(lambda b: replace(b, left=b.left[::-1]))),
    "the gain of queries on keys": (FULL, line_edited(b"gain[K2]", b"gain[Q2]")),
    "no multiplier": (FULL, line_edited(b"m_E * ", b"")),
    "a multiplier twice": (FULL, line_edited(b"r[L0] * ", b"r[L0] * r[L0] * ")),
    "another layer's multiplier": (FULL, line_edited(b"r[L0] * ", b"r[L1] * ")),
    "a multiplier among the letters": (FULL, line_edited(b"r[L1] * D[QL2H0] @ ", b"D[QL2H0] @ r[L1] * ")),
    "many multipliers": (FULL, line_edited(b"r[L0] * ", b"r[L0] * " * 300)),
    "no multipliers anywhere": (FULL, attribute(Wording, "scalars", lambda right: lambda self, scales: "")),
    "the multipliers of one side": (
        FULL, attribute(Fronts, "_string", lambda right: lambda self, row: right(self, [*row[:3], *row[:3]])),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arch", "patch"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(arch: Architecture, patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)
    check = checked(arch, "scores:L2H0")
    assert check.passed is False
    assert check.error >= 1
    assert check.what.startswith("scores:L2H0: "), check.what
    assert "\n" not in check.what


@pytest.mark.parametrize("change", [
    lambda b: replace(b, left=moved(b.left, "D", 0)),
    lambda b: replace(b, right=moved(b.right, "gain", 3)),
    lambda b: replace(b, right=tuple(f for f in b.right if f.symbol.glyph != "C")),
])  # fmt: skip
def test_a_wrong_norm_in_the_logits_is_refused(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    branches_changed(change)(monkeypatch)
    check = checked(LOGITS, "logits")
    assert (check.passed, check.error) == (False, 2 * 9**3)  # all paths from the tokens through L0H1


@pytest.mark.parametrize("fault", ["orders", "composition"])
def test_another_order_or_type_is_refused(fault: str) -> None:
    e = sc.scores(PLAIN, "L2H0")

    def lines(e: sc.Expansion) -> Iterator[Printed]:
        for block in printed(e.blocks()):
            orders, types = [np.array(o) for o in block.orders], np.array(block.composition)
            if fault == "orders":
                orders[1][5] += 1
            else:
                types[5:8] = 1
            yield block._replace(orders=tuple(orders), composition=types)

    check = looked_at(check_words([e], ABOVE, lines))
    assert check.error == (1 if fault == "orders" else 3)
    assert "it has another order or type: scale[L2H0] * " in check.what


@pytest.mark.parametrize("moved", [1, 1000])
def test_lines_of_another_block_than_their_types_are_refused(moved: int) -> None:
    """The words are right then, and only their places are not: no type would be looked at."""

    def lines(e: sc.Expansion) -> Iterator[Printed]:
        first, second, *rest = printed(e.blocks(1000))
        both, cut = (first.text + second.text).splitlines(keepends=True), 1000 + moved
        yield first._replace(text=b"".join(both[:cut]), composition=0 * first.composition)
        yield second._replace(text=b"".join(both[cut:]), composition=0 * second.composition)
        yield from rest

    check = looked_at(check_words([sc.scores(PLAIN, "L2H0")], ABOVE, lines))
    assert (check.passed, check.error) == (False, 2 * moved)
    assert check.what == "scores:L2H0: lines are in another block than their orders and types"


def test_verify_refuses_by_this_row_alone_what_sympy_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two values of one printed term change places: above its limit no other row looks at the order of letters."""
    assert sc.expand(PLAIN, "scores:L2H0").count < LETTERS_LIMIT
    WRONG["two heads' values swapped"][1](monkeypatch)
    report = verify(PLAIN, targets=["scores:L2H0"])
    (failed,) = (c for c in report.checks if c.passed is False)
    assert (failed.name, failed.error) == ("same words", 2)
    assert failed.what.startswith("scores:L2H0: not multiplied out: scale[L2H0] * ")
    assert "W_OV[L1H7].T @ W_OV[L0H7].T @ W_Q[L2H0].T @ W_K[L2H0]" in failed.what
    assert "FAIL" in report.text()


# ------------------------------------------------------------------------------------------------ looking at nothing
def test_looking_at_nothing_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    e = sc.scores(PLAIN, "L2H0")
    check = looked_at(check_words([e], ABOVE, lambda e: iter(())))
    assert (check.passed, check.error) == (False, 6561)
    monkeypatch.setattr(same_words, "multiply_out", lambda readout: Words(None, {}))  # type: ignore[arg-type]
    check = looked_at(check_words([e], ABOVE, lambda e: iter(())))
    assert (check.passed, check.what) == (False, "scores:L2H0: no term was looked at")


def test_an_empty_line_is_refused() -> None:
    e = sc.scores(PLAIN, "L2H0")
    empty = Printed(b"\n", (np.zeros(1, int),) * 2, np.zeros(1, int))
    check = looked_at(check_words([e], ABOVE, lambda e: chain(printed(e.blocks()), [empty])))
    assert (check.passed, check.error) == (False, 1)
    assert check.what == "scores:L2H0: cannot read: "
