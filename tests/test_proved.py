"""Documents say "Proved in Coq" of nothing but what Coq has proved: the record has the digest of its text of Coq."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import symcircuits as sc
from symcircuits.derivation.book import derived
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.nodes import Sum
from symcircuits.derivation.printing import proved
from symcircuits.derivation.results.every import entries

ROOT = Path(__file__).parents[1]
WORD = "Proved in Coq"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    proved.recorded.cache_clear()


def prove() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prove", ROOT / "derivations" / "prove.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_record_has_every_path_expansion_of_the_book_and_the_documents_say_so() -> None:
    found = {entry.name: derived(entry) for entry in entries() if entry.result is None}
    assert {name: proved.digest(one) for name, one in found.items()} == dict(proved.recorded())
    for name, derivation in found.items():
        assert derivation.latex().count(WORD) == derivation.paper().count(WORD) == 1
        assert (ROOT / "derivations" / f"{name}.tex").read_text("utf-8").count(WORD) == 1


@pytest.mark.parametrize("form", ["enumerated", "generic"])
def test_a_derivation_says_which_claims_are_proved(form: str) -> None:
    said = proved.proved_sentence(sc.derive(sc.attention_only((3, 3)), form=form))
    every = "every number of heads and " if form == "generic" else ""
    assert said.startswith(f"Proved in Coq, for {every}matrices of any sizes over any commutative ring: ")
    other = proved.proved_sentence(sc.derive(sc.attention_only((5, 7)), form=form))
    assert other == (said if form == "generic" else "")
    rotary = sc.derive(sc.attention_only((2, 2), positions="rotary"), "scores:L1H0", form="generic")
    assert "13 equations, after 2 definitions." in proved.proved_sentence(rotary)


def edited(derivation: Derivation) -> Derivation:
    """With one term less in the claim of the step that lists all."""
    at = next(i for i, step in enumerate(derivation.steps) if "terms" in step.check.also)
    step = derivation.steps[at]
    *before, claim = step.claims
    total = claim.rhs
    assert isinstance(total, Sum)
    short = replace(claim, sides=(*claim.sides[:-1], Sum(total.terms[:-1])))
    steps = (*derivation.steps[:at], replace(step, claims=(*before, short)), *derivation.steps[at + 1 :])
    return replace(derivation, steps=steps)


@pytest.mark.parametrize("form", ["enumerated", "generic"])
def test_an_edited_claim_loses_the_word(form: str) -> None:
    derivation = sc.derive(sc.attention_only((3, 3)), form=form)
    assert WORD in derivation.latex()
    assert WORD not in edited(derivation).latex()
    assert WORD not in edited(derivation).paper()


def test_what_is_not_recorded_is_not_said_to_be_proved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    derivation = sc.derive(sc.attention_only((3, 3)))
    assert WORD not in sc.derive(sc.attention_only((3, 2))).latex()
    assert WORD not in sc.theorem("ablation").latex()
    texts = json.loads(proved.RECORD.read_text("utf-8"))
    for change in ({"schema": "another"}, {"proved": dict.fromkeys(texts["proved"], "0" * 64)}, {"proved": {}}):
        file = tmp_path / "proved.json"
        file.write_text(json.dumps({**texts, **change}), encoding="utf-8")
        monkeypatch.setattr(proved, "RECORD", file)
        proved.recorded.cache_clear()
        assert WORD not in derivation.latex()
    monkeypatch.setattr(proved, "RECORD", tmp_path / "no.json")
    proved.recorded.cache_clear()
    assert WORD not in derivation.latex()


def test_another_tactic_is_not_the_one_that_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    derivation = sc.derive(sc.attention_only((3, 3)))
    monkeypatch.setattr(proved, "tactic", lambda: "Ltac claim := admit.")
    assert WORD not in derivation.latex()


def test_a_stale_record_is_named() -> None:
    script, now = prove(), dict(proved.recorded())
    first, second = sorted(now)[:2]
    assert script.differing(now) == []
    assert script.differing({**now, first: "0" * 64}) == [first]
    assert script.differing({name: text for name, text in now.items() if name != second}) == [second]
    assert script.differing({**now, "another": "1"}) == ["another"]
