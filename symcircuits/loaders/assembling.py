"""From weights in the paper's shapes to a model: zero biases are not sources, and assumptions are noted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import SOURCE_BIASES, Architecture, possible_biases
from symcircuits.core.names import visible
from symcircuits.model import Model, Settings
from symcircuits.model.attending import mask

__all__ = ["argument", "assemble", "dropped_note", "half_precision_note", "mask_note"]

_OWNERS = {"b_O": "layers", "b_in": "layers", "b_gate": "layers", "b_out": "layers", "b_N": "norms"}  # others: heads


def argument(bias: str) -> str:
    """``b_V[L0H1]`` as ``b_V_L0H1``."""
    return bias.replace("[", "_").removesuffix("]")


def assemble(
    paper: Mapping[str, Array],
    described: Architecture,
    scales: Mapping[str, float],
    settings: Settings,
    *,
    name: str,
    notes: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    multipliers: Mapping[str, float] | None = None,
) -> Model:
    """The model with these weights (by argument name); its biases are those of ``paper`` that are not all zero.

    ``described`` is the architecture without its biases and without ``multipliers``, those other than 1.
    """
    numbers = {m: value for m, value in (multipliers or {}).items() if value != 1}
    possible = possible_biases(described)
    there = [b for b in possible if argument(b) in paper]
    zero = [b for b in there if not paper[argument(b)].any()]
    dropped = {argument(b) for b in zero}
    architecture = replace(described, biases=frozenset(there) - set(zero), multipliers=frozenset(numbers))
    weights = {n: w for n, w in paper.items() if n not in dropped}
    said = (*notes, *_zero_notes(zero, possible), *_absent_notes(there, possible, described.gated))
    return Model(
        architecture,
        weights,
        score_scale=scales,
        name=name,
        notes=said,
        dtype=", ".join(dtypes),
        settings=settings,
        multipliers=numbers,
    )


def mask_note(buffers: Mapping[str, Array], windows: Sequence[int | None] = ()) -> list[str]:
    """Notes on masks in a file that differ from the causal mask of the model, and how to give one to a run."""
    odd = []
    for name, array in buffers.items():
        layer = re.search(r"\.(\d+)\.(attn|attention)\.(mask|bias)$", f".{name}")
        if layer is None or array.ndim < 2 or not array.size or array.size != array.shape[-1] ** 2:
            continue
        seen = array.reshape(array.shape[-1], -1)
        window = windows[int(layer[1])] if windows else None
        odd += [name] if ((seen != 0) != mask(len(seen), True, window)).any() else []
    if not odd:
        return []
    more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
    return [
        f"{visible(odd[0])}{more} in the file is another mask than that of this model, which is causal; it is not "
        "read: give it to a run, model.run(tokens, mask=)"
    ]


def dropped_note(dropped: Sequence[str]) -> list[str]:
    """A note on names in a file that are not weights: masks and other buffers."""
    more = f" and {len(dropped) - 4} more" if len(dropped) > 4 else ""
    return (
        [f"buffers that are not weights were dropped: {', '.join(map(visible, dropped[:4]))}{more}"] if dropped else []
    )


def half_precision_note(dtypes: Sequence[str]) -> list[str]:
    """A note on weights stored in two bytes per number."""
    half = [t for t in dtypes if t in ("float16", "bfloat16")]
    return (
        [f"weights stored as {' and '.join(half)} were read exactly and are computed with in float64"] if half else []
    )


def _kind(bias: str) -> str:
    return bias.partition("[")[0]


def _absent_notes(there: Sequence[str], possible: Sequence[str], gated: bool) -> list[str]:
    """A note on the kinds of bias that the file lacks, if it has others (a gated MLP rarely has any inside)."""
    inside = ("b_in", "b_gate") if gated else ("b_gate",)
    kinds = [kind for kind in dict.fromkeys(map(_kind, possible)) if kind not in inside]
    absent = [kind for kind in kinds if kind not in set(map(_kind, there))]
    return [f"the file has no {', '.join(absent)}"] if absent and len(absent) < len(kinds) else []


def _zero_notes(zero: Sequence[str], possible: Sequence[str]) -> list[str]:
    """One sentence on biases that are all zero, kinds together: "b_Q, b_K of all heads are zero ..."."""
    sources = [b for b in zero if _kind(b) in SOURCE_BIASES]
    inside = [b for b in zero if _kind(b) not in SOURCE_BIASES]
    outside = (" and is not a source", " and are not sources")
    return _zero_note(sources, possible, outside) + _zero_note(inside, possible)


def _zero_note(zero: Sequence[str], possible: Sequence[str], more: tuple[str, str] = ("", "")) -> list[str]:
    groups: dict[str, list[str]] = {}
    for kind in dict.fromkeys(map(_kind, zero)):
        names = [n for n in zero if _kind(n) == kind]
        owners = [n.partition("[")[2].removesuffix("]") for n in names]
        every = len(names) == sum(_kind(n) == kind for n in possible)
        whose = f"all {_OWNERS.get(kind, 'heads')}" if every else ", ".join(owners)
        groups.setdefault("" if kind == "b_U" else f" of {whose}", []).append(kind)
    if not zero:
        return []
    verb = f"is zero{more[0]}" if len(zero) == 1 else f"are zero{more[1]}"
    return [", ".join(", ".join(kinds) + where for where, kinds in groups.items()) + f" {verb}"]
