"""One term of an expansion with patterns and MLPs multiplied out as well: its name and its word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from symcircuits.core.architecture import Architecture
from symcircuits.core.notation import ROW, Notation
from symcircuits.core.paths import path_factors, path_scales
from symcircuits.core.programs import Program, Readout, Source, mask, mlp_bias, mlp_out, readout, rotation
from symcircuits.core.rules import check_finished, score_sides
from symcircuits.core.terms import PrintedTerm
from symcircuits.core.unfrozen.choices import Pair, Tree, choices_of
from symcircuits.core.words import Factor, IllTyped, Symbol, Word, transpose

__all__ = ["UnfrozenTerm", "check_unfrozen", "opened"]


@dataclass(frozen=True, slots=True)
class UnfrozenTerm(PrintedTerm):
    """One term: a path, or a pair of paths, with every pattern and bilinear MLP on it chosen to the end.

    ``trees``: one per side. ``notation`` applies to ``text`` and ``latex()``; terms that differ in it alone are equal.

    >>> import symcircuits as sc
    >>> terms = sc.logits(sc.attention_only((1, 1), softmax=False, unembed=True)).unfrozen()
    >>> terms[1].label, terms[1].degree
    ('embed -> L0H0{embed | embed}', 3)
    >>> print(terms[1].text)
    (mask[L0] * (scale[L0H0] * X0 @ W_QK[L0H0] @ X0.T)) @ X0 @ W_OV[L0H0].T @ W_U.T
    """

    readout: Readout
    trees: tuple[Tree, ...]
    notation: Notation = field(default=ROW, compare=False, kw_only=True)

    @property
    def orders(self) -> tuple[int, ...]:
        """Number of heads of the path of each side: ``(order,)``, or ``(query, key)``; not those in patterns."""
        return tuple(tree.path.order for tree in self.trees)

    @property
    def degree(self) -> int:
        """Number of sources: its degree, as a polynomial, in what enters the stream."""
        return sum(tree.degree for tree in self.trees)

    @property
    def label(self) -> str:
        """The path, after every head the choice of its pattern: ``embed -> L0H0{embed | pos}``; ``mlp[L0]{a * b}``."""
        return " | ".join(map(_label, self.trees))

    @property
    def inner(self) -> Iterator[UnfrozenTerm]:
        """The terms chosen for its patterns and MLPs: terms of the scores of a head, or of what an MLP reads."""
        choices = choices_of(self.readout.architecture)
        for tree in self.trees:
            if tree.inside is not None:
                yield UnfrozenTerm(choices.mlp(tree.path.source.name).readout, tree.inside, notation=self.notation)
            for head, pair in zip(tree.path.heads, tree.patterns, strict=True):
                if pair is not None:
                    yield UnfrozenTerm(choices.head(head).readout, pair, notation=self.notation)

    @property
    def word(self) -> Word:
        """The term as a checked product of matrix symbols, some of them entrywise products of words."""
        return _word(self.readout, self.trees)

    def __repr__(self) -> str:
        text = self.text
        return f"<UnfrozenTerm {self.label}: {text}>" if len(text) <= 200 else f"<UnfrozenTerm {self.label}>"


def _label(tree: Tree) -> str:
    start = tree.path.source.name + _braces(tree.inside, " * ")
    heads = zip(tree.path.heads, tree.patterns, strict=True)
    return " -> ".join([start, *(f"{head}{_braces(pair, ' | ')}" for head, pair in heads)])


def _braces(pair: Pair | None, between: str) -> str:
    return "" if pair is None else "{" + between.join(map(_label, pair)) + "}"


# -------------------------------------------------------------------------------------------------- words
def _word(target: Readout, trees: tuple[Tree, ...]) -> Word:
    if target.target.startswith("mlp:"):
        return Word(_inside(target, trees))
    pairs = list(zip(target.sides, trees, strict=True))
    sides = [_factors(target, program, tree) for program, tree in pairs]
    scales = tuple(s for program, tree in pairs for s in path_scales(program, tree.path))
    if len(sides) == 1:
        return Word(sides[0], scales)
    scales = ((target.scale,) if target.scale else ()) + scales
    turned = rotation(target.architecture, target.head) if target.head is not None else ()
    return Word((*sides[0], *turned, *transpose(sides[1])), scales)


def _factors(target: Readout, program: Program, tree: Tree) -> tuple[Factor, ...]:
    """The factors of a path, with its patterns and its source replaced by the terms chosen for them."""
    made = dict(zip(map(str, tree.path.heads), tree.patterns, strict=True))
    out: list[Factor] = []
    for f in path_factors(program, tree.path):
        pair = made.get(f.symbol.label) if f.symbol.glyph == "A" else None
        if pair is not None:
            out.append(Factor(opened(f.symbol, target, pair), f.transposed))
        elif f.symbol.glyph == "mlp" and target.architecture.bilinear:
            out += _opened_source(target, tree)
        else:
            out.append(f)
    return tuple(out)


def opened(pattern: Symbol, target: Readout, pair: Pair) -> Symbol:
    """The part of a pattern that a pair of trees makes: the mask times a term of the scores, entry by entry."""
    head = target.architecture.head(pattern.label)
    score = _word(readout(target.architecture, f"scores:{head}"), pair)
    return replace(pattern, entrywise=(Word((Factor(mask(head)),)), score))


def _opened_source(target: Readout, tree: Tree) -> tuple[Factor, ...]:
    """The output of a bilinear MLP for two trees that it reads; its ``b_out`` for none."""
    source: Source = tree.path.source
    trees = choices_of(target.architecture).mlp(source.name)
    if tree.inside is None:
        return mlp_bias(int(trees.readout.target.partition("L")[2]))
    return _inside(trees.readout, tree.inside)


def _inside(target: Readout, pair: tuple[Tree, ...]) -> tuple[Factor, ...]:
    """``((... W_in^T) * (... W_gate^T)) W_out^T``."""
    words = tuple(
        Word(_factors(target, program, tree), path_scales(program, tree.path))
        for program, tree in zip(target.sides, pair, strict=True)
    )
    w_out = mlp_out(int(target.target.partition("L")[2]))
    hidden = Symbol("hidden", w_out.label, _plain_row(words[0]), words[0].col, entrywise=words)
    return (Factor(hidden), w_out.T)


def _plain_row(word: Word) -> Any:
    """The row index of an MLP's output: the context, at the point where the MLP reads."""
    row = word.row
    return replace(row, space=replace(row.space, kind="context", owner=""))


# -------------------------------------------------------------------------------------------------- types
def check_unfrozen(word: Word, architecture: Architecture, inside: bool = False) -> Word:
    """Return the word if it is a finished term, all the way down, else raise :class:`IllTyped`.

    The rules of :func:`~symcircuits.core.rules.check_finished` apply to the word, and to every word in it; in addition,
    what replaces a pattern is the mask of its layer times a score of its own head, and what replaces the inside of an
    MLP is what its ``W_in`` and its ``W_gate`` read. ``inside``: the word is one of the latter.
    """
    ends = ("mlp",) if inside else ("model", "vocab_out")
    check_finished(word, scaled=architecture.scale, ends=ends, multipliers=architecture.multipliers)
    for f in word.factors:
        symbol = f.symbol
        if not symbol.entrywise:
            if symbol.glyph == ("mlp" if architecture.bilinear else "") or (
                symbol.glyph == "A" and not architecture.softmax
            ):
                raise IllTyped(f"{symbol.text} occurs in a term in which it must be multiplied out", 2, symbol.text)
            continue
        first, second = symbol.entrywise
        if symbol.glyph == "A":
            _check_pattern(symbol, first, second, architecture)
        else:
            _check_inside(symbol, first, second, architecture)
    return word


def _check_pattern(symbol: Symbol, first: Word, second: Word, architecture: Architecture) -> None:
    head = symbol.label
    layer = head.partition("H")[0]
    query, _ = score_sides(second)
    owners = [f.symbol.label for f in query.factors if f.symbol.glyph in ("W_Q", "b_Q")]
    if first.text != f"mask[{layer}]" or owners[-1:] != [head]:
        raise IllTyped(f"{symbol.text} is not a part of the pattern of {head}: it must be mask[{layer}] * a score", 2)
    check_unfrozen(second, architecture)


def _check_inside(symbol: Symbol, first: Word, second: Word, architecture: Architecture) -> None:
    layer = symbol.label
    for kind, word in (("in", first), ("gate", second)):
        last = word.factors[-1].symbol
        if (last.glyph, last.label) not in ((f"W_{kind}", layer), (f"b_{kind}", layer)):
            raise IllTyped(
                f"{symbol.text} is not inside the MLP of {layer}: {word.text} does not end in W_{kind}",
                2,
            )
        check_unfrozen(word, architecture, inside=True)
