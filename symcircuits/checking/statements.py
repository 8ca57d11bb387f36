"""Groups the tokens of a text into statements, by the layout only.

A statement is a line of text or a row of a display. A row continues the statement before it if it starts with an
operator or an equals sign, is inside brackets, or (in text) is indented more. Rows are counted as a person counts
them, from 1.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

from symcircuits.checking.displays import displays
from symcircuits.checking.faults import ReadError
from symcircuits.checking.formula import MAX_WORDS
from symcircuits.checking.tokens import MAX_SIDES, MAX_TEXT, Scanner, Token

__all__ = ["Rows", "Statement", "statements_of"]

_LET_WORDS: Final = frozenset({"let", "where", "with", "define", "for", "write", "set", "put", "denote"})
_FILLERS: Final = frozenset(
    {"and", "so", "then", "hence", "here", "thus", "therefore", "since", "as", "we", "have", "is", "by"}
)
_LEADING: Final = frozenset({"SIGN", "EQ", "LET", "AT", "DOT", "OTIMES", "ODOT", "SLASH", "POW", "T"})
_TRAILING: Final = _LEADING - {"T"} | {"BIGSUM", "BIGPROD", "COMMA"}


@dataclass(slots=True)
class Statement:
    """Tokens up to the end of a statement; ``let``: it is an explicit definition; ``open``: brackets left open."""

    at: int
    tokens: list[Token] = field(default_factory=list)
    let: bool = False
    open: int = 0
    signs: int = 0

    def add(self, tokens: list[Token]) -> None:
        """Append tokens."""
        self.tokens += tokens
        self.open += _opened(tokens)
        self.signs += sum(token.kind == "SIGN" for token in tokens)


class Rows:
    """The row of each place of the text, counted from 1."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.numbers: list[int] = []

    def add(self, at: int, number: int) -> None:
        """Record that a row starts here."""
        self.starts.append(at)
        self.numbers.append(number)

    def number(self, at: int) -> int:
        """The row of a place."""
        i = bisect_right(self.starts, at)
        return self.numbers[max(0, i - 1)] if self.numbers else 1


def statements_of(source: str, own: re.Pattern[str] | None = None) -> tuple[list[Statement], Rows]:
    """The statements of a text, and its rows. ``own``: other names of symbols.

    >>> found, rows = statements_of("T = X0 W_U.T\\n  + P W_U.T\\nX1 = X0")
    >>> [len(s.tokens) for s in found], [rows.number(s.at) for s in found]
    ([9, 3], [1, 3])
    """
    if len(source) > MAX_TEXT:
        raise ReadError(f"the formula has {len(source):,} characters; at most {MAX_TEXT:,} are read")
    if not source.strip():
        raise ReadError("the formula is empty")
    scanner = Scanner(source, own)
    return _Layout(scanner).statements(scanner.tokens())


class _Layout:
    """Joins rows to statements."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner, self.source = scanner, scanner.source
        self.rows, self.found = Rows(), list[Statement]()
        self.displays = scanner.latex and bool(displays(self.source))
        self.counted = 0
        self.breaks = [found.start() for found in re.finditer("\n", self.source)]

    def statements(self, tokens: list[Token]) -> tuple[list[Statement], Rows]:
        row: list[Token] = []
        depth = inside = 0
        for token in tokens:
            if token.kind in ("BEGIN", "CLOSED"):
                inside += 1 if token.kind == "BEGIN" else -1
                self.row(row, True)
                row = []
            elif token.kind == "ROW" or (token.kind == "LINE" and inside <= 0 and not depth):
                self.row(row, inside > 0)
                row = []
            elif token.kind != "LINE":
                depth += (token.kind in ("LPAR", "LBRACE")) - (token.kind in ("RPAR", "RBRACE"))
                row.append(token)
        self.row(row, inside > 0)
        return [s for s in self.found if s.tokens], self.rows

    def row(self, tokens: list[Token], display: bool) -> None:
        """One row: it continues the statement before it, or starts a new one."""
        inside = bool(self.found) and self.found[-1].open > 0
        let, tokens = _without_words(tokens, inside)
        if not tokens:
            return
        at = tokens[0].at
        self.counted += 1
        line = self.counted if self.scanner.latex else bisect_left(self.breaks, at) + 1
        self.rows.add(at if self.rows.starts else 0, line)
        for i, (part, apart) in enumerate(_apart(tokens)):
            goes_on = self.found and not i and not let and not self.found[-1].let and self._goes_on(part, display)
            if goes_on:
                self.found[-1].add(part)
            else:
                if len(self.found) >= MAX_SIDES:
                    raise self.scanner.fault(f"the text has more than {MAX_SIDES:,} lines, the limit", part[0].at)
                self.found.append(Statement(part[0].at, let=let or apart))
                self.found[-1].add(part)
            if self.found[-1].signs > MAX_WORDS:
                message = f"the formula has more than {MAX_WORDS:,} products, the limit"
                raise self.scanner.fault(message, part[0].at)

    def _goes_on(self, tokens: list[Token], display: bool) -> bool:
        before = self.found[-1]
        if tokens[0].kind in _LEADING or before.tokens[-1].kind in _TRAILING or before.open > 0:
            return True
        if any(t.kind in ("EQ", "LET") for t in tokens):
            return False
        if display:
            return True
        return not self.scanner.latex and self._indent(tokens[0].at) > self._indent(before.at)

    def _indent(self, at: int) -> int:
        start = self.source.rfind("\n", 0, at) + 1
        line = self.source[start:at]
        return len(line) - len(line.lstrip())


def _opened(tokens: list[Token]) -> int:
    """The number of brackets that are opened and not closed."""
    return sum((t.kind in ("LPAR", "LBRACE")) - (t.kind in ("RPAR", "RBRACE")) for t in tokens)


def _word(token: Token) -> str:
    if token.kind == "PROSE":
        return str(token.value)
    plain_name = token.kind == "NAME" and not token.value.scripts
    return token.value.text.lower() if plain_name else ""


def _without_words(tokens: list[Token], inside: bool = False) -> tuple[bool, list[Token]]:
    """A row without the words around its formula, and whether they announce a definition.

    ``inside``: it continues inside brackets, where a comma at its end separates arguments.
    """
    let = False
    start = 0
    while start < len(tokens):
        words = _word(tokens[start]).rstrip(":,.").split()
        if tokens[start].kind in ("END", "COMMA", "APART"):
            start += 1
        elif tokens[start].kind == "PROSE" or (words and words[0] in _LET_WORDS | _FILLERS and start + 1 < len(tokens)):
            let = let or any(w in _LET_WORDS for w in words)
            start += 1
        else:
            break
    kept: list[Token] = []
    for token in tokens[start:]:
        if kept and token.kind == "PROSE" and str(token.value).split(" ")[0] == "for" and _opened(kept) <= 0:
            break  # for all h
        if token.kind == "RBRACE" and kept and kept[-1].kind == "LBRACE":
            kept.pop()  # these braces had only words in them
        elif token.kind != "PROSE":
            kept.append(token)
    inside = inside or _opened(kept) > 0
    while kept and kept[-1].kind in (("END", "APART") if inside else ("END", "COMMA", "APART")):
        kept.pop()
    let = let or any(t.kind == "LET" for t in kept)
    return let, [t if t.kind != "LET" else t._replace(kind="EQ") for t in kept]


def _apart(tokens: list[Token]) -> list[tuple[list[Token], bool]]:
    """The formulas in one row: after a wide space, a comma or a semicolon another equation may follow."""
    parts: list[tuple[list[Token], bool]] = []
    start = depth = 0
    equals = [i for i, t in enumerate(tokens) if t.kind == "EQ"]
    for i, token in enumerate(tokens):
        depth += (token.kind in ("LPAR", "LBRACE")) - (token.kind in ("RPAR", "RBRACE"))
        if depth or token.kind not in ("APART", "COMMA", "END"):
            continue
        if any(start <= e < i for e in equals) and equals and equals[-1] > i:
            parts.append((tokens[start:i], bool(parts)))
            start = i + 1
    parts.append((tokens[start:], bool(parts)))
    cleaned = [([t for t in part if t.kind != "APART"], apart) for part, apart in parts]
    return [(part, apart) for part, apart in cleaned if part]
