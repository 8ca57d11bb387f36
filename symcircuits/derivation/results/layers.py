"""Two and more layers: logits and scores as sums over paths."""

from __future__ import annotations

from symcircuits.derivation.results.registry import expansion

__all__: list[str] = []


logits_generic = expansion(
    "logits_generic",
    "Logits, any numbers of heads",
    "The logits of two layers with any numbers of heads, as the paper prints them.",
    chapter="Two layers",
    heads=(3, 3),
)


logits_two_layers = expansion(
    "logits_two_layers",
    "Logits, three heads per layer",
    "The logits of a model with two layers of three heads: all 16 terms.",
    chapter="Two layers",
    heads=(3, 3),
    form="enumerated",
)


scores_generic = expansion(
    "scores_generic",
    "Second-layer scores, any number of heads",
    "The scores of a second-layer head with any number of heads below, as the paper prints them.",
    chapter="Two layers",
    heads=(3, 3),
    target="scores:L1H0",
)


scores_second_layer = expansion(
    "scores_second_layer",
    "Second-layer scores, three heads",
    "The scores of a second-layer head, two layers of three heads: all 16 terms.",
    chapter="Two layers",
    heads=(3, 3),
    target="scores:L1H0",
    form="enumerated",
)


three_layers_generic = expansion(
    "three_layers_generic",
    "Logits of three layers",
    "The logits of three layers with any numbers of heads: a family for every set of layers.",
    chapter="More layers",
    heads=(3, 3, 3),
)


scores_third_layer = expansion(
    "scores_third_layer",
    "Third-layer scores",
    "The scores of a third-layer head, any numbers of heads below: a set of layers on each side.",
    chapter="More layers",
    heads=(3, 3, 3),
    target="scores:L2H0",
)
