"""Shared by the layouts of Hugging Face: values of keys, heads in fused weights, tied unembeddings.

The layout says what the axes of a weight are; they are never guessed from a shape: many of these matrices are square.
A :class:`Config` here is one of :func:`~symcircuits.loaders.keys.read_keys`: it has every key that its class reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.text import shown
from symcircuits.loaders.config import Config, is_number
from symcircuits.loaders.keys import TURNS, TURNS_OF, refuse
from symcircuits.model import ACTIVATIONS, Rotary
from symcircuits.model.checks import Axes, check_names, check_shapes, check_values

__all__ = [
    "activation", "biases_of", "check_all", "epsilon", "head_size", "heads_of", "needed", "rotary_of", "scales_of",
    "unembedding",
]  # fmt: skip


_ELSEWHERE = ("solu", "identity")  # names of activations in TransformerLens only


def needed(config: Config, *keys: str) -> list[int]:
    """Sizes that the weights alone do not determine; raises ValueError if one is not given."""
    found = []
    for key in keys:
        size = config.size(key, 1 if key not in ("n_layer", "num_hidden_layers") else 0)
        if size is None:
            raise ValueError(f"{key} is not in the config, and the weights alone do not tell it")
        found.append(size)
    return found


def head_size(size: int, heads: int, said: int | None = None) -> int:
    """The size of a head: from the config if given there, else ``size / heads``."""
    if said is None and size % heads:
        raise ValueError(f"{heads} heads do not divide the {size} dimensions of the stream")
    return said if said is not None else size // heads


def activation(config: Config, key: str) -> str:
    """The activation of the MLPs by name; raises :class:`Unsupported` for an unsupported one."""
    name = config.values[key]
    if not isinstance(name, str) or name not in ACTIVATIONS or name in _ELSEWHERE:
        refuse({f"the activation {name}": f"{key} is {config.shown(key)}"})
    return str(name)


def epsilon(config: Config, key: str) -> float:
    """The eps of the norms."""
    value = config.values[key]
    if not (is_number(value) and value >= 0):
        raise ValueError(f"{key} in the config must be a number, 0 or more, not {config.shown(key)}")
    return float(value)


def check_all(axes: Mapping[str, Axes], weights: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
    """Check that all weights and no others are there, finite, and in the shapes that the config gives."""
    check_names(axes, weights, "the file")
    for name in axes:
        check_values(name, weights[name])
    check_shapes(axes, weights, sizes, "the config")


def biases_of(axes: Mapping[str, Axes], weights: Mapping[str, Array], said: bool | None, key: str) -> dict[str, Axes]:
    """Biases that a config (under ``key``) says are present or absent; if it does not say (None), those present.

    Raises ValueError if the weights contradict it, or if some biases are missing.
    """
    there = [name for name in axes if name in weights]
    if said is False and there:
        raise ValueError(f"{key} is false, but there is a {there[0]}; set it to true, or remove the biases")
    if there and len(there) < len(axes):
        missing = [name for name in axes if name not in weights]
        raise ValueError(f"missing in the file: {', '.join(missing[:6])}; the other layers have such a bias")
    if said and not there and axes:
        raise ValueError(f"{key} is true, but there is no {next(iter(axes))}")
    return dict(axes) if there else {}


def heads_of(glyph: str, layer: int, rows: Array, count: int, group: bool = False) -> dict[str, Array]:
    """Rows ``[count d_head, ...]`` of concatenated heads, as one array per head (or group) by argument name."""
    owners = [f"L{layer}G{i}" if group else str(Head(layer, i)) for i in range(count)]
    return {f"{glyph}_{owner}": part for owner, part in zip(owners, np.split(rows, count), strict=True)}


def unembedding(config: Config, weights: dict[str, Array], head: str, embedding: str) -> tuple[str, list[str]]:
    """The name of the unembedding weight, and a note if that is the embedding (tied).

    If a tied model also stores a head, it is removed from ``weights`` if it is equal; otherwise raises ValueError.
    """
    tied = config.flag("tie_word_embeddings", False)
    if not tied:
        if head not in weights:
            said = config.shown("tie_word_embeddings")
            raise ValueError(f"tie_word_embeddings is {said}, but there is no {head}")
        return head, []
    stored = weights.pop(head, None)
    if stored is not None and not np.array_equal(stored, weights.get(embedding, np.zeros(0))):
        raise ValueError(f"tie_word_embeddings is true, but {head} differs from {embedding}; set it to false")
    return embedding, ["the unembedding is the embedding (tied)"]


def scales_of(
    architecture: Architecture, d_head: int, by_layer: bool = False, weighted: bool = True
) -> dict[str, float]:
    """``1 / sqrt(d_head)`` (1 if not ``weighted``), divided by the layer's number counted from 1 if ``by_layer``."""
    divisor = math.sqrt(d_head) if weighted else 1.0
    heads = architecture.all_heads if architecture.scale else ()
    return {str(head): 1 / (divisor * (head.layer + 1 if by_layer else 1)) for head in heads}


def rotary_of(config: Config, d_head: int) -> Rotary:
    """Rotary positions, from ``rope_parameters`` of newer configs, else the older keys; entries i and i + dim / 2 pair.

    Raises if the angles are scaled, or if two places contradict each other.
    """
    kind, place = config.values["model_type"], _rope_parameters(config)
    rows = TURNS_OF.get(kind, TURNS)
    base, part = (_turns(config, place, key, *rows[key]) for key in ("rope_theta", "partial_rotary_factor"))
    if part != 1 and kind not in TURNS_OF:
        refuse({"rotary positions of a part of each head": f"partial_rotary_factor is {part}"})
    return Rotary(int(d_head * part), base)


def _rope_parameters(config: Config) -> Mapping[str, Any]:
    """``rope_parameters``, or ``rope_scaling``, its older name: of both, transformers 5 reads the latter, as 4 does."""
    places = {key: config.values[key] or {} for key in ("rope_scaling", "rope_parameters")}
    for key, place in places.items():
        if not isinstance(place, Mapping):
            raise ValueError(f"{key} in the config must be an object, or null, not {shown(place)}")
        types = [place[name] for name in ("rope_type", "type") if name in place]
        if any(said != "default" for said in types):
            refuse({"scaled rotary positions": f"the type in {key} is {', '.join(map(str, types))}"})
        unknown = [k for k in place if k not in ("rope_type", "type", *TURNS)]
        if unknown:
            raise ValueError(f"{unknown[0]} in {key} of the config is unknown; remove it if it has no effect")
    older, newer = places.values()
    if older and newer and older != newer:
        both = f"rope_parameters is {config.shown('rope_parameters')} and rope_scaling {config.shown('rope_scaling')}"
        raise ValueError(f"{both}: versions of transformers read one or the other; remove the wrong one")
    return older or newer


def _turns(config: Config, place: Mapping[str, Any], key: str, others: tuple[str, ...], default: float) -> float:
    """A positive number: in ``rope_parameters``, else under the first other key; ValueError if another disagrees."""
    given = {other: config.values[other] for other in others if config.values[other] is not None}
    value = place[key] if key in place else given.get(others[0], default)
    for said in (value, *given.values()):
        if not (is_number(said) and said > 0):
            raise ValueError(f"rotary positions need a base and a share that are positive, not {shown(said)}")
    for other, said in given.items():
        if said != value:
            raise ValueError(
                f"{other} in the config is {said}, and what a newer transformers reads for it, {key} in "
                f"rope_parameters or its default, is {value}; set both to the intended value"
            )
    return float(value)
