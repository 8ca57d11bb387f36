"""What a file of Coq states, read back as the text that is printed: the writer of the file is not asked.

Compared without spaces and parentheses, but those of which a transpose is taken. Names of letters are told apart by
their forms; tensors are put between their slots. The matrix of a head of a layer, ``A_1 h_1``, is read only where the
index runs over the heads of that layer. Sides that are numbers are compared by their values, symbolic numbers of heads
at values so far apart that no other polynomial agrees there. A list of terms holds as many as are counted, no two the
same, and each is a summand that is printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from symcircuits.core.seam import higher
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.multiplying import count_polynomial
from symcircuits.derivation.nodes import CountOf, Elementary, Expr, HeadCount, Number, Sum, SumOver, every_node
from symcircuits.derivation.printing.statements import written_out

__all__ = ["TURNED", "Reading", "as_text", "elementary_value", "misread", "misstated", "printed_letter"]

_LABELLED = re.compile(r"(.+?)_(?:([QK]?[LM]\d+(?:[HG]\d+)?|[QK]\d+|final|[fghkq])|G_([fghkq]))")
_SIGNS = {"*m": "@", "*:": "*", "\\times": "*", "\\oplus": "+", "\\after": "", "1%:M": "Id", "+": "+", ",": ","}
TURNED = "~T"  # the transpose of what stands in parentheses, told from that of its last letter
_OVER = r"\(\\sum_\(0 <= \w+ < \w+\) "
_OF_HEAD = re.compile(r"\w+\[\w+\]")
_COUNTS = (Number, HeadCount, Elementary, CountOf)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a language is read: a formula as it is printed, the terms of a list that is counted, numbers on each side.

    ``layers`` of a definition for every head ``h`` says of which layer ``h`` is. ``any_heads``: sums over heads are
    sums there, and numbers of heads symbols in generic form, for which ``values`` is given numbers; else both are
    written out.
    """

    as_text: Callable[[str, Mapping[str, str]], str]
    listed: Callable[[str], list[str]]
    values: Callable[[str, Sequence[int]], list[int]]
    any_heads: bool


def as_text(coq: str, layers: Mapping[str, str] = MappingProxyType({})) -> str:
    """A formula of Coq as it is printed in text, without spaces and parentheses; ``layers``: of indices from outside.

    >>> as_text("((tensor A_L0H0 (W_U *m W_OV_L0H0)) t)")
    'A[L0H0]xW_U@W_OV[L0H0]t'
    >>> as_text("(\\\\sum_(0 <= h_1 < H_1) ((A_1 h_1) *m X0 *m (W_OV_1 h_1)^T))")
    'sum[h_1=1..H_1]A[h_1]@X0@W_OV[h_1].T'
    """
    coq = re.sub(r"^forall X, (.*) X = (.*) X$", r"\1 = \2", coq)
    return _Reader(re.findall(r"[()]|\^T|,|[^\s(),^]+", coq), dict(layers)).read(0)[0]


@dataclass(slots=True)
class _Reader:
    """The tokens of a formula, and over the heads of which layer the indices run that are bound."""

    tokens: list[str]
    layers: dict[str, str]

    def read(self, at: int) -> tuple[str, int]:
        """What stands from there to the parenthesis that closes it, and where that is."""
        parts: list[str] = []
        outside = dict(self.layers)
        while at < len(self.tokens) and self.tokens[at] != ")":
            token = self.tokens[at]
            if token == "\\sum_":  # \sum_(0 <= h_1 < H_1)
                at = self.bind(self.tokens[at + 4], self.tokens[at + 6], parts, at + 7)
            elif token == "over_acts":  # over_acts H_1 (fun h_1 => ...)
                part, at = self.read(self.bind(self.tokens[at + 4], self.tokens[at + 1], parts, at + 5) + 1)
                parts.append(part)
            elif token == "(":
                part, at = self.read(at + 1)
                parts.append(part)
            elif token == "^T":
                parts[-1] += TURNED if self.tokens[at - 1] == ")" and not _OF_HEAD.fullmatch(parts[-1]) else ".T"
            else:
                parts.append(token if token in self.layers else _sign(token))
            at += 1
        if len(parts) == 2 and (index := parts[1].removeprefix("G")) in self.layers:
            parts = [self.of_head(parts[0], index, parts[1])]
        self.layers = outside
        if parts[:1] == ["between"] and len(parts) == 4:  # between R_L1H0 Q K
            return "@".join([parts[2], parts[1], parts[3]]), at
        between = "x" if parts and parts[0] in ("tensor", "tensor3") else ""
        return between.join(parts[1:] if between else parts), at

    def bind(self, index: str, number: str, parts: list[str], at: int) -> int:
        """A sum begins: what it runs over. And where its body begins."""
        self.layers[index] = number.removeprefix("H_")
        parts.append(f"sum[{index}=1..{number}]")
        return at

    def of_head(self, family: str, index: str, label: str) -> str:
        """The matrix of a family at an index, or the group of the head; as it stands where it is of another layer."""
        glyph, _, layer = family.rpartition("_")
        if layer != self.layers[index]:
            return f"{family} {label}"
        return f"G{label}" if glyph == "G" else f"{glyph}[{label}]"


def _sign(token: str) -> str:
    return _SIGNS[token] if token in _SIGNS else printed_letter(token)


def printed_letter(token: str) -> str:
    """A letter as it is printed in text.

    >>> printed_letter("W_V_L0G0"), printed_letter("scores_L1H0"), printed_letter("W_E")
    ('W_V[L0G0]', 'S[L1H0]', 'W_E')
    """
    if not (found := _LABELLED.fullmatch(token)):
        return token
    name = "S" if found[1] == "scores" else found[1]
    return f"{name}[{found[2] or f'G{found[3]}'}]"


def _bare(text: str) -> str:
    return re.sub(r"[()\s]", "", text.replace(").T", f"){TURNED}"))


def misstated(derivation: Derivation, text: str) -> list[str]:
    """A sentence for every lemma and definition of a file that says something else than the claim that it is of.

    >>> import symcircuits as sc
    >>> from symcircuits.derivation.printing.coq import derivation_coq
    >>> text = derivation_coq(sc.derive(sc.attention_only((1,)), "stream"))
    >>> misstated(sc.derive(sc.attention_only((1,)), "stream"), text)
    []
    >>> wrong = text.replace("Lemma step4_1_1 : stream = ", "Lemma step4_1_1 : X0 = ")
    >>> misstated(sc.derive(sc.attention_only((1,)), "stream"), wrong)
    ['step4_1_1 states X0 = X1, which is not what is printed']
    """
    definitions = [
        (name, body, name.rpartition("_")[2] if of_head else "")
        for name, of_head, body in re.findall(r"^Definition (\w+)( \(h : nat\))? := (.*)\.$", text, re.MULTILINE)
    ]
    return misread(derivation, definitions, re.findall(r"^Lemma (step\w+) : (.*)\.$", text, re.MULTILINE), _COQ)


def misread(
    derivation: Derivation,
    definitions: Iterable[tuple[str, str, str]],
    lemmas: Iterable[tuple[str, str]],
    reading: Reading,
) -> list[str]:
    """The same of what was found in a file of any language.

    Definitions are names with what they mean, and the layer, from 1, if they are of every head ``h`` of one. Lemmas
    are names with what they state.
    """
    said = "which is not what is printed"
    printed = _Printed(derivation, reading.any_heads)
    claims = [claim for step in derivation.steps if step.kind == "definition" for claim in step.claims]
    defined = {printed.text(claim.lhs): claim.rhs for claim in claims}
    faults = [
        f"{name} is defined as {body}, {said}"
        for name, body, layer in definitions
        if (key := f"{name.rpartition('_')[0]}[h]" if layer else printed_letter(name)) in defined
        and reading.as_text(body, {"h": layer} if layer else {}) != printed.text(defined[key])
    ]
    for name, statement in lemmas:
        step, claim, part = map(int, re.findall(r"\d+", name))
        sides = derivation.steps[step - 1].claims[claim - 1].sides[part - 1 : part + 1]
        if not _agrees(statement, sides, printed, reading):
            faults.append(f"{name} states {statement}, {said}")
    return faults


@dataclass(frozen=True, slots=True)
class _Printed:
    """What is printed of a derivation, its sums over heads as they stand or written out."""

    derivation: Derivation
    any_heads: bool

    def text(self, expr: Expr) -> str:
        return _bare(higher(str, "Expr.text")(expr if self.any_heads else written_out(expr, self.derivation)))

    def heads(self) -> Sequence[int]:
        """Numbers of heads at which sides are compared.

        Where they are symbols, polynomials of degree 2 in each with coefficients below 10,000 are told apart by them.
        """
        asked = self.derivation.frame.architecture.heads
        symbols = self.any_heads and self.derivation.form == "generic"
        return [10 ** (4 * 3**layer) for layer in range(len(asked))] if symbols else asked

    def summands(self) -> set[str]:
        """Every summand of a side."""
        sides = [side for step in self.derivation.steps for claim in step.claims for side in claim.sides]
        sums = (Sum, SumOver) if self.any_heads else Sum
        return {text for side in sides if isinstance(side, sums) for text in self.text(side).split("+")}


def _agrees(statement: str, sides: tuple[Expr, ...], printed: _Printed, reading: Reading) -> bool:
    if any(isinstance(node, _COUNTS) for side in sides for node in every_node(side)):
        heads = printed.heads()
        values = [count_polynomial(side, lambda layer: heads[layer]) for side in sides]
        listed = reading.listed(statement)
        same = reading.values(statement, heads) == values and len({*listed}) == len(listed)
        return same and {*filter(None, listed)} <= printed.summands()
    return reading.as_text(statement, {}) == "=".join(map(printed.text, sides))


def _listed(statement: str) -> list[str]:
    """The terms that are counted in a statement, with the sums over heads around them."""
    lists = re.findall(rf"((?:{_OVER})*)\(size \[::(.*?)\]", statement)
    return [as_text(over + term) for over, terms in lists for term in terms.split(";")]


def _values(statement: str, heads: Sequence[int]) -> Iterator[int]:
    """The numbers on both sides of an equation of numbers."""
    statement = re.sub(r"\bH_(\d+)\b", lambda of: str(heads[int(of[1]) - 1]), statement)
    for side in statement.removesuffix("%N").removeprefix("(").removesuffix(")").split(" = "):
        side = re.sub(r"size \[::(.*?)\]", lambda terms: str(len(list(filter(str.strip, terms[1].split(";"))))), side)
        side = re.sub(r"\\sum_\(0 <= \w+ < (\d+)\)", r"\1 *", side)
        side = re.sub(
            r"elementary (\d+) \[::(.*?)\]", lambda e: str(elementary_value(int(e[1]), map(int, e[2].split(";")))), side
        )
        yield _sum(side.replace(" ", ""))


def elementary_value(order: int, heads: Iterable[int]) -> int:
    """The elementary symmetric polynomial of numbers of heads.

    >>> elementary_value(2, [3, 4, 5])
    47
    """
    coefficients = [1] + [0] * order
    for number in heads:
        coefficients = [a + number * b for a, b in zip(coefficients, [0, *coefficients], strict=False)]
    return coefficients[order]


def _sum(text: str) -> int:
    """The value of sums and products of whole numbers, in parentheses."""
    while inner := re.search(r"\(([\d+*]+)\)", text):
        text = text.replace(inner[0], str(_sum(inner[1])))
    total = 0
    for product in text.split("+"):
        value = 1
        for factor in product.split("*"):
            value *= int(factor)
        total += value
    return total


_COQ = Reading(as_text, _listed, lambda statement, heads: list(_values(statement, heads)), any_heads=True)
