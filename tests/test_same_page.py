"""The row *same page*: printed LaTeX is read back as the words that were checked, and a corrupted page is refused."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given

import symcircuits as sc
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import Expansion, Term, expand
from symcircuits.verification.same_page import NOTATIONS, SPREAD, WHOLE, check_page, printed_terms, read_term
from symcircuits.verification.verify import verify
from tests.strategies import cases, examples

ARCH = sc.attention_only((2, 2), biases=["b_V"])
TARGETS = ("logits", "scores:L1H0")


@examples(60)
@given(cases(max_terms=300, max_layers=3))
def test_every_page_of_any_architecture_is_read_back(case: tuple[Architecture, str]) -> None:
    check = check_page([expand(*case)])
    assert check.passed, check.what
    assert (check.error, check.bound) == (0, 0)


def test_of_many_terms_a_sample_is_read_and_said() -> None:
    check = check_page([sc.scores(sc.attention_only((12,) * 12), "L11H3")])
    assert check.passed
    assert f"{SPREAD + 1} of them a sample" in check.what


def test_the_display_of_a_notebook_is_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has all terms: a sign, a row, the left side and the notation are of the display."""
    expansion = sc.logits(ARCH)
    assert expansion.count <= WHOLE
    right = Expansion.latex
    for old, new in ((" + ", " - "), (r"\text{V}", r"\text{none}"), ("logits", "stream"), (r"&&\text{V} \\", "")):
        assert old in right(expansion), old
        monkeypatch.setattr(Expansion, "latex", lambda e, old=old, new=new: right(e).replace(old, new, 1))
        assert check_page([expansion]).passed is False
    monkeypatch.setattr(Expansion, "latex", right)
    assert check_page([expansion]).passed


# One token of what is printed is another.
CORRUPTIONS: dict[str, Callable[[str], str]] = {
    "another head": lambda t: t.replace("L0H1", "L0H0"),
    "a factor dropped": lambda t: re.sub(r"A\^\{\\mathrm\{L0H1\}\}(\\,)?", "", t, count=1),
    "a transpose more": lambda t: t.replace("A^{\\mathrm{L0H1}}", r"A^{\mathrm{L0H1}\,\mathsf{T}}", 1),
    "a transpose less": lambda t: (
        t.replace(r"\,\mathsf{T}", "", 1) if "mathsf" in t else t.replace("W_U", r"W_U^{\mathsf{T}}")
    ),
    "another letter": lambda t: t.replace("W_{OV}", "W_{QK}", 1).replace("b_V", "b_O", 1),
    "a factor twice": lambda t: t.replace("t", r"t\,t", 1) if "otimes" in t else t.replace("X_0", r"X_0\,X_0", 1),
    "a sign": lambda t: "-" + t,
    "nothing": lambda t: "",
    "a bracket less": lambda t: t.replace(r"\bigl(", "", 1) if "bigl" in t else t + r"\bigr)",
    "a word": lambda t: t + r"\,\text{and more}",
    "another scale": lambda t: r"s^{\mathrm{L0H0}}\," + t,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("what", CORRUPTIONS)
def test_one_wrong_token_of_a_page_is_refused(what: str, notation: str, target: str) -> None:
    expansion, changed = expand(ARCH, target), 0

    def wrong(e: Expansion, terms: Sequence[Term], chosen: str) -> Iterator[tuple[str, str]]:
        nonlocal changed
        for term, (latex, composition) in zip(terms, printed_terms(e, terms, chosen), strict=True):
            new = CORRUPTIONS[what](latex) if chosen == notation and "L0H1" in term.label else latex
            changed += new != latex
            yield new, composition

    check = check_page([expansion], wrong)
    assert changed
    assert check.passed is False
    assert check.error == changed


def test_a_printer_with_a_fault_is_seen_by_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terms are right, and what is printed is not: no other row sees it."""
    latex: Any = Term.latex
    monkeypatch.setattr(Term, "latex", lambda term: latex(term).replace(r"\,\mathsf{T}", "", 1))
    report = verify(sc.attention_only((2, 2)))
    assert {check.name for check in report.checks if check.passed is False} == {"same page"}
    assert not report.ok


def test_types_and_missing_terms_are_seen() -> None:
    expansion = sc.scores(ARCH, "L1H0")
    swapped = check_page([expansion], lambda e, terms, n: [(t.written(n).latex(), "QK") for t in terms])
    assert swapped.passed is False
    assert "is printed as of type QK" in swapped.what
    fewer = check_page([expansion], lambda e, terms, n: list(printed_terms(e, terms, n))[1:])
    assert fewer.passed is False
    assert check_page([sc.logits(ARCH).order(7)]).passed is False  # no term was looked at


def test_attached_names_are_not_read_and_that_is_said() -> None:
    model = sc.random_model(ARCH).with_(sc.readout([1.0] * 16))
    check = check_page([expand(model.architecture, "readout:probe")])
    assert (check.passed, check.what) == (None, "names of attachments are not read")


@pytest.mark.parametrize(
    "latex", ["", r"\bigl(A \otimes", r"\bigl(A\bigr)\,t", "A + B", r"\frac{A}{B}", r"A^{\mathsf{T}", "@"]
)
def test_what_is_no_term_is_refused(latex: str) -> None:
    for notation in NOTATIONS:
        with pytest.raises(ValueError, match=r"."):
            read_term(latex, ARCH, notation)
