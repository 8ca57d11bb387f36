"""Layer by layer: the stream is that of the layer before plus the outputs of heads, bias and MLP, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import PairwiseSum
from symcircuits.model import Run
from symcircuits.values.evaluate import Closure
from symcircuits.values.finite import too_large

__all__ = ["layer_closures", "parts_named", "worst_closure"]

Array = npt.NDArray[Any]


def layer_closures(run: Run) -> tuple[Closure, ...]:
    """For every layer, ``stream + head results + 1 b_O^T + mlp`` compared with the model's stream after it.

    The bias and the MLP are taken times their multipliers, if any.

    The bound is that of :class:`~symcircuits.values.evaluate.Closure` for the stream, ``16 u (sum of |parts| +
    |x_i|)``; raises ValueError if that leaves the range of floating point. The targets are called
    ``layer:0``, ... Source: own derivation; a head result that already included the stream, or lacked a factor, would
    not close.

    >>> from symcircuits.core.architecture import transformer
    >>> from symcircuits.model import random_model
    >>> run = random_model(transformer((2, 3), norm="LN", mlps=True, biases=True)).run([1, 2, 3])
    >>> [(c.target, c.summands, c.passed) for c in layer_closures(run)]
    [('layer:0', 5, True), ('layer:1', 6, True)]
    """
    return tuple(_closure(run, layer) for layer in range(run.model.architecture.n_layers))


def _parts(run: Run, layer: int) -> Iterator[Array]:
    yield run.streams[layer]
    for head in run.model.architecture.layer_heads(layer):
        yield run.results[str(head)]
    if f"b_O_L{layer}" in run.model.weights:
        yield run.arrays[f"b_O_L{layer}"] * run.arrays.get(f"r_L{layer}", 1)
    if f"L{layer}" in run.mlps:
        yield run.mlps[f"L{layer}"] * run.arrays.get(f"r_M{layer}", 1)
    for part in run.model.architecture.parts_of("added", layer + 1):
        yield run.arrays[part.argument]


def _closure(run: Run, layer: int) -> Closure:
    after, total, size = run.streams[layer + 1], PairwiseSum(), PairwiseSum()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # numbers that are not finite raise, or fail
        for part in _parts(run, layer):
            total.add(np.broadcast_to(part, after.shape))
            size.add(np.broadcast_to(np.abs(part), after.shape))
        rows = np.linalg.norm(after.astype(np.float64), axis=-1, keepdims=True)
        error, bound = np.abs(total.value - after), 16 * np.finfo(run.dtype).eps / 2 * (size.value + rows)
        ratio = np.where(error == 0, 0.0, error / bound)
    known = np.isfinite(error) & np.isfinite(bound)
    if np.isfinite(after).all() and not known.all():
        raise ValueError(too_large(f"layer {layer}", run))
    worst = np.unravel_index(int(np.argmax(np.where(known, ratio, np.inf))), after.shape)
    passed = bool(np.all(known & (error <= bound)))
    return Closure(f"layer:{layer}", float(error[worst]), float(bound[worst]), passed, total.count, listed=True)


def parts_named(run: Run) -> str:
    """The summands of a layer's stream besides the stream before it, in words.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> parts_named(random_model(attention_only((1,))).run([1]))
    'heads'
    """
    architecture = run.model.architecture
    there = {
        "b_O": any(bias.startswith("b_O") for bias in architecture.biases), "MLP": bool(architecture.mlps),
        "added sources": any(part.of == "added" for part in architecture.parts),
    }  # fmt: skip
    return " + ".join(["heads", *(name for name in there if there[name])])


def worst_closure(closures: tuple[Closure, ...]) -> Closure | None:
    """The first that fails, else the one nearest to its bound; None if there are none."""
    failed = [c for c in closures if not c.passed]
    if failed or not closures:
        return failed[0] if failed else None
    return max(closures, key=lambda c: c.error / c.bound if c.bound else 0.0)
