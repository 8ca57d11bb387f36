"""Exact instances over the prime field: their size, their words, and what a change of basis can see."""

import itertools
from functools import reduce
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.arrays.elimination import inverse
from symcircuits.arrays.rings import PrimeField, transpose
from symcircuits.core import words as algebra
from symcircuits.core.architecture import Head, attention_only
from symcircuits.core.expansion import expand
from symcircuits.core.programs import readout
from symcircuits.core.words import Factor, scalar_argument
from symcircuits.model import frozen, matrix_names
from symcircuits.verification.prime_field import (
    Instance,
    change_of_basis,
    degree,
    instance,
    longest,
    size_for,
    walked,
    word_values,
)
from tests.strategies import all_targets, architectures, cases, examples


def by_hand(word: Any, at: Instance) -> Any:
    """The product of a word's letters in Python's own integers."""
    value = None
    for f in word.factors:
        matrix = at.matrices[f.symbol.argument].astype(object)
        matrix = matrix.T if f.transposed else matrix
        value = matrix if value is None else value @ matrix
    for s in word.scales:
        value = int(at.matrices[scalar_argument(s)]) * value
    return value % at.ring.p


def letters(text: str, at: Instance, scales: tuple[str, ...] = ()) -> Any:
    """A word that nobody checked, from text notation, abbreviations written out as the model defines them."""
    long = {"W_OV[": "W_O[{0}] @ W_V[{0}]", "W_QK[": "W_Q[{0}].T @ W_K[{0}]", "X0": "t @ W_E.T"}
    found: list[Factor] = []
    for word in text.split(" @ "):
        name, transposed = word.removesuffix(".T"), word.endswith(".T")
        for start, parts in long.items():
            if name.startswith(start):
                spelled = parts.format(name[len(start) : -1]).split(" @ ")
                if transposed:
                    spelled = [p.removesuffix(".T") if p.endswith(".T") else p + ".T" for p in reversed(spelled)]
                break
        else:
            spelled = [word]
        for s in spelled:
            argument = s.removesuffix(".T").replace("[", "_").replace("]", "")
            found.append(Factor(at.symbols[argument], s.endswith(".T")))
    return SimpleNamespace(factors=tuple(found), scales=scales)


def value(word: Any, at: Instance) -> Any:
    return next(word_values([word], at))[0]


# ------------------------------------------------------------------------------------------------------- size
@given(cases(max_terms=300))
def test_longest_is_the_longest_word_of_the_enumeration(case: tuple[sc.Architecture, str]) -> None:
    arch, target = case
    lengths = [len(t.word.factors) for t in expand(arch, target)]
    assert longest(readout(arch, target)) == max(lengths)
    turned = target.startswith("scores") and arch.positions == "rotary"  # R is the product of two
    longest_word = max(len(t.word.factors) + len(t.word.scales) for t in expand(arch, target))
    assert degree(readout(arch, target)) == longest_word + turned
    assert size_for(readout(arch, target)) == max(lengths) // 2 + 1
    assert 2 * size_for(readout(arch, target)) > max(lengths)  # smaller: identities even without transposes


def test_sizes_by_hand() -> None:
    """Two layers: t W_E^T W_U^T and three letters (A, W_V, W_O) a head; a score has two sides, W_Q, W_K and a scale."""
    arch = attention_only((3, 3))
    assert longest(readout(arch, "logits")) == 3 + 2 * 3
    assert (size_for(readout(arch, "logits")), degree(readout(arch, "logits"))) == (5, 9)
    assert longest(readout(arch, "scores:L1H0")) == 2 * (2 + 1 + 3)
    assert degree(readout(arch, "scores:L1H0")) == 13
    assert longest(readout(attention_only(()), "stream")) == 2


# ------------------------------------------------------------------------------------------------------ values
@examples(25)
@given(cases(max_terms=60), st.integers(0, 99), st.sampled_from([1, 2, 3]))
def test_values_of_words_are_exact_products(case: tuple[sc.Architecture, str], seed: int, k: int) -> None:
    arch, target = case
    at = instance(arch, k, seed)
    words = [t.word for t in expand(arch, target)]
    values = np.concatenate(list(word_values(words, at)))
    assert values.shape == (len(words), k, k)
    for word, found in zip(words, values, strict=True):
        cut = next((i for i, f in enumerate(word.factors) if f.symbol.glyph == "R"), None)
        if cut is None:
            np.testing.assert_array_equal(found, by_hand(word, at))
            continue
        turns = at.matrices[word.factors[cut].symbol.argument].astype(object)
        sides = word.factors[:cut], algebra.transpose(word.factors[cut + 1 :])
        products = (by_hand(SimpleNamespace(factors=side, scales=()), at).astype(object) for side in sides)
        query, key = (np.stack([row @ r for row, r in zip(x, turns, strict=True)]) for x in products)
        scale = prod(int(at.matrices[scalar_argument(s)]) for s in word.scales)
        np.testing.assert_array_equal(found, (scale * (query @ key.T) % at.ring.p).astype(np.int64))
    assert at.ring.equal(values.astype(object).sum(axis=0) % at.ring.p, walked(readout(arch, target), at))


def test_values_of_words_come_in_order_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    arch = attention_only((2, 2), biases=True)
    at = instance(arch, 2, 0)
    words = [t.word for t in expand(arch, "logits")]
    whole = np.concatenate(list(word_values(words, at)))
    monkeypatch.setattr("symcircuits.verification.prime_field._CHUNK", 3)
    parts = list(word_values(iter(words), at))
    assert [len(p) for p in parts] == [3] * (len(words) // 3) + ([len(words) % 3] if len(words) % 3 else [])
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert list(word_values([], at)) == []


@given(architectures(max_terms=None), st.integers(0, 9))
def test_an_instance_has_all_that_model_and_words_read(arch: sc.Architecture, seed: int) -> None:
    at = instance(arch, 2, seed)
    assert set(matrix_names(arch)) <= set(at.matrices)
    assert set(at.symbols) <= set(at.matrices)
    shapes = {"scale": (), "m": (), "r": (), "R": (2, 2, 2)}
    assert all(m.shape == shapes.get(n.partition("_")[0], (2, 2)) for n, m in at.matrices.items())
    again, other = instance(arch, 2, seed), instance(arch, 2, seed + 1)
    assert all(np.array_equal(at.matrices[n], again.matrices[n]) for n in at.matrices)
    assert not all(np.array_equal(at.matrices[n], other.matrices[n]) for n in at.matrices)


@examples(25)
@given(architectures(max_layers=3, max_heads=3, max_terms=None), st.integers(0, 99), st.integers(1, 3))
def test_the_walk_is_the_forward_pass_of_the_definition(arch: sc.Architecture, seed: int, k: int) -> None:
    at = instance(arch, k, seed)
    forward = frozen(arch, at.matrices, at.ring)
    for target in all_targets(arch):
        kind, _, head = target.partition(":")
        wanted = {"logits": forward.logits, "stream": forward.streams[-1]}.get(kind, forward.scores.get(head))
        np.testing.assert_array_equal(walked(readout(arch, target), at), wanted)


def test_twelve_layers_of_twelve_heads_in_the_prime_field() -> None:
    """13^12 logit terms and 13^22 score terms, exactly, by the walk."""
    arch = attention_only((12,) * 12)
    for target in ("logits", "scores:L11H11"):
        at = instance(arch, size_for(readout(arch, target)), 0)
        forward = frozen(arch, at.matrices, at.ring)
        wanted = forward.logits if target == "logits" else forward.scores["L11H11"]
        np.testing.assert_array_equal(walked(readout(arch, target), at), wanted)


# ------------------------------------------------------------------------------------------- what k can see
SWAPS = {
    "patterns": "A[L0H0] @ A[L1H0] @ X0 @ W_OV[L0H0].T @ W_OV[L1H0].T @ W_U.T",
    "values": "A[L1H0] @ A[L0H0] @ X0 @ W_OV[L1H0].T @ W_OV[L0H0].T @ W_U.T",
    "both, a chain in reverse": "A[L0H0] @ A[L1H0] @ X0 @ W_OV[L1H0].T @ W_OV[L0H0].T @ W_U.T",
    "neighbours": "A[L1H0] @ A[L0H0] @ t @ W_V[L0H0].T @ W_E.T @ W_O[L0H0].T @ W_OV[L1H0].T @ W_U.T",
}
RIGHT = "A[L1H0] @ A[L0H0] @ X0 @ W_OV[L0H0].T @ W_OV[L1H0].T @ W_U.T"


@pytest.mark.parametrize("wrong", SWAPS.values(), ids=SWAPS)
def test_one_by_one_matrices_miss_a_swapped_order(wrong: str) -> None:
    arch = attention_only((2, 2))
    commuting = instance(arch, 1, 0)
    assert np.array_equal(value(letters(RIGHT, commuting), commuting), value(letters(wrong, commuting), commuting))
    at = instance(arch, size_for(readout(arch, "logits")), 0)
    assert not np.array_equal(value(letters(RIGHT, at), at), value(letters(wrong, at), at))


def random_matrices(n: int, k: int) -> list[Any]:
    rng = np.random.default_rng(5)
    return [PrimeField().random((k, k), rng).astype(object) for _ in range(n)]


def vanishes(value: Any) -> bool:
    return bool(np.all(value % PrimeField().p == 0))


def standard_polynomial(a: list[Any]) -> Any:
    """The alternating sum of the products of all matrices in every order."""
    total = np.zeros_like(a[0])
    for order in itertools.permutations(range(len(a))):
        inversions = sum(order[i] > order[j] for i in range(len(a)) for j in range(i + 1, len(a)))
        total += (-1) ** inversions * reduce(lambda x, y: x @ y % PrimeField().p, (a[i] for i in order))
    return total


def test_two_by_two_matrices_obey_an_identity_of_degree_four() -> None:
    """The standard polynomial S_4 vanishes on all 2 x 2 matrices, not on 3 x 3: so k must exceed half the length."""
    assert vanishes(standard_polynomial(random_matrices(4, 2)))
    assert not vanishes(standard_polynomial(random_matrices(4, 3)))


def test_two_by_two_matrices_obey_an_identity_of_degree_three_with_transposes() -> None:
    """So k above half the length is enough only for words in which no letter is both plain and transposed."""

    def difference(k: int) -> Any:
        a, b, c = random_matrices(3, k)
        found = a @ b @ c.T - b @ a @ c.T - c @ (a @ b).T + c @ (b @ a).T
        return found - a @ b @ c + b @ a @ c + (a @ b @ c).T - (b @ a @ c).T

    assert vanishes(difference(2))
    assert not vanishes(difference(3))


@pytest.mark.parametrize("k", [2, 3, 4])
def test_an_identity_with_transposes_at_the_size_that_is_drawn(k: int) -> None:
    """Kostant and Rowen: S_{2k - 2} vanishes on the k x k matrices a - a^T; k is floor(D / 2) + 1 for D = 2k - 2."""
    for size, expected in ((k, True), (k + 1, False)):
        skew = [a - a.T for a in random_matrices(2 * k - 2, size)]
        assert vanishes(standard_polynomial(skew)) is expected


# ------------------------------------------------------------------------------------------- change of basis
@examples(25)
@given(cases(max_terms=60), st.integers(0, 99))
def test_every_right_word_is_free_of_the_basis(case: tuple[sc.Architecture, str], seed: int) -> None:
    """Logits and scores stay what they are; a value of the stream becomes ``X basis^T``."""
    arch, target = case
    at = instance(arch, 3, seed)
    moved = change_of_basis(at, seed + 1)
    words = [t.word for t in expand(arch, target)]
    before, after = (np.concatenate(list(word_values(words, where))) for where in (at, moved))
    if target == "stream":
        assert moved.basis is not None
        before = at.ring.matmul(before, transpose(moved.basis))
    np.testing.assert_array_equal(before, after)


def test_a_change_of_basis_changes_every_weight() -> None:
    arch = attention_only((1,), "shortformer", True)
    at = instance(arch, 3, 0)
    moved = change_of_basis(at, 1)
    kept = {n for n in at.matrices if np.array_equal(at.matrices[n], moved.matrices[n])}
    assert kept == {"t", "ones", "A_L0H0", "scale_L0H0", "b_U"}


S = ("L1H0",)
# Formulas found in the wild, and their kin: a transpose dropped or extra.
TRANSPOSES = {
    "K-composition with W_OV^T": ("X0 @ W_QK[L1H0] @ W_OV[L0H0].T @ X0.T @ A[L0H0].T", S),
    "Q-composition without ^T": ("A[L0H0] @ X0 @ W_OV[L0H0] @ W_QK[L1H0] @ X0.T", S),
    "QK-composition, key transposed": ("A[L0H0] @ X0 @ W_OV[L0H0].T @ W_QK[L1H0] @ W_OV[L0H1].T @ X0.T @ A[L0H1].T", S),
    "an individual head without ^T": ("A[L0H0] @ X0 @ W_OV[L0H0] @ W_U.T", ()),
    "a virtual head, the earlier transposed": ("A[L1H0] @ A[L0H0] @ X0 @ W_OV[L0H0] @ W_OV[L1H0].T @ W_U.T", ()),
    "a virtual head, the later transposed": ("A[L1H0] @ A[L0H0] @ X0 @ W_OV[L0H0].T @ W_OV[L1H0] @ W_U.T", ()),
    "W_QK between embedding and unembedding": ("X0 @ W_QK[L1H0] @ W_U.T", ()),
    "W_V^T W_K": ("X0 @ W_V[L0H0].T @ W_K[L0H0] @ X0.T", ()),
    "W_O^h W_V^h'": ("A[L0H0] @ X0 @ W_V[L0H1].T @ W_O[L0H0].T @ W_U.T", ()),
}
# What a change of basis cannot see: roles, order, another head as a whole, the scale, the pattern.
UNSEEN = {
    "query and key swapped": ("X0 @ W_QK[L1H0].T @ X0.T", S),
    "wrong order": ("A[L1H0] @ A[L0H0] @ X0 @ W_OV[L1H0].T @ W_OV[L0H0].T @ W_U.T", ()),
    "a chain in reverse": ("A[L0H0] @ A[L1H0] @ X0 @ W_OV[L1H0].T @ W_OV[L0H0].T @ W_U.T", ()),
    "another head": ("A[L0H1] @ X0 @ W_OV[L0H0].T @ W_U.T", ()),
    "no scale": ("X0 @ W_QK[L1H0] @ X0.T", ()),
    "a pattern dropped": ("X0 @ W_OV[L0H0].T @ W_U.T", ()),
}
RIGHTS = {
    "direct": ("X0 @ W_U.T", ()),
    "virtual": (RIGHT, ()),
    "none": ("X0 @ W_QK[L1H0] @ X0.T", S),
    "Q": ("A[L0H0] @ X0 @ W_OV[L0H0].T @ W_QK[L1H0] @ X0.T", S),
    "K": ("X0 @ W_QK[L1H0] @ W_OV[L0H0] @ X0.T @ A[L0H0].T", S),
}


@pytest.mark.parametrize(
    ("text", "scales", "seen"),
    [pytest.param(*v, True, id=k) for k, v in TRANSPOSES.items()]
    + [pytest.param(*v, False, id=k) for k, v in (UNSEEN | RIGHTS).items()],
)
def test_what_a_change_of_basis_sees(text: str, scales: tuple[str, ...], seen: bool) -> None:
    """It sees every transpose that takes a writer for a reader; not roles, order, another head, the scale."""
    at = instance(attention_only((2, 2)), 4, 7)
    word, moved = letters(text, at, scales), change_of_basis(at, 8)
    assert np.array_equal(value(word, at), value(word, moved)) is not seen


@pytest.mark.parametrize(("text", "scales"), TRANSPOSES.values(), ids=TRANSPOSES)
def test_a_rotation_of_the_stream_sees_no_transpose(text: str, scales: tuple[str, ...]) -> None:
    """An orthogonal matrix over the prime field, ``T T^T = 1``, is its own inverse transposed: it misses them all."""
    at = instance(attention_only((2, 2)), 3, 7)
    rotation = at.ring.asarray(np.array([[0, 1, 0], [0, 0, 1], [-1, 0, 0]]))
    assert at.ring.equal(at.ring.matmul(rotation, transpose(rotation)), np.eye(3, dtype=int))
    matrices = dict(at.matrices)
    for name, symbol in at.symbols.items():
        if symbol.row.space.kind == "model":
            matrices[name] = at.ring.matmul(rotation, matrices[name])
        if symbol.col.space.kind == "model":
            matrices[name] = at.ring.matmul(matrices[name], transpose(rotation))
    rotated = Instance(at.ring, at.k, at.symbols, matrices)
    assert any(not np.array_equal(matrices[n], at.matrices[n]) for n in matrices)
    assert np.array_equal(value(letters(text, at, scales), at), value(letters(text, rotated, scales), rotated))


# ---------------------------------------------------------------------------------------------------- inverse
@given(st.integers(1, 6), st.integers(0, 999), st.sampled_from([2, 3, 7, 2**31 - 1, 2**61 - 1]))
def test_the_inverse_modulo_p(k: int, seed: int, p: int) -> None:
    matrix = np.random.default_rng(seed).integers(0, p, (k, k))
    found = inverse(matrix, p)
    if found is None:
        assert determinant(matrix.astype(object).tolist()) % p == 0
        return
    for product in (matrix.astype(object) @ found.astype(object), found.astype(object) @ matrix.astype(object)):
        np.testing.assert_array_equal(product % p, np.eye(k, dtype=int))


def determinant(rows: list[list[int]]) -> int:
    if not rows:
        return 1
    return sum(
        (-1) ** i * rows[0][i] * determinant([r[:i] + r[i + 1 :] for r in rows[1:]])
        for i in range(len(rows))
        if rows[0][i]
    )


def test_a_singular_matrix_has_no_inverse() -> None:
    assert inverse(np.array([[1, 2], [2, 4]]), 7) is None
    assert inverse(np.array([[0, 1], [0, 3]]), 7) is None
    np.testing.assert_array_equal(inverse(np.array([[0, 1], [1, 0]]), 7), [[0, 1], [1, 0]])


def test_symbols_of_an_instance_are_those_of_its_readouts() -> None:
    at = instance(attention_only((1,), unembed=False), 2, 0)
    assert set(at.symbols) == {"t", "W_E", "A_L0H0", "W_V_L0H0", "W_O_L0H0", "W_Q_L0H0", "W_K_L0H0"}
    assert at.matrices.keys() - at.symbols.keys() == {f"scale_{Head(0, 0)}"}
