"""What variables stand for, and values that are found again where the variables that they ask for stand for the same.

A side of an equation asks for few of the variables of a text: one that was read for some heads is the same for all that
differ in others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar, final

from symcircuits.core.architecture import Head

__all__ = ["Assigned", "Environment", "Known", "Noted"]

Assigned = Head | int  # a head, or a number as it is written
Found = TypeVar("Found")


@final
class Environment(Mapping[str, Assigned]):
    """Variables by name: those that sums bind hide the free ones; which of the free were looked up is noted.

    >>> env = Environment({"h": Head(0, 1)}).bind("l", 2)
    >>> env["l"], env["h"], "g" in env, sorted(env.looked_up), env.free
    (2, Head(layer=0, number=1), False, ['g', 'h'], {'h': Head(layer=0, number=1)})
    """

    __slots__ = ("_bound", "free", "looked_up")

    def __init__(
        self,
        free: Mapping[str, Assigned],
        bound: Mapping[str, Assigned] | None = None,
        looked_up: set[str] | None = None,
    ) -> None:
        self.free = free
        self._bound = bound or {}
        self.looked_up: set[str] = set() if looked_up is None else looked_up

    def bind(self, name: str, value: Assigned) -> Environment:
        """The same with one variable more."""
        return Environment(self.free, {**self._bound, name: value}, self.looked_up)

    def __getitem__(self, name: str) -> Assigned:
        if name in self._bound:
            return self._bound[name]
        self.looked_up.add(name)
        return self.free[name]

    def __contains__(self, name: object) -> bool:
        if name in self._bound:
            return True
        self.looked_up.add(str(name))
        return name in self.free

    def __iter__(self) -> Iterator[str]:
        return iter({**self.free, **self._bound})

    def __len__(self) -> int:
        return len({**self.free, **self._bound})


@final
class Known(Generic[Found]):
    """What was found before by a key and by the free variables that were looked up for it.

    >>> known = Known[str]()
    >>> known.put("line 1", Environment({"h": 1, "g": 2}), {"h"}, "found")
    >>> known.get("line 1", Environment({"h": 1, "g": 3})), known.get("line 1", Environment({"h": 2, "g": 2}))
    ('found', None)
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, dict[tuple[str, ...], dict[tuple[Assigned | None, ...], Found]]] = {}

    def get(self, key: Hashable, env: Environment) -> Found | None:
        """What was found where all that was looked up stood for the same, or was missing as it is here."""
        for names, values in self._found.get(key, {}).items():
            found = values.get(tuple(env.free.get(name) for name in names))
            if found is not None:
                env.looked_up.update(names)
                return found
        return None

    def put(self, key: Hashable, env: Environment, looked_up: set[str], found: Found) -> None:
        """Keep what was found."""
        names = tuple(sorted(looked_up))
        here = self._found.setdefault(key, {}).setdefault(names, {})
        here[tuple(env.free.get(name) for name in names)] = found


@dataclass(slots=True)
class Noted:
    """What was noted while sides were read: ``used`` are definitions, ``streams`` the variables of layers of streams.

    ``roles``: what variables were asked for (a layer, the number of a head, a head), and where. ``named``: heads, and
    how they were written with free variables. ``loose``: where vectors stand whose orientation was not written.
    ``unscaled``: scores stand inside a softmax without their scale.
    """

    used: set[str] = field(default_factory=set)
    streams: set[str] = field(default_factory=set)
    roles: dict[str, tuple[str, int]] = field(default_factory=dict)
    named: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    loose: set[int] = field(default_factory=set)
    unscaled: bool = False
