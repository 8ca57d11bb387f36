"""Skip-trigrams of a head: ``source ... destination -> output``, what it attends to and what it then makes likelier."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from symcircuits.circuits.circuit import circuit
from symcircuits.core.text import need, whole
from symcircuits.model import Model

__all__ = ["Trigram", "skip_trigrams"]

_AT_ONCE = 2**22  # entries of a circuit


class Trigram(NamedTuple):
    """Tokens, and what links them: ``attends``, the score of source and destination less the mean over sources, and
    ``adds``, what the source adds to the output's logit less the mean over outputs.
    """

    source: int
    destination: int
    output: int
    attends: float
    adds: float


def skip_trigrams(model: Model, head: str | tuple[int, int], k: int = 10) -> tuple[Trigram, ...]:
    """The ``k`` strongest skip-trigrams of a head by its full QK and OV circuits, at most one for each source token.

    ``attends(d, s) = c (S[d, s] - mean_s S[d, s])`` with ``S = W_E.T @ W_QK @ W_E`` and ``c`` the score scale, and
    ``adds(o, s) = F[o, s] - mean_o F[o, s]`` with ``F = W_U @ W_OV @ W_E``; both are positive, and the strongest are
    those with the largest product. Other terms are left out: positions, composition, biases, ``1 / sigma``; for
    rotary positions source and destination are at the same place. Raises ValueError if the outputs are not the input
    tokens. Source: paper, "Skip-Trigrams"; centring and rank: own.

    >>> import symcircuits as sc
    >>> from symcircuits.zoo import path
    >>> model = sc.load(path())
    >>> [(one.source, one.destination, one.output) for one in skip_trigrams(model, "L0H0", 2)]
    [(9, 9, 0), (7, 7, 0)]
    """
    need("skip_trigrams", model, Model)
    k, label = whole("k", k, 1), str(model.architecture.head(head))
    if model.d_vocab_out is None or model.d_vocab_out < model.d_vocab:
        raise ValueError("skip-trigrams need a logit of every token: the outputs are not the input tokens")
    looks, moves = circuit(model, "QK", label), circuit(model, "OV", label)
    tokens, every = range(model.d_vocab), range(model.d_vocab_out)
    step = max(1, _AT_ONCE // model.d_vocab_out)
    parts = [tokens[at : at + step] for at in range(0, len(tokens), step)]
    mean = sum(looks.block(tokens, part).sum(1) for part in parts) / len(tokens)
    scale = float(model.score_scale.get(label, 1.0))
    found: list[Trigram] = []
    for part in parts:
        scores, logits = looks.block(tokens, part) - np.asarray(mean)[:, None], moves.block(every, part)
        logits = logits - logits.mean(0)
        who, what = scores.argmax(0), logits.argmax(0)
        made = [
            Trigram(s, int(d), int(o), scale * float(scores[d, i]), float(logits[o, i]))
            for i, (s, d, o) in enumerate(zip(part, who, what, strict=True))
        ]
        found += [one for one in made if one.attends > 0 and one.adds > 0]
        found = sorted(found, key=lambda one: -one.attends * one.adds)[:k]
    return tuple(found)
