"""Keys and values that groups of heads share."""

from __future__ import annotations

from symcircuits.derivation.results.registry import expansion

__all__: list[str] = []


logits_grouped_queries = expansion(
    "logits_grouped_queries",
    "Logits of grouped queries",
    "The logits of heads that share keys and values in groups, for any number of heads and groups.",
    chapter="Norms, MLPs and grouped queries",
    heads=(4, 4),
    groups=(2, 2),
    biases=["b_V"],
)


scores_grouped_queries = expansion(
    "scores_grouped_queries",
    "Scores of grouped queries",
    "The scores of a second-layer head whose keys are those of its group.",
    chapter="Norms, MLPs and grouped queries",
    heads=(4, 4),
    target="scores:L1H3",
    form="enumerated",
    groups=(2, 2),
)
