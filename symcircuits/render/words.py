"""The words of a printed derivation: what each part says, made from the checked objects."""

from __future__ import annotations

from symcircuits.derivation import Derivation
from symcircuits.derivation.checks import Check
from symcircuits.derivation.expressions import Family

__all__ = ["check_sentence", "conventions", "family_title", "plain", "seal", "subject", "title"]


def plain(text: str) -> str:
    """A sentence without the marks around its formulas."""
    return text.replace("`", "")


def title(derivation: Derivation) -> str:
    """``The logits as a sum over paths``."""
    head = derivation.frame.head
    what = {"logits": "The logits", "stream": "The residual stream"}.get(derivation.target, f"The scores of {head}")
    pairs = "pairs of paths" if head is not None else "paths"
    return f"{what} as a sum over {pairs}: {derivation.form} form"


def subject(derivation: Derivation) -> str:
    """Which models the derivation speaks of."""
    frame = derivation.frame
    if not frame.generic:
        return f"Model: {frame.architecture}."
    layers = "1 layer" if frame.depth == 1 else f"{frame.depth} layers"
    extra = str(frame.walked).partition(", heads ")[2].partition(", ")[2]
    below = " below the head" if frame.head is not None else ""
    return f"Model: attention-only, {layers}{below}, any number of heads in each" + (f", {extra}." if extra else ".")


def conventions(derivation: Derivation) -> list[str]:
    """What a reader must know: conventions, and what is held fixed."""
    frame = derivation.frame
    lines = [
        "Row convention: a stream `X` has one row for each token; a head maps `X` to `A X W_OV^T` with "
        "`W_OV = W_O W_V`, and its scores are `X W_QK X^T` with `W_QK = W_Q^T W_K` (rows are queries, columns keys).",
        "Held fixed: the attention patterns `A`, and so every formula is linear in what enters the stream; no layer "
        "norm and no MLP.",
    ]
    if frame.generic:
        names = "index `h_l` runs"
        if frame.head is not None:
            names = "indices `h_l`, `q_l` (on the query side) and `k_l` (on the key side) run"
        lines.append(
            f"Layers are numbered from 1 and layer `l` has `H_l` heads; the {names} from 1 to `H_l`. "
            "A given head is called by its label, counted from 0: L0H0 is the first head of the first layer, "
            "`h_1 = 1`."
        )
    else:
        lines.append("Heads are called by their labels, counted from 0: L0H2 is the third head of the first layer. "
                     "Layers in formulas are numbered from 1: `X_l` is the stream after `l` layers"
                     + _head_counts(frame.architecture.heads[: frame.depth]) + ".")  # fmt: skip
    if frame.head is not None and frame.expansion.readout.scale:
        lines.append("The score scale `s` (usually `1/sqrt(d_head)`) is one scalar, applied once.")
    if frame.architecture.biases:
        lines.append("Biases are sources of their own; `1 b^T`, with `1` the column of ones, is the same row for "
                     "every token.")  # fmt: skip
    if frame.architecture.positions:
        where = "the stream" if frame.architecture.positions == "standard" else "the input of queries and keys only"
        lines.append(f"`P` is the position embedding; it is added to {where}.")
    return lines


def _head_counts(heads: tuple[int, ...]) -> str:
    """What the symbols ``H_l`` stand for here."""
    values = ", ".join(f"`H_{i} = {n}`" for i, n in enumerate(heads, 1))
    return f"; layer `l` has `H_l` heads, here {values}" if heads else ""


def family_title(family: Family, bilinear: bool, many: bool) -> str:
    """``direct path (none)``, ``individual heads (none)``, ``virtual heads of order 2 (V)``, ``Q-composition``."""
    if bilinear:
        return "no composition (none)" if family.composition == "none" else f"{family.composition}-composition"
    if not family.order:
        return f"direct path{'s' if many else ''} ({family.composition})"
    if family.order == 1:
        return f"individual head{'s' if many else ''} ({family.composition})"
    return f"virtual heads of order {family.order} ({family.composition})"


def _counts(check: Check) -> str:
    shown = ", ".join("(" + ",".join(map(str, c)) + ")" for c in check.head_counts)
    return f" at head counts {shown}" if shown and check.head_counts != ((),) else ""


def check_sentence(check: Check) -> str:
    """What was checked of a step, and how."""
    if check.how == "letters":
        return "Checked: the same product, letter by letter."
    if check.how == "count":
        text = f"Checked: the terms of the expression above were counted{_counts(check)} and compared with the "
        text += "count of the enumeration"
        return text + ("; SymPy: the same polynomial in the head counts, so for every number of heads."
                       if check.head_counts else ".")  # fmt: skip
    by = "summed over their indices by the definition of the tensor product, " if check.how == "indices" else ""
    which = "in every claim the" if check.claims > 1 else "the"
    text = (
        f"Checked: {which} two sides are equal, {by}on {check.trials} draws of "
        f"random `{check.k} x {check.k}` matrices modulo `p`{_counts(check)}; "
        f"error at most `({check.degree}/p)^{check.trials} = {check.bound:.1e}`"
    )
    if "terms" in check.also:
        text += "; the terms are those of the enumeration, each once"
    if "families" in check.also:
        text += "; composition type, order and number of terms of every family were read from its words"
    return text + "."


def seal(derivation: Derivation) -> str:
    """``Every step was checked: ...``, from the checks themselves."""
    checks = [step.check for step in derivation.steps]
    if not derivation.ok:
        return "NOT every step was checked."
    claims = sum(c.claims for c in checks)
    drawn = [c for c in checks if c.prime]
    parts = [f"Every step was checked: {claims} claims in {len(checks)} steps"]
    parts.append(f"{sum(c.claims for c in drawn)} of them exactly, on random matrices over the integers modulo the "
                 f"prime `p = {drawn[0].prime}` (seed {drawn[0].seed}), where a wrong claim passes with probability at "
                 f"most `{max(c.bound for c in drawn):.1e}`") if drawn else None  # fmt: skip
    counted = sum(c.claims for c in checks if c.how == "count")
    if counted:
        parts.append(f"{counted} by counting")
    letters = sum(c.claims for c in checks if c.how == "letters")
    if letters:
        parts.append(f"{letters} as abbreviations, letter by letter")
    return ", ".join(parts) + "."
