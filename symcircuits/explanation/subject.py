"""What is explained, and the logit that is looked at: read from what a call is given, all else refused in one line."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Final

from symcircuits.core.expansion import Expansion, expand
from symcircuits.core.text import brief, need
from symcircuits.loaders import load
from symcircuits.model import Model, Run, Tensors
from symcircuits.values.evaluate import Values, evaluate
from symcircuits.values.measure import KINDS, Measure, logit
from symcircuits.values.tensor_values import TensorValues
from symcircuits.values.unfrozen import UnfrozenValues

__all__ = ["as_logit", "check_no_token", "logit_of", "values_of"]

_OTHER: Final = {
    TensorValues: "arrays of other libraries",
    Tensors: "arrays of other libraries",
    UnfrozenValues: "unfrozen terms",
}


def values_of(subject: Any, tokens: Any) -> Values:
    """The values that are given, or those of the logits (the stream) of a run, or of a model on tokens.

    Raises TypeError on any other subject and on values that are not on a run, ValueError on values of a selection or of
    scores, on a model without tokens and on tokens beside a run.
    """
    for kind, what in _OTHER.items():
        if isinstance(subject, kind):
            raise TypeError(f"explain takes values of an expansion on a run (evaluate(expansion, run)), not of {what}")
    need("explain", subject, Model, str, os.PathLike, Run, Values)
    if isinstance(subject, (Run, Values)):
        if tokens is not None:
            raise ValueError("tokens go with a model: a run, and values on a run, have their own; leave tokens out")
        return _whole(subject) if isinstance(subject, Values) else _ends(subject)
    if tokens is None:
        raise ValueError("tokens are required: give explain(model, tokens), or a run in place of the model")
    return _ends((subject if isinstance(subject, Model) else load(subject)).run(tokens))


def _ends(run: Run) -> Values:
    return evaluate(expand(run.model, run.model.architecture.end), run)


def _whole(values: Values) -> Values:
    """The same; ValueError where they are not of a whole expansion of logits, the stream or a readout."""
    expansion = values.expansion
    if expansion.readout.bilinear:
        raise ValueError(
            f"explain takes values of the logits, the stream or a readout, not of {expansion.target}: its results "
            "include the scores of all heads"
        )
    if expansion.clauses:
        chosen = ", ".join(map(str, expansion.clauses))
        raise ValueError(f"explain takes values of a whole expansion, not of a selection ({chosen})")
    return values


# ------------------------------------------------------------------------------------------- the chosen logit
def as_logit(call: str, by: Measure | None) -> Measure:
    """What is chosen, as a logit; None: the model's first choice at the last position. Any other measure is refused."""
    if by is None:
        return logit()
    if not isinstance(by, Measure):
        raise TypeError(f"by must be sc.logit(token, against=..., position=..., row=...), not {brief(by)}")
    if KINDS[by.kind].reads != "token":
        raise ValueError(
            f"{call} shows norms and contributions to one logit: give by=sc.logit(token, against=..., position=...), "
            f"not {KINDS[by.kind].written}"
        )
    return replace(by, kind="logit") if by.kind == "centred logit" else by  # beside which the mean is always seen


def logit_of(by: Measure, expansion: Expansion, run: Run) -> Measure:
    """The chosen logit with all that was left open filled in, by default of the first row; of the stream the place."""
    by = replace(by, row=0 if by.row is None else by.row)
    if expansion.target != "stream":
        return by.on(expansion, run, one_row=True)
    check_no_token(by, run.model)
    return by.placed(run.tokens.shape)


def check_no_token(by: Measure, model: Model) -> None:
    """ValueError where a token is chosen of the stream, which has no logits."""
    if by.token is not None or by.against is not None:
        why = "these are values of the stream" if model.architecture.unembed else "this model has no unembedding"
        raise ValueError(f"{why}, so there is no logit of a token to look at")
