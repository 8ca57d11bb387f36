"""Derivations in Coq: what is stated is what is printed, every plain claim is proved, and mutants are refused."""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import symcircuits as sc
from symcircuits.cli.main import main
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing import coq
from symcircuits.derivation.printing.coq import coverage, derivation_coq, module, tactic
from symcircuits.derivation.printing.coq_reader import TURNED, as_text, misstated
from symcircuits.verification import proofs
from symcircuits.verification.coqc import CLOSED, Compiler
from symcircuits.verification.result import Check
from symcircuits.verification.verify import _represents_others

CASES: dict[str, tuple[Any, str, str]] = {
    "two layers": (sc.attention_only((2, 1)), "logits", "enumerated"),
    "scores": (sc.attention_only((2, 1)), "scores:L1H0", "enumerated"),
    "any heads": (sc.attention_only((2, 1)), "logits", "generic"),
    "biases, positions, multipliers, an MLP": (
        sc.transformer((1, 1), biases=True, positions="standard", multipliers=True, mlps=[0]), "logits", "enumerated",
    ),
    "norms": (sc.transformer((1, 1), norm="LN", biases=["b_N"]), "scores:L1H0", "generic"),
    "groups": (sc.attention_only((2, 1), groups=(1, 1)), "scores:L1H0", "generic"),
    "rotary": (sc.attention_only((1, 1), positions="rotary"), "scores:L1H0", "generic"),
    "alibi": (sc.attention_only((1, 1), positions="alibi"), "scores:L1H0", "enumerated"),
    "shortformer": (sc.attention_only((1, 1), positions="shortformer", biases=["b_Q"]), "scores:L1H0", "enumerated"),
}  # fmt: skip


def derived(name: str) -> Derivation:
    return sc.derive(*CASES[name])


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    """Coq with the tactic compiled; skipped where Coq or mathcomp is not there, unless they are required."""
    found = Compiler.found(tmp_path_factory.mktemp("coq"))
    why = "Coq is not installed" if found is None else found.unusable()
    if found is None or why:
        if os.environ.get("SYMCIRCUITS_REQUIRE_COQ") == "1":
            pytest.fail(f"Coq with mathcomp is required: {why}", pytrace=False)
        pytest.skip(why)
    assert found.compile("Claims.v", tactic()).fault == ""
    return found


# ------------------------------------------------------------------------------------------------ what is stated


@pytest.mark.parametrize("name", CASES)
def test_what_is_stated_is_what_is_printed(name: str) -> None:
    derivation = derived(name)
    text = derivation_coq(derivation)
    assert misstated(derivation, text) == []
    if derivation.form == "enumerated":  # the words of the reader against the text that is printed
        printed = re.sub(r"[()\s]", "", derivation.text().replace(").T", f"){TURNED}"))
        statements = [s for s in coverage(derivation).lemmas.values() if "%N" not in s and "forall" not in s]
        assert sum(as_text(s.split(" = ")[1]) in printed for s in statements) > len(statements) / 2


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("two layers", "A_L1H0 *m A_L0H1", "A_L1H0 *m A_L0H0"),
        ("two layers", "W_OV_L0H0^T *m W_U^T", "W_OV_L0H0 *m W_U^T"),
        ("two layers", "Definition X0 := (t *m W_E^T)", "Definition X0 := (t *m W_E)"),
        ("two layers", "(tensor A_L0H0 (W_U *m W_OV_L0H0 *m W_E))", "(tensor A_L0H0 (W_U *m W_E *m W_OV_L0H0))"),
        ("two layers", "(1 + 2)", "(1 + 3)"),
        ("scores", "(scale_L1H0 *: (X0 *m", "((X0 *m"),
        ("shortformer", "((X1 + P) *m W_K_L1H0^T)^T", "((X1 + P) *m W_K_L1H0^T^T)"),
        ("norms", "D_L1 *m (A_1 q_1)", "(A_1 q_1) *m D_L1"),
        ("any heads", "(A_2 h_2) *m (A_1 h_1) *m", "(A_2 h_2) *m (A_2 h_1) *m"),
        ("any heads", "(\\sum_(0 <= h_2 < H_2) (\\sum_(0 <= h_1", "(\\sum_(0 <= h_2 < H_1) (\\sum_(0 <= h_1"),
        ("any heads", "(over_acts H_1 (fun h_1 => (tensor (A_1", "(over_acts H_2 (fun h_1 => (tensor (A_1"),
        ("any heads", "(H_1 * H_2)", "(H_1 + H_2)"),
        ("any heads", "Definition W_OV_1 (h : nat) := ((W_O_1 h)", "Definition W_OV_1 (h : nat) := ((W_O_2 h)"),
        ("groups", "(W_V_1 (G_1 h))", "(W_V_1 h)"),
        ("rotary", "(between R_L1H0 (X0 *m W_Q_L1H0^T) (W_K_L1H0 *m X0^T))", "(X0 *m W_Q_L1H0^T *m W_K_L1H0 *m X0^T)"),
        ("rotary", "(W_K_L1H0 *m X0^T)", "(W_K_L1H0 *m (W_OV_1 k_1) *m X0^T)"),
    ],
)
def test_a_file_that_states_something_else_is_read_as_wrong(name: str, right: str, wrong: str) -> None:
    derivation = derived(name)
    text = derivation_coq(derivation)
    assert right in text
    at = text.rindex(right)
    faults = misstated(derivation, text[:at] + wrong + text[at + len(right) :])
    assert len(faults) == 1
    assert faults[0].endswith("which is not what is printed")


@pytest.mark.parametrize("name", CASES)
def test_every_claim_is_a_lemma_a_definition_or_named_with_its_reason(name: str) -> None:
    derivation = derived(name)
    found = coverage(derivation)
    claims = {f"step {s.number}, claim {i}" for s in derivation.steps for i in range(1, len(s.claims) + 1)}
    proved = {"step {}, claim {}".format(*re.findall(r"\d+", lemma)) for lemma in found.lemmas}
    assert proved | found.defined.keys() | found.left.keys() == claims
    assert len(proved) + len(found.defined) + len(found.left) == len(claims)
    assert found.left == {}, "of these expansions nothing is left"
    text = derivation_coq(derivation)
    assert not re.search(r"\b(Admitted|Axiom|Parameter|Conjecture)\b", text)
    assumed = re.findall(r"^Hypothesis (.*)$", text, re.MULTILINE)
    assert all(re.fullmatch(r"symmetric_(\w+) : \1\^T = \1\.", line) for line in assumed)
    identity = next(s for s in derivation.steps if "terms" in s.check.also)  # the sum over all terms
    assert any(lemma.startswith(f"step{identity.number}_") for lemma in found.lemmas)


def test_what_is_left_is_named() -> None:
    derivation = sc.theorem("copying")
    found = coverage(derivation)
    assert {"it has a Trace", "it is in numbers"} <= {*found.left.values()}
    text = derivation_coq(derivation)
    assert all(f"   {claim}: {reason}" in text for claim, reason in found.left.items())


def test_what_a_result_states_of_the_logits_defines_nothing() -> None:
    """Its first claim is the sum over paths: as a definition it would prove itself."""
    found = coverage(sc.theorem("uniqueness"))
    assert not found.lemmas
    assert not found.defined
    assert found.left["step 1, claim 1"] == "logits is not defined before it"


@pytest.mark.parametrize(("name", "lemmas"), [("bias_collapse", 0), ("virtual_heads", 2)])
def test_what_needs_rows_that_sum_to_one_is_left(name: str, lemmas: int) -> None:
    """It does not hold of all matrices; how maps are multiplied does."""
    derivation = sc.theorem(name)
    found = coverage(derivation)
    assert len(found.lemmas) == lemmas
    assert any("it may need what is given: rows sum to one" in reason for reason in found.left.values())
    assert misstated(derivation, derivation_coq(derivation)) == []


# ------------------------------------------------------------------------------------------------ what is proved


@pytest.mark.parametrize(
    "names",
    [
        ("two layers", "scores"),
        pytest.param(
            [n for n in CASES if n not in ("any heads", "alibi", "shortformer", "rotary")], marks=pytest.mark.slow
        ),
    ],
    ids=["few", "many"],
)
def test_every_plain_claim_is_proved_from_nothing(compiler: Compiler, names: Sequence[str]) -> None:
    """The others are among what ``derivations/prove.py`` proves, in CI: each takes seconds."""
    derivations = {name: derived(name) for name in names}
    rows = proofs.prove_together(compiler, derivations)
    assert [(row.target, row.passed, row.what) for row in rows if not row.passed] == []
    assert len(rows) == len(derivations)
    for row in rows:
        lemmas, details = coverage(derivations[row.target]).lemmas, row.details
        assert len(details["proved"]) >= 8
        assert {f"step{'_'.join(re.findall(r'[0-9]+', claim))}_1" for claim in details["proved"]} <= lemmas.keys()
        assert "matrices of any sizes over any commutative ring" in row.what
        assert ("for every number of heads and" in row.what) == (derivations[row.target].form == "generic")


MUTANTS: dict[str, tuple[str, str, str]] = {  # in the last lemma that has it
    "a transpose": ("two layers", "W_OV_L0H0^T *m W_U^T", "(W_O_L0H0 *m W_V_L0H0) *m W_U^T"),
    "an order": ("two layers", "W_OV_L0H0^T *m W_OV_L1H0^T", "W_OV_L1H0^T *m W_OV_L0H0^T"),
    "another head": ("two layers", "A_L1H0 *m A_L0H0", "A_L1H0 *m A_L0H1"),
    "a dropped term": ("two layers", " + (A_L0H1 *m X0 *m W_OV_L0H1^T *m W_U^T)", ""),
    "a slot of a tensor": ("two layers", "(tensor A_L0H1 (W_U *m", "(tensor A_L0H0 (W_U *m"),
    "a term that is not counted": ("two layers", " = ((1 + 2) * (1 + 1))", " = (1 + (2 * (1 + 1)))"),
    "a dropped scale": ("scores", "(scale_L1H0 *: (X0 *m W_QK_L1H0 *m X0^T))", "(X0 *m W_QK_L1H0 *m X0^T)"),
    "W_QK turned": ("scores", "W_QK_L1H0", "W_QK_L1H0^T"),
    "the side of a norm": ("norms", "(A_1 q_1) *m D_L0", "D_L0 *m (A_1 q_1)"),
    "the head of the other side": ("groups", "(tensor3 (A_1 q_1) (A_1 k_1) ", "(tensor3 (A_1 k_1) (A_1 q_1) "),
    "the heads of another layer": ("any heads", "(\\sum_(0 <= h_2 < H_2)", "(\\sum_(0 <= h_2 < H_1)"),
    "another token's rotation": ("rotary", "(between R_L1H0 ", "(between (fun i => R_L1H0 i.+1) "),
    "no rotation": ("rotary", "(between R_L1H0 ", "(mulmx "),
    "a head more": ("any heads", "(\\sum_(0 <= h_2 < H_2)", "(\\sum_(0 <= h_2 < H_2.+1)"),
    "numbers that are equal for two heads": ("any heads", " = (H_1 + H_2)", " = (H_1 * H_2)"),
}


def mutated(what: str) -> str:
    """A module with the wrong lemma alone, of which Coq must say that the tactic fails."""
    name, right, wrong = MUTANTS[what]
    lines = module(derived(name)).splitlines()
    lemmas = [i for i in range(len(lines)) if lines[i].startswith("Lemma step") and right in lines[i]]
    at = [i for i in lemmas if "%N" not in lines[i] or " = " in right][-1]  # a list of terms is counted alone
    declared = [line for line in lines[:at] if re.match(r"Section|Variable|Hypothesis|Definition", line)]
    statement = lines[at].split(" : ", 1)[1]
    proof = lines[at + 1].replace("; claim. Qed.", ". Fail claim. Abort.")
    return "\n".join([*declared, f"Lemma wrong : {statement.replace(right, wrong, 1)}", proof, "End Derivation."])


def test_mutants_are_refused(compiler: Compiler) -> None:
    """Each is a statement that Coq reads (else the file does not compile), and that the tactic does not prove."""
    parts = [f"Module Mutant{i}.\n{mutated(what)}\nEnd Mutant{i}.\n" for i, what in enumerate(MUTANTS)]
    said = compiler.compile("Mutants.v", proofs._BEGIN + "".join(parts))
    assert said.fault == ""
    right = parts[0].replace(MUTANTS["a transpose"][2], MUTANTS["a transpose"][1])
    said = compiler.compile("Right.v", proofs._BEGIN + right)
    assert "The command has not failed" in said.fault, "what is right is proved by the same tactic"


def test_sums_over_heads_may_stand_in_any_order(compiler: Compiler) -> None:
    """So that a side is not refused because its sums were written in another order than they came about."""
    sums = "\\sum_(0 <= q_1 < H_1) (\\sum_(0 <= k_1 < H_1) "
    lines = module(derived("groups")).splitlines()
    at = [i for i, line in enumerate(lines) if line.startswith("Lemma step") and sums in line and "%N" not in line][-1]
    declared = [line for line in lines[:at] if re.match(r"Section|Variable|Hypothesis|Definition", line)]
    turned = lines[at].replace(sums, "\\sum_(0 <= k_1 < H_1) (\\sum_(0 <= q_1 < H_1) ")
    said = compiler.compile("Turned.v", "\n".join([proofs._BEGIN, *declared, turned, lines[at + 1], "End Derivation."]))
    assert said.fault == ""


# ------------------------------------------------------------------------------------------------ verify --coq


def test_a_claim_that_coq_refuses_fails_its_row(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that states something else is refused before Coq is asked, and by Coq where nobody reads it back."""
    right = "(A_L0H0 *m X0 *m W_OV_L0H0^T *m W_U^T)"

    def wrong(derivation: Derivation) -> str:
        lines = module(derivation).splitlines()
        at = [i for i, line in enumerate(lines) if right in line and "%N" not in line][-1]
        lines[at] = "(A_L0H0 *m X0 *m (W_U *m W_OV_L0H0 *m W_OV_L0H0)^T)".join(lines[at].rsplit(right, 1))
        return "\n".join(lines) + "\n"

    monkeypatch.setattr(proofs, "module", wrong)
    derivations = {"logits": sc.derive(sc.attention_only((1,)), "logits")}
    (row,) = proofs.prove_together(compiler, derivations)
    assert (row.passed, row.error) == (False, 1)
    assert "the file for Coq states something else in 1 place: step" in row.what
    monkeypatch.setattr(proofs, "misstated", lambda derivation, text: [])
    (row,) = proofs.prove_together(compiler, derivations)
    assert row.passed is False
    assert re.match(r"step \d+, claim \d+ is not proved: File", row.what)


def test_what_coq_assumes_is_counted(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        proofs, "module", lambda derivation: module(derivation).replace("claim. Qed.", "admit. Admitted.")
    )
    (row,) = proofs.prove_together(compiler, {"logits": sc.derive(sc.attention_only((1,)), "logits")})
    assert row.passed is False
    assert "Coq says of 0 of 17 lemmas that they assume nothing" in row.what


def test_a_coq_that_takes_too_long_is_said(compiler: Compiler) -> None:
    (row,) = proofs.prove_together(compiler, {"logits": sc.derive(sc.attention_only((1,)), "logits")}, 0.01)
    assert (row.passed, row.what) == (None, "Coq has not ended after 0.01 seconds")


def test_too_many_terms_are_not_given_to_coq(compiler: Compiler) -> None:
    (row,) = proofs.check_proved(sc.attention_only((1,) * 7), ["logits"])
    assert (row.passed, row.what) == (None, "Coq is given at most 100 terms of a target, and there are 128")
    (row,) = proofs.check_proved(sc.attention_only((2,) * 7), ["logits"])
    assert row.what == "Coq is given at most 100 terms of a target, and there are 2,187, or 128 sums over heads"


def test_where_heads_are_many_they_are_sums(compiler: Compiler) -> None:
    (row,) = proofs.check_proved(sc.attention_only((120,)), ["logits"])
    assert row.passed
    assert "for every number of heads and matrices of any sizes" in row.what


def test_without_targets_a_row_says_which_heads_were_not_asked() -> None:
    row = Check(proofs.PROVED, "scores:L1H2", True, 0, 0, what="proved")
    arch = sc.attention_only((1, 3))
    assert _represents_others(arch, row).what == (
        "proved; the other 2 heads of its layer were not asked: their claims differ only in the name of the head"
    )
    assert _represents_others(arch, replace(row, target="scores:L0H0")).what == "proved"
    assert _represents_others(arch, replace(row, target="logits")).what == "proved"


def test_without_coq_the_row_says_so_and_the_exit_status_is_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["verify", "--heads", "1", "--coq", "--target", "stream"]) == 2
    assert "not run proved - - stream: Coq is not installed" in " ".join(capsys.readouterr().out.split())


def test_the_row_of_verify(compiler: Compiler, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--heads", "1", "--coq", "--target", "stream"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "claims proved and 2 definitions, for matrices of any sizes over any commutative ring" in shown


def test_claims_that_cannot_be_said_are_named(compiler: Compiler) -> None:
    derivation = sc.theorem("uniqueness")
    (row,) = proofs.prove_together(compiler, {"uniqueness": derivation})
    left = coverage(derivation).left
    assert row.passed is None
    assert row.what.startswith("no claim has a lemma: step 1, claim 1")
    assert all(claim in row.what and reason in row.what for claim, reason in left.items())


def test_claims_that_a_language_cannot_say_are_named_and_the_exit_status_is_2(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they would be in Coq without the theorem on rotary positions."""
    monkeypatch.setattr(coq, "COQ", replace(coq.COQ, rotary=None))
    assert main(["verify", "--heads", "1,1", "--positions", "rotary", "--coq", "--target", "scores:L0H0"]) == 2
    shown = " ".join(capsys.readouterr().out.split())
    left = coverage(sc.derive(sc.transformer((1, 1), positions="rotary"), "scores:L0H0")).left
    assert left
    assert all(claim in shown for claim in left)
    assert "(rotary positions turn its rows)" in shown


def test_coq_does_not_go_with_the_general_theorem(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--general", "--coq"]) == 2
    assert "--coq has no effect with --general" in capsys.readouterr().err


def test_a_compiled_file_is_what_is_written(compiler: Compiler, tmp_path: Path) -> None:
    """The file of ``derive --format coq``, with its tactic in it."""
    derivation = sc.derive(sc.attention_only((1,)), "stream")
    said = Compiler(compiler.coqc, tmp_path).compile("Whole.v", derivation_coq(derivation))
    assert said.fault == ""
    assert said.output.count(CLOSED) == len(coverage(derivation).lemmas) >= 8
