"""Nothing frozen: models without softmax and with bilinear MLPs, against terms multiplied out by hand."""

import itertools
import math
import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import architectures, examples, group

import symcircuits as sc
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import expand
from symcircuits.core.programs import mask
from symcircuits.core.unfrozen.unfrozen import Unfrozen, UnfrozenTerm, check_unfrozen, still_held
from symcircuits.core.words import Factor, IllTyped, Symbol, Word
from symcircuits.model import Run
from symcircuits.verification.nothing_frozen import check_nothing_frozen, check_unfrozen_types

MOST = 400


# ------------------------------------------------------------------------------------------- the oracle
@dataclass
class Part:
    """One summand of the stream, of queries or of what is inside an MLP: its name, its value and its degree."""

    label: str
    value: Any
    degree: int = 1


class TooMany(Exception):
    """More summands than are worth listing."""


class Oracle:
    """The forward pass in which every sum is kept as the list of its summands; knows nothing of programs or walks."""

    def __init__(self, run: Run, most: int = MOST) -> None:
        self.run, self.arch, self.most = run, run.model.architecture, most
        self.w = run.model.weights
        self.n = run.tokens.shape[-1]
        self.masks = run.masks

    def row(self, name: str) -> Any:
        return np.broadcast_to(self.w[name], (self.n, self.w[name].shape[-1]))

    def few(self, parts: list[Part]) -> list[Part]:
        if len(parts) > self.most:
            raise TooMany
        return parts

    def times(self, multiplier: str, parts: list[Part]) -> list[Part]:
        number = self.run.model.multipliers.get(multiplier, 1.0)
        return [Part(p.label, number * p.value, p.degree) for p in parts]

    def norm(self, parts: list[Part], label: str) -> list[Part]:
        """Each part centred, scaled with the run's own scale, times the gain; the bias is one part more."""
        if not self.arch.norm:
            return parts
        out = []
        for p in parts:
            x = p.value - p.value.mean(-1, keepdims=True) if self.arch.norm == "LN" else p.value
            x = x * self.run.norms[label][:, None]
            out.append(Part(p.label, x * self.w.get(f"gain_{label}", 1), p.degree))
        bias = f"b_N_{label}"
        return out + ([Part(f"b_N[{label}]", self.row(bias))] if bias in self.w else [])

    def read(self, parts: list[Part], weight: str, bias: str, name: str) -> list[Part]:
        out = [Part(p.label, p.value @ self.w[weight].T, p.degree) for p in parts]
        return out + ([Part(name, self.row(bias))] if bias in self.w else [])

    @cached_property
    def streams(self) -> list[list[Part]]:
        found = self.times("m_E", [Part("embed", self.w["W_E"].T[self.run.tokens])])
        if self.arch.positions == "standard":
            found.append(Part("pos", self.w["W_pos"][: self.n]))
        streams = [found]
        for layer, count in enumerate(self.arch.heads):
            after = list(found)
            for i in range(count):
                after += self.times(f"r[L{layer}]", self.head(layer, i, found))
            if f"b_O_L{layer}" in self.w:
                after += self.times(f"r[L{layer}]", [Part(f"b_O[L{layer}]", self.row(f"b_O_L{layer}"))])
            if layer in self.arch.mlps:
                after += self.times(f"r[M{layer}]", self.mlp(layer, found if self.arch.parallel else list(after)))
            found = self.few(after)
            streams.append(found)
        return streams

    def scores(self, layer: int, i: int) -> list[Part]:
        label, shared = f"L{layer}H{i}", group(self.arch, layer, i)
        normed = self.norm(self._before, f"L{layer}")
        sides = []
        for glyph, owner in (("Q", label), ("K", shared)):
            given = list(normed)
            if self.arch.positions == "shortformer":
                given.append(Part("pos", self.w["W_pos"][: self.n]))
            side = self.read(given, f"W_{glyph}_{owner}", f"b_{glyph}_{owner}", f"b_{glyph}[{owner}]")
            if self.arch.qk_norm:
                scale = self.run.norms[f"{glyph}{owner}"][:, None] * self.w[f"gain_{glyph}{layer}"]
                side = [Part(p.label, p.value * scale, p.degree) for p in side]
            if self.arch.positions == "rotary":
                turn = self.run.arrays[f"R_{label}"]
                side = [Part(p.label, np.einsum("ni,nij->nj", p.value, turn), p.degree) for p in side]
            sides.append(side)
        if len(sides[0]) * len(sides[1]) > self.most:
            raise TooMany
        scale = self.run.model.score_scale.get(label, 1.0)
        return [
            Part(f"{q.label} | {k.label}", scale * q.value @ k.value.T, q.degree + k.degree)
            for q, k in itertools.product(*sides)
        ]

    def head(self, layer: int, i: int, stream: list[Part]) -> list[Part]:
        label, shared = f"L{layer}H{i}", group(self.arch, layer, i)
        self._before = stream
        values = self.norm(stream, f"L{layer}")
        values = self.read(values, f"W_V_{shared}", f"b_V_{shared}", f"b_V[{shared}]")
        if self.arch.softmax:
            patterns = [Part("", self.run.patterns[label], 0)]
        else:
            allowed = self.masks[f"L{layer}"]
            patterns = [
                Part("{" + s.label + "}", np.where(allowed, s.value, 0), s.degree) for s in self.scores(layer, i)
            ]
        if len(patterns) * len(values) > self.most:
            raise TooMany
        return [
            Part(f"{v.label} -> {label}{a.label}", a.value @ v.value @ self.w[f"W_O_{label}"].T, a.degree + v.degree)
            for a, v in itertools.product(patterns, values)
        ]

    def mlp(self, layer: int, stream: list[Part]) -> list[Part]:
        at = f"L{layer}"
        if not self.arch.bilinear:
            return [Part(f"mlp[{at}]", self.run.mlps[at])]
        normed = self.norm(stream, f"M{layer}")
        inner, gate = (self.read(normed, f"W_{k}_{at}", f"b_{k}_{at}", f"b_{k}[{at}]") for k in ("in", "gate"))
        if len(inner) * len(gate) > self.most:
            raise TooMany
        out = self.w[f"W_out_{at}"].T
        found = [
            Part(f"mlp[{at}]{{{a.label} * {b.label}}}", (a.value * b.value) @ out, a.degree + b.degree)
            for a, b in itertools.product(inner, gate)
        ]
        return found + ([Part(f"mlp[{at}]", self.row(f"b_out_{at}"))] if f"b_out_{at}" in self.w else [])

    def terms(self, target: str) -> list[Part]:
        kind, _, head = target.partition(":")
        if kind == "scores":
            layer, i = self.arch.head(head)
            self._before = self.streams[layer]
            return self.scores(layer, i)
        if kind == "stream":
            return self.streams[-1]
        return self.times("m_U", self.read(self.norm(self.streams[-1], "final"), "W_U", "b_U", "b_U"))


# ------------------------------------------------------------------------------------------- strategies
@st.composite
def polynomials(draw: st.DrawFn) -> tuple[Run, str, list[Part]]:
    """A run of a model that is a polynomial, a target, and its terms multiplied out by hand."""
    arch = draw(architectures(max_layers=2, max_heads=2, max_terms=40))
    changes: dict[str, Any] = {"softmax": arch.positions == "alibi" or draw(st.sampled_from([False, False, True]))}
    if arch.mlps:
        changes |= {"bilinear": arch.bilinear or changes["softmax"]}
        changes["gated"] = arch.gated or changes["bilinear"]
    arch = replace(arch, **changes)
    assume(not arch.softmax or arch.bilinear)
    model = sc.random_model(arch, d_vocab=5, d_model=4, d_head=2, d_mlp=3, n_context=4, seed=draw(st.integers(0, 99)))
    found = model.run(draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    heads = [f"scores:{h}" for h in arch.all_heads]
    target = draw(st.sampled_from(["stream", *(["logits"] if arch.unembed else []), *heads]))
    try:
        return found, target, Oracle(found).terms(target)
    except TooMany:
        assume(False)
        raise


def close(a: Any, b: Any) -> bool:
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(b).max(initial=0.0)))))


# ------------------------------------------------------------------------------------------------ terms
@given(polynomials())
@examples(60)
def test_terms_are_those_multiplied_out_by_hand(case: tuple[Run, str, list[Part]]) -> None:
    """Names, degrees and values of all terms, counts, numbers, types, and the sums by degree of the walk."""
    run, target, parts = case
    terms = expand(run.model.architecture, target).unfrozen()
    values = sc.evaluate(terms, run)
    expected = {p.label: p for p in parts}
    assert len(expected) == len(parts) == terms.count == len(values)
    for i, (term, value) in enumerate(zip(terms, values, strict=True)):
        part = expected.pop(term.label)
        assert term.degree == part.degree
        assert close(value, part.value)
        assert terms.index(term) == i
        assert terms[i] == term
        check_unfrozen(term.word, run.model.architecture)
    assert not expected
    assert terms.counts_by_degree() == dict(sorted(Counter(p.degree for p in parts).items()))
    assert terms.max_degree == max(p.degree for p in parts)
    for degree, total in values.by_degree().items():
        assert close(total, sum(p.value for p in parts if p.degree == degree))


@given(polynomials(), st.randoms(use_true_random=False))
@examples(15)
def test_terms_are_functions_of_weights_tokens_and_masks(
    case: tuple[Run, str, list[Part]], random: random.Random
) -> None:
    """SymPy's expression, lambdified, has the value of the term."""
    run, target, parts = case
    terms = expand(run.model.architecture, target).unfrozen()
    term = terms[random.randrange(terms.count)]
    value = term.lambdify()(**run.arrays)
    assert close(np.broadcast_to(value, (run.tokens.shape[-1], value.shape[-1])), next(
        p.value for p in parts if p.label == term.label
    ))  # fmt: skip
    if not run.model.architecture.softmax:
        assert not [name for name in term.lambdify().arguments if name.startswith("A_")]


@given(architectures(max_layers=3, max_heads=3, max_terms=60), st.integers(0, 10**6))
@examples(40)
def test_numbers_of_terms_at_any_size(arch: Architecture, seed: int) -> None:
    """Counts by order, composition and degree add up, and a term is found under its number, however many there are."""
    arch = replace(arch, softmax=arch.positions == "alibi", bilinear=bool(arch.mlps), gated=bool(arch.mlps))
    assume(not arch.softmax or arch.bilinear)
    head = arch.all_heads[-1:] if arch.n_layers else ()
    for target in ("stream", *(f"scores:{h}" for h in head)):
        whole = expand(arch, target)
        terms = whole.unfrozen()
        assert sum(terms.counts_by_order().values()) == terms.count
        assert sum(terms.counts_by_composition().values()) == terms.count
        assert sum(terms.counts_by_degree().values()) == terms.count
        parts = [whole.order(k).unfrozen().count for k in whole.counts_by_order()]
        assert sum(parts) == terms.count
        i = random.Random(seed).randrange(terms.count)
        assert terms.index(terms[i]) == i
        assert terms[i].inner is not None
        if head and target == "stream":
            through, rest = whole.through(head[0]).unfrozen(), 0
            rest = sum(whole.from_source(s.name).unfrozen().count for s in whole.sources)
            assert through.count <= terms.count == rest


def test_counts_of_a_cubic_model() -> None:
    """Without softmax ``N -> N + H N^3``, a bilinear MLP adds ``N^2``."""
    terms = sc.stream(sc.attention_only((2, 3), softmax=False)).unfrozen()
    assert terms.count == 3 + 3 * 3**3
    both = sc.transformer((2,), softmax=False, mlps=True, bilinear=True)
    assert sc.stream(both).unfrozen().count == 3 + 3**2
    parallel = sc.transformer((2,), softmax=False, mlps=True, bilinear=True, parallel=True)
    assert sc.stream(parallel).unfrozen().count == 3 + 1
    deep = sc.logits(sc.attention_only((12,) * 4, softmax=False)).unfrozen()
    n = 1
    for _ in range(4):
        n += 12 * n**3
    assert deep.count == n
    assert max(deep.counts_by_degree()) == 3**4
    assert deep.index(deep[n // 3]) == n // 3
    with pytest.raises(OverflowError, match="too many to list"):
        len(deep)


# ---------------------------------------------------------------------------------------------- printed
ARCH = sc.transformer((1,), norm="RMS", gains=False, softmax=False, mlps=True, bilinear=True, biases=["b_out"])


def test_printed_in_three_notations() -> None:
    terms = sc.logits(sc.attention_only((1,), softmax=False)).unfrozen()
    term = terms[1]
    assert term.text == "(mask[L0] * (scale[L0H0] * X0 @ W_QK[L0H0] @ X0.T)) @ X0 @ W_OV[L0H0].T @ W_U.T"
    assert term.word.text == term.text
    assert term.latex() == (
        r"\left(\mathcal{M}^{\mathrm{L0}}\odot \left(s^{\mathrm{L0H0}}\,X_0\,W_{QK}^{\mathrm{L0H0}}\,X_0^{\mathsf{T}}"
        r"\right)\right)\,X_0\,W_{OV}^{\mathrm{L0H0}\,\mathsf{T}}\,W_U^{\mathsf{T}}"
    )
    assert term.written("paper").text == (
        "((mask[L0] * (scale[L0H0] * (Id (x) Id (x) W_E.T @ W_QK[L0H0] @ W_E)(t, t))) (x) W_U @ W_OV[L0H0] @ W_E) t"
    )
    assert term.written("transformerlens", {"mask": "C"}).text == (
        "(C[L0] * (scale[L0H0] * X0 @ QK[L0H0] @ X0.T)) @ X0 @ OV[L0H0] @ W_U"
    )
    assert repr(terms) == "<Unfrozen logits: 2 terms (attention-only, heads 1, no softmax)>"
    key_side = sc.scores(sc.attention_only((1, 1), softmax=False), "L1H0").unfrozen()
    assert key_side[1].text.endswith("X0.T @ (mask[L0] * (scale[L0H0] * X0 @ W_QK[L0H0] @ X0.T)).T")


def test_a_bilinear_mlp_is_printed_as_what_it_reads() -> None:
    texts = [t.text for t in sc.logits(ARCH).unfrozen()]
    assert texts[1] == ("D[final] @ ((D[M0] @ X0 @ W_in[L0].T) * (D[M0] @ X0 @ W_gate[L0].T)) @ W_out[L0].T @ W_U.T")
    assert "D[final] @ ones @ b_out[L0].T @ W_U.T" in texts


def test_what_a_term_is_made_of() -> None:
    terms = sc.logits(sc.attention_only((1, 1), softmax=False)).unfrozen()
    term = terms[terms.count - 1]
    (first, second) = [t.label for t in term.inner]
    assert (first, second) == ("embed | embed", "embed -> L0H0{embed | embed} | embed -> L0H0{embed | embed}")
    assert term.degree == 9
    mlp = next(t for t in sc.logits(ARCH).unfrozen() if "mlp" in t.label and "L0H0{" not in t.label)
    (inside,) = mlp.inner
    assert inside.word.text.endswith("W_out[L0].T")


def test_a_long_term_is_shown_by_its_name() -> None:
    """A short one whole."""
    terms = sc.logits(sc.attention_only((1, 1), softmax=False)).unfrozen()
    seen = set()
    for term in terms:
        short = len(term.text) <= 200
        seen.add(short)
        assert repr(term) == (f"<UnfrozenTerm {term.label}: {term.text}>" if short else f"<UnfrozenTerm {term.label}>")
    assert seen == {True, False}


# -------------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: sc.logits(sc.attention_only((1,))).unfrozen(), "describe a model with softmax=False or bilinear=True"),
        (
            lambda: sc.attention_only((1,), "alibi", softmax=False),
            "needs a softmax: what it adds to scores is not a path term",
        ),
        (lambda: sc.attention_only((1,), bilinear=True), "has no MLPs, so bilinear has no meaning"),
        (lambda: sc.attention_only((1,), softmax=0), "softmax must be True or False"),
        (lambda: sc.logits(ARCH).unfrozen()["a"], "whole numbers"),
        (lambda: sc.logits(ARCH).unfrozen()[10**9], "does not exist"),
        (lambda: sc.logits(ARCH).unfrozen().index(sc.logits(ARCH)[0]), "is not a term of this expansion"),
        (
            lambda: sc.logits(ARCH).order(0).unfrozen().index(next(t for t in sc.logits(ARCH).unfrozen() if t.order)),
            "is not in this selection",
        ),
        (
            lambda: sc.random_model(sc.attention_only((1,), softmax=False), settings=sc.Settings(score_cap=3.0)),
            "a soft cap on scores needs a softmax",
        ),
    ],
)
def test_refusals(call: Any, fault: str) -> None:
    with pytest.raises((ValueError, TypeError, IndexError), match=fault):
        call()


def _changed(word: Word, change: Any) -> Word:
    """The word with its first entrywise product changed."""
    i = next(i for i, f in enumerate(word.factors) if f.symbol.entrywise)
    symbol = word.factors[i].symbol
    new = Factor(replace(symbol, entrywise=change(*symbol.entrywise)), word.factors[i].transposed)
    return Word((*word.factors[:i], new, *word.factors[i + 1 :]), word.scales)


def test_types_refuse_what_is_no_part_of_a_pattern() -> None:
    arch = sc.attention_only((2, 2), softmax=False)
    terms = sc.logits(arch).order(1).through("L1H0").unfrozen()
    word = terms[0].word
    other = next(t.word for t in sc.scores(arch, "L1H1").unfrozen())
    wrong_mask = Word((Factor(mask(arch.head("L0H0"))),))
    for change in (
        lambda m, s: (m, other),  # the scores of another head
        lambda m, s: (wrong_mask, s),  # the mask of another layer
    ):
        with pytest.raises(IllTyped, match=r"not a part of the pattern of L1H0: it must be mask\[L1\]") as caught:
            check_unfrozen(_changed(word, change), arch)
        assert caught.value.rule == 2
    for change in (
        lambda m, s: (m, Word(s.factors)),  # the scale is missing
        lambda m, s: (m, Word(s.factors, (*s.scales, *s.scales))),  # the scale stands twice
    ):
        with pytest.raises(IllTyped):
            check_unfrozen(_changed(word, change), arch)
    with pytest.raises(IllTyped, match="multiplied out") as caught:
        check_unfrozen(terms.expansion[0].word, arch)
    assert caught.value.rule == 2
    mlp = next(t.word for t in sc.logits(ARCH).unfrozen() if t.label.startswith("mlp[L0]{"))
    with pytest.raises(IllTyped, match="does not end in W_in") as caught:
        check_unfrozen(_changed(mlp, lambda a, b: (b, a)), ARCH)
    assert caught.value.rule == 2


def test_types_look_into_what_is_inside_of_an_mlp() -> None:
    arch = sc.transformer((1,), softmax=False, mlps=True, bilinear=True)
    frozen = sc.stream(arch).through("L0H0")[0].word  # A[L0H0] is one letter there
    mlp = next(t.word for t in sc.stream(arch).unfrozen() if t.label == "mlp[L0]{embed * embed}")
    with pytest.raises(IllTyped, match=r"A\[L0H0\] occurs in a term in which it must be multiplied out"):
        check_unfrozen(_changed(mlp, lambda a, b: (Word((*frozen.factors, a.factors[-1])), b)), arch)


@pytest.mark.parametrize("features", [{}, {"norm": "LN"}, {"norm": "RMS", "gains": False}, {"parallel": True}])
def test_types_refuse_an_mlp_that_reads_what_it_writes(features: dict[str, Any]) -> None:
    """What an MLP reads is there before it writes, though both are at the point after its layer."""
    arch = sc.transformer((0, 0), mlps=True, bilinear=True, biases=["b_out"], **features)
    terms = {t.label: t.word for t in sc.stream(arch).unfrozen()}
    for layer in (0, 1):
        word = terms[f"mlp[L{layer}]{{embed * embed}}"]
        inside = word.factors[0].symbol.entrywise[0].factors
        at = next(i for i, f in enumerate(inside) if f.symbol.glyph == "t")
        before, after = inside[:at], inside[at + 2 :]  # the source is t @ W_E.T
        for own in (word, terms[f"mlp[L{layer}]"]):
            with pytest.raises(IllTyped, match="cannot be multiplied"):
                Word((*before, *own.factors, *after))
        if layer:
            Word((*before, *terms["mlp[L0]"].factors, *after))  # that of the layer before is there


def test_the_bias_of_each_mlp_is_its_own() -> None:
    arch = sc.transformer((0, 0), mlps=True, bilinear=True, biases=["b_out"])
    expansion = sc.stream(arch)
    texts = {t.label: t.text for t in expansion.unfrozen()}
    assert (texts["mlp[L0]"], texts["mlp[L1]"]) == ("ones @ b_out[L0].T", "ones @ b_out[L1].T")
    assert texts["mlp[L1]{mlp[L0] * embed}"].startswith("((ones @ b_out[L0].T @ W_in[L1].T) * (X0 @ W_gate[L1].T))")
    run = sc.random_model(arch, seed=1).run([1, 2, 3])
    assert check_nothing_frozen([expansion], run, 0, 1000).passed


# ----------------------------------------------------------------------------------- rows that refuse
def _rows(terms: Any) -> list[bool | None]:
    arch = sc.transformer((1, 1), softmax=False, mlps=[1], bilinear=True)
    e = sc.logits(arch)
    run = sc.random_model(arch, seed=1).run([1, 2, 3])
    return [check_unfrozen_types([e], 1000, terms).passed, check_nothing_frozen([e], run, 0, 1000, terms).passed]


def test_rows_hold_for_the_terms_and_refuse_others() -> None:
    assert _rows(iter) == [True, True]

    def dropped(terms: Unfrozen) -> list[UnfrozenTerm]:
        return list(terms)[:-1]

    def doubled(terms: Unfrozen) -> list[UnfrozenTerm]:
        return [*terms, terms[3]]

    assert _rows(dropped)[1] is False
    assert _rows(doubled) == [False, False]

    @dataclass(frozen=True)
    class Wrong:
        term: UnfrozenTerm
        wrong: Word

        word = property(lambda self: self.wrong)
        label = property(lambda self: self.term.label)

    def swapped(terms: Unfrozen) -> list[Any]:
        """A pattern whose query and key are exchanged: the transposed scores under the mask."""
        out: list[Any] = list(terms)
        i = next(i for i, t in enumerate(out) if t.order == 1 and "L1H0{embed | embed -> L0H0" in t.label)
        turned = _changed(out[i].word, lambda m, s: (m, s.T))
        out[i] = Wrong(out[i], turned)
        return out

    arch = sc.transformer((1, 1), softmax=False, mlps=[1], bilinear=True)
    run = sc.random_model(arch, seed=1).run([1, 2, 3])
    assert check_nothing_frozen([sc.logits(arch)], run, 0, 1000, swapped).passed is False


def test_a_model_that_is_another_is_refused() -> None:
    arch = sc.attention_only((1, 1), softmax=False, norm="LN", positions="rotary", biases=True)
    for dtype in ("float64", "float32"):
        run = sc.random_model(arch, seed=1).run([1, 2, 3], dtype=dtype)
        e = [sc.logits(arch)]
        assert check_nothing_frozen(e, run, 0, 1000).passed
        assert run.logits is not None
        other = replace(run, logits=run.logits * run.dtype.type(1 + 9 * np.sqrt(np.finfo(run.dtype).eps)))
        assert not check_nothing_frozen(e, other, 0, 1000).passed


def test_a_walk_that_forgets_the_mask_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from symcircuits.values import unfrozen as values

    monkeypatch.setattr(values._Joints, "masked", lambda self, head, scores: scores)
    assert _rows(iter)[1] is False


def test_a_walk_over_the_field_that_is_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk on the real model is right here, and the listed terms are."""
    from symcircuits.verification import nothing_frozen

    right = nothing_frozen.sums_by_degree
    monkeypatch.setattr(
        nothing_frozen, "sums_by_degree", lambda *given: {d: v for d, v in right(*given).items() if d > 1}
    )  # fmt: skip
    assert _rows(iter) == [True, False]


def test_verify_says_what_was_multiplied_out() -> None:
    report = sc.verify(ARCH)
    assert report.ok
    rows = [c for c in report.checks if c.name.startswith("nothing frozen")]
    assert len(rows) == 4
    assert "degree up to" in report.text()
    assert "softmax model" not in report.text()
    assert not [c for c in sc.verify(sc.attention_only((1,))).checks if c.name.startswith("nothing frozen")]


def test_a_model_without_softmax_runs_from_its_definition() -> None:
    arch = sc.attention_only((1,), softmax=False, positions="standard")
    model = sc.random_model(arch, d_model=4, d_head=2, n_context=5, seed=3)
    run, w = model.run([2, 0, 1]), model.weights
    x = w["W_E"].T[[2, 0, 1]] + w["W_pos"][:3]
    scores = np.tril(model.score_scale["L0H0"] * x @ w["W_Q_L0H0"].T @ w["W_K_L0H0"] @ x.T)
    assert np.allclose(run.patterns["L0H0"], scores)
    assert np.allclose(run.logits, (x + scores @ x @ w["W_V_L0H0"].T @ w["W_O_L0H0"].T) @ w["W_U"].T)
    assert math.isclose(abs(sc.evaluate(sc.logits(arch).unfrozen(), run).total() - run.logits).max(), 0, abs_tol=1e-12)


def test_batches_and_float32() -> None:
    arch = sc.transformer((2,), softmax=False, mlps=True, bilinear=True, norm="LN", biases=True)
    run = sc.random_model(arch, seed=5).run([[1, 2, 3], [3, 2, 1]], dtype=np.float32)
    terms = sc.logits(arch).from_source("embed").unfrozen()
    values = sc.evaluate(terms, run)
    listed = list(values)
    assert listed[0].shape == run.logits.shape
    assert listed[0].dtype == np.float32
    assert np.allclose(sum(listed), values.total(), atol=1e-4)


def test_a_selection_of_nothing_is_nothing() -> None:
    arch = sc.attention_only((1, 1), softmax=False)
    run = sc.random_model(arch).run([1, 2])
    for target in ("logits", "stream", "scores:L1H0"):
        none = expand(arch, target).order(7).unfrozen()
        assert (none.count, bool(none), list(none), none.counts_by_degree()) == (0, False, [], {})
        total = sc.evaluate(none, run).total()
        assert total.shape == sc.evaluate(expand(arch, target), run).total().shape
        assert not total.any()


def test_symbols_of_an_entrywise_product_are_not_taken_for_others() -> None:
    terms = list(sc.logits(sc.attention_only((1, 1), softmax=False)).unfrozen())
    assert len({t.word for t in terms}) == len(terms)
    assert isinstance(terms[1].word.factors[0].symbol, Symbol)


def test_what_is_made_of_the_same_expansion_is_the_same() -> None:
    arch = sc.transformer((1, 1), softmax=False)
    one, two = (sc.logits(arch).unfrozen() for _ in range(2))
    assert one == two
    assert len({one, two}) == 1
    assert one != sc.logits(arch).through("L0H0").unfrozen()
    assert one != sc.logits(arch)


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({"softmax": False}, ""),
        ({"softmax": False, "mlps": True}, " but MLPs"),
        ({"mlps": True, "bilinear": True}, " but patterns"),
        ({"softmax": False, "mlps": True, "norm": "RMS"}, " but MLPs and norms"),
        ({"softmax": False, "qk_norm": True}, " but norms"),
    ],
)
def test_what_is_still_held_fixed(options: dict[str, Any], held: str) -> None:
    assert still_held(sc.transformer((1, 1), **options)) == f"nothing held fixed{held}"


def test_terms_of_three_layers_of_scores_have_their_numbers() -> None:
    """Marks of two sides come by the orders of both together, and not side by side."""
    terms = sc.scores(sc.attention_only((1, 1, 1), softmax=False), "L2H0").order(1, 2).unfrozen()
    starts, before = [], 0
    for _, n in terms.marks():
        starts += [before, before + n - 1]
        before += n
    assert before == terms.count
    assert [terms.index(terms[i]) for i in starts] == starts
