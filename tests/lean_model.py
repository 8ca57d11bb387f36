"""A file of Lean without Lean: its statements evaluated, and its tactic carried out by the lemmas that it names.

Both read the text of the file alone. The evaluation draws whole numbers for every matrix, with another number of rows
and columns for every type, so that what Lean would not type does not evaluate. The rewriting knows what Mathlib's
lemmas state, applies those that the tactic names from the inside out until none applies, and compares sums of words.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from symcircuits.derivation.printing.lean_reader import Formula, definitions, formula, theorems

Tree = Any  # a letter, or a tuple of a sign and its operands, two at most


@dataclass
class LeanFile:
    """What a file declares, defines and states."""

    text: str
    types: list[str] = field(init=False)
    shapes: dict[str, tuple[str, str]] = field(init=False)
    scalars: list[str] = field(init=False)
    symmetric: list[str] = field(init=False)
    meant: dict[str, Formula] = field(init=False)
    stated: dict[str, Formula] = field(init=False)

    def __post_init__(self) -> None:
        lines = self.text.replace("\n    ", " ")
        self.types = re.findall(r"\[Fintype (n_\w+)\]", lines)
        shapes = re.findall(r"^variable \((\w+) : Matrix (\w+) (\w+) R\)", lines, re.MULTILINE)
        self.shapes = {name: (rows, columns) for name, rows, columns in shapes}
        self.scalars = [
            s for found in re.findall(r"^variable \(([\w ]+) : R\)", lines, re.MULTILINE) for s in found.split()
        ]
        self.symmetric = re.findall(r"^variable \(symmetric_(\w+) : \1ᵀ = \1\)", lines, re.MULTILINE)
        self.meant = {name: formula(body) for name, body in definitions(self.text).items()}
        self.stated = {name: formula(statement) for name, statement in theorems(self.text).items()}

    # ---------------------------------------------------------------------------------------------- evaluated
    def differences(self, seed: int = 0) -> list[str]:
        """The theorems whose sides are not equal on a draw, or cannot be evaluated, with what is wrong."""
        rng = np.random.default_rng(seed)
        sizes = {name: 2 + i for i, name in enumerate(self.types)}
        values: dict[str, Any] = {c: int(rng.integers(-9, 10)) for c in self.scalars}
        for name, shape in self.shapes.items():
            drawn = rng.integers(-3, 4, [sizes[side] for side in shape]).astype(object)
            values[name] = drawn + drawn.T if name in self.symmetric else drawn
        values |= {"identity": _Identity(), "sizes": [*sizes.values()]}
        for name, body in self.meant.items():
            values[name] = _value(body, values)
        found = []
        for name, statement in self.stated.items():
            try:
                if not _holds(statement, values, rng):
                    found.append(f"{name}: the sides differ")
            except (TypeError, ValueError) as fault:
                found.append(f"{name}: {fault}")
        return found

    # ---------------------------------------------------------------------------------------------- rewritten
    def unproved(self) -> list[str]:
        """The theorems that the tactic leaves open, by the lemmas that it names."""
        tactic = self.text[self.text.index("try simp only [") : self.text.index("first | done | abel1 | module")]
        named = re.findall(r"[\w.*]+", tactic[tactic.index("[") :])
        rules = [rule for name in named if name != "*" for rule in _rules(name)]
        if "*" in named:
            rules += [(("ᵀ", name), name) for name in self.symmetric]
        for name in self.stated:
            by = re.search(rf"theorem {name} :.*?:= by\s+(\w+)", self.text, re.DOTALL)
            assert by is not None
            assert (by[1] == "count_terms") == (" : ℕ)" in theorems(self.text)[name])
        left, known = [], {}
        for name, statement in self.stated.items():
            if " : ℕ)" in theorems(self.text)[name]:
                continue
            body = statement.parts[1] if statement.sign == "∀" else statement
            sides = [_words(_simplified(_tree(self.unfolded(side)), rules, known)) for side in body.parts]
            left += [name] if sides[0] != sides[1] else []
        return left

    def unfolded(self, read: Formula) -> Formula:
        """A formula with what its notations mean in their place."""
        if read.sign in self.meant:
            return self.unfolded(self.meant[read.sign])
        return Formula(read.sign, tuple(map(self.unfolded, read.parts)))


# ------------------------------------------------------------------------------------------------ evaluated
class _Identity:
    """The identity matrix, of the size that fits."""

    T = property(lambda self: self)
    __array_ufunc__ = None

    def __matmul__(self, other: Any) -> Any:
        return other

    __rmatmul__ = __matmul__


def _holds(statement: Formula, values: dict[str, Any], rng: np.random.Generator) -> bool:
    if statement.sign == "∀":
        bound, body = statement.parts
        held = []
        for shape in product(values["sizes"], repeat=2):
            drawn = rng.integers(-3, 4, shape).astype(object)
            with suppress(ValueError):
                held.append(_holds(body, values | {bound.sign: drawn}, rng))
        if len(held) != 1:
            raise ValueError(f"{bound.sign} can have {len(held)} shapes")
        return held[0]
    assert statement.sign == "="
    left, right = (_value(side, values) for side in statement.parts)
    return bool(np.shape(left) == np.shape(right) and np.all(left == right))


def _value(read: Formula, values: dict[str, Any]) -> Any:
    if read.sign in ("list", "length"):
        found = [_value(part, values) for part in read.parts]
        if len({np.shape(entry) for entry in found}) > 1:
            raise ValueError("a list has matrices of several shapes")
        return len(found) if read.sign == "length" else found
    parts = [_value(part, values) for part in read.parts]
    match read.sign:
        case "+":
            return reduce(_sum, parts)
        case "*":
            return reduce(lambda a, b: a @ b if np.ndim(a) else a * b, parts)
        case "•":
            if np.ndim(parts[0]):
                raise ValueError("a matrix stands where a scalar should")
            return parts[0] * parts[1]
        case "ᵀ":
            return parts[0].T
        case "()":
            return parts[0]
        case "pair":
            return tuple(parts)
        case "+ₒ":
            return lambda x: reduce(_sum, [f(x) for f in parts])
        case "∘":
            return lambda x: parts[0](parts[1](x))
        case "apply":
            return reduce(lambda f, x: f(x), parts)
    return _NAMED[read.sign] if read.sign in _NAMED else values[read.sign] if read.sign in values else int(read.sign)


def _sum(a: Any, b: Any) -> Any:
    if np.shape(a) != np.shape(b):
        raise ValueError(f"a sum of what has shapes {np.shape(a)} and {np.shape(b)}")
    return a + b


def _elementary(order: int, heads: list[int]) -> int:
    return (
        1
        if not order
        else 0
        if not heads
        else _elementary(order, heads[1:]) + heads[0] * _elementary(order - 1, heads[1:])
    )


_NAMED: dict[str, Any] = {
    "id": lambda x: x,
    "tensor": lambda a: lambda w: lambda x: a @ x @ w.T,
    "tensor3": lambda a: lambda b: lambda w: lambda xy: a @ xy[0] @ w @ xy[1].T @ b.T,
    "scaled": lambda c: lambda f: lambda x: c * f(x),
    "elementary": lambda order: lambda heads: _elementary(order, heads),
}


# ------------------------------------------------------------------------------------------------ rewritten
LEMMAS = {  # what each states, in Mathlib or at the beginning of the file; mul: of scalars
    "Matrix.mul_add": "?L * (?M + ?N) = ?L * ?M + ?L * ?N",
    "Matrix.add_mul": "(?L + ?M) * ?N = ?L * ?N + ?M * ?N",
    "Matrix.mul_assoc": "?L * ?M * ?N = ?L * (?M * ?N)",
    "Matrix.mul_one": "?M * 1 = ?M",
    "Matrix.one_mul": "1 * ?M = ?M",
    "Matrix.transpose_add": "(?M + ?N)ᵀ = ?Mᵀ + ?Nᵀ",
    "Matrix.transpose_mul": "(?M * ?N)ᵀ = ?Nᵀ * ?Mᵀ",
    "Matrix.transpose_smul": "(?c • ?M)ᵀ = ?c • ?Mᵀ",
    "Matrix.transpose_one": "1ᵀ = 1",
    "Matrix.transpose_transpose": "?Mᵀᵀ = ?M",
    "Matrix.mul_smul": "?M * (?a • ?N) = ?a • (?M * ?N)",
    "Matrix.smul_mul": "(?a • ?M) * ?N = ?a • (?M * ?N)",
    "smul_add": "?a • (?x + ?y) = ?a • ?x + ?a • ?y",
    "smul_smul": "?a • (?b • ?x) = (mul ?a ?b) • ?x",
    "Function.comp_apply": "(?f ∘ ?g) ?x = ?f (?g ?x)",
    "id_eq": "id ?a = ?a",
    "identity": "identity = 1",
    "tensor": "tensor ?A ?W ?X = ?A * ?X * ?Wᵀ",
    "tensor3": "tensor3 ?A_q ?A_k ?W (?x, ?y) = ?A_q * ?x * ?W * (?y)ᵀ * ?A_kᵀ",
    "plus": "plus ?f ?g ?x = ?f ?x + ?g ?x",
    "scaled": "scaled ?c ?f ?x = ?c • ?f ?x",
}


def _rules(name: str) -> list[tuple[Tree, Tree]]:
    """What a lemma rewrites, and into what. KeyError where no lemma has the name."""
    read = formula(LEMMAS[name].replace("?", "any_"))
    left, right = map(_tree, read.parts)
    return [(left, right)]


def _tree(read: Formula) -> Tree:
    """A formula with two operands at most at each place: from the left, and functions with one argument each."""
    if not read.parts:
        return read.sign
    parts = [_tree(part) for part in read.parts]
    if read.sign == "()":
        return parts[0]
    if read.sign == "+ₒ":
        return reduce(lambda f, g: ("apply", ("apply", "plus", f), g), parts)
    return (read.sign, parts[0]) if len(parts) == 1 else reduce(lambda a, b: (read.sign, a, b), parts)


def _simplified(tree: Tree, rules: list[tuple[Tree, Tree]], known: dict[Tree, Tree]) -> Tree:
    """What a term becomes: its operands first, then itself, until no rule applies."""
    if tree not in known:
        inner = tree
        if isinstance(tree, tuple):
            inner = (tree[0], *(_simplified(part, rules, known) for part in tree[1:]))
        for pattern, result in rules:
            found: dict[str, Tree] = {}
            if _matches(pattern, inner, found):
                inner = _simplified(_put(result, found), rules, known)
                break
        known[tree] = inner
    return known[tree]


def _matches(pattern: Tree, tree: Tree, found: dict[str, Tree]) -> bool:
    if isinstance(pattern, str):
        return found.setdefault(pattern, tree) == tree if pattern.startswith("any_") else pattern == tree
    return (
        isinstance(tree, tuple) and len(tree) == len(pattern) and tree[0] == pattern[0]
        and all(_matches(p, t, found) for p, t in zip(pattern[1:], tree[1:], strict=True))
    )  # fmt: skip


def _put(result: Tree, found: dict[str, Tree]) -> Tree:
    return (
        found.get(result, result)
        if isinstance(result, str)
        else (result[0], *(_put(part, found) for part in result[1:]))
    )


def _words(tree: Tree) -> Counter[tuple[Any, ...]]:
    """The summands, each with its scalars in order: what ``abel1`` and ``module`` compare."""
    if isinstance(tree, tuple) and tree[0] == "+":
        return _words(tree[1]) + _words(tree[2])
    if isinstance(tree, tuple) and tree[0] == "•":
        return Counter([(tuple(sorted(_scalars(tree[1]))), tree[2])])
    return Counter([((), tree)])


def _scalars(tree: Tree) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    assert tree[0] == "apply"
    assert tree[1][:2] == ("apply", "mul")
    return _scalars(tree[1][2]) + _scalars(tree[2])
