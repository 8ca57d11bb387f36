"""Architectures: what is described, what is refused, and the programs of each readout."""

import pickle
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import all_targets, architectures, possible_biases
from sympy import symbols

from symcircuits.core.architecture import Architecture, Head, architecture_of, as_head, attention_only, transformer
from symcircuits.core.architecture import possible_biases as biases_of
from symcircuits.core.attachments import Part, Reading
from symcircuits.core.expansion import expand
from symcircuits.core.programs import Branch, Layer, Source, mlp_bias, mlp_out, mlp_readout, norm, readout
from symcircuits.core.rules import check_finished
from symcircuits.core.words import Factor, Word


# ---------------------------------------------------------------------------------------------------- heads
@given(st.integers(0, 200), st.integers(0, 200))
def test_names_of_heads(layer: int, index: int) -> None:
    head = Head(layer, index)
    assert head.label == str(head) == f"{head}" == f"L{layer}H{index}"
    for name in (f"L{layer}H{index}", f"l{layer}h{index}", f" {layer}.{index} ", (layer, index), head):
        assert as_head(name) == head
        assert type(as_head(name)) is Head


def test_heads_sort_by_layer_and_index() -> None:
    names = ["L10H0", "L1H10", "L1H2", "L0H11", "L2H1", "L0H2"]
    assert [str(h) for h in sorted(map(as_head, names))] == ["L0H2", "L0H11", "L1H2", "L1H10", "L2H1", "L10H0"]


@pytest.mark.parametrize(
    "name",
    ["", "H1", "L1", "L1H", "1", "1.2.3", "L-1H0", "L1H0x", "xL1H0", "1,2", "L 1H0", "-1.0", (1,), (1, 2, 3), (-1, 0),
     (0, -1), (1.0, 0), (True, 0), (0, "1"), [0, 1], 3, 1.2, None],
)  # fmt: skip
def test_what_is_no_name_of_a_head(name: Any) -> None:
    with pytest.raises(
        ValueError, match=r"is not the name of a head; write L1H4, 1\.4 or \(1, 4\), counted from 0"
    ) as caught:
        as_head(name)
    assert str(caught.value).startswith(repr(name))


def test_heads_of_an_architecture() -> None:
    arch = attention_only((2, 0, 3))
    assert arch.n_layers == 3
    assert [str(h) for h in arch.all_heads] == ["L0H0", "L0H1", "L2H0", "L2H1", "L2H2"]
    assert arch.layer_heads(1) == ()
    assert arch.layer_heads(2) == (Head(2, 0), Head(2, 1), Head(2, 2))
    for head in arch.all_heads:
        assert arch.head(head.label) == arch.head(head) == head
    for name, message in [
        ("L3H0", "there is no head L3H0: the model has 3 layers, counted from 0"),
        ("L1H0", "there is no head L1H0: layer 1 has 0 heads, counted from 0"),
        ("L0H2", "there is no head L0H2: layer 0 has 2 heads, counted from 0"),
        ((2, 3), "there is no head L2H3: layer 2 has 3 heads, counted from 0"),
    ]:
        with pytest.raises(ValueError, match="there is no head") as caught:
            arch.head(name)  # type: ignore[arg-type]
        assert str(caught.value) == message
    with pytest.raises(ValueError, match=r"the model has 1 layer, counted"):
        attention_only((1,)).head("L1H0")
    with pytest.raises(ValueError, match=r"the model has 0 layers, counted"):
        attention_only(()).head("L0H0")


# ------------------------------------------------------------------------------------------- what is described
@given(architectures(max_terms=None))
def test_architectures_are_values(arch: Architecture) -> None:
    apart = ("heads", "positions", "biases", "readings", "parts")
    features = {f.name: getattr(arch, f.name) for f in fields(arch) if f.name not in apart}
    again = transformer(list(arch.heads), arch.positions, arch.biases, **features)
    assert again == arch
    assert hash(again) == hash(arch)
    assert pickle.loads(pickle.dumps(arch)) == arch
    for target in all_targets(arch):
        assert readout(arch, target) == readout(again, target)


def test_whatever_lists_whole_numbers() -> None:
    for heads in ([3, 5], (3, 5), iter([3, 5]), np.array([3, 5]), [np.int64(3), 5]):
        counts = attention_only(heads).heads
        assert counts == (3, 5)
        assert all(type(n) is int for n in counts)
    assert attention_only(()).heads == ()
    assert attention_only([0, 0]).heads == (0, 0)


def test_defaults() -> None:
    arch = attention_only((3, 3))
    assert (arch.positions, arch.biases, arch.scale, arch.causal, arch.unembed) == (None, frozenset(), True, True, True)
    assert arch == Architecture((3, 3))
    assert (Layer(), Source("b", ()).left, Source("b", ()).right) == (Layer((), (), True), (), ())


@given(st.lists(st.integers(0, 3), max_size=3), st.booleans())
def test_biases_by_name_and_kind(heads: list[int], unembed: bool) -> None:
    names = possible_biases(attention_only(heads, unembed=unembed))
    assert attention_only(heads, None, True, unembed=unembed).biases == set(names)
    assert attention_only(heads, None, False, unembed=unembed).biases == attention_only(heads, None, []).biases == set()
    for kind in ("b_V", "b_O", "b_Q", "b_K", "b_U"):
        of_kind = {n for n in names if n.partition("[")[0] == kind}
        assert attention_only(heads, None, kind, unembed=unembed).biases == of_kind
        assert attention_only(heads, None, [kind], unembed=unembed).biases == of_kind
    for name in names:
        assert attention_only(heads, None, name, unembed=unembed).biases == {name}
        assert attention_only(heads, None, (name, "b_O"), unembed=unembed).biases >= {name}


@pytest.mark.parametrize(
    ("arch", "text"),
    [
        (attention_only((3, 3)), "attention-only, heads 3,3"),
        (attention_only(()), "attention-only, heads none"),
        (attention_only((0, 12), "standard", True), "attention-only, heads 0,12, positions standard, biases"),
        (
            attention_only((1,), "shortformer", ["b_O"], scale=False, causal=False, unembed=False),
            "attention-only, heads 1, positions shortformer, biases, no score scale, bidirectional, no unembedding",
        ),
    ],
)
def test_shown(arch: Architecture, text: str) -> None:
    assert str(arch) == text


LIST = "heads must list the number of heads of each layer, e.g. (3, 3), not "
COUNT = "the number of heads of layer {} must be a whole number, 0 or more, not {}"
KINDS = 'positions must be None, "standard", "shortformer", "rotary" or "alibi", not {}'
NO_BIAS = "there is no bias {} here; the kinds are b_V, b_O, b_Q, b_K, b_U, e.g. b_V[L0H1]"
BIASES = "biases must be True, False or the names of those that are there, e.g. b_V or b_V[L0H1], not "


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 3}, LIST + "3"),
        ({"heads": "33"}, LIST + "'33'"),
        ({"heads": b"33"}, LIST + "b'33'"),
        ({"heads": None}, LIST + "None"),
        ({"heads": np.array(3)}, LIST + "array(3)"),
        ({"heads": (3, -1)}, COUNT.format(1, "-1")),
        ({"heads": (3.0, 3)}, COUNT.format(0, "3.0")),
        ({"heads": (3, "3")}, COUNT.format(1, "'3'")),
        ({"heads": (True,)}, COUNT.format(0, "True")),
        ({"heads": (3, None)}, COUNT.format(1, "None")),
        ({"heads": ((3, 3),)}, COUNT.format(0, "(3, 3)")),
        ({"heads": (int,)}, COUNT.format(0, "the class int")),
        ({"heads": np.array([1.5])}, COUNT.format(0, repr(np.float64(1.5)))),
        ({"heads": np.array([[1]])}, COUNT.format(0, "array([1])")),
        ({"positions": "learned"}, KINDS.format("'learned'")),
        ({"positions": True}, KINDS.format("True")),
        ({"positions": ""}, KINDS.format("''")),
        ({"scale": 0.5}, "scale must be True or False, not 0.5"),
        ({"causal": 1}, "causal must be True or False, not 1"),
        ({"unembed": None}, "unembed must be True or False, not None"),
        ({"biases": "b_X"}, NO_BIAS.format("'b_X'")),
        ({"biases": ["b_V[L9H9]"]}, NO_BIAS.format("'b_V[L9H9]'")),
        ({"biases": ["b_V", 3]}, NO_BIAS.format("3")),
        ({"biases": ["b_O[L0H0]"]}, NO_BIAS.format("'b_O[L0H0]'")),
        ({"biases": None}, BIASES + "None"),
        ({"biases": 1}, BIASES + "1"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_architectures(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole message is compared)
        attention_only(**{"heads": (3, 3), **arguments})
    assert str(caught.value) == message


# -------------------------------------------------------------------------------------------------- programs
def names(program: tuple[Layer, ...]) -> list[tuple[list[str], list[str], bool]]:
    """Per layer: its branches as text, its sources as text, whether it is skipped."""

    def branch(b: Branch) -> str:
        return " ".join([*(f.text for f in b.left), "X", *(f.text for f in b.right)])

    def source(s: Source) -> str:
        return f"{s.name}: " + " ".join(f.text for f in s.factors)

    return [([branch(b) for b in layer.branches], [source(s) for s in layer.sources], layer.skip) for layer in program]


def test_the_program_of_logits() -> None:
    assert names(readout(attention_only((2, 0, 1), "standard", True), "logits").sides[0]) == [
        ([], ["embed: t W_E.T", "pos: P"], False),
        (
            ["A[L0H0] X W_V[L0H0].T W_O[L0H0].T", "A[L0H1] X W_V[L0H1].T W_O[L0H1].T"],
            [
                "b_V[L0H0]: A[L0H0] ones b_V[L0H0].T W_O[L0H0].T",
                "b_V[L0H1]: A[L0H1] ones b_V[L0H1].T W_O[L0H1].T",
                "b_O[L0]: ones b_O[L0].T",
            ],
            True,
        ),
        ([], ["b_O[L1]: ones b_O[L1].T"], True),
        (
            ["A[L2H0] X W_V[L2H0].T W_O[L2H0].T"],
            ["b_V[L2H0]: A[L2H0] ones b_V[L2H0].T W_O[L2H0].T", "b_O[L2]: ones b_O[L2].T"],
            True,
        ),
        (["X W_U.T"], ["b_U: ones b_U.T"], False),
    ]


def test_the_programs_of_scores() -> None:
    arch = attention_only((1, 2), "shortformer", ["b_Q[L1H1]", "b_K[L1H1]", "b_K[L1H0]"])
    start = [([], ["embed: t W_E.T"], False), (["A[L0H0] X W_V[L0H0].T W_O[L0H0].T"], [], True), ([], ["pos: P"], True)]
    query, key = readout(arch, "scores:L1H1").sides
    assert names(query) == [*start, (["X W_Q[L1H1].T"], ["b_Q[L1H1]: ones b_Q[L1H1].T"], False)]
    assert names(key) == [*start, (["X W_K[L1H1].T"], ["b_K[L1H1]: ones b_K[L1H1].T"], False)]
    query, key = readout(arch, "scores:L1H0").sides
    assert names(query) == [*start, (["X W_Q[L1H0].T"], [], False)]
    assert names(key) == [*start, (["X W_K[L1H0].T"], ["b_K[L1H0]: ones b_K[L1H0].T"], False)]
    for head in ("L0H0", "L1H0"):
        program = readout(attention_only((1, 1), "standard"), f"scores:{head}").sides[0]
        assert [source for _, sources, _ in names(program) for source in sources] == ["embed: t W_E.T", "pos: P"]
        assert len(program) == 2 + int(head[1])


def test_readouts() -> None:
    arch = attention_only((2, 2))
    logits, stream, scores = (readout(arch, target) for target in ("logits", "stream", "scores:1.1"))
    assert (logits.target, logits.scale, logits.head, logits.bilinear) == ("logits", "", None, False)
    assert (stream.target, stream.scale, stream.head, stream.bilinear) == ("stream", "", None, False)
    assert (scores.target, scores.scale, scores.head, scores.bilinear) == ("scores:L1H1", "L1H1", Head(1, 1), True)
    assert stream.sides[0] == logits.sides[0][:-1]
    assert readout(attention_only((2, 2), scale=False), "scores:L1H1").scale == ""
    assert scores.architecture is arch


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("score", 'unknown target \'score\'; the targets are "logits", "stream" and "scores:L1H0" (any head)'),
        ("", "unknown target ''"),
        ("scores", "unknown target 'scores'"),
        ("scores:", "unknown target 'scores:'"),
        ("logits:L0H0", "unknown target 'logits:L0H0'"),
        ("stream:", "unknown target 'stream:'"),
        ("Logits", "unknown target 'Logits'"),
        (None, "unknown target None"),
        (("scores", "L0H0"), "unknown target ('scores', 'L0H0')"),
        ("scores:L2H0", "there is no head L2H0: the model has 2 layers, counted from 0"),
        ("scores:L0H2", "there is no head L0H2"),
        ("scores:x", "'x' is not the name of a head"),
    ],
)
def test_unknown_targets(target: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared)
        readout(attention_only((2, 2)), target)
    assert str(caught.value).startswith(message)


def test_logits_need_an_unembedding() -> None:
    arch = attention_only((2,), unembed=False)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole message is compared)
        readout(arch, "logits")
    assert str(caught.value) == "this model has no unembedding, so it has no logits; expand the stream instead"
    assert readout(arch, "stream").sides


@given(architectures(max_layers=3, max_heads=2))
def test_sources_and_branches(arch: Architecture) -> None:
    """Kinds and heads of sources; every source is a word of its own; readouts are branches without a head."""
    for target in all_targets(arch):
        for side in readout(arch, target).sides:
            for layer in side:
                for s in layer.sources:
                    kind, _, label = s.name.partition("[")
                    assert s.kind == kind
                    assert s.factors == s.left + s.core + s.right
                    assert s.is_bias == kind.startswith("b_")
                    inside = kind == "b_V" or (kind == "b_N" and bool(s.left))
                    assert (s.head is not None) == inside
                    assert s.head is None or label[:-1] in (arch.key_value(s.head), f"L{s.head.layer}")
                    word = Word(s.factors)
                    if kind in ("embed", "mlp", "b_V", "b_O", "b_U"):
                        assert check_finished(word) is word
                for b in layer.branches:
                    assert Word(b.right).factors == b.right
                    patterns = [f.text for f in b.left if f.symbol.glyph == "A"]
                    assert patterns == ([] if b.head is None else [f"A[{b.head}]"])
                    norms = [f.symbol.label for f in b.left if f.symbol.glyph == "D"]
                    of_queries_or_keys = arch.qk_norm and norms != [] and norms[0][0] in "QK"
                    assert len(norms) == (arch.norm is not None or of_queries_or_keys)
                    assert len(b.left) == len(patterns) + len(norms)
                    if b.head is not None:
                        assert b.left[0].text == patterns[0]
                        assert all(type(f) is Factor for f in b.left + b.right)


def test_what_comes_out_of_a_norm_stands_where_it_goes_in() -> None:
    """At the point of the stream that the norm reads, the first one too, with or without a gain behind it."""
    for gains in (True, False):
        arch = transformer((1, 1), norm="RMS", gains=["L0", "L1"] if gains else [])
        for point in (0, 1):
            symbol = norm(arch, f"L{point}", point).symbol
            assert symbol.row.point == symbol.col.point == point


@pytest.mark.parametrize(
    ("options", "polynomial"),
    [({}, False), ({"softmax": False}, True), ({"mlps": True}, False), ({"mlps": True, "bilinear": True}, True)],
)
def test_what_can_be_multiplied_out(options: dict[str, Any], polynomial: bool) -> None:
    assert transformer((1, 1), **options).polynomial is polynomial


@pytest.mark.parametrize("number", [-1, 10**9, 10**9 + 1, 10**30])
def test_numbers_of_heads_have_at_most_nine_digits(number: int) -> None:
    assert as_head((0, 10**9 - 1)) == as_head((0, 999_999_999)) == as_head("L0H999999999")
    for pair in ((0, number), (number, 0)):
        with pytest.raises(ValueError, match="is not the name of a head"):
            as_head(pair)


# ------------------------------------------------------------------------------- transformers, and what they lack
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mlps": [2]}, "mlps lists layers of the model, 0 to 1, not 2"),
        ({"mlps": [0, 3]}, "mlps lists layers of the model, 0 to 1, not 3"),
        ({"mlps": [-1]}, "mlps lists layers of the model, 0 to 1, not -1"),
        ({"mlps": ["0"]}, "mlps lists layers of the model, 0 to 1, not '0'"),
        ({"mlps": 1}, "mlps must be True, False or the layers that have an MLP, e.g. [0, 1], not 1"),
        ({"groups": (2,)}, "key/value heads are listed for 1 layer, but heads for 2"),
        ({"groups": (2, 2, 2)}, "key/value heads are listed for 3 layers, but heads for 2"),
        ({"groups": (2, 3)}, "the number of key/value heads of layer 1 must divide its 4 heads, not be 3"),
        ({"groups": (0, 2)}, "the number of key/value heads of layer 0 must divide its 4 heads, not be 0"),
        ({"groups": (2, -2)}, "the number of key/value heads of layer 1 must divide its 4 heads, not be -2"),
        ({"groups": (2, 2.0)}, "the number of key/value heads of layer 1 must divide its 4 heads, not be 2.0"),
        ({"norm": "LN", "gains": ["M0"]}, "there is no norm 'M0' here; the norms are L0, L1, final"),
        ({"gains": ["L0"]}, "there is no norm 'L0' here; the norms are none, because norm is None"),
        ({"norm": "ln"}, "norm must be None, \"LN\" or \"RMS\", not 'ln'"),
        ({"gated": True}, "gated describes MLPs, but there are none (see mlps)"),
        ({"parallel": True}, "parallel describes MLPs, but there are none (see mlps)"),
        ({"bilinear": True}, "bilinear describes MLPs, but there are none (see mlps)"),
        ({"positions": "alibi", "softmax": False},
         "ALiBi needs a softmax: what it adds to scores is not a path term"),
        ({"capped": True, "softmax": False}, "a soft cap on scores needs a softmax, but there is none"),
        ({"multipliers": ["r[L2]"]},
         "there is no multiplier 'r[L2]' here; they are m_E, r[L0], r[L1], m_U (r: those of all layers)"),
        ({"multipliers": ["m_U"], "unembed": False},
         "there is no multiplier 'm_U' here; they are m_E, r[L0], r[L1] (r: those of all layers)"),
        ({"heads": (10**5 + 1,)}, "100,001 heads are too many to list; the limit is 100,000 in all layers"),
        ({"heads": (6 * 10**4, 5 * 10**4)}, "110,000 heads are too many to list; the limit is 100,000 in all layers"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_transformers(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole message is compared)
        transformer(**{"heads": (4, 4), **arguments})
    assert str(caught.value) == message


def test_what_may_be_said_of_a_transformer() -> None:
    """At the limits of what is refused, and what is the same."""
    assert transformer((2, 2), mlps=[0]).mlps == {0}
    assert transformer((2, 2), mlps=[0, 1]) == transformer((2, 2), mlps=True)
    assert transformer((2, 2), mlps=[]) == transformer((2, 2)) == attention_only((2, 2))
    assert transformer((4, 6), groups=(4, 6)).groups is None  # each its own
    assert transformer((4, 0), groups=(1, 0)).groups == (1, 0)
    assert sum(transformer((10**5,)).heads) == 10**5
    assert transformer((1,), multipliers="r").multipliers == {"r[L0]"}
    assert transformer((), multipliers="r").multipliers == set()
    assert transformer((1, 1), mlps=[1], multipliers=["r"]).multipliers == {"r[L0]", "r[L1]", "r[M1]"}
    assert transformer((1,), norm="RMS", gains=False).gains == set()
    assert transformer((1,), norm="RMS", mlps=True).gains == {"L0", "M0", "final"}


def test_labels_of_groups_and_norms() -> None:
    """Query head i of H uses key/value head floor(i / (H / H_kv))."""
    arch = transformer((6, 2, 4), norm="LN", mlps=[1], groups=(2, 2, 1), biases=True)
    assert [arch.key_value(head) for head in arch.layer_heads(0)] == ["L0G0"] * 3 + ["L0G1"] * 3
    assert [arch.key_value(head) for head in arch.layer_heads(1)] == ["L1H0", "L1H1"]
    assert arch.key_values(2) == ("L2G0",)
    assert arch.norm_labels == ("L0", "L1", "L2", "M1", "final")
    assert [arch.norm_label(layer) for layer in range(3)] == ["L0", "L1", "L2"]
    assert (attention_only((1,)).norm_labels, attention_only((1,)).norm_label(0)) == ((), "")
    assert transformer((1,), norm="RMS", unembed=False).norm_labels == ("L0",)
    biases = biases_of(arch)
    assert biases[:5] == ("b_N[L0]", "b_N[L1]", "b_N[L2]", "b_N[M1]", "b_N[final]")
    assert [name for name in biases if name[:3] == "b_V"] == [
        "b_V[L0G0]", "b_V[L0G1]", "b_V[L1H0]", "b_V[L1H1]", "b_V[L2G0]",
    ]  # fmt: skip
    assert biases[-2:] == ("b_in[L1]", "b_out[L1]")
    assert biases_of(transformer((1,), mlps=True, gated=True))[-3:] == ("b_in[L0]", "b_gate[L0]", "b_out[L0]")
    assert not any(name[:3] == "b_N" for name in biases_of(transformer((1,), norm="RMS")))


@pytest.mark.parametrize(
    ("arch", "text"),
    [
        (transformer((2, 4), norm="LN", mlps=True, groups=(2, 2)),
         "transformer, heads 2,4, key/value heads 2,2, LN norm, MLPs"),
        (transformer((2, 2), "rotary", norm="RMS", gains=False, mlps=[1], gated=True, parallel=True, qk_norm=True),
         "transformer, heads 2,2, positions rotary, RMS norm without gain, normed queries and keys, "
         "gated parallel MLPs in layers 1"),
        (transformer((1,), mlps=True, bilinear=True, softmax=False, capped=False),
         "transformer, heads 1, no softmax, bilinear MLPs"),
        (transformer((1, 1), capped=True, multipliers=True),
         "attention-only, heads 1,1, soft-capped scores, multipliers"),
        (transformer((1, 1), multipliers=["r", "m_U"]), "attention-only, heads 1,1, multipliers r m_U"),
        (transformer((1, 1), multipliers=["r"]), "attention-only, heads 1,1, multipliers r"),
        (transformer((1, 1), multipliers=["m_E", "r[L1]"]), "attention-only, heads 1,1, multipliers m_E r[L1]"),
    ],
)  # fmt: skip
def test_transformers_are_shown(arch: Architecture, text: str) -> None:
    assert str(arch) == text
    assert repr(arch) == f"<Architecture: {text}>"


def test_one_head_stands_for_all_of_a_layer_and_symbols_for_any_number() -> None:
    """A bias that a head has, every head has; where some have it and some have not no head stands for all."""
    n = symbols("n", integer=True, nonnegative=True)
    arch = attention_only((n, 2, 0), biases=["b_V", "b_O", "b_U"])
    assert arch.symbolic
    assert not attention_only((2,)).symbolic
    assert arch.generic().heads == (1, 1, 0)
    assert arch.generic(Head(1, 3)).heads == (1, 4, 0)
    assert arch.generic(Head(1, 0)).heads == (1, 1, 0)
    counted = arch.at({n: 3})
    assert counted == attention_only((3, 2, 0), biases=["b_V", "b_O", "b_U"])
    assert counted.generic().biases == attention_only((1, 1, 0), biases=["b_V", "b_O", "b_U"]).biases
    assert attention_only((3, 2)).at({}) == attention_only((3, 2))
    for some in (["b_V[L1H0]"], ["b_V[L1H1]"]):
        with pytest.raises(ValueError, match=r"^some heads of layer 1 have b_V and some do not, so no head can stand"):
            attention_only((1, 2), biases=some).generic()
    for wrong in ({}, {n: -1}):
        with pytest.raises(ValueError, match=r"^layer 0 has '(n|-1)' heads: give a whole number, 0 or more, for every"):
            arch.at(wrong)
    assert arch.at({n: 0}).heads == (0, 2, 0)
    with pytest.raises(ValueError, match="listing heads needs numbers of heads, and layer 0 has n"):
        arch.layer_heads(0)
    assert arch.head("L0H7") == Head(0, 7)
    for call in ("explain", "explain(model, tokens)"):
        assert architecture_of(call, arch, symbolic=True) is arch
        with pytest.raises(ValueError, match="explain needs numbers of heads, and layer 0 has n: give"):
            architecture_of(call, arch)


@pytest.mark.parametrize(
    ("assumed", "message"),
    [
        ({}, "the number of heads of layer 1, 'n', is not known to be a whole number: make its symbols with"),
        ({"integer": False}, "the number of heads of layer 1, 'n', is not a whole number: make its symbols with"),
        ({"integer": True, "negative": True}, "the number of heads of layer 1, 'n', is negative"),
    ],
)
def test_symbols_that_are_no_numbers_of_heads(assumed: dict[str, bool], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared)
        attention_only((1, symbols("n", **assumed)))
    assert str(caught.value).startswith(message)


def test_heads_are_asked_for_by_one_name_or_by_several() -> None:
    arch = attention_only((2, 2))
    assert arch.some_heads("L1H0") == arch.some_heads((1, 0)) == arch.some_heads(["1.0"]) == (Head(1, 0),)
    assert arch.some_heads(["L1H1", "L0H1", (1, 1)]) == (Head(0, 1), Head(1, 1))
    assert arch.some_heads(((1, 1), (0, 0))) == (Head(0, 0), Head(1, 1))
    with pytest.raises(ValueError, match="not an empty list"):
        arch.some_heads([])


# ------------------------------------------------------------------------------------- programs of transformers
def last(architecture: Architecture, target: str) -> list[Any]:
    """The last layer of each side of a readout."""
    return [names(side)[-1] for side in readout(architecture, target).sides]


def test_the_program_of_a_transformer_with_all_it_can_have() -> None:
    """LN reads before heads, MLPs and the end; b_N enters a head at its pattern, and the MLP is a source."""
    arch = transformer((1, 1), norm="LN", mlps=[0], biases=True, multipliers=True)
    whole = names(readout(arch, "logits").sides[0])
    assert whole == [
        ([], ["embed: t W_E.T"], False),
        (
            ["A[L0H0] D[L0] X C gain[L0] W_V[L0H0].T W_O[L0H0].T"],
            [
                "b_N[L0]: A[L0H0] ones b_N[L0].T W_V[L0H0].T W_O[L0H0].T",
                "b_V[L0H0]: A[L0H0] ones b_V[L0H0].T W_O[L0H0].T",
                "b_O[L0]: ones b_O[L0].T",
                "mlp[L0]: mlp[L0]",
            ],
            True,
        ),
        (
            ["A[L1H0] D[L1] X C gain[L1] W_V[L1H0].T W_O[L1H0].T"],
            [
                "b_N[L1]: A[L1H0] ones b_N[L1].T W_V[L1H0].T W_O[L1H0].T",
                "b_V[L1H0]: A[L1H0] ones b_V[L1H0].T W_O[L1H0].T",
                "b_O[L1]: ones b_O[L1].T",
            ],
            True,
        ),
        (["D[final] X C gain[final] W_U.T"], ["b_N[final]: ones b_N[final].T W_U.T", "b_U: ones b_U.T"], False),
    ]
    for letter in "QK":
        side = names(readout(arch, "scores:L1H0").sides["QK".index(letter)])
        assert side[:2] == whole[:2]
        assert side[2:] == [
            (
                [f"D[L1] X C gain[L1] W_{letter}[L1H0].T"],
                [f"b_N[L1]: ones b_N[L1].T W_{letter}[L1H0].T", f"b_{letter}[L1H0]: ones b_{letter}[L1H0].T"],
                False,
            )
        ]


def test_multipliers_stand_on_what_they_multiply() -> None:
    """``m_E`` on the embedding, ``r`` on all that a layer's heads add, ``m_U`` on all that is read at the end."""
    arch = transformer((2,), norm="LN", mlps=[0], biases=True, multipliers=True)
    start, block, end = readout(arch, "logits").sides[0]
    assert [source.scales for source in start.sources] == [("m_E",)]
    assert {branch.scales for branch in block.branches} == {("r[L0]",)}
    assert {source.scales for source in block.sources if source.kind != "mlp"} == {("r[L0]",)}
    assert {source.scales for source in block.sources if source.kind == "mlp"} == {("r[M0]",)}
    assert {one.scales for one in (*end.branches, *end.sources)} == {("m_U",)}
    for side in readout(arch, "scores:L0H1").sides:
        assert {one.scales for one in (*side[-1].branches, *side[-1].sources)} == {()}


def test_scores_behind_norms_of_queries_and_keys() -> None:
    """Of each head's queries, and of the keys that a group shares; the gains are those of a layer."""
    arch = transformer((2, 2), "rotary", norm="RMS", qk_norm=True, groups=(1, 1), biases=["b_K", "b_Q"])
    query, key = (names(side)[2:] for side in readout(arch, "scores:L1H1").sides)
    assert query == [
        (["D[L1] X gain[L1] W_Q[L1H1].T"], ["b_Q[L1H1]: ones b_Q[L1H1].T"], False),
        (["D[QL1H1] X gain[Q1]"], [], False),
    ]
    assert key == [
        (["D[L1] X gain[L1] W_K[L1G0].T"], ["b_K[L1G0]: ones b_K[L1G0].T"], False),
        (["D[KL1G0] X gain[K1]"], [], False),
    ]


@pytest.mark.parametrize(
    ("features", "spaces"),
    [
        ({}, [("qk", "L0G0"), ("qk", "L0G0")]),
        ({"qk_norm": True}, [("scaled_qk", "L0G0"), ("scaled_qk", "L0G0")]),
        ({"positions": "rotary"}, [("query", "L0G0"), ("key", "L0G0")]),
        ({"positions": "rotary", "qk_norm": True}, [("query", "L0G0"), ("key", "L0G0")]),
    ],
)
def test_where_a_query_meets_a_key(features: dict[str, Any], spaces: list[tuple[str, str]]) -> None:
    """In a space of the group; behind norms it is another than before, and rotations lead from one to the other."""
    arch = transformer((2,), groups=(1,), norm="RMS", **features)
    found = [side[-1].branches[0].right[-1].col.space for side in readout(arch, "scores:L0H1").sides]
    assert [(space.kind, space.owner) for space in found] == spaces
    inside = [side[1].branches[0].right[-1].col.space.kind for side in readout(arch, "scores:L0H1").sides]
    assert inside == (["raw_qk"] * 2 if "qk_norm" in features else [kind for kind, _ in spaces])


def test_positions_of_queries_and_keys_are_added_to_what_comes_out_of_the_norm() -> None:
    arch = transformer((1, 1), "shortformer", norm="LN", gains=False, biases=["b_N[L1]"])
    for letter, found in zip("QK", last(arch, "scores:L1H0"), strict=True):
        w = f"W_{letter}[L1H0].T"
        assert found == ([f"D[L1] X C {w}"], [f"b_N[L1]: ones b_N[L1].T {w}", f"pos: P {w}"], False)


@pytest.mark.parametrize("parallel", [False, True])
def test_a_bilinear_mlp_reads_the_stream_twice(parallel: bool) -> None:
    """Behind the heads of its layer, or beside them; what its MLP writes is not there yet."""
    arch = transformer((1, 1), norm="LN", mlps=True, bilinear=True, parallel=parallel, biases=True)
    found = mlp_readout(arch, 1)
    assert found.target == "mlp:L1"
    for kind, side in zip(("in", "gate"), found.sides, strict=True):
        *before, end = names(side)
        assert end == (
            [f"D[M1] X C gain[M1] W_{kind}[L1].T"],
            [f"b_N[M1]: ones b_N[M1].T W_{kind}[L1].T", f"b_{kind}[L1]: ones b_{kind}[L1].T"],
            False,
        )
        whole = names(readout(arch, "stream").sides[0])
        assert before[:2] == whole[:2]
        behind = [] if parallel else [(whole[2][0], [s for s in whole[2][1] if s[:3] != "mlp"], True)]
        assert before[2:] == behind


def test_programs_with_sources_and_readouts_of_ones_own() -> None:
    """A stream that is split begins with its sources and the rest; what is read where, and what is there by then."""
    arch = transformer((1, 1, 1), norm="RMS", mlps=[1], biases=["b_O"]).attached(
        Part("one", 1), Part("two", 1), Part("added", 2, of="added"), Part("neuron", 1, of="mlp"),
        Reading("probe", 1), Reading("lens", 2, norm="finalL2"), Reading("in", 1, norm="M1", at="mlp"),
    )  # fmt: skip
    start = ([], ["one: one", "two: two", "rest[L1]: rest[L1]"], False)
    heads = ["A[L1H0] D[L1] X gain[L1] W_V[L1H0].T W_O[L1H0].T"]
    more = ["neuron: neuron", "rest[M1]: rest[M1]", "added: added"]
    block = (heads, ["b_O[L1]: ones b_O[L1].T", *more], True)
    end = (["A[L2H0] D[L2] X gain[L2] W_V[L2H0].T W_O[L2H0].T"], ["b_O[L2]: ones b_O[L2].T"], True)
    for target, wanted in (
        ("stream", [start, block, end]),
        ("logits", [start, block, end, (["D[final] X gain[final] W_U.T"], [], False)]),
        ("readout:probe", [start, (["X probe.T"], [], False)]),
        ("readout:lens", [start, block, (["D[finalL2] X gain[final] lens.T"], [], False)]),
        ("readout:in", [start, (heads, block[1][:1], True), (["D[M1] X gain[M1] in.T"], [], False)]),
        ("scores:L0H0", [([], ["embed: t W_E.T"], False), (["D[L0] X gain[L0] W_Q[L0H0].T"], [], False)]),
        ("scores:L1H0", [start, (["D[L1] X gain[L1] W_Q[L1H0].T"], [], False)]),
    ):
        assert names(readout(arch, target).sides[0]) == wanted
    with pytest.raises(ValueError, match=r'"scores:L1H0" \(any head\), "readout:probe", "readout:lens", "readout:in"$'):
        readout(arch, "nothing")
    split = transformer((1,), mlps=True, multipliers=["r[M0]"]).attached(Part("neuron", 0, of="mlp"))
    with pytest.raises(ValueError, match="the output of the MLP of layer 0 has a multiplier, so it cannot be split"):
        readout(split, "stream")


@given(architectures(max_layers=3, max_heads=2, max_terms=100))
def test_words_of_terms_are_finished_products(arch: Architecture) -> None:
    """Each factor meets the next in the same space at the same place, of every term of every target."""
    for target in all_targets(arch):
        for term in expand(arch, target):
            word = term.word
            assert check_finished(word, scaled=arch.scale, multipliers=arch.multipliers) is word


def test_points_of_the_stream_are_counted_from_the_embedding_on() -> None:
    """0 after it, and one more after each layer; what stands between heads and MLP is read within a layer."""
    arch = transformer((1, 1), norm="LN", mlps=True, biases=True)
    program = readout(arch, "logits").sides[0]
    assert program[0].sources[0].factors[-1].col.point == 0
    for point, layer in enumerate(program[1:3]):
        [branch] = layer.branches
        pattern, d = branch.left
        assert (pattern.row.point, pattern.col.point) == (point + 1, point)
        assert (d.row.point, d.col.point) == (point, point)
        assert branch.right[-1].col.point == point + 1
        assert branch.right[0].row.point == point
        for source in layer.sources:
            assert source.factors[-1].col.point == point + 1
            assert source.factors[-1].col.mlp == (source.kind == "mlp")
    [end] = program[3].branches
    assert [f.row.point for f in end.left] == [2]
    inner = mlp_readout(arch, 1).sides[0][-1].branches[0]
    assert inner.left[0].col.point == inner.right[0].row.point == 2
    assert inner.left[0].col.mlp
    assert inner.right[0].row.mlp
    beside = mlp_readout(transformer((1, 1), norm="LN", mlps=True, parallel=True), 1).sides[0][-1].branches[0]
    assert beside.left[0].col.point == 1
    assert not beside.left[0].col.mlp
    for layer in (0, 1):
        out, bias = mlp_out(layer), mlp_bias(layer)[-1]
        assert (out.row.space.kind, out.row.reader, out.row.point, out.row.mlp) == ("model", False, layer + 1, True)
        assert (out.col.space.kind, out.col.space.owner, out.col.reader) == ("mlp", f"L{layer}", True)
        assert (bias.col.space.kind, bias.col.reader, bias.col.point, bias.col.mlp) == ("model", False, layer + 1, True)
