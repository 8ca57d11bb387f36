"""Printed derivations with one wrong token: check refuses what a second evaluator refutes, and names the line.

Claims are drawn at random, the same ones every time; ``SYMCIRCUITS_FUZZ=20`` draws twenty times as many.
"""

from __future__ import annotations

import random
import re
from contextlib import suppress
from typing import Any

import pytest
from damage import TIMES
from test_recheck import NOTATIONS, PRINTED, corruptions, printed, recheck

from symcircuits.checking.check import Verdict, check
from symcircuits.checking.faults import ReadError

# What ALiBi adds is no path term, and is not read.
NAMES = [name for name in PRINTED if name != "alibi"]
SLOW = ("pairs", "four layers")
QUICK = ["positions", "shortformer", "rotary", "query biases", "stream"]
WHOLE = [("shortformer", "row"), ("positions", "paper"), ("norms", "transformerlens")]
CASES = [(name, NOTATIONS[i % 3]) for i, name in enumerate(NAMES)]


def written(left: list[str], right: list[str]) -> str:
    return f"{' '.join(left)} = {' '.join(right)}"


def judged(text: str, name: str, notation: str) -> Verdict | None:
    """The verdict with nothing taken for granted; None where it is not read."""
    with suppress(ReadError):
        return check(text, PRINTED[name][0], convention=notation, strict=True)
    return None


def named_line(text: str, name: str, notation: str) -> int | None:
    """The line that is wrong, or that is not read."""
    try:
        return check(text, PRINTED[name][0], convention=notation, strict=True).line
    except ReadError as refused:
        return text.count("\n", 0, refused.position)


def equal_all_the_same(kind: str, side: list[str], changed: list[str]) -> bool:
    """What is so although the second evaluator refutes it: diagonal matrices commute, ``C C`` is ``C``."""
    at = next(i for i, (old, new) in enumerate(zip([*side, ""], [*changed, ""], strict=False)) if old != new)
    if kind == "double":
        return side[at - 1] == "C"
    diagonal = ("D^", r"\Gamma^")
    return kind == "swap" and any(all(t.startswith(name) for t in side[at : at + 2]) for name in diagonal)


def wrong(model: Any, draw: random.Random, how_many: int) -> list[tuple[str, int, list[str], list[str], str]]:
    """Claims with one wrong token, drawn at random: kind, number of the claim, both sides, what the evaluator says.

    A number of terms without numbers of heads (``N = 4``) is no other claim at the heads that were asked for.
    """
    found = []
    for i, (left, _, right) in enumerate(model.claims()):
        for j, side in enumerate((left, right)):
            for kind, changed in corruptions(side):
                pair = (changed, right) if j == 0 else (left, changed)
                counted = "".join(pair[0])[:1] == "N" and "H_" not in "".join(pair[1])
                if not counted and not equal_all_the_same(kind, side, changed):
                    found.append((kind, i, *pair))
    drawn = draw.sample(found, min(how_many, len(found)))
    return [(kind, i, left, right, model.judge(left, "=", right)) for kind, i, left, right in drawn]


@pytest.mark.parametrize(("name", "notation"), CASES[:12])
@pytest.mark.sampled(5)
def test_every_claim_that_is_printed_is_right(name: str, notation: str) -> None:
    model = recheck.Model(printed(name, notation))
    for left, _, right in model.claims():
        verdict = judged(written(left, right), name, notation)
        assert verdict is not None, written(left, right)
        assert verdict.right, (written(left, right), verdict)


@pytest.mark.parametrize(("name", "notation"), CASES)
@pytest.mark.sampled(7)
def test_one_wrong_token_is_never_right(name: str, notation: str) -> None:
    model = recheck.Model(printed(name, notation))
    for kind, _, left, right, oracle in wrong(
        model, random.Random(f"{name} {notation}"), (1 if name in SLOW else 6) * TIMES
    ):
        if oracle.startswith("not read"):
            continue
        verdict = judged(written(left, right), name, notation)
        if verdict is not None:
            assert verdict.right == (oracle == "confirmed"), (kind, oracle, written(left, right), verdict)


@pytest.mark.parametrize(("name", "notation"), [(name, NOTATIONS[i % 3]) for i, name in enumerate(QUICK)])
def test_the_line_of_the_wrong_token_is_named(name: str, notation: str) -> None:
    model = recheck.Model(printed(name, notation))
    lines = [written(left, right) for left, _, right in model.claims()]
    for kind, at, left, right, oracle in wrong(model, random.Random(f"line {name}"), 2 * TIMES):
        if oracle != "refuted":
            continue
        changed = [*lines[:at], written(left, right), *lines[at + 1 :]]
        text = "\\begin{align*}\n" + " \\\\\n".join(changed) + "\n\\end{align*}"
        assert named_line(text, name, notation) == at + 1, (kind, changed[at])


@pytest.mark.parametrize(("name", "notation"), WHOLE)
def test_a_whole_derivation_is_right_whatever_its_convention(name: str, notation: str) -> None:
    verdict = check(printed(name, notation), PRINTED[name][0])
    assert verdict.right, verdict
    assert verdict.where == ()
    assert ("TransformerLens" in verdict.read[0]) == (notation == "transformerlens")


def test_names_of_what_norms_put_out_are_read() -> None:
    arch = PRINTED["norms"][0]
    line = r"Y^{\mathrm{L1}} = D^{\mathrm{L1}} X_{1} C \Gamma^{\mathrm{L1}} + \mathbf{1} b_N^{\mathrm{L1} \mathsf{T}}"
    assert check(line, arch).right
    for old, new in (("X_{1}", "X_0"), (r"D^{\mathrm{L1}}", r"D^{\mathrm{L0}}"), (r" C \Gamma", r" \Gamma")):
        assert not check(line.replace(old, new), arch).right
    assert not re.search("Y", str(check(line, arch)))
