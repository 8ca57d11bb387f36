"""Prompts on which heads show what they attend to: repeats, the same tokens in changing order, no repeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from symcircuits.core.text import place, whole
from symcircuits.model import Model

__all__ = ["Prompts", "draw_prompts"]

Tokens = npt.NDArray[np.int64]
REPEATS: Final = 3  # periods of a prompt, so copies occur at two distances
FEWEST: Final = 2  # if three do not fit
SHORTEST: Final = 3  # tokens of a period: with two, "after an earlier copy" is any token but the query's own
HALF: Final = 12  # tokens of a half
LONGEST: Final = 64  # tokens after the first of a prompt, if the model has no limit


@dataclass(frozen=True, slots=True, eq=False)
class Prompts:
    """Random prompts of a model, ``[prompts, n]`` each, all beginning with the token ``first``.

    ``repeated``: by period, a period of distinct tokens three times; ``shuffled``: the same tokens three times, each
    time in another order, so copies occur at all distances; ``control``: no token twice (``distinct``), or, if
    the vocabulary is too small for that, tokens drawn at random. ``twice``: a half of up to 12 distinct tokens two
    times, for losses: in the second half the next token is known. ``missing``: why there are no repeats, if there
    are none.
    """

    first: int
    twice: Tokens
    repeated: dict[int, Tokens]
    shuffled: dict[int, Tokens]
    control: Tokens
    distinct: bool
    repeats: int
    missing: str = ""

    @property
    def count(self) -> int:
        """The number of prompts of each kind (for repeats: of each period)."""
        return len(self.control)

    @property
    def half(self) -> int:
        """The length of a half of ``twice``; 0 if the model is too small for two halves."""
        return int(self.twice.shape[1]) // 2

    @property
    def known(self) -> range:
        """The positions of ``twice`` whose next token is that of the first half."""
        return range(self.half + 1, 2 * self.half)

    @property
    def cases(self) -> int:
        """How many tokens of periods were drawn, of all prompts with repeats together."""
        return self.count * sum(self.repeated)

    @property
    def said(self) -> str:
        """A description, in a sentence."""
        periods = ", ".join(map(str, self.repeated))
        repeats = f"{self.repeats} periods of {periods} distinct tokens" if periods else "no repeats"
        other = "without repeats" if self.distinct else "of random tokens"
        return (
            f"{self.count} random prompts each of {repeats}, and as control {self.count} {other} "
            f"({self.control.shape[1]} tokens); all begin with token {self.first}"
        )

    def json(self) -> dict[str, Any]:
        """A description, without the tokens."""
        return {"count": self.count, "first": self.first, "half": self.half, "periods": list(self.repeated),
                "repeats": self.repeats, "control_length": self.control.shape[1],
                "control_distinct": self.distinct}  # fmt: skip


def draw_prompts(model: Model, count: int = 20, first: int = 0, seed: int = 0, length: int | None = None) -> Prompts:
    """Random prompts for a model: up to three periods, the longest that fits three times and shorter ones.

    ``first``: the first token of each (for GPT-2 50256), which occurs nowhere else; ``length``: tokens of the
    longest (default: ``n_context`` of the model, 65 if it has none). Raises ValueError on a token or a length that
    the model does not have.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.model import random_model
    >>> arch = attention_only((2, 2), positions="standard")
    >>> found = draw_prompts(random_model(arch, d_vocab=30, n_context=20), count=5)
    >>> {period: tokens.shape for period, tokens in found.repeated.items()}, found.control.shape
    ({6: (5, 19), 4: (5, 13), 3: (5, 10)}, (5, 20))
    """
    first = place("the first token", first, model.d_vocab, negative=False)
    count = whole("count", count)
    if count < 1:
        raise ValueError(f"count must be a number of prompts, 1 or more, not {count}")
    most = model.n_context or LONGEST + 1
    if most < 2:
        raise ValueError("the model has one position: what heads attend to, and a next token, need two or more")
    n = most if length is None else whole("length", length)
    if not 2 <= n <= most and (model.n_context or n < 2):
        raise ValueError(f"length must be 2 to {most} tokens, not {n}")
    rng = np.random.default_rng(whole("seed", seed, 0))
    others = np.delete(np.arange(model.d_vocab), first)
    half = max(0, min(HALF, (n - 1) // 2, len(others)))
    halves = np.stack([rng.choice(others, half, replace=False) if half else others[:0] for _ in range(count)])
    repeats = REPEATS if n > REPEATS * SHORTEST else FEWEST
    longest = min((n - 1) // repeats, len(others) - 1)  # a token is left over: all of them have few orders
    missing = "" if longest >= SHORTEST else (
        f"{FEWEST} periods of {SHORTEST} tokens or more need {1 + FEWEST * SHORTEST} positions and "
        f"{2 + SHORTEST} tokens; there are {n} and {model.d_vocab}"
    )  # fmt: skip
    lengths = {longest, longest * 3 // 4, longest // 2} - set(range(SHORTEST))
    periods = sorted(lengths, reverse=True) if not missing else []
    repeated, shuffled = {}, {}
    for period in periods:
        own = np.stack([rng.permutation(others)[:period] for _ in range(count)])
        own[1::2] = own[: count - 1 : 2, ::-1]  # the token after another in one prompt is before it in the next
        repeated[period] = _begun(first, np.tile(own, repeats))
        shuffled[period] = _begun(first, np.concatenate([rng.permuted(own, axis=1) for _ in range(repeats)], axis=1))
    distinct = len(others) >= n - 1
    control = np.stack(
        [rng.permutation(others)[: n - 1] if distinct else rng.choice(others, n - 1) for _ in range(count)]
        if len(others) else [np.full(n - 1, first)] * count
    )  # fmt: skip
    twice = _begun(first, np.tile(halves, 2))
    return Prompts(
        first=first, twice=twice, repeated=repeated, shuffled=shuffled, control=_begun(first, control),
        distinct=distinct and bool(len(others)), repeats=repeats, missing=missing,
    )  # fmt: skip


def _begun(first: int, tokens: Tokens) -> Tokens:
    """The rows with the first token in front."""
    return np.concatenate([np.full((len(tokens), 1), first), tokens], axis=1)
