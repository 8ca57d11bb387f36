"""Tokenizers: names of tokens, and tokens of texts, from a Hugging Face ``tokenizer.json`` (extra ``tokenizers``).

The file is read by the package ``tokenizers``, which runs no code from it. What a name shows is what the token is
decoded to, not how the file spells it (`` the``, not ``Ġthe``); how it is made safe to show is said in
:mod:`symcircuits.explanation.labels`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from symcircuits.core.text import amount
from symcircuits.explanation.labels import Labels, printable, read_label_file, read_labels
from symcircuits.explanation.tokenizer_growth import Growth, growth_of
from symcircuits.loaders.strictjson import strict_json
from symcircuits.model import Model
from symcircuits.work.files import check_input, is_there, read_input, reading, user_path

__all__ = ["any_labels", "encoder", "is_tokenizer_file", "read_tokenizer", "tokenizer_labels", "vocabulary_labels"]

_INSTALL = "pip install 'symcircuits[tokenizers]'"
_STANDARD_ERROR = Lock()  # threads that swap it at the same time would lose it
_WORDS = "a list of strings, the path of a file of them or of a tokenizer.json, or a tokenizer"


def is_tokenizer_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file holds a JSON object, as a ``tokenizer.json`` does, and not a list or lines of names."""
    place = user_path(path)
    check_input(place, "a list of labels")
    with reading(place) as file:
        if file.read(1024).decode("utf-8-sig", "replace").lstrip()[:1] != "{":
            return False
    try:
        return place.suffix == ".json" or isinstance(strict_json(_file_text(place)), dict)
    except ValueError:
        return False


def read_tokenizer(given: Any) -> Any:
    """A tokenizer of the package ``tokenizers``: of a file, of such an object, or of one that holds it.

    An object is copied, since padding and truncation are switched off. Raises ValueError where there is no such file,
    where the file is none or too large, where it could make too much of a text (see
    :mod:`symcircuits.explanation.tokenizer_growth`), and where the package is missing.
    """
    return _read(given)[0]


def _read(given: Any) -> tuple[Any, Growth]:
    if isinstance(given, (str, os.PathLike)):
        return _prepared(_file_text(user_path(given)), str(given))
    inner = getattr(given, "backend_tokenizer", given)
    if not all(callable(getattr(inner, name, None)) for name in ("to_str", "id_to_token", "encode")):
        raise ValueError(
            f"a tokenizer is the path of a tokenizer.json, or an object of the package tokenizers, not a "
            f"{type(given).__name__}"
        )
    return _prepared(inner.to_str(), f"this {type(given).__name__}")


def _file_text(path: Path) -> str:
    try:
        return read_input(path, "a tokenizer.json").decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise ValueError(f"{path}: this tokenizer.json is not UTF-8: {fault.reason} at byte {fault.start}") from None


def _prepared(text: str, what: str) -> tuple[Any, Growth]:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ValueError(f"{what}: a tokenizer.json is read by the package tokenizers ({_INSTALL})") from None
    wrong = f"{what}: this is not a tokenizer.json"
    growth: Growth = _guarded(wrong, lambda: growth_of(strict_json(text)))  # before any of it is run
    tokenizer = _guarded(wrong, lambda: Tokenizer.from_str(text))
    tokenizer.no_truncation()  # a prompt is neither cut nor padded
    tokenizer.no_padding()
    return tokenizer, growth


@contextmanager
def _no_panic_printed() -> Iterator[None]:
    """What a panic prints by itself (lines of Rust, on standard error) goes nowhere; what it says is in our error."""
    with _STANDARD_ERROR:
        sys.stderr.flush()
        try:
            kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        except OSError:  # there is no standard error
            yield
            return
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nowhere)


def _guarded(what: str, call: Callable[[], Any]) -> Any:
    """What a call into the package gives; ValueError where it fails, also where it panics."""
    try:
        with _no_panic_printed():
            return call()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as fault:  # its own errors are of no class but Exception, its panics not even of that
        raise ValueError(f"{what} ({printable(str(fault), 200) or type(fault).__name__})") from None


# ------------------------------------------------------------------------------------------------ texts
def encoder(tokenizer: Any, model: Model) -> Callable[[str], list[int]]:
    """What makes token ids of a text, for a model; no token is added (no start of text): what is there is in the text.

    Raises ValueError on what :func:`read_tokenizer` refuses, on a tokenizer of another model, and on a text that
    could take too much memory.
    """
    read, growth = _read(tokenizer)
    _fitting(read, model)

    def encode(text: str) -> list[int]:
        growth.check_text(len(text.encode("utf-8", "surrogatepass")))
        what = f"the tokenizer makes no tokens of {printable(repr(text))}"
        return [int(i) for i in _guarded(what, lambda: read.encode(text, add_special_tokens=False).ids)]

    return encode


def _fitting(tokenizer: Any, model: Model) -> Any:
    size = tokenizer.get_vocab_size(with_added_tokens=False)
    if size > model.d_vocab:
        raise ValueError(
            f"this tokenizer has {amount(size, 'token')}, and the model's vocabulary {model.d_vocab:,}: "
            "it is another model's"
        )
    return tokenizer


# ----------------------------------------------------------------------------------------------- names
def tokenizer_labels(tokenizer: Any, model: Model) -> Labels:
    """The name of every entry of a model's vocabulary, as the tokenizer decodes it; a number where it has none.

    Output tokens are named too where there are as many as input tokens.
    """
    read = _fitting(read_tokenizer(tokenizer), model)
    names = tuple(_legible(read, i) for i in range(model.d_vocab))
    return Labels(names, "tokenizer", True, model.d_vocab_out == model.d_vocab)


def _legible(tokenizer: Any, number: int) -> str:
    """The text of a token; of bytes that are not text alone ``\\xe2``, of what decodes to nothing its spelling."""
    spelled: str | None = _guarded("this tokenizer fails", lambda: tokenizer.id_to_token(number))
    if spelled is None:
        return str(number)
    decode = lambda: tokenizer.decode([number], skip_special_tokens=False)  # noqa: E731
    shown: str = _guarded(f"this tokenizer does not decode token {number}", decode)
    if "\u2581" in spelled and "\u2581" not in shown:
        return spelled.replace("\u2581", " ")  # decoded alone, a word would lose the blank before it
    if "\ufffd" in shown and "\ufffd" not in spelled and set(spelled) <= _bytes().keys():
        return bytes(_bytes()[c] for c in spelled).decode("utf-8", "backslashreplace")
    return shown if shown and not spelled.startswith("##") else spelled


@cache
def _bytes() -> dict[str, int]:
    """The byte that each letter of a byte-level vocabulary stands for (GPT-2's table)."""
    same = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in same]
    return {**{chr(b): b for b in same}, **{chr(256 + i): b for i, b in enumerate(others)}}


def any_labels(labels: Any, n: int, model: Model) -> Labels:
    """Labels in any form: a list, a file of names, a ``tokenizer.json`` or a tokenizer; nothing for None.

    ``n``: the number of tokens, which a list may name. Raises ValueError on any other form.

    >>> from symcircuits.model import random_model
    >>> from symcircuits.core.architecture import attention_only
    >>> any_labels(["the", "cat"], 2, random_model(attention_only((1,)), d_vocab=9)).of
    'positions'
    """
    if labels is None:
        return Labels()
    if isinstance(labels, Labels):
        return labels
    if isinstance(labels, (str, os.PathLike)):
        if not is_there(user_path(labels)):
            raise ValueError(f"labels must be {_WORDS}; there is no file {printable(str(labels))}")
        if is_tokenizer_file(labels):
            return tokenizer_labels(labels, model)
        labels = read_label_file(labels)
    if hasattr(labels, "backend_tokenizer") or hasattr(labels, "id_to_token"):
        return tokenizer_labels(labels, model)
    return read_labels(labels, n, model.d_vocab, model.d_vocab_out)


def vocabulary_labels(labels: Any, model: Model) -> Labels:
    """Labels of the vocabulary, for prompts of any length: as :func:`any_labels`."""
    if isinstance(labels, Sequence) and not isinstance(labels, str):
        return read_labels(labels, model.d_vocab, model.d_vocab, model.d_vocab_out)
    return any_labels(labels, model.d_vocab, model)
