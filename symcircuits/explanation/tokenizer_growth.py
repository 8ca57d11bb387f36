"""By how much a tokenizer may lengthen a text, read from its ``tokenizer.json`` before any of it is run.

Steps that replace text multiply: three that make a hundred letters of one make a million. The package ``tokenizers``
keeps up to ``EACH`` bytes for every byte that comes out of the steps, and for every token its text. What could take
more than ``MOST`` bytes is refused; what comes out is bounded by the product of what each step can do at most. Of the
file itself the package makes tables of tokens and programs of patterns; those may take ``TABLES`` bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["EACH", "MOST", "TABLES", "Growth", "growth_of"]

EACH: Final = 500  # bytes of memory for a byte of text, measured: a token for every letter takes 430
MOST: Final = 2**30
TABLES: Final = 2**31
# Bytes of memory for a byte, measured: of an added token 73, of a token of Unigram (a table for each of its bytes that
# no other token shares) 350, of a pattern 1,700 (a class without regard to case).
_ADDED, _UNIGRAM, _PATTERN = 100, 400, 2000

# Bytes of UTF-8 that a step makes of one at most. Those of Unicode's normal forms are Unicode's own.
_FACTORS: Final[Mapping[str, int]] = {
    "NFC": 3, "NFD": 3, "NFKC": 11, "NFKD": 11, "Lowercase": 2, "BertNormalizer": 12, "Strip": 1, "StripAccents": 1,
    "Nmt": 3, "ByteLevel": 2, "BertPreTokenizer": 1, "Whitespace": 1, "WhitespaceSplit": 1, "Punctuation": 1,
    "Digits": 1, "Split": 1, "CharDelimiterSplit": 1, "UnicodeScripts": 1, "FixedLength": 1, "WordPiece": 2,
    "BPEDecoder": 2, "CTC": 2, "Fuse": 1, "ByteFallback": 1,
}  # fmt: skip
_INSIDE: Final = ("normalizers", "pretokenizers", "decoders")


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes that come of a byte before tokens are made of it, and of a token that is decoded; the longest token."""

    encoding: int
    decoding: int
    longest: int

    def check_text(self, size: int) -> None:
        """ValueError where encoding a text of so many bytes could take more than MOST bytes of memory."""
        most = MOST // (self.encoding * (EACH + self.longest))
        if size > most:
            raise ValueError(
                f"this text has {size:,} bytes, and this tokenizer is given {most:,} at most: it may make "
                f"{self.encoding:,} bytes of each, and tokens have up to {self.longest:,}"
            )


def growth_of(said: Any) -> Growth:
    """Of what a ``tokenizer.json`` says; ValueError on a step that is not known, and where it is too much.

    >>> grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
    >>> growth_of({"normalizer": {"type": "Sequence", "normalizers": [grow, grow]}}).encoding
    10000
    """
    if not isinstance(said, dict):
        raise ValueError("it is not a JSON object")
    added = [t.get("content", "") for t in _list(said.get("added_tokens")) if isinstance(t, dict)]
    names = [*_vocabulary(said.get("model")), *(c for c in added if isinstance(c, str))]
    _check_tables(said, names, sum(map(_size, added)))
    normal, decoding = _factor(said.get("normalizer")), _factor(said.get("decoder"))
    found = Growth(normal * _factor(said.get("pre_tokenizer")), decoding, max(map(_size, names), default=0))
    # The package normalizes added tokens when it reads them, and every name is decoded to be shown.
    for what, size, factor in (
        ("added tokens", sum(_size(c) for c in added if isinstance(c, str)) * EACH, normal),
        ("tokens", sum(map(_size, names)), decoding),
    ):
        if size * factor > MOST:
            raise ValueError(f"it may make {factor:,} bytes of each byte of its {what}, which is too much")
    return found


def _check_tables(said: dict[str, Any], names: list[str], added: int) -> None:
    """ValueError where the tables that are made of the file could take more than TABLES bytes."""
    model = said.get("model")
    unigram = isinstance(model, dict) and isinstance(model.get("vocab"), list)
    patterns = sum(_patterns(said.get(key)) for key in ("normalizer", "pre_tokenizer", "decoder"))
    needed = added * _ADDED + (sum(map(_size, names)) * _UNIGRAM if unigram else 0) + patterns * _PATTERN
    if needed > TABLES:
        raise ValueError(f"the tables of its tokens and patterns could take {needed:,} bytes; {TABLES:,} are allowed")


def _patterns(step: Any) -> int:
    """Bytes of all patterns in a step."""
    if isinstance(step, dict):
        return sum(_size(v) if k in ("Regex", "String") else _patterns(v) for k, v in step.items())
    return sum(map(_patterns, step)) if isinstance(step, list) else 0


def _vocabulary(model: Any) -> list[str]:
    """The tokens of any model, with what else it puts into tokens."""
    if not isinstance(model, dict):
        return []
    vocab = model.get("vocab")
    entries = list(vocab) if isinstance(vocab, dict) else [e[0] for e in _list(vocab) if isinstance(e, list) and e]
    return [e for e in entries if isinstance(e, str)] + [v for v in model.values() if isinstance(v, str)]


def _factor(step: Any) -> int:
    """Bytes that a step, and all that is in it, makes of one at most."""
    if step is None:
        return 1
    kind = str(step.get("type")) if isinstance(step, dict) else "without a type"
    if kind == "Sequence":
        steps = next((step[key] for key in _INSIDE if key in step), None)
        product = 1
        for each in _list(steps):
            product = min(product * _factor(each), MOST)
        return product
    if kind == "Replace":
        return _replaced(step.get("pattern"), _size(step.get("content", "")))
    if kind == "Prepend":
        return 1 + _size(step.get("prepend", ""))
    if kind == "Metaspace":
        return 1 + _size(step.get("replacement", "")) + _size(step.get("str_rep", ""))
    if kind == "Precompiled":
        return _precompiled(step.get("precompiled_charsmap"))
    if kind not in _FACTORS:
        raise ValueError(f"its step {kind[:40]!r} is unknown, and so is how much text it makes")
    return _FACTORS[kind]


def _replaced(pattern: Any, content: int) -> int:
    """A pattern may match nothing, before every byte, unless it is a text."""
    text = pattern.get("String") if isinstance(pattern, dict) else None
    size = _size(text) if isinstance(text, str) else 0
    return max(1, -(-content // size)) if size else 1 + content


def _precompiled(given: Any) -> int:
    """The longest text in the table of a SentencePiece model: its trie, by its length, then texts that end in 0."""
    try:
        table = base64.b64decode(given or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ValueError("its precompiled_charsmap is not base64") from None
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    return max(1, *map(len, texts.split(b"\0")))


def _list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []


def _size(text: Any) -> int:
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0
