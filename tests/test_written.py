"""Formulas and derivations as people write them: read, judged, the line and the mistake named, nothing wrong right."""

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from symcircuits.checking.check import Verdict, check
from symcircuits.checking.faults import ReadError
from symcircuits.checking.judging import _leaves_norms_out
from symcircuits.core.architecture import Architecture, attention_only, transformer
from symcircuits.core.expansion import expand
from symcircuits.derivation.derive import derive

DATA = Path(__file__).parent / "data"
# From notes, papers, courses and code, re-expressed; and more of each kind, half of them wrong.
FILES = (
    ("written.jsonl", 1), ("written_here.jsonl", 3),  # each third of its formulas, and slowly all
    pytest.param(("written_here.jsonl", 1), marks=pytest.mark.slow),
)  # fmt: skip


def architecture(case: dict[str, Any]) -> Architecture:
    """The model that a formula speaks of."""
    options = dict(case["options"])
    positions, norm, groups = (options.pop(name, None) for name in ("positions", "norm", "groups"))
    if norm or groups:
        return transformer(tuple(case["heads"]), positions, norm=norm, groups=groups and tuple(groups))
    return attention_only(tuple(case["heads"]), positions, options.get("biases", False))


@cache
def judged(file: tuple[str, int]) -> list[tuple[dict[str, Any], Verdict | None]]:
    """Formulas of a file, one of so many, and what the check says; None where it cannot be read."""
    found: list[tuple[dict[str, Any], Verdict | None]] = []
    for line in (DATA / file[0]).read_text("utf-8").splitlines()[:: file[1]]:
        case = json.loads(line)
        try:
            found.append((case, check(case["text"], architecture(case))))
        except ReadError:
            found.append((case, None))
    return found


@pytest.mark.parametrize("file", FILES)
def test_nearly_all_are_read_and_judged_rightly(file: tuple[str, int]) -> None:
    cases = judged(file)
    faults = [case["id"] for case, verdict in cases if verdict is None or verdict.right != case["right"]]
    assert len(faults) <= 0.05 * len(cases), faults


@pytest.mark.parametrize("file", FILES)
def test_nothing_wrong_is_called_right(file: tuple[str, int]) -> None:
    assert [
        case["id"] for case, verdict in judged(file) if verdict is not None and verdict.right and not case["right"]
    ] == []


@pytest.mark.parametrize("file", FILES)
def test_the_wrong_line_is_named(file: tuple[str, int]) -> None:
    wrong = [(case, v) for case, v in judged(file) if v is not None and not case["right"] and "line" in case]
    assert len(wrong) > 5
    assert [(case["id"], v.line) for case, v in wrong if v.line != case["line"]] == []


@pytest.mark.parametrize("file", FILES)
def test_the_mistake_has_its_name(file: tuple[str, int]) -> None:
    wrong = [(case, v) for case, v in judged(file) if v is not None and not case["right"]]
    named = [case["id"] for case, v in wrong if v.mistake == case["mistake"]]
    assert len(named) >= 0.8 * len(wrong)


@pytest.mark.parametrize("file", FILES)
def test_every_answer_says_what_was_read_and_shows_itself(file: tuple[str, int]) -> None:
    for _, verdict in judged(file):
        if verdict is not None:
            assert verdict.read
            assert verdict.text().startswith("Read: ")
            assert json.loads(json.dumps(verdict.json()))["line"] == verdict.line


# ------------------------------------------------------------------------------- what cannot be read is refused
HEADS = r"x_1 = x_0 + \sum_{%s A^h x_0 (W_{OV}^h)^T"
LABELS = r"x_2 = x_1 + \sum_{h} A^{%s} x_1 (W_{OV}^{%s})^T"


@pytest.mark.parametrize(
    "text",
    [
        *(HEADS % f"h={a}}}^{{{b}}}" for a, b in (("2", r"n_{\text{heads}}"), ("2", "H"), ("1", "H-1"), ("0", "H"),
                                                 ("2", "n_h"), ("1", "n_h-1"), ("1", "N"), ("1", "H_1-1"),
                                                 ("2", "H_1"), ("1", "4"))),
        *(HEADS % f"{over}}}" for over in (r"h\in Z", r"h\in\{1,2\}", r"h\ne 2", "h>1", "h<3", r"h\le 2", "h=1",
                                          r"1\le h\le 2", r"h\in\text{heads of layer 2}")),
        HEADS % "h}^{1}",
    ],
)  # fmt: skip
def test_a_range_of_heads_that_is_not_known_is_refused_where_it_stands(text: str) -> None:
    with pytest.raises(ReadError) as refused:
        check(text, attention_only((3,)))
    assert refused.value.position == text.index(r"\sum")


@pytest.mark.parametrize(
    "text",
    [
        *(LABELS % pair for pair in (("L1H,h", "L0H,h"), ("(1),h", "(2),h"), ("1;h", "2;h"), ("h,1", "h,2"))),
        r"x_2 = x_1 + \sum_{h\in H_1} A^{2,h} x_1 (W_{OV}^{h})^T",
        r"x_2 = x_1 + \sum_{h} (A^{h})_{1} x_1 (W_{OV}^{h})_{2}^T",
        r"\sum_{l_1 \le l_2} \sum_{h,h'} A^{l_2,h}A^{l_1,h'}\otimes W_U W_{OV}^{l_2,h}W_{OV}^{l_1,h'}W_E",
        r"T = \sum_{l=1}^{L-1}\sum_{h} A^{l,h}\otimes W_U W_{OV}^{l,h}W_E",
    ],
)
def test_a_layer_that_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(ReadError):
        check(text, attention_only((2, 2)))


# ------------------------------------------------------------------------------------------ what is printed here
PRINTED = [
    attention_only((2, 2)),
    attention_only((2, 1), "standard", True),
    attention_only((1, 2), "shortformer", ["b_V", "b_Q"]),
    transformer((1, 1), "rotary", groups=(1, 1)),
    transformer((1, 1), norm="LN", mlps=True),
    transformer((0, 1), "rotary", qk_norm=True, multipliers=True),
    attention_only((2,), unembed=False),
]


@pytest.mark.parametrize("notation", ["row", "paper", "transformerlens"])
@pytest.mark.parametrize("arch", PRINTED, ids=str)
@pytest.mark.sampled(8)
def test_terms_in_every_notation_are_right(arch: Architecture, notation: str) -> None:
    convention = "transformerlens" if notation == "transformerlens" else None
    for target in arch.targets(arch.all_heads[-1:]):
        expansion = expand(arch, target)
        for i in {0, expansion.count // 2, expansion.count - 1}:
            term = expansion[i].written(notation)
            for form in (term.text, term.latex()):
                verdict = check(form, arch, target if target == "stream" else None, convention)
                assert verdict.right, (form, verdict)
                assert verdict.terms[0].number == i


# ------------------------------------------------------------------------------------------ indices are not solved for
WRONG_INDICES = [
    ((2, 2), "W_E @ W_V[-1,0] @ W_O[-2,0] @ W_U"),
    ((2, 2), "W_E @ W_V[-1,0] @ W_O[-1,0] @ W_V[-2,1] @ W_O[-2,1] @ W_U"),
    ((2, 2), "W_E @ W_V[l+1,h] @ W_O[l+1,h] @ W_V[l,g] @ W_O[l,g] @ W_U"),
    ((2, 2), "W_E @ W_V[l2,g] @ W_O[l2,g] @ W_V[l1,h] @ W_O[l1,h] @ W_U"),
    ((2, 2), "W_U @ W_O[1,h] @ W_V[1,g] @ W_E"),
    ((1, 3), "W_U @ W_O[1,h] @ W_V[1,g] @ W_E"),
    ((1,), "W_U @ W_O[0,h] @ W_V[0,g] @ W_E"),
    ((1,), "M = W_O[0,h]\nN = W_V[0,g]\nW_U @ M @ N @ W_E"),
    ((2, 2), "W_U @ W_O[l,h] @ W_V[m,h] @ W_E"),
    ((2,), "W_U @ W_O[l,h] @ W_V[m,h] @ W_E"),
    ((2, 2), "W_U @ W_O[l,0] @ W_V[1,0] @ W_E"),
    ((2, 2), "A[0,a] @ X0 @ W_OV[0,b].T @ W_U.T"),
    ((2, 2), "W_E @ W_Q[l2,h2] @ W_K[l1,h1].T @ W_E.T"),
    ((3,), "W_E @ W_V[0,h] @ W_O[0,k] @ W_U"),
    ((2, 2), "W_E @ W_V[i,0] @ W_O[j,0] @ W_U"),
    ((2, 2), "W_E @ W_V[foo,bar] @ W_O[bar,foo] @ W_U"),
    ((2, 2), r"W_U W_O^{foo} W_V^{bar} W_E"),
    ((1, 1), r"W_U W_O^{g} W_V^{h} W_E"),
    ((2, 2), "W_U @ W_O[-3,0] @ W_V[-3,0] @ W_E"),
    ((2, 2), "W_U @ W_O[l*2,h] @ W_V[l*2,h] @ W_E"),
    ((2,), r"S^h_{ij} = \frac{1}{\sqrt{d_k}} x_j^T W_{QK}^h x_i"),
    ((2,), r"S^h_{ij} = (W_Q^h x_j)^T (W_K^h x_i)/\sqrt{d_k}"),
    ((2,), r"S^h_{ij} = x_j W_Q^h (x_i W_K^h)^T/\sqrt{d_k}"),
    ((2,), r"S^h_{ij} = x_j^\top W_{QK}^h x_i"),
    ((2,), r"S^h_{ij} = x_j W_{QK}^h x_i^T"),
    ((2,), r"S^h_{ik} = x_i^\top W_{QK}^h x_j"),
    ((2,), r"h(x)_j = \sum_j A^h_{ij} W_{OV}^h x_j"),
    ((2,), r"h(x)_k = \sum_j A^h_{ij} W_{OV}^h x_j"),
    ((2, 2), r"y_k = \sum_{j}\sum_k A^{h_2}_{ij} A^{h_1}_{jk} W_{OV}^{h_2}W_{OV}^{h_1} x_k"),
    ((2,), r"v_m = \sum_j A^h_{ij} W_{OV}^h x_j"),
    ((2,), r"h(x)_i = \sum_j A^h_{ji} W_{OV}^h x_j"),
    ((2,), r"S_{i,j}^{h} = k_i^{h\top} q_j^{h}"),
    ((1, 1), r"A^{h}x_0 W_{OV}^{L0H0\top} W_U^\top"),
]
RIGHT_INDICES = [
    ((2, 2), "W_E @ W_V[-2,0] @ W_O[-2,0] @ W_V[-1,1] @ W_O[-1,1] @ W_U"),
    ((2, 2), "W_E @ W_V[l,g] @ W_O[l,g] @ W_V[l+1,h] @ W_O[l+1,h] @ W_U"),
    ((2, 2), "W_E @ W_V[l1,g] @ W_O[l1,g] @ W_V[l2,h] @ W_O[l2,h] @ W_U"),
    ((2,), "W_U @ W_O[l,h] @ W_V[l,h] @ W_E"),
    ((1, 1), r"W_U W_O^{h} W_V^{h} W_O^{g} W_V^{g} W_E"),
    ((2, 2), "W_U @ W_O[layer,head] @ W_V[layer,head] @ W_E"),
    ((2,), r"S^h_{ij} = x_i^\top W_{QK}^h x_j"),
    ((2,), r"S^h_{ij} = x_j^\top W_{QK}^{h\top} x_i"),
    ((2,), r"h(x)_q = \sum_k A^h_{qk} W_{OV}^h x_k"),
]


@pytest.mark.parametrize(("heads", "text"), WRONG_INDICES)
def test_an_index_is_not_given_the_value_that_makes_it_right(heads: tuple[int, ...], text: str) -> None:
    with suppress(ReadError):
        assert not check(text, attention_only(heads)).right


@pytest.mark.parametrize(("heads", "text"), RIGHT_INDICES)
def test_indices_that_belong_are_right(heads: tuple[int, ...], text: str) -> None:
    assert check(text, attention_only(heads)).right


@pytest.mark.parametrize(
    "text",
    [
        "a = X0 @ W_U.T\na1 = a + a\n" + "\n".join(f"a{i} = a{i - 1} + a{i - 1}" for i in range(2, 30)),
        r"\sum_{a,b,c,d,e,f,g,h,p,q} A^a A^b A^c A^d A^e A^f A^g A^h A^p A^q \otimes W_U W_{OV}^a W_E",
    ],
)
def test_doubling_is_refused_before_it_is_multiplied_out(text: str) -> None:
    with pytest.raises(ReadError, match=r"too many steps|more than 20,000"):
        check(text, attention_only((4, 4)))


# --------------------------------------------------------------------------------------------------- hypotheses
def test_what_is_taken_for_granted_is_said_and_refused_where_asked() -> None:
    arch = attention_only((1,), None, ["b_V", "b_O"])
    collapsed = "o = A X0 W_V[L0H0].T W_O[L0H0].T + ones b_V[L0H0].T W_O[L0H0].T + ones b_O[L0].T"
    verdict = check(collapsed, arch)
    assert verdict.right, verdict
    assert verdict.where == ("the rows of the attention patterns sum to one",)
    refused = check(collapsed, arch, strict=True)
    assert (refused.right, refused.mistake) == (False, "hypothesis")
    assert not check(collapsed.replace("ones b_V[L0H0].T W_O[L0H0].T + ", ""), arch).right


@pytest.mark.parametrize("arch", PRINTED, ids=str)
def test_a_softmax_is_the_pattern_where_its_inside_is_exactly_the_scores(arch: Architecture) -> None:
    head = arch.all_heads[-1]
    terms = [t.text for t in expand(arch, f"scores:{head}")]
    assert check(f"A[{head}] = softmax({' + '.join(terms)})", arch).right
    for wrong in (" + ".join(terms[1:]) or f"2 {terms[0]}", " + ".join(terms + terms[:1]), "-" + " - ".join(terms)):
        assert not check(f"A[{head}] = softmax({wrong})", arch).right


def test_norms_that_are_left_out_are_said() -> None:
    arch = transformer((1, 1), norm="LN", biases=["b_V"])
    bare = "logits = " + " + ".join(t.word.text for t in expand(attention_only((1, 1), biases=["b_V"]), "logits"))
    text = f"# with the norms frozen and folded\n{bare}"
    verdict = check(text, arch)
    assert not check(bare, arch).right
    assert verdict.right, verdict
    assert verdict.where == ("the norms are frozen and folded, so their effect is left out",)
    assert check(text, arch, strict=True).mistake == "hypothesis"
    for wrong in (text.replace("X0", "D[final] @ X0", 1), text + " + X0 @ W_U.T", text.rpartition(" + ")[0]):
        assert not check(wrong, arch).right, wrong
    for said in ("# ignoring layer norm", "# LN is omitted here"):
        assert check(f"{said}\n{bare}", arch).right
    assert not check(f"# norms\n{bare}", arch).right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (r"X_1 = X_0 + A^{L0H0} LN(X_0) W_{OV}^{L0H0 T}", True),
        (r"X_1 = X_0 + A^{L0H0} LN(X_1) W_{OV}^{L0H0 T}", False),
        (r"X_2 = X_1 + A^{L1H0} \mathrm{LN}(X_1) W_{OV}^{L1H0 T}", True),
        (r"X_2 = X_1 + A^{L1H0} X_1 W_{OV}^{L1H0 T}", False),
        (r"T = LN(X_2) W_U^T", True),
        (r"T = LN(X_1) W_U^T", False),
        (r"S^{L1H0} = s^{L1H0} LN(X_1) W_{QK}^{L1H0} LN(X_1)^T", True),
        (r"S^{L1H0} = s^{L1H0} LN(X_1) W_{QK}^{L1H0} LN(X_0)^T", False),
    ],
)
def test_norms_of_streams_are_read(text: str, right: bool) -> None:
    assert check(text, transformer((1, 1), norm="LN")).right == right
    with pytest.raises(ReadError, match="a norm must be of a stream"):
        check("X_1 = X_0 + LN(X_0 + P)", transformer((1, 1), norm="LN"))


@pytest.mark.parametrize(
    ("text", "convention", "right", "said"),
    [
        (r"(A_q \otimes A_k \otimes W)(x, y) = A_q^T x W y A_k", None, False, "the paper prints A_q^T x W y A_k"),
        (r"(A_q \otimes A_k \otimes W)(x, y) = A_q x W y^T A_k^T", None, True, ""),
        (r"(A_q \otimes A_k \otimes W)(x, y) = A_q x W y A_k^T", None, False, ""),
        ("t^T W_E^T W_{QK}^h W_E t", None, True, "the paper prints t^T W_E^T W_QK W_E t"),
        ("t^T W_E^T W_{QK}^h W_E t", "row", False, "the paper prints t^T W_E^T W_QK W_E t"),
        ("t W_E^T W_{QK}^h W_E t^T", None, True, ""),
        ("t^T W_E^T W_{OV}^h W_E t", "row", False, ""),
    ],
)
def test_the_slips_of_the_paper_are_known(text: str, convention: str | None, right: bool, said: str) -> None:
    verdict = check(text, attention_only((2, 2)), convention=convention)
    assert verdict.right == right, verdict
    slips = [note for note in verdict.notes if note.startswith("the paper prints")]
    assert [note.startswith(said) for note in slips] == [True] * bool(said)


def test_unscaled_scores_in_a_softmax_are_said() -> None:
    text = r"A^h = \mathrm{softmax}(t^T W_E^T W_{QK}^h W_E t)"
    verdict = check(text, attention_only((2,)))
    assert (verdict.right, verdict.where) == (True, ("the scores are unscaled",))
    assert check(text, attention_only((2,)), strict=True).mistake == "hypothesis"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("W_U W_OV(1,0) W_E", "position 4"),
        ("W_U · W_OV(1,0) · W_OV(0,1) · W_E", "position 6"),
        ("W_OV(0,1)", "in brackets"),
        ("(A (x) A (x) W_OV)(1, x)", "two arguments"),
        (r"S^h = x_0 W_{QK}^h x_0^T/\sqrt{d}", "d alone"),
        (r"S^h = x_0 W_{QK}^h x_0^T/\sqrt{2 d_k}", "a root must be of a dimension"),
        (
            "q = x @ W_Q[0,0]\nk = x @ W_K[0,0]\nscores = q @ k.T / sqrt(d_head)\n"
            "pattern = scores.softmax(dim=0)\nz = pattern @ x @ W_V[0,0] @ W_O[0,0]",
            "last axis",
        ),
        (r"A^h = \mathrm{softmax}(0)", "scores of one head"),
    ],
)
def test_what_cannot_be_judged_is_refused_where_it_stands(text: str, said: str) -> None:
    with pytest.raises(ReadError, match="position") as fault:
        check(text, attention_only((2, 2) if "W_OV" in text else (2,)))
    assert said in str(fault.value)


def test_left_out_terms_that_softmax_does_not_see() -> None:
    arch = attention_only((1,), None, ["b_Q", "b_K"])
    seen = [t.text for t in expand(arch, "scores:L0H0") if not t.softmax_invisible]
    verdict = check("S[L0H0] = " + " + ".join(seen), arch)
    assert verdict.right
    assert verdict.where == ("terms that softmax does not see are left out",)
    assert not check("S[L0H0] = " + " + ".join(seen[1:]), arch).right


def test_a_variable_stands_for_every_head_of_some_layer() -> None:
    arch = attention_only((2, 2))
    verdict = check(r"W_E^T W_{QK}^{h_2} W_{OV}^{h_1} W_E", arch)
    assert verdict.right
    assert {"h_2 any head of layer 2", "h_1 any head of layer 1"} <= set(verdict.read)
    assert not check(r"W_E^T W_{QK}^{h_1} W_{OV}^{h_2} W_E", arch).right  # h_1 comes before h_2


def test_both_conventions_are_shown_where_they_differ() -> None:
    verdict = check(r"A^{\mathrm{L0H1}} X_0 W_{OV}^{\mathrm{L0H1}}", attention_only((2,)))
    assert (verdict.right, verdict.mistake) == (False, "transpose")
    assert any('convention="transformerlens"' in note and "right" in note for note in verdict.notes)


def test_numbers_of_terms_are_counted() -> None:
    arch = attention_only((2, 3))
    assert check(
        "logits = X_2 W_U.T\nN_0 = 1\nN_1 = H_1 + H_2 = 5\nN_2 = H_1 * H_2 = 6\nN = (1 + H_1) (1 + H_2) = 12", arch
    )
    verdict = check("logits = X_2 W_U.T\nN_0 = 1\nN_1 = H_1 + H_2 = 6", arch)
    assert (verdict.right, verdict.mistake, verdict.line) == (False, "count", 3)


@pytest.mark.parametrize(
    ("target", "form"), [("logits", "enumerated"), ("scores:L1H0", "enumerated"), ("logits", "generic")]
)
def test_a_whole_printed_derivation_is_right_and_a_slip_in_it_is_found(target: str, form: str) -> None:
    arch = attention_only((1, 1))
    latex = derive(arch, target, form=form).latex()
    assert check(latex, arch).right
    slip = latex.rindex(r"W_E")  # in the last display
    verdict = check(latex[:slip] + "W_U" + latex[slip + 3 :], arch)
    assert not verdict.right
    assert verdict.line is not None
    assert verdict.line > 5


def test_several_lines_of_text_are_held_against_each_other() -> None:
    arch = attention_only((1, 1))
    lines = "X1 = X0 + A[L0H0] X0 W_OV[L0H0].T\nX2 = X1 + A[L1H0] X1 W_OV[L1H0].T\nlogits = X2 W_U.T"
    assert check(lines, arch).right
    for old, new, line in (
        ("X0 W_OV[L0H0].T", "X0 W_OV[L0H0]", 1),
        ("A[L1H0] X1", "A[L1H0] X0", 2),
        ("X2 W_U", "X1 W_U", 3),
    ):
        verdict = check(lines.replace(old, new), arch)
        assert (verdict.right, verdict.line) == (False, line), verdict
        assert f"in line {line}" in verdict.message


# ------------------------------------------------------------------------------------------- tried by a stranger
@cache
def tried(every: int) -> list[tuple[dict[str, Any], Verdict | None]]:
    """One of so many formulas with the slips that are made, a third of them right; None where it is not read."""
    found: list[tuple[dict[str, Any], Verdict | None]] = []
    for line in (DATA / "tried.jsonl").read_text("utf-8").splitlines()[::every]:
        case = json.loads(line)
        verdict = None
        with suppress(ReadError):
            arch = transformer(tuple(case["heads"]), **case["options"])
            verdict = check(case["text"], arch, None, case["convention"])
        found.append((case, verdict))
    return found


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_what_is_tried_is_judged_rightly_or_refused(every: int) -> None:
    found = tried(every)
    assert [case["id"] for case, verdict in found if verdict is not None and verdict.right != case["right"]] == []
    assert sum(verdict is None for _, verdict in found) <= 10 / every


# ------------------------------------------------------------------------------- products and sums over layers
FACTORS = (
    r"T = (\mathrm{Id} \otimes W_U) \prod_{%s} (\mathrm{Id} + \sum_{h \in H_l} A^h \otimes W_{OV}^h)"
    r"(\mathrm{Id} \otimes W_E)"
)
PAIRS = (
    r"T = Id \otimes W_U W_E + \sum_{l} \sum_{h \in H_l} A^h \otimes W_U W_{OV}^h W_E "
    r"+ \sum_{%s} \sum_{g \in H_m} \sum_{h \in H_l} A^h A^g \otimes W_U W_{OV}^h W_{OV}^g W_E"
)


@pytest.mark.parametrize("heads", [(2, 2), (2, 1, 2)])
@pytest.mark.parametrize(
    ("over", "right"),
    [
        ("l=L}^{1", True),
        ("l=L-1}^{0", True),
        ("l=1}^{L", False),
        ("l=L}^{2", False),
        ("l=L-1}^{1", False),
        ("l", None),
        (r"l \in layers", None),
        ("l=9}^{1", None),
        ("h=2}^{1", None),
    ],
)
def test_a_product_over_layers_has_an_order(heads: tuple[int, ...], over: str, right: bool | None) -> None:
    try:
        verdict = check(FACTORS % over, attention_only(heads))
    except ReadError:
        assert right is None
        return
    assert verdict.right == right, verdict


@pytest.mark.parametrize("text", [r"\prod_{l=L}^{1}", r"X_0 \prod", r"T = \prod_{l=L}^{1} A^l \otimes W_{OV}^l"])
def test_a_product_without_a_body_is_refused(text: str) -> None:
    with pytest.raises(ReadError):
        check(text, attention_only((1, 1)))


def test_a_sum_over_two_layers_binds_both_where_nothing_else_says_which() -> None:
    arch = attention_only((2, 2))
    assert check(PAIRS % "m<l", arch).right
    assert check(PAIRS % "m < l", attention_only((2, 1))).right
    assert not check(PAIRS % "l<m", arch).right
    stream = r"x_l = x_0 + \sum_{m<l} \sum_{h \in H_m} A^h x_m W_{OV}^{h T}"
    verdict = check(stream, arch)
    assert verdict.right, verdict
    assert any(said.startswith("l = ") for said in verdict.read)  # the layer l that stands on the left


@pytest.mark.parametrize(
    ("text", "right", "said"),
    [
        (r"S^h = \frac{1}{\sqrt{d_{head}}} X_0 W_Q^{h\,T} W_K^{h} X_0^T", True, True),
        ("A[L0H1] X0 W_V[L0H1].T W_O[L0H1].T W_U.T", True, True),
        ("A[L0H1] X0 W_V[L0G0].T W_O[L0H1].T W_U.T", True, False),
        ("A[L0H1] X0 W_V[L0G1].T W_O[L0H1].T W_U.T", False, False),
        ("A[L0H1] X0 W_V[L0H2].T W_O[L0H1].T W_U.T", False, True),
        ("X0 W_U.T", True, False),
    ],
)
def test_keys_and_values_of_a_head_are_those_of_its_group(text: str, right: bool, said: bool) -> None:
    verdict = check(text, transformer((4,), groups=(2,)))
    assert verdict.right == right, verdict
    assert ("the keys and values of a head are those of its group" in verdict.read) == said


def test_what_a_text_says_of_norms_is_looked_for_once() -> None:
    arch = transformer((1,), norm="LN")
    _leaves_norms_out.cache_clear()
    text = "X1 = X0 + A[L0H0] X0\n" * 200
    with suppress(ReadError):
        assert not check(text, arch).right
    assert _leaves_norms_out.cache_info().misses <= 1
