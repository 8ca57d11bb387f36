"""Spaces, indices, matrix symbols and words: types that reject invalid products.

Conventions (row convention): a residual stream is ``X: [n_context, d_model]``, one row per token; a head acts
as ``A X W_OV^T``; its scores are ``X W_QK X^T``. Every matrix knows its row and its column index. An index
is a space and a side: a *vector* is written to the space, a *reader* (a dual vector) reads it.
Rule 1 of the three that words obey (the others: :mod:`symcircuits.core.rules`) is about products: two
indices contract when they belong to the same space and one is a vector, the other a reader; context and model
indices also carry the point of the stream, and a reader at point r reads only what was written at a point s <= r
(a head of layer l reads at l - 1 and writes at l). Source: own derivation from the definition of the transformer.

Scalars precede a word: the score scale, named by the label of its head, and multipliers, each by its name
(``m_E`` of the embedding, ``r[L0]`` and ``r[M0]`` of what the attention and the MLP of a layer add, ``m_U`` of the
logits): a word carries each once for every symbol that requires it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from symcircuits.core.symbols import SYMMETRIC

__all__ = [
    "Factor", "IllTyped", "Index", "Space", "Symbol", "Word",
    "argument_of", "contraction_fault", "fuse", "is_multiplier", "multipliers_of",
    "product", "quoted", "scalar_argument", "scalar_order", "unfuse",
]  # fmt: skip


class IllTyped(ValueError):
    """A product or word that violates a rule.

    ``rule`` is the rule (1 product, 2 word, 3 score); ``left`` and ``right`` are the two factors that met, as text.

    >>> from symcircuits.core.architecture import Head, attention_only
    >>> from symcircuits.core.programs import pattern
    >>> earlier, later = Factor(pattern(Head(0, 1))), Factor(pattern(Head(1, 0)))
    >>> try:
    ...     Word((earlier, later))
    ... except IllTyped as fault:
    ...     print(fault.rule, "|", fault.left, "|", fault.right)
    1 | A[L0H1] | A[L1H0]
    """

    def __init__(self, message: str, rule: int, left: str = "", right: str = "") -> None:
        super().__init__(message)
        self.rule, self.left, self.right = rule, left, right


@dataclass(frozen=True, slots=True)
class Space:
    """A vector space: its kind, and its owner if every head (or layer) has its own.

    >>> str(Space("qk", "L0H1"))
    'query/key space of L0H1'
    """

    kind: str
    owner: str = ""

    def __str__(self) -> str:
        return _SPACES[self.kind] + (f" of {self.owner}" if self.owner else "")

    def readable_by(self, reader: Space) -> bool:
        """Whether a reader of space ``reader`` accepts a vector of this space."""
        alike = not self.owner or self.owner == reader.owner
        return self == reader or (alike and (self.kind, reader.kind) in _ALSO_READS)


_SPACES = {
    "context": "context",
    "vocab_in": "input vocabulary",
    "vocab_out": "output vocabulary",
    "model": "model space",
    "normed_context": "context after the norm",
    "normed_model": "model space after the norm",
    "centred_model": "model space after centring",
    "scaled_model": "model space, scaled by the norm",
    "attention_input": "query/key input",
    "normed_input": "query/key input after the norm",
    "qk": "query/key space",
    "raw_qk": "query/key space before the norm",
    "scaled_qk": "query/key space after the norm",
    "query": "query space",
    "key": "key space",
    "ov": "value space",
    "mlp": "hidden space of the MLP",
    "readout": "space of the readout",
    "one": "one-dimensional space",
}
# In a shortformer layer queries and keys read the stream plus the position; values read the stream alone.
_ALSO_READS = {
    ("model", "attention_input"), ("model", "scaled_model"), ("normed_model", "normed_input"),
}  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)?")


@dataclass(frozen=True, slots=True)
class Index:
    """One side of a matrix: a space, vector or reader, and the point of the stream if that matters.

    ``mlp``: a reader at that point reads the input of the MLP between it and the point before, after the heads; a
    vector is written by that MLP, or after it.
    """

    space: Space
    reader: bool = False
    point: int | None = None
    mlp: bool = False

    def __str__(self) -> str:
        where = "" if self.point is None else (" that reads at" if self.reader else " written at")
        point = "" if self.point is None else f" point {self.point}"
        return f"a {'reader' if self.reader else 'vector'} of the {self.space}{where}{point}"


@dataclass(frozen=True, slots=True, repr=False)
class Symbol:
    """A named matrix, e.g. ``W_OV[L0H1]``: glyph, label, row and column index.

    ``branch`` is the branch it names in a word (rule 2), if any; ``parts`` the product it abbreviates;
    ``entrywise`` the words whose entrywise product it is (a pattern without softmax, the inside of a bilinear MLP).
    ``own``: the glyph is a name given by the user, to a readout (``"read"``) or to a source (``"part"``).
    """

    glyph: str
    label: str
    row: Index
    col: Index
    branch: str = ""
    parts: tuple[Factor, ...] = ()
    entrywise: tuple[Word, ...] = ()
    own: str = ""

    def __repr__(self) -> str:
        return f"<Symbol {self.text}>"

    @property
    def text(self) -> str:
        """The name in text notation: ``W_OV[L0H1]``."""
        if self.entrywise:
            return "(" + " * ".join(w.enclosed for w in self.entrywise) + ")"
        if self.own:
            return quoted(self.glyph)
        return f"{self.glyph}[{self.label}]" if self.label else self.glyph

    @property
    def argument(self) -> str:
        """The name as a Python identifier, used as keyword argument: ``W_OV_L0H1``."""
        if self.own:
            return f"{self.own}_{argument_of(self.glyph)}"
        return f"{self.glyph}_{self.label}" if self.label else self.glyph

    @property
    def T(self) -> Factor:
        """The transposed factor."""
        return Factor(self, True)


@dataclass(frozen=True, slots=True, repr=False)
class Factor:
    """A symbol, transposed or not, as it occurs in a word."""

    symbol: Symbol
    transposed: bool = False

    def __repr__(self) -> str:
        return f"<Factor {self.text}>"

    @property
    def row(self) -> Index:
        """The index to the left."""
        return self.symbol.col if self.transposed else self.symbol.row

    @property
    def col(self) -> Index:
        """The index to the right."""
        return self.symbol.row if self.transposed else self.symbol.col

    @property
    def text(self) -> str:
        """Text notation: ``W_OV[L0H1].T``; the transpose of a symmetric matrix is not marked."""
        return self.symbol.text + (".T" if self.marked else "")

    @property
    def marked(self) -> bool:
        """Whether the transpose is marked: not if the matrix is symmetric."""
        return self.transposed and self.symbol.glyph not in SYMMETRIC

    @property
    def T(self) -> Factor:
        """The transpose."""
        return Factor(self.symbol, not self.transposed)


def quoted(name: str) -> str:
    """A user-supplied name in text notation: in quotation marks if it is more than letters and digits.

    >>> quoted("probe"), quoted("feature 12")
    ('probe', '"feature 12"')
    """
    if _PLAIN.fullmatch(name):
        return name
    inner = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def argument_of(name: str) -> str:
    """A user-supplied name as part of an identifier: invalid characters become ``_``.

    >>> argument_of("feature 12")
    'feature_12'
    """
    return "".join(c if f"_{c}".isidentifier() else "_" for c in name)


def transpose(factors: Iterable[Factor]) -> tuple[Factor, ...]:
    """The factors of the transposed product: reversed, each transposed."""
    return tuple(f.T for f in reversed(tuple(factors)))


def contraction_fault(left: Index, right: Index) -> str:
    """Why two indices do not contract; empty if they do (rule 1)."""
    vector, reader = (right, left) if left.reader else (left, right)
    if left.reader == right.reader:
        kind = "readers" if left.reader else "vectors"
        return f"both are {kind}; a product needs one vector and one reader (is a transpose missing or extra?)"
    if not vector.space.readable_by(reader.space):
        return f"a reader of the {reader.space} cannot read a vector of the {vector.space}"
    if vector.point is not None and reader.point is not None and vector.point > reader.point:
        return (
            f"a reader at point {reader.point} of the stream cannot read what is written at point "
            f"{vector.point} (are the layers reversed, or the same?)"
        )
    if vector.mlp and reader.mlp and vector.point is not None and vector.point == reader.point:
        return f"the MLP before point {reader.point} of the stream cannot read its own output"
    return ""


def product(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """The factors, checked: every neighbouring pair contracts (rule 1); otherwise raises :class:`IllTyped`."""
    for left, right in pairwise(factors):
        fault = contraction_fault(left.col, right.row)
        if fault:
            raise IllTyped(
                f"{left.text} @ {right.text} cannot be multiplied: {left.text} offers {left.col}, "
                f"{right.text} offers {right.row}; {fault}. Rule 1 (products): same space, one vector and "
                "one reader, and nothing is read before it is written.",
                1, left.text, right.text,
            )  # fmt: skip
    return tuple(factors)


def unfuse(factors: Iterable[Factor]) -> tuple[Factor, ...]:
    """Abbreviations written out: ``W_OV`` as ``W_O @ W_V``, ``W_QK`` as ``W_Q.T @ W_K``, ``X0`` as ``t @ W_E.T``."""
    out: list[Factor] = []
    for f in factors:
        parts = f.symbol.parts
        out.extend((transpose(parts) if f.transposed else parts) if parts else (f,))
    return tuple(out)


def fuse(factors: Iterable[Factor]) -> tuple[Factor, ...]:
    """The inverse of :func:`unfuse`: neighbouring factors are abbreviated if possible."""
    out: list[Factor] = []
    for f in unfuse(factors):
        pair = _abbreviation(out[-1], f) if out else None
        if pair is None:
            out.append(f)
        else:
            out[-1] = pair
    return tuple(out)


def _abbreviation(a: Factor, b: Factor) -> Factor | None:
    glyphs = (a.symbol.glyph, a.transposed, b.symbol.glyph, b.transposed)
    if glyphs == ("t", False, "W_E", True):
        return Factor(Symbol("X0", "", a.row, b.col, parts=(a, b)))
    if glyphs == ("W_E", False, "t", True):
        return Factor(Symbol("X0", "", b.col, a.row, parts=(b.T, a.T)), True)
    if glyphs == ("W_V", True, "W_O", True) and a.symbol.row.space == b.symbol.col.space:
        return Factor(ov_symbol(b.symbol, a.symbol), True)
    if glyphs == ("W_O", False, "W_V", False) and a.symbol.col.space == b.symbol.row.space:
        return Factor(ov_symbol(a.symbol, b.symbol))
    if glyphs == ("W_Q", True, "W_K", False) and a.symbol.row.space == b.symbol.row.space:
        return Factor(Symbol("W_QK", a.symbol.label, a.row, b.col, parts=(a, b)))
    if glyphs == ("W_K", True, "W_Q", False) and a.symbol.row.space == b.symbol.row.space:
        return Factor(Symbol("W_QK", b.symbol.label, b.symbol.col, a.symbol.col, parts=(b.T, a.T)), True)
    return None


def ov_symbol(w_o: Symbol, w_v: Symbol) -> Symbol:
    """``W_OV = W_O W_V`` of a head, ``[d_model, d_model]``."""
    return Symbol("W_OV", w_o.label, w_o.row, w_v.col, branch=w_o.branch, parts=(Factor(w_o), Factor(w_v)))


def is_multiplier(scalar: str) -> bool:
    """Whether a scalar is a multiplier, not a score scale."""
    return scalar[:2] in ("m_", "r[")


def scalar_argument(scalar: str) -> str:
    """The name of a scalar as a Python identifier: ``scale_L1H0``, ``m_E``, ``r_L0``."""
    return scalar.replace("[", "_").removesuffix("]") if is_multiplier(scalar) else f"scale_{scalar}"


def scalar_order(scalar: str) -> tuple[int, int, str]:
    """The sort key of scalars: score scales, ``m_E``, ``r`` layer by layer, ``m_U``."""
    layer = int(scalar[3:-1]) if scalar[:2] == "r[" else 0
    return {"m_E": 1, "m_U": 3}.get(scalar, 2 if scalar[:2] == "r[" else 0), layer, scalar


def multipliers_of(factors: Iterable[Factor], there: Iterable[str]) -> tuple[str, ...]:
    """The multipliers, of those present, that the symbols of a finished word require, in order.

    ``t`` requires ``m_E``, a pattern ``A[L0H1]`` and ``b_O[L0]`` require ``r[L0]``, ``mlp[L0]`` (or, multiplied out,
    ``W_out[L0]`` or ``b_out[L0]``) requires ``r[M0]``, ``W_U`` and ``b_U`` require ``m_U``.
    """
    brought = []
    for f in unfuse(factors):
        layer = f.symbol.label[1:].partition("H")[0]
        mlp, heads = f"r[M{layer}]", f"r[L{layer}]"
        name = {
            "t": "m_E", "A": heads, "b_O": heads, "mlp": mlp, "W_out": mlp, "b_out": mlp, "W_U": "m_U", "b_U": "m_U",
        }.get(f.symbol.glyph, "")  # fmt: skip
        brought += [name] if name in there else []
    return tuple(sorted(brought, key=scalar_order))


@dataclass(frozen=True, slots=True, repr=False)
class Word:
    """A product of factors in order, with the scalars in front of it: score scales and multipliers.

    The constructor checks rule 1. Words are compared as products: ``W_OV`` and ``W_O @ W_V`` are equal, and
    scalars commute.

    >>> from symcircuits.core.architecture import Head
    >>> from symcircuits.core.programs import embedding, pattern
    >>> Word((Factor(pattern(Head(0, 1))), *embedding())).text
    'A[L0H1] @ X0'
    """

    factors: tuple[Factor, ...]
    scales: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.factors:
            raise IllTyped("a word needs at least one factor", 1)
        try:
            factors = product(unfuse(self.factors))
        except IllTyped:
            product(self.factors)  # the fault in the factors as written, if it is visible there
            raise
        object.__setattr__(self, "factors", factors)
        if len(self.scales) > 1:
            object.__setattr__(self, "scales", tuple(sorted(self.scales, key=scalar_order)))

    def __repr__(self) -> str:
        return f"<Word {self.text}>"

    @property
    def row(self) -> Index:
        """The index to the left of the whole product."""
        return self.factors[0].row

    @property
    def col(self) -> Index:
        """The index to the right of the whole product."""
        return self.factors[-1].col

    @property
    def fused(self) -> tuple[Factor, ...]:
        """The factors with ``X0``, ``W_OV`` and ``W_QK`` abbreviated."""
        return fuse(self.factors)

    @property
    def text(self) -> str:
        """Text notation, e.g. ``A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T``."""
        return "".join(f"{_scalar(s)} * " for s in self.scales) + " @ ".join(f.text for f in self.fused)

    @property
    def enclosed(self) -> str:
        """Its text as a factor of an entrywise product."""
        return self.text if len(self.fused) == 1 and not self.scales else f"({self.text})"

    @property
    def T(self) -> Word:
        """The transposed word."""
        return Word(transpose(self.factors), self.scales)


def _scalar(scalar: str) -> str:
    return scalar if is_multiplier(scalar) else f"scale[{scalar}]"
