"""Models in memory: of TransformerLens (with ``cfg``), and of Hugging Face's transformers (with ``config``).

Neither library is imported. Weights are copied, so further training does not change what was loaded. Wrappers
(``torch.compile``, ``DataParallel``) are removed. A model of Hugging Face, and a bridge around
one, is run on a few tokens, and its logits are compared. Base models without a head are read if their unembedding
is tied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from symcircuits.core.text import brief
from symcircuits.loaders.pickled import as_array
from symcircuits.loaders.stored import Stored, without_wrappers
from symcircuits.loaders.wrapped import check_computes, is_wrapped, read_wrapped
from symcircuits.model import Model

__all__ = ["read_live"]

Read = Callable[[Stored, Mapping[str, Any], str], Model]


def read_live(given: Any, read: Read) -> Model:
    """The model read from a live one; ``read`` treats its weights and config like those of a file.

    Raises TypeError if it is not a live model, ValueError and :class:`~symcircuits.loaders.Unsupported` as for files.
    """
    live = _inside(given)
    own = _has(live, "cfg")
    if not callable(getattr(live, "state_dict", None)) or not (own or _has(live, "config")):
        raise TypeError(
            f"load takes the path of a folder or file, or a model with state_dict() and cfg (or config), not "
            f"{brief(given)}; for arrays see from_arrays"
        )
    config, tensors = _config(live.cfg if own else live.config, "cfg" if own else "config"), _tensors(live)
    prefix = "" if own else _missing_prefix(live, tensors)
    stored, _ = without_wrappers(_copied({f"{prefix}{name}": tensor for name, tensor in tensors.items()}))
    name = _name(config)
    if own and not is_wrapped(config, list(stored.weights)):
        return read(stored, config, name)
    if own:
        found = read_wrapped(stored, config, getattr(getattr(live, "original_model", None), "config", None), name)
    else:
        found = read(stored, config, name)
    check_computes(live, next(iter(tensors.values())), found)
    return found


def _has(model: Any, name: str) -> bool:
    return getattr(model, name, None) is not None


def _inside(model: Any) -> Any:
    """The model itself, without wrappers such as ``torch.compile`` and ``DataParallel``."""
    while True:
        wrapper = "_orig_mod" if _has(model, "_orig_mod") else "module"
        inner = getattr(model, wrapper, None)
        looked_through = wrapper == "_orig_mod" or not (_has(model, "cfg") or _has(model, "config"))
        if not looked_through or not callable(getattr(inner, "state_dict", None)):
            return model
        model = inner


def _config(said: Any, what: str) -> Mapping[str, Any]:
    told = said.to_dict() if callable(getattr(said, "to_dict", None)) else said
    config: Any = told if isinstance(told, Mapping) else getattr(told, "__dict__", None)
    if config is None:
        raise ValueError(f"the {what} of this model is a {type(said).__name__}, which has no keys to read")
    return dict(config)


def _tensors(live: Any) -> dict[str, Any]:
    weights = live.state_dict()
    if not isinstance(weights, Mapping):
        raise TypeError(f"state_dict() of this model gives a {type(weights).__name__}, not weights by name")
    return {str(key): value for key, value in weights.items()}


def _copied(tensors: Mapping[str, Any]) -> Stored:
    weights, dtypes = {}, {}
    for name, tensor in tensors.items():
        try:
            array, dtypes[name] = as_array(tensor)
        except (TypeError, ValueError, RuntimeError) as error:  # weights that are elsewhere, or quantized
            raise ValueError(f"{name} cannot be read as an array ({error!s:.200})") from error
        weights[name] = array.copy()
    return Stored(weights, dtypes)


def _name(config: Mapping[str, Any]) -> str:
    names = (config.get("model_name"), config.get("_name_or_path"))
    given = next((name for name in names if isinstance(name, str) and name), "model")
    return given.rstrip("/").rpartition("/")[2] or "model"


def _missing_prefix(live: Any, tensors: Mapping[str, Any]) -> str:
    """The prefix that a base model's names lack; raises ValueError if it has no unembedding, not even a tied one."""
    head = getattr(live, "get_output_embeddings", None)
    prefix = f"{getattr(live, 'base_model_prefix', '')}."
    if not callable(head) or prefix == "." or any(name.startswith(prefix) for name in tensors) or head() is not None:
        return ""
    if not getattr(live.config, "tie_word_embeddings", False):
        raise ValueError(
            f"a {type(live).__name__} has no unembedding, and its config does not tie one to the embedding; load the "
            "model with its head (ForCausalLM)"
        )
    return prefix
