"""What an explanation holds fixed and assumes of a model, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from symcircuits.core.architecture import SOURCE_BIASES, Architecture
from symcircuits.core.words import scalar_order
from symcircuits.model import Model, Run
from symcircuits.values.measure import Measure

__all__ = ["assumptions", "ranked_by"]


def assumptions(run: Run) -> tuple[str, ...]:
    """What was held fixed and assumed, in sentences."""
    model, architecture = run.model, run.model.architecture
    lines = [_held_sentence(architecture)]
    lines.append(f"computed in {run.dtype}; {model.stored}")
    if run.tokens.ndim == 2 and len(run.tokens) > 1:
        lines.append(f"norms and shares are over all {len(run.tokens)} rows")
    lines.append(_position_sentence(architecture))
    direction = "causal (a query sees itself and earlier tokens)" if architecture.causal else "bidirectional"
    if run.attended is not None:
        direction = "by the mask that was given, in place of the model's own"
    lines.append(f"attention: {direction}")
    if run.attended is not None and run.attended.added is not None:
        lines.append(
            "numbers that the mask adds to scores are not terms: score terms add up to the scores without them"
        )
    lines.append(_scale_sentence(model))
    lines += _feature_sentences(model) + _own_sentences(architecture)
    if architecture.biases:
        kinds = sorted({b.partition("[")[0] for b in architecture.biases})
        sources = [kind for kind in kinds if kind in SOURCE_BIASES]
        lines += [f"biases are separate sources: {', '.join(sources)}"] if sources else []
    return (*lines, *model.notes)


def ranked_by(measure: Measure, sort: str, together: bool, sources: Sequence[str]) -> str:
    """By what terms are ranked, and what that depends on, in a sentence."""
    read = "direction" if "direction" in measure.kind else "logit"
    what = {
        "norm": "norm over all positions and outputs",
        "contribution": f"contribution to the {read}",
        "centred": "contribution to the logit, less its mean over all outputs",
        "difference": f"contribution to the difference of two {read}s",
    }[sort]
    split = {"embed", "pos"} <= set(sources)
    said = f"terms are ranked by {what}"
    said += ", from token and position embedding together" if together and split else ""
    depends = ["a vector added to every row of W_U"] if sort in ("norm", "contribution") and read == "logit" else []
    depends += ["the split between token and position embedding"] if split and not together else []
    if not measure.chosen:
        return f"{said}, which depends on the basis of the stream"
    return f"{said}, which depends on {' and '.join(depends)}" if depends else said


def _feature_sentences(model: Model) -> list[str]:
    """What norms, MLPs, groups, windows and caps mean for the terms."""
    architecture, settings, lines = model.architecture, model.settings, []
    if architecture.norm:
        lines.append(
            f"norms: {architecture.norm}, {'with' if architecture.gains else 'without'} gain; terms through different "
            "norms carry different scales, so their sizes are not comparable"
        )
    if architecture.mlps:
        kind = f"{settings.activation}, gated" if architecture.gated else settings.activation
        kind = "bilinear" if architecture.bilinear else kind
        lines.append(f"MLPs: {kind}; the output of each is a separate source")
    if not architecture.softmax:
        lines.append("no softmax: a pattern is the masked scores, and its rows need not sum to one")
    if architecture.groups:
        lines.append(f"key/value heads by layer: {', '.join(map(str, architecture.groups))}")
    if model.multipliers:
        values = ", ".join(
            f"{name} {model.multipliers[name]:.6g}" for name in sorted(model.multipliers, key=scalar_order)
        )
        lines.append(f"multipliers in front of terms: {values}")
    if any(w is not None for w in settings.windows):
        lines.append(f"window of keys by layer: {', '.join('all' if w is None else str(w) for w in settings.windows)}")
    for cap, what in ((settings.score_cap, "scores"), (settings.logit_cap, "logits")):
        lines += [f"{what} have a soft cap of {cap:g}: terms sum to the {what} before it"] if cap is not None else []
    return lines


def _own_sentences(architecture: Architecture) -> list[str]:
    """What attached readouts and sources mean for the terms."""
    lines = [str(r) for r in architecture.readings]
    for part in architecture.parts:
        label = f"{'M' if part.of == 'mlp' else 'L'}{part.layer}"
        means = {
            "stream": f"there the stream is its sources and rest[{label}], held fixed; earlier paths are cut off",
            "mlp": f"the output of that MLP is its sources and rest[{label}], held fixed",
            "added": "the model is run with it",
        }
        lines.append(f"{part}: {means[part.of]}")
    return lines


def _held_sentence(architecture: Architecture) -> str:
    held = ["the attention pattern of every head"]
    held += ["1 / sigma of every norm"] if architecture.norm or architecture.qk_norm else []
    held += ["the output of every MLP"] if architecture.mlps else []
    values = "its value" if len(held) == 1 else "their values"
    return f"held fixed: {', '.join(held)}, at {values} on these tokens"


def _position_sentence(architecture: Architecture) -> str:
    return {
        None: "no position embedding",
        "standard": "the position embedding is a source of the stream, pos",
        "shortformer": "the position embedding enters queries and keys only (shortformer): pos is in no logit term",
        "rotary": "rotary positions rotate queries and keys: scores contain W_Q^T R_(j-i) W_K",
        "alibi": "ALiBi adds -slope |i - j| to scores; it is not a path term: score terms sum to the scores without it",
    }[architecture.positions]


def _scale_sentence(model: Model) -> str:
    if not model.architecture.scale:
        return "scores have no scale"
    scales = sorted(set(model.score_scale.values()))
    return "score scale: " + (f"{scales[0]:.6g}" if len(scales) == 1 else "one per head") if scales else "no heads"
