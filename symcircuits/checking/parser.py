"""Formulas that somebody wrote, read as they stand: text notation, LaTeX as it is printed here, SymPy expressions.

The result is a sum of raw words: coefficient, score scales, factors with their positions. Types are not checked
here, so that a wrong formula can be read and told what is wrong with it. Sums are multiplied out, with the number
of words counted before. Nothing is ever executed, and no depth of parentheses is too deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from symcircuits.checking.lexer import CONVENTIONS, Letter, Names, RawFactor, ReadError, Token, split_target, tokens
from symcircuits.core.architecture import Architecture
from symcircuits.core.notation import Notation
from symcircuits.core.text import brief
from symcircuits.core.words import Word

__all__ = ["MAX_WORDS", "Formula", "RawWord", "ReadError", "read"]

MAX_TEXT: Final = 2_000_000  # characters
MAX_FACTORS: Final = 1_000  # of one word
MAX_WORDS: Final = 20_000  # multiplied out
MAX_STEPS: Final = 600_000  # of multiplying out
_MAX_COEFFICIENT: Final = 10**18


class RawWord(NamedTuple):
    """One product as it was written: nothing is checked."""

    coefficient: int
    scales: tuple[str, ...]
    factors: tuple[RawFactor, ...]

    @property
    def letters(self) -> tuple[Letter, ...]:
        """The factors without their positions."""
        return tuple(f.letter for f in self.factors)

    @property
    def at(self) -> int:
        """Where its first factor stands."""
        return self.factors[0].at if self.factors else 0

    @property
    def T(self) -> RawWord:
        """The transposed product."""
        flipped = tuple(RawFactor(f.letter.T, f.at) for f in reversed(self.factors))
        return RawWord(self.coefficient, self.scales, flipped)


@dataclass(frozen=True, slots=True)
class Formula:
    """A sum of raw words, and the target that its left-hand side named, if it had one."""

    words: tuple[RawWord, ...]
    target: str | None = None


def read(
    formula: Any, architecture: Architecture, convention: str = "paper", symbols: Mapping[str, str] | None = None
) -> Formula:
    """Read a formula: a string (text notation or LaTeX), a SymPy expression, or a word or term of ours.

    ``convention`` says in which convention it is written, ``symbols`` which symbols have other names there; the letters
    of the result are always in the paper's. Raises :class:`ReadError` with the position where it cannot be read.

    >>> from symcircuits.core.architecture import attention_only
    >>> arch = attention_only((2, 2))
    >>> [word] = read(r"A[L0H1] X_0^{} W_{OV}^{\\mathrm{L0H1}\\,\\mathsf{T}} @ W_U.T", arch).words
    >>> [f.letter.text for f in word.factors], word.factors[1].at
    (['A[L0H1]', 'X0', 'W_OV[L0H1].T', 'W_U.T'], 8)
    >>> len(read("(X0 + A[L0H0] @ X0 @ W_OV[L0H0].T) @ W_U.T", arch).words)
    2
    """
    if convention not in CONVENTIONS:
        raise ValueError(f'convention must be "paper" (or "row") or "transformerlens", not {brief(convention)}')
    notation = Notation(CONVENTIONS[convention], symbols or ())
    if isinstance(formula, str):
        return _read_text(formula, architecture, notation)
    word = formula if isinstance(formula, Word) else getattr(formula, "word", None)
    if isinstance(word, Word):
        letters = [Letter(f.symbol.glyph, f.symbol.label, f.marked) for f in word.fused]
        factors = tuple(RawFactor(letter, i) for i, letter in enumerate(letters))
        return Formula((RawWord(1, word.scales, factors),))
    return Formula(_multiplied(_sympy_tokens(formula, Names(architecture, notation)), ""))


def _read_text(text: str, architecture: Architecture, notation: Notation) -> Formula:
    if len(text) > MAX_TEXT:
        raise ReadError(f"the formula has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    if not text.strip():
        raise ReadError("the formula is empty")
    names = Names(architecture, notation, text)
    target, start = split_target(text, names)
    return Formula(_multiplied(tokens(text, names, start), text), target)


# ------------------------------------------------------------------------------------------ multiplying out
_UNIT: Final = [RawWord(1, (), ())]


@dataclass(slots=True)
class _Level:
    """What stands between two parentheses, so far: the finished summands, the product, the last factor."""

    at: int
    summands: list[RawWord] = field(default_factory=list)
    product: list[RawWord] | None = None
    last: list[RawWord] | None = None
    sign: int = 1
    operator: int | None = None  # where an operator waits for what follows it


class _Multiplier:
    """Tokens put together from left to right, sums multiplied out as they come."""

    def __init__(self, source: str) -> None:
        self.source, self.steps, self.levels = source, 0, [_Level(0)]

    def fault(self, message: str, at: int) -> ReadError:
        """An error at this place."""
        return ReadError(message, self.source, at)

    def take(self, token: Token) -> None:
        """The next token."""
        level, kind = self.levels[-1], token.kind
        if kind == "(":
            self.levels.append(_Level(token.at))
        elif kind == ")":
            if len(self.levels) == 1:
                raise self.fault("this parenthesis was never opened", token.at)
            value = self.finished(token.at)
            self.levels.pop()
            self.operand(value, token.at)
        elif kind == "T":
            assert level.last is not None
            self.count(len(level.last), sum(len(w.factors) for w in level.last), token.at)
            level.last = [w.T for w in level.last]
        elif kind == "*":
            if level.last is None or level.operator is not None:
                raise self.fault("a factor is missing before this", token.at)
            level.operator = token.at
        elif kind in "+-":
            self.sign(token)
        else:
            self.operand([_single(token)], token.at)

    def sign(self, token: Token) -> None:
        """A plus or minus: the summand before it is finished."""
        level = self.levels[-1]
        if level.operator is not None:
            raise self.fault("a factor is missing before this", token.at)
        if level.last is not None:
            self.summand(level, token.at)
            level.sign = 1
        level.sign *= -1 if token.kind == "-" else 1

    def operand(self, value: list[RawWord], at: int) -> None:
        """A factor, or a sum in parentheses."""
        level = self.levels[-1]
        if level.last is not None:
            level.product = self.times(level.product, level.last, at)
        level.last, level.operator = value, None

    def times(self, left: list[RawWord] | None, right: list[RawWord], at: int) -> list[RawWord]:
        """The product, if it is not too long."""
        if left is None or left == _UNIT:
            return right
        n, m = len(left), len(right)
        if n * m > MAX_WORDS:
            raise self.fault(f"multiplied out, the formula up to here has {n * m:,} words; at most {MAX_WORDS:,} "
                             "are read", at)  # fmt: skip
        self.count(n * m, m * sum(len(w.factors) for w in left) + n * sum(len(w.factors) for w in right), at)
        words = [RawWord(a[0] * b[0], a[1] + b[1], a[2] + b[2]) for a in left for b in right]
        longest = max(len(w.scales) + len(w.factors) for w in words)
        if longest > MAX_FACTORS:
            raise self.fault(f"a product of more than {MAX_FACTORS:,} factors is not read", at)
        if any(abs(w.coefficient) > _MAX_COEFFICIENT for w in words):
            raise self.fault(f"a coefficient of more than {_MAX_COEFFICIENT:,} is not read", at)
        return words

    def count(self, words: int, letters: int, at: int) -> None:
        """Account for work before it is done."""
        self.steps += words + letters // 10
        if self.steps > MAX_STEPS:
            raise self.fault("the formula takes too many steps to multiply out", at)

    def summand(self, level: _Level, at: int) -> None:
        """Finish the product at hand."""
        assert level.last is not None
        words = self.times(level.product, level.last, at)
        if len(level.summands) + len(words) > MAX_WORDS:
            raise self.fault(f"the formula has more than {MAX_WORDS:,} words, the most that are read", at)
        if level.sign < 0:
            self.count(len(words), 0, at)
            words = [w._replace(coefficient=-w.coefficient) for w in words]
        if level.summands:
            level.summands += words
        else:
            level.summands = words if words is not level.last or level.sign < 0 else list(words)
        level.product = level.last = None

    def finished(self, at: int) -> list[RawWord]:
        """The value of the innermost level, at its end."""
        level = self.levels[-1]
        if level.operator is not None:
            raise self.fault("a factor is missing after this", level.operator)
        if level.last is None:
            signed = level.summands or level.sign < 0
            raise self.fault("a term is missing here" if signed else "nothing stands here", at)
        self.summand(level, at)
        return level.summands


def _single(token: Token) -> RawWord:
    if token.kind == "number":
        return RawWord(token.value, (), ())
    if token.kind == "scale":
        return RawWord(1, (token.value,), ())
    return RawWord(1, (), (token.value,))


def _multiplied(stream: Iterable[Token], source: str) -> tuple[RawWord, ...]:
    out, last = _Multiplier(source), 0
    for token in stream:
        out.take(token)
        last = token.at
    if len(out.levels) > 1:
        raise out.fault("this parenthesis is never closed", out.levels[-1].at)
    words = out.finished(max(0, len(source.rstrip()) - 1))
    if not all(w.factors for w in words):
        raise out.fault("a number or a scale alone is not a matrix", last)
    return tuple(words)


# ---------------------------------------------------------------------------------------------------- SymPy
def _sympy_tokens(expression: Any, names: Names) -> Iterator[Token]:
    """The tokens of a SymPy expression, without recursion; positions number the factors."""
    from sympy import Basic

    if not isinstance(expression, Basic):
        raise TypeError(
            f"a formula is a string, a SymPy expression, or a term or word, not {type(expression).__name__}"
        )
    stack: list[Any] = [expression]
    at = 0
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield Token(node, at)
            continue
        inner = _opened(node, at, names)
        if inner is None:
            yield _leaf(node, at, names)
            at += 1
        else:
            stack += reversed(inner)


def _opened(node: Any, at: int, names: Names) -> list[Any] | None:
    """What an expression is made of, in order; None for a symbol or number."""
    kind = type(node).__name__
    if kind in ("Add", "MatAdd"):
        return ["(", *(part for i, arg in enumerate(node.args) for part in (["+"] if i else []) + [arg]), ")"]
    if kind in ("Mul", "MatMul"):
        return ["(", *node.args, ")"]
    if kind == "Turned":
        return ["(", *node.args, ")"]
    if kind in ("Transpose", "transpose", "LetterTranspose"):
        return ["(", node.args[0], ")", "T"]
    if kind in ("Pow", "MatPow", "LetterPower"):
        base, exponent = node.args
        if not (getattr(exponent, "is_Integer", False) and 1 <= int(exponent) <= MAX_FACTORS):
            names.fault(f"the power {_cut(node)} (factor {at}) cannot be read", at)
        return ["(", *[base] * int(exponent), ")"]
    return None


def _leaf(node: Any, at: int, names: Names) -> Token:
    kind = type(node).__name__
    if getattr(node, "is_Integer", False):
        if abs(int(node)) > _MAX_COEFFICIENT:
            names.fault(f"a coefficient of more than {_MAX_COEFFICIENT:,} is not read", at)
        return Token("number", at, int(node))
    if kind == "OneMatrix":
        return Token("factor", at, RawFactor(Letter("ones", "", node.shape[1] != 1), at))
    if kind == "MatrixSymbol" or getattr(node, "is_Symbol", False):
        token = names.token(str(node.name), None, False, at)
        if token.kind == "factor" and getattr(node, "is_commutative", False):
            names.fault(f"{_cut(node)} is a commuting Symbol, so SymPy has lost the order of the factors; use "
                        "MatrixSymbol or Symbol(..., commutative=False)", at)  # fmt: skip
        return token
    names.fault(f"{_cut(node)} (factor {at}, {kind}) cannot be read", at)


def _cut(node: Any) -> str:
    try:
        text = str(node) if len(node.args) < 20 else type(node).__name__
    except RecursionError:
        text = type(node).__name__
    return text if len(text) <= 60 else text[:57] + "..."
