"""Attached readouts and sources: what they are, that everything adds up with them, and what is refused."""

import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import symcircuits as sc
from symcircuits.arrays.rings import Floats
from symcircuits.checking.faults import ReadError
from symcircuits.core import programs
from symcircuits.core.architecture import Architecture
from symcircuits.core.attachments import Part, Reading, check_attachments, check_name
from symcircuits.core.expansion import Expansion
from symcircuits.core.names import spelled
from symcircuits.core.rules import check_finished
from symcircuits.core.words import IllTyped, Word
from symcircuits.model import Arrays, Model, Run, frozen, matrices_of
from symcircuits.values.evaluate import closure, evaluate
from symcircuits.values.rounding import rounding_scale
from symcircuits.verification.rows import check_polynomial
from tests.strategies import architectures, examples, group

SIZES = {"d_model": 6, "d_head": 3, "d_vocab": 5, "n_context": 8}
TOKENS = [3, 1, 4, 1]


# ------------------------------------------------------------------------------------------- strategies
@st.composite
def attached(draw: DrawFn, **limits: Any) -> Architecture:
    """Any architecture with a few readouts and sources."""
    arch = draw(architectures(**{"max_layers": 3, "max_heads": 3, "max_terms": 120, **limits}))
    others = frozenset(m for m in arch.multipliers if m[:3] != "r[M")  # such an MLP is not split
    arch = replace(arch, multipliers=others)
    points, found = st.integers(0, arch.n_layers), list[Any]()
    split = draw(points)
    found += [Part(f"feature {i}", split) for i in range(draw(st.integers(0, 2)))]
    found += [Part(f"steer {i}", draw(points), "added") for i in range(draw(st.integers(0, 2)))]
    if arch.mlps:
        mlps = st.sampled_from(sorted(arch.mlps))
        found += [Part(f"neuron {i}", draw(mlps), "mlp") for i in range(draw(st.integers(0, 2)))]
        layer = draw(mlps)
        norms = ["", f"M{layer}", f"finalM{layer}"] if arch.norm else [""]
        found.append(Reading("gate", layer, "mlp", draw(st.sampled_from(norms if arch.unembed else norms[:2]))))
    at = draw(points)
    norms = ["final"] if at == arch.n_layers else [f"L{at}", f"finalL{at}"]
    there = [n for n in norms if n[:5] != "final" or arch.unembed] if arch.norm else []
    norm = draw(st.sampled_from(["", *there]))
    return arch.attached(*found, Reading("probe", at, "stream", norm))


def ran(arch: Architecture, size: float = 1.0, seed: int = 0) -> Run:
    """A random model with these attachments, on tokens; its sources have a row for every token."""
    model, rng = sc.random_model(arch, **SIZES, seed=seed), np.random.default_rng(seed)
    rows = {p.name: size * rng.standard_normal((len(TOKENS), 6)) for p in arch.parts}
    return replace(model, attached={**model.attached, **rows}).run(TOKENS)


def linear(arch: Architecture) -> list[str]:
    """The targets that are not scores."""
    return ["stream", *(["logits"] if arch.unembed else []), *(f"readout:{r.name}" for r in arch.readings)]


def targets(arch: Architecture) -> list[str]:
    return linear(arch) + [f"scores:{h}" for h in arch.all_heads]


def put(run: Run, **arrays: Any) -> Run:
    """The record with other arrays for terms to be made of."""
    return replace(run, arrays=Arrays(arrays, {}, run.arrays))


# ------------------------------------------------------------------------------------------------ sums
@examples(40)
@given(attached(), st.sampled_from([1e-3, 1.0, 1e4]))
def test_the_terms_add_up_to_what_the_model_computes(arch: Architecture, size: float) -> None:
    run = ran(arch, size)
    for target in targets(arch):
        found = closure(sc.expand(arch, target), run)
        assert found.passed, (target, found)


@examples(40)
@given(attached())
def test_a_readout_reads_the_stream_of_the_forward_pass(arch: Architecture) -> None:
    run = ran(arch)
    for reading in arch.readings:
        value, vectors = run.readouts[reading.name], run.model.attached[reading.name]
        total = evaluate(sc.expand(arch, f"readout:{reading.name}"), run).total()
        assert np.allclose(total, value, atol=1e-9)
        if reading.at == "stream":
            assert np.allclose(value, through(run, reading.norm, run.streams[reading.layer]) @ vectors.T)
        else:
            heads = sum((run.results[str(h)] for h in arch.layer_heads(reading.layer)), np.zeros(()))
            read = run.streams[reading.layer]
            if not arch.parallel:
                r = run.model.multipliers.get(f"r[L{reading.layer}]", 1.0)
                read = read + heads + r * run.model.weights.get(f"b_O_L{reading.layer}", 0.0)
            assert np.allclose(value, through(run, reading.norm, read) @ vectors.T)


def through(run: Run, label: str, x: Any) -> Any:
    """The norm of rows, from its definition."""
    if not label:
        return x
    x = x - x.mean(axis=-1, keepdims=True) if run.model.architecture.norm == "LN" else x
    x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + run.model.settings.eps)
    w, own = run.model.weights, "final" if label.startswith("final") else label
    return x * w.get(f"gain_{own}", 1.0) + w.get(f"b_N_{own}", 0.0)


@examples(40)
@given(attached())
def test_setting_apart_changes_nothing_that_the_model_computes(arch: Architecture) -> None:
    kept = tuple(p for p in arch.parts if p.of == "added")
    run = ran(arch)
    whole = replace(arch, parts=kept, readings=())
    arrays = {p.name: run.model.attached[p.name] for p in kept}
    plain = replace(run.model, architecture=whole, attached=arrays).run(TOKENS)
    assert all(np.array_equal(a, b) for a, b in zip(run.streams, plain.streams, strict=True))
    assert all(np.array_equal(run.scores[h], plain.scores[h]) for h in plain.scores)


@given(attached())
def test_numbers_of_terms_are_those_of_the_recursion_and_of_the_list(arch: Architecture) -> None:
    for target in linear(arch):
        expansion = sc.expand(arch, target)
        assert expansion.count == counted(arch, target) == len(list(expansion))
        assert all(expansion.index(term) == i for i, term in enumerate(expansion))


def counted(arch: Architecture, target: str) -> int:
    """Number of terms by ``c_{l+1} = (1 + H) c_l + sources``, from the point where the stream is split."""
    reading = arch.reading(target.partition(":")[2]) if target.startswith("readout") else None
    end = arch.n_layers if reading is None else reading.layer
    split = [p.layer for p in arch.parts if p.of == "stream" and p.layer <= end]
    start = split[0] if split else 0
    named = lambda of, layer: sum((p.of, p.layer) == (of, layer) for p in arch.parts)  # noqa: E731
    count = named("stream", start) + 1 if split else 1 + (arch.positions == "standard")
    count += named("added", start)
    half = reading is not None and reading.at == "mlp" and not arch.parallel
    for layer in range(start, end + half):
        count += arch.heads[layer] * count
        count += sum(f"b_V[{group(arch, layer, i)}]" in arch.biases for i in range(arch.heads[layer]))
        count += (f"b_N[L{layer}]" in arch.biases) * arch.heads[layer] + (f"b_O[L{layer}]" in arch.biases)
        if layer < end:
            count += (layer in arch.mlps) + named("mlp", layer) + named("added", layer + 1)
    if target == "logits":
        return count + ("b_U" in arch.biases) + ("b_N[final]" in arch.biases)
    if reading is None:
        return count
    own = "final" if reading.norm.startswith("final") else reading.norm
    return count + (f"b_N[{own}]" in arch.biases)


@examples(25)
@given(attached(max_terms=40), st.integers(0, 3))
def test_all_rows_of_verify_hold(arch: Architecture, seed: int) -> None:
    report = sc.verify(arch, targets=[t for t in targets(arch) if sc.expand(arch, t).count < 300][-6:], seed=seed)
    assert report.ok, report.text()


@examples(30)
@given(attached(), st.floats(-3, 3))
def test_from_source_is_the_response_to_the_source_with_all_else_held_fixed(arch: Architecture, times: float) -> None:
    run, ring = ran(arch), Floats()
    matrices = matrices_of(run)
    for part in arch.parts:
        changed = {**matrices, part.argument: times * matrices[part.argument]}
        found = [frozen(arch, m, ring) for m in (matrices, changed)]
        for target in linear(arch):
            kind, _, name = target.partition(":")
            old, new = ({"stream": f.streams[-1], "logits": f.logits}.get(kind, f.readouts.get(name)) for f in found)
            expansion = sc.expand(arch, target)
            there = part.name in [s.name for s in expansion.sources]
            total = evaluate(expansion.from_source(part.name), run).total() if there else np.zeros(1)
            assert np.allclose(new - old, (times - 1) * total, atol=1e-9), (part, target)


def test_batches_of_tokens_have_rows_of_their_own() -> None:
    rng, tokens = np.random.default_rng(0), [[0, 1, 2], [3, 4, 0]]
    acts = rng.random((2, 3))
    model = sc.random_model(sc.attention_only((2, 2)), **SIZES).with_(
        sc.readout(rng.normal(size=(2, 6))), sc.source("feature", rng.normal(size=6), 1, activations=acts),
        sc.source("table", rng.normal(size=(3, 6)), 1),
    )  # fmt: skip
    run = model.run(tokens)
    expansion = sc.expand(model.architecture, "readout:probe")
    assert closure(expansion, run).passed
    assert run.readouts["probe"].shape == (2, 3, 2)
    feature = evaluate(expansion.from_source("feature"), run).total()
    for i in (0, 1):  # each row alone gives the same
        alone = replace(model, attached={**model.attached, "feature": model.attached["feature"][i]}).run(tokens[i])
        assert np.allclose(evaluate(expansion.from_source("feature"), alone).total(), feature[i])
    assert sc.verify(model, tokens).ok


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_what_is_added_is_what_a_larger_embedding_or_bias_would_add(layer: int) -> None:
    plain = sc.random_model(sc.attention_only((2, 2), biases=True), **SIZES)
    row = np.arange(6.0)
    name = "W_E" if layer == 0 else f"b_O_L{layer - 1}"
    moved = plain.weights[name] + (row[:, None] if layer == 0 else row)
    other = replace(plain, weights={**plain.weights, name: moved}).run(TOKENS)
    steered = plain.with_(sc.source("steer", row, layer, of="added")).run(TOKENS)
    assert np.allclose(steered.logits, other.logits)
    assert not np.allclose(steered.logits, plain.run(TOKENS).logits)
    expansion = sc.logits(steered.model.architecture)
    assert closure(expansion, steered).passed
    assert expansion.from_source("steer").count == 1 + sum((2, 2)[layer:]) + (4 if layer == 0 else 0)


def test_a_neuron_is_read_through_its_own_norm() -> None:
    model = sc.random_model(sc.transformer((2, 2), norm="LN", mlps=True, biases=True), **SIZES)
    neuron = sc.readout(model.weights["W_in_L1"][4], "neuron", 1, at="mlp", normed=True)
    run = model.with_(neuron).run(TOKENS)
    read = run.streams[1] + run.results["L1H0"] + run.results["L1H1"] + model.weights["b_O_L1"]
    inner = through(run, "M1", read) @ model.weights["W_in_L1"].T
    assert np.allclose(run.readouts["neuron"][:, 0], inner[:, 4])
    expansion = sc.expand(run.model.architecture, "readout:neuron")
    assert closure(expansion, run).passed
    assert {s.name for s in expansion.sources} >= {"mlp[L0]", "b_N[M1]", "embed"}
    assert "mlp[L1]" not in {s.name for s in expansion.sources}  # what it helps to write


def test_scores_have_the_known_number_of_terms() -> None:
    """``(n_q + 2)(n_k + 2)`` with n features, the rest and the bias on each side (Kamath et al. 2025)."""
    rng = np.random.default_rng(0)
    model = sc.random_model(sc.attention_only((2, 2), biases=["b_Q", "b_K"]), **SIZES)
    own = model.with_(*(sc.source(f"feature {i}", rng.normal(size=(4, 6)), 1) for i in range(5)))
    expansion = sc.scores(own.architecture, "L1H1")
    assert expansion.count == (5 + 2) ** 2
    assert expansion.counts_by_composition() == {"none": 49}
    assert closure(expansion, own.run(TOKENS)).passed


def test_an_edge_between_features_is_activation_times_decoder_times_encoder() -> None:
    """``h_t = sum_s a_s w_st``: features of one MLP as sources, an encoder that reads what a later MLP reads."""
    rng = np.random.default_rng(0)
    model = sc.random_model(sc.transformer((0, 1), mlps=True), **SIZES)
    decoder, acts, encoder = rng.normal(size=(3, 6)), rng.random((3, 4)), rng.normal(size=(2, 6))
    features = [sc.source(f"feature {i}", decoder[i], 0, of="mlp", activations=acts[i]) for i in range(3)]
    own = model.with_(*features, sc.readout(encoder, "encoder", 1, at="mlp"))
    run, expansion = own.run(TOKENS), sc.expand(own.architecture, "readout:encoder")
    values = dict(zip([t.label for t in expansion], evaluate(expansion, run), strict=True))
    for i in range(3):
        direct = acts[i][:, None] * (encoder @ decoder[i])
        assert np.allclose(values[f"feature {i}"], direct)
        w_ov = model.weights["W_O_L1H0"] @ model.weights["W_V_L1H0"]
        through_head = run.patterns["L1H0"] @ (acts[i][:, None] * decoder[i]) @ w_ov.T @ encoder.T
        assert np.allclose(values[f"feature {i} -> L1H0"], through_head)
    assert np.allclose(sum(values.values()), run.readouts["encoder"])
    assert set(values) >= {"embed", "rest[M0]", "embed -> L1H0", "rest[M0] -> L1H0"}


@examples(20)
@given(attached(max_terms=60), st.randoms(use_true_random=False))
def test_scores_are_summed_in_any_order_of_heads(arch: Architecture, random: Any) -> None:
    run = ran(arch)
    heads = [str(h) for h in arch.all_heads] * 2
    random.shuffle(heads)
    for head in heads:  # the stream is walked once for all of them
        total, allowed = evaluate(sc.scores(arch, head), run).total(), np.isfinite(run.scores[head])
        value = run.products.get(head, run.scores[head])
        assert np.allclose(total[allowed], value[allowed], atol=1e-9)


@examples(20)
@given(attached())
def test_sums_close_in_float32(arch: Architecture) -> None:
    run = ran(arch).model.run(TOKENS, "float32")
    for target in linear(arch):
        found = closure(sc.expand(arch, target), run)
        assert found.passed, (target, found)
    assert all(value.dtype == np.float32 for value in run.readouts.values())


# --------------------------------------------------------------------------------- what must not pass
def two_layers() -> Run:
    return ran(sc.attention_only((2, 2)).attached(Part("feature 0", 1), Part("steer", 2, "added"), Reading("probe", 2)))


@pytest.mark.parametrize("name", ["part_feature_0", "part_steer", "read_probe", "rest_L1"])
def test_another_array_in_the_evaluation_does_not_close(name: str) -> None:
    run = two_layers()
    expansion = sc.expand(run.model.architecture, "readout:probe")
    for wrong in (run.arrays[name] * (1 + 1e-6), run.arrays[name][::-1], run.arrays["X0"][: len(run.arrays[name])]):
        assert not closure(expansion, put(run, **{name: wrong})).passed
    assert closure(expansion, put(run, **{name: run.arrays[name].copy()})).passed


def test_a_rest_of_another_layer_does_not_close() -> None:
    run = two_layers()
    wrong = run.streams[0] - run.arrays["part_feature_0"]
    assert not closure(sc.logits(run.model.architecture), put(run, rest_L1=wrong)).passed


def test_a_corrupted_program_is_seen_over_the_prime_field(monkeypatch: pytest.MonkeyPatch) -> None:
    arch = sc.transformer((1, 1), mlps=True).attached(
        Part("feature 0", 1), Part("feature 1", 1), Part("steer", 2, "added"), Part("neuron 3", 1, "mlp"),
        Reading("probe", 2), Reading("half", 1, "mlp"),
    )  # fmt: skip

    def row(target: str = "readout:probe") -> bool | None:
        return check_polynomial([sc.expand(arch, target)]).passed

    own, block = programs._own, programs._block
    assert [row(), row("readout:half"), row("scores:L1H0")] == [True] * 3
    lost = lambda *a: [s for s in own(*a) if s.name != "steer"]  # noqa: E731
    first = lambda *a: own(*a)[:1]  # noqa: E731
    twice = lambda *a: own(*a) * 2  # noqa: E731
    moved = lambda arch, of, layer, point: own(arch, of, layer - (of == "added"), point)  # noqa: E731
    for wrong in (lost, first, twice, moved):
        monkeypatch.setattr(programs, "_own", wrong)
        assert row() is False
    monkeypatch.setattr(programs, "_own", own)
    monkeypatch.setattr(programs, "_block", lambda arch, layer, whole=True: block(arch, layer))
    assert [row(), row("readout:half")] == [True, False]  # a readout before the MLP that also reads what it writes


@pytest.mark.parametrize("wrong", ["drop", "double", "another"])
def test_wrong_terms_are_seen(wrong: str) -> None:
    run = two_layers()
    expansion = sc.expand(run.model.architecture, "readout:probe")

    def terms(e: Expansion) -> Iterator[Any]:
        chosen = list(e)
        one = next(i for i, t in enumerate(chosen) if t.sources == ("feature 0",))
        yield from {
            "drop": chosen[:one] + chosen[one + 1 :], "double": [*chosen, chosen[one]],
            "another": [*chosen[:one], chosen[one + 1], *chosen[one + 1 :]],
        }[wrong]  # fmt: skip

    assert check_polynomial([expansion], terms=terms).passed is False
    assert check_polynomial([expansion]).passed


def test_types_refuse_what_a_readout_cannot_read() -> None:
    arch = sc.transformer((1, 1), norm="LN").attached(
        Part("feature", 1), Reading("early", 1), Reading("plain", 2), Reading("last", 2, norm="final")
    )
    (plain,) = [t for t in sc.expand(arch, "readout:plain") if t.label == "feature"]
    last = next(t for t in sc.expand(arch, "readout:last") if t.label == "feature")
    head = next(t for t in sc.expand(arch, "readout:plain") if t.label == "feature -> L1H0")
    early = sc.expand(arch, "readout:early")[0].word.factors[-1]
    check_finished(plain.word), check_finished(last.word)  # right ones
    d, probe, plain_probe = last.word.factors[0], last.word.factors[-1], plain.word.factors[-1]
    feature = plain.word.factors[0]
    with pytest.raises(IllTyped, match="reader of the model space after the norm"):
        check_finished(Word((feature, probe)))
    with pytest.raises(IllTyped, match=r"D\[final\] on the left has no partner"):
        check_finished(Word((d, feature, plain_probe)))
    with pytest.raises(IllTyped, match="point 1 of the stream cannot read"):
        Word((*head.word.factors[:-1], early))
    lower = sc.expand(arch, "scores:L0H0").readout.sides[0][-1].branches[0].right[-1]  # W_Q of the first layer
    with pytest.raises(IllTyped):
        Word((feature, lower))


def test_types_refuse_a_norm_before_a_readout_of_the_stream_as_it_stands() -> None:
    arch = sc.transformer((1,), norm="RMS", gains=False)  # a norm that leaves nothing on the right
    arch = arch.attached(Part("feature", 1), Reading("plain", 1), Reading("last", 1, norm="final"))
    plain, last = (sc.expand(arch, f"readout:{name}")[0].word for name in ("plain", "last"))
    check_finished(plain), check_finished(last)
    refused = r"starts with D\[final\], a norm, but plain.T reads without a norm"
    with pytest.raises(IllTyped, match=refused) as caught:
        check_finished(Word((last.factors[0], *plain.factors)))
    assert (caught.value.rule, caught.value.left, caught.value.right) == (2, "D[final]", "")
    with pytest.raises(IllTyped, match=r"so the word must start with D\[final\]"):
        check_finished(Word(last.factors[1:]))


# -------------------------------------------------------------------------------------------- bad input
GOOD = np.ones(6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sc.readout([1.0, float("nan")]), r"holds nan at \[1\]"),
        (lambda: sc.readout([]), "is empty"),
        (lambda: sc.readout(np.ones((0, 6))), "is empty"),
        (lambda: sc.readout(["a"]), "must hold real numbers, not <U1"),
        (lambda: sc.readout([True]), "must hold real numbers, not bool"),
        (lambda: sc.readout([1j]), "must hold real numbers, not complex128"),
        (lambda: sc.readout([[1, 2], [3]]), "is not an array"),
        (lambda: sc.readout(np.ones((1, 1, 6))), r"not \[1, 1, 6\]"),
        (lambda: sc.readout(3.0), r"not \[\]"),
        (lambda: sc.readout(GOOD, at="attention"), '"stream" or "mlp"'),
        (lambda: sc.readout(GOOD, at="mlp"), "give the layer of the MLP"),
        (lambda: sc.readout(GOOD, normed=1), "True or False"),
        (lambda: sc.readout(GOOD, normed="last"), "normed must be True or False, or \"final\", not 'last'"),
        (lambda: sc.readout(GOOD, "W_U"), "W_U has that name already"),
        (lambda: sc.readout(GOOD, "M"), "mlp has that name already"),
        (lambda: sc.readout(GOOD, "embed"), "embed has that name already"),
        (lambda: sc.readout(GOOD, "mlp[L0]"), "every model has one of that name"),
        (lambda: sc.readout(GOOD, "b_V[1]"), "every model has one of that name"),
        (lambda: sc.readout(GOOD, "L0H1"), "the label of a head"),
        (lambda: sc.readout(GOOD, "probe_L0H1"), "ends like a label"),
        (lambda: sc.readout(GOOD, "probe_final"), "ends like a label"),
        (lambda: sc.readout(GOOD, "probe_finalL1"), "ends like a label"),
        (lambda: sc.readout(GOOD, ""), "must not be empty"),
        (lambda: sc.readout(GOOD, "x" * 41), "at most 40"),
        (lambda: sc.readout(GOOD, "a\nb"), "no control characters"),
        (lambda: sc.readout(GOOD, "a\u3000b"), "must print"),
        (lambda: sc.readout(GOOD, 3), "is a string"),
        (lambda: sc.source("part", GOOD, 0, of="attn"), '"stream", "mlp" or "added"'),
        (lambda: sc.source("part", np.ones((2, 6)), 0, activations=[1, 2]), "go with one direction"),
        (lambda: sc.source("part", GOOD, 0, activations=3.0), "go with one direction"),
        (lambda: sc.source("part", GOOD, 0, activations=[np.inf]), "activations holds inf"),
        (lambda: sc.source("part", [1e300], 0, activations=[1e300]), "leave the range"),
        (lambda: sc.source("part", np.ones((1, 1, 1, 6)), 0), "a source is"),
        (lambda: sc.source("part", [], 0), "is empty"),
    ],
)  # fmt: skip
def test_bad_readouts_and_sources_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([sc.readout(np.ones(5))], r"must have shape \[k, 6\] in this model, not \[1, 5\]"),
        ([sc.source("part", np.ones(5), 1)], r"\[n, 6\] or \[batch, n, 6\]"),
        ([sc.readout(GOOD, layer=3)], "a point of the stream, 0 to 2, not 3"),
        ([sc.readout(GOOD, layer=-1)], "0 to 2, not -1"),
        ([sc.readout(GOOD, layer=True)], "not True"),
        ([sc.source("part", GOOD, 1.5)], "not 1.5"),
        ([sc.source("part", GOOD, 2, of="mlp")], "0 to 1, not 2"),
        ([sc.source("part", GOOD, 1, of="mlp")], "layer 1 has no MLP"),
        ([sc.readout(GOOD, layer=1, at="mlp")], "layer 1 has no MLP"),
        ([sc.readout(GOOD), sc.readout(GOOD)], "two readouts or sources are called 'probe'"),
        ([sc.readout(GOOD), sc.source("probe", GOOD, 1)], "two readouts or sources are called 'probe'"),
        ([sc.source("a b", GOOD, 1), sc.source("a-b", GOOD, 1)], "'a b' and 'a-b' are too similar"),
        ([sc.source("one", GOOD, 0), sc.source("two", GOOD, 1)], "split at points 0, 1"),
        ([sc.readout(GOOD, normed=True)], "no norms"),
        ([sc.readout(GOOD, layer=1, normed="final")], 'normed="final", but the model has no norms; leave it out'),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_model_is_refused(given: Any, message: str) -> None:
    model = sc.random_model(sc.transformer((1, 1), mlps=[0]), **SIZES)
    with pytest.raises(ValueError, match=message):
        model.with_(*given)


def test_a_readout_says_where_it_reads_and_through_which_norm() -> None:
    said = {Reading("p", 1): "point 1", Reading("p", 1, "mlp"): "the MLP of layer 1"}
    said |= {Reading("p", 1, norm="L1"): "point 1, after its norm (L1)"}
    said |= {Reading("p", 1, "mlp", "M1"): "the MLP of layer 1, after its norm (M1)"}
    said |= {Reading("p", 1, "mlp", "finalM1"): "the MLP of layer 1, after the final norm taken there (finalM1)"}
    assert [str(one) for one in said] == [f"readout p at {place}" for place in said.values()]


@pytest.mark.parametrize(("first", "second"), [("a b", "a_b"), ("a_b", "a b"), ("a b", "a b")])
def test_names_that_would_be_one_argument_are_refused(first: str, second: str) -> None:
    alike = "" if first == second else f" ({first!r} and {second!r} are too similar)"
    wanted = f"two readouts or sources are called {second!r}{alike}; give one of them another name"
    with pytest.raises(ValueError, match=re.escape(wanted)):
        check_attachments([Reading(first, 1)], [Part(second, 1)], 2, (), ())


def test_other_things_are_no_attachments() -> None:
    model = sc.random_model(sc.attention_only((1,)), **SIZES)
    with pytest.raises(TypeError, match="takes readouts and sources"):
        model.with_(GOOD)
    with pytest.raises(ValueError, match="their arrays differ: probe"):
        Model(model.architecture.attached(Reading("probe", 1)), model.weights, model.score_scale)


def test_a_model_with_norms_needs_to_know_what_is_read() -> None:
    model = sc.random_model(sc.transformer((1,), norm="RMS"), **SIZES)
    with pytest.raises(ValueError, match=r"normed=True \(the output of the norm final\) or normed=False"):
        model.with_(sc.readout(GOOD))
    with pytest.raises(ValueError, match="norm L0"):
        model.with_(sc.readout(GOOD, layer=0))
    bare = sc.random_model(sc.transformer((1,), norm="RMS", unembed=False), **SIZES)
    with pytest.raises(ValueError, match="there is no norm final to read through"):
        bare.with_(sc.readout(GOOD, normed=True))
    values = [model.with_(sc.readout(GOOD, normed=n)).run([1, 2]).readouts["probe"] for n in (True, False)]
    assert not np.allclose(*values)


def test_rows_for_other_tokens_are_refused() -> None:
    model = sc.random_model(sc.attention_only((1,)), **SIZES).with_(sc.source("part", np.ones((4, 6)), 1))
    model.run([1, 2, 3, 4]), model.run([[1, 2, 3, 4], [0, 0, 0, 0]])
    with pytest.raises(ValueError, match=r"has rows for tokens \[4\], but the tokens are \[3\]"):
        model.run([1, 2, 3])
    batch = sc.random_model(sc.attention_only((1,)), **SIZES).with_(sc.source("part", np.ones((2, 4, 6)), 1))
    with pytest.raises(ValueError, match=r"\[2, 4\], but the tokens are \[3, 4\]"):
        batch.run([[1, 2, 3, 4]] * 3)


def test_unknown_targets_name_the_readouts() -> None:
    arch = sc.attention_only((1,)).attached(Reading("probe", 1))
    with pytest.raises(ValueError, match="there is no readout 'prob'; the readouts: probe"):
        sc.expand(arch, "readout:prob")
    with pytest.raises(ValueError, match=r"there is no readout 'probe': none is attached to the model$"):
        sc.expand(sc.attention_only((1,)), "readout:probe")
    with pytest.raises(ValueError, match='"readout:probe"'):
        sc.expand(arch, "probe")


# --------------------------------------------------------------------------------------- names and notation
@pytest.mark.parametrize(
    "name", ["probe", "feature 12", r"\input{x} & <b>$_%", 'the "the"', "Ω", "Merkmal für Ä", "in"]
)
def test_names_are_shown_as_they_are(name: str) -> None:
    check_name(name)
    rng = np.random.default_rng(0)
    model = sc.random_model(sc.attention_only((1, 1)), **SIZES).with_(
        sc.source(name, rng.normal(size=(4, 6)), 1), sc.readout(rng.normal(size=6), name + "s")
    )
    expansion = sc.expand(model.architecture, f"readout:{name}s")
    term = expansion[2]
    assert term.label == f"{name} -> L1H0"
    text = f"A[L1H0] @ {spelled(name).text} @ W_OV[L1H0].T @ {spelled(name + 's').text}.T"
    assert term.text == term.word.text == text
    assert spelled(name).latex in term.latex()
    assert rf"\mathrm{{readout}}^{{{spelled(name + 's').latex}}} &= " in expansion.latex()
    assert expansion.from_source(name).count == 2
    run = model.run(TOKENS)
    assert np.allclose(term.lambdify()(**run.arrays), evaluate(expansion, run).value(term))
    assert sc.verify(model, TOKENS, targets=[expansion.target]).ok


def test_other_notations_and_names_for_symbols() -> None:
    arch = sc.attention_only((1, 1)).attached(Reading("probe", 2), Part("feature 12", 1))
    expansion = sc.expand(arch, "readout:probe")
    assert expansion[2].written("paper").text == '(A[L1H0] (x) probe @ W_OV[L1H0]) "feature 12"'
    assert expansion[2].written("transformerlens").text == 'A[L1H0] @ "feature 12" @ OV[L1H0] @ probe.T'
    with pytest.raises(ValueError, match="so is probe"):
        expansion.written("row", {"A": "probe"})
    assert expansion.written("row", {"rest": "E"})[1].text == "E[L1] @ probe.T"
    assert [s.name for s in expansion.sources] == ["feature 12", "rest[L1]"]


def test_the_lambdified_term_says_what_it_needs() -> None:
    arch = sc.attention_only((1,)).attached(Reading("probe", 1), Part("feature 12", 0))
    function = sc.expand(arch, "readout:probe")[0].lambdify()
    assert function.arguments == ("part_feature_12", "read_probe")
    with pytest.raises(TypeError, match=r"read_probe \[n_directions, d_model\] \(readout, a direction in each row\)"):
        function(part_feature_12=np.ones((2, 3)))


# ------------------------------------------------------------------------------------------ models with them
def test_attachments_stay_with_the_model() -> None:
    run = two_layers()
    again = pickle.loads(pickle.dumps(run))
    assert np.array_equal(again.readouts["probe"], run.readouts["probe"])
    assert again.model.architecture == run.model.architecture
    with pytest.raises(ValueError, match="read-only"):
        run.readouts["probe"][0] = 0
    with pytest.raises(ValueError, match="read-only"):
        run.model.attached["probe"][0] = 0
    vectors = np.ones((1, 6))
    model = run.model.with_(sc.readout(vectors, "mine", 0))
    vectors[:] = 7
    assert (model.attached["mine"] == 1).all()  # what is given is copied


def test_a_change_of_basis_takes_them_along() -> None:
    run, rng = two_layers(), np.random.default_rng(1)
    moved = sc.change_basis(run.model, T=rng.standard_normal((6, 6))).run(TOKENS)
    assert np.allclose(moved.readouts["probe"], run.readouts["probe"])
    assert np.allclose(moved.logits, run.logits)


def test_what_reads_through_a_norm_is_not_folded() -> None:
    model = sc.random_model(sc.transformer((1,), norm="RMS"), **SIZES)
    with pytest.raises(ValueError, match="fold the model first"):
        sc.fold(model.with_(sc.readout(GOOD, normed=True)))
    plain = model.with_(sc.readout(GOOD, normed=False))
    assert np.allclose(sc.fold(plain).run([1, 2]).readouts["probe"], plain.run([1, 2]).readouts["probe"])


def test_removing_heads_and_scores_above_a_split() -> None:
    run = two_layers()
    found = sc.remove_heads(run, "L1H0")
    assert np.abs(found.pattern_part).max() < 1e-12
    below = sc.remove_heads(run, "L0H0")  # what it wrote is in the rest, which is held fixed
    assert not below.value_part.any()
    assert np.abs(below.pattern_part).max() > 1e-3
    gone = sc.remove_scores(run, "L1H0", sc.scores(run.model.architecture, "L1H0").from_source("feature 0"))
    assert np.abs(gone.frozen - gone.recomputed).max() < 1e-12


def test_sources_of_one_name_are_selected_and_the_rest_is_what_is_left() -> None:
    run = two_layers()
    expansion = sc.expand(run.model.architecture, "readout:probe")
    names = [s.name for s in expansion.sources]
    assert names == ["feature 0", "rest[L1]", "steer"]
    totals = [evaluate(expansion.from_source(name), run).total() for name in names]
    assert np.allclose(sum(totals), run.readouts["probe"])
    assert expansion.from_source("rest").count == expansion.from_source("rest[L1]").count == 3
    assert [s.own for s in expansion.sources] == [True, False, True]


def test_derivations_say_that_they_do_not_speak_of_attachments() -> None:
    with pytest.raises(ValueError, match=r"no models with attachments \(readout probe at point 1\)"):
        sc.derive(sc.attention_only((1,)).attached(Reading("probe", 1)))


def test_what_is_attached_is_not_multiplied_out_further() -> None:
    arch = sc.attention_only((1,), softmax=False).attached(Part("feature", 1))
    with pytest.raises(ValueError, match="with source feature of the stream at point 1 attached"):
        sc.logits(arch).unfrozen()
    assert sc.verify(arch).ok


# -------------------------------------------------------------------------------------------------- check
@examples(25)
@given(attached(max_terms=40), st.data())
def test_check_reads_every_term_and_finds_what_is_missing(arch: Architecture, data: Any) -> None:
    target = data.draw(st.sampled_from([t for t in targets(arch) if sc.expand(arch, t).count <= 150]))
    terms = list(sc.expand(arch, target))
    for formula in (" + ".join(t.text for t in terms), " + ".join(t.latex() for t in terms)):
        verdict = sc.check(formula, arch, target)
        assert verdict.right, verdict.text()
        assert [t.number for t in verdict.terms] == list(range(len(terms)))
    if len(terms) > 2:
        gone = data.draw(st.integers(0, len(terms) - 1))
        verdict = sc.check(" + ".join(t.text for i, t in enumerate(terms) if i != gone), arch, target)
        assert verdict.mistake == "missing-terms"
        assert verdict.missing.texts == (terms[gone].text,)


def test_check_says_what_is_wrong_with_attachments() -> None:
    arch = sc.transformer((1, 1), mlps=[1]).attached(
        Part("feature 12", 1), Part("nrn", 1, "mlp"), Reading("probe", 2), Reading("early", 1)
    )
    assert sc.check('A[L1H0] @ "feature 12" @ W_OV[L1H0].T @ probe.T', arch).target == "readout:probe"
    assert not sc.check('"feature 12" @ probe', arch).right
    assert not sc.check("X0 @ probe.T", arch).right
    verdict = sc.check("A[L1H0] @ rest[L1] @ W_OV[L1H0].T @ early.T", arch)
    assert not verdict.right
    assert "point 1" in verdict.text()  # what reads before the head writes
    assert sc.check("mlp[L1] @ probe.T", arch).mistake == "extra-terms"
    for formula, message in [
        ("rest[L0] @ probe.T", r"unknown rest 'L0'; this model has rest\[L1\] and rest\[M1\]"),
        ("rest @ probe.T", "rest needs a label"),
        ("probe[L0]", "probe has no label"),
        ('"feature 13" @ probe.T', "unknown character"),
    ]:
        with pytest.raises(ReadError, match=message):
            sc.check(formula, arch)
    with pytest.raises(ReadError, match="unknown symbol 'rest'"):
        sc.check("rest[L1] @ W_U.T", sc.attention_only((1, 1)))


def test_own_sources_stand_where_the_mlps_stand_in_the_order_of_terms() -> None:
    arch = sc.transformer((0,), "standard", biases=["b_O", "b_U"], mlps=True)
    arch = arch.attached(Part("late", 1, "added"), Part("nrn", 0, "mlp"), Part("early", 0, "added"))
    labels = [term.label for term in sc.logits(arch)]
    assert labels == ["embed", "pos", "early", "nrn", "rest[M0]", "late", "b_O[L0]", "b_U"]


def test_bounds_know_of_sources_that_are_larger_than_the_stream() -> None:
    arch = sc.attention_only((2, 2)).attached(Part("feature 0", 1), Reading("probe", 2), Reading("before", 0))
    run, plain = ran(arch, size=1e8), ran(sc.attention_only((2, 2)))
    rows = np.linalg.norm(run.model.attached["feature 0"], axis=-1).max() * 0.99
    lengths = np.linalg.norm(run.model.attached["probe"], axis=-1)
    assert (rounding_scale("stream", run) >= rows).all()
    assert (rounding_scale("readout:probe", run) >= rows * lengths).all()
    assert (rounding_scale("logits", run) >= rows * np.linalg.norm(run.model.weights["W_U"], axis=-1)).all()
    for head in ("L1H0", "L1H1"):
        weights = [np.linalg.norm(run.model.weights[f"W_{x}_{head}"]) for x in "QK"]
        assert (rounding_scale(f"scores:{head}", run) >= rows**2 * weights[0] * weights[1] / np.sqrt(3)).all()
    # What is before the point at which the stream is split does not hold the source.
    assert np.array_equal(rounding_scale("scores:L0H0", run), rounding_scale("scores:L0H0", plain))
    assert rounding_scale("readout:before", run).max() < 1e3
    small = ran(arch, size=1e-3)  # and one that is smaller than the stream changes no bound
    assert np.array_equal(rounding_scale("scores:L1H0", small), rounding_scale("scores:L1H0", plain))
