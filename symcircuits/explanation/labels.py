"""Names of tokens for people: one per vocabulary entry or per position, and how any text is made safe to show."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symcircuits.core.text import brief
from symcircuits.work.files import read_input, user_path

__all__ = ["Labels", "printable", "read_label_file", "read_labels"]

_LONGEST = 60  # characters of a name that are shown


def printable(text: str, longest: int = _LONGEST) -> str:
    """The text with what does not print (line ends, controls, marks of direction) as its escape, shortened.

    >>> printable("a\\nb\\u202e"), printable("x" * 100, 8)
    ('a\\\\nb\\\\u202e', 'xxxxxxx…')
    """
    shown = text[: longest + 1]
    escaped = shown
    if not shown.isprintable():
        escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    return escaped if len(escaped) <= longest else escaped[: longest - 1] + "…"


@dataclass(frozen=True, slots=True)
class Labels:
    """Names of tokens; where there is none, the number stands.

    ``names``: one a vocabulary entry (``of="vocabulary"``, or ``"tokenizer"`` where they are decoded by one) or one a
    position (``of="positions"``); empty without.

    >>> labels = Labels(("a", "b", "c"), "vocabulary")
    >>> labels.at(0, 2), labels.output(1), Labels().output(1)
    ('c', 'b', '1')
    """

    names: tuple[str, ...] = ()
    of: str = "vocabulary"
    names_input: bool = True
    names_output: bool = True

    def at(self, position: int, token: int) -> str:
        """The name of the token at a position."""
        if self.of == "positions":
            return printable(self.names[position])
        return printable(self.names[token]) if self.names and self.names_input else str(token)

    def output(self, token: int) -> str:
        """The name of an output token."""
        named = self.names and self.of != "positions" and self.names_output
        return printable(self.names[token]) if named else str(token)


def read_labels(labels: Any, n: int, d_vocab: int, d_vocab_out: int | None = None) -> Labels:
    """The names for ``n`` positions and a vocabulary, from a sequence of strings.

    A list as long as the vocabulary names its entries (inputs, outputs or both, by their number); else one as long
    as the tokens names the positions. Raises ValueError on another length and on what is not a string.

    >>> read_labels(["the", "cat"], n=2, d_vocab=9).of
    'positions'
    """
    if isinstance(labels, (str, bytes)) or not isinstance(labels, Sequence):
        raise ValueError(
            f"labels must be a list of strings, one per vocabulary entry or per position, not {brief(labels)}"
        )
    for i, name in enumerate(labels):
        if not isinstance(name, str):
            raise ValueError(f"label {i} is not a string but {name!r:.80}")
    names, size = tuple(labels), len(labels)
    if size in (d_vocab, d_vocab_out):
        return Labels(names, "vocabulary", size == d_vocab, size == d_vocab_out)
    if size == n:
        return Labels(names, "positions")
    sizes = {"the vocabulary": d_vocab, "the output vocabulary": d_vocab_out, "the row of tokens": n}
    wanted = ", ".join(f"{k} has {v}" for k, v in sizes.items() if v not in (None, d_vocab) or k == "the vocabulary")
    raise ValueError(f"there are {size} labels; one is needed for each vocabulary entry or each position: {wanted}")


def read_label_file(path: str | os.PathLike[str]) -> list[str]:
    """Labels from a UTF-8 file: a JSON list of strings, or one per line (an empty line is an empty label).

    Raises ValueError on another content, and where the file is not one or is longer than :data:`files.LIMITS` say.
    """
    try:
        text = read_input(user_path(path), "a list of labels").decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise ValueError(f"the labels in {path} are not UTF-8: {fault.reason} at byte {fault.start}") from None
    try:
        found = json.loads(text) if text.lstrip()[:1] == "[" else None
    except (ValueError, RecursionError) as fault:
        if Path(path).suffix == ".json":
            raise ValueError(f"{path} is not a JSON list of strings: {fault}") from None
        found = None  # lines, the first of which starts with a bracket
    if found is not None:
        for i, name in enumerate(found):
            if not isinstance(name, str):
                raise ValueError(f"{path}: label {i} is not a string but {printable(repr(name))}")
        return list(found)
    if Path(path).suffix == ".json":
        raise ValueError(f"{path} is not a JSON list of strings; it starts with {text[:20]!r}")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines
