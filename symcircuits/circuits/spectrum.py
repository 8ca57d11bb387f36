"""Eigenvalues and singular values of a product of thin matrices, and which of them rounding can tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.norms import frobenius
from symcircuits.circuits.factoring import Factored
from symcircuits.core.text import place

__all__ = ["Block", "SingularValues", "Spectrum", "singular_values", "spectrum"]

Array = npt.NDArray[np.float64]
_UNIT: Final = 2.0**-52
_MOVED: Final = 1e-6  # by which rounding may rotate a direction that is returned
_DRAWS: Final = 4


# ------------------------------------------------------------------------------------------------ eigenvalues
@final
@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """The eigenvalues of a square circuit, the largest modulus first; ``zeros`` more are 0, because its rank is low.

    ``trace`` is their sum. ``positivity``: the trace over the sum of moduli, in [-1, 1]; None, with a ``reason``, if
    that sum may be 0. ``error``, an estimate: how far positivity moved, at most, when the matrices that it is
    computed from were perturbed by the size of rounding errors: more if the circuit is defective, or nearly so.
    """

    values: npt.NDArray[np.complex128]
    zeros: int
    trace: float
    positivity: float | None
    error: float | None
    reason: str = ""


def spectrum(found: Factored) -> Spectrum:
    """By the small product: the nonzero spectrum of ``A B`` is that of ``B A``.

    Complex ones come in pairs, so their sum is the trace, which is real. Source: paper, "Working with Low-Rank
    Matrices" and "Detecting Copying Behavior"; the estimate of the error is an own derivation.

    >>> left, right = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, -2.0], [2.0, 0.0], [0.0, 0.0]])
    >>> spectrum(Factored(left, None, right, 1.0)).values
    array([0.+2.j, 0.-2.j])
    """
    left, core, right, _ = found
    n = len(left)
    sizes = frobenius(left), frobenius(right), 1.0 if core is None else frobenius(core)
    if n <= min(left.shape[1], right.shape[1]):
        small = (left if core is None else left @ core) @ right.T
    elif core is not None and core.shape[0] <= core.shape[1]:
        small = core @ (right.T @ left)
    else:
        small = right.T @ left if core is None else right.T @ left @ core
    values = _sorted(np.linalg.eigvals(small))
    trace, moduli = float(np.trace(small)), float(np.abs(values).sum())
    draws, rounding = np.random.default_rng(0), 16 * _UNIT * float(np.prod(sizes))
    others = []
    for _ in range(_DRAWS):
        change = draws.standard_normal(small.shape)
        moved = small + change * (rounding / max(frobenius(change), 1e-300))
        others.append((float(np.trace(moved)), float(np.abs(np.linalg.eigvals(moved)).sum())))
    spread = max(abs(other - moduli) for _, other in others)
    zeros = n - len(values)
    if moduli <= 10 * spread:
        reason = "all its eigenvalues are 0 up to rounding, and the ratio would be 0 / 0"
        return Spectrum(values, zeros, trace, positivity=None, error=None, reason=reason)
    score = min(max(trace / moduli, -1.0), 1.0)
    error = max(abs(t / m - trace / moduli) for t, m in others)
    return Spectrum(values, zeros, trace, score, error)


def _sorted(values: npt.NDArray[Any]) -> npt.NDArray[np.complex128]:
    """The largest modulus first; of a pair, the one with positive imaginary part first."""
    found = values.astype(np.complex128)
    order = np.lexsort((-found.imag, -found.real, -np.round(np.abs(found), 12)))
    return np.asarray(found[order])


# -------------------------------------------------------------------------------------------- singular values
@final
@dataclass(frozen=True, slots=True)
class Block:
    """Singular values ``start`` to ``stop - 1`` that rounding cannot tell apart; a single one has a known direction.

    ``kind``: ``"single"``, ``"degenerate"`` (several that agree) or ``"null"`` (may be 0).
    """

    start: int
    stop: int
    largest: float
    smallest: float
    kind: Literal["single", "degenerate", "null"]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SingularValues:
    """The singular values of a circuit, the largest first, and their directions, block by block.

    ``values``: as many as the narrowest dimension; the others are 0. ``rank``: how many cannot be 0. ``blocks``: values
    so close that rounding may rotate their directions by more than 1e-6 are one block.
    """

    values: Array
    rank: int
    blocks: tuple[Block, ...]
    shape: tuple[int, int]
    bases: tuple[Array, Array]  # left and right, [rows, r] and [columns, r], orthonormal
    turns: tuple[Array, Array]  # of the small product, in those bases

    def __repr__(self) -> str:
        return f"<Singular values of a circuit {list(self.shape)}: rank {self.rank}, {len(self.blocks)} blocks>"

    def block(self, i: int) -> Block:
        """The block of singular value ``i``, counted from 0."""
        number = place("singular value", i, len(self.values), negative=False)
        return next(block for block in self.blocks if block.start <= number < block.stop)

    def direction(self, i: int) -> tuple[Array, Array]:
        """The left and the right direction of a single singular value, ``[rows]`` and ``[columns]``, unit vectors.

        Their signs may be changed together. Raises ValueError if it is in a block of several, or may be 0: then no
        direction inside is a property of the circuit.
        """
        block = self.block(i)
        if block.kind != "single":
            raise ValueError(_no_direction(i, block))
        left, right = self._part(block)
        return left[:, 0], right[:, 0]

    def subspace(self, i: int) -> tuple[Array, Array]:
        """Orthonormal bases of the left and right directions of the block of singular value ``i``.

        ``[rows, m]`` and ``[columns, m]``; the basis inside is arbitrary (both rotate together), its span is not.
        Raises ValueError for null directions, of which there are more than these.
        """
        block = self.block(i)
        if block.kind == "null":
            raise ValueError(_no_direction(i, block))
        return self._part(block)

    def _part(self, block: Block) -> tuple[Array, Array]:
        part = slice(block.start, block.stop)
        return self.bases[0] @ self.turns[0][:, part], self.bases[1] @ self.turns[1][:, part]


def _no_direction(i: int, block: Block) -> str:
    if block.kind == "null":
        return (
            f"singular value {i} may be 0 ({block.largest:.2g} at most): its directions are null directions, "
            "and so is any combination of them"
        )
    return (
        f"singular values {block.start} to {block.stop - 1} ({block.largest:.4g} to {block.smallest:.4g}) are too "
        f"close to tell their directions apart under rounding, so number {i} alone has none: subspace gives the space "
        "they span together"
    )


def singular_values(found: Factored) -> SingularValues:
    """By QR of the thin matrices and the singular values of the small product of their triangles.

    Source: paper, "Working with Low-Rank Matrices"; which directions are distinguishable is an own derivation.

    >>> thin = np.diag([2.0, 1.0, 1.0, 0.0])
    >>> [(b.start, b.stop, b.kind) for b in singular_values(Factored(thin, None, np.eye(4), 1.0)).blocks]
    [(0, 1, 'single'), (1, 3, 'degenerate'), (3, 4, 'null')]
    """
    (first, upper), (second, other) = np.linalg.qr(found.left), np.linalg.qr(found.right)
    size = frobenius(upper) * frobenius(other) * (1.0 if found.core is None else frobenius(found.core))
    small = (upper if found.core is None else upper @ found.core) @ other.T
    turn, values, back = np.linalg.svd(small, full_matrices=False)
    noise = 8 * _UNIT * size
    shape = len(found.left), len(found.right)
    blocks = _blocks(values, noise, more=min(shape) > len(values))
    rank = int((values > noise).sum())
    return SingularValues(values, rank, blocks, shape, bases=(first, second), turns=(turn, back.T))


def _blocks(values: Array, noise: float, more: bool) -> tuple[Block, ...]:
    """Adjacent values too close to tell apart, in groups; ``more``: there are zeros beyond these."""
    apart, found, start = noise / _MOVED, list[Block](), 0
    null = more or bool(len(values) and values[-1] <= noise)
    ends = np.append(values[1:], 0.0 if null else -np.inf)
    for i, (value, following) in enumerate(zip(values.tolist(), ends.tolist(), strict=True)):
        last = i == len(values) - 1
        if value - following > apart or last:
            to_zero = last and value - following <= apart
            kind: Any = "null" if to_zero else "single" if i == start else "degenerate"
            found.append(Block(start, i + 1, float(values[start]), value, kind))
            start = i + 1
    return tuple(found)
