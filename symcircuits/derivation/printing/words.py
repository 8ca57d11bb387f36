"""The sentences of a printed derivation, made from the checked objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from symcircuits.core.architecture import SOURCE_BIASES, possible_biases
from symcircuits.core.expansion import expand
from symcircuits.core.text import amount
from symcircuits.derivation.claims import Check
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Family
from symcircuits.derivation.printing.prose import plain
from symcircuits.derivation.real_models import TOLERANCE

__all__ = [
    "check_sentence",
    "checked_sentence",
    "family_title",
    "given_words",
    "model_line",
    "model_sentence",
    "plain_statement",
    "seal",
    "section",
    "statement",
    "subject",
    "title",
]

_LISTED = 12  # up to this number, biases are named one by one


def title(derivation: Derivation) -> str:
    """``The logits as a sum over paths``."""
    if derivation.result is not None:
        return derivation.result.title
    head = derivation.frame.head
    what = {"logits": "The logits", "stream": "The residual stream"}.get(derivation.target, f"The scores of {head}")
    pairs = "pairs of paths" if head is not None else "paths"
    return f"{what} as a sum over {pairs}: {derivation.form} form"


def plain_statement(derivation: Derivation) -> str:
    """What is shown, in a sentence of plain text in the derivation's notation."""
    return plain(statement(derivation), derivation.notation)


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
    alibi = ", plus the ALiBi bias, which is not a path term" if frame.alibi else ""
    return f"{what} exactly the sum of one term for {pairs}{alibi}: {_model_words(frame)}, {terms}."


PATHLESS = "not a path term"  # the note beside a summand that does not come from a path


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
    more = ["rotary positions"] if frame.turned else []
    more += [f"{arch.norm} norms held fixed"] if frame.norms else []
    more += ["normed queries and keys"] if frame.normed else []
    more += [f"outputs of {'parallel ' if arch.parallel else ''}MLPs as sources"] if frame.mlps else []
    more += ["keys and values shared by groups of heads"] if arch.groups else []
    more += ["multipliers"] if frame.multipliers else []
    more += [f"biases {', '.join(f'`{kind}`' for kind in kinds)}"] if kinds else []
    return layers + where.get(arch.positions or "", "") + "".join(f", {x}" for x in more)


def section(derivation: Derivation) -> str:
    """The section of the paper."""
    if derivation.result is not None:
        return derivation.result.section
    frame = derivation.frame
    more = ("; Handling Layer Normalization" if frame.norms else "") + (
        "; Additional Intuition: MLP Layers" if frame.mlps else ""
    )
    if frame.head is not None:
        names = {0: "Splitting Attention Head terms into QK and OV circuits"}
        return names.get(frame.depth, "Path Expansion of Attention Scores QK Circuit") + more
    names = {0: "Zero-Layer Transformers", 1: "The Path Expansion Trick"}
    return names.get(frame.depth, "Path Expansion of Logits") + more


def subject(derivation: Derivation) -> str:
    """Which models the derivation is about."""
    frame = derivation.frame
    if derivation.result is not None and not derivation.result.names_model:
        return derivation.result.statement
    if derivation.result is not None:
        return f"{derivation.result.statement} {model_line(frame)}"
    return model_line(frame, asked_for=True)


def model_sentence(derivation: Derivation) -> str:
    """Which models it is about, if its statement does not say so; otherwise an empty string."""
    result = derivation.result
    return "" if result is not None and not result.names_model else model_line(derivation.frame)


def model_line(frame: Frame, asked_for: bool = False) -> str:
    """``Model: ...``: the architecture, and the biases that occur; ``asked_for``: also the requested head counts."""
    if not frame.generic:
        return f"Model: {frame.architecture}.{_biases(frame)}"
    layers = "1 layer" if frame.depth == 1 else f"{frame.depth} layers"
    extra = str(frame.walked).partition(", heads ")[2].split(", ")[1:]
    below = " below the head" if frame.head is not None else ""
    heads = ", any number of heads in each" if frame.depth else ""
    asked = f" (requested for heads {','.join(map(str, frame.architecture.heads)) or 'none'})" if asked_for else ""
    said = [
        f"Model: {'transformer' if frame.architecture.mlps else 'attention-only'}, {layers}{below}{heads}{asked}",
        *(["keys and values shared by groups of heads"] if frame.architecture.groups else []),
        *(e for e in extra if e != "biases" and not e.startswith("key/value heads")),
    ]
    return ", ".join(said) + "." + _biases(frame)


def _biases(frame: Frame) -> str:
    """Which biases occur in the formulas, and which biases of the model do not."""
    names = [f"`{name}`" for name in frame.biases]
    hidden = _hidden_biases(frame)
    if not names:
        return f" No bias occurs in the formulas. The model has {hidden}." if hidden else ""
    if len(names) > _LISTED:
        names = _by_kind(frame.biases)
    every = ""
    if any("[h_" in name for name in frame.biases):
        every = "; `b_V[h_l]`: every head of layer `l` has one"
    if any("[G(" in name for name in frame.biases):
        every += "; `b_V[G(h_l)]`: every group of heads of layer `l` has one"
    also = f"; the model also has {hidden}" if hidden else ""
    return f" Biases in the formulas: {', '.join(names)}, and no others{every}{also}."


def _hidden_biases(frame: Frame) -> str:
    """The biases of the model that occur in no formula: by kind if all of a kind are there."""
    arch = frame.architecture.generic(frame.head) if frame.architecture.symbolic else frame.architecture
    hidden = arch.biases - {s.name for s in expand(arch, frame.target).sources}
    possible = possible_biases(arch)
    said = []
    for kind in SOURCE_BIASES:
        every = [name for name in possible if name.partition("[")[0] == kind]
        names = [name for name in every if name in hidden]
        if names == every:
            said += [f"`{kind}`"] if names else []
        else:
            said += [f"`{name}`" for name in names] if len(names) <= _LISTED else _by_kind(names)
    return ", ".join(said)


def _by_kind(names: Iterable[str]) -> list[str]:
    kinds = Counter(name.partition("[")[0] for name in names)
    return [f"{n} of kind `{kind}`" for kind, n in kinds.items()]


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
    shown, groups = (
        ", ".join("(" + ",".join(map(str, c)) + ")" for c in counts) for counts in (check.head_counts, check.groups)
    )
    said = f" at head counts {shown}" if shown and check.head_counts != ((),) else ""
    return said + (f", in {groups} groups" if said and groups else "")


def check_sentence(check: Check) -> str:
    """What was checked in a step, and how."""
    if check.how == "exact":
        return "Checked: SymPy computed both sides from their definitions with exact numbers."
    if check.how == "model":
        return (f"Checked: on {check.also[0]}, with random weights, {check.k} tokens and every size {check.k}, the "
                f"two sides agree in float64 up to rounding (`{TOLERANCE:.0e}` of the largest entry).")  # fmt: skip
    if "listed" in check.also:
        return ("Checked: the terms were listed one by one without repetition, and their number was compared with the "
                "formula and its value.")  # fmt: skip
    if check.relations and set(check.relations) != {"="}:
        return _other_relation(check)
    if check.how == "count":
        text = f"Checked: the terms of the expression above were counted{_counts(check)} and compared with the "
        text += "count of the enumeration"
        return text + ("; by SymPy, they are the same polynomial in the head counts, so for every number of heads."
                       if check.head_counts else ".")  # fmt: skip
    by = "as sums over indices by the definition of the tensor product, " if check.how == "indices" else ""
    which = "in every claim the" if check.claims > 1 else "the"
    text = (
        f"Checked: {which} two sides are equal, {by}on {check.trials} draws of "
        f"random `{check.k} x {check.k}` matrices modulo `p`{given_words(check)}{_counts(check)}; "
        f"error probability at most `({check.degree}/p)^{check.trials} = {check.bound:.1e}`"
    )
    if "terms" in check.also:
        text += "; the terms are exactly those of the enumeration, each once"
    if "in sympy" in check.also:
        text += "; by SymPy's sums over heads, for every number of heads"
    if "families" in check.also:
        text += "; composition type, order and number of terms of every family were read from its products"
    if "softmax" in check.also:
        text += ("; only the terms marked `*` are the same for every key, on draws of patterns whose rows sum to "
                 "one")  # fmt: skip
    return text + "."


def given_words(check: Check) -> str:
    """The properties of the drawn matrices, in parentheses; empty if there are none."""
    said = {
        "rows sum to one": "patterns whose rows sum to one", "causal": "patterns that are causal",
        "narrow heads": "heads of width 2", "invertible": "invertible where an inverse is taken",
        "symmetric": "those of norms symmetric", "turned": "in `R` one for each token",
        "equal ones": "the rows of `1` equal", "one-hot tokens": "rows of `t` that sum to one",
    }  # fmt: skip
    return f" ({', '.join(said[name] for name in check.given)})" if check.given else ""


def _other_relation(check: Check) -> str:
    many = "in every claim the" if check.claims > 1 else "the"
    drawn = f"{check.trials} draws of random `{check.k} x {check.k}` matrices modulo `p`{given_words(check)}"
    if set(check.relations) == {"!="}:
        return f"Checked: {many} two sides differ, on each of {drawn}."
    return (f"Checked: {many} rank was computed by elimination, on {drawn}; error probability at most "
            f"`({check.degree}/p)^{check.trials} = {check.bound:.1e}`.")  # fmt: skip


def seal(derivation: Derivation) -> str:
    """``Every step was checked: ...``, from the checks themselves."""
    checks = [step.check for step in derivation.steps]
    if not derivation.ok:
        return "NOT every step was checked."
    claims = sum(c.claims for c in checks)
    drawn = [c for c in checks if c.prime]
    parts = [f"Every step was checked: {amount(claims, 'claim')} in {amount(len(checks), 'step')}"]
    wrong = "a claim that is wrong there" if _at_instances(derivation) else "a wrong claim"
    where = " at the head counts listed in the steps" if _at_instances(derivation) else ""
    parts.append(f"{sum(c.claims for c in drawn)} of them exactly, on random matrices over the integers modulo the "
                 f"prime `p = {drawn[0].prime}` (seed {drawn[0].seed}){where}, where {wrong} passes with probability "
                 f"at most `{max(c.bound for c in drawn):.1e}`") if drawn else None  # fmt: skip
    counted = sum(c.claims for c in checks if c.how == "count")
    if counted:
        every = _at_instances(derivation) and derivation.result is None
        parts.append(f"{counted} by counting" + (", for every number of heads" if every else ""))
    by_sympy = sum(c.claims for c in checks if c.how == "exact")
    parts += [f"{by_sympy} by SymPy, with exact numbers"] if by_sympy else []
    on_models = sum(c.claims for c in checks if c.how == "model")
    parts += [f"{on_models} on a real model, up to rounding"] if on_models else []
    return ", ".join(parts) + "."


def checked_sentence(derivation: Derivation) -> str:
    """What was checked of all steps, in a sentence: how, on which matrices, and at which head counts."""
    said = seal(derivation).replace("Every step was checked", "Every equation was checked by machine")
    drawn = [step.check for step in derivation.steps if step.check.prime]
    counts = dict.fromkeys(c for check in drawn for c in check.head_counts if c)
    listed = ", ".join("(" + ",".join(map(str, c)) + ")" for c in counts)
    said = said.replace(" at the head counts listed in the steps", f" at head counts {listed}")
    given = dict.fromkeys(given_words(check) for check in drawn if check.given)
    return said[:-1] + "".join(f"; matrices modulo `p`{words}" for words in given) + "."


def _at_instances(derivation: Derivation) -> bool:
    """Whether head counts are symbols, so matrices were drawn at some head counts only."""
    return derivation.frame.generic and derivation.frame.depth > 0
