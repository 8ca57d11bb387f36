"""Paths as codes of their source and layers, against strings put together path by path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import cases

import symcircuits as sc
from symcircuits.core.architecture import Head
from symcircuits.core.paths import Path
from symcircuits.core.programs import embedding, readout
from symcircuits.tables import codes as module
from symcircuits.tables.codes import Side, Split
from symcircuits.tables.wording import Wording


def core(split: Split) -> str:
    return f"<{split.source.name}{split.source.head or ''}>"


def before(head: Head) -> str:
    return f"{head.layer}.{head.number}("


def after(head: Head) -> str:
    return f"){head.layer}.{head.number}"


def strung(path: Path, all_heads: bool) -> str:
    """The heads before, last first, the source, the heads behind; a source inside a head stands for it."""
    heads = path.heads if all_heads or path.source.head is None else path.heads[1:]
    source = f"<{path.source.name}{path.source.head or ''}>"
    return "".join(map(before, reversed(heads))) + source + "".join(map(after, heads))


@given(cases(max_terms=120), st.sampled_from([1, 2, 4, 9, 1 << 12]), st.booleans())
def test_strings_of_codes_are_those_of_the_paths(case: Any, segment: int, all_heads: bool) -> None:
    """However many layers are listed together; each path has a number of its own."""
    arch, target = case
    expansion = sc.expand(arch, target)
    names = tuple(source.name for source in expansion.sources)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SEGMENT", segment)
        for at, program in enumerate(expansion.readout.sides):
            side = Side(program, names)
            strand = side.strand(core, before, after)
            for block in expansion.blocks():
                found = side.codes(block.heads[at], block.sources[at], all_heads)
                paths = [term.paths[at] for term in expansion]
                assert strand.strings([code.tolist() for code in found]) == [strung(p, all_heads) for p in paths]
                numbers = side.joined(found)
                assert len(set(numbers.tolist())) == len({strung(path, all_heads) for path in paths})


def test_layers_are_listed_together_while_their_strings_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a layer with two heads there are three: so many layers as a product has room for, one at least."""
    program = readout(sc.attention_only((2, 2, 0, 2, 2)), "logits").sides[0]
    for most, wanted in ((1, [1, 1, 1, 1, 1]), (2, [1, 1, 1, 1, 1]), (3, [1, 2, 1, 1]), (8, [1, 2, 1, 1]),
                         (9, [3, 2]), (26, [3, 2]), (27, [4, 1]), (80, [4, 1]), (81, [5])):  # fmt: skip
        monkeypatch.setattr(module, "SEGMENT", most)
        side = Side(program, ("embed",))
        assert [len(segment) for segment in side.segments if len(segment)] == wanted
        assert [layer for segment in side.segments for layer in segment] == [0, 1, 2, 3, 4]
    assert side._size(range(5)) == 81
    assert side._size(range(2)) == 9
    assert side._size(range(0)) == 1


def test_paths_of_too_many_layers_have_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 2^50 numbers on there is none."""
    monkeypatch.setattr(module, "SEGMENT", 1)
    for layers, there in ((49, True), (50, False)):
        expansion = sc.logits(sc.attention_only((1,) * layers)).order(1)
        side = Side(expansion.readout.sides[0], ("embed",))
        [block] = expansion.blocks()
        found = side.joined(side.codes(block.heads[0], block.sources[0], False))
        assert (found is not None) == there
        assert found is None or found.tolist() == [1 << layer for layer in range(layers)]


def test_a_source_is_taken_apart_into_what_stands_around_it() -> None:
    """Behind the last heads nothing comes between: what stands right of it is read with the readout."""
    arch = sc.transformer((1, 1), norm="LN", biases=True, multipliers=["m_E", "m_U"])
    side = Side(readout(arch, "logits").sides[0], tuple(source.name for source in sc.logits(arch).sources))
    for split in side.splits:
        assert split.left == split.source.left
        assert split.core == split.source.core
        read = split.source.name != "b_U"
        assert ("W_U" in "".join(factor.text for factor in split.outer_right)) == read
        last = split.source.name in ("b_O[L1]", "b_V[L1H0]", "b_N[L1]", "b_N[final]", "b_U")
        assert bool(split.right) == bool(split.source.right and not last)
        assert [f.text for f in (*split.right, *split.outer_right)][: len(split.source.right)] == [
            f.text for f in split.source.right
        ]
        there = split.source.name in ("b_U", "b_N[final]")  # in the readout, and so multiplied already
        assert split.scales == (*split.source.scales, *([] if there else ["m_U"]))


@pytest.mark.parametrize("style", ["text", "latex"])
def test_products_with_something_before_or_behind(style: str) -> None:
    """A joint stands between two that are there; where nothing is there the identity is written."""
    arch = sc.attention_only((1,))
    expansion = sc.logits(arch)
    words = Wording(expansion.readout, expansion.notation, style)
    t_w_e, joint = words.product(embedding()), words.signs.joint
    assert t_w_e
    assert words.first(()) == words.last(()) == words.product(()) == ""
    assert words.slot("") == words.signs.identity(words.notation)
    assert (words.first(embedding()), words.last(embedding())) == (t_w_e + joint, joint + t_w_e)
    assert words.slot(t_w_e + joint) == words.slot(t_w_e) == t_w_e
