"""Reads Python code into nodes, with the usual calls of TransformerLens, torch, NumPy and einops; executes nothing.

The standard library's ``ast`` parses the text. A matrix is named by the last name before its brackets:
``model.W_V[0, 1]``, ``model.blocks[0].attn.W_V[1]``, ``blocks.0.attn.W_V[1]`` and ``state["blocks.0.attn.W_V"][1]`` are
all ``W_V`` with the bracket ``("0", "1")``, and ``first.w_o`` is ``first['w_o']``. ``*`` is entrywise unless one side
is clearly a number. Lines are those of the text, counted from 1; places are characters of it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction as Rational
from typing import Final

from symcircuits.checking.faults import ReadError
from symcircuits.checking.syntax import (
    BigSum,
    Bound,
    Call,
    Document,
    Equation,
    Fraction,
    Indexed,
    Line,
    Name,
    Node,
    Number,
    Operator,
    Power,
    Product,
    Script,
    Sum,
    Text,
    Transposed,
)
from symcircuits.checking.tokens import MAX_SIDES, MAX_TEXT

__all__ = ["read_code"]

_LIBRARIES: Final = re.compile(r"torch|np|numpy|jnp|jax|math|einops|fancy_einsum|F|nn|functional|linalg|utils|oe")
_MODELS: Final = re.compile(r"(?:\w*_)?(?:model|transformer|net|cfg|config|self|attn|blocks?|embed|unembed)|params")
_SAME: Final = re.compile(r"AB|data|detach|clone|cpu|cuda|float|double|half|numpy|contiguous|to|type|copy|squeeze|item")
_TURNS: Final = re.compile(r"t|transpose|swapaxes|permute|adjoint|matrix_transpose")
_PRODUCTS: Final = re.compile(r"matmul|mm|bmm|dot|multi_dot|chain_matmul")
_EQUALITIES: Final = re.compile(
    r"allclose|isclose|equal|assert_equal|array_equal|assert_(?:close|allclose|array_equal)"
)
_NUMBER: Final = re.compile(r"(?:\w*scale|alpha|beta|lambda_?|coef\w*|d_\w+|n_\w+|sqrt_\w+|inv_\w+|eps\w*|m_[EU])")
_COUNTS: Final = re.compile(r"(?:n|num)_?heads?|H")
_LAYERS: Final = re.compile(r"(?:n|num)_?layers?|L")
_WRAPPED: Final = "if True:\n"  # makes a block of a snippet that is indented as a whole


def read_code(source: str) -> Document:
    """The lines of Python code; SyntaxError if it is not Python, ReadError, with the place, if it is not a formula.

    >>> [line] = read_code("ov = model.W_V[0, 1] @ model.W_O[0, 1]  # one head").lines
    >>> name, value = line.equations[0].sides
    >>> name.text, [(f.text, f.scripts[0].parts) for f in value.factors]
    ('ov', [('W_V', ('0', '1')), ('W_O', ('0', '1'))])
    """
    if len(source) > MAX_TEXT:
        raise ReadError(f"the text is longer than {MAX_TEXT:,} characters")
    try:
        document = _Reader(source).document()
    except (RecursionError, MemoryError):
        message = "this code is nested too deep or too long for Python's parser: write it in several lines"
        raise ReadError(message, source) from None
    except ValueError as error:  # null characters
        if isinstance(error, ReadError):
            raise
        raise SyntaxError(str(error)) from None
    if len(document.lines) > MAX_SIDES:
        raise ReadError(f"the code has more than {MAX_SIDES:,} lines, the limit", source, document.lines[MAX_SIDES].at)
    return document


def _innermost(statement: ast.stmt) -> ast.stmt:
    """A loop as the sum that it computes; any other statement unchanged."""
    while isinstance(statement, ast.For):
        statement = statement.body[0]
    return statement


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.starts = [0, *(found.end() for found in re.finditer(r"\r\n?|\n", source))]
        self.numbers: set[str] = set()  # names of numbers
        self.models: set[str] = set()  # names of a model, or of a dictionary of its weights
        text = re.sub(r"^(?:>>>|\.\.\.)(?= )", "   ", source, flags=re.MULTILINE)  # prompts of an interactive session
        text = re.sub(r"\b(blocks|h|layers)\.(\d+)\.", r"\1_\2_", text)  # of the same length, and valid Python
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.tree, self.shift = ast.parse(text), 0
            except IndentationError:
                self.tree, self.shift = ast.parse(_WRAPPED + text), 1

    # ------------------------------------------------------------------------------------------------- places
    def place(self, line: int, column: int) -> int:
        """The place in the text of a line of the tree and a column in bytes."""
        start = self.starts[line - 1 - self.shift]
        if self.source.isascii():
            return start + column
        end = self.starts[line - self.shift] if line - self.shift < len(self.starts) else len(self.source)
        return start + len(self.source[start:end].encode()[:column].decode(errors="ignore"))

    def at(self, tree: ast.expr | ast.stmt) -> int:
        return self.place(tree.lineno, tree.col_offset)

    def fault(self, message: str, tree: ast.expr | ast.stmt) -> ReadError:
        return ReadError(message, self.source, self.at(tree))

    # ------------------------------------------------------------------------------------------------- lines
    def document(self) -> Document:
        lines = []
        statements = self.tree.body
        if self.shift:
            statements = [s for block in statements for s in (block.body if isinstance(block, ast.If) else [block])]
        for statement in self.flat(statements):
            equations = tuple(self.equations(statement))
            if equations:
                said = _innermost(statement)
                lines.append(Line(said.lineno - self.shift, self.at(said), equations))
        if not lines:
            raise ReadError("a formula is missing here", self.source)
        return Document(tuple(lines), self.source)

    def flat(self, statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Statements one by one, with the bodies of functions and of ``with`` in place."""
        for statement in statements:
            if isinstance(statement, (ast.FunctionDef, ast.With)):
                yield from self.flat(statement.body)
            else:
                yield statement

    def equations(self, statement: ast.stmt) -> Iterator[Equation]:
        """The equation of a statement: an assignment, a value, or that two values are equal."""
        at = self.at(statement)
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                for name, value in zip(names, values, strict=True):
                    yield self.assigned([name], self.node(value), at)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if self.is_model(value):
                self.models.add(name)
            case ast.Assign(targets=targets, value=value):
                yield self.assigned(targets, self.node(value), at)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield self.assigned([target], self.node(value), at)
            case ast.AugAssign(target=target, op=op, value=value):
                changed = ast.BinOp(target, op, value, lineno=statement.lineno, col_offset=statement.col_offset)
                yield self.assigned([target], self.node(changed), at)
            case ast.Expr(value=ast.Constant(value=str())) | ast.Import() | ast.ImportFrom() | ast.Pass():
                pass
            case ast.Expr(value=value) | ast.Return(value=ast.expr() as value) | ast.Assert(test=value):
                yield Equation(self.compared(value), at)
            case ast.For() if (total := self.added_up(statement)) is not None:
                yield total
            case ast.For() | ast.While():
                raise self.fault("this loop cannot be read: write it as sum(... for h in range(n_heads))", statement)
            case _:
                raise self.fault("this statement cannot be read; write assignments, values or equalities", statement)

    def assigned(self, targets: Sequence[ast.expr], value: Node, at: int) -> Equation:
        names = [self.node(target) for target in targets]
        self.numbers |= {name.text for name in names if isinstance(name, Name) and self.is_number(value)}
        return Equation((*names, value), at)

    def added_up(self, loop: ast.For) -> Equation | None:
        """``for h in range(n): x = x + a`` as ``x = x + sum(a for h in range(n))``; None for any other loop."""
        bounds = [Bound(self.bound(loop.target), self.over(loop.iter), self.at(loop.iter))]
        inner: ast.stmt = loop
        while isinstance(inner, ast.For):
            if len(inner.body) != 1 or inner.orelse:
                return None
            if inner is not loop:
                bounds.append(Bound(self.bound(inner.target), self.over(inner.iter), self.at(inner.iter)))
            inner = inner.body[0]
        match inner:
            case ast.AugAssign(target=ast.Name() as name, op=ast.Add(), value=value):
                pass
            case ast.Assign(
                targets=[ast.Name() as name], value=ast.BinOp(left=ast.Name(id=before), op=ast.Add(), right=value)
            ) if before == name.id:
                pass
            case _:
                return None
        if any(isinstance(part, ast.Name) and part.id == name.id for part in ast.walk(value)):
            return None  # the summand changes from one pass to the next
        at = self.at(inner)
        total = Sum((1, 1), (self.node(name), BigSum(tuple(bounds), self.node(value), at)), at)
        return self.assigned([name], total, at)

    def is_model(self, tree: ast.expr) -> bool:
        """Whether it is a model or a dictionary of its weights, not a matrix."""
        match tree:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name in self.models or name in ("model", "params")
            case ast.Call(func=ast.Attribute(attr="state_dict" | "from_pretrained" | "load" | "eval" | "params")):
                return True
        return False

    def compared(self, tree: ast.expr) -> tuple[Node, ...]:
        """The sides of ``a == b``, of ``(a == b).all()`` and of ``torch.allclose(a, b)``; else one side."""
        match tree:
            case ast.Compare(left=left, ops=ops, comparators=others) if all(isinstance(op, ast.Eq) for op in ops):
                return tuple(self.node(side) for side in (left, *others))
            case ast.Call(func=ast.Attribute(attr="all" | "item", value=inner)) if not tree.args:
                return self.compared(inner)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[left, right, *_]):
                if _EQUALITIES.fullmatch(name):
                    return self.node(left), self.node(right)
        return (self.node(tree),)

    # ------------------------------------------------------------------------------------------------- values
    def node(self, tree: ast.expr) -> Node:
        at = self.at(tree)
        match tree:
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self.chain(tree)
            case ast.Call():
                return self.call(tree)
            case ast.BinOp():
                return self.operation(tree)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Sum((-1,), (self.node(operand),), at)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.node(operand)
            case ast.Constant(value=str() as text):
                return Text(text, at)
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                try:
                    return Number(Rational(repr(value)), at)
                except ValueError:
                    raise self.fault(f"{value} is not a number that can be read", tree) from None
        raise self.fault("this cannot be read as a matrix or a number", tree)

    def operation(self, tree: ast.BinOp) -> Node:
        """Sums, products, fractions and powers; chains of one kind are one node."""
        kinds = (ast.Add, ast.Sub), (ast.MatMult, ast.Mult)
        kind = next((kind for kind in kinds if isinstance(tree.op, kind)), None)
        if isinstance(tree.op, (ast.Div, ast.Pow)):
            made = Fraction if isinstance(tree.op, ast.Div) else Power
            return made(self.node(tree.left), self.node(tree.right), self.at(tree))
        if kind is None:
            raise self.fault("this operation cannot be read; use +, -, @, *, / or **", tree)
        operators, operands = list[ast.operator](), list[ast.expr]()
        rest: ast.expr = tree
        while isinstance(rest, ast.BinOp) and isinstance(rest.op, kind):
            operators.append(rest.op)
            operands.append(rest.right)
            rest = rest.left
        values = [self.node(operand) for operand in (rest, *reversed(operands))]
        operators.reverse()
        if kind == kinds[0]:
            signs = (1, *(1 if isinstance(op, ast.Add) else -1 for op in operators))
            return Sum(signs, tuple(values), values[0].at)
        return self.product(values, operators)

    def product(self, values: Sequence[Node], operators: Sequence[ast.operator]) -> Node:
        """From left to right: ``@`` multiplies matrices; ``*`` multiplies by a number, or entry by entry."""
        found = values[0]
        for value, operator in zip(values[1:], operators, strict=True):
            entrywise = isinstance(operator, ast.Mult) and not (self.is_number(found) or self.is_number(value))
            found = _joined("o" if entrywise else "", found, value)
        return found

    def is_number(self, node: Node) -> bool:
        """Whether it is clearly a number."""
        match node:
            case Number():
                return True
            case Name(text=text):
                return text in self.numbers or bool(_NUMBER.fullmatch(text))
            case Call(function=Name(text="sqrt" | "norm" | "len" | "float")):
                return True
            case Fraction(numerator=a, denominator=b) | Power(base=a, exponent=b):
                return self.is_number(a) and self.is_number(b)
            case Product(factors=inner) | Sum(summands=inner):
                return all(self.is_number(part) for part in inner)
        return False

    # ------------------------------------------------------------------------------------------------- names
    def chain(self, tree: ast.expr) -> Node:
        """A name with the attributes and brackets after it, from left to right."""
        links: list[ast.Attribute | ast.Subscript] = []
        rest = tree
        while isinstance(rest, (ast.Attribute, ast.Subscript)):
            links.append(rest)
            rest = rest.value
        found = self.path(rest.id, self.at(rest)) if isinstance(rest, ast.Name) else self.node(rest)
        for link in reversed(links):
            found = self.indexed(found, link) if isinstance(link, ast.Subscript) else self.attribute(found, link)
        return found

    def path(self, text: str, at: int) -> Name:
        """``blocks.0.attn.W_V`` (or with underscores for dots) as ``W_V`` with the bracket ``("0",)``."""
        *before, last = re.sub(r"\b(blocks|h|layers)_(\d+)_", r"\1.\2.", text).split(".")
        if last in ("weight", "bias") and before and not before[-1].isdigit():
            last = before.pop() + ("" if last == "weight" else "_bias")
        numbers = tuple(part for part in before if part.isdigit())
        return Name(last, at, (Script("index", numbers, at),) if numbers else ())

    def holds_weights(self, name: Name) -> bool:
        return bool(_MODELS.fullmatch(name.text)) or name.text in self.models

    def attribute(self, found: Node, tree: ast.Attribute) -> Node:
        at = self.place(tree.end_lineno or tree.lineno, (tree.end_col_offset or 0) - len(tree.attr.encode()))
        if tree.attr in ("T", "mT", "H"):
            return Transposed(found, found.at)
        if _SAME.fullmatch(tree.attr):
            return found
        if not isinstance(found, Name):
            raise ReadError(f"the attribute {tree.attr!r} cannot be read here", self.source, at)
        numbers = [part for script in found.scripts for part in script.parts if part.isidentifier() or part.isdigit()]
        if self.holds_weights(found) or numbers:
            name = self.path(tree.attr, at)
            carried = (*numbers, *(part for script in name.scripts for part in script.parts))
            return replace(name, scripts=(Script("index", carried, at),) if carried else ())
        return replace(found, scripts=(*found.scripts, Script("index", (f"'{tree.attr}'",), at)))

    def indexed(self, found: Node, tree: ast.Subscript) -> Node:
        inside = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        at = self.at(tree.slice)
        match inside:
            case [ast.Constant(value=str() as key)] if "." in key:
                return self.path(key, at)
            case [ast.Constant(value=str() as key)] if isinstance(found, Name) and self.holds_weights(found):
                return Name(key, at)
        parts = tuple(map(_written, inside))
        if not isinstance(found, Name):
            return Indexed(found, Script("index", parts, at), found.at)
        if found.scripts and all(
            part.isalnum() for part in found.scripts[-1].parts
        ):  # W_V[0][1], blocks[0].attn.W_V[1]
            *before, last = found.scripts
            return replace(found, scripts=(*before, Script("index", (*last.parts, *parts), last.at)))
        return replace(found, scripts=(*found.scripts, Script("index", parts, at)))

    # ------------------------------------------------------------------------------------------------- calls
    def call(self, tree: ast.Call) -> Node:
        function = tree.func
        if isinstance(function, ast.Name):
            return self.named(function.id, tree.args, tree, self.at(function))
        if not isinstance(function, ast.Attribute):
            return Call(self.node(function), tuple(map(self.node, tree.args)), self.at(tree))
        root = function.value
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and _LIBRARIES.fullmatch(root.id):
            return self.named(function.attr, tree.args, tree, self.at(tree))
        if self.is_model(tree):
            return Name("params", self.at(tree))
        if function.attr == "sum" and isinstance(function.value, ast.Call):  # torch.stack([...]).sum(0)
            return self.summed(function.value.args[0] if function.value.args else function.value, tree)
        return self.named(function.attr, [function.value, *tree.args], tree, self.at(function.value))

    def named(self, name: str, arguments: Sequence[ast.expr], tree: ast.Call, at: int) -> Node:
        """A function by its name; for a method, its object is the first argument."""
        if name in ("sum", "fsum") and arguments:
            return self.summed(arguments[0], tree)
        if name == "multi_dot" and len(arguments) == 1 and isinstance(arguments[0], (ast.List, ast.Tuple)):
            arguments = arguments[0].elts
        if _TURNS.fullmatch(name) and arguments:
            return self.turned(arguments, tree)
        if _SAME.fullmatch(name) and arguments:
            return self.node(arguments[0])
        if any(isinstance(argument, ast.Starred) for argument in arguments):
            raise self.fault("arguments with a star cannot be read", tree)
        if _PRODUCTS.fullmatch(name) and len(arguments) > 1:
            return self.product([self.node(a) for a in arguments], [ast.MatMult()] * (len(arguments) - 1))
        if name == "softmax":
            self.over_keys(arguments, tree)
        if name in ("norm", "softmax", "sqrt", "diag"):  # further arguments are a kind, an axis
            arguments = arguments[:1]
        return Call(Name(name, at), tuple(map(self.node, arguments)), at)

    def over_keys(self, arguments: Sequence[ast.expr], tree: ast.Call) -> None:
        """Raise a ReadError if a softmax does not run over the last axis, that of the keys."""
        axes = [ast.unparse(a) for a in arguments[1:]] + [
            ast.unparse(k.value) for k in tree.keywords if k.arg not in ("dtype", "input")
        ]
        if any(axis not in ("-1", "1") for axis in axes) or len(axes) > 1:
            raise self.fault("a softmax must be over the last axis, that of the keys: dim=-1", tree)

    def turned(self, arguments: Sequence[ast.expr], tree: ast.Call) -> Node:
        """A transpose, which must be of the last two axes."""
        axes = [ast.unparse(a) for a in arguments[1:]]
        if axes not in ([], ["-1", "-2"], ["-2", "-1"], ["0", "1"], ["1", "0"]):
            raise self.fault("a transpose must be of the last two axes: .T or .transpose(-1, -2)", tree)
        if axes[:1] == ["0"] and getattr(tree.func, "attr", "") == "permute":
            return self.node(arguments[0])
        inner = self.node(arguments[0])
        return Transposed(inner, inner.at)

    def summed(self, tree: ast.expr, call: ast.Call) -> Node:
        """``sum(... for h in range(n_heads))`` and ``sum([a, b])``."""
        match tree:
            case ast.List(elts=[_, *_] as elements) | ast.Tuple(elts=[_, *_] as elements):
                values = tuple(map(self.node, elements))
                return values[0] if len(values) == 1 else Sum((1,) * len(values), values, values[0].at)
            case ast.GeneratorExp(elt=body, generators=loops) | ast.ListComp(elt=body, generators=loops):
                if any(loop.ifs for loop in loops):
                    raise self.fault("a condition in a sum cannot be read", tree)
                bounds = tuple(
                    Bound(self.bound(loop.target), self.over(loop.iter), self.at(loop.iter)) for loop in loops
                )
                return BigSum(bounds, self.node(body), self.at(call))
        raise self.fault("a sum must be over heads: sum(... for h in range(n_heads))", tree)

    def bound(self, target: ast.expr) -> tuple[str, ...]:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(name, ast.Name) for name in names):
            raise self.fault("the variables of a sum must be single names", target)
        return tuple(name.id for name in names if isinstance(name, ast.Name))

    def over(self, tree: ast.expr) -> str:
        """The range of a sum: ``range(n_heads)`` is ``0..H-1``, ``range(1, 4)`` is ``1..3``; any other unchanged."""
        match tree:
            case ast.Call(func=ast.Name(id="range"), args=[stop]):
                first, end = "0", stop
            case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int() as start), stop]):
                first, end = str(start), stop
            case _:
                return re.sub(r"\s+", "", ast.unparse(tree))
        if isinstance(end, ast.Constant) and isinstance(end.value, int):
            return f"{first}..{end.value - 1}"
        last = ast.unparse(end).rpartition(".")[2]
        last = "H" if _COUNTS.fullmatch(last) else "L" if _LAYERS.fullmatch(last) else last
        return f"{first}..{last}-1"


def _written(tree: ast.expr) -> str:
    """The text in a bracket, without spaces."""
    match tree:
        case ast.Name(id=text):
            return text
        case ast.Constant(value=int() as number):
            return str(number)
    return re.sub(r"\s+", "", ast.unparse(tree))


def _joined(operator: Operator, left: Node, right: Node) -> Product:
    """A product with one more factor on the right."""
    if isinstance(left, Product) and left.operator == operator == "":
        return Product("", (*left.factors, right), left.at)
    return Product(operator, (left, right), left.at)
