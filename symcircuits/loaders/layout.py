"""The interface of a weight layout, and the error for unsupported features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from symcircuits.loaders.files import Stored
from symcircuits.model import Model

__all__ = ["Layout", "Unsupported"]


class Unsupported(ValueError):
    """A model needs unsupported features; ``features`` names each, the message also says where it was found."""

    def __init__(self, message: str, features: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.features = features


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to name and shape weights: ``recognises`` a file by its names, ``read`` makes the model.

    ``read`` gets the weights, the config and a name; it raises ValueError, and :class:`Unsupported` for a model
    with unsupported features.
    """

    name: str
    recognises: Callable[[Iterable[str]], bool]
    read: Callable[[Stored, Mapping[str, Any], str], Model]
