"""Expansions: the lazy, ordered, exactly counted sequence of all terms of a readout, and its selections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, final

from symcircuits.core.architecture import Architecture, Described, Head, architecture_of
from symcircuits.core.notation import ROW, Notation
from symcircuits.core.paths import Path, Paths
from symcircuits.core.programs import Readout, Source, made, readout
from symcircuits.core.seam import higher
from symcircuits.core.sequence import TermSequence
from symcircuits.core.terms import TYPED, Term, composition_of, readout_notation
from symcircuits.core.text import amount, brief, setting, shown, whole
from symcircuits.core.walk import Joints, Mark

if TYPE_CHECKING:
    from symcircuits.core.unfrozen.unfrozen import Unfrozen
    from symcircuits.sympy_layer.lambdify import ExpansionFunction
    from symcircuits.tables.blocks import Census, TermBlock
    from symcircuits.tables.export import Exported

__all__ = ["Expansion", "Limits", "Term", "composition_of", "expand", "logits", "scores", "stream"]

SIDES = ("query", "key")


class Limits(TypedDict, total=False):
    """Limits of an export: rows in this call, seconds, and bytes of memory.

    Memory is counted beyond the interpreter and its imports. None: no limit (for memory, 160 MiB).
    """

    max_terms: int | None
    max_seconds: float | None
    max_memory: int | None


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition of a selection; a term is selected if it meets all conditions."""

    kind: str  # "order", "composition", "through", "sequence" (its values are pairs of heads) or "from_source"
    values: frozenset[Any]
    side: str = "either"

    def __str__(self) -> str:
        side = "" if self.side == "either" else f" on the {self.side} side"
        names = (" -> ".join(map(str, v)) if self.kind == "sequence" else str(v) for v in self.values)
        return f"{self.kind} {' or '.join(sorted(names)) or 'none'}{side}"

    def on(self, side: int) -> bool:
        """Whether the condition applies to that side."""
        return self.side in ("either", SIDES[side])


@final
class Expansion(TermSequence[Term]):
    """All terms of a readout, lazily: exactly counted, indexed by arithmetic, iterated in O(1) memory.

    Order of terms, stable across versions: by order, then heads as (layer, index), then source; for scores
    query side major, key side minor. Selections are Expansions again. Source: paper, "Path Expansion".

    >>> from symcircuits.core.architecture import attention_only
    >>> e = logits(attention_only((12, 12)))
    >>> e.count, e.counts_by_order(), e.through("L1H3").order(2).count
    (169, {0: 1, 1: 24, 2: 144}, 12)
    >>> e[168].label, e.index(e[168])
    ('embed -> L0H11 -> L1H11', 168)
    """

    def __init__(self, target: Readout, clauses: tuple[Clause, ...] = (), notation: Notation = ROW) -> None:
        if not isinstance(target, Readout):  # sympy.lambdify builds lists of the type of its argument
            raise TypeError("an expansion is made by logits, scores, stream or expand; its function is .lambdify()")
        self.readout, self.clauses, self.notation = target, clauses, notation
        self.printers: dict[Any, Any] = {}  # cached, to print its terms in bulk
        self._features = [c for c in clauses if c.kind in ("through", "sequence", "from_source")]
        paired = any(c.kind == "sequence" for c in self._features)
        self._joints = Joints(len(self._features) if paired else 0)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"printers": {}}  # rebuilt after unpickling

    # ------------------------------------------------------------------------------------- sides and marks
    @cached_property
    def sides(self) -> tuple[Paths, ...]:
        """The paths of each side, marked by the conditions of the selection."""
        return tuple(self._side(i) for i in range(len(self.readout.sides)))

    def _side(self, side: int) -> Paths:
        heads: dict[Head, int] = {}
        names: dict[str, int] = {}
        for i, clause in enumerate(self._features):
            if clause.on(side):
                for value in clause.values:
                    if clause.kind == "sequence":
                        for head, bit in zip(value, self._joints.pair(i), strict=True):
                            heads[head] = heads.get(head, 0) | bit
                    elif isinstance(value, Head):
                        heads[value] = heads.get(value, 0) | 1 << i
                    else:
                        names[value] = names.get(value, 0) | 1 << i
        return Paths(self.readout.sides[side], heads, names, self._joints)

    def accepts(self, marks: tuple[Mark, ...]) -> bool:
        """Whether terms with these marks (one per side) are in the selection."""
        orders, bits = tuple(m.order for m in marks), 0
        for m in marks:
            bits |= m.bits
        if bits != self.features:
            return False
        for c in self.clauses:
            if c.kind == "order" and sum(orders) not in c.values:
                return False
            if c.kind == "composition" and composition_of(orders) not in c.values:
                return False
        return True

    @property
    def features(self) -> int:
        """The bits that the paths of a term must have together."""
        return (1 << len(self._features)) - 1

    @property
    def counted(self) -> int | None:
        """Up to which order the selection has to count the heads of a path: 0 not at all, None without limit."""
        kinds = {c.kind for c in self.clauses}
        return None if "order" in kinds else self.typed if "composition" in kinds else 0

    @property
    def typed(self) -> int:
        """Up to which order the composition type depends on the number of heads of a path."""
        return TYPED[len(self.sides)]

    def marks(self) -> Iterator[tuple[tuple[Mark, ...], int]]:
        """The marks of the selection's terms, each with its number of terms."""
        if not all(c.values for c in self.clauses):
            return  # no term meets a condition
        if len(self.sides) == 1:
            yield from (((m,), n) for m, n in self.sides[0].counts.items() if self.accepts((m,)))
            return
        for q, n in self.sides[0].counts.items():
            for k, m in self.sides[1].counts.items():
                if self.accepts((q, k)):
                    yield (q, k), n * m

    def _key_weights(self, query: Mark) -> dict[Mark, int]:
        return {k: 1 for k in self.sides[1].counts if self.accepts((query, k))}

    @cached_property
    def _weights(self) -> dict[Mark, int]:
        """Number of terms behind a first-side path of each mark."""
        weights: dict[Mark, int] = {}
        counts = self.sides[-1].counts
        for marks, _ in self.marks():
            weights[marks[0]] = weights.get(marks[0], 0) + (counts[marks[1]] if len(marks) == 2 else 1)
        return weights

    def _key(self) -> tuple[Any, ...]:
        return self.architecture, self.target, frozenset(self.clauses)

    def __eq__(self, other: object) -> bool:
        """Whether it expands the same target under the same conditions."""
        return self._key() == other._key() if isinstance(other, Expansion) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    # ------------------------------------------------------------------------------------ terms and numbers
    def _at(self, i: int) -> Term:
        first, rest = self.sides[0].unrank(i, self._weights)
        if len(self.sides) == 1:
            return self._term(first)
        second, _ = self.sides[1].unrank(rest, self._key_weights(self.sides[0].mark(first)))
        return self._term(first, second)

    def _term(self, *paths: Path) -> Term:
        return Term(self.readout, paths, notation=self.notation)

    def index(self, term: Term) -> int:
        """The number of a term; raises ValueError if it is not in this expansion."""
        if not isinstance(term, Term) or term.readout != self.readout:
            raise ValueError(f"{term!r} is not a term of this expansion ({self.target} of {self.architecture})")
        number = self.sides[0].rank(term.paths[0], self._weights)
        if len(self.sides) == 1:
            return number
        return number + self.sides[1].rank(term.paths[1], self._key_weights(self.sides[0].mark(term.paths[0])))

    def __iter__(self) -> Iterator[Term]:
        for first in self.sides[0].iterate(self._weights):
            if len(self.sides) == 1:
                yield self._term(first)
                continue
            for second in self.sides[1].iterate(self._key_weights(self.sides[0].mark(first))):
                yield self._term(first, second)

    # ------------------------------------------------------------------------------------------- selections
    def _with(self, clause: Clause) -> Expansion:
        return Expansion(self.readout, (*self.clauses, clause), self.notation)

    def order(self, *orders: int) -> Expansion:
        """The terms of the given order (or orders): the number of heads, both sides together."""
        return self._with(Clause("order", frozenset(whole("an order", k, 0) for k in orders)))

    def where(self, composition: str | Iterable[str]) -> Expansion:
        """The terms of the given composition type (or types)."""
        wanted = _names(composition, "a composition type", setting("composition", "K", "where(composition='K')"))
        possible = ("none", "Q", "K", "QK") if self.readout.bilinear else ("none", "V")
        for c in wanted:
            if c not in possible:
                known = ", ".join(possible)
                raise ValueError(f"unknown composition {brief(c)} of {self.target}: choose one of {known}")
        return self._with(Clause("composition", frozenset(wanted)))

    def through(self, head: str | tuple[int, int] | Iterable[str], side: str = "either") -> Expansion:
        """The terms that go through a head (of several: through any); for scores on one side, or on either.

        If no path reaches the head (scores read the stream before their layer) the result is an empty expansion, whose
        sums are zero.
        """
        heads = frozenset(self.architecture.some_heads(head))
        return self._with(Clause("through", heads, self._check_side(side)))

    def through_sequence(self, *heads: str | tuple[int, int], side: str = "either") -> Expansion:
        """The terms in which each of these heads reads directly what the one before it wrote.

        ``through("L0H1").through("L2H0")`` allows any heads between the two, ``through_sequence("L0H1", "L2H0")`` none:
        its terms have the virtual weight ``W_O^{f T} W_V^{h T}``. Raises ValueError on fewer than two heads, on heads
        that are not in increasing layers, and on a head that no path of the target goes through.

        >>> from symcircuits.core.architecture import attention_only
        >>> e = logits(attention_only((3, 3, 3)))
        >>> e.through("L0H1").through("L2H0").count, e.through_sequence("L0H1", "L2H0").count
        (4, 1)
        """
        found = [self.architecture.head(h) for h in heads]
        if len(found) < 2 or any(a.layer >= b.layer for a, b in pairwise(found)):
            said = ", ".join(map(str, found)) or "none"
            raise ValueError(f"a sequence is two or more heads, each in a later layer than the one before, not {said}")
        side = self._check_side(side)
        there = {h for i, paths in enumerate(self.sides) if side in ("either", SIDES[i]) for h in paths.heads}
        for head in found:
            if head not in there:
                raise ValueError(f"no path of {self.target} goes through {head}: {self._reach}")
        if len(found) > 2 and side == "either" and self.readout.bilinear:
            raise ValueError('a sequence of more than two heads needs its side, "query" or "key"')
        clauses = tuple(Clause("sequence", frozenset({pair}), side) for pair in pairwise(found))
        return Expansion(self.readout, (*self.clauses, *clauses), self.notation)

    def from_source(self, source: str | Iterable[str], side: str = "either") -> Expansion:
        """The terms that start from a source: ``"embed"``, ``"b_V[L0H1]"``, or a whole kind, ``"b_V"``."""
        names: set[str] = set()
        for wanted in _names(source, "the name of a source", setting("from_source", "embed", "from_source('embed')")):
            found = {s.name for s in self.sources if wanted in (s.name, s.kind)}
            if not found:
                known = ", ".join(s.name for s in self.sources)
                raise ValueError(f"there is no source {brief(wanted)} in {self.target}; the sources are {known}")
            names |= found
        return self._with(Clause("from_source", frozenset(names), self._check_side(side)))

    def _marked_by_source(self, name: str, side: int) -> tuple[Expansion, int]:
        """The selection from a source on a side, and the bit that its marks have in addition to those of this one."""
        where = SIDES[side] if self.readout.bilinear else "either"
        found = self._with(Clause("from_source", frozenset({name}), where))
        return found, 1 << len(found._features) - 1

    @property
    def _reach(self) -> str:
        """Which heads its paths go through, in words."""
        head, split = self.readout.head, self.architecture.split
        last = self.architecture.n_layers - 1 if head is None else head.layer - 1
        if self.target.startswith("readout:"):
            reading = self.architecture.reading(self.target.partition(":")[2])
            last = reading.layer if reading.at == "mlp" and not self.architecture.parallel else reading.layer - 1
        first = split if split is not None and split <= last + 1 else 0
        if last < first:
            return "its paths go through no head"
        return "its paths go through heads of " + (f"layer {first}" if first == last else f"layers {first} to {last}")

    def _check_side(self, side: str) -> str:
        if side not in ("either", *(SIDES if self.readout.bilinear else ())):
            known = 'choose "query", "key" or "either"' if self.readout.bilinear else "only scores have sides"
            raise ValueError(f"side {brief(side)} of {self.target} does not exist: {known}")
        return side

    def softmax_invisible(self) -> Expansion:
        """The score terms that softmax ignores: the key side starts from a bias and goes through no norm.

        No term is one if a soft cap acts on the scores; a model's architecture records it (``model.architecture``).
        """
        if not self.readout.bilinear:
            raise ValueError(f"only score terms meet a softmax, those of {self.target} do not")
        return self._softmax_invisible

    @cached_property
    def _softmax_invisible(self) -> Expansion:
        """The same, computed once: its terms are counted for every prompt."""
        layers = self.readout.sides[1]
        seen = layers[-1:] if self.architecture.norm else layers  # either every reader has a norm, or none
        if self.architecture.positions == "rotary" or self.architecture.qk_norm:
            seen = ()  # every key is rotated or scaled by an amount of its own
        if not self.architecture.shift_invariant:
            seen = ()  # without softmax, or with a soft cap before it, nothing is ignored
        names = {s.name for layer in seen for s in layer.sources if s.is_bias}
        return self._with(Clause("from_source", frozenset(names), "key"))

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The sources of all sides, in program order."""
        found = {s.name: s for i in range(len(self.readout.sides)) for s in self._side_sources(i)}
        return tuple(found.values())

    def _side_sources(self, side: int) -> list[Source]:
        return [s for layer in self.readout.sides[side] for s in layer.sources]

    # ------------------------------------------------------------------------------------------------ shown
    def __repr__(self) -> str:
        chosen = "".join(f", {c}" for c in self.clauses)
        return f"<Expansion of {self.target}{chosen}: {amount(self.count, 'term')} ({self.architecture})>"

    def written(self, notation: str | Notation = ROW, symbols: Mapping[str, str] | None = None) -> Expansion:
        """The same expansion, its terms printed in another notation, with other names for symbols.

        ``notation`` is ``"row"``, ``"paper"`` or ``"transformerlens"``, or a
        :class:`~symcircuits.core.notation.Notation`; raises ValueError on an unknown notation, and on names that would
        make two symbols of this expansion look the same.

        >>> from symcircuits.core.architecture import attention_only
        >>> e = scores(attention_only((1, 1)), "L1H0").written("paper", {"W_QK": "Q"})
        >>> print(e[1].text)
        scale[L1H0] * (Id (x) A[L0H0] (x) W_E.T @ Q[L1H0] @ W_OV[L0H0] @ W_E)(t, t)
        """
        return Expansion(self.readout, self.clauses, readout_notation(self.readout, notation, symbols))

    # -------------------------------------------------------------------------------------------- in SymPy
    @property
    def expr(self) -> Any:
        """The sum of the terms as one SymPy expression in noncommutative symbols, as :attr:`Term.expr` writes them.

        It equals ``sympy.expand`` of the target (:func:`symcircuits.symbolic`). Like all the methods below, it raises
        ValueError if there are more terms than one expression or function should hold.

        >>> from sympy import expand
        >>> from symcircuits import attention_only, symbolic
        >>> arch = attention_only((2, 2))
        >>> expand(symbolic(arch).logits) == logits(arch).expr == sum(logits(arch).exprs)
        True
        """
        return self.as_expr()

    @property
    def exprs(self) -> list[Any]:
        """The terms as SymPy expressions, in their order."""
        found: list[Any] = higher(None, "Expansion.exprs")(self)
        return found

    def as_expr(self, letters: str = "OV") -> Any:
        """The sum in the spelling ``"OV"``, or in ``"factors"``: ``W_O``, ``W_V``, ``W_Q``, ``W_K``."""
        return higher(None, "Expansion.as_expr")(self, letters)

    def matrix_expr(self, letters: str = "OV", **sizes: Any) -> Any:
        """The sum of the terms as one SymPy matrix expression, sizes as in :meth:`Term.matrix_expr`.

        >>> from symcircuits.core.architecture import attention_only
        >>> logits(attention_only((2,))).matrix_expr(n_context=7, d_vocab_out=5).shape
        (7, 5)
        """
        return higher(None, "Expansion.matrix_expr")(self, letters, sizes)

    def lambdify(self, total: bool = False) -> ExpansionFunction:
        """All terms as one NumPy function of named arrays, which accepts batches: a list of values, or their sum.

        >>> from symcircuits import attention_only, random_model
        >>> model = random_model(attention_only((2, 2)))
        >>> run, e = model.run([1, 2, 3]), logits(model)
        >>> values, total = e.lambdify()(**run.arrays), e.lambdify(total=True)(**run.arrays)
        >>> len(values), bool(abs(total - run.logits).max() < 1e-9)
        (9, True)
        """
        function: ExpansionFunction = higher(None, "Expansion.lambdify")(self, total)
        return function

    def _sympy_(self) -> Any:
        return self.expr

    def _latex(self, printer: Any) -> str:
        return higher(str, "Expansion.sum_latex")(self)

    def _sympystr(self, printer: Any) -> str:
        return str(printer.doprint(self.expr))

    # ------------------------------------------------------------------------------------ tables of terms
    def blocks(self, size: int = 1 << 16, *, start: int = 0, stop: int | None = None) -> Iterator[TermBlock]:
        """The terms ``start`` to ``stop`` as integer arrays, in order, in blocks of ``size`` (the last may be smaller).

        Works for any selection at any depth; the block, not the number of terms, bounds the memory. Ranges split the
        work: the blocks of ``start=a, stop=b`` and ``start=b, stop=c`` are the terms of ``start=a, stop=c``. Raises
        ValueError if it is not a range of terms. Source: own derivation.

        >>> from symcircuits.core.architecture import attention_only
        >>> deep = logits(attention_only((12,) * 12)).through("L3H7")
        >>> block = next(deep.blocks(1000, start=10**12))
        >>> block.start, block.labels()[0] == deep[10**12].label, block.heads[0].shape
        (1000000000000, True, (1000, 12))
        """
        found: Iterator[TermBlock] = higher(None, "Expansion.blocks")(self, size, start, stop)
        return found

    def census(self, *, start: int = 0, stop: int | None = None, workers: Any = None) -> Census:
        """The terms ``start`` to ``stop``, enumerated and counted by the heads that each goes through.

        Nothing is taken from :meth:`counts_by_order` and similar methods, so the two check each other. ``workers`` (a
        number, an executor or a function that makes one) process the ranges; the counts do not depend on them.

        >>> from symcircuits.core.architecture import attention_only
        >>> found = scores(attention_only((12, 12, 12)), "L2H0").census()
        >>> found.by_composition()
        {'none': 1, 'Q': 168, 'K': 168, 'QK': 28224}
        """
        found: Census = higher(None, "Expansion.census")(self, start, stop, workers=workers)
        return found

    def export(
        self, path: str | PathLike[str], columns: str | Sequence[str] | None = None, *, start: int = 0,
        stop: int | None = None, resume: bool = False, workers: Any = None,
        progress: Callable[[str, int, int], None] | bool | None = None, **limits: Unpack[Limits],
    ) -> Exported:  # fmt: skip
        """Write the terms ``start`` to ``stop`` to a ``.csv``, ``.jsonl``, ``.arrow`` or ``.parquet`` file, in order.

        ``columns``: one or more of number, order, orders, composition, sources, heads, label, text, latex.
        ``resume`` continues an interrupted export (or starts it). ``limits`` (:class:`Limits`): ``max_terms``,
        ``max_memory``, ``max_seconds``; when one is reached, complete rows are kept and the result says so.
        Raises OSError if the disk is too full, ValueError on invalid arguments. Details, and the use of workers:
        :mod:`symcircuits.tables.export`.

        >>> import tempfile
        >>> from symcircuits.core.architecture import attention_only
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = scores(attention_only((1, 1)), "L1H0").export(folder + "/terms.csv", ["number", "label"])
        ...     print(found.path.read_text(), end="")
        number,label
        0,"embed | embed"
        1,"embed | embed -> L0H0"
        2,"embed -> L0H0 | embed"
        3,"embed -> L0H0 | embed -> L0H0"
        """
        chosen = {} if columns is None else {"columns": columns}
        found: Exported = higher(None, "Expansion.export")(
            self, path, **chosen, start=start, stop=stop, resume=resume, workers=workers, progress=progress, **limits
        )
        return found

    def unfrozen(self) -> Unfrozen:
        """The same with only the norms held fixed: patterns and bilinear MLPs are multiplied out as well.

        See :func:`symcircuits.core.unfrozen.unfrozen.unfrozen`. Raises ValueError if nothing can be multiplied out.

        >>> from symcircuits.core.architecture import attention_only
        >>> [term.degree for term in logits(attention_only((1,), softmax=False)).unfrozen()]
        [1, 3]
        """
        found: Unfrozen = higher(None, "Expansion.unfrozen")(self)
        return found

    # ---------------------------------------------------------------------------------------------- shown
    def latex(self) -> str:
        """The terms with their composition types as an aligned display (amsmath); after the first 40, dots."""
        return higher(str, "Expansion.latex")(self)

    def _repr_latex_(self) -> str:
        return self.latex()


def _names(wanted: Any, what: str, example: str) -> list[str]:
    """One name or several, as a list; raises ValueError if there is none."""
    names = [wanted] if isinstance(wanted, str) else list(wanted) if isinstance(wanted, Iterable) else []
    if not names:
        raise ValueError(f"give {what}, e.g. {example}, or several, not {shown(wanted)}")
    return names


def expand(subject: Architecture | Described, target: str) -> Expansion:
    """The expansion of a target by name: ``"logits"``, ``"stream"``, ``"scores:L1H0"`` or ``"readout:probe"``.

    With symbolic numbers of heads it is an expansion in families of terms, each under sums over heads
    (:class:`symcircuits.sympy_layer.families.Families`).

    >>> from symcircuits.core.architecture import attention_only
    >>> expand(attention_only((3, 5)), "scores:L1H4").count
    16
    """
    architecture = architecture_of("expand", subject, symbolic=True)
    if architecture.symbolic:
        families: Expansion = higher(None, "Architecture.families")(architecture, target)
        return families
    return made(architecture, target, lambda: Expansion(readout(architecture, target)))


def logits(subject: Architecture | Described) -> Expansion:
    """The logits ``X_L W_U^T (+ 1 b_U^T)`` as a sum over paths; ``prod_l (1 + H_l)`` terms for one source.

    >>> from symcircuits.core.architecture import attention_only
    >>> logits(attention_only((3, 3))).count
    16
    """
    return expand(architecture_of("logits", subject, symbolic=True), "logits")


def scores(subject: Architecture | Described, head: str | tuple[int, int]) -> Expansion:
    """The scores of a head, ``s (X W_Q^T + 1 b_Q^T)(X W_K^T + 1 b_K^T)^T``, as a sum over pairs of paths.

    >>> from symcircuits.core.architecture import attention_only
    >>> scores(attention_only((3, 3)), "L1H0").counts_by_composition()
    {'none': 1, 'Q': 3, 'K': 3, 'QK': 9}
    """
    architecture = architecture_of("scores", subject, symbolic=True)
    return expand(architecture, f"scores:{architecture.head(head)}")


def stream(subject: Architecture | Described) -> Expansion:
    """The residual stream ``X_L`` after the last layer as a sum over paths.

    >>> from symcircuits.core.architecture import attention_only
    >>> stream(attention_only((3, 3), unembed=False)).counts_by_order()
    {0: 1, 1: 6, 2: 9}
    """
    return expand(architecture_of("stream", subject, symbolic=True), "stream")
