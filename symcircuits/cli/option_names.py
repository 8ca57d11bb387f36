"""What is said with the names of Python's arguments, said with the options of the command line that stand for them."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["as_options"]

_OTHER = {  # where the option has another name: the first that the command has
    "k": ("count", "draws"),
    "top": ("top", "count"),
    "max_seconds": ("max_seconds", "timeout"),
    "max_terms": ("max_terms", "draws"),
}
_WORDS = re.compile(r"(?<![\w./\\-])max_(?:terms|seconds|memory|expansions)(?![\w./\\-])")  # and no names of files
_FIRST = re.compile(r"^\w+(?= (?:must be|says) )")
_SEE = re.compile(r"(?<=\(see )\w+(?=\))")
_ON = re.compile(r"(?<= it up with )resume\b|(?<= again with )resume\b|\bstart(?= [\d,]+ goes on)")


def as_options(text: str, options: Iterable[str]) -> str:
    """``text`` with ``--count`` in place of ``k``, and the like, where a command has such an option.

    >>> as_options("k must be a whole number, 0 or more, not -1", ["tokens", "count"])
    '--count must be a whole number, 0 or more, not -1'
    >>> as_options("max_seconds (3) reached; start 4096 goes on from there", ["timeout", "start"])
    '--timeout (3) reached; --start 4096 goes on from there'
    """
    known = set(options)

    def named(found: re.Match[str]) -> str:
        word = found.group()
        name = next((n for n in _OTHER.get(word, (word,)) if n in known), None)
        return word if name is None else f"--{name.replace('_', '-')}"

    for pattern in (_WORDS, _FIRST, _SEE, _ON):
        text = pattern.sub(named, text)
    return text
