"""Weights as stored in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from symcircuits.arrays.rings import Array

__all__ = ["Stored", "without_wrappers"]

# Added to names by torch.compile, checkpointing and sharding, anywhere in a name; DataParallel puts its prefix
# before all names.
_INSIDE = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.")
_BEFORE_ALL = "module."


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Weights as stored in a file, and the number type of each (``bfloat16`` is read as float32).

    ``mapped``: how many bytes of them are mapped from a file, not copied; ``notes``: remarks on the file.
    """

    weights: Mapping[str, Array]
    dtypes: Mapping[str, str]
    mapped: int = 0
    notes: tuple[str, ...] = ()


def without_wrappers(stored: Stored) -> tuple[Stored, list[str]]:
    """The weights under their names without wrappers such as ``torch.compile`` or ``DataParallel``, and a note.

    Raises ValueError if two weights would have one name.
    """
    names, taken = {name: _INSIDE.sub("", name) for name in stored.weights}, set[str]()
    while names and all(name.startswith(_BEFORE_ALL) for name in names.values()):
        names = {old: name.removeprefix(_BEFORE_ALL) for old, name in names.items()}
    changed = [old for old, name in names.items() if old != name]
    if not changed:
        return stored, []
    for old, name in names.items():
        if name in taken:
            raise ValueError(f"{old} and another weight are both {name} without the prefix of a wrapper")
        taken.add(name)
    weights = {name: stored.weights[old] for old, name in names.items()}
    dtypes = {name: stored.dtypes[old] for old, name in names.items()}
    note = f"names were read without the prefix of a wrapper (such as {changed[0]})"
    return replace(stored, weights=weights, dtypes=dtypes), [note]
