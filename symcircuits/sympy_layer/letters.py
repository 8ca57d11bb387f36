"""Letters in SymPy: made from typed factors, with two sets of symbols and in two forms, and read back by their names.

A letter is a noncommutative :class:`LetterSymbol` named like its argument (``A_L0H1``), or a shaped ``MatrixSymbol``
of that name. ``letters="OV"`` writes ``W_OV`` and ``W_QK``, ``"factors"`` writes ``W_O W_V`` and
``W_Q^T W_K``. Nothing here knows which paths exist. SymPy is imported with this module, which is imported on use.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, NoReturn, Protocol, final

from sympy import (
    Add,
    Expr,
    HadamardProduct,
    Indexed,
    IndexedBase,
    Integer,
    MatAdd,
    MatMul,
    MatrixExpr,
    MatrixSymbol,
    Mul,
    OneMatrix,
    Pow,
    S,
    Symbol,
    Transpose,
    transpose,
)

from symcircuits.core.architecture import Architecture
from symcircuits.core.notation import letter_latex
from symcircuits.core.symbols import ABBREVIATIONS, ANY_OWNER, LETTERS, OWNERS, SYMMETRIC
from symcircuits.core.text import as_whole, brief, shown
from symcircuits.core.words import Factor, Index, Word, fuse, quoted, scalar_argument, unfuse
from symcircuits.core.words import Symbol as TypedSymbol

__all__ = [
    "FORMS", "SIZES", "SPELLINGS", "AsIndexed", "AsMatrices", "AsSymbols", "Form", "IndexedLetter",
    "LetterPower", "LetterSymbol", "LetterTranspose", "Names", "Read", "Turned", "check_choice", "letter_named",
    "shape_of", "size_of", "spelled",
]  # fmt: skip

SPELLINGS: Final = ("OV", "factors")
FORMS: Final = ("symbols", "matrix")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """The value, if it is one of the choices; otherwise raises ValueError.

    >>> check_choice("letters", "OV", SPELLINGS)
    'OV'
    """
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {shown(value)}")
    return str(value)


def spelled(factors: Iterable[Factor], letters: str = "OV") -> tuple[Factor, ...]:
    """The factors in a set of symbols: ``W_OV``, ``W_QK`` as one symbol each, or written out; ``X0`` is ``t W_E^T``.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.programs import readout
    >>> right = readout(attention_only((1,)), "logits").sides[0][1].branches[0].right
    >>> [f.text for f in spelled(right)], [f.text for f in spelled(right, "factors")]
    (['W_OV[L0H0].T'], ['W_V[L0H0].T', 'W_O[L0H0].T'])
    """
    if check_choice("letters", letters, SPELLINGS) == "factors":
        return unfuse(factors)
    return tuple(g for f in fuse(factors) for g in (unfuse((f,)) if f.symbol.glyph == "X0" else (f,)))


# ------------------------------------------------------------------------------------------- names of letters
class Named(NamedTuple):
    """The parts of a letter's name: its glyph and its label; ``own``: the name was given by the user."""

    glyph: str
    label: str = ""
    own: bool = False

    @property
    def text(self) -> str:
        """Text notation: ``W_OV[L0H1]``."""
        return f"{self.glyph}[{self.label}]" if self.label else self.glyph

    @property
    def is_number(self) -> bool:
        """Whether it is a scale or a multiplier."""
        return not self.own and LETTERS[self.glyph].axes is None

    @property
    def symmetric(self) -> bool:
        """Whether it is equal to its transpose: a symmetric matrix, or a number."""
        return self.is_number or self.glyph in SYMMETRIC


@cache
def letter_named(name: str) -> Named | None:
    """The letter of that name, an argument (``W_OV_L0H1``) or in text notation (``W_OV[L0H1]``); None if there is none.

    >>> letter_named("gain_finalL0"), letter_named("W_OV[L0H1]").text, letter_named("W_OV"), letter_named("X_1")
    (Named(glyph='gain', label='finalL0', own=False), 'W_OV[L0H1]', None, None)
    """
    plain = {"X_0": "X0"}.get(name, re.sub(r"\[(\w+)\]$", r"_\1", name))
    found = re.fullmatch(rf"(\w+?)_({ANY_OWNER})", plain)
    glyph, label = found.groups() if found else (plain, "")
    letter = LETTERS.get(glyph)
    if letter is None or not re.fullmatch(OWNERS[letter.label], label):
        return None
    return Named(glyph, label)


def _printed(name: str) -> Named:
    """The letter as it is printed: a user's own name if no other letter has it."""
    own = re.sub(r"\\(.)", r"\1", name[1:-1]) if name[:1] == '"' == name[-1:] else name
    return letter_named(name) or Named(own, own=True)


# ------------------------------------------------------------------------------------ the classes of letters
class _Real:
    """The common base of letters and their transposes: all consist of real numbers."""

    __slots__ = ()

    def _eval_conjugate(self) -> Any:
        return self

    def _eval_adjoint(self) -> Any:
        return transpose(self)


class LetterSymbol(_Real, Symbol):  # type: ignore[misc]
    """A letter as a SymPy symbol, with the name of its argument; matrices do not commute, scales and multipliers do.

    It prints in LaTeX like the formulas of this package, its transpose too, and symmetric matrices are
    their own transpose. ``diff`` by it is the derivative in the direction of the identity (letters have no shape).
    ``lambdify`` raises on it: NumPy would multiply entry by entry instead of taking a matrix product.

    >>> from sympy import latex, transpose
    >>> a, d = LetterSymbol("W_OV_L0H1"), LetterSymbol("D_L0")
    >>> transpose(a * d), a.is_commutative, LetterSymbol("scale_L1H0").is_commutative
    (D_L0*transpose(W_OV_L0H1), False, True)
    >>> print(latex(transpose(a)))
    W_{OV}^{\\mathrm{L0H1}\\,\\mathsf{T}}
    """

    __slots__ = ()

    def __new__(cls, name: str, **assumptions: Any) -> Any:
        assumptions.setdefault("commutative", _printed(name).is_number)
        return super().__new__(cls, name, **assumptions)

    def _eval_transpose(self) -> Any:
        return LetterTranspose(self)

    def _eval_power(self, power: Any) -> Any:
        return LetterPower(self, power) if self.is_commutative and power.is_Integer and power > 1 else None

    def _latex(self, printer: Any) -> str:
        return _letter_latex(self.name, False)

    def _refused(self, printer: Any, **settings: Any) -> NoReturn:
        raise ValueError(
            f"{self.name} is a symbol without shape, whose product NumPy would take entry by entry: use .lambdify() of "
            "a term or an expansion, or lambdify the shaped expression (matrix_expr(), or symbolic(..., form='matrix'))"
        )

    _numpycode = _scipycode = _jaxcode = _cupycode = _torchcode = _tensorflowcode = _refused
    _pythoncode = _mpmathcode = _numexprcode = _ccode = _refused


def _letter_latex(name: str, transposed: bool) -> str:
    found = _printed(name)
    return letter_latex(found.glyph, found.label, transposed)


class LetterPower(Pow):  # type: ignore[misc]
    """A power of a scale or multiplier, printed as a product, like the formulas of this package.

    >>> from sympy import latex
    >>> m = LetterSymbol("m_E")
    >>> latex(m * m), m**2 / m, (m**2).subs(m, 3)
    ('m_E m_E', m_E, 9)
    """

    def __new__(cls, base: Any, power: Any, evaluate: bool | None = None) -> Any:
        if not (isinstance(base, LetterSymbol) and power.is_Integer and power > 1):
            return Pow(base, power)
        made = Expr.__new__(cls, base, power)
        made.is_commutative = True
        return made

    def _latex(self, printer: Any) -> str:
        return " ".join([str(printer._print(self.args[0]))] * int(self.args[1]))


class IndexedLetter(_Real, Indexed):  # type: ignore[misc]
    """The letter of one head of a layer, with the head as an index: ``A_L0[h_1]``; at a number it is ``A_L0H3``.

    >>> from sympy import IndexedBase, Symbol
    >>> base, h = IndexedBase("A_L0", commutative=False), Symbol("h_1", integer=True)
    >>> IndexedLetter(base, h), IndexedLetter(base, h).subs(h, 3), IndexedLetter(base, h).is_commutative
    (A_L0[h_1], A_L0H3, False)
    """

    def __new__(cls, base: Any, index: Any) -> Any:
        index = S(index)
        if index.is_Integer:
            if index < 0:
                raise ValueError(f"heads are counted from 0, not {index}, as in {base}[{index}]")
            return LetterSymbol(f"{base}H{index}")
        return super().__new__(cls, base, index)

    def _eval_transpose(self) -> Any:
        return LetterTranspose(self)

    def _latex(self, printer: Any, transposed: bool = False) -> str:
        found = _printed(f"{self.base}H0")
        index = str(printer._print(self.indices[0]))
        scripts = [index, r"\mathsf{T}"] if transposed else [index]
        return letter_latex(found.glyph, "", False) + "^{" + r"\,".join(scripts) + "}"

    _refused = LetterSymbol._refused
    _numpycode = _scipycode = _jaxcode = _cupycode = _torchcode = _tensorflowcode = _refused
    _pythoncode = _mpmathcode = _numexprcode = _ccode = _refused


class LetterTranspose(_Real, transpose):  # type: ignore[misc]
    """The transpose of a letter, printed as such; for anything substituted for the letter, SymPy's own.

    >>> from sympy import latex
    >>> print(latex(LetterTranspose(LetterSymbol("W_U"))), LetterTranspose(LetterSymbol("C")))
    W_U^{\\mathsf{T}} C
    """

    @classmethod
    def eval(cls, arg: Any) -> Any:
        if isinstance(arg, LetterSymbol):
            return arg if _printed(arg.name).symmetric else None
        if isinstance(arg, IndexedLetter):
            return arg if _printed(f"{arg.base}H0").symmetric else None
        return transpose(arg)

    def _sympystr(self, printer: Any) -> str:
        return f"transpose({printer._print(self.args[0])})"

    def _eval_derivative(self, by: Any) -> Any:
        return transpose(self.args[0].diff(by))

    def _latex(self, printer: Any, exp: Any = None) -> str:
        letter = self.args[0]
        if isinstance(letter, IndexedLetter):
            text = letter._latex(printer, transposed=True)
        else:
            text = _letter_latex(letter.name, True)
        return text if exp is None else rf"\left({text}\right)^{{{exp}}}"


class Turned(MatrixExpr):  # type: ignore[misc]
    """``Turned(M, R)``: row i of a matrix times the i-th matrix of ``R [n_context, d_head, d_head]``."""

    matrix = property(lambda self: self.args[0])
    rotations = property(lambda self: self.args[1])
    shape = property(lambda self: self.args[0].shape)

    def __new__(cls, matrix: Any, rotations: Any) -> Any:
        return super().__new__(cls, matrix, rotations)

    def _numpycode(self, printer: Any) -> str:
        rows, rotations = printer._print(self.matrix), printer._print(self.rotations)
        return f"(({rows})[..., None, :] @ {rotations})[..., 0, :]"

    def _sympystr(self, printer: Any) -> str:
        return f"Turned({printer._print(self.matrix)}, {printer._print(self.rotations)})"

    def _latex(self, printer: Any) -> str:
        rotations = re.sub(r"\}$", r", i}", printer._print(self.rotations))
        return rf"\left({printer._print(self.matrix)}\right)_{{i}} {rotations}"


# --------------------------------------------------------------------------------------------- sizes of matrices
SIZES: Final = {
    "context": "n_context",
    "model": "d_model",
    "attention_input": "d_model",
    "normed_context": "n_context",
    "normed_model": "d_model",
    "centred_model": "d_model",
    "scaled_model": "d_model",
    "normed_input": "d_model",
    "vocab_in": "d_vocab",
    "vocab_out": "d_vocab_out",
    "qk": "d_head",
    "raw_qk": "d_head",
    "scaled_qk": "d_head",
    "query": "d_head",
    "key": "d_head",
    "ov": "d_head",
    "mlp": "d_mlp",
    "readout": "n_directions",
    "one": "1",
}
_OWNED: Final = ("qk", "raw_qk", "scaled_qk", "query", "key", "ov", "mlp")  # spaces whose size is their owner's


def size_of(index: Index) -> str:
    """The name of an index's size: ``d_model``, ``d_head_L0H1``, or ``1``."""
    name = SIZES[index.space.kind]
    return f"{name}_{index.space.owner}" if index.space.kind in _OWNED and index.space.owner else name


def shape_of(symbol: TypedSymbol) -> tuple[str, ...]:
    """The names of the sizes of rows and columns."""
    return (size_of(symbol.row), size_of(symbol.col))


def _given_sizes(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The given sizes, checked: known names, whole numbers from 1 (or SymPy's integer symbols)."""
    known = sorted({size for size in SIZES.values() if size != "1"})
    for name, value in sizes.items():
        if name not in known and not re.fullmatch(r"d_head_L\d+[HG]\d+|d_mlp_L\d+", name):
            raise ValueError(f"there is no size {name!r}; the sizes are {', '.join(known)}, d_head_L0H1, ...")
        number = as_whole(value)
        if (number is None or number < 1) and getattr(value, "is_integer", None) is not True:
            raise ValueError(f"size {name} must be a whole number, 1 or more, not {shown(value)}")
    return dict(sizes)


# ----------------------------------------------------------------------------------------------- the two forms
class Form(Protocol):
    """How formulas are written: letters, numbers, products, sums and transposes."""

    spelling: str

    def letter(self, factor: Factor) -> Any:
        """A factor, transposed if it is."""

    def scalar(self, name: str) -> Any:
        """The symbol of a scale or multiplier."""

    def product(self, scales: Iterable[str], values: Iterable[Any]) -> Any:
        """The product in order, preceded by the scalars of these names; nothing is multiplied out."""

    def add(self, values: Sequence[Any]) -> Any:
        """The sum."""

    def transposed(self, value: Any) -> Any:
        """The transpose."""

    def scored(self, scales: Iterable[str], sides: Sequence[Any], turned: Sequence[Factor]) -> Any:
        """``scale query R key^T``."""

    def word(self, word: Word) -> Any:
        """A word, in its order."""


@final
class AsSymbols:
    """Formulas in noncommutative symbols, which SymPy adds, multiplies out and transposes.

    >>> from symcircuits.core.words import Word
    >>> from symcircuits.core.programs import embedding
    >>> AsSymbols().word(Word(embedding()))
    t*transpose(W_E)
    """

    def __init__(self, spelling: str = "OV") -> None:
        self.spelling = check_choice("letters", spelling, SPELLINGS)
        self._known: dict[Factor, Any] = {}

    def letter(self, factor: Factor) -> Any:
        """The symbol of a factor; a user's own name is used as it is written."""
        found = self._known.get(factor)
        if found is None:
            symbol = factor.symbol
            if symbol.entrywise:
                raise ValueError(
                    f"{brief(symbol.text)} is an entrywise product, which has no symbol of its own: use matrix_expr()"
                )
            found = LetterSymbol(symbol.text if symbol.own else symbol.argument)
            self._known[factor] = found = transpose(found) if factor.marked else found
        return found

    def scalar(self, name: str) -> Any:
        """See :class:`Form`."""
        return LetterSymbol(scalar_argument(name))

    def product(self, scales: Iterable[str], values: Iterable[Any]) -> Any:
        """See :class:`Form`."""
        return Mul(*map(self.scalar, scales), *values)

    def add(self, values: Sequence[Any]) -> Any:
        """See :class:`Form`."""
        return Add(*values)

    def transposed(self, value: Any) -> Any:
        """SymPy's own transpose."""
        return transpose(value)

    def scored(self, scales: Iterable[str], sides: Sequence[Any], turned: Sequence[Factor]) -> Any:
        """See :class:`Form`."""
        query, key = sides
        return self.product(scales, [query, *map(self.letter, turned), self.transposed(key)])

    def word(self, word: Word) -> Any:
        """See :class:`Form`."""
        return self.product(word.scales, map(self.letter, spelled(word.factors, self.spelling)))


@final
class AsIndexed:
    """Like :class:`AsSymbols`, but the letters of the first head of these layers are those of any: ``A_L0[h_1]``.

    ``indices`` has the index of each such layer.

    >>> from symcircuits.core.architecture import Head
    >>> from symcircuits.core.programs import pattern
    >>> form = AsIndexed("OV", {0: Symbol("h_1", integer=True)})
    >>> form.letter(Factor(pattern(Head(0, 0)))), form.letter(Factor(pattern(Head(1, 0))))
    (A_L0[h_1], A_L1H0)
    """

    def __init__(self, spelling: str, indices: Mapping[int, Any]) -> None:
        self._plain, self.indices = AsSymbols(spelling), dict(indices)
        self.spelling, self.scalar, self.product = self._plain.spelling, self._plain.scalar, self._plain.product
        self.add, self.transposed = self._plain.add, self._plain.transposed

    def letter(self, factor: Factor) -> Any:
        """The symbol of a factor, or that of any head of a layer with an index."""
        found = re.fullmatch(r"([QK]?L(\d+))H0", factor.symbol.label)
        if found is None or int(found[2]) not in self.indices:
            return self._plain.letter(factor)
        base = IndexedBase(f"{factor.symbol.glyph}_{found[1]}", commutative=False)
        letter = IndexedLetter(base, self.indices[int(found[2])])
        return transpose(letter) if factor.marked else letter

    def scored(self, scales: Iterable[str], sides: Sequence[Any], turned: Sequence[Factor]) -> Any:
        """See :class:`Form`."""
        return self._plain.scored(scales, sides, turned)

    def word(self, word: Word) -> Any:
        """See :class:`Form`."""
        return self.product(word.scales, map(self.letter, spelled(word.factors, self.spelling)))


@final
class AsMatrices:
    """Formulas in ``MatrixSymbol``s with the sizes ``n_context``, ``d_model``, ..., or those given.

    A product is built directly, so SymPy neither reorders nor merges it; ``ones`` is ``OneMatrix(n_context, 1)``.

    >>> from symcircuits.core.words import Word
    >>> from symcircuits.core.programs import embedding
    >>> AsMatrices().word(Word(embedding())), AsMatrices(sizes={"n_context": 7}).word(Word(embedding())).shape
    (t*W_E.T, (7, d_model))
    """

    def __init__(self, spelling: str = "OV", sizes: Mapping[str, Any] | None = None) -> None:
        self.spelling = check_choice("letters", spelling, SPELLINGS)
        self._given = _given_sizes(sizes or {})
        self.ones: Any = OneMatrix(self.size("n_context"), 1)

    def size(self, name: str) -> Any:
        """A size by its name: the given one, or a positive integer symbol."""
        if name == "1":
            return Integer(1)
        kind = name.rpartition("_")[0]
        found = self._given.get(name, self._given.get(kind) if kind in ("d_head", "d_mlp") else None)
        return Symbol(name, integer=True, positive=True) if found is None else found

    def matrix(self, symbol: TypedSymbol) -> Any:
        """The shaped symbol of a letter."""
        return MatrixSymbol(symbol.argument, *map(self.size, shape_of(symbol)))

    def letter(self, factor: Factor) -> Any:
        """The shaped symbol of a factor; for an entrywise product, the product of its words."""
        symbol = factor.symbol
        if symbol.entrywise:
            found = HadamardProduct(*map(self.word, symbol.entrywise))
        else:
            found = self.ones if symbol.glyph == "ones" else self.matrix(symbol)
        return found.T if factor.marked else found

    def scalar(self, name: str) -> Any:
        """See :class:`Form`."""
        return Symbol(scalar_argument(name))

    def product(self, scales: Iterable[str], values: Iterable[Any]) -> Any:
        """See :class:`Form`."""
        parts = [part for v in values for part in (v.args if isinstance(v, MatMul) else (v,))]
        scalars = [*map(self.scalar, scales), *(part for part in parts if not part.is_Matrix)]
        matrices = [part for part in parts if part.is_Matrix]
        return matrices[0] if len(matrices) == 1 and not scalars else MatMul(*scalars, *matrices)

    def add(self, values: Sequence[Any]) -> Any:
        """See :class:`Form`."""
        parts = [part for v in values for part in (v.args if isinstance(v, MatAdd) else (v,))]
        return parts[0] if len(parts) == 1 else MatAdd(*parts)

    def transposed(self, value: Any) -> Any:
        """The transpose; for products and sums, of each part; shared parts are transposed once."""
        return self._transposed(value, {})

    def _transposed(self, value: Any, made: dict[int, Any]) -> Any:
        if id(value) not in made:  # comparing values would traverse them again and again
            made[id(value)] = self._turned(value, made)
        return made[id(value)]

    def _turned(self, value: Any, made: dict[int, Any]) -> Any:
        if isinstance(value, MatAdd):
            return self.add([self._transposed(part, made) for part in value.args])
        if isinstance(value, MatMul):
            return self.product((), [self._transposed(part, made) for part in reversed(value.args)])
        if isinstance(value, Transpose):
            return value.args[0]
        named = letter_named(value.name) if isinstance(value, MatrixSymbol) else None
        return value if not value.is_Matrix or (named is not None and named.symmetric) else Transpose(value)

    def scored(self, scales: Iterable[str], sides: Sequence[Any], turned: Sequence[Factor]) -> Any:
        """See :class:`Form`; if positions are rotary each side is inside :class:`Turned`."""
        query, key = (Turned(side, self.letter(turned[0])) for side in sides) if turned else sides
        return self.product(scales, [query, self.transposed(key)])

    def word(self, word: Word) -> Any:
        """See :class:`Form`."""
        factors = spelled(word.factors, self.spelling)
        cut = next((i for i, f in enumerate(factors) if f.symbol.glyph == "R"), None)
        matrices = [self.letter(f) for f in factors]
        if cut is None:
            return self.product(word.scales, matrices)
        sides = matrices[:cut], [self.transposed(m) for m in reversed(matrices[cut + 1 :])]
        return self.scored(word.scales, [MatMul(*side) for side in sides], (factors[cut],))


# ------------------------------------------------------------------------------------------------ reading back
class Read(NamedTuple):
    """A letter that was read, without abbreviations: its name in text notation, and whether it is transposed."""

    name: str
    transposed: bool = False

    @property
    def text(self) -> str:
        """Text notation; the transpose of a symmetric matrix is not marked."""
        return self.name + (".T" if self.ways == (True,) else "")

    @property
    def ways(self) -> tuple[bool, ...]:
        """Whether it may be read as transposed: for a symmetric matrix, both ways."""
        return (False, True) if self.name.partition("[")[0] in SYMMETRIC else (self.transposed,)

    @property
    def T(self) -> Read:
        """The transpose."""
        return Read(self.name, not self.transposed)


class Names:
    """The letters that SymPy symbols may be named after, including the user's own names in this architecture.

    Without an architecture, heads are assumed to have keys and values of their own, and there are no user's names.
    """

    def __init__(self, architecture: Architecture | None = None) -> None:
        self.architecture = architecture
        attached = architecture.attachments if architecture is not None else ()
        self._own = {name: one.name for one in attached for name in (one.name, quoted(one.name), one.argument)}
        self._found: dict[Any, tuple[Read, ...]] = {}

    def read(self, symbol: Any) -> tuple[Read, ...]:
        """The letters for a ``Symbol``, ``MatrixSymbol`` or head of a layer (``A_L0[3]``), unabbreviated.

        Raises ValueError, with the name, on an unknown one, and on a matrix that commutes.

        >>> from sympy import Symbol
        >>> [letter.text for letter in Names().read(Symbol("W_QK_L1H0", commutative=False))]
        ['W_Q[L1H0].T', 'W_K[L1H0]']
        """
        found = self._found.get(symbol)
        if found is None:
            found = self._found[symbol] = self._read(symbol)
        return found

    def _read(self, symbol: Any) -> tuple[Read, ...]:
        name = _name_of(symbol)
        if name in self._own:
            named: Named | None = Named(quoted(self._own[name]), own=True)
        else:
            named = letter_named(name)
        if named is None:
            raise ValueError(f"unknown symbol {brief(name)}{self._nearest(name)}")
        if not named.is_number and symbol.is_commutative:
            raise ValueError(
                f"{name} is a commuting symbol, so SymPy has lost the order of the factors: use "
                f"Symbol({name!r}, commutative=False), a MatrixSymbol, or the symbols of sc.symbolic(...)"
            )
        parts = ABBREVIATIONS.get(named.glyph, ())
        if not parts:
            return (Read(self._shared(named).text),)
        first, second = (self._shared(Named(part, named.label if LETTERS[part].label else "")).text for part in parts)
        return (Read(first, named.glyph == "W_QK"), Read(second, named.glyph == "X0"))

    def _shared(self, named: Named) -> Named:
        """Keys and values under the name of the group of heads that shares them."""
        arch = self.architecture
        if arch is None or named.own or LETTERS[named.glyph].label != "group" or "H" not in named.label:
            return named
        return named._replace(label=arch.key_value(arch.head(named.label)))

    def _nearest(self, name: str) -> str:
        arch = self.architecture
        heads = [] if arch is None or arch.symbolic else [h.label for h in arch.all_heads[:200]]
        labels = {"": [""], "head": heads or ["L0H0"], "group": heads or ["L0H0"], "layer": ["L0"], "norm": ["L0"]}
        known = [glyph + f"_{label}" * bool(label) for glyph, row in LETTERS.items() for label in labels[row.label]]
        same = {one.lower(): one for one in (*known, *self._own)}
        found = difflib.get_close_matches(name[:40].lower(), same, 1, 0.6)
        return (
            f" (did you mean {same[found[0]]}?)" if found else "; known symbols are t, W_E, A_L0H1, W_OV_L0H1, W_U, ..."
        )


def _name_of(symbol: Any) -> str:
    if isinstance(symbol, Indexed):
        base, *indices = symbol.args
        if len(indices) == 1 and indices[0].is_Integer and isinstance(base, IndexedBase):
            return f"{base}H{indices[0]}"
        raise ValueError(f"{brief(str(symbol))} is for any head of a layer: give its index a number")
    return str(symbol.name)
