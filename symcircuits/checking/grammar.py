"""Reads text notation and LaTeX into nodes, by one grammar, ``grammar.lark``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from symcircuits.checking.faults import ReadError
from symcircuits.checking.statements import Rows, Statement, statements_of
from symcircuits.checking.syntax import (
    BigSum,
    Call,
    Document,
    Equation,
    Fraction,
    Indexed,
    Line,
    Name,
    Node,
    Number,
    Power,
    Product,
    Sum,
    Text,
    Transposed,
)
from symcircuits.checking.tokens import Token

__all__ = ["read_document"]

_OPENING: Final = frozenset({"LPAR", "LBRACE", "BIGSUM"})
_CLOSING: Final = frozenset({"RPAR", "RBRACE"})
_JOINING: Final = frozenset({"AT", "DOT", "OTIMES", "ODOT", "SLASH", "POW"})


def read_document(source: str, own: re.Pattern[str] | None = None) -> tuple[Document, Rows]:
    """All lines of a text, and the row of each place; ReadError, with the place, where it cannot be read.

    ``own`` finds names of symbols as they are printed.

    >>> document, rows = read_document("T = X0 W_U.T\\n  + A[L0H0] X0 W_OV[L0H0].T W_U.T")
    >>> [line.number for line in document.lines], len(document.lines[0].equations[0].sides[1].summands)
    ([1], 2)
    """
    found, rows = statements_of(source, own)
    if not found:
        raise ReadError("a formula is missing here", source, max(0, len(source.rstrip()) - 1))
    lines = []
    for statement in found:
        sides = _parsed(statement, source)
        lines.append(Line(rows.number(statement.at), statement.at, (Equation(sides, statement.at, statement.let),)))
    return Document(tuple(lines), source), rows


def _parsed(statement: Statement, source: str) -> tuple[Node | None, ...]:
    """The sides of one statement."""
    from lark.exceptions import UnexpectedToken
    from lark.lexer import Token as LarkToken

    tokens = list(_closed_sums(statement.tokens))
    parser = _parser().parse_interactive("")
    for i, token in enumerate(tokens):
        try:
            parser.feed_token(LarkToken(token.kind, token))
        except UnexpectedToken:
            raise _fault(tokens, i, source) from None
    try:
        sides: tuple[Node | None, ...] = parser.feed_eof()
    except UnexpectedToken:
        raise _fault(tokens, len(tokens), source) from None
    return sides


def _closed_sums(tokens: list[Token]) -> Iterator[Token]:
    """The tokens, with an end after the body of each sum sign."""
    open_: list[str] = []
    for token in tokens:
        if token.kind in _CLOSING or token.kind in ("SIGN", "EQ", "COMMA"):
            while open_ and open_[-1] == "BIGSUM":
                open_.pop()
                yield Token("ENDSUM", token.at)
            if token.kind in _CLOSING and open_:
                open_.pop()
        if token.kind in _OPENING:
            open_.append(token.kind)
        yield token
    for _ in open_:
        yield Token("ENDSUM", tokens[-1].at)


def _fault(tokens: list[Token], i: int, source: str) -> ReadError:
    """The error for a statement that cannot be read, from the first token that does not fit."""
    before = next((t for t in reversed(tokens[:i]) if t.kind != "ENDSUM"), None)
    here = next((t for t in tokens[i:] if t.kind != "ENDSUM"), None)
    at = here.at if here else max(0, len(source.rstrip()) - 1)
    if here and here.kind == "NE":
        return ReadError("this relation cannot be read: only = between formulas is checked", source, at)
    if here and here.kind in ("END", "COMMA", "APART", "STRING"):
        return ReadError(f"unknown character {source[here.at]!r}", source, at)
    if before is None or before.kind in _OPENING or before.kind in ("EQ", "COMMA"):
        if here and here.kind in _JOINING:
            return ReadError("a factor is missing before this", source, at)
        return ReadError("a formula is missing here", source, at)
    if before.kind in _JOINING:
        if here and (here.kind in _JOINING or here.kind == "SIGN"):
            return ReadError("a factor is missing before this", source, at)
        return ReadError("a factor is missing after this", source, before.at)
    if before.kind == "SIGN":
        if here and here.kind in _JOINING:
            return ReadError("a factor is missing before this", source, at)
        return ReadError("a term is missing here", source, at)
    return ReadError("this is not expected here", source, at)


@cache
def _parser() -> Any:
    from lark import Lark, Transformer, v_args
    from lark.lexer import Lexer

    class NoLexer(Lexer):
        """Hands over tokens one by one."""

        def __init__(self, conf: Any) -> None:
            pass

        def lex(self, lexer_state: Any, parser_state: Any = None) -> Iterator[Any]:
            return iter(())

    grammar = (Path(__file__).parent / "grammar.lark").read_text("utf-8")
    builder = v_args(inline=True)(type("Builder", (Transformer,), dict(vars(_Build))))()
    return Lark(grammar, parser="lalr", lexer=NoLexer, transformer=builder, maybe_placeholders=True)


class _Row(list[Node]):
    """Factors still being collected, from left to right, and the operator between them."""

    operator = ""
    at = 0


class _Build:
    """Makes nodes from what the grammar finds; called from the inside out."""

    def sides(self, *sides: Any) -> tuple[Node | None, ...]:
        return tuple(s for s in sides if not (hasattr(s, "type") and s.type == "EQ"))

    def nothing(self) -> None:
        return None

    # sums
    def first_summand(self, node: Node) -> list[tuple[int, Node]]:
        return [(1, node)]

    def first_signed(self, sign: Any, node: Node) -> list[tuple[int, Node]]:
        return [(sign.value.value, node)]

    def add_summand(self, found: list[tuple[int, Node]], sign: Any, node: Node) -> list[tuple[int, Node]]:
        found.append((sign.value.value, node))
        return found

    def close_sum(self, found: list[tuple[int, Node]]) -> Node:
        if len(found) == 1 and found[0][0] == 1:
            return found[0][1]
        signs, summands = zip(*found, strict=True)
        return Sum(signs, summands, summands[0].at)

    # products
    def first_factor(self, node: Node) -> _Row:
        row = _Row([node])
        row.at = node.at
        return row

    def add_factor(self, row: _Row, sign: Any, node: Node) -> _Row:
        if sign.type == "AT" and row.operator == "o":
            row = self.first_factor(self.close_row(row))
        row.append(node)
        return row

    def add_beside(self, row: _Row, node: Node) -> _Row:
        if row.operator == "o":
            row[-1] = Product("", (row[-1], node), row[-1].at)
        else:
            row.append(node)
        return row

    def add_entrywise(self, row: _Row, sign: Any, node: Node) -> _Row:
        if row.operator != "o" and len(row) > 1:
            row = self.first_factor(self.close_row(row))
        row.operator = "o"
        row.append(node)
        return row

    def divide(self, row: _Row, sign: Any, node: Node) -> _Row:
        return self.first_factor(Fraction(self.close_row(row), node, row.at))

    def call_last(self, row: _Row, arguments: tuple[Node, ...]) -> _Row:
        row[-1] = Call(row[-1], arguments, row[-1].at)
        return row

    def close_row(self, row: _Row) -> Node:
        return row[0] if len(row) == 1 else Product("o" if row.operator == "o" else "", tuple(row), row.at)

    def close_tensor(self, row: _Row) -> Node:
        return row[0] if len(row) == 1 else Product("x", tuple(row), row.at)

    def close_dots(self, row: _Row) -> Node:
        return row[0] if len(row) == 1 else Product(".", tuple(row), row.at)

    # factors
    def transposed(self, node: Node, sign: Any) -> Node:
        return Transposed(node, node.at)

    def indexed(self, node: Node, script: Any) -> Node:
        return Indexed(node, script.value.value, node.at)

    def raised(self, node: Node, power: Any) -> Node:
        return Power(node, Number(power.value.value, power.value.at), node.at)

    def power(self, node: Node, sign: Any, exponent: Node) -> Node:
        return Power(node, exponent, node.at)

    def signed_power(self, sign: Any, node: Node) -> Node:
        return node if sign.value.value == 1 else Sum((-1,), (node,), node.at)

    def number(self, token: Any) -> Node:
        return Number(token.value.value, token.value.at)

    def name(self, token: Any) -> Name:
        found: Name = token.value.value
        return found

    def text(self, token: Any) -> Node:
        return Text(token.value.value, token.value.at)

    def inner(self, opening: Any, node: Node, closing: Any) -> Node:
        return node

    def call(self, function: Any, opening: Any, arguments: Any, closing: Any = None) -> Node:
        found = arguments if isinstance(arguments, tuple) else ()
        return Call(function.value.value, found, function.value.at)

    def tuple_of(self, *found: Any) -> tuple[Node, ...]:
        return tuple(n for n in found if not hasattr(n, "type"))

    def fraction(self, frac: Any, *found: Any) -> Node:
        above, below = [n for n in found if not hasattr(n, "type")]
        return Fraction(above, below, frac.value.at)

    def root(self, root: Any, *found: Any) -> Node:
        [inner] = [n for n in found if not hasattr(n, "type")]
        return Call(Name("sqrt", root.value.at), (inner,), root.value.at)

    def big_sum(self, token: Any, body: Node, end: Any) -> Node:
        return BigSum(token.value.value, body, token.value.at)

    def big_product(self, token: Any, body: Node) -> Node:
        return BigSum(token.value.value, body, token.value.at, True)
