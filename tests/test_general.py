"""The general theorem: proved in Coq without axioms, and every way to pass without a proof is refused."""

import hashlib
import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from symcircuits.verification import coq as general
from symcircuits.verification import listing
from symcircuits.verification.compilers import Said
from symcircuits.verification.coq import THEOREMS, GeneralReport, check_general
from symcircuits.verification.coqc import CLOSED, INSTALL, Compiler

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "derivations" / "general"
SOURCES = [name for name in (FOLDER / "_CoqProject").read_text("utf-8").split() if name.endswith(".v")]


def asked(folder: Path | None = None) -> GeneralReport:
    """The report; where Coq or mathcomp is missing the test is skipped, or fails if Coq is required."""
    report = check_general(folder)
    if not report.available:
        if os.environ.get("SYMCIRCUITS_REQUIRE_COQ") == "1":
            pytest.fail(f"{report.reason} (SYMCIRCUITS_REQUIRE_COQ=1 asks for it)", pytrace=False)
        pytest.skip(report.reason)
    return report


def said_by(folder: Path, name: str, text: str) -> str:
    """A name for the text of a file together with those of all that it imports."""
    imported = " ".join(re.findall(r"^From Circuits Require Import ([\w ]+)\.", text, re.MULTILINE)).split()
    texts = [said_by(folder, stem, (folder / f"{stem}.v").read_text("utf-8")) for stem in imported]
    return hashlib.sha256("\0".join([name, text, *texts]).encode()).hexdigest()


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A proof file compiles once: where it and what it imports are the same again, coqc's result is taken from before.

    Coq itself refuses a compiled file whose imports are not those that it was compiled with.
    """
    kept, compile_ = tmp_path_factory.mktemp("compiled"), Compiler.compile

    def once(self: Compiler, name: str, text: str, seconds: float = 600) -> Said:
        key = kept / said_by(self.scratch, name, text)
        result = self.scratch / f"{Path(name).stem}.vo"
        if name not in SOURCES or not key.is_file():
            said = compile_(self, name, text, seconds)
            if name in SOURCES and not said.fault:
                shutil.copy(result, key)
            return said
        (self.scratch / name).write_text(text, "utf-8")
        shutil.copy(key, result)
        return Said("", "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compiler, "compile", once)
        yield


@pytest.fixture(scope="module")
def report() -> GeneralReport:
    """What Coq says of the proofs as they are."""
    before = {path: path.read_bytes() for path in FOLDER.iterdir() if path.is_file()}
    report = asked()
    assert {path: path.read_bytes() for path in FOLDER.iterdir() if path.is_file()} == before, "it writes nothing there"
    return report


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the proofs, to be corrupted."""
    folder = tmp_path / "general"
    folder.mkdir()
    for name in [*SOURCES, "_CoqProject", "statements.txt"]:
        shutil.copy(FOLDER / name, folder / name)
    return folder


def change(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text("utf-8")
    assert text.count(old) == 1, old
    (folder / name).write_text(text.replace(old, new), "utf-8")


# ------------------------------------------------------------------------------------------ what is proved


def test_every_theorem_is_proved_without_axioms(report: GeneralReport) -> None:
    assert report.faults == ()
    assert report.theorems == dict.fromkeys(THEOREMS, CLOSED)
    assert report.ok
    assert report.proved == len(THEOREMS) >= 40


def test_the_statements_are_the_recorded_ones(report: GeneralReport) -> None:
    recorded = (FOLDER / "statements.txt").read_text("utf-8")
    if recorded.split("\n")[0].rpartition(".")[0] != f"Coq {report.coq.rpartition('.')[0]}":
        pytest.skip("the statements were recorded by another version of Coq")
    assert report.record().split("\n", 1)[1] == recorded.split("\n", 1)[1]
    flat = " ".join(report.statements["stream_is_sum_over_paths"].split())
    assert "stream layers X = \\sum_(p <- paths layers) (virtual_head p).1 *m X *m (virtual_head p).2^T" in flat


def test_the_report_shows_itself(report: GeneralReport) -> None:
    text, data = report.text(), report.json()
    assert text.count("\nproved ") == len(THEOREMS) == len(data["theorems"])
    assert f"{len(THEOREMS)} of {len(THEOREMS)} theorems proved without axioms" in text
    assert data["ok"] is data["available"] is True
    assert {theorem["assumptions"] for theorem in data["theorems"]} == {CLOSED}
    assert "fix paths" in data["definitions"]["paths"]
    assert repr(report) == text


def test_a_third_enumerator_lists_the_same_paths(report: GeneralReport) -> None:
    """Coq's list against the enumeration; that it has every path once is proved."""
    lists = listing.questions()
    assert len(lists) == 1 + len(listing.PATHS) + len(listing.PAIRS)
    assert not [fault for fault in report.faults if "paths of" in fault]
    assert "for 3; 2,2; 3,2; 2,3,1; 12,12; 4,1,1,2; 2; 2,1 heads" in report.text(500)


# -------------------------------------------------------------------------------------- what must be refused

FALSE = {
    "transposes swapped": (
        "Paths.v",
        "  = \\sum_(p <- paths layers) (virtual_head p).1 *m X *m (virtual_head p).2^T.",
        "  = \\sum_(p <- paths layers) (virtual_head p).1 *m X *m (virtual_head p).2.",
    ),
    "the order of the virtual head reversed": (
        "Heads.v",
        "  act (A2, W2) (act (A1, W1) X) = act (A2 *m A1, W2 *m W1) X.",
        "  act (A2, W2) (act (A1, W1) X) = act (A1 *m A2, W2 *m W1) X.",
    ),
    "a term without its signs": (
        "Unique.v",
        "  term p X = \\sum_(S : {set T} | S \\subset p) (-1) ^+ (size p - #|S|) *: run S X.",
        "  term p X = \\sum_(S : {set T} | S \\subset p) run S X.",
    ),
    "any family whose whole sum is the model": (
        "Unique.v",
        "  (forall S, \\sum_(p <- paths layers | all (mem S) p) t p = run S X) ->",
        "  \\sum_(p <- paths layers) t p = run setT X ->",
    ),
    "an order that is none": (
        "Listing.v",
        "((i < j) || ((i == j) && in_dictionary p' q')))",
        "((i == j) && in_dictionary p' q'))",
    ),
    "a remainder that begins an order too early": (
        "Remainder.v",
        "  remainder k layers X = \\sum_(p <- paths layers | (k < size p)%N) act (virtual_head p) X.",
        "  remainder k layers X = \\sum_(p <- paths layers | (k <= size p)%N) act (virtual_head p) X.",
    ),
    "a moment that forgets the scale on one side": (
        "Largest.v",
        "  (scale f 0 t * scale f 0 s) *: ((O g *m V f)^T *m M t s *m (O g *m V f)).",
        "  scale f 0 t *: ((O g *m V f)^T *m M t s *m (O g *m V f)).",
    ),
    "the norm before the branch behind it": (
        "Layers.v",
        "[seq after (outward l) (after (pattern h, W_O h *m W_V (group h)) (norm_before l))",
        "[seq after (outward l) (after (norm_before l) (pattern h, W_O h *m W_V (group h)))",
    ),
    "the scale on the destination side": (
        "Norms.v",
        "Definition fold_norm N (h : head) : head := (h.1 *m N.1, h.2 *m N.2).",
        "Definition fold_norm N (h : head) : head := (N.1 *m h.1, h.2 *m N.2).",
    ),
}


@pytest.mark.parametrize("case", FALSE)
@pytest.mark.sampled(3)
def test_a_false_statement_is_refused(copy: Path, case: str) -> None:
    name, old, new = FALSE[case]
    change(copy, name, old, new)
    report = asked(copy)
    assert not report.ok
    assert len(report.faults) == 1
    assert f"{name} does not compile: " in report.faults[0]


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("Proof. by rewrite mulmxDr mulmxDl head_in_three_steps trmx_mul !mulmxA. Qed.", "Admitted.", "Admitted"),
        ("Section Biases.", "Axiom trust_me : False.\nSection Biases.", "Axiom"),
        ("Section Biases.", "Parameter trust_me : False.\nSection Biases.", "Parameter"),
        ("Section Biases.", "Unset  Guard\nChecking.\nSection Biases.", "Unset Guard Checking"),
    ],
)
def test_a_missing_proof_is_refused(copy: Path, old: str, new: str, word: str) -> None:
    change(copy, "Sources.v", old, new)
    report = asked(copy)
    assert not report.ok
    assert re.fullmatch(rf"Sources.v:\d+: '{word}' is in place of a proof", report.faults[0])


def test_coq_names_what_is_assumed_and_what_is_weakened(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without our reading of the words, what Coq prints still refuses: an axiom, and a statement made weaker.

    A claim put among the hypotheses of its section leaves no axiom, but the theorem then states something else.
    """
    monkeypatch.setattr(general, "_refused", lambda name, text: [])
    proof = "Proof. by rewrite mulmxDr mulmxDl head_in_three_steps trmx_mul !mulmxA. Qed."
    change(copy, "Sources.v", proof, "Admitted.")
    counts = "forall ls : seq (seq (head R n d)), size (paths ls) = \\prod_(heads <- ls) (1 + size heads)"
    change(copy, "Counts.v", "(* The head counts", f"Hypothesis claim : {counts}.\n(* The head counts")
    proof = "by rewrite size_cat size_allpairs IH big_cons mulnDl mul1n."
    change(copy, "Counts.v", proof, "by rewrite (claim (heads :: rest)).")
    report = asked(copy)
    assert not report.ok
    assert report.theorems, report.faults
    assert "Axioms:" in report.theorems["value_bias_is_source"]
    assert report.theorems["number_of_paths"] == CLOSED
    *assumed, weak_1, weak_2 = report.faults
    assert assumed[0].startswith("value_bias_is_source is not proved from nothing; Coq says: Axioms:")
    assert all("is not proved from nothing; Coq says: Axioms: value_bias_is_source" in fault for fault in assumed)
    assert [fault.split()[0] for fault in assumed[1:]] == [  # what is proved with its help
        "general_layer_is_maps",
        "general_stream_is_sum_over_routes",
        "general_scores_are_double_sum",
    ]
    assert (weak_1, weak_2) == (
        "number_of_paths does not state what statements.txt records for it",
        "number_of_score_terms does not state what statements.txt records for it",
    )


def test_a_missing_theorem_is_refused(copy: Path) -> None:
    change(copy, "Basis.v", "Theorem QK_unchanged_inside", "Theorem something_else")
    change(copy, "Theorems.v", "  pose proof @QK_unchanged_inside.\n", "")
    report = asked(copy)
    assert not report.ok
    assert "a theorem is missing: " in report.faults[0]
    assert "QK_unchanged_inside" in report.faults[0]
    assert "FAILED  QK_unchanged_inside" in report.text()


def test_another_list_is_refused() -> None:
    answers = {"paths_3": "= [:: [::]; [:: (0, 0)]; [:: (0, 2)]; [:: (0, 1)]]\n : seq (seq place)"}
    answers["pairs_2"] = "= [:: ([::], [::])]\n : seq (seq place * seq place)"
    answers["paths_3_2"] = "= listing [:: 3; 2]"
    faults = listing.differences(answers)
    assert "the paths of 3,2 heads: Coq's answer is not a list: listing [ 3, 2]" in faults
    assert faults[0] == "the paths of 3 heads: number 2 is [(0, 2)] in Coq and [(0, 1)] in the package"
    assert faults[1] == "the paths of 2,2 heads: Coq gives no list"
    assert "the pairs of paths of 2 heads: Coq lists 1, the package 9" in faults


def test_a_changed_record_is_seen() -> None:
    """What is recorded of a record type begins with that word, and not with its name."""
    old = "Coq 8.16.1\n\nRecord a : Type := A { b : nat }.\n\nRecord c : Type := C { e : nat }.\n\nf = fun x => x\n"
    assert general._differences(old, old) == []
    assert general._differences(old, old.replace("b : nat", "b : bool")) == [
        "a does not state what statements.txt records for it"
    ]
    assert "Record general_layer" in (FOLDER / "statements.txt").read_text("utf-8")


def test_every_file_is_checked(copy: Path) -> None:
    (copy / "More.v").write_text("Lemma more : True. Proof. exact I. Qed.\n", "utf-8")
    (copy / "Norms.v").unlink()
    assert asked(copy).faults == (
        "_CoqProject names Norms.v, which is not there",
        "More.v is not named in _CoqProject, and so not checked",
    )


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("(* Admitted, (* Axiom *) Parameter *) Lemma a : True.", 0),
        ('Goal True. idtac "Admitted (*". exact I. Qed. Admitted.', 1),
        ("(* one *)\n\nAdmitted.", 1),
        ("Lemma Axiomatic_admitted : True. Print Assumptions x.", 0),
        ("Axioms a b : False.\nadmit.\nConjecture c : False.", 3),
    ],
)
def test_words_are_read_outside_of_comments(text: str, faults: int) -> None:
    found = general._refused("A.v", text)
    assert len(found) == faults
    assert all(fault.startswith("A.v:") for fault in found)
    assert not found or "A.v:3: 'Admitted'" in found[0] or "\n\n" not in text


# ------------------------------------------------------------------------------------ where it cannot be asked


def test_without_coq_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    report = check_general()
    assert (report.ok, report.available, report.theorems) == (False, False, {})
    assert INSTALL in report.text(500)
    assert report.json()["available"] is False


def test_without_mathcomp_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coqc that knows no library."""
    version = '[ "$1" = --print-version ] && echo 8.16.1 4.13.1 && exit'
    script = f"#!/bin/sh\n{version}\necho 'Cannot find mathcomp' >&2; exit 1\n"
    (tmp_path / "coqc").write_text(script, "utf-8")
    (tmp_path / "coqc").chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(tmp_path / name))
    report = check_general()
    assert (report.ok, report.available, report.coq) == (False, False, "8.16.1")
    assert "mathcomp" in report.text(500)
    assert INSTALL in report.text(500)


def test_an_older_coq_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "coqc").write_text("#!/bin/sh\necho 8.13.2 4.11.1\n", "utf-8")
    (tmp_path / "coqc").chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(tmp_path / name))
    report = check_general()
    assert (report.ok, report.available, report.coq) == (False, False, "8.13.2")
    assert "Coq 8.13.2 is older than 8.16, which the proofs are written for" in report.text(500)


def test_an_installed_package_has_no_proofs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(general, "__file__", str(tmp_path / "symcircuits" / "verification" / "coq.py"))
    report = check_general()
    assert (report.ok, report.available) == (False, False)
    assert "in the repository, in derivations/general" in report.text(500)


def test_a_folder_without_proofs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there are no proofs in"):
        check_general(tmp_path)


# ----------------------------------------------------------------------------------- the names are the same


def names_in(pattern: str, *files: str) -> list[str]:
    return [name for file in files for name in re.findall(pattern, (FOLDER / file).read_text("utf-8"), re.MULTILINE)]


def test_files_and_documents_name_the_same_theorems() -> None:
    names = list(THEOREMS)
    assert names_in(r"^Theorem (\w+)", *SOURCES) == names
    assert names_in(r"^  pose proof @(\w+)\.", "Theorems.v") == names
    assert names_in(r"^Print Assumptions (\w+)\.", "Theorems.v") == ["every_theorem"]
    assert names_in(r"^\| `(\w+)` \|", "README.md") == names
    assert [re.sub(r"\\allowbreak |\\", "", name) for name in names_in(r"^\\texttt\{(.*?)\}:", "theorem.tex")] == names


def test_the_documents_are_what_the_table_writes() -> None:
    module = runpy.run_path(str(FOLDER / "theorem.py"))
    written: Callable[[], str] = module["theorem_tex"]
    assert written() == (FOLDER / "theorem.tex").read_text("utf-8")
    page = (FOLDER / "README.md").read_text("utf-8")
    assert module["readme"](page) == page


def test_the_document_compiles(tmp_path: Path, pdflatex: str) -> None:
    command = [pdflatex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", str(FOLDER / "theorem.tex")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    log = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, log[-2000:]
    assert re.findall(r"(?:Overfull|Underfull) \\hbox.*|LaTeX Warning.*", log) == []
