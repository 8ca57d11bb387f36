"""Derivations in Coq: what is stated is what is printed, every plain claim is proved, and mutants are refused."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import symcircuits as sc
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing.coq import coverage, derivation_coq

CASES: dict[str, tuple[Any, str]] = {
    "two layers": (sc.attention_only((2, 2)), "logits"),
    "scores": (sc.attention_only((2, 1)), "scores:L1H0"),
    "biases, positions, multipliers, an MLP": (
        sc.transformer((1, 1), biases=True, positions="standard", multipliers=True, mlps=[0]), "logits",
    ),
    "groups": (sc.attention_only((2, 2), groups=(1, 1)), "scores:L1H1"),
    "alibi": (sc.attention_only((1, 1), positions="alibi"), "scores:L1H0"),
    "shortformer": (sc.attention_only((1, 1), positions="shortformer", biases=["b_Q"]), "scores:L1H0"),
}  # fmt: skip


def derived(name: str) -> Derivation:
    arch, target = CASES[name]
    return sc.derive(arch, target)


def compiled(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What coqc says of a file; skipped where Coq or mathcomp is not there, unless they are required."""
    coqc = shutil.which("coqc")
    (folder / "Probe.v").write_text("From mathcomp Require Import all_ssreflect all_algebra.\n")
    run: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True, "check": False, "timeout": 200}
    if coqc is None or subprocess.run([coqc, "-q", "Probe.v"], **run).returncode:
        if os.environ.get("SYMCIRCUITS_REQUIRE_COQ") == "1":
            pytest.fail("Coq with mathcomp is required, and is not there", pytrace=False)
        pytest.skip("Coq with mathcomp is not installed")
    (folder / "Claims.v").write_text(text, "utf-8")
    return subprocess.run([coqc, "-q", "-w", "none", "Claims.v"], **run)


def as_text(coq: str) -> str:
    """A formula of Coq as it is printed in text, without parentheses."""
    found = coq.replace(" *m ", " @ ").replace(" *: ", " * ").replace("^T", ".T")
    found = re.sub(r"\b(scale|A|[Wb]_[A-Z]+|r|mlp|alibi)_([LM]\d+(?:[HG]\d+)?)\b", r"\1[\2]", found)
    return re.sub(r"[()]", "", re.sub(r"\bscores_(\w+)", r"S[\1]", found))


@pytest.mark.parametrize("name", CASES)
def test_what_is_stated_is_what_is_printed(name: str) -> None:
    derivation = derived(name)
    found = coverage(derivation)
    for lemma, statement in found.lemmas.items():
        step, claim, part = (int(number) for number in re.findall(r"\d+", lemma))
        sides = derivation.json()["steps"][step - 1]["claims"][claim - 1]["sides"]
        printed = [re.sub(r"[()]", "", side["text"]) for side in sides]
        left, right = as_text(statement).split(" = ")
        assert right in printed
        assert left == printed[0] or part > 1


@pytest.mark.parametrize("name", CASES)
def test_every_claim_is_a_lemma_a_definition_or_named_with_its_reason(name: str) -> None:
    derivation = derived(name)
    found = coverage(derivation)
    claims = {f"step {s.number}, claim {i}" for s in derivation.steps for i in range(1, len(s.claims) + 1)}
    proved = {"step {}, claim {}".format(*re.findall(r"\d+", lemma)) for lemma in found.lemmas}
    assert proved | found.defined.keys() | found.left.keys() == claims
    assert len(proved) + len(found.defined) + len(found.left) == len(claims)
    text = derivation_coq(derivation)
    assert all(f"   {claim}: {reason}" in text for claim, reason in found.left.items())
    assert not re.search(r"\b(Admitted|Axiom|Parameter|Hypothesis)\b", text)
    identity = next(s for s in derivation.steps if "terms" in s.check.also)  # the sum over all terms
    assert any(lemma.startswith(f"step{identity.number}_") for lemma in found.lemmas)


def test_what_a_result_states_of_the_logits_defines_nothing() -> None:
    """Its first claim is the sum over paths: as a definition it would prove itself."""
    found = coverage(sc.theorem("uniqueness"))
    assert not found.lemmas
    assert not found.defined
    assert found.left["step 1, claim 1"] == "logits is not defined before it"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(3)
def test_every_plain_claim_is_proved_from_nothing(name: str, tmp_path: Path) -> None:
    derivation = derived(name)
    done = compiled(derivation_coq(derivation), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Closed under the global context") == len(coverage(derivation).lemmas) >= 8


MUTANTS: dict[str, tuple[str, str, str]] = {  # in the last lemma that has it
    "a transpose": ("two layers", "W_OV_L0H0^T *m W_U^T", "W_OV_L0H0 *m W_U^T"),
    "an order": ("two layers", "W_OV_L0H0^T *m W_OV_L1H0^T", "W_OV_L1H0^T *m W_OV_L0H0^T"),
    "another head": ("two layers", "A_L1H1 *m A_L0H0", "A_L1H1 *m A_L0H1"),
    "a dropped term": ("two layers", " + (A_L0H1 *m X0 *m W_OV_L0H1^T *m W_U^T)", ""),
    "a dropped scale": ("scores", "(scale_L1H0 *: (X0 *m W_QK_L1H0 *m X0^T))", "(X0 *m W_QK_L1H0 *m X0^T)"),
    "W_QK turned": ("scores", "W_QK_L1H0", "W_QK_L1H0^T"),
}


@pytest.mark.parametrize("what", MUTANTS)
@pytest.mark.sampled(3)
def test_a_mutant_is_refused(what: str, tmp_path: Path) -> None:
    name, right, wrong = MUTANTS[what]
    text = derivation_coq(derived(name))
    lemma = [line for line in text.splitlines() if line.startswith("Lemma step") and right in line][-1]
    done = compiled(text.replace(lemma, lemma.replace(right, wrong, 1)), tmp_path)
    assert done.returncode != 0
    number = text.splitlines().index(lemma) + 2  # its proof
    assert f"line {number}" in done.stderr or f"line {number - 1}" in done.stderr
