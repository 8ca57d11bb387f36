"""The text of the book: what it cites it has, nothing is printed twice, and what is printed is confirmed apart."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest
from made import everything
from test_recheck import ROOT, recheck

from symcircuits.core.version import DATE, VERSION
from symcircuits.core.words import Word
from symcircuits.derivation import book
from symcircuits.derivation.claims import Claim, DerivationError
from symcircuits.derivation.derive import Derivation, theorem
from symcircuits.derivation.examples import Literal
from symcircuits.derivation.frames import COMPOSITIONS
from symcircuits.derivation.multiplying import composition_of_word, multiply_out
from symcircuits.derivation.nodes import Apply, Expr, Family, Identity, Number, Product, Sum, Tensor
from symcircuits.derivation.printing.chapters import Part, book_latex
from symcircuits.derivation.printing.citations import Citations
from symcircuits.derivation.printing.displays import expr_latex
from symcircuits.derivation.printing.text import expr_text
from symcircuits.derivation.result_checker import ResultChecker
from symcircuits.derivation.results.every import entries, registered
from symcircuits.derivation.specials import NamedMatrix


@cache
def parts() -> tuple[tuple[str, Part], ...]:
    made = everything()
    return tuple((entry.chapter, Part(entry.name, entry.heading, made[entry.name])) for entry in entries())


@cache
def text() -> str:
    chapters: dict[str, list[Part]] = {}
    for chapter, part in parts():
        chapters.setdefault(chapter, []).append(part)
    return book_latex("A book", chapters, "2026-12-01")


def results() -> dict[str, str]:
    found = re.split(r"(?=\\subsection\{)", text())[1:]
    return {re.search(r"\\label\{result:(\w+)\}", piece)[1]: piece for piece in found}  # type: ignore[index]


def derivation(name: str) -> Derivation:
    return next(part.derivation for _, part in parts() if part.name == name)


def test_every_result_is_a_theorem_with_hypotheses_proof_and_remarks() -> None:
    assert list(results()) == [entry.name for entry in entries()]
    for name, piece in results().items():
        order = [piece.index(mark) for mark in (r"\result", r"\named{Hypotheses}", r"\named{Proof}", r"\checked{")]
        assert order == sorted(order)
        assert r"\named{Remarks}" in piece
        assert "eld fixed" in piece.split(r"\named{Proof}")[0], name
        assert not re.search(r"textbf\{Summary|requested for|Own derivation\.$|modulo \$p\$: ", piece)
        steps = re.findall(rf"\{{step:{name}:(\d+)\}}\{{", piece)
        assert steps == [str(step.number) for step in derivation(name).steps]


def test_what_is_cited_is_there_and_stands_before() -> None:
    labels = [match.start() for match in re.finditer(r"\\(?:next)?step\{step:", text())]
    places = {m[1]: m.start() for m in re.finditer(r"\\(?:next)?step\{(step:\w+:\d+)\}", text())}
    assert len(places) == len(labels)
    cited = [(m[1], m.start()) for m in re.finditer(r"\\ref\{(step:\w+:\d+)\}", text())]
    assert len(cited) > 100
    assert all(name in places for name, _ in cited)
    for found in re.finditer(r"(?:This is|As in|See also) ((?:\\ref\{step:\w+:\d+\}(?:, | and )?)+)", text()):
        assert all(places[name] < found.start() for name in re.findall(r"step:\w+:\d+", found[1]))


def test_the_same_is_not_printed_twice() -> None:
    assert text().count(r"X_0 &= t\,W_E^{\mathsf{T}}") == 1
    assert text().count("Row convention: ") == 1
    for mixed in ("logits_two_layers", "scores_third_layer"):  # terms that stand there already, as tensors
        assert "a map for each" in results()[mixed]


def test_the_introduction_counts_what_the_book_has() -> None:
    steps = [step for _, part in parts() for step in part.derivation.steps]
    head = re.sub(r"\s+", " ", text().split(r"\subsection{")[0])
    assert f"{len(parts())} results, {sum(s.check.claims for s in steps)} claims in {len(steps)} steps" in head
    assert f"symcircuits {VERSION}" in head
    assert r"\hypersetup{pdftitle={A book},pdfauthor={The symcircuits developers}" in head
    for how, words in (("count", "By counting"), ("exact", "Exactly"), ("indices", "By indices")):
        assert f"{words} ({sum(s.check.claims for s in steps if s.check.how == how)} claims)" in head


def test_the_second_evaluator_confirms_the_book() -> None:
    verdicts = list(recheck.page(text()))
    assert {found for _, found in verdicts} == {"confirmed", "defined"}
    assert sum(found == "confirmed" for _, found in verdicts) > 500
    right = results()["logits_generic"]
    wrong = right.replace(r"A^{h_{2}}\,A^{h_{1}}", r"A^{h_{1}}\,A^{h_{2}}", 1)
    assert wrong != right
    assert any(found.startswith("refuted") for _, found in recheck.page(wrong))


def test_only_the_very_same_claim_is_cited() -> None:
    first, known = theorem("virtual_heads"), Citations()
    claim = first.steps[0].claims[1]
    assert known.places(claim) == ()
    known.take("virtual_heads", first.steps)
    assert known.places(claim) == (("virtual_heads", 1),)
    lhs, rhs = claim.sides
    assert known.places(Claim((rhs, lhs))) == known.places(Claim((lhs, first.steps[0].claims[0].rhs))) == ()
    assert known.places(replace(claim, relation="!=")) == ()


def test_names_that_a_result_defines_stay_with_it() -> None:
    first, known = theorem("copying"), Citations()
    known.take("copying", first.steps)
    assert known.places(first.steps[0].claims[0]) == ()
    assert known.places(first.steps[1].claims[0]) == (("copying", 2),)


@pytest.mark.parametrize("given", ["yesterday", "", "1e9", "9" * 40])
def test_a_wrong_time_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", given)
    monkeypatch.setattr(book, "derivations", lambda: iter(()))
    with pytest.raises(ValueError, match="SOURCE_DATE_EPOCH must be a number of seconds since 1970, not"):
        book.book()


# ------------------------------------------------------------------------------------------- what its results refuse
NEW = (
    "tensor_product", "convolution", "talking_heads", "skip_trigrams", "without_skip", "singular_vectors",
    "singular_pieces", "head_loadings", "path_patching", "basis_freedom",
)  # fmt: skip


def corrupted(claim: Claim) -> Claim:
    """A claim that is wrong: twice the right-hand side, a rank of zero, the same on both sides where they differ."""
    *others, rhs = claim.sides
    if claim.relation == "!=":
        return replace(claim, sides=(*others, claim.lhs))
    if claim.relation == "<=":
        return replace(claim, sides=(*others, Number(0)))
    return replace(claim, sides=(*others, Product((rhs, rhs)) if isinstance(rhs, Tensor) else Sum((rhs, rhs))))


@pytest.mark.parametrize("name", NEW)
def test_a_wrong_claim_of_a_result_is_refused(name: str) -> None:
    entry = registered(name)
    assert entry.result is not None
    frame, drafts = entry.frame, tuple(entry.result.steps(entry.frame))
    checker = ResultChecker(frame, drafts, entry.result.given)
    for draft in drafts:
        for i, claim in enumerate(draft.claims):
            if claim.rhs == Identity() or draft.complete or (claim.relation == "=" and is_nothing(claim.rhs)):
                continue
            claims = [*draft.claims]
            claims[i] = corrupted(claim)
            with pytest.raises(DerivationError):
                checker.check(replace(draft, claims=tuple(claims)), 1)


def is_nothing(expr: Expr) -> bool:
    return isinstance(expr, Literal) and {entry for row in expr.rows for entry in row} == {"0"}


def test_the_order_of_a_kronecker_product_matters() -> None:
    entry = registered("tensor_product")
    assert entry.result is not None
    drafts = tuple(entry.result.steps(entry.frame))
    rows, columns = drafts[-1].claims
    swapped = Claim((columns.lhs, rows.rhs)), Claim((rows.lhs, columns.rhs))
    for claim in swapped:
        with pytest.raises(DerivationError, match="the two sides differ"):
            ResultChecker(entry.frame, drafts).check(replace(drafts[-1], claims=(claim,)), 5)


def test_a_sum_in_a_slot_stands_in_parentheses() -> None:
    a, b = NamedMatrix("a"), NamedMatrix("b")
    assert expr_latex(Tensor((a, Sum((a, b))))) == r"{a} \otimes \bigl({a} + {b}\bigr)"
    assert expr_text(Tensor((a, Sum((a, b))))) == "a (x) (a + b)"
    assert r"\otimes \bigl(a_1\,W_{OV}" in theorem("talking_heads", notation="paper").latex()


def test_vectors_are_bold_in_formulas_and_sentences() -> None:
    found = theorem("skip_trigrams")
    assert r"$\mathbf{u}$ is any vector" in found.latex()
    assert r"{\mathbf{u}}" in found.latex()
    assert "u is any vector" in found.text()
    assert "bold" not in found.text() + found.latex()


# ------------------------------------------------------------------------------------------------------------ order
@pytest.mark.parametrize("name", [e.name for e in entries() if e.target.startswith("scores:") and e.result is None])
def test_terms_of_scores_stand_in_one_order(name: str) -> None:
    """None, Q, K, QK: wherever terms are listed, with streams still in them too, and as tensors."""
    found = [
        [composition_of_word(Word(term.factors)) for term in multiply_out(side)]
        for step in derivation(name).steps if step.check.how == "values" and step.kind in LISTS
        for claim in step.claims for side in claim.sides[1:] if listed(side)
    ]  # fmt: skip
    assert all(kinds == sorted(kinds, key=COMPOSITIONS.index) for kinds in found)
    assert found


LISTS = ("distributing", "collecting by composition type", "mixed product")


def listed(side: Expr) -> bool:
    """Whether it is a list of terms, none of them a product of sums."""
    body = side.operator if isinstance(side, Apply) else side
    while isinstance(body, Product) and len(body.factors) == 1:
        body = body.factors[0]
    families = isinstance(body, Sum) and any(isinstance(term, Family) for term in body.terms)
    return families or (isinstance(body, Sum) and all(len(multiply_out(term)) <= 1 for term in body.terms))


# ----------------------------------------------------------------------------------------------- numbers of layers
GENERIC = [e.name for e in entries() if e.form == "generic" and e.result is None]


@pytest.mark.parametrize("name", GENERIC)
def test_layers_have_one_numbering_in_a_formula(name: str) -> None:
    """Where heads are ``h_1``, ``h_2``, no label counts layers from 0; beside each number stands the label it is of."""
    for _, display in re.findall(r"\\begin\{(align(?:at)?\*)\}(.*?)\\end\{\1\}", results()[name], re.S):
        left = re.sub(r"\\labelled\{\w+\}", "", display)
        assert not re.search(r"L\d|\\mathrm\{[QKM]\d", left), left
        for label, shown in re.findall(r"\\labelled\{(\w+)\}\{((?:[^{}]|\{\w*\})*)\}", display):
            digits, number = re.findall(r"\d+", label)[0], re.findall(r"\d+", shown)[0]
            assert int(number) == int(digits) + 1
            assert ("h_" in shown) == ("H" in label)


def test_where_heads_are_listed_labels_stay() -> None:
    assert r"\labelled" not in results()["logits_two_layers"] + results()["layer_norm"]
    assert r"A^{\mathrm{L1H0}}" in results()["logits_two_layers"]


def test_a_label_beside_a_number_is_what_is_rechecked() -> None:
    piece = text().split(r"\subsection{")[0] + r"\subsection{" + results()["scores_generic"].split("{", 1)[1]
    assert {found for _, found in recheck.page(piece)} == {"confirmed"}
    wrong = piece.replace(r"\labelled{L1H0}{h_{2}}", r"\labelled{L0H0}{h_{1}}", 1)
    assert any(found.startswith("refuted") for _, found in recheck.page(wrong))


def test_the_date_is_that_of_the_version() -> None:
    """As the changelog has it, where it has the version."""
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.search(rf"^## \[{re.escape(VERSION)}\] - (\S+)$", changelog, re.M)
    assert released is None or released[1] == DATE
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", DATE)
