"""The sizes that are measured, and what others compute there: einsums over all paths, stacks, lists of functions.

``all_values`` is the one place that says how the values of all terms are asked of this package.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import measuring  # noqa: F401  (BLAS gets one thread before NumPy is imported)
import numpy as np

import symcircuits as sc
from symcircuits.model import Run, random_model

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None  # type: ignore[assignment]

__all__ = ["SIZES", "Size", "all_values", "by_head", "done", "einsum_paths", "plain", "stack_of_heads", "torch"]


@dataclass(frozen=True, slots=True)
class Size:
    """A random model and a context, by name."""

    name: str
    heads: tuple[int, ...]
    d_vocab: int
    d_model: int
    d_head: int
    n: int

    @property
    def terms(self) -> int:
        """The logit terms: one head or none in each layer."""
        return int(np.prod([1 + h for h in self.heads]))

    def model(self, seed: int = 0, scale: float = 1.0) -> Any:
        """The random model."""
        widths = {"d_vocab": self.d_vocab, "d_model": self.d_model, "d_head": self.d_head}
        return random_model(sc.attention_only(self.heads), **widths, seed=seed, weight_scale=scale)

    def tokens(self, seed: int = 0) -> Any:
        """Random tokens."""
        return np.random.default_rng(seed).integers(0, self.d_vocab, self.n)

    def run(self, dtype: str = "float64") -> Run:
        """A run of it; products of weights are made before any clock starts."""
        run: Run = self.model().run(self.tokens(), dtype=dtype)
        for head in run.model.architecture.all_heads:
            _ = run.arrays[f"W_OV_{head}"]
        return run

    def steps(self) -> dict[str, float]:
        """Floating point operations of the head-space tree, counted: what the algorithm does, not what a peer would.

        With P heads on the way of a path, ``Z [n, d_head]`` costs ``2 n d_head^2 + 2 n^2 d_head`` a head beyond the
        first, its logits ``2 n d_head V``; once for each head its first values and ``W_U W_O``, once for each two heads
        in a row the product between.
        """
        n, d, h, v, heads = self.n, self.d_model, self.d_head, self.d_vocab, sum(self.heads)
        pairs = sum(a * b for a, b in itertools.combinations(self.heads, 2))
        return {
            "direct": 2 * n * d * v,
            "first": heads * (2 * n * d * h + 2 * n * n * h),
            "links": pairs * 2 * d * h * h,
            "steps": (self.terms - 1 - heads) * (2 * n * h * h + 2 * n * n * h),
            "reads": heads * 2 * v * d * h,
            "logits": (self.terms - 1) * 2 * n * h * v,
        }


SIZES = {
    size.name: size
    for size in (
        Size("record", (3, 3), 11, 16, 4, 7),
        Size("small", (4, 4, 4), 500, 64, 16, 32),
        Size("paper8", (8, 8), 5000, 256, 32, 128),
        Size("paper12", (12, 12), 5000, 256, 32, 128),
        Size("deep", (8, 8, 8, 8), 200, 128, 16, 64),
        Size("tiny", (2, 2), 20, 16, 4, 8),  # --quick
    )
}


# ------------------------------------------------------------------------------------------------ this package
def all_values(expansion: sc.Expansion, run: Run) -> Iterator[Any]:
    """The values of all terms, block by block, as a user of this package gets them fastest."""
    for block in sc.evaluate(expansion, run).blocks():
        yield block.values  # in one buffer: to be copied where it is kept


def done(blocks: Iterator[Any]) -> None:
    """Go through all of them and keep none."""
    for _ in blocks:
        pass


# -------------------------------------------------------------------------------------- einsums over all paths
def by_torch(run: Run) -> Callable[[], Any]:
    """Layer by layer, all paths and heads at once (as ARENA's exercises do for one layer); ``[paths, n, d_model]``."""
    arch, arrays = run.model.architecture, {name: tensor(a) for name, a in held(run).items()}
    layers = [
        {g: torch.stack([arrays[f"{g}_{h}"] for h in arch.layer_heads(i)]) for g in ("A", "W_V", "W_O")}
        for i in range(arch.n_layers)
    ]

    def work() -> Any:
        x = arrays["X0"][None]
        for w in layers:
            v = torch.einsum("pkm,hdm->phkd", x, w["W_V"])
            z = torch.einsum("hqk,phkd->phqd", w["A"], v)
            x = torch.cat([x, torch.einsum("phqd,hmd->phqm", z, w["W_O"]).flatten(0, 1)])
        return x

    return work


def tensor(array: Any) -> Any:
    """A copy of an array in torch."""
    return torch.from_numpy(np.array(array))


def by_numpy(run: Run) -> Callable[[], Any]:
    """Layer by layer and head by head, all paths at once (NumPy's einsum uses BLAS for two operands, no batches)."""
    arch, arrays = run.model.architecture, held(run)

    def work() -> Any:
        x = arrays["X0"][None]
        for i in range(arch.n_layers):
            new = [x]
            for h in arch.layer_heads(i):
                v = np.einsum("pkm,dm->pkd", x, arrays[f"W_V_{h}"], optimize=True)
                z = np.einsum("qk,pkd->pqd", arrays[f"A_{h}"], v, optimize=True)
                new.append(np.einsum("pqd,md->pqm", z, arrays[f"W_O_{h}"], optimize=True))
            x = np.concatenate(new)
        return x

    return work


def held(run: Run) -> dict[str, Any]:
    """The arrays of a run that the peers multiply."""
    heads = run.model.architecture.all_heads
    return {name: run.arrays[name] for name in ("X0", "W_U", *(f"{g}_{h}" for h in heads for g in ("A", "W_V", "W_O")))}


# By name: how all paths' parts of the stream are made; None where the library is not installed.
ALL_PATHS: dict[str, Callable[[Run], Callable[[], Any]] | None] = {
    "NumPy": by_numpy,
    "torch": None if torch is None else by_torch,
}


def einsum_paths(run: Run, library: str, read: str = "logits") -> Callable[[], Any] | None:
    """All paths' logits, or ``read="difference"`` of two at the last position, by einsum over all paths.

    The prefix of a path is shared by all that go on from it, as anyone would do. None: the library is not installed.
    """
    maker = ALL_PATHS[library]
    if maker is None:
        return None
    paths, w_u = maker(run), run.arrays["W_U"]
    if library == "torch":
        w_u, einsum, more = tensor(w_u), torch.einsum, {}
    else:
        einsum, more = np.einsum, {"optimize": True}  # type: ignore[assignment]
    if read == "difference":
        row = w_u[3] - w_u[5]
        return lambda: einsum("pm,m->p", paths()[:, -1], row, **more)
    return lambda: einsum("pnm,vm->pnv", paths(), w_u, **more)


def stack_of_heads(run: Run, library: str) -> Callable[[], Any] | None:
    """What TransformerLens's ``stack_head_results`` computes, of heads that read the embedding, unembedded: order 1."""
    if library == "torch" and torch is None:
        return None
    arch, arrays = run.model.architecture, held(run)
    stacked = {g: np.stack([arrays[f"{g}_{h}"] for h in arch.all_heads]) for g in ("A", "W_V", "W_O")}
    x0, w_u = arrays["X0"], arrays["W_U"]
    if library == "torch":
        stacked, x0, w_u = {g: tensor(a) for g, a in stacked.items()}, tensor(x0), tensor(w_u)

    def work() -> Any:
        z = stacked["A"] @ (x0 @ stacked["W_V"].swapaxes(-1, -2))
        return z @ stacked["W_O"].swapaxes(-1, -2) @ w_u.T

    return work


def by_head(run: Run) -> Callable[[], Iterator[Any]]:
    """All paths by hand in head space: prefixes shared, all that end in a head by one product, into one buffer.

    ``Z (W_U W_O)^T`` of all paths ``Z [paths * n, d_head]`` that end in a head; the blocks come in the order of the
    heads, which is not that of the expansion. Nothing is checked.
    """
    layers, a = [run.model.architecture.layer_heads(i) for i in range(run.model.architecture.n_layers)], held(run)
    n, w_u = len(a["X0"]), a["W_U"]
    before = int(np.prod([1 + len(heads) for heads in layers[:-1]]))

    def work() -> Iterator[Any]:
        x, buffer = a["X0"][None], np.empty((before * n, len(w_u)), run.dtype)
        yield a["X0"] @ w_u.T
        for i, heads in enumerate(layers):
            new = [x]
            for h in heads:
                z = (a[f"A_{h}"] @ (x @ a[f"W_V_{h}"].T)).reshape(-1, a[f"W_V_{h}"].shape[0])
                yield np.matmul(z, a[f"W_O_{h}"].T @ w_u.T, out=buffer[: len(z)])
                if i < len(layers) - 1:
                    new.append((z @ a[f"W_O_{h}"].T).reshape(x.shape))
            x = np.concatenate(new)

    return work


# ------------------------------------------------------------------------------- a teacher's 25 lines of plain NumPy
def plain(run: Run) -> dict[str, Callable[[], Any]]:
    """Values, norms, contributions, and scores of the last layer's first head with their norms: prefixes shared.

    Paths come layer by layer, which is not the order of the expansion; nothing is checked or streamed.
    """
    layers, a = [run.model.architecture.layer_heads(i) for i in range(run.model.architecture.n_layers)], held(run)
    last = f"L{len(layers) - 1}H0"
    w_q, w_k, scale = (run.arrays[f"{name}_{last}"] for name in ("W_Q", "W_K", "scale"))

    def paths(n_layers: int) -> Any:
        x = a["X0"][None]
        for heads in layers[:n_layers]:
            x = np.concatenate([x, *(a[f"A_{h}"] @ (x @ a[f"W_V_{h}"].T) @ a[f"W_O_{h}"].T for h in heads)])
        return x

    def values() -> Any:
        return paths(len(layers)) @ a["W_U"].T

    def scores() -> Any:
        x = paths(len(layers) - 1)
        return (scale * (x @ w_q.T))[:, None] @ (x @ w_k.T).swapaxes(-1, -2)

    return {
        "values": values,
        "norms": lambda: np.sqrt((values() ** 2).sum((-1, -2))),
        "contributions": lambda: paths(len(layers))[:, -1] @ (a["W_U"][3] - a["W_U"][5]),
        "scores": scores,
        "norms of scores": lambda: np.sqrt((scores() ** 2).sum((-1, -2))).ravel(),
    }
