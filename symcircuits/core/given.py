"""What a call was given in place of what it takes: one short sentence for all of them, with what to do."""

from __future__ import annotations

import os
from typing import Any, Final

__all__ = ["brief", "need"]

_MOST: Final = 60
_PLAIN: Final = (str, int, float, complex, bytes, tuple, list, dict, set, frozenset, type(None))
# What each kind of object is called, and how one comes by it.
_WANTED: Final = {
    "Architecture": "an architecture (see attention_only)",
    "Model": "a model (see load and from_arrays)",
    "Run": "a run (see model.run)",
    "Tensors": "Tensors",
    "Expansion": "an expansion (see logits, scores, stream)",
    "Unfrozen": "one of unfrozen",
    "str": "the path of one",
}


def brief(value: Any, most: int = _MOST) -> str:
    """The ``repr`` of a value on one line and no longer than that; of a large object only what it is.

    >>> brief("L0"), brief([1] * 1000), brief(1e400)
    ("'L0'", 'a list', 'inf')
    """
    small = type(value).__module__ == "numpy" and getattr(value, "size", most) < most
    text = repr(value) if small or isinstance(value, _PLAIN) else ""
    return text if 0 < len(text) <= most and "\n" not in text else _named(value)


def need(call: str, given: Any, *kinds: type) -> None:
    """TypeError, in one short sentence, where what a call was given is none of these kinds of object.

    >>> from symcircuits.core.architecture import Architecture
    >>> need("fold", {}, Architecture)
    Traceback (most recent call last):
    TypeError: fold takes an architecture (see attention_only), not {}
    """
    if isinstance(given, kinds):
        return
    names = [kind.__name__ for kind in kinds if kind.__name__ != "PathLike"]
    wanted = " or ".join(_WANTED.get(name, f"a {name}") for name in names)
    hint = _hint(given, names)
    raise TypeError(f"{call} takes {wanted}, not {brief(given)}{'; ' if hint else ''}{hint}")


def _hint(given: Any, wanted: list[str]) -> str:
    """How what is wanted is made of what was given, where that is known; looks at types alone, and runs nothing."""
    own, said = type(given).__module__.partition(".")[0] == __package__, type(given).__name__
    after = {"Model": "", "Architecture": ".architecture", "Run": ".run(tokens)"}
    goal = next((end for name, end in after.items() if name in wanted), None)
    if own and said in ("Model", "Run", "Expansion", "Tensors"):
        if "Architecture" in wanted and "Model" not in wanted:
            return "give its .model.architecture" if said == "Run" else "give its .architecture"
        if said == "Model" and "Run" in wanted:
            return "give model.run(tokens)"
        alone = "Tensors have arrays alone" if said == "Tensors" and "Run" in wanted else ""
        return "give its .model" if said == "Run" and "Model" in wanted else alone
    if own and said == "Architecture" and "Model" in wanted:
        return "random_model(architecture) makes one of random weights"
    if own and said == "Architecture" and "Expansion" in wanted:
        return "give logits(architecture)"
    if goal is None or isinstance(given, type):
        return ""
    if isinstance(given, (str, os.PathLike)):
        return f"a model is read from its folder by symcircuits.load(path){goal}"
    live = hasattr(type(given), "state_dict")
    return f"a live model is read by symcircuits.load(model){goal}" if live else ""


def _named(value: Any) -> str:
    name = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    return name if isinstance(value, type) else f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"
