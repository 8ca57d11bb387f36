"""What a file of Coq states, read back as the text that is printed: the writer of the file is not asked.

Compared without spaces and parentheses. Names of letters are told apart by their forms; tensors are put between their
slots. Sides that are numbers are compared by their values. A list of terms holds as many as are counted, no two the
same, and each is a summand that is printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from symcircuits.core.seam import higher
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.multiplying import count_polynomial
from symcircuits.derivation.nodes import CountOf, Elementary, Expr, HeadCount, Number, Sum, every_node
from symcircuits.derivation.printing.coq import written_out

__all__ = ["as_text", "misstated"]

_LABELLED = re.compile(r"(.+?)_(?:([QK]?[LM]\d+(?:[HG]\d+)?|[QK]\d+|final|[ghkq])|G_([ghkq]))")
_SIGNS = {"*m": "@", "*:": "*", "\\times": "*", "\\oplus": "+", "\\after": "", "1%:M": "Id", "+": "+", ",": ","}
_COUNTS = (Number, HeadCount, Elementary, CountOf)


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
            parts[-1] += ".T"
        else:
            parts.append(_letter(token))
        at += 1
    between = "x" if parts and parts[0] in ("tensor", "tensor3") else ""
    return between.join(parts[1:] if between else parts), at


def _letter(token: str) -> str:
    if token in _SIGNS:
        return _SIGNS[token]
    if not (found := _LABELLED.fullmatch(token)):
        return token
    name = "S" if found[1] == "scores" else found[1]
    return f"{name}[{found[2] or f'G{found[3]}'}]"


def _bare(text: str) -> str:
    return re.sub(r"[()\s]", "", text)


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
    said = "which is not what is printed"
    defined = {
        _bare(_text(c.lhs, derivation)): c.rhs for s in derivation.steps for c in s.claims if s.kind == "definition"
    }
    faults = [
        f"{name} is defined as {body}, {said}"
        for name, body in re.findall(r"^Definition (\w+) := (.*)\.$", text, re.MULTILINE)
        if (key := _letter(name)) in defined and as_text(body) != _bare(_text(defined[key], derivation))
    ]
    for step, claim, part, statement in re.findall(r"^Lemma step(\d+)_(\d+)_(\d+) : (.*)\.$", text, re.MULTILINE):
        sides = derivation.steps[int(step) - 1].claims[int(claim) - 1].sides[int(part) - 1 : int(part) + 1]
        if not _agrees(statement, sides, derivation):
            faults.append(f"step{step}_{claim}_{part} states {statement}, {said}")
    return faults


def _agrees(statement: str, sides: tuple[Expr, ...], derivation: Derivation) -> bool:
    if any(isinstance(node, _COUNTS) for side in sides for node in every_node(side)):
        heads = derivation.frame.architecture.heads
        values = [count_polynomial(side, lambda layer: heads[layer]) for side in sides]
        listed = [as_text(term) for terms in re.findall(r"size \[::(.*?)\]", statement) for term in terms.split(";")]
        return list(_values(statement)) == values and len({*listed}) == len(listed) and _printed(listed, derivation)
    return as_text(statement) == "=".join(_bare(_text(side, derivation)) for side in sides)


def _printed(listed: list[str], derivation: Derivation) -> bool:
    """Whether each is a summand of a side that is printed."""
    sides = [
        side for step in derivation.steps for claim in step.claims for side in claim.sides if isinstance(side, Sum)
    ]
    summands = {text for side in sides for text in _bare(_text(side, derivation)).split("+")}
    return {*filter(None, listed)} <= summands


def _values(statement: str) -> Iterator[int]:
    """The numbers on both sides of an equation of numbers."""
    for side in statement.removesuffix("%N").removeprefix("(").removesuffix(")").split(" = "):
        side = re.sub(r"size \[::(.*?)\]", lambda terms: str(len(list(filter(str.strip, terms[1].split(";"))))), side)
        side = re.sub(r"elementary (\d+) \[::(.*?)\]", lambda e: str(_elementary(int(e[1]), e[2])), side)
        yield _sum(side.replace(" ", ""))


def _elementary(order: int, listed: str) -> int:
    coefficients = [1] + [0] * order
    for heads in map(int, listed.split(";")):
        coefficients = [a + heads * b for a, b in zip(coefficients, [0, *coefficients], strict=False)]
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
