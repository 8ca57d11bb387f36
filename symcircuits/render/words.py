"""The words of a printed derivation: what each part says, made from the checked objects."""

from __future__ import annotations

from collections import Counter

from symcircuits.derivation import Derivation
from symcircuits.derivation.checks import Check
from symcircuits.derivation.expressions import Family
from symcircuits.derivation.frames import Frame

__all__ = ["check_sentence", "conventions", "family_title", "plain", "seal", "section", "statement", "subject", "title"]

_LISTED = 12  # biases are named one by one up to so many


def plain(text: str) -> str:
    """A sentence without the marks around its formulas."""
    return text.replace("`", "")


def title(derivation: Derivation) -> str:
    """``The logits as a sum over paths``."""
    if derivation.result is not None:
        return derivation.result.title
    head = derivation.frame.head
    what = {"logits": "The logits", "stream": "The residual stream"}.get(derivation.target, f"The scores of {head}")
    pairs = "pairs of paths" if head is not None else "paths"
    return f"{what} as a sum over {pairs}: {derivation.form} form"


def statement(derivation: Derivation) -> str:
    """What is shown, in a sentence; formulas in it stand between backticks."""
    if derivation.result is not None:
        return derivation.result.statement
    frame = derivation.frame
    pairs = "every pair of paths, one on the query and one on the key side" if frame.head else "every path"
    what = f"The scores of {frame.head} are" if frame.head else f"The {derivation.target} are"
    what = "The residual stream is" if derivation.target == "stream" else what
    n = len(frame.terms)
    terms = "1 term" if n == 1 else f"{n:,} terms"
    if frame.generic:
        families = "1 family" if n == 1 else f"{n:,} families"
        terms = f"{families}, for any number of heads"
    return f"{what} exactly the sum of one term for {pairs}: {_model_words(frame)}, {terms}."


def _model_words(frame: Frame) -> str:
    arch = frame.architecture
    layers = "no layer" if not frame.depth else "1 layer" if frame.depth == 1 else f"{frame.depth} layers"
    if frame.depth and not frame.generic:
        counts = arch.heads[: frame.depth]
        n = str(counts[0]) if len(set(counts)) == 1 else " and ".join(map(str, counts))
        layers += f" of {n} head{'' if n == '1' else 's'}"
    layers += " below" if frame.head is not None else ""
    where = {"standard": ", position in the stream", "shortformer": ", position in queries and keys only"}
    kinds = sorted({name.partition("[")[0] for name in frame.biases})
    biases = f", biases {', '.join(f'`{kind}`' for kind in kinds)}" if kinds else ""
    return layers + where.get(arch.positions or "", "") + biases


def section(derivation: Derivation) -> str:
    """The section of the paper."""
    if derivation.result is not None:
        return derivation.result.section
    frame = derivation.frame
    if frame.head is not None:
        names = {0: "Splitting Attention Head terms into QK and OV circuits"}
        return names.get(frame.depth, "Path Expansion of Attention Scores QK Circuit")
    names = {0: "Zero-Layer Transformers", 1: "The Path Expansion Trick"}
    return names.get(frame.depth, "Path Expansion of Logits")


def subject(derivation: Derivation) -> str:
    """Which models the derivation speaks of."""
    frame = derivation.frame
    if derivation.result is not None and not derivation.result.names_model:
        return derivation.result.statement
    if derivation.result is not None:
        return f"{derivation.result.statement} {_shown_for(frame)}"
    return _shown_for(frame)


def _shown_for(frame: Frame) -> str:
    if not frame.generic:
        return f"Model: {frame.architecture}.{_biases(frame)}"
    layers = "1 layer" if frame.depth == 1 else f"{frame.depth} layers"
    extra = str(frame.walked).partition(", heads ")[2].split(", ")[1:]
    below = " below the head" if frame.head is not None else ""
    heads = ", any number of heads in each" if frame.depth else ""
    said = [
        f"Model: attention-only, {layers}{below}{heads}",
        *(e for e in extra if e != "biases"),
    ]
    return ", ".join(said) + "." + _biases(frame)


def _biases(frame: Frame) -> str:
    """Which biases occur in the formulas, so which kind of head is meant."""
    names = [f"`{name}`" for name in frame.biases]
    if not names:
        return " No bias occurs in the formulas." if frame.architecture.biases else ""
    if len(names) > _LISTED:
        kinds = Counter(name.partition("[")[0] for name in frame.biases)
        names = [f"{n} of kind `{kind}`" for kind, n in kinds.items()]
    every = ""
    if any("[h_" in name for name in frame.biases):
        every = "; `b_V[h_l]`: every head of layer `l` has one"
    return f" Biases in the formulas: {', '.join(names)}, and no others{every}."


def conventions(derivation: Derivation) -> list[str]:
    """What a reader must know: conventions, and what is held fixed."""
    frame = derivation.frame
    lines = [_rows(frame), _held_fixed(frame)]
    if derivation.result is not None:
        lines[1:] = derivation.result.conventions or [lines[1]]
        if not derivation.result.names_model:
            return lines
    if frame.generic and frame.depth:
        names = "index `h_l` runs"
        if frame.head is not None:
            names = "indices `h_l`, `q_l` (on the query side) and `k_l` (on the key side) run"
        lines.append(
            f"Layers are numbered from 1 and layer `l` has `H_l` heads; the {names} from 1 to `H_l`. "
            "A given head is called by its label, counted from 0: L0H0 is the first head of the first layer, "
            "`h_1 = 1`."
        )
    elif frame.depth or frame.head is not None:
        lines.append("Heads are called by their labels, counted from 0: L0H2 is the third head of the first layer. "
                     "Layers in formulas are numbered from 1: `X_l` is the stream after `l` layers"
                     + _head_counts(frame.architecture.heads[: frame.depth]) + ".")  # fmt: skip
    if frame.head is not None:
        lines.append("The score scale `s` (usually `1/sqrt(d_head)`) is one scalar, applied once."
                     if frame.expansion.readout.scale else "The scores of this model carry no scale.")  # fmt: skip
    if frame.biases:
        lines.append("Biases are sources of their own; `1 b^T`, with `1` the column of ones, is the same row for "
                     "every token.")  # fmt: skip
    if frame.architecture.positions:
        where = "the stream" if frame.architecture.positions == "standard" else "the input of queries and keys only"
        lines.append(f"`P` is the position embedding; it is added to {where}.")
    return lines


def _rows(frame: Frame) -> str:
    """The row convention, and what a head of this model does."""
    said = ["Row convention: a stream `X` has one row for each token"]
    if frame.depth:
        said.append(f"a head maps `X` to {_head_map(frame)}; `W_OV = W_O W_V`")
    if frame.head is not None:
        stream = "Y" if frame.architecture.positions == "shortformer" else "X"
        scale = "s " if frame.expansion.readout.scale else ""
        score = f"`{scale}{stream} W_QK {stream}^T`"
        kinds = {name.partition("[")[0] for name in frame.biases}
        if kinds & {"b_Q", "b_K"}:
            q, k = (f"({stream} W_{x}^T + 1 b_{x}^T)" if f"b_{x}" in kinds else f"({stream} W_{x}^T)" for x in "QK")
            score = f"`{scale}{q} {k}^T`"
        where = "`W_QK = W_Q^T W_K`" + (" and `Y = X + P`" if stream == "Y" else "")
        said.append(f"the scores of {frame.head} are {score}, with {where} (rows are queries, columns keys)")
    return "; ".join(said) + "."


def _head_map(frame: Frame) -> str:
    """What the heads below make of a stream: with a value bias or without, or some so and some so."""
    biased = {
        f"b_V[{h}]" in frame.walked.biases for layer in range(frame.depth) for h in frame.walked.layer_heads(layer)
    }
    shown = {False: "`A X W_OV^T`", True: "`A (X W_V^T + 1 b_V^T) W_O^T`"}
    if len(biased) == 2:
        return f"{shown[False]}, or to {shown[True]} where it has a value bias"
    return shown[True in biased]


def _held_fixed(frame: Frame) -> str:
    """What is held fixed, and what the formulas are linear in."""
    if not frame.depth:
        return "There is no layer norm and no MLP."
    if frame.head is None:
        linear = "every formula is linear in what enters the stream" + (
            " and in `b_U`" if "b_U" in frame.biases else ""
        )
    else:
        linear = "the scores are bilinear: linear in what enters the query side, and linear in what enters the key side"
    return f"Held fixed: the attention patterns `A`, and so {linear}; no layer norm and no MLP."


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
    if check.how == "exact":
        return "Checked: both sides were computed with exact numbers by SymPy, from their definition."
    if "listed" in check.also:
        return ("Checked: the terms were listed one by one, no two the same, and their number was compared with the "
                "formula and its value.")  # fmt: skip
    if check.relations and set(check.relations) != {"="}:
        return _other_relation(check)
    if check.how == "count":
        text = f"Checked: the terms of the expression above were counted{_counts(check)} and compared with the "
        text += "count of the enumeration"
        return text + ("; SymPy: the same polynomial in the head counts, so for every number of heads."
                       if check.head_counts else ".")  # fmt: skip
    by = "summed over their indices by the definition of the tensor product, " if check.how == "indices" else ""
    which = "in every claim the" if check.claims > 1 else "the"
    text = (
        f"Checked: {which} two sides are equal, {by}on {check.trials} draws of "
        f"random `{check.k} x {check.k}` matrices modulo `p`{_given(check)}{_counts(check)}; "
        f"error at most `({check.degree}/p)^{check.trials} = {check.bound:.1e}`"
    )
    if "terms" in check.also:
        text += "; the terms are those of the enumeration, each once"
    if "families" in check.also:
        text += "; composition type, order and number of terms of every family were read from its words"
    if "softmax" in check.also:
        text += ("; the terms marked `*`, and no others, are the same for every key on draws of patterns whose rows "
                 "sum to one")  # fmt: skip
    return text + "."


def _given(check: Check) -> str:
    """What was given of the matrices that were drawn."""
    said = {
        "rows sum to one": "patterns whose rows sum to one", "causal": "patterns that are causal",
        "narrow heads": "heads of width 2", "invertible": "invertible where an inverse is taken",
    }  # fmt: skip
    return f" ({', '.join(said[name] for name in check.given)})" if check.given else ""


def _other_relation(check: Check) -> str:
    many = "in every claim the" if check.claims > 1 else "the"
    drawn = f"{check.trials} draws of random `{check.k} x {check.k}` matrices modulo `p`{_given(check)}"
    if set(check.relations) == {"!="}:
        return f"Checked: {many} two sides differ, on each of {drawn}."
    return (f"Checked: {many} rank was found by elimination, on {drawn}; error at most "
            f"`({check.degree}/p)^{check.trials} = {check.bound:.1e}`.")  # fmt: skip


def seal(derivation: Derivation) -> str:
    """``Every step was checked: ...``, from the checks themselves."""
    checks = [step.check for step in derivation.steps]
    if not derivation.ok:
        return "NOT every step was checked."
    claims = sum(c.claims for c in checks)
    drawn = [c for c in checks if c.prime]
    parts = [f"Every step was checked: {claims} claims in {len(checks)} steps"]
    wrong = "a claim that is wrong there" if _at_instances(derivation) else "a wrong claim"
    where = " at the head counts that the steps list" if _at_instances(derivation) else ""
    parts.append(f"{sum(c.claims for c in drawn)} of them exactly, on random matrices over the integers modulo the "
                 f"prime `p = {drawn[0].prime}` (seed {drawn[0].seed}){where}, where {wrong} passes with probability "
                 f"at most `{max(c.bound for c in drawn):.1e}`") if drawn else None  # fmt: skip
    counted = sum(c.claims for c in checks if c.how == "count")
    if counted:
        every = _at_instances(derivation) and derivation.result is None
        parts.append(f"{counted} by counting" + (", for every number of heads" if every else ""))
    by_sympy = sum(c.claims for c in checks if c.how == "exact")
    parts += [f"{by_sympy} by SymPy, with exact numbers"] if by_sympy else []
    return ", ".join(parts) + "."


def _at_instances(derivation: Derivation) -> bool:
    """Whether head counts are symbols, so that matrices were drawn at some head counts only."""
    return derivation.frame.generic and derivation.frame.depth > 0
