"""Parts of messages: what a call was given, what it needs instead, and numbers in words.

Arguments have the names that the caller knows: ``resume=True`` in Python, ``--resume`` on the command line.

Whole numbers are counts or indices. NumPy's integers are whole numbers, and so is a tensor with one integer; a
boolean, a float and a text are not.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

__all__ = [
    "amount", "argument", "as_whole", "brief", "called_by", "command_called", "entries", "finite", "flag", "keywords",
    "many", "mebibytes", "need", "not_taken", "place", "seconds", "setting", "shown", "whole",
]  # fmt: skip

_MOST: Final = 60
_PLAIN: Final = (str, int, float, complex, bytes, tuple, list, dict, set, frozenset, type(None))
# What each kind of object is called, and how to make one.
_WANTED: Final = {
    "Architecture": "an architecture (see attention_only)",
    "Model": "a model (see load and from_arrays)",
    "Run": "a run (see model.run)",
    "Tensors": "Tensors",
    "Expansion": "an expansion (see logits, scores, stream)",
    "Term": "a term (see expansion[i])",
    "Unfrozen": "one of unfrozen",
    "Values": "values (see evaluate)",
    "Settings": "its settings (see Settings of symcircuits.model)",
    "str": "the path of one",
}


def brief(value: Any, most: int = _MOST) -> str:
    """The ``repr`` of a value on one line of at most that length; of a large object only its type.

    >>> brief("L0"), brief([1] * 1000), brief(1e400)
    ("'L0'", 'a list', 'inf')
    """
    small = type(value).__module__ == "numpy" and getattr(value, "size", most) < most
    try:
        text = repr(value) if small or isinstance(value, _PLAIN) else ""
    except ValueError:  # Python does not print numbers of more than 4,300 digits
        text = f"a {type(value).__name__} with a very long number in it"
    return text if 0 < len(text) <= most and "\n" not in text else _named(value)


def need(call: str, given: Any, *kinds: type) -> None:
    """Raise TypeError, in one short sentence, if an argument is none of these kinds of object.

    >>> from symcircuits.core.architecture import Architecture
    >>> need("fold", {}, Architecture)
    Traceback (most recent call last):
    TypeError: fold takes an architecture (see attention_only), not {}
    """
    if not isinstance(given, kinds):
        raise not_taken(call, given, [kind.__name__ for kind in kinds if kind.__name__ != "PathLike"])


def not_taken(call: str, given: Any, names: list[str]) -> TypeError:
    """The TypeError, in one short sentence, for an argument of the wrong type; it names the types accepted.

    >>> str(not_taken("logits", 3, ["Architecture", "Model"]))
    'logits takes an architecture (see attention_only) or a model (see load and from_arrays), not 3'
    """
    *others, last = [_WANTED.get(name, f"a {name}") for name in names]
    wanted = f"{', '.join(others)} or {last}" if others else last
    hint = _hint(given, names)
    return TypeError(f"{call} takes {wanted}, not {brief(given)}{'; ' if hint else ''}{hint}")


def entries(name: str, given: Any, what: str) -> list[Any]:
    """The items of a list (or other iterable); raises TypeError if it is not one, or is a text.

    >>> entries("queries", 3, "positions")
    Traceback (most recent call last):
    TypeError: queries must be a list of positions, not 3
    """
    if isinstance(given, (str, bytes, type)) or not hasattr(given, "__iter__"):
        raise TypeError(f"{name} must be a list of {what}, not {shown(given)}")
    return list(given)


def _is_real(value: Any) -> bool:
    """Whether a value is a real number, and not a boolean."""
    from numbers import Real  # imported late: it would slow down the start

    return isinstance(value, Real) and not isinstance(value, bool)


def finite(name: str, value: Any) -> float:
    """The value as a float; raises ValueError if it is not a number, or not finite.

    >>> finite("weight_scale", "x")
    Traceback (most recent call last):
    ValueError: weight_scale must be a finite number, not 'x'
    """
    try:
        number = float(value) if _is_real(value) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, not {shown(value)}")
    return number


def _hint(given: Any, wanted: list[str]) -> str:
    """How to make the wanted object from the given one, if known; looks at types only, and runs nothing."""
    own, said = type(given).__module__.partition(".")[0] == "symcircuits", type(given).__name__
    after = {"Model": "", "Architecture": ".architecture", "Run": ".run(tokens)"}
    goal = next((end for name, end in after.items() if name in wanted), None)
    if own and said in ("Model", "Run", "Expansion", "Tensors"):
        if "Architecture" in wanted and "Model" not in wanted:
            return "give its .model.architecture" if said == "Run" else "give its .architecture"
        if said == "Model" and "Run" in wanted:
            return "give model.run(tokens)"
        if said == "Expansion" and "Values" in wanted:
            return "give evaluate(expansion, run)"
        alone = "Tensors have arrays only" if said == "Tensors" and "Run" in wanted else ""
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


def keywords(call: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError, with the nearest name, on a keyword that the call does not take.

    >>> keywords("transformer", ["nrom"], ["norm", "mlps"])
    Traceback (most recent call last):
    TypeError: transformer does not take 'nrom': did you mean 'norm'?
    """
    for name in given:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
            raise TypeError(f"{call} does not take {name!r}: {hint}")


def _named(value: Any) -> str:
    name = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    return name if isinstance(value, type) else f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


# ------------------------------------------------------------------------------ arguments, as the caller calls them
# How the caller writes an argument: by its name, or (with a value) as an assignment; "": as in Python.
Spelling = Callable[..., str]
_SPELLING: ContextVar[Spelling | None] = ContextVar("spelling", default=None)


_COMMAND: ContextVar[tuple[str, ...]] = ContextVar("command", default=())


@contextmanager
def called_by(spelling: Spelling, command: Sequence[str] = ()) -> Iterator[None]:
    """Within this context messages use the caller's names for arguments; otherwise those of Python.

    ``command``: the words of the command line, if that is the caller.
    """
    token, words = _SPELLING.set(spelling), _COMMAND.set(tuple(command))
    try:
        yield
    finally:
        _SPELLING.reset(token)
        _COMMAND.reset(words)


def command_called() -> str:
    """The running command line, as a shell reads it; "" in Python.

    >>> with called_by(lambda name, *value: "", ["symcircuits", "count", "my model"]):
    ...     command_called()
    "symcircuits count 'my model'"
    """
    words = _COMMAND.get()
    if not words:
        return ""
    import shlex  # rarely needed

    return shlex.join(words)


def argument(name: str) -> str:
    """The caller's name for an argument.

    >>> argument("max_terms")
    'max_terms'
    >>> with called_by(lambda name, *value: "--" + name.replace("_", "-")):
    ...     argument("max_terms")
    '--max-terms'
    """
    spelling = _SPELLING.get()
    return (spelling(name) if spelling else "") or name


def setting(name: str, value: Any, python: str = "") -> str:
    """How the caller sets an argument; ``python``: how to in Python, if not by ``name=value``.

    >>> setting("resume", True), setting("form", "generic"), setting("order", 2, "order(2)")
    ('resume=True', 'form="generic"', 'order(2)')
    """
    spelling = _SPELLING.get()
    plain = f'{name}="{value}"' if isinstance(value, str) else f"{name}={value!r}"
    return (spelling(name, value) if spelling else "") or python or plain


# ---------------------------------------------------------------------------------------------- whole numbers
def as_whole(value: Any) -> int | None:
    """The value as a whole number; None if it is not one.

    >>> as_whole(3), as_whole(True), as_whole(1.0), as_whole("1")
    (3, None, None, None)
    """
    if type(value) is int:
        return value
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of floats has __index__, and raises only here
        return None


def whole(name: str, value: Any, least: int | None = None) -> int:
    """The value as a whole number; raises ValueError if it is not one, or is less than ``least`` (None: no limit).

    >>> whole("top", -1, 0)
    Traceback (most recent call last):
    ValueError: top must be a whole number, 0 or more, not -1
    """
    number = as_whole(value)
    if number is None or (least is not None and number < least):
        wanted = "" if least is None else f", {least} or more"
        raise ValueError(f"{argument(name)} must be a whole number{wanted}, not {shown(value)}")
    return number


def flag(name: str, value: Any) -> bool:
    """The value, if it is True or False; raises ValueError on anything else.

    >>> flag("causal", 1)
    Traceback (most recent call last):
    ValueError: causal must be True or False, not 1
    """
    if not isinstance(value, bool):
        raise ValueError(f"{argument(name)} must be True or False, not {shown(value)}")
    return value


def place(name: str, value: Any, size: int, negative: bool = True) -> int:
    """The index of one of ``size`` things, from 0 or (if ``negative``) from the end; raises ValueError if out of range.

    Positions, queries, keys and rows may be counted from the end; tokens, directions and layers may not.

    >>> place("position", -1, 10)
    9
    >>> place("token", -1, 10, negative=False)
    Traceback (most recent call last):
    ValueError: token -1 does not exist: there are 10, counted from 0
    """
    number = whole(name, value)
    if not (-size if negative else 0) <= number < size:
        raise ValueError(
            f"{name} {shown(value)} does not exist: there {'is' if size == 1 else 'are'} {size}, counted from 0"
        )
    return number % size


def seconds(name: str, value: Any) -> None:
    """Raise ValueError if a time is neither None nor a number of seconds, 0 or more."""
    if value is not None and not (_is_real(value) and float(value) >= 0):
        raise ValueError(f"{argument(name)} must be seconds, 0 or more, not {shown(value)}")


def shown(value: Any) -> str:
    """A value, for a message: on one line; a number of thousands of digits by its size.

    >>> shown("L0"), shown(10**5000)
    ("'L0'", 'about 1.0e5000')
    """
    number = as_whole(value)
    if number is not None and abs(number) >= 10**18:
        return "-" * (number < 0) + many(abs(number))
    return brief(value) if number is None else str(number)


def amount(n: int, thing: str) -> str:
    """A number of things in words.

    >>> amount(1, "term"), amount(2197, "term")
    ('1 term', '2,197 terms')
    """
    return f"{many(n)} {thing}" if n == 1 else f"{many(n)} {thing}s"


def mebibytes(n: int) -> str:
    """A memory limit for people, in the unit used on the command line.

    >>> mebibytes(2**30), mebibytes(3 * 2**19), mebibytes(100)
    ('1,024 MiB', '1.5 MiB', '100 bytes')
    """
    if n >= 2**70:
        return f"{many(n >> 20)} MiB"
    size = n / 2**20
    return amount(n, "byte") if n < 2**10 else f"{size:.3g} MiB" if size < 100 else f"{size:,.0f} MiB"


def many(n: int) -> str:
    """A whole number for people: with commas; beyond 60 digits, its approximate size.

    >>> many(13**12), many(13**200)
    ('23,298,085,122,481', 'about 6.1e222')
    """
    if n < 10**60:
        return f"{n:,}"
    shift = max(n.bit_length() - 64, 0)  # str() raises on a number of thousands of digits
    power, rest = divmod(math.log10(n >> shift) + shift * math.log10(2), 1)
    return f"about {10**rest:.1f}e{int(power)}"
