"""The circuits of a model as sentences, as tables for a terminal, and as plain data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from symcircuits.circuits.chance import positivity_chance
from symcircuits.circuits.circuit import tied
from symcircuits.circuits.copying import DEFINITIONS as COPYING
from symcircuits.circuits.copying import NOT_SUFFICIENT
from symcircuits.circuits.fewer_tokens import some_tokens
from symcircuits.core.architecture import Architecture, as_head
from symcircuits.core.names import visible
from symcircuits.core.text import amount
from symcircuits.render.heads import causes_table, heads_parts
from symcircuits.render.losses import by_order_table
from symcircuits.render.tables import Titled, nats, number

if TYPE_CHECKING:
    from symcircuits.circuits.causes import Cause
    from symcircuits.circuits.heads import HeadKinds
    from symcircuits.circuits.report import Circuits, Diagonal

__all__ = ["circuits_json", "circuits_parts", "copying_table", "effects_table", "findings", "notes_of"]

MOST_ROWS: Final = 40
MOST_PARTNERS: Final = 4  # heads that a sentence names
CHANCE: Final = 2.0  # standard deviations of random matrices: of one dimension the score is 1 or -1
_LETTERS: Final = {"query": "Q", "key": "K"}

_SAID = {
    "previous-token": "looks at the previous token, whatever it is",
    "first-token": "attends to the first token",
}


# ------------------------------------------------------------------------------------------------- sentences
def findings(found: Circuits) -> tuple[str, ...]:
    """The findings, in sentences with numbers, including what was looked for and not found."""
    return (
        *_content(found), *_suppression(found), *_positional(found), *_losses(found), *_composition(found),
        *_no_copying(found),
    )  # fmt: skip


def _no_copying(found: Circuits) -> list[str]:
    """Which heads have no eigenvalues to call copying, and why."""
    model, none = found.model, [head for head, one in found.copying.items() if one.eigenvalue_positivity is None]
    if not found.copying and model.architecture.all_heads:
        why = "the model has no unembedding" if model.d_vocab_out is None else (
            f"{model.d_vocab_out} outputs are not the {model.d_vocab} input tokens")  # fmt: skip
        return [f"It is unknown whether heads copy: {why}."]
    if not none:
        return []
    named = ", ".join(none[:MOST_PARTNERS]) + (", ..." if len(none) > MOST_PARTNERS else "")
    if len(none) == 1:
        return [f"It is unknown whether {named} copies: all eigenvalues of its OV circuit are 0 up to rounding."]
    return [f"It is unknown whether {named} copy: all eigenvalues of their OV circuits are 0 up to rounding."]


def _content(found: Circuits) -> list[str]:
    """Induction heads and why; or that there is none, and which heads only look like it."""
    lines = []
    for head in found.heads.of_kind("induction"):
        score = found.heads[head].scores["induction"]
        if score is not None:
            lines.append(
                f"{head} is an induction head ({score.mean:.2f}; {score.control or 0:.2f} at the same positions of the "
                f"control{_more_than_one(found.heads[head])}){_why(found, head)}{_copies(found, head)}."
            )
    few = _too_few(found, "induction", "the tokens after earlier copies")
    if not lines and not few:
        why = found.heads.prompts.missing
        lines.append(
            f"It is unknown whether a head is an induction head: {why}." if why else "No head is an induction head."
        )
        lines += _cannot(found.model.architecture)
    lines += few + _at_some_lengths(found)
    for head in found.heads.of_kind("duplicate-token"):
        score = found.heads[head].scores["duplicate-token"]
        lines += [] if score is None else [
            f"{head} looks at earlier copies of the token ({score.mean:.2f}; {score.control or 0:.2f} at the same "
            "positions of the control)."
        ]  # fmt: skip
    return lines + _too_few(found, "duplicate-token", "earlier copies of the token")


def _too_few(found: Circuits, kind: str, where: str) -> list[str]:
    """Heads that more prompts may show to attend by content, although these do not."""
    lines = []
    for head, one in found.heads.heads.items():
        score = one.scores[kind]
        if score is None or kind in one.kinds or not replace(score, cases=None).shows(found.heads.threshold):
            continue
        lines.append(
            f"It is unknown whether {head} looks at {where}: it does on these prompts ({score.mean:.2f}), but with "
            f"{amount(found.heads.prompts.cases, 'token')} in their periods, a preference for some tokens can do so "
            "by chance; more prompts are needed."
        )
    return lines


def _cannot(arch: Architecture) -> list[str]:
    """Why no head can be one, if that is known without measuring."""
    if len({head.layer for head in arch.all_heads}) != 1:
        return []
    return ["With heads in only one layer, no head can be one: an earlier head has to tell it what precedes a token."]


def _more_than_one(head: HeadKinds) -> str:
    """Of a head that looks after a copy of more than the query's token, as of it and the token before it."""
    score = head.scores["induction"]
    if score is None or head.shuffled is None or head.shuffled > score.mean / 2:
        return ""
    return f"; {head.shuffled:.2f} in shuffled order, so more than the query's token has to match"


def _at_some_lengths(found: Circuits) -> list[str]:
    """Heads that look after earlier copies at some distances and not at others: fixed offsets, where content fits."""
    lines = []
    for head, one in found.heads.heads.items():
        score = one.scores["induction"]
        if (
            score is not None
            and "induction" not in one.kinds
            and replace(score, by_period={}).shows(found.heads.threshold)
        ):
            by_period = ", ".join(f"{x:.2f} with periods of {n}" for n, x in score.by_period.items())
            lines.append(
                f"{head} looks at the tokens after earlier copies at some distances and not at others ({by_period}): "
                "not induction."
            )
    return lines


def _why(found: Circuits, head: str) -> str:
    """By which composition, and with which heads; with what is left without it. All that half of the score needs."""
    causes = found.causes.get(head)
    if causes is None:
        return ""
    needed = [p for p in causes.parts if p.without <= causes.score / 2]
    types = [p for p in needed if p.by == "composition"]
    with_heads = [p.name for p in types if p.name != "none"]
    if not with_heads:
        return _no_head(types, needed)
    said = f": it looks for the token after an earlier copy by {'- and '.join(with_heads)}-composition"
    sides = {side for side, letter in _LETTERS.items() if any(letter in name for name in with_heads)}
    by_side = [_last_of(needed, side) for side in sorted(sides)]
    partners = [p for found_there in by_side for p in found_there][:MOST_PARTNERS]
    if not partners:
        without = min(p.without for p in types if p.name != "none")
        most = min(
            (p for p in causes.parts if p.by == "head" and p.side in sides), key=lambda p: p.without, default=None
        )
        said = f"{said} ({without:.2f} without it), and no single head accounts for half of it"
        return said if most is None else f"{said} (the largest is {most.name}: {most.without:.2f} without it)"
    return f"{said} with {' and '.join(_partner(found, head, p, len(sides) > 1) for p in partners)}"


def _no_head(types: list[Cause], needed: list[Cause]) -> str:
    """Of a head that needs no composition: what an MLP writes may still be of what it read from earlier heads."""
    if not types:
        return ""
    said = f": it looks there by terms without an earlier head ({types[0].without:.2f} without them)"
    mlps = [p for p in needed if p.by == "source" and p.name.startswith("mlp")]
    inside = ", which may include outputs of earlier heads" if mlps else ""
    return said + "".join(f", {p.text.removeprefix('terms ')} ({p.without:.2f})" for p in mlps[:MOST_PARTNERS]) + inside


def _last_of(needed: list[Cause], side: str) -> list[Cause]:
    """The needed heads of the last layer on a side: what heads before them wrote, these may have passed on."""
    heads = [p for p in needed if p.by == "head" and p.side == side]
    last = max((as_head(p.name).layer for p in heads), default=0)
    return sorted((p for p in heads if as_head(p.name).layer == last), key=lambda p: p.without)


def _partner(found: Circuits, head: str, part: Cause, of_both: bool) -> str:
    kind = _LETTERS[part.side]
    pair = next((p for p in found.composition[kind].pairs() if (p.later, p.earlier) == (head, part.name)), None)
    known = pair is not None and pair.score is not None and pair.z is not None
    beside = f"score {pair.score:.3f}, z {pair.z:.1f}; " if known else ""  # type: ignore[union-attr]
    side = f" on the {part.side} side" if of_both else ""
    return f"{part.name}{side} ({beside}{part.without:.2f} without those terms)"


def _copies(found: Circuits, head: str) -> str:
    """Whether its OV circuit has the eigenvalues of a head that copies, and not by chance, as those of narrow heads."""
    known = found.copying.get(head)
    positivity = None if known is None else known.eigenvalue_positivity
    if known is None or positivity is None:
        return ""
    chance = positivity_chance(len(known.eigenvalues)).std
    if abs(positivity) < max(found.heads.threshold, CHANCE * chance):
        return ""
    what = "copies" if positivity > 0 else "suppresses what it reads"
    return f"; its OV circuit {what} (eigenvalues {positivity:+.2f})"


def _suppression(found: Circuits) -> list[str]:
    lines = []
    for head in found.heads.of_kind("copy-suppression"):
        score, known = found.heads[head].scores["copy-suppression"], found.copying[head].eigenvalue_positivity
        lines += [] if score is None else [
            f"{head} lowers the logits of the tokens that it attends to ({score.mean:.2f}; eigenvalues {known:+.2f})."
        ]  # fmt: skip
    return lines


def _positional(found: Circuits) -> list[str]:
    lines = []
    for kind, said in _SAID.items():
        for head in found.heads.of_kind(kind):
            score = found.heads[head].scores[kind]
            lines += [] if score is None else [f"{head} {said} ({score.mean:.2f})."]
    for head in found.heads.of_kind("fixed-offset"):
        score, offset = found.heads[head].scores["fixed-offset"], found.heads[head].offset or 0
        where = f"the token {abs(offset)} {'before' if offset < 0 else 'after'} its own" if offset else "its own token"
        note = ", with repeats and without" if offset else ""
        note += ": fixed offset, not induction" if offset and "induction" not in found.heads[head].kinds else ""
        lines += [] if score is None else [f"{head} looks at {where} ({score.mean:.2f}{note})."]
    return lines


def _losses(found: Circuits) -> list[str]:
    losses = found.losses
    if losses is None:
        return [f"{found.no_losses[0].upper()}{found.no_losses[1:]}."]
    after = ", ".join(nats(x) for x in losses.after)
    orders = f"orders 0 to {len(losses.after) - 1}" if len(losses.after) > 1 else "order 0"
    best = min(range(len(losses.after)), key=lambda k: losses.marginal[k])
    most = f"those of order {best} lower it most ({nats(losses.marginal[best], '+')})"
    said = most if losses.marginal[best] < -0.1 else "none of them lowers it by 0.1"
    seen = "" if found.model.architecture.causal else "; the model is not causal, so it sees the next token"
    return [
        f"With {_held(found.model.architecture)} held fixed, the loss of a repeated half is {after} nats after the "
        f"terms of {orders} (equal logits: {losses.uniform:.3f}); {said}{seen}."
    ]


def _held(arch: Architecture) -> str:
    """What does not change when terms are left out."""
    held = ["patterns", *(["norms"] if arch.norm else []), *(["MLP outputs"] if arch.mlps else [])]
    return " and ".join([*([", ".join(held[:-1])] if held[1:] else []), held[-1]])


def _composition(found: Circuits) -> list[str]:
    """Where weights are aligned most beyond chance, and what that pair is worth."""
    lines = []
    for kind, scores in found.composition.items():
        of_all = list(scores.pairs())
        pairs = [p for p in of_all if p.z is not None and p.score is not None]
        if not of_all and kind == "Q":
            lines.append("No heads compose: no head comes before another.")
        if not pairs:
            lines += [f"{kind}-composition has no scores: {of_all[0].reason}."] if of_all else []
            continue
        above = [p for p in pairs if p.chance == "above"]
        below = sum(p.chance == "below" for p in pairs)
        said = f"{kind}-composition: {len(above)} of {len(pairs)} pairs above chance, {below} below"
        if above:
            top = max(above, key=lambda p: p.z or 0.0)
            worth = next((e.effect for e in found.effects if e.kind == kind and e.pair == top), None)
            effect = "" if worth is None else f"; without its terms the loss changes by {nats(worth, '+')} nats"
            said += f"; strongest {top.later} from {top.earlier} ({top.score:.3f}, z {top.z:.1f}{effect})"
        without = [p for p in of_all if p.score is None]
        said += f"; {amount(len(without), 'pair')} without a score: {without[0].reason}" if without else ""
        lines.append(f"{said}.")
    return lines


# ---------------------------------------------------------------------------------------------------- tables
def circuits_parts(found: Circuits) -> list[Titled]:
    """Findings first, then the tables they are made from."""
    model = found.model
    title = f"circuits of {visible(model.name)}: {model.architecture}"
    parts = [Titled(title), Titled("Findings", points=[f"  - {visible(line)}" for line in findings(found)])]
    parts += heads_parts(found.heads)[:1]
    parts += [causes_table(causes) for causes in found.causes.values()]
    parts += [by_order_table(found.losses)] if found.losses is not None else []
    parts += [effects_table(found)] if found.effects else []
    parts += [copying_table(found)] if found.copying else []
    notes = notes_of(found)
    parts += [Titled("Notes", points=[f"  - {visible(note)}" for note in notes])] if notes else []
    parts += heads_parts(found.heads)[1:]
    return parts


def notes_of(found: Circuits) -> list[str]:
    """What could not be determined, and what composition scores leave out."""
    said = [found.no_losses, found.heads.prompts.missing]
    said += [note for scores in found.composition.values() for note in scores.notes]
    said.append(tied(found.model))
    return list(dict.fromkeys(note for note in said if note))


def effects_table(found: Circuits) -> Titled:
    """The pairs furthest from chance, and the change of the loss without their terms."""
    rows = [
        [e.kind, f"{e.pair.later} from {e.pair.earlier}", number(e.pair.score, 3), f"{e.pair.z or 0:+.1f}",
         number(e.pair.tight, 3), "-" if e.effect is None else f"{e.effect:+.4f}".replace("-0.0000", "+0.0000")]
        for e in found.effects
    ]  # fmt: skip
    title = "Composition scores furthest from chance, and the change of the loss without those terms (nats)"
    notes = [
        "a score is not an effect: it says that weights are aligned; it depends on the basis of the stream (same under "
        "O(d_model), not under GL(d_model))",
        "effect of Q and K: removed from the scores of the later head, everything after it recomputed; of V: left out "
        "of the logits, with patterns held fixed",
    ]
    if found.model.architecture.positions == "rotary":
        notes.append("Q and K: rotary positions rotate them by the distance; these scores are for distance 0")
    return Titled(title, ["", "pair", "score", "z", "tight", "effect"], rows, [2, 3, 4, 5], notes=notes)


def copying_table(found: Circuits) -> Titled:
    """Of each OV circuit, and of the K-composition circuits furthest above chance, the three scores of a diagonal."""
    rows = [[f"OV {head}", *_cells(one)] for head, one in found.copying.items()]
    rows = sorted(rows, key=lambda row: row[1] == "-")[:MOST_ROWS]
    rows += [[f"QK {later} from {earlier}", *_cells(one)] for (later, earlier), one in found.matching.items()]
    left = max(0, len(found.copying) - MOST_ROWS)
    notes = [f"{amount(left, 'other OV circuit')} not shown"] if left else []
    some = some_tokens(found.model)
    if len(some) < found.model.d_vocab:
        notes.append(f"positive diagonal: over {len(some):,} tokens of {found.model.d_vocab:,}, drawn at random")
    notes += [f"{name.replace('_', ' ')}: {said}" for name, said in COPYING.items()] + [NOT_SUFFICIENT]
    title = "Copying (OV circuits) and matching (QK circuits of K-composition), over tokens"
    header = ["circuit", *(name.replace("_", " ") for name in COPYING)]
    return Titled(title, header, rows, [1, 2, 3], notes=notes)


def _cells(one: Diagonal) -> list[str]:
    return ["-" if value is None else f"{value:.2f}" for value in one.json().values()]


# ------------------------------------------------------------------------------------------------ plain data
def circuits_json(found: Circuits) -> dict[str, Any]:
    """As plain data; the schema is in docs/json.md."""
    losses = found.losses
    return {
        "schema": "symcircuits.circuits/1",
        "model": {"name": found.model.name, "architecture": str(found.model.architecture)},
        "findings": list(findings(found)),
        "prompts": found.heads.prompts.json(),
        "threshold": found.heads.threshold,
        "heads": {label: head.json() for label, head in found.heads.heads.items()},
        "causes": {label: causes.json() for label, causes in found.causes.items()},
        "loss_by_order": None if losses is None else list(losses.after),
        "losses": None if losses is None else losses.json(),
        "composition": {kind: [p._asdict() for p in scores.pairs()] for kind, scores in found.composition.items()},
        "copying": {head: one.json() for head, one in found.copying.items()},
        "matching": {", ".join(pair): one.json() for pair, one in found.matching.items()},
        "effects": [
            {"kind": e.kind, "later": e.pair.later, "earlier": e.pair.earlier, "effect": e.effect}
            for e in found.effects
        ],
        "notes": notes_of(found),
    }  # fmt: skip
