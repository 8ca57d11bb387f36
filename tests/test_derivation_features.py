"""Derivations with norms, MLPs and groups of heads: what is derived, refused, said, and read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.arrays.rings import Floats
from symcircuits.core import programs
from symcircuits.core.notation import latex_label
from symcircuits.core.words import IllTyped, Word
from symcircuits.derivation import claim_checker as checker_module
from symcircuits.derivation import definitions as definitions_module
from symcircuits.derivation import frames as frames_module
from symcircuits.derivation import tensors as tensors_module
from symcircuits.derivation.claim_checker import ClaimChecker
from symcircuits.derivation.claims import KINDS
from symcircuits.derivation.derive import DerivationError
from symcircuits.derivation.frames import make_frame
from symcircuits.derivation.multiplying import multiply_out
from symcircuits.derivation.printing.displays import expr_latex
from symcircuits.derivation.printing.prose import prose
from symcircuits.derivation.printing.text import expr_text
from symcircuits.derivation.steps import path_expansion
from symcircuits.derivation.values import Instance
from symcircuits.model import frozen, matrices_of
from tests.strategies import cases, examples
from tests.test_derivation import drop_sources, refusal, spoiled, targets

FORMS = ("enumerated", "generic")
SHAPES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((), {"norm": "LN"}),
    ((), {"norm": "RMS", "gains": False, "positions": "standard", "biases": ["b_U"]}),
    ((2, 2), {"norm": "LN"}),
    ((2, 1), {"norm": "LN", "biases": True, "positions": "standard", "mlps": True}),
    ((1, 2), {"norm": "RMS", "gains": ["L0"], "positions": "shortformer", "mlps": [0], "gated": True}),
    ((2, 1), {"norm": "RMS", "gains": False, "positions": "shortformer"}),
    ((2, 1), {"norm": "LN", "biases": ["b_N[L0]", "b_V"], "scale": False}),
    ((2, 2), {"mlps": True, "parallel": True}),
    ((0, 2), {"norm": "LN", "biases": True, "mlps": True}),
    ((4, 2), {"groups": (2, 1)}),
    ((4,), {"groups": (1,), "biases": True}),
    ((2, 4), {"groups": (2, 2), "biases": ["b_V", "b_K"], "norm": "LN", "mlps": [1]}),
    ((1, 2), {"positions": "rotary", "norm": "LN", "biases": True}),
    ((2, 1), {"positions": "alibi", "qk_norm": True, "mlps": [0]}),
    ((), {"multipliers": True}),
    ((2, 1), {"multipliers": True}),
    ((1, 2), {"multipliers": ["m_E", "r[L0]"], "positions": "standard", "biases": True, "mlps": True, "norm": "LN"}),
    ((2, 1), {"multipliers": ["r", "m_U"], "positions": "shortformer", "norm": "RMS", "scale": False}),
]


def text_of(derivation: Any) -> str:
    return " ".join(derivation.text().split())


# ------------------------------------------------------------------------------------------- what is derived
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("heads", "options"), SHAPES)
@pytest.mark.sampled(9)
def test_every_feature_is_derived(heads: tuple[int, ...], options: dict[str, Any], form: str) -> None:
    arch = sc.transformer(heads, **options)
    for target in targets(heads):
        derivation = sc.derive(arch, target, form=form)
        assert derivation.ok
        assert all(step.check.passed for step in derivation.steps)
        assert all(step.check.bound < 1e-12 for step in derivation.steps)
        if form == "enumerated":
            listed = next(s for s in derivation.steps if "terms" in s.check.also).claim.rhs
            words = [Word(flat.factors, flat.scales) for flat in multiply_out(listed)]
            assert Counter(words) == Counter(term.word for term in sc.expand(arch, target))


@examples(25)
@given(case=cases(max_terms=40, max_layers=3, max_heads=4), form=st.sampled_from(FORMS))
def test_any_architecture_is_derived(case: tuple[sc.Architecture, str], form: str) -> None:
    arch, target = case
    derivation, fault = None, ""
    try:
        derivation = sc.derive(arch, target, form=form)
    except ValueError as refused:
        fault = str(refused)
    assert not fault or (form == "generic" and "some heads" in fault)
    if derivation is None:
        return
    assert derivation.ok
    assert max(map(len, derivation.text().splitlines())) <= 80
    assert derivation.latex().count("Every equation was checked by machine: ") == 1


def test_a_norm_is_defined_and_put_in() -> None:
    derivation = sc.derive(sc.transformer((2, 2), norm="LN", biases=["b_N"]), form="generic")
    defined = [claim.text for step in derivation.steps if step.kind == "definition" for claim in step.claims]
    assert "Y[L0] = D[L0] @ X0 @ C @ gain[L0] + ones @ b_N[L0].T" in defined
    assert "Y[final] = D[final] @ X2 @ C @ gain[final] + ones @ b_N[final].T" in defined
    assert "X1 = X0 + sum[h_1=1..H_1] A[h_1] @ Y[L0] @ W_OV[h_1].T" in defined
    put_in = [s.reason for s in derivation.steps if s.reason.startswith("Substitute the definition")]
    assert put_in == [
        "Substitute the definition of `Y[final]`.",
        "Substitute the definitions of `X2` and `Y[L1]`.",
        "Substitute the definitions of `X1` and `Y[L0]`.",
    ]


def test_what_comes_out_of_a_norm_is_that_of_the_forward_pass() -> None:
    run = sc.random_model(sc.transformer((2,), norm="LN", biases=True, mlps=True)).run([3, 1, 4, 1])
    found = frozen(run.model.architecture, matrices_of(run), Floats()).normed
    assert set(found) == {"L0", "final"}
    for label, x in (("L0", run.streams[0]), ("final", run.streams[1])):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + run.model.settings.eps)
        y = x * run.model.weights[f"gain_{label}"] + run.model.weights[f"b_N_{label}"]
        np.testing.assert_allclose(found[label], y, atol=1e-12)


def test_generic_families_have_their_counts() -> None:
    arch = sc.transformer((2, 2), norm="LN", biases=["b_N", "b_V"], mlps=True)
    families = sc.derive(arch, form="generic").json()["families"]
    assert [(f["label"], f["count"]["text"]) for f in families if "b_N" in f["label"] or "mlp" in f["label"]] == [
        ("mlp[L0]", "1"), ("mlp[L1]", "1"), ("b_N[final]", "1"), ("b_N[L0] -> h_1", "H_1"), ("mlp[L0] -> h_2", "H_2"),
        ("b_N[L1] -> h_2", "H_2"), ("b_N[L0] -> h_1 -> h_2", "H_1 * H_2"),
    ]  # fmt: skip


def test_keys_and_values_belong_to_groups() -> None:
    arch = sc.transformer((4, 4), groups=(2, 2), biases=["b_V", "b_K"])
    derivation = sc.derive(arch, "scores:L1H3", form="generic")
    defined = [claim.text for step in derivation.steps[:3] for claim in step.claims]
    assert "W_OV[h] = W_O[h] @ W_V[G(h)]" in defined
    assert "W_QK[L1H3] = W_Q[L1H3].T @ W_K[L1G1]" in defined
    assert any("X0 @ W_V[G(h_1)].T + ones @ b_V[G(h_1)].T) @ W_O[h_1].T" in text for text in defined)
    check = derivation.steps[1].check
    assert check.head_counts[0] == (4,)
    assert check.groups[0] == (2,)
    assert all(not n or (g and n % g == 0) for (n,), (g,) in zip(check.head_counts, check.groups, strict=True))
    assert any(1 < g < n for (n,), (g,) in zip(check.head_counts, check.groups, strict=True))
    assert "at head counts (4), (0), (1), (2), (3), in (2), (0), (1), (1), (1) groups" in text_of(derivation)
    assert derivation.json()["steps"][1]["check"]["groups"] == [list(g) for g in check.groups]
    labels = [family["label"] for family in derivation.json()["families"]]
    assert "b_V[G(q_1)] -> q_1 | b_K[L1G1]" in labels
    one = sc.derive(sc.transformer((6, 4), groups=(3, 2), biases=["b_V", "b_K"]), "scores:L1H3", form="generic")
    assert [s.claims for s in one.steps] == [s.claims for s in derivation.steps]


def test_a_layer_whose_heads_share_nothing_keeps_its_names() -> None:
    derivation = sc.derive(sc.transformer((2, 4), groups=(2, 1), biases=["b_V"]), form="generic")
    labels = [family["label"] for family in derivation.json()["families"]]
    assert "b_V[h_1] -> h_1" in labels
    assert "b_V[G(h_2)] -> h_2" in labels


# ------------------------------------------------------------------------------------- corruptions are refused
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("heads", "target", "options"),
    [
        ((2, 2), "logits", {"norm": "LN", "biases": ["b_N", "b_V", "b_U"]}),
        ((2, 2), "scores:L1H0", {"norm": "LN"}),
        ((2, 1), "logits", {"norm": "RMS", "gains": False, "mlps": True, "positions": "standard"}),
        ((4,), "logits", {"groups": (2,), "biases": ["b_V"]}),
    ],
)
@pytest.mark.sampled(5)
def test_every_corruption_is_refused(heads: tuple[int, ...], target: str, options: dict[str, Any], form: str) -> None:
    frame = make_frame(sc.transformer(heads, **options), target, form)
    checker = ClaimChecker(frame)
    seen: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for number, draft in enumerate(path_expansion(frame), 1):
        for what, wrong in spoiled(draft, tries=2):
            message = refusal(checker, wrong, number)
            assert message, f"step {number} ({draft.kind}) took: {what} in {wrong.claims}"
            seen[draft.kind].add(what)
    assert all({"drop a factor", "swap"} <= seen[k] for k in KINDS if k not in ("counting", "mixed product"))


def scale_on_the_side_of_the_destination(patch: pytest.MonkeyPatch) -> None:
    right = programs._block

    def wrong(arch: sc.Architecture, layer: int) -> programs.Layer:
        found = right(arch, layer)
        branches = tuple(replace(b, left=(*b.left[1:], b.left[0])) for b in found.branches)
        return replace(found, branches=branches)

    patch.setattr(programs, "_block", wrong)


def centring_and_gain_forgotten(patch: pytest.MonkeyPatch) -> None:
    right = programs.norm
    patch.setattr(definitions_module, "norm", lambda a, label, at: replace(right(a, label, at), right=()))


def norm_without_its_bias(patch: pytest.MonkeyPatch) -> None:
    right = programs.norm
    for module in (programs, definitions_module, tensors_module):
        patch.setattr(module, "norm", lambda a, label, at: replace(right(a, label, at), bias=()))


def mlps_forgotten(patch: pytest.MonkeyPatch) -> None:
    drop_sources(patch, "mlp")


def every_head_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(frames_module.Frame, "_shared", frames_module.Frame._names)


def neighbours_do_not_share(patch: pytest.MonkeyPatch) -> None:
    """The groups interleaved: head i of H in group i modulo G."""

    def wrong(self: Instance, label: str) -> str:
        arch = self.architecture
        if label[:1] != "L" or arch.groups is None:
            return label if arch.groups is None else f"G({label})"
        head = arch.head(label)
        return arch.key_values(head.layer)[head.number % arch.groups[head.layer]]

    patch.setattr(Instance, "_shared", wrong)


@pytest.mark.parametrize(
    ("corrupt", "form", "step"),
    [
        (scale_on_the_side_of_the_destination, "enumerated", r"step \d+|Rule 1|cannot be multiplied"),
        (scale_on_the_side_of_the_destination, "generic", r"step \d+|Rule 1|cannot be multiplied"),
        (centring_and_gain_forgotten, "enumerated", "Rule 1"),
        (centring_and_gain_forgotten, "generic", "Rule 1"),
        (norm_without_its_bias, "enumerated", r"step 3 \(definition\)"),
        (norm_without_its_bias, "generic", r"step 3 \(definition\)"),
        (mlps_forgotten, "enumerated", r"step 2 \(definition\)"),
        (mlps_forgotten, "generic", r"step 2 \(definition\)"),
        (every_head_its_own, "generic", r"step 2 \(definition\)"),
        (neighbours_do_not_share, "generic", r"step \d+"),
        (neighbours_do_not_share, "enumerated", r"step \d+"),
    ],
)
@pytest.mark.sampled(8)
def test_a_wrong_description_is_refused(
    corrupt: Callable[[pytest.MonkeyPatch], None], form: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arch = sc.transformer((4, 2), norm="LN", mlps=True, groups=(2, 2), biases=True)
    assert sc.derive(arch, form=form).ok
    corrupt(monkeypatch)
    with pytest.raises((DerivationError, IllTyped), match=step):
        sc.derive(arch, form=form)


def test_unlike_groups_are_refused_in_the_generic_form() -> None:
    arch = sc.transformer((4,), groups=(2,), biases=["b_V[L0G1]"])
    with pytest.raises(ValueError, match="some heads of layer 0 have b_V and some have not"):
        sc.derive(arch, form="generic")
    assert sc.derive(arch).ok


# -------------------------------------------------------------------------------------- what softmax does not see
@pytest.mark.parametrize("form", FORMS)
def test_a_norm_makes_a_bias_seen_by_softmax(form: str) -> None:
    arch = sc.transformer((2, 1), norm="LN", biases=True, mlps=True)
    derivation = sc.derive(arch, "scores:L1H0", form=form)
    entries = derivation.json()["families" if form == "generic" else "terms"]
    for entry, term in zip(entries, derivation.frame.expansion, strict=True):
        assert entry["softmax_invisible"] == term.softmax_invisible
        key = entry["label"].split(" | ")[1]
        assert entry["softmax_invisible"] == (key in ("b_K[L1H0]", "b_N[L1]"))
    step = next(s for s in derivation.steps if s.kind.startswith("collecting"))
    assert "goes through no norm" in step.reason
    assert "softmax" in step.check.also


def test_a_mark_that_overlooks_the_norm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = checker_module.softmax_invisible
    monkeypatch.setattr(checker_module, "softmax_invisible", lambda w: right(w) or "ones.T" in w.text)
    with pytest.raises(DerivationError, match="marked as the same for every key, and its value differs"):
        sc.derive(sc.transformer((1, 1), norm="RMS", biases=["b_O", "b_K"]), "scores:L1H0")


# ------------------------------------------------------------------------------------------ what is printed
@pytest.mark.parametrize(
    ("heads", "target", "options"),
    [
        ((2,), "logits", {"norm": "LN"}),
        ((2, 1), "scores:L1H0", {"norm": "LN", "biases": True}),
        ((1, 1), "scores:L1H0", {"norm": "RMS", "gains": False, "positions": "shortformer", "mlps": True}),
        ((2, 2), "logits", {"norm": "RMS", "mlps": True, "positions": "standard"}),
        ((4, 4), "scores:L1H3", {"groups": (2, 2), "biases": ["b_V", "b_K"]}),
    ],
)
@pytest.mark.sampled(3)
def test_what_is_printed_is_read_back_as_the_same_terms(
    heads: tuple[int, ...], target: str, options: dict[str, Any]
) -> None:
    arch = sc.transformer(heads, **options)
    derivation = sc.derive(arch, target)
    printed = next(s for s in derivation.steps if s.check.how == "values" and "terms" in s.check.also).claim.rhs
    texts = [term.text for term in sc.expand(arch, target)]
    for written in (expr_text(printed), expr_latex(printed)):
        verdict = sc.check(written, arch, target)
        assert verdict.right, verdict
        assert sorted(term.text for term in verdict.terms) == sorted(texts)
    # and a term that is not there is not read back as one
    assert not sc.check(expr_latex(printed) + " + " + derivation.frame.expansion[0].latex(), arch, target)


def test_the_page_says_what_the_letters_are() -> None:
    said = text_of(sc.derive(sc.transformer((2, 2), norm="LN", biases=["b_O"]), form="generic"))
    for words in (
        "D[L0] is diagonal: for each token 1/sqrt(v + eps), with v the variance of its row",
        "C subtracts from every row its mean",
        "gain[L0] is diagonal, the gain of that norm",
        "D does not commute with A",
        "A bias that goes through a norm is no longer the same row for every token",
        "Terms through different norms carry different scales, so their sizes are not comparable",
        "Held fixed: the attention patterns A (with everything that determines them: score scale, mask and softmax) "
        "and the scale of every token in every norm (D),",
        "; no position embedding and no MLP.",
        "(those of norms symmetric)",
    ):
        assert " ".join(words.split()) in " ".join(said.split())
    folded = text_of(sc.derive(sc.transformer((2,), norm="RMS", gains=False, mlps=True)))
    assert "the mean square of its row" in folded
    assert "gain[" not in folded
    assert "D is symmetric, and so written without transposes" in folded
    assert "The output of an MLP is a separate source" in folded
    assert "and the output of every MLP" in folded
    plain = text_of(sc.derive(sc.attention_only((2,))))
    assert "no layer norm and no MLP" in plain
    assert "those of norms symmetric" not in plain
    below = text_of(sc.derive(sc.transformer((2,), mlps=True), "scores:L0H0"))
    assert "There is no position embedding, no layer norm and no MLP before it" in " ".join(below.split())
    assert "which has the same input as the heads of its layer" in text_of(
        sc.derive(sc.transformer((1,), mlps=True, parallel=True))
    )


def test_features_are_in_the_record() -> None:
    arch = sc.transformer((4, 2), norm="LN", gains=["L0"], mlps=[1], gated=True, groups=(2, 2))
    found = sc.derive(arch).json()["architecture"]
    assert (found["norm"], found["gains"], found["mlps"], found["gated"]) == ("LN", ["L0"], [1], True)
    assert (found["parallel"], found["groups"]) == (False, [2, 2])
    assert sc.derive(arch, form="generic").json()["architecture"]["groups"] is None
    assert "norm" not in sc.derive(sc.attention_only((1,))).json()["architecture"]


def test_the_statement_and_section_name_the_features() -> None:
    derivation = sc.derive(sc.transformer((4,), norm="RMS", mlps=True, groups=(2,)))
    for words in ("RMS norms held fixed", "outputs of MLPs as sources", "keys and values shared by groups of heads"):
        assert words in derivation.statement
    assert derivation.section.endswith("Handling Layer Normalization; Additional Intuition: MLP Layers")


def test_labels_of_groups_in_latex() -> None:
    assert latex_label("G(h_1)") == "G(h_{1})"
    assert prose("`W_QK[h] = W_Q[h]^T W_K[G(h)]`") == r"$W_{QK}^{h} = W_Q^{h\,\mathsf{T}} W_K^{G(h)}$"
    assert prose("`gain[L0]`, `mlp[L0]`") == r"$\Gamma^{\mathrm{L0}}$, $M^{\mathrm{L0}}$"
