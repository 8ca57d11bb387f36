"""Loading models. One file per weight layout; a new one is added to ``LAYOUTS``.

>>> [layout.name for layout in LAYOUTS]
['TransformerLens 4', 'TransformerLens', 'GPT-2', 'GPT-NeoX', 'LLaMA']
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from symcircuits.arrays.rings import Array
from symcircuits.core.text import brief
from symcircuits.loaders.bridge import BRIDGE
from symcircuits.loaders.cached import read_cached
from symcircuits.loaders.files import Stored, model_name, model_place, read_model_files, stamp_of
from symcircuits.loaders.gpt2 import GPT2
from symcircuits.loaders.layout import Layout, Unsupported
from symcircuits.loaders.live import read_live
from symcircuits.loaders.llama import LLAMA
from symcircuits.loaders.neox import NEOX
from symcircuits.loaders.pickled import as_array
from symcircuits.loaders.stored import without_wrappers
from symcircuits.loaders.transformerlens import TRANSFORMERLENS
from symcircuits.model import Model, Tensors
from symcircuits.work.memory import gigabytes

__all__ = ["LAYOUTS", "Layout", "Unsupported", "from_arrays", "from_cache", "load"]

LAYOUTS: tuple[Layout, ...] = (BRIDGE, TRANSFORMERLENS, GPT2, NEOX, LLAMA)


def load(path: str | os.PathLike[str] | Any) -> Model:
    """Load a model from a folder, from its weight file with ``config.json`` next to it, or from a live model.

    The folder holds ``config.json`` and one of ``model.safetensors``, ``model.npz``, ``model.safetensors.index.json``
    with its shards, or (read by torch, extra ``torch``) ``pytorch_model.bin``, ``model.pt``; the layouts are those of
    ``LAYOUTS``. A live model is anything with ``state_dict()`` and ``cfg``, such as a HookedTransformer or a
    TransformerBridge of TransformerLens, or with ``config``, such as a GPT2LMHeadModel of transformers; its weights are
    copied. A model of Hugging Face, and a bridge around one (see :mod:`symcircuits.loaders.wrapped`), is also run on a
    few tokens, as a check of what was read. ``~`` is the home folder. Raises
    ValueError, naming the file and the fault (missing, truncated or foreign files; weights that are missing,
    unknown, of the wrong shape or not finite; a config that contradicts the weights), and its subclass
    :class:`Unsupported`, naming the features, for a model with unsupported features.

    >>> load("no/such/model")
    Traceback (most recent call last):
    ValueError: no/such/model: there is no such file or folder
    """
    if not isinstance(path, (str, os.PathLike)):
        return read_live(path, _read)
    place = model_place(path)
    stamp = stamp_of(place)
    stored, config = read_model_files(place)
    try:
        model = _read(stored, config, model_name(place))
        said = [*stored.notes, *(_mapped_note(stored) if stored.mapped else [])]
        model = replace(model, notes=(*model.notes, *said)) if said else model
        for field, value in (("path", os.path.abspath(place)), ("stamp", stamp)):
            object.__setattr__(model, field, value)
        return model
    except Unsupported as error:
        raise Unsupported(f"{place}: {error}", error.features) from error
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _mapped_note(stored: Stored) -> list[str]:
    return [
        f"{gigabytes(stored.mapped)} of weights stay in the file and are not copied: leave it as it is while the "
        "model is in use"
    ]


def from_arrays(weights: Mapping[str, Any], config: Mapping[str, Any], name: str = "model") -> Model:
    """Make a model from named arrays (or tensors) and a config, as :func:`load` does from files.

    >>> import numpy as np
    >>> weights = {"embed.W_E": np.ones((5, 2)), "unembed.W_U": np.ones((2, 5))}
    >>> from_arrays(weights, {"n_layers": 0, "d_model": 2}).run([4]).logits.tolist()
    [[2.0, 2.0, 2.0, 2.0, 2.0]]
    """
    if not isinstance(weights, Mapping):
        raise TypeError(f"weights come by name, such as embed.W_E; this is {brief(weights)}")
    if not isinstance(config, Mapping):
        raise ValueError(f"a config maps keys such as n_layers to values; this is a {type(config).__name__}")
    arrays: dict[str, Array] = {}
    dtypes: dict[str, str] = {}
    for key, value in weights.items():
        try:
            arrays[key], dtypes[key] = as_array(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{key} cannot be read as an array ({error})") from error
    return _read(Stored(arrays, dtypes), config, name)


def from_cache(live: Any, cache: Any, tokens: Any) -> Tensors:
    """The weights of a live model and the activations that its hooks recorded, as its own tensors, uncopied.

    ``live``: a HookedTransformer, or a bridge of TransformerLens 4; ``cache``: the result of
    ``run_with_cache(tokens)``, with ``hook_pattern``, ``hook_scale`` of norms, ``hook_mlp_out`` of MLPs, and the last
    ``hook_resid_post``; tokens ``[n]`` also go with a batch of one row. Only copies, for reading and checking, leave
    the device; gradients reach the weights. Norms and MLP outputs are held at their recorded values, positions at
    ``hook_pos_embed`` (which padding moves); masks come from ``hook_attn_scores``. Raises ValueError on what
    :func:`load` rejects, if the cache lacks something, if a weight is not stored in the form the terms need, and if the
    terms do not add up to the cache (see :func:`~symcircuits.loaders.cache_checks.check_computed`): other tokens, an
    output or a stream that a hook changed; :class:`Unsupported` for normed queries and keys. The model's
    ``architecture`` is that of the tensors.

    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> import symcircuits as sc
    >>> weights = {"embed.W_E": np.ones((5, 2)), "unembed.W_U": np.ones((2, 5))}      # of PyTorch, on any device
    >>> model = SimpleNamespace(cfg={"n_layers": 0, "d_model": 2}, state_dict=lambda: weights)
    >>> cache = {"hook_embed": np.ones((1, 1, 2))}                 # logits, cache = model.run_with_cache(tokens)
    >>> arrays = from_cache(model, cache, [4])
    >>> sc.evaluate(sc.logits(arrays), arrays).total().tolist()
    [[2.0, 2.0, 2.0, 2.0, 2.0]]
    """
    if not callable(getattr(live, "state_dict", None)):
        raise TypeError(
            "from_cache takes the live model of TransformerLens itself (with state_dict() and cfg), whose tensors it "
            f"keeps, not {type(live).__name__}"
        )
    return read_cached(live, load(live), cache, tokens)


def _read(found: Stored, config: Mapping[str, Any], name: str) -> Model:
    stored, notes = without_wrappers(found)
    inner = next((n for n in stored.weights if "_original_component" in n), None)
    if inner is not None:
        what = "the inner names of a bridge"
        raise Unsupported(
            f"{inner} is one of {what}, which holds its weights several times; load the live bridge (load(bridge)), or "
            "the files of the model inside it in its own layout",
            (what,),
        )
    for layout in LAYOUTS:
        if layout.recognises(stored.weights):
            model = layout.read(stored, config, name)
            return replace(model, notes=(*model.notes, *notes)) if notes else model
    raise ValueError(
        f"unknown layout of weights: known are {', '.join(one.name for one in LAYOUTS)}; {_seen(stored.weights)}"
    )


def _seen(names: Iterable[str]) -> str:
    listed = list(names)
    return f"the first names are {', '.join(listed[:4])}" if listed else "there are no weights at all"
