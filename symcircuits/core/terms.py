"""One term of an expansion: its name, its word and its conversions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

from symcircuits.core.architecture import Head
from symcircuits.core.notation import ROW, Notation, as_notation, glyphs_of, word_latex, word_text
from symcircuits.core.paths import Path, path_branches, path_factors, path_scales
from symcircuits.core.programs import Readout, rotation
from symcircuits.core.seam import higher
from symcircuits.core.words import Word, transpose

if TYPE_CHECKING:
    from symcircuits.sympy_layer.lambdify import TermFunction

__all__ = ["TYPED", "PrintedTerm", "Term", "composition_of", "readout_notation"]


TYPED: Final = {1: 2, 2: 1}  # by the number of sides: the number of heads from which on the type stays the same


def composition_of(orders: tuple[int, ...]) -> str:
    """The composition type from the number of heads (per side): ``none``, ``V``; ``none``, ``Q``, ``K``, ``QK``.

    >>> composition_of((2,)), composition_of((1, 0)), composition_of((0, 0))
    ('V', 'Q', 'none')
    """
    if len(orders) == 1:
        return "V" if orders[0] >= TYPED[1] else "none"
    return ("Q" if orders[0] else "") + ("K" if orders[1] else "") or "none"


def readout_notation(
    readout: Readout, notation: str | Notation = ROW, symbols: Mapping[str, str] | None = None
) -> Notation:
    """A notation in which no two symbols of a readout are printed alike; raises ValueError, naming two that are."""
    chosen = as_notation(notation, symbols)
    if not chosen.symbols:
        return chosen
    layers = [layer for program in readout.sides for layer in program]
    factors = [f for layer in layers for s in layer.sources for f in s.factors]
    factors += [f for layer in layers for b in layer.branches for f in b.left + b.right]
    multipliers = {name.partition("[")[0] for name in readout.architecture.multipliers}
    return chosen.fitting(glyphs_of(factors) | {"scale"} | multipliers)


class PrintedTerm:
    """What every term can do with its word: print it, change its notation, convert it to SymPy and NumPy."""

    __slots__ = ()
    readout: Readout
    notation: Notation

    @property
    def word(self) -> Word:
        """The term as a checked product of matrix symbols."""
        raise NotImplementedError

    @property
    def orders(self) -> tuple[int, ...]:
        """Number of heads of each path."""
        raise NotImplementedError

    @property
    def order(self) -> int:
        """Number of heads, of both sides together."""
        return sum(self.orders)

    @property
    def composition(self) -> str:
        """``none`` or ``V`` for logits and stream; ``none``, ``Q``, ``K`` or ``QK`` for scores."""
        return composition_of(self.orders)

    @property
    def text(self) -> str:
        """Text notation, e.g. ``A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T``."""
        return word_text(self.word, self.notation)

    def latex(self) -> str:
        """The term as LaTeX (math mode, no delimiters)."""
        return word_latex(self.word, self.notation)

    def written(self, notation: str | Notation = ROW, symbols: Mapping[str, str] | None = None) -> Self:
        """The same term in another notation, with other names for symbols; raises ValueError as ``Notation`` does.

        >>> from symcircuits.core.architecture import attention_only
        >>> from symcircuits.core.expansion import logits
        >>> term = logits(attention_only((1, 1)))[3]
        >>> print(term.written("paper").text)
        (A[L1H0] @ A[L0H0] (x) W_U @ W_OV[L1H0] @ W_OV[L0H0] @ W_E) t
        >>> print(term.written("transformerlens", {"A": "P"}).text)
        P[L1H0] @ P[L0H0] @ X0 @ OV[L0H0] @ OV[L1H0] @ W_U
        """
        return replace(self, notation=readout_notation(self.readout, notation, symbols))  # type: ignore[type-var]

    @property
    def expr(self) -> Any:
        """The term as a SymPy product of noncommutative symbols, with ``W_OV`` and ``W_QK`` one symbol each.

        >>> from symcircuits.core.architecture import attention_only
        >>> from symcircuits.core.expansion import logits
        >>> logits(attention_only((1,)))[1].expr
        A_L0H0*t*transpose(W_E)*transpose(W_OV_L0H0)*transpose(W_U)
        """
        return self.as_expr()

    def as_expr(self, letters: str = "OV") -> Any:
        """The same with the symbols of ``"OV"``, or of ``"factors"``: ``W_O``, ``W_V``, ``W_Q``, ``W_K``.

        >>> from symcircuits.core.architecture import attention_only
        >>> from symcircuits.core.expansion import stream
        >>> stream(attention_only((1,)))[1].as_expr("factors")
        A_L0H0*t*transpose(W_E)*transpose(W_V_L0H0)*transpose(W_O_L0H0)
        """
        return higher(None, "Term.as_expr")(self.word, letters)

    def matrix_expr(self, letters: str = "OV", **sizes: Any) -> Any:
        """The term as a SymPy matrix expression; its sizes are positive integer symbols (``n_context``, ...) or given.

        >>> from symcircuits.core.architecture import attention_only
        >>> from symcircuits.core.expansion import logits
        >>> logits(attention_only((1,)))[1].matrix_expr(n_context=7).shape
        (7, d_vocab_out)
        """
        return higher(None, "Term.matrix_expr")(self.word, letters, sizes)

    def lambdify(self) -> TermFunction:
        """The term as a NumPy function of named arrays (listed in ``.arguments``), which accepts batches."""
        function: TermFunction = higher(None, "Term.lambdify")(self.word)
        return function

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    # Protocols of SymPy: printing, conversion to an expression, and addition.
    def _sympy_(self) -> Any:
        return self.expr

    def _latex(self, printer: Any) -> str:
        return self.latex()

    def _sympystr(self, printer: Any) -> str:
        return str(printer.doprint(self.expr))

    def _numpycode(self, printer: Any, **settings: Any) -> str:
        return str(printer.doprint(self.expr))  # raises: the symbols have no shape

    def __add__(self, other: Any) -> Any:
        return self.expr + other

    def __radd__(self, other: Any) -> Any:
        return other + self.expr

    def __sub__(self, other: Any) -> Any:
        return self.expr - other

    def __rsub__(self, other: Any) -> Any:
        return other - self.expr

    def __neg__(self) -> Any:
        return -self.expr

    def __mul__(self, other: Any) -> Any:
        return self.expr * other

    def __rmul__(self, other: Any) -> Any:
        return other * self.expr


@dataclass(frozen=True, slots=True)
class Term(PrintedTerm):
    """One term of an expansion: a path to the logits or stream, or a pair of paths (query, key) to a score.

    ``notation`` applies to ``text`` and ``latex()``; terms that differ in it alone are equal.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import scores
    >>> term = scores(attention_only((3, 3)), "L1H0")[1]
    >>> term.label, term.composition, term.order, term.orders
    ('embed | embed -> L0H0', 'K', 1, (0, 1))
    >>> print(term.text)
    scale[L1H0] * X0 @ W_QK[L1H0] @ W_OV[L0H0] @ X0.T @ A[L0H0].T
    """

    readout: Readout
    paths: tuple[Path, ...]
    notation: Notation = field(default=ROW, compare=False, kw_only=True)

    @property
    def orders(self) -> tuple[int, ...]:
        """Number of heads of each path: ``(order,)``, or ``(query, key)``."""
        return tuple(p.order for p in self.paths)

    @property
    def sources(self) -> tuple[str, ...]:
        """The name of each path's source."""
        return tuple(p.source.name for p in self.paths)

    @property
    def heads(self) -> tuple[tuple[Head, ...], ...]:
        """The heads of each path, earliest first."""
        return tuple(p.heads for p in self.paths)

    @property
    def label(self) -> str:
        """``embed -> L0H1 -> L1H0``; for scores ``query path | key path``."""
        return " | ".join(p.label for p in self.paths)

    @property
    def softmax_invisible(self) -> bool:
        """Whether it is constant along the keys, so softmax ignores it.

        It is if the key side starts from a bias and goes through no norm: ``b_K``, and ``b_O``, ``b_V`` because the
        rows of the patterns on their paths sum to one (never without softmax, nor with a soft cap on the scores, which
        the architecture of the model records). A norm scales every key by its own ``1 / sigma``, and rotary positions
        rotate every key by its own angle.
        """
        arch = self.readout.architecture
        if len(self.paths) != 2 or not self.paths[1].source.is_bias or arch.positions == "rotary":
            return False
        if not arch.shift_invariant:
            return False
        branches = path_branches(self.readout.sides[1], self.paths[1])
        return not any(f.symbol.glyph == "D" for b in branches for f in b.left)

    @property
    def word(self) -> Word:
        """The term as a checked product of matrix symbols."""
        sides = [path_factors(program, p) for program, p in zip(self.readout.sides, self.paths, strict=True)]
        scales: tuple[str, ...] = (self.readout.scale,) if self.readout.scale else ()
        if self.readout.architecture.multipliers:
            pairs = zip(self.readout.sides, self.paths, strict=True)
            scales += tuple(s for program, p in pairs for s in path_scales(program, p))
        if len(sides) == 1:
            return Word(sides[0], scales)
        head = self.readout.head
        turned = rotation(self.readout.architecture, head) if head is not None else ()
        return Word((*sides[0], *turned, *transpose(sides[1])), scales)

    def __repr__(self) -> str:
        text = self.text
        return f"<Term {self.label} ({self.composition}): {text}>" if len(text) <= 200 else f"<Term {self.label}>"
