"""Derivations in Lean: what is stated is what is printed; the sides are equal; the lemmas that are named suffice."""

import re
from functools import cache

import pytest

import symcircuits as sc
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing import lean_reader
from symcircuits.derivation.printing.coq import coverage
from symcircuits.derivation.printing.lean import derivation_lean, lean_coverage, preamble
from symcircuits.derivation.printing.lean_reader import as_text, formula, misstated, theorems
from symcircuits.derivation.results.every import entries
from symcircuits.derivation.results.registry import Entry
from tests.lean_model import LEMMAS, LeanFile
from tests.test_coq_claims import CASES as IN_COQ
from tests.test_coq_claims import derived as derived_anew

CASES = [name for name in IN_COQ if name != "rotary"]  # what turns rows is left in Lean, and named

# What Lean and its tactics begin a sentence with, or keep for themselves: no letter may be called so.
KEYWORDS = re.compile(
    r"abbrev|at|axiom|by|calc|class|def|deriving|do|else|end|example|export|extends|for|from|fun|have|if|import|in|include|"
    r"inductive|instance|lemma|let|local|macro|match|mutual|namespace|notation|omit|open|private|protected|return|section|"
    r"set_option|show|structure|suffices|syntax|then|theorem|universe|unless|variable|where|with"
)


derived = cache(derived_anew)


@cache
def lean(name: str) -> str:
    return derivation_lean(derived(name))


# ------------------------------------------------------------------------------------------------ what is stated


@pytest.mark.parametrize("name", CASES)
def test_what_is_stated_is_what_is_printed(name: str) -> None:
    assert misstated(derived(name), lean(name)) == []


@pytest.mark.parametrize("name", CASES)
def test_the_claims_are_those_of_coq(name: str) -> None:
    in_coq, in_lean = coverage(derived(name)), lean_coverage(derived(name))
    assert list(in_lean.lemmas) == list(in_coq.lemmas) == list(theorems(lean(name)))
    assert (in_lean.defined, in_lean.left) == (in_coq.defined, in_coq.left)
    for lemma, statement in theorems(lean(name)).items():  # the layout of the file changes nothing
        assert re.sub(r"[()\s]", "", statement) == re.sub(r"[()\s]", "", in_lean.lemmas[lemma])


MUTANTS: dict[str, tuple[str, str, str]] = {
    "a transpose": ("two layers", "W_OV_L0H0ᵀ * W_Uᵀ", "W_OV_L0H0 * W_Uᵀ"),
    "a transpose of what stands in parentheses": ("shortformer", "((X1 + P) * W_K_L1H0ᵀ)ᵀ", "((X1 + P) * W_K_L1H0)"),
    "an order": ("two layers", "W_OV_L0H0ᵀ * W_OV_L1H0ᵀ", "W_OV_L1H0ᵀ * W_OV_L0H0ᵀ"),
    "another head": ("two layers", "A_L1H0 * A_L0H0", "A_L1H0 * A_L0H1"),
    "W_Q W_K^T": ("scores", '"W_QK_L1H0" => (W_Q_L1H0ᵀ * W_K_L1H0)', '"W_QK_L1H0" => (W_K_L1H0ᵀ * W_Q_L1H0)'),
    "W_QK turned": ("scores", "A_L0H1 * X0 * W_OV_L0H1ᵀ * W_QK_L1H0", "A_L0H1 * X0 * W_OV_L0H1ᵀ * W_QK_L1H0ᵀ"),
    "a dropped scale": ("scores", "(scale_L1H0 • (X0 * W_QK_L1H0 * X0ᵀ))", "(X0 * W_QK_L1H0 * X0ᵀ)"),
    "a dropped term": ("two layers", "(A_L0H0 * X0 * W_OV_L0H0ᵀ * W_Uᵀ) +\n", ""),
    "a number": ("two layers", "2 + 1", "2 + 2"),
    "a slot of a tensor": ("two layers", "(tensor A_L0H1 (W_U *", "(tensor A_L0H0 (W_U *"),
    "the side of a norm": ("norms", "D_L1 * A_L0H0 * D_L0", "A_L0H0 * D_L1 * D_L0"),
    "another head of the group": ("groups", "W_OV_L0H0ᵀ", "W_OV_L0H1ᵀ"),
}


def mutated(what: str) -> str:
    """The file with the last equation of matrices changed that has it; a list of terms is only counted."""
    name, right, wrong = MUTANTS[what]
    parts = lean(name).split("\n\n")
    at = [i for i, part in enumerate(parts) if right in part and ("count_terms" not in part or what == "a number")][-1]
    parts[at] = wrong.join(parts[at].rsplit(right, 1))
    return "\n\n".join(parts)


@pytest.mark.parametrize("what", MUTANTS)
def test_a_file_that_states_something_else_is_read_as_wrong(what: str) -> None:
    faults = misstated(derived(MUTANTS[what][0]), mutated(what))
    assert len(faults) == 1
    assert faults[0].endswith("which is not what is printed")


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("theorem step4_1_1 :", "theorem step4_1_1 (h : t = t) :", "step4_1_1 is not a theorem that is only stated"),
        ("theorem step4_1_1 :", "axiom step4_1_1 :", "step4_1_1 is not a theorem that is only stated"),
        (
            "variable (W_U",
            "variable (h : A_L0H0ᵀ = A_L0H0)\nvariable (W_U",
            "h is assumed, A_L0H0ᵀ = A_L0H0, which no claim",
        ),
    ],
)
def test_what_is_assumed_beside_is_read(right: str, wrong: str, fault: str) -> None:
    text = lean("two layers")
    (found,) = misstated(derived("two layers"), text.replace(right, wrong))
    assert found.startswith(fault)


def test_formulas_are_read_as_lean_reads_them() -> None:
    assert formula("c • A * B") == formula("(c • A) * B").__class__("*", (formula("c • A"), formula("B")))
    assert as_text("(A + B)ᵀ") != as_text("A + Bᵀ")
    assert lean_reader._values("(elementary 2 [2, 1, 3] : ℕ) = ((1 + 2) * 3 + [A, B].length)") == [11, 11]
    for wrong in ("A *", "A * * B", "(A", "A)", "[A", "A ? B", "∀ X A = B"):
        with pytest.raises(ValueError, match=r"cannot read|a formula of Lean has"):
            formula(wrong)


def test_what_is_left_is_named() -> None:
    derivation = sc.derive(sc.transformer((1, 1), positions="rotary"), "scores:L1H0")
    found, text = lean_coverage(derivation), derivation_lean(derivation)
    assert "rotary positions turn its rows" in found.left.values()
    assert all(f"   {claim}: {reason}" in text for claim, reason in found.left.items())


# ------------------------------------------------------------------------------------------------ the file


@pytest.mark.parametrize("name", CASES)
def test_the_file_says_that_it_was_not_compiled_and_assumes_nothing_else(name: str) -> None:
    text = lean(name)
    assert text.startswith("/-\nA derivation of symcircuits")
    assert "\nNot compiled where it was written." in text.partition("-/")[0]
    assert "\nimport Mathlib\n" in text
    assert not re.search(r"\b(sorry|admit|axiom|native_decide|unsafe|opaque|partial)\b", text)
    file = LeanFile(text)
    hypotheses = re.findall(r"^variable \((?!\w+ : Matrix \w+ \w+ R\)$)(.*)\)$", text, re.MULTILINE)
    scalars = [line for line in hypotheses if line.endswith(" : R")]
    assert [h for h in hypotheses if h not in scalars] == [f"symmetric_{m} : {m}ᵀ = {m}" for m in file.symmetric]
    kinds = {step.number: step.kind for step in derived(name).steps}
    for number, kind, first in re.findall(
        r"^/-! ### Step (\d+) \((.*)\) -/\n\ntheorem step(\d+_1)_1", text, re.MULTILINE
    ):
        assert (kinds[int(number)], first) == (kind, f"{number}_1")
    assert re.findall(r"#print axioms (\w+)", text) == list(file.stated)
    assert not any(map(KEYWORDS.fullmatch, (*file.shapes, *file.scalars, *file.types, *file.meant)))
    assert max(map(len, text.splitlines())) <= 100
    used = {word for body in [*theorems(text).values()] for word in re.findall(r"[A-Za-z]\w*", body)}
    known = {*file.shapes, *file.scalars, *file.meant, "X", "id", "length"}
    known |= {"identity", "tensor", "tensor3", "scaled", "elementary"}  # defined at the beginning of the file
    assert used - {"ᵀ"} <= {*known, *(f"{word}ᵀ" for word in known)}


# ---------------------------------------------------------------------------------------- it is true, and closes


@pytest.mark.parametrize("name", CASES)
def test_the_sides_are_equal_on_drawn_matrices(name: str) -> None:
    file = LeanFile(lean(name))
    assert file.differences(seed=1) == []
    assert len(file.stated) >= 20


@pytest.mark.parametrize(
    "what", [m for m in MUTANTS if m != "W_Q W_K^T"]
)  # what a notation means is the same on both sides
def test_mutants_are_not_equal(what: str) -> None:
    file = LeanFile(mutated(what))
    assert len(file.differences()) == 1
    assert len(file.unproved()) == (what != "a number")


@pytest.mark.parametrize("name", CASES)
def test_the_lemmas_that_the_tactic_names_bring_both_sides_to_the_same_words(name: str) -> None:
    assert LeanFile(lean(name)).unproved() == []


def in_few_heads(entry: Entry) -> Derivation:
    """The derivation of an entry; a generic one with two heads a layer, or with one where two make many terms."""
    for most in (2, 1) if entry.form == "generic" else (max(entry.heads, default=0),):
        heads = tuple(min(most, n) for n in entry.heads)
        groups = {"groups": tuple(min(most, n) for n in entry.options["groups"])} if "groups" in entry.options else {}
        arch = sc.transformer(heads, **{**entry.options, **groups})
        if most == 1 or sc.expand(arch, entry.target).count <= 9:
            break
    return sc.derive(arch, entry.target, entry.form)


def test_the_book() -> None:
    """Every derivation of the book: read back, equal on a draw, closed by the lemmas that are named."""
    proved = 0
    for entry in entries():
        derivation = sc.theorem(entry.name) if entry.result is not None else in_few_heads(entry)
        file = LeanFile(derivation_lean(derivation))
        assert misstated(derivation, file.text) == file.differences() == file.unproved() == [], entry.name
        proved += len(file.stated)
    assert proved > 500


def test_every_lemma_is_needed() -> None:
    """Without it some claim stays open, so the list that is tried is the one that stands in the file."""
    texts = [lean(name) for name in ("norms", "biases, positions, multipliers, an MLP", "scores", "two layers")]
    texts += [derivation_lean(sc.derive(sc.transformer((1, 1), multipliers=True), "scores:L1H0"))]
    assert LeanFile(texts[-1]).unproved() == LeanFile(texts[-1]).differences() == []
    for lemma in LEMMAS:
        assert preamble().count(f" {lemma},") + preamble().count(f" {lemma}]") == 1
        without = (re.sub(rf" {re.escape(lemma)}(?=[,\]])", " *", text) for text in texts)
        assert any(LeanFile(text).unproved() for text in without), lemma
    assert LeanFile(lean("norms").replace("[*,", "[id_eq,")).unproved(), "D is symmetric by a hypothesis"
