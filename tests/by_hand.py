"""Models whose heads are written by hand: a direction for each token and position, and places to move tokens to."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

import symcircuits as sc

__all__ = ["POSITIONS", "TOKENS", "Hand", "by_hand"]

Array = npt.NDArray[np.float64]
TOKENS, POSITIONS = 12, 22


class Hand:
    """The weights of a model: places 0 to 3 of its stream hold tokens, the last positions."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.w = weights
        self.w["W_E"][self.place(0)] = np.eye(TOKENS)
        self.w["W_pos"][:, 4 * TOKENS :] = np.eye(POSITIONS)

    @staticmethod
    def place(number: int) -> slice:
        return slice(number * TOKENS, (number + 1) * TOKENS)

    def moves(self, head: str, back: int, read: int, write: int) -> None:
        """A head that looks so many tokens back, and writes what it reads there into another place."""
        self.w[f"W_Q_{head}"][:POSITIONS, 4 * TOKENS :] = 60 * np.eye(POSITIONS)
        self.w[f"W_K_{head}"][:POSITIONS, 4 * TOKENS :] = np.eye(POSITIONS, k=-back)
        self.copies(head, read, write)

    def matches(self, head: str, query: int, key: int, strength: float = 60) -> None:
        """A head that looks where what stands in a place of the key is what stands in a place of the query."""
        self.w[f"W_Q_{head}"][:TOKENS, self.place(query)] += strength * np.eye(TOKENS)
        self.w[f"W_K_{head}"][:TOKENS, self.place(key)] += np.eye(TOKENS)
        self.copies(head, 0, 2)

    def copies(self, head: str, read: int, write: int) -> None:
        self.w[f"W_V_{head}"][:TOKENS, self.place(read)] = np.eye(TOKENS)
        self.w[f"W_O_{head}"][self.place(write), :TOKENS] = np.eye(TOKENS)


def by_hand(arch: sc.Architecture, put: Callable[[Hand], None], activation: str = "relu") -> sc.Model:
    """A model with weights that are zero but for what ``put`` writes."""
    model = sc.random_model(
        arch, d_vocab=TOKENS, n_context=POSITIONS, d_model=4 * TOKENS + POSITIONS, d_head=POSITIONS, d_mlp=TOKENS,
        score_scale=1.0, settings=sc.Settings(activation=activation),
    )  # fmt: skip
    weights = {name: np.zeros_like(array) for name, array in model.weights.items()}
    put(Hand(weights))
    return replace(model, weights=weights)
