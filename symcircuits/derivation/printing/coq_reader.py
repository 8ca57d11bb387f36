"""What a file of Coq states, read back as the text that is printed: the writer of the file is not asked.

Compared without spaces and parentheses, but those of which a transpose is taken. Names of letters are told apart by
their forms; tensors are put between their slots. Sides that are numbers are compared by their values. A list of terms
holds as many as are counted, no two the same, and each is a summand that is printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from symcircuits.core.seam import higher
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.multiplying import count_polynomial
from symcircuits.derivation.nodes import CountOf, Elementary, Expr, HeadCount, Number, Sum, every_node
from symcircuits.derivation.printing.coq import written_out

__all__ = ["TURNED", "Reading", "as_text", "elementary_value", "misread", "misstated", "printed_letter"]

_LABELLED = re.compile(r"(.+?)_(?:([QK]?[LM]\d+(?:[HG]\d+)?|[QK]\d+|final|[fghkq])|G_([fghkq]))")
_SIGNS = {"*m": "@", "*:": "*", "\\times": "*", "\\oplus": "+", "\\after": "", "1%:M": "Id", "+": "+", ",": ","}
TURNED = "~T"  # the transpose of what stands in parentheses, told from that of its last letter
_COUNTS = (Number, HeadCount, Elementary, CountOf)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a language is read: a formula as it is printed, the terms of a list that is counted, numbers on each side."""

    as_text: Callable[[str], str]
    listed: Callable[[str], list[str]]
    values: Callable[[str], list[int]]


def as_text(coq: str) -> str:
    """A formula of Coq as it is printed in text, without spaces and parentheses.

    >>> as_text("((tensor A_L0H0 (W_U *m W_OV_L0H0)) t)")
    'A[L0H0]xW_U@W_OV[L0H0]t'
    """
    coq = re.sub(r"^forall X, (.*) X = (.*) X$", r"\1 = \2", coq)
    found, _ = _read(re.findall(r"[()]|\^T|,|[^\s(),^]+", coq), 0)
    return found


def _read(tokens: list[str], at: int) -> tuple[str, int]:
    """What stands from there to the parenthesis that closes it, and where that is."""
    parts: list[str] = []
    while at < len(tokens) and tokens[at] != ")":
        token = tokens[at]
        if token == "(":
            part, at = _read(tokens, at + 1)
            parts.append(part)
        elif token == "^T":
            parts[-1] += TURNED if tokens[at - 1] == ")" else ".T"
        else:
            parts.append(_SIGNS[token] if token in _SIGNS else printed_letter(token))
        at += 1
    between = "x" if parts and parts[0] in ("tensor", "tensor3") else ""
    return between.join(parts[1:] if between else parts), at


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
    definitions = re.findall(r"^Definition (\w+) := (.*)\.$", text, re.MULTILINE)
    return misread(derivation, definitions, re.findall(r"^Lemma (step\w+) : (.*)\.$", text, re.MULTILINE), _COQ)


def misread(
    derivation: Derivation, definitions: Iterable[tuple[str, str]], lemmas: Iterable[tuple[str, str]], reading: Reading
) -> list[str]:
    """The same of what was found in a file of any language: names with what they mean, lemmas with what they state."""
    said = "which is not what is printed"
    defined = {
        _bare(_text(c.lhs, derivation)): c.rhs for s in derivation.steps for c in s.claims if s.kind == "definition"
    }
    faults = [
        f"{name} is defined as {body}, {said}"
        for name, body in definitions
        if (key := printed_letter(name)) in defined and reading.as_text(body) != _bare(_text(defined[key], derivation))
    ]
    for name, statement in lemmas:
        step, claim, part = map(int, re.findall(r"\d+", name))
        sides = derivation.steps[step - 1].claims[claim - 1].sides[part - 1 : part + 1]
        if not _agrees(statement, sides, derivation, reading):
            faults.append(f"{name} states {statement}, {said}")
    return faults


def _agrees(statement: str, sides: tuple[Expr, ...], derivation: Derivation, reading: Reading) -> bool:
    if any(isinstance(node, _COUNTS) for side in sides for node in every_node(side)):
        heads = derivation.frame.architecture.heads
        values = [count_polynomial(side, lambda layer: heads[layer]) for side in sides]
        listed = reading.listed(statement)
        return reading.values(statement) == values and len({*listed}) == len(listed) and _printed(listed, derivation)
    return reading.as_text(statement) == "=".join(_bare(_text(side, derivation)) for side in sides)


def _printed(listed: list[str], derivation: Derivation) -> bool:
    """Whether each is a summand of a side that is printed."""
    sides = [
        side for step in derivation.steps for claim in step.claims for side in claim.sides if isinstance(side, Sum)
    ]
    summands = {text for side in sides for text in _bare(_text(side, derivation)).split("+")}
    return {*filter(None, listed)} <= summands


def _listed(statement: str) -> list[str]:
    """The terms that are counted in a statement."""
    return [as_text(term) for terms in re.findall(r"size \[::(.*?)\]", statement) for term in terms.split(";")]


def _values(statement: str) -> Iterator[int]:
    """The numbers on both sides of an equation of numbers."""
    for side in statement.removesuffix("%N").removeprefix("(").removesuffix(")").split(" = "):
        side = re.sub(r"size \[::(.*?)\]", lambda terms: str(len(list(filter(str.strip, terms[1].split(";"))))), side)
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


def _text(expr: Expr, derivation: Derivation) -> str:
    return higher(str, "Expr.text")(written_out(expr, derivation))


_COQ = Reading(as_text, _listed, lambda statement: list(_values(statement)))
