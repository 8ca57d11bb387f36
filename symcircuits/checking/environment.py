"""Values of variables, and a cache of results by the variables that they depend on.

A side of an equation uses few of the variables of a text: once read for some heads, it is the same for all assignments
that differ only in the other variables.
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
    """Variables by name; variables bound by sums hide the free ones. Records which free variables were looked up.

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
        """A copy with one more variable."""
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
    """A cache of results, by a key and by the free variables that were looked up for it.

    >>> known = Known[str]()
    >>> known.put("line 1", Environment({"h": 1, "g": 2}), {"h"}, "found")
    >>> known.get("line 1", Environment({"h": 1, "g": 3})), known.get("line 1", Environment({"h": 2, "g": 2}))
    ('found', None)
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, dict[tuple[str, ...], dict[tuple[Assigned | None, ...], Found]]] = {}

    def get(self, key: Hashable, env: Environment) -> Found | None:
        """The cached result for which every variable that was looked up had the same value, or was also missing."""
        for names, values in self._found.get(key, {}).items():
            found = values.get(tuple(env.free.get(name) for name in names))
            if found is not None:
                env.looked_up.update(names)
                return found
        return None

    def put(self, key: Hashable, env: Environment, looked_up: set[str], found: Found) -> None:
        """Store a result."""
        names = tuple(sorted(looked_up))
        here = self._found.setdefault(key, {}).setdefault(names, {})
        here[tuple(env.free.get(name) for name in names)] = found


@dataclass(slots=True)
class Noted:
    """Records made while sides were read: ``used`` are definitions, ``streams`` the variables of layers of streams.

    ``roles``: what variables were used as (a layer, the number of a head, a head), and where. ``named``: heads, and
    how they were written with free variables. ``loose``: the places of vectors whose orientation was not written.
    ``unscaled``: a softmax contains scores without their scale.
    """

    used: set[str] = field(default_factory=set)
    streams: set[str] = field(default_factory=set)
    roles: dict[str, tuple[str, int]] = field(default_factory=dict)
    named: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    loose: set[int] = field(default_factory=set)
    unscaled: bool = False
