"""The same work in plain Python and plain NumPy, as anyone would write it: what ``bench_terms.py`` is measured beside.

The scores of the first head of the last layer of attention-only layers with so many heads. A script imports these.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import numpy as np

__all__ = ["by_loop", "by_plain_products", "by_plain_types", "plain_labels", "plain_table", "plain_texts"]


def plain_paths(heads: tuple[int, ...]) -> list[tuple[int, str, str, str]]:
    """Each path of the layers before the last: order, label, text on the query side and on the key side."""
    choices = itertools.product(*([None, *(f"L{layer}H{h}" for h in range(n))] for layer, n in enumerate(heads[:-1])))
    places = itertools.product(*(range(-1, n) for n in heads[:-1]))
    found = []
    for place, choice in zip(places, choices, strict=True):
        path = [h for h in choice if h]
        query = "".join(f"A[{h}] @ " for h in reversed(path)) + "X0" + "".join(f" @ W_OV[{h}].T" for h in path)
        key = "".join(f"W_OV[{h}] @ " for h in reversed(path)) + "X0.T" + "".join(f" @ A[{h}].T" for h in path)
        order = len(path), [(layer, h) for layer, h in enumerate(place) if h >= 0]
        found.append((order, (len(path), " -> ".join(["embed", *path]), query, key)))
    return [row for _, row in sorted(found)]


def plain_labels(heads: tuple[int, ...], file: TextIO) -> None:
    """A loop over pairs of paths, as anyone would write it: their labels."""
    labels = [label for _, label, _, _ in plain_paths(heads)]
    file.write("label\n")
    for query in labels:
        for key in labels:
            file.write(f'"{query} | {key}"\n')


def plain_texts(heads: tuple[int, ...], file: TextIO) -> None:
    """The same: their text."""
    head, paths = f"L{len(heads) - 1}H0", plain_paths(heads)
    keys = [key for *_, key in paths]
    file.write("text\n")
    for _, _, query, _ in paths:
        for key in keys:
            file.write(f'"scale[{head}] * {query} @ W_QK[{head}] @ {key}"\n')


def plain_table(heads: tuple[int, ...], file: TextIO) -> None:
    """The same: the five columns of an export that is not told which."""
    head, paths, number = f"L{len(heads) - 1}H0", plain_paths(heads), 0
    kinds = (("none", "K"), ("Q", "QK"))
    file.write("number,order,composition,label,text\n")
    for q, query, left, _ in paths:
        for k, key, _, right in paths:
            kind = kinds[q > 0][k > 0]
            text = f"scale[{head}] * {left} @ W_QK[{head}] @ {right}"
            file.write(f'{number},{q + k},{kind},"{query} | {key}","{text}"\n')
            number += 1


def by_loop(heads: tuple[int, ...], loop: Callable[[tuple[int, ...], TextIO], None]) -> Callable[[Path], None]:
    """One of these loops, to a file."""

    def work(folder: Path) -> None:
        with (folder / "plain.csv").open("w", encoding="utf-8", newline="") as file:
            loop(heads, file)

    return work


def by_plain_types(heads: tuple[int, ...], terms: int) -> Callable[[Path], None]:
    """Plain NumPy: every pair of paths as integers with its type, counted by order and type."""

    def work(folder: Path) -> None:
        places = itertools.product(*(range(-1, n) for n in heads[:-1]))
        keyed = [(sum(h >= 0 for h in p), [(layer, h) for layer, h in enumerate(p) if h >= 0], p) for p in places]
        side = np.array([p for *_, p in sorted(keyed)], np.int8).T
        shape = len(side), side.shape[1], side.shape[1]
        query = np.broadcast_to(side[:, :, None], shape).reshape(len(side), -1)
        key = np.broadcast_to(side[:, None, :], shape).reshape(len(side), -1)
        order = (side >= 0).sum(0, dtype=np.int8)
        both = (order[:, None] + order).ravel()
        kind = np.array([[0, 3], [2, 4]], np.int8)[(order > 0).astype(int)[:, None], (order > 0).astype(int)].ravel()
        assert query.shape == key.shape == (len(side), terms)
        assert np.bincount(both).sum() == np.bincount(kind).sum() == terms

    return work


def by_plain_products(heads: tuple[int, ...], terms: int) -> Callable[[Path], None]:
    """Plain NumPy: the words of each side in base 256, multiplied out layer by layer, then every pair of the two."""

    def work(folder: Path) -> None:
        byte, words, bits = np.uint64(8), np.array([1], np.uint64), np.array([8], np.uint64)
        code = itertools.count(2)
        for n in heads[:-1]:
            behind = [np.uint64(next(code)) << bits + byte | words << byte | np.uint64(next(code)) for _ in range(n)]
            words = np.concatenate([words, *behind])
            bits = np.concatenate([bits, *[bits + np.uint64(16)] * n])
        query, key = words.repeat(len(words)), np.tile(words, len(words))
        mixed = query * np.uint64(0x9E3779B97F4A7C15) ^ key * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed.sort()
        assert mixed.size == terms
        assert (mixed[1:] != mixed[:-1]).all(), "like terms"

    return work
