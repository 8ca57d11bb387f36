"""Reading many prompts: one at a time, from a file of lines or from Python; errors name the number of the prompt.

A line is one prompt. It is a JSON list of token ids, a JSON object, ``{"tokens": [3, 1], "target": 4, "against": 2,
"position": -1}`` (all but the tokens may be left out; ``"text"`` in place of ``"tokens"`` where there is a tokenizer),
or plain ids with commas or blanks between; what it starts with tells which. Empty lines are passed over, and count
where lines are numbered. Nothing is padded or cut: each prompt stands alone, at its own length.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from symcircuits.core.text import place
from symcircuits.explanation.labels import printable
from symcircuits.model import Model
from symcircuits.model.tokens import read_tokens
from symcircuits.values.measure import check_two
from symcircuits.work.files import is_there, reading, user_path

__all__ = ["LONGEST_LINE", "BadPrompt", "Prompt", "Prompts"]

LONGEST_LINE = 2**24  # bytes; a file without line ends is not read as a whole
_KEYS = ("tokens", "text", "target", "against", "position")
_TOLD = "a prompt is a list of token ids, or maps tokens (and target, against, position, if any) to their values"
Encode = Callable[[str], Sequence[int]] | None


class BadPrompt(ValueError):
    """A prompt that cannot be used: its ``number`` (line or place, from 1) and ``what`` is wrong."""

    def __init__(self, number: int, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.number, self.what = number, what


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """One prompt: its number (line or place, from 1), tokens ``[n]``, and what it says of the chosen logit."""

    number: int
    tokens: npt.NDArray[np.int64]
    target: int | None = None
    against: int | None = None
    position: int | None = None


class Prompts:
    """Prompts for a model, read one at a time each time this is iterated; raises :class:`BadPrompt`.

    ``given``: the path of a file, or an iterable of prompts (lists, arrays or tensors of ids, mappings, and texts
    where ``encode`` is given). ``again``: whether it can be read more than once (a regular file, a sequence).
    ``position``: where the chosen logit is unless a prompt says it.

    >>> import symcircuits as sc
    >>> model = sc.random_model(sc.attention_only((1,)), d_vocab=5)
    >>> [(p.number, p.tokens.tolist(), p.target) for p in Prompts(model, [[1, 2], {"tokens": [3], "target": 4}])]
    [(1, [1, 2], None), (2, [3], 4)]
    >>> list(Prompts(model, [[1, 2], [5]]))
    Traceback (most recent call last):
    symcircuits.explanation.prompts.BadPrompt: prompt 2: token 5 at position 0 is out of range: ...
    """

    def __init__(self, model: Model, given: Any, position: int | None = -1, encode: Encode = None) -> None:
        self.model, self.given, self.position, self.encode = model, given, position, encode
        self.path = user_path(given) if isinstance(given, (str, os.PathLike)) else None
        if self.path is None and (isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable)):
            raise TypeError(f"prompts must be the path of a file or an iterable of prompts, not {type(given).__name__}")
        if self.path is None:
            self.again = not isinstance(given, Iterator)
        else:
            _check_there(self.path)
            self.again = self.path.is_file()

    def __iter__(self) -> Iterator[Prompt]:
        for number, read in self.entries():
            yield read(number)

    def entries(self) -> Iterator[tuple[int, Callable[[int], Prompt]]]:
        """The number of every prompt and the function that reads it, so an invalid one does not end the reading."""
        if self.path is None:
            for number, item in enumerate(self.given, 1):
                yield number, lambda n, item=item: self._read(n, lambda: item)  # type: ignore[misc]
            return
        with reading(self.path) as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise self.bad(number, f"this line is longer than {LONGEST_LINE:,} bytes")
                if line.strip(b" \t\r\n\x0b\x0c\xef\xbb\xbf"):
                    yield number, lambda n, line=line: self._read(n, lambda: _read_line(line))  # type: ignore[misc]

    def bad(self, number: int, what: str) -> BadPrompt:
        """The error for a prompt of that number."""
        where = f"prompt {number}" if self.path is None else f"{self.path}, line {number}"
        return BadPrompt(number, where, what)

    def _read(self, number: int, item: Callable[[], Any]) -> Prompt:
        try:
            return self._prompt(number, item())
        except (ValueError, TypeError, OverflowError) as fault:
            raise self.bad(number, str(fault)) from None

    def _prompt(self, number: int, item: Any) -> Prompt:
        entries = item if isinstance(item, Mapping) else {"text" if isinstance(item, str) else "tokens": item}
        unknown = [key for key in entries if key not in _KEYS]
        if unknown:
            raise ValueError(f"{printable(repr(unknown[0]))} is not a key of a prompt; the keys are {', '.join(_KEYS)}")
        if ("tokens" in entries) == ("text" in entries):
            said = "both tokens and text" if "text" in entries else "neither tokens nor text"
            raise ValueError(f"this prompt has {said}; give one of them")
        tokens = self._tokens(entries)
        position = entries.get("position")
        place("position", self.position if position is None else position, len(tokens))
        target, against = self._output("target", entries), self._output("against", entries)
        if against is not None and target is None:
            raise ValueError("against is the second token of a difference; give the first as target")
        check_two("token", target, against)
        return Prompt(number, tokens, target, against, position)

    def _tokens(self, entries: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        if "text" in entries:
            tokens = self._encoded(entries["text"])
        else:
            tokens = entries["tokens"]
            if not hasattr(tokens, "__len__") or isinstance(tokens, (str, bytes, Mapping)):
                raise ValueError(f"{_TOLD}, not {printable(repr(tokens))}")
        found = read_tokens(tokens, self.model.d_vocab, self.model.n_context)
        if found.ndim == 2 and len(found) != 1:
            raise ValueError(f"a prompt is one row of tokens, but this has {len(found)}: give each row separately")
        return found.reshape(-1)

    def _encoded(self, text: Any) -> Sequence[int]:
        if not isinstance(text, str):
            raise ValueError(f"the text of a prompt must be a string, not {printable(repr(text))}")
        if self.encode is None:
            raise ValueError(
                "this prompt is a text, but no tokenizer is given (a tokenizer.json converts it to tokens)"
            )
        tokens = self.encode(text)
        if not tokens:
            raise ValueError(f"the text {printable(repr(text))} has no tokens; at least one is needed")
        return tokens

    def _output(self, key: str, entries: Mapping[str, Any]) -> int | None:
        """An output token that a prompt names; None where it names none."""
        token, size = entries.get(key), self.model.d_vocab_out
        if token is None:
            return None
        if size is None:
            raise ValueError(f"this model has no unembedding, so there is no logit of the {key} {token!r} to look at")
        return place(key, token, size, negative=False)


def _check_there(path: Path) -> None:
    if not is_there(path):
        raise FileNotFoundError(f"{path}: prompts file not found")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: this is a folder, not a file of prompts")


# -------------------------------------------------------------------------------------------------- one line
def _read_line(line: bytes) -> Any:
    """What stands in a line: a list of ids, or an object."""
    try:
        text = line.decode("utf-8-sig").strip()
    except UnicodeDecodeError as fault:
        raise ValueError(f"this line is not UTF-8: {fault.reason} at byte {fault.start}") from None
    if text[:1] in ("[", "{"):
        return _read_json(text)
    found = []
    for word in re.split(r"\s*,\s*|\s+", text):
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", word, re.ASCII):
            seen = f"{printable(repr(word))} is not a token id" if word else "a number is missing between the commas"
            raise ValueError(f'{seen}; a line holds ids such as 3,1,4, a JSON list, or an object {{"tokens": [3, 1]}}')
        found.append(int(word))
    return found


def _read_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as fault:
        said = fault.msg.removesuffix(" at")  # some of its messages end so
        raise ValueError(
            f"this line starts like JSON, but is not valid JSON: {said} at character {fault.pos + 1}"
        ) from None
    except RecursionError:
        raise ValueError("this line starts like JSON, but is nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{printable(repr(double))} appears twice in this line")
    return found
