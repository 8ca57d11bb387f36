"""Words as integers: what is multiplied out letter by letter is what is printed, and a wrong word is seen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from strategies import cases

import symcircuits as sc
from symcircuits.core.programs import readout
from symcircuits.core.terms import Term
from symcircuits.core.words import Factor, fuse, is_multiplier, unfuse
from symcircuits.verification.packed_words import Alphabet, Words, multiply_out
from symcircuits.verification.printed_words import Printed, WordReader, printed


def spelled(words: Words) -> list[tuple[str, ...]]:
    """The words as the texts of their multipliers and letters, read back from the integers."""
    alphabet = words.alphabet
    names = {code: text for text, code in alphabet.letters.items()}
    found = []
    for length, group in words.groups.items():
        for row in range(group[0].size):
            limbs = [int(limb[row]) for limb in group]
            places = [divmod(place, alphabet.per_limb) for place in range(length)]
            codes = [limbs[i] >> at * alphabet.bits & (1 << alphabet.bits) - 1 for i, at in places]
            places = [divmod(place, 64 // alphabet.digit) for place in range(len(alphabet.multipliers))]
            digits = [limbs[alphabet.limbs(length) :][i] >> at * alphabet.digit for i, at in places]
            times = [digit & (1 << alphabet.digit) - 1 for digit in digits]
            front = [name for name, n in zip(alphabet.multipliers, times, strict=True) for _ in range(n)]
            found.append((*sorted(front), *(names[c] for c in reversed(codes))))
    return sorted(found)


def letters_of(term: Term) -> tuple[str, ...]:
    """Multipliers and letters of a term's own word: W_Q and W_K, which meet only in scores, stand apart."""
    fused: list[Factor] = []
    for f in fuse(term.word.factors):
        fused += unfuse((f,)) if f.symbol.glyph == "W_QK" else (f,)
    multipliers = sorted(s for s in term.word.scales if is_multiplier(s))
    scale = [f"scale[{s}]" for s in term.word.scales if not is_multiplier(s)]
    return (*multipliers, *scale, *(f.text for f in fused))


def read(expansion: sc.Expansion, alphabet: Alphabet, size: int = 1 << 14) -> Words:
    """The words of an expansion as they are printed."""
    reader = WordReader(alphabet)
    words = reader.words(printed(expansion.blocks(size)))
    assert (reader.unread, reader.mistyped, reader.faults) == (0, 0, [])
    return words


@given(st.data())
def test_multiplied_out_is_every_term(data: DataObject) -> None:
    arch, target = data.draw(cases(max_terms=300))
    expansion = sc.expand(arch, target)
    words = multiply_out(expansion.readout)
    assert words.count == expansion.count
    assert words.like_terms == 0
    assert spelled(words) == sorted(map(letters_of, expansion))


@given(st.data())
def test_printed_words_are_those_multiplied_out(data: DataObject) -> None:
    arch, target = data.draw(cases(max_terms=5000))
    expansion = sc.expand(arch, target)
    words = multiply_out(expansion.readout)
    found = read(expansion, words.alphabet, data.draw(st.integers(1, 5000)))
    assert words.same(found)
    assert found.same(words)
    assert (words.less(found).count, found.less(words).count) == (0, 0)


@given(st.data())
def test_words_are_written_as_they_are_printed(data: DataObject) -> None:
    arch, target = data.draw(cases(max_terms=300))
    expansion = sc.expand(arch, target)
    words = multiply_out(expansion.readout)
    reader = WordReader(words.alphabet)
    lines = "".join(text + "\n" for text in words.texts()).encode()
    orders = tuple(np.zeros(words.count, int) for _ in expansion.sides)
    assert reader.words([Printed(lines, orders, orders[0])]).same(words)


@given(st.integers(0, 168), st.sampled_from(["lost", "doubled", "another", "moved"]))
def test_a_wrong_word_is_seen(row: int, fault: str) -> None:
    words = multiply_out(readout(sc.attention_only((12, 12)), "scores:L1H0"))
    flat = [(n, i) for n, g in words.groups.items() for i in range(g[0].size)]
    length, i = flat[row]
    group = words.groups[length]
    if fault == "lost":
        changed = tuple(np.delete(limb, i) for limb in group)
    elif fault == "doubled":
        changed = tuple(np.append(limb, limb[i]) for limb in group)
    elif fault == "another":
        changed = (group[0] ^ (np.arange(group[0].size) == i).astype(np.uint64), *group[1:])
    else:
        changed = tuple(np.roll(limb, 1) for limb in group)
    other = Words(words.alphabet, {**words.groups, length: changed})
    assert words.same(other) is (fault == "moved")
    assert words.less(other).count == (fault in ("lost", "another"))
    assert other.less(words).count == (fault in ("doubled", "another"))
    assert other.like_terms == (fault == "doubled")


def test_like_terms_of_many_limbs_are_seen() -> None:
    words = multiply_out(readout(sc.transformer((2, 2, 2), norm="LN", biases=True), "scores:L2H1"))
    assert max(map(len, words.groups.values())) > 2
    twice = Words(words.alphabet, {n: tuple(np.tile(g, 2) for g in group) for n, group in words.groups.items()})
    assert words.like_terms == 0
    assert twice.like_terms == words.count
    assert not words.same(twice)


def test_a_program_that_says_too_much_is_seen() -> None:
    """Two ways to the same word are like terms: a model with its first layer's skip connection written twice."""
    from dataclasses import replace

    from symcircuits.core.programs import Branch
    from symcircuits.core.walk import walk
    from symcircuits.verification.packed_words import PackedSums

    program = readout(sc.attention_only((2, 2)), "stream").sides[0]
    doubled = (program[0], replace(program[1], branches=(*program[1].branches, Branch(None, (), ()))), *program[2:])
    alphabet = Alphabet(readout(sc.attention_only((2, 2)), "stream"))
    found = walk(doubled, PackedSums(alphabet))
    assert found is not None
    assert (found.count, found.like_terms) == (12, 3)


@pytest.mark.parametrize(
    ("heads", "target", "count"), [((12, 12, 12), "scores:L2H5", 28561), ((7,) * 6, "logits", 8**6)]
)
def test_large_expansions(heads: tuple[int, ...], target: str, count: int) -> None:
    expansion = sc.expand(sc.attention_only(heads), target)
    words = multiply_out(expansion.readout)
    assert words.count == count
    assert words.same(read(expansion, words.alphabet))
