"""Every printed page in every notation: what it says of itself, that it is true, and that it compiles."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made import everything
from test_render import CASES, compiled, derived

import symcircuits as sc
from symcircuits.arrays.rings import Array, transpose
from symcircuits.cli import main as cli
from symcircuits.core.notation import NOTATIONS, Notation
from symcircuits.core.symbols import FLIPPED
from symcircuits.derivation import book
from symcircuits.derivation.claims import Claim, Step
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.nodes import Expr, Tensor, every_node
from symcircuits.derivation.other_runs import Changed
from symcircuits.derivation.printing.forms import shown, shown_claims
from symcircuits.derivation.printing.prose import prose
from symcircuits.derivation.printing.text import expr_text
from symcircuits.derivation.results.every import entries, registered
from symcircuits.derivation.specials import Named, NamedMatrix
from symcircuits.derivation.values import Instance
from symcircuits.model.instances import random_model
from tests.strategies import architectures, examples, targets

PRINTED = [entry.name for entry in entries()]
NASTY = {"W_OV": r"\input{/etc/passwd}", "A": "$x_1%", "W_E": "a_b^c~#&{}", "scale": "Ω", "W_U": "é–ü", "X0": "中"}


@cache
def derivations() -> dict[str, Derivation]:
    """Every result of the book, and the cases of the golden files."""
    return everything() | {f"golden {name}": derived(name) for name in CASES}


NAMES = [*PRINTED, *(f"golden {name}" for name in CASES)]


# ------------------------------------------------------------------------------------- what a page says of itself
START = {"row": "Row convention:", "paper": "The paper's notation:", "transformerlens": "TransformerLens's convention:"}
ACTS = {
    "row": "", "paper": "acts by (A (x) W) X = A X W^T",
    "transformerlens": "acts by (A (x) W) X = A X W",
}  # fmt: skip


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled(15)
def test_every_page_says_its_convention_and_what_is_held_fixed(name: str, notation: str) -> None:
    derivation = derivations()[name].written(notation, {"W_OV": "W_VO"})
    data = json.loads(json.dumps(derivation.json()))
    assert data["notation"] == {
        "name": notation, "symbols": {"W_OV": "W_VO"}, "convention": Notation(notation).convention,
    }  # fmt: skip
    said = " ".join(data["conventions"])
    assert said.startswith(START[notation])
    assert ACTS[notation] in said
    assert "Names of symbols: W_VO stands for W_OV." in said
    assert (
        "Held fixed: the attention patterns" in said
        or "Nothing is held fixed: the formulas contain no attention pattern" in said
    )
    frame, result = derivation.frame, derivation.result
    page = f"{derivation.statement} {said} " + " ".join(s["reason"] for s in data["steps"])
    if result is None or result.names_model:  # which architecture, and where its position embedding is
        model = f"heads {','.join(map(str, frame.architecture.heads)) or 'none'}"
        assert "any number of heads in each" in derivation.text() or model in " ".join(derivation.text().split())
        assert "position embedding" in said
    else:
        assert "position" in page
    scores = any(c in side["text"] for s in data["steps"] for cl in s["claims"] for side in cl["sides"]
                 for c in ("scale[", "S["))  # fmt: skip
    assert scores == derivation.speaks_of_scores
    if scores:
        assert "The score scale s (usually 1/sqrt(d_head)) is one scalar" in said or "carry no scale" in said
    # Text and LaTeX say the same, in their own way.
    text, latex = " ".join(derivation.text().split()), derivation.latex(standalone=True)
    for line in data["conventions"]:
        assert line in text
    assert latex.count(r"\textit{Conventions.} " + prose(START[notation])) == 1
    assert latex.isascii()


def test_the_pages_of_a_book_are_all_looked_at() -> None:
    assert set(sc.theorems()) <= set(PRINTED)
    assert len(set(NAMES)) == len(NAMES)


def test_a_notebook_and_an_explanation_say_it_too(data: Path) -> None:
    for notation in NOTATIONS:
        names = Notation(notation, {"A": "P"})
        said = names.convention
        shown_terms = sc.logits(sc.attention_only((2,))).written(names).latex()
        assert r"Held fixed: the attention patterns.}" in shown_terms
        assert "$P$ stands for A" in shown_terms
        page = sc.derive(sc.attention_only((1,)), notation=names)._repr_html_()
        assert "Held fixed: the attention patterns $P$" in page
        run = random_model(sc.attention_only((2, 2))).run([1, 2])
        found = sc.explain(sc.evaluate(sc.logits(run.model.architecture).written(names), run), top=3)
        text = " ".join(found.text(100).split())
        assert "held fixed: the attention pattern of every head" in text
        assert f"terms in {said}; P stands for A" in text
        assert found.json()["notation"]["name"] == notation
        assert found.json()["terms"][0]["text"] == found.terms[0].term.text
        assert "P[L" in found.json()["terms"][1]["text"]


@examples(60)
@given(st.data())
def test_documents_of_different_architectures_differ(data: st.DataObject) -> None:
    """Whatever differs, also biases in no formula and heads above: the page is another one."""
    limits: dict[str, Any] = {"max_layers": 2, "max_heads": 2, "max_terms": 20}
    one, other = data.draw(architectures(**limits)), data.draw(architectures(**limits))
    if data.draw(st.booleans()):  # close to each other
        other = replace(one, biases=other.biases & frozenset(possible(one)) or one.biases, causal=other.causal,
                        scale=other.scale, positions=other.positions)  # fmt: skip
    target = data.draw(targets(one, 40))
    assume(one != other)
    form = data.draw(st.sampled_from(["enumerated", "generic"]))
    try:
        pages = [sc.derive(arch, target, form) for arch in (one, other)]
    except ValueError:  # no such head, no unembedding, or some biases where the generic form needs all
        assume(False)
    assert pages[0].text() != pages[1].text()
    assert pages[0].latex() != pages[1].latex()
    assert pages[0].json() != pages[1].json()


def test_a_bias_in_no_formula_is_on_every_kind_of_page() -> None:
    """The stream does not meet the bias of the unembedding; the page says that the model has it."""
    pages = [sc.derive(sc.attention_only((0,), None, b), "stream", "generic") for b in (("b_O", "b_U"), ("b_O",))]
    assert pages[0].json()["subject"].endswith("and no others; the model also has b_U.")
    assert pages[1].json()["subject"].endswith("and no others.")
    assert pages[0].text() != pages[1].text()


def possible(arch: sc.Architecture) -> Iterator[str]:
    from tests.strategies import possible_biases

    return iter(possible_biases(arch))


# --------------------------------------------------------------------- what is shown has the value of what is checked
class TheirInstance(Instance):
    """Values of what is shown in TransformerLens's notation: maps act from the right, some names are of transposes."""

    turned: frozenset[str] = frozenset()

    def value(self, expr: Expr, bindings: Any = {}) -> Array:  # noqa: B006
        if not isinstance(expr, (Changed, Named, NamedMatrix)):
            return super().value(expr, bindings)
        found = Instance(self.architecture, self.target, self.k, self.seed, self.trials,
                         rows_sum_to_one=self.rows_sum_to_one).value(expr, bindings)  # fmt: skip
        if isinstance(expr, Changed):  # its matrices are not printed in it
            return found
        if name_of(expr) in self.turned:
            assert not expr.flips, "a name of a transpose is printed with its sign"
            return transpose(found)
        return found

    def _act_tensor(self, slots: list[Array], x: list[Array]) -> Array:
        if len(slots) == 2:
            return self.ring.matmul(self.ring.matmul(slots[0], x[0]), slots[1])
        return super()._act_tensor(slots, x)


def name_of(expr: Named | NamedMatrix) -> str:
    return expr.text if isinstance(expr, Named) else expr.name


def everything_in(expr: Expr) -> Iterator[Expr]:
    """All that is printed, and what names stand for."""
    for found in every_node(expr):
        yield found
        if isinstance(found, Named):
            yield from everything_in(found.body)


def instance_of(derivation: Derivation, kind: type[Instance]) -> Instance:
    arch = derivation.frame.instances[-1] if derivation.frame.generic else derivation.frame.architecture
    given_ones = "rows sum to one" in (derivation.result.given if derivation.result else ())
    return kind(arch, derivation.target, 4, trials=1, rows_sum_to_one=given_ones)


def checked_claims(derivation: Derivation) -> Iterator[tuple[Step, Claim]]:
    for step in derivation.steps:
        if step.check.how == "values":
            yield from ((step, claim) for claim in step.claims)


@pytest.mark.parametrize("name", NAMES)
def test_maps_have_the_value_of_what_was_checked(name: str) -> None:
    """Every side that the paper's notation rearranges, on random matrices over the prime field."""
    derivation = derivations()[name]
    lab, moved = instance_of(derivation, Instance), False
    for _, claim in checked_claims(derivation):
        for side in claim.sides:
            other = shown(side, Notation("paper"))
            moved |= other != side
            assert (lab.value(other) == lab.value(side)).all(), expr_text(side)
    vectors = {"skip_trigrams", "head_loadings"}
    of_weights = {"basis_freedom", "composition_scores", "copying", "eigenvalue_tricks", "frobenius_not_cyclic"}
    assert moved or name in {"numbers_of_terms", "virtual_heads", "pointer_arithmetic", *vectors, *of_weights}


@pytest.mark.parametrize("name", NAMES)
def test_what_acts_from_the_right_has_the_value_of_what_was_checked(name: str) -> None:
    """The same in TransformerLens's notation; a claim between weights alone may be turned round as a whole."""
    derivation = derivations()[name]
    plain_lab, lab = instance_of(derivation, Instance), instance_of(derivation, TheirInstance)
    everything = [e for _, claim in checked_claims(derivation) for side in claim.sides for e in everything_in(side)]
    lab.turned = frozenset(name_of(e) for e in everything if isinstance(e, (Named, NamedMatrix)) and e.flips)  # type: ignore[attr-defined]
    for step, claim in checked_claims(derivation):
        alone = replace(step, claims=(claim,))
        [printed] = shown_claims(alone, Notation("transformerlens"))
        before = [plain_lab.value(side) for side in claim.sides]
        after = [lab.value(shown(side, Notation("transformerlens"))) for side in printed.sides]
        if not all((a == b).all() for a, b in zip(after, before, strict=True)):
            before = [transpose(b) for b in before]
        for a, b in zip(after, before, strict=True):
            assert a.shape == b.shape
            assert (a == b).all(), f"{name}: {claim.text}"


def test_the_comparison_sees_a_wrong_rearrangement() -> None:
    page = derivations()["golden logits_3_3"]
    claim = next(step for step in page.steps if "terms" in step.check.also).claims[0]
    lab = Instance(page.frame.architecture, "logits", 4, trials=1)
    map_of_words = shown(claim.rhs, Notation("paper"))
    [first, second] = [e for e in everything_in(map_of_words) if isinstance(e, Tensor)][:2]
    assert "Id (x) W_U @ W_E" in expr_text(first)
    a, w = second.slots
    assert not (lab.value(w) == lab.value(replace(second, slots=(w, a)).slots[0].T)).all()  # type: ignore[union-attr]
    right = TheirInstance(lab.architecture, "logits", 4, trials=1)
    assert not (right.value(map_of_words) == lab.value(claim.rhs)).all()  # a map that acts from the wrong side


def test_what_a_sentence_says_of_sides_is_still_there() -> None:
    """The phrases that TransformerLens's convention says otherwise stand in some page, in the row convention."""
    from symcircuits.derivation.printing.prose import _SAID

    rows = " ".join(d.statement + " ".join(s.reason for s in d.steps) for d in derivations().values())
    for ours, theirs in _SAID.items():
        assert ours in rows
        pages = [d.written("transformerlens") for d in derivations().values()]
        assert any(theirs.replace("`W_OV`", "OV") in " ".join(d.text().split()) for d in pages)


@pytest.mark.parametrize("name", NAMES)
def test_no_weight_of_ours_is_left_in_their_sentences(name: str) -> None:
    """``W_OV^T`` and the like in a sentence of a TransformerLens page is a transpose of theirs, and rarely meant."""
    page = derivations()[name].written("transformerlens").json()
    sentences = " ".join([*page["conventions"], *(s["reason"] for s in page["steps"])])
    found = set(re.findall(r"\b(?:OV|QK|[Wb]_\w+)\^T", sentences)) & {f"{g}^T" for g in (*FLIPPED, "OV")}
    allowed = {"basis_freedom": {"W_E^T", "W_O^T", "W_Q^T", "W_K^T", "W_V^T", "W_U^T"}}
    scores = {"W_E^T", "W_K^T"}  # of W_E W_QK W_E^T and W_QK = W_Q W_K^T
    assert found <= allowed.get(name, scores)


# -------------------------------------------------------------------------------------------------------- compiling
@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize(
    ("heads", "target", "form", "options", "symbols"),
    [
        ((3, 3), "scores:L1H0", "enumerated", {}, {}),
        ((3, 3), "logits", "generic", {}, {"W_OV": "M", "A": "Omega"}),
        ((2, 2), "scores:L1H0", "generic", {"biases": True, "positions": "shortformer"}, {}),
        ((1, 2), "stream", "enumerated", {"biases": True, "positions": "standard"}, NASTY),
        ((2, 1), "scores:L1H0", "enumerated", {}, NASTY),
        ((1,) * 6, "logits", "enumerated", {}, {}),
        ((2, 2, 2), "scores:L2H0", "generic", {"biases": True, "positions": "shortformer"}, {}),
    ],
)
@pytest.mark.sampled(4)
def test_documents_compile_in_every_notation(
    tmp_path: Path, pdflatex: str, notation: str, heads: tuple[int, ...], target: str, form: str,
    options: dict[str, Any], symbols: dict[str, str],
) -> None:  # fmt: skip
    found = sc.derive(sc.attention_only(heads, **options), target, form, notation=notation, symbols=symbols)
    compiled(pdflatex, found.save(tmp_path / "page.tex"), tmp_path)
    if symbols is NASTY and shutil.which("pdftotext"):
        command = ["pdftotext", "page.pdf", "-"]
        text = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout.decode("utf-8")
        assert "root:" not in text
        assert r"\input{/etc/passwd}" in text
        assert "$x1%" in re.sub(r"[\s_]", "", text)  # the underscore is a rule


@pytest.mark.parametrize("notation", ["paper", "transformerlens"])
@pytest.mark.slow  # in the row convention: test_book.py
def test_the_book_compiles_in_every_notation(
    tmp_path: Path, pdflatex: str, notation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = derivations()
    listed = [(entry, made[entry.name]) for entry in entries()]
    monkeypatch.setattr(book, "derivations", lambda: iter(listed))
    folder = tmp_path / "a b%c#d~e$f{g}^h&_"  # all of it means something to LaTeX
    folder.mkdir()
    path = book.write_book(folder, Notation(notation, {"A": "Pi", "W_OV": "Theta"}))
    assert path.read_bytes().startswith(b"%PDF")
    source = (folder / "book.tex").read_text("utf-8")
    assert source.count(prose(START[notation])) == 1
    assert r"\Pi^{\mathrm{L0H0}}" in source


def test_a_book_refuses_names_that_one_of_its_pages_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = registered("virtual_heads"), derivations()["virtual_heads"]
    monkeypatch.setattr(book, "derivations", lambda: iter([entry]))
    with pytest.raises(ValueError, match="virtual_heads: W_OV cannot be printed as 'M': so is M"):
        book.book(Notation("row", {"W_OV": "M"}))
    assert r"\mathrm{Mx}^{h}" in book.book(Notation("row", {"W_OV": "Mx"}))


# ------------------------------------------------------------------------------------------------- the command line
def test_derive_in_a_notation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["derive", "--heads", "2,2", "--symbol", "W_OV=M", "--symbol", "A=P"]
    for notation, term in {
        "row": "P[L1H0] @ P[L0H0] @ X0 @ M[L0H0].T @ M[L1H0].T @ W_U.T",
        "paper": "(P[L1H0] @ P[L0H0] (x) W_U @ M[L1H0] @ M[L0H0] @ W_E) t",
        "transformerlens": "P[L1H0] @ P[L0H0] @ X0 @ M[L0H0] @ M[L1H0] @ W_U",
    }.items():
        assert cli.main([*words, "--notation", notation, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["notation"]["name"], found["terms"][5]["text"]) == (notation, term)
    assert cli.main(["derive", "--heads", "1", "--format", "text"]) == 0
    assert "- Row convention: a stream X has one row for each token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--symbol", "W_OV"], "--symbol 'W_OV': write the symbol and its name, e.g. --symbol W_OV=M"),
        (["--symbol", "A=B", "--symbol", "A=C"], "--symbol A is given twice, as 'B' and as 'C'"),
        (["--symbol", "W_OV="], "W_OV: the name of a symbol must not be empty"),
        (["--symbol", "W_Q=W_K"], "W_Q cannot be printed as 'W_K': so is W_K"),
        (["--symbol", "Q=W_K"], "there is no symbol 'Q'; did you mean"),
        (["--symbol", "A=P", "--positions", "standard"], "A cannot be printed as 'P': so is P"),
        (["--symbol", "A=\x1b[2J"], "A: the name of a symbol has no control characters; '\\x1b[2J' has U+001B"),
    ],
)
def test_bad_symbols_are_refused(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    for command in (["derive", "--heads", "2"], ["check", "X0 @ W_U.T", "--heads", "2"]):
        assert cli.main([*command, *words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err
        assert "Traceback" not in err
        assert "\x1b" not in err


def test_an_unknown_notation_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["derive", "--heads", "2", "--notation", "column"])
    assert end.value.code == 2
    assert "row" in capsys.readouterr().err


def test_check_and_explain_in_a_notation(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "P[L0H1] @ X0 @ M[L0H1].T @ W_U.T", "--heads", "2", "--symbol", "A=P", "--symbol", "W_OV=M"]
    assert cli.main([*words, "--notation", "paper", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["terms"][0]["text"] == "(P[L0H1] (x) W_U @ M[L0H1] @ W_E) t"
    assert (found["convention"], found["notation"]["name"]) == ("paper", "paper")
    assert cli.main(["check", "X0 @ W_U", "--heads", "2", "--convention", "row"]) == 1
    assert "Read: the row convention" in capsys.readouterr().out
    from symcircuits.zoo import path

    words = ["explain", str(path()), "--tokens", "0,7,19", "--top", "9", "--notation", "transformerlens"]
    assert cli.main([*words, "--symbol", "A=P"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "- terms in TransformerLens's convention, a row for each token, weights in its shapes; P stands" in text
    assert re.search(r"P\[L\dH\d\] @ X0 @ OV\[L\dH\d\] @ W_U", text)


def test_names_of_files_do_not_command_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from symcircuits.zoo import path

    folder = tmp_path / "model\x1b[31m\\input{x}"
    shutil.copytree(path(), folder)
    assert cli.main(["explain", str(folder), "--tokens", "0,7", "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("explain model\\x1b[31m\\input{x}: attention-only")
    assert "\x1b" not in out
    assert "\x1b" not in repr(sc.load(folder)) + repr(sc.load(folder).run([1, 2]))
    assert cli.main(["verify", str(folder), "--tokens", "0,7", "--target", "logits"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert cli.main(["explain", str(folder / "no\x1b]0;x"), "--tokens", "0"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_maps_and_names_fit_in_a_notebook() -> None:
    shown_terms = sc.scores(sc.attention_only((2, 2)), "L1H0").written("paper", NASTY)._repr_latex_()
    assert r"\input" not in shown_terms
    bare = re.sub(r"\\[{}]", "", shown_terms)
    assert bare.count("{") == bare.count("}")
