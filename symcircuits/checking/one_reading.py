"""A text under one reading: heads for its free variables, its claims judged, and how it was read.

Heads are assigned so that later names are in later layers. A formula is right if, for some choice of layers for its
free variables, it is right for all heads of these layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from symcircuits.checking.case import Asked
from symcircuits.checking.claims import Claim, Side, claims_of
from symcircuits.checking.environment import Assigned, Environment, Known
from symcircuits.checking.faults import ReadError, TooLong
from symcircuits.checking.head_counts import needed
from symcircuits.checking.judging import judged
from symcircuits.checking.labels import Free
from symcircuits.checking.meaning import Meaning
from symcircuits.checking.patterns import pattern
from symcircuits.checking.reading import ReadText
from symcircuits.checking.readings import Reading
from symcircuits.checking.roles import Roles
from symcircuits.checking.verdict import Outcome, Verdict
from symcircuits.core.architecture import Architecture, Head
from symcircuits.core.text import amount

__all__ = ["GENERAL", "Attempt", "Judged", "attempt_of"]

_LABELLED: Final = re.compile(r"L\d+H\d+")
_TRIED: Final = 4_000  # assignments of free variables
_ORDERED: Final = (("first", "second", "third"), ("early", "late"), ("prev", "head"), ("previous", "induction"))
_VARIABLES: Final = 6  # for heads and layers
_OF_GROUP: Final = re.compile(r"L\d+G\d+")  # the label of shared keys and values
_NUMBER: Final = -1  # instead of a layer: the variable is the number of a head
Judged = dict[tuple[Any, ...], tuple[Outcome, Claim]]  # verdicts and their claims, by all that they depend on
_FIXED: Final = re.compile(r"\bL\d|[xXr]_?\{?\(?[1-9]|\^\{?\(?[1-9]\d*\s*[,)}]|\[\s*[1-9]\d*\s*,")  # a layer
GENERAL: Final = (
    "checked for every number of heads: sums over all heads of a layer are decided by the most heads that any product "
    "has of one layer"
)


@dataclass(slots=True)
class Attempt:
    """A text under one reading: its claims judged, and how it was read."""

    reading: Reading
    outcomes: list[Outcome]
    misfits: int
    anchored: bool
    read: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    words: int = field(default=0)
    free: tuple[str, ...] = ()
    lead: Attempt | None = None  # the best attempt of the same convention, for any way to count layers
    maps: bool = False  # whether it has tensor products, which suggest the paper's convention

    @property
    def wrong(self) -> Outcome | None:
        """The first wrong claim."""
        return next((o for o in self.outcomes if not o.right), None)

    @property
    def wrongs(self) -> int:
        """The number of wrong claims."""
        return sum(not o.right for o in self.outcomes)

    @property
    def right(self) -> bool:
        """Whether every claim is right."""
        return self.wrong is None

    @property
    def cost(self) -> int:
        """The distance from right."""
        return sum(o.cost for o in self.outcomes)

    @property
    def at(self) -> int:
        """The place of the first fault."""
        return self.wrong.at if self.wrong else 0

    @property
    def verdict(self) -> Verdict:
        """The verdict on the first wrong claim, or on the last."""
        found = self.wrong or self.outcomes[-1]
        where = dict.fromkeys(w for o in self.outcomes for w in o.verdict.where)
        return replace(found.verdict, where=tuple(where)) if found.right else found.verdict


def attempt_of(
    text: ReadText, roles: Roles, reading: Reading, asked: Asked, total: list[int], known: Judged, more: bool = False
) -> Attempt:
    """The text under one reading, with the best choice of layers for its free variables.

    Variables that do not occur together in an equation are chosen separately. ``more``: the model has more heads than
    the model in question, which has one in every layer.
    """
    one = _OneReading(text, roles, reading, asked, total, known=known, more=more)
    first = next(one.assigned({}), None)
    if first is None:
        raise one.faults[0] if one.faults else ReadError("a formula is missing here", text.document.source, 0)
    env, _, meaning = first
    order, best = list(env), None
    for names in _apart(list(env), meaning, asked) or [set()]:
        best, env = one.best({name: value for name, value in env.items() if name not in names}, order)
    assert best is not None
    return best


def _apart(names: list[str], meaning: Meaning, asked: Asked) -> list[set[str]]:
    """Groups of free variables to choose together: those of an equation, of one row of names, and all of layers."""
    if asked.target is not None:
        return [set(names)] if names else []
    role = {name: meaning.noted.roles.get(name, ("", 0))[0] for name in names}
    ties = [*(t.names for t in meaning.together), {name for name in names if role[name] in ("layer", "number")}]
    for stem in {_place(name)[0] for name in names}:
        ties.append({name for name in names if _place(name)[0] == stem})
    found: list[set[str]] = []
    for tie in [*({name} for name in names), *ties]:
        here = [group for group in found if group & tie]
        found = [group for group in found if group not in here]
        joined = tie.intersection(names).union(*here)
        found += [joined] if joined else []
    return sorted(found, key=lambda group: min(map(names.index, group)))


class _OneReading:
    """A text under one reading; each side is read once for all choices of heads that it does not depend on."""

    def __init__(
        self, text: ReadText, roles: Roles, reading: Reading, asked: Asked, total: list[int],
        *, known: Judged, more: bool,
    ) -> None:  # fmt: skip
        self.text, self.roles, self.reading, self.asked, self.total, self.known = (
            text, roles, reading, asked, total, known)  # fmt: skip
        self.sides, self.faults = Known[Side](), list[ReadError]()
        # A printed derivation has rules for any two heads; in a layer with one head these are the same head.
        alone = text.several and _LABELLED.search(text.document.source) is not None
        self.alone = alone and (more or max(asked.architecture.heads, default=0) < 2)

    def best(self, fixed: dict[str, Assigned], order: list[str]) -> tuple[Attempt, dict[str, Assigned]]:
        """The best of all choices of the variables that are not fixed, and the values of all variables in it."""
        text, asked, source = self.text, self.asked, self.text.document.source
        groups: dict[tuple[int, ...], list[tuple[dict[str, Assigned], list[Outcome], list[Claim]]]] = {}
        tried, cut = 0, False
        asked_for: dict[str, str] = {}
        streams: set[str] = set()
        merged_at = 0
        merged: dict[tuple[int, ...], bool] = {}
        for found, claims, meaning in self.assigned(fixed):
            env = {k: found[k] for k in sorted(found, key=lambda k: order.index(k) if k in order else len(order))}
            if not claims:
                continue
            tried += 1
            if asked.target is not None and env and any(c.target not in (None, asked.target) for c in claims):
                continue
            outcomes = [_judged(c, meaning, asked, self.known) for c in claims]
            asked_for = {name: role for name, (role, _) in meaning.noted.roles.items()}
            streams = meaning.noted.streams
            layers = tuple(v.layer if isinstance(v, Head) else v if asked_for.get(k) != "number" else _NUMBER
                           for k, v in env.items())  # fmt: skip
            named = [v for k, v in env.items() if asked_for.get(k) == "layer" and k[:1] != "@" and isinstance(v, int)]
            own = [t for t in meaning.together if t.names - fixed.keys()]
            alike = any(t.clashes for t in own)
            alike |= not self.alone and (any(t.merged for t in own) or len(set(named)) < len(named))
            merged[layers] = merged.get(layers, True) and alike
            merged_at = next((t.at for t in own if t.merged), 0)
            groups.setdefault(layers, []).append((env, outcomes, claims))
            if tried >= _TRIED:
                cut = True
                break
        if not groups:
            raise self.faults[0] if self.faults else ReadError("a formula is missing here", source, 0)
        if all(merged.values()):
            raise ReadError("different names mean the same head or layer here: use one name for it",
                            source, merged_at)  # fmt: skip
        best: Attempt | None = None
        chosen: dict[str, Assigned] = {}
        every = _FIXED.search(source) is not None
        least: tuple[bool, int, int] = (True, 0, 0)
        for layers, members in groups.items():
            if merged[layers]:
                continue
            env, outcomes, claims = next((m for m in members if any(not o.right for o in m[1])), members[0])
            attempt = Attempt(
                self.reading, outcomes, sum(c.found.misfits for c in claims), any(map(_anchored, claims)),
                words=sum(len(c.found.words) for c in claims), free=tuple(env),
                maps=any(c.found.maps for c in claims),
            )  # fmt: skip
            attempt.read = _what_was_read(self.reading, env, self.roles, asked.architecture, claims, layers, source)
            attempt.notes = _counts(self.roles, asked.architecture, text, self.reading.base)
            # An unnamed layer is every layer; the order of several heads in layers that no stream names is left to
            # the reader.
            free = {k for k, role in asked_for.items() if k in env and role == "layer" and k[:1] != "@"}
            all_layers = bool(free) and (every or len(free) == 1 or not free.isdisjoint(streams))
            key = (attempt.right if all_layers else not attempt.right, attempt.misfits, attempt.cost)
            if best is None or key <= least:
                best, least, chosen = attempt, key, env
        assert best is not None
        if cut and best.right:
            raise ReadError(
                f"there are more than {_TRIED:,} ways to choose the heads and layers of this text", source, 0
            )
        return best, chosen

    def assigned(self, env: dict[str, Assigned]) -> Iterator[tuple[dict[str, Assigned], list[Claim], Meaning]]:
        """Every assignment of the free variables under which the text can be read."""
        text, asked, reading, source = self.text, self.asked, self.reading, self.text.document.source
        meaning = Meaning(asked.architecture, reading, asked.notation, self.roles, source, pattern_of=pattern)
        meaning.algebra.total, meaning.every = self.total, asked.every
        try:
            yield env, claims_of(text.document, meaning, Environment(env), text.code, self.sides), meaning
        except Free as free:
            if len(env) > _VARIABLES:
                raise ReadError(f"more than {_VARIABLES} variables are free heads or layers, {free.name} among them",
                                source) from None  # fmt: skip
            for choice in _choices(free, env, reading, asked.architecture, text):
                yield from self.assigned({**env, free.name: choice})
        except TooLong:
            raise
        except ReadError as fault:
            self.faults.append(fault)


def _judged(claim: Claim, meaning: Meaning, asked: Asked, known: Judged) -> Outcome:
    """The verdict on a claim, cached: most claims do not depend on the values of other variables."""
    what: tuple[Any, ...] = claim.kind, claim.at, claim.findings, claim.target, claim.own, claim.side
    what += (None if claim.counted is None else (tuple(claim.counted.polynomial.items()), claim.counted.along),)
    key = *what, tuple(claim.generic.items()), meaning.noted.unscaled, asked.convention
    same = *key, id(claim.found), id(claim.against)  # the same side, read once
    if same not in known:
        equal = *key, claim.found.words, claim.against.words if claim.against else None
        if equal not in known:
            known[equal] = judged(claim, meaning, asked), claim
        known[same] = known[equal][0], claim  # the claim is kept, so its id stays unique
    return known[same][0]


def _anchored(claim: Claim) -> bool:
    """Whether the ends of its products identify the convention."""
    return any("token" in ends or set(ends) <= {"input", "output"} for ends in claim.found.ends)


def _choices(
    free: Free, env: dict[str, Assigned], reading: Reading, arch: Architecture, text: ReadText
) -> Iterator[Assigned]:
    """The possible values of a free variable, given those already chosen."""
    base = reading.base
    if free.role == "layer":
        for layer in range(base, arch.n_layers + base):
            if all(_layers_in_order(free.name, layer, other, value) for other, value in env.items()):
                yield layer
    elif free.role == "number":  # in a layer with fewer heads the missing ones are left out
        yield from range(base, base + min(max(arch.heads, default=0), 2))
    else:
        counted = (
            "//" in text.document.source
            or "%" in text.document.source
            or "mod" in text.document.source
            or "floor" in text.document.source
        )
        number = _place(free.name)[1]  # h_2 is after a head of the first layer, even if that is not written
        for layer in range(number - 1 if 1 < number <= arch.n_layers else 0, arch.n_layers):
            heads = arch.layer_heads(layer)
            for head in heads if counted else heads[:2]:
                if all(_in_order(free.name, head, other, value, arch.n_layers) for other, value in env.items()):
                    yield head


def _in_order(name: str, head: Head, other: str, value: Assigned, layers: int) -> bool:
    """Whether two names in order are heads of layers in the same order."""
    if not isinstance(value, Head):
        return True
    a, b = _place(name), _place(other)
    if a[0] != b[0] or a[1] == b[1]:
        return True
    if layers == 1:
        return True
    return (head.layer < value.layer) == (a[1] < b[1]) and head.layer != value.layer


def _layers_in_order(name: str, layer: int, other: str, value: Assigned) -> bool:
    a, b = _place(name), _place(other)
    if not isinstance(value, int) or a[0] != b[0] or a[1] == b[1]:
        return True
    return (layer < value) == (a[1] < b[1]) and layer != value


def _place(name: str) -> tuple[str, int]:
    for i, names in enumerate(_ORDERED):
        if name in names:
            return str(i), names.index(name)
    found = re.fullmatch(r"([a-z])_?(\d{1,9})?", name)
    return (found[1], int(found[2])) if found and found[2] else (name, 0)


def _what_was_read(
    reading: Reading,
    env: Mapping[str, Assigned],
    roles: Roles,
    arch: Architecture,
    claims: list[Claim],
    layers: tuple[int, ...],
    source: str,
) -> tuple[str, ...]:
    """How the text was read, for the first line of the answer."""
    said = [reading.text]
    for (name, value), layer in zip(env.items(), layers, strict=True):
        shown = {"@head": "a head without a label", "@layer": "a layer that is not named"}.get(name, name)
        if isinstance(value, Head):
            said.append(f"{shown} any head of layer {value.layer + 1}")
        else:
            said.append(f"{shown} any head of its layer" if layer == _NUMBER else f"{shown} = {value}")
    if roles.counted or roles.numbers or (roles.layers - {"l", "L", "ell"}):
        said.append(f"layers from {reading.base}")
    if arch.groups and not _OF_GROUP.search(source) and any(_is_shared(c) for c in claims):
        said.append("the keys and values of a head are those of its group")
    if roles.open_ranges and arch.n_layers > 1:
        said.append("sums over heads run over " + ("all heads" if reading.spread else "the heads of one layer"))
    return tuple(said)


def _is_shared(claim: Claim) -> bool:
    """Whether it contains keys or values that the heads of a group share."""
    return any(_OF_GROUP.fullmatch(f.letter.label) for w in claim.found.words for f in w.factors)


def _counts(roles: Roles, arch: Architecture, text: ReadText, base: int) -> tuple[str, ...]:
    """The numbers of heads for which a formula with sums over heads was checked, as notes."""
    if not any(roles.of(n) in ("head", "number") for b in roles.bounds for n in b.names):
        return ()
    source = text.document.source
    generic = min(arch.heads, default=0) >= 2 and not re.search(r"\\bmod|//|\\lfloor|\[\d|L\d+H\d+", source)
    if generic and not roles.numbers:
        need = needed(text.document, roles, arch, base=base)
        if need.plain and need.every and all(n >= wanted for n, wanted in zip(arch.heads, need.heads, strict=True)):
            return (GENERAL,)
    return (f"checked for {amount(sum(arch.heads), 'head')}, {','.join(map(str, arch.heads))} by layer",)
