"""Norms, contributions and score terms of all paths beside their peers, in one run. Run it as a script.

    python tests/benchmarks/bench_reductions.py [--rounds 3] [--only scores|logits|paths]

Peers: streaming the terms; each pair of paths by itself (``P_q W_QK P_k^T``, the paths' parts of the stream made before
the clock starts; timed on a sample, for all); full logits of every path, and one logit of every path, by ``einsum``
path by path, in NumPy and, where it is installed, in torch. Everything is compared with the peer's numbers. CPU
seconds, one thread each, medians over rounds that take turns; memory as NumPy allocates it (tracemalloc).
"""
# ruff: noqa: E402

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy is imported

import argparse
import itertools
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
from measuring import cpu, medians, peak

import symcircuits as sc
from symcircuits.model import Run, random_model

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None  # type: ignore[assignment]

SIZES: dict[str, dict[str, Any]] = {
    "paper-like 8+8": {"heads": (8, 8), "d_vocab": 5000, "d_model": 256, "d_head": 32, "n": 128},
    "paper-like 12+12": {"heads": (12, 12), "d_vocab": 5000, "d_model": 256, "d_head": 32, "n": 128},
    "deep": {"heads": (8, 8, 8, 8), "d_vocab": 200, "d_model": 128, "d_head": 16, "n": 64},
}
ORDER = ["einsum_path", (0, 1), (0, 1)]  # the pattern first; so that no time goes into looking for an order
SAMPLE = 10_000
ROW = "{:44}{:>10}{:>12}{:>8}{:>9}  {}"


def run_of(size: dict[str, Any]) -> Run:
    """A random model of that size, run on random tokens; products of weights are made before the clock starts."""
    widths = {name: size[name] for name in ("d_vocab", "d_model", "d_head")}
    model = random_model(sc.attention_only(size["heads"]), **widths)
    run = model.run(np.random.default_rng(0).integers(0, size["d_vocab"], size["n"]))
    for head in model.architecture.all_heads:
        _ = run.arrays[f"W_OV_{head}"]
    return run


def say(what: str, peer: float | None, ours: float, memory: float, note: str) -> None:
    """One row of the table."""
    shown = ("-", "-") if peer is None else (f"{peer:.4g}", f"{peer / ours:.1f}")
    print(ROW.format(what, shown[0], f"{ours:.4g}", shown[1], f"{memory:.0f}", note), flush=True)


def joined(blocks: Iterator[Any]) -> Any:
    """All numbers in one array."""
    return np.concatenate([b.values for b in blocks])


def close(found: Any, wanted: Any) -> bool:
    """Equal to 1e-9 of the largest."""
    return bool(np.abs(found - wanted).max() <= 1e-9 * np.abs(wanted).max())


# ------------------------------------------------------------------------------------------------- scores
def streams_by_path(run: Run, layers: int) -> list[Any]:
    """Every path's part of the stream after so many layers, in the order of the expansion."""
    arch, found = run.model.architecture, [run.arrays["X0"]]
    values = {(): run.arrays["X0"]}
    heads = [h for h in arch.all_heads if h.layer < layers]
    for order in range(1, layers + 1):
        for chain in itertools.combinations(heads, order):
            if len({h.layer for h in chain}) == order:
                head = chain[-1]
                values[chain] = run.arrays[f"A_{head}"] @ values[chain[:-1]] @ run.arrays[f"W_OV_{head}"].T
                found.append(values[chain])
    return found


def scores(rounds: int) -> None:
    """All score terms of a head of the last layer of `deep`."""
    run = run_of(SIZES["deep"])
    terms, head = sc.scores(run.model.architecture, "L3H0"), "L3H0"
    parts, w_qk = streams_by_path(run, 3), run.arrays["W_QK_L3H0"]
    scale, mask = float(run.arrays[f"scale_{head}"]), run.masks["L3"]
    pairs = [divmod(i, len(parts)) for i in np.random.default_rng(0).integers(0, terms.count, SAMPLE)]

    def by_pair() -> list[Any]:
        return [scale * (parts[q] @ w_qk @ parts[k].T)[-1, 0] for q, k in pairs]

    def streamed() -> Any:
        return sum(len(b.values) for b in sc.term_values(terms, run))

    def listed() -> int:
        return sum(1 for _ in itertools.islice(sc.evaluate(terms, run), SAMPLE))

    def norms_of_streamed(masked: Any = 1) -> Any:
        found = [np.einsum("tij,tij->t", b.values * masked, b.values) for b in sc.term_values(terms, run)]
        return np.sqrt(np.concatenate(found))

    ways = {
        "pair": by_pair, "streamed": streamed, "listed": listed, "summed": norms_of_streamed,
        "norms": lambda: joined(sc.norms(terms, run)), "masked": lambda: joined(sc.norms(terms, run, masked=True)),
        "entries": lambda: joined(sc.entries(terms, run, position=-1, key=0)),
    }  # fmt: skip
    seconds, given = medians(rounds, ways)
    assert close(given["norms"], given["summed"])
    assert close(given["masked"], norms_of_streamed(mask))
    assert close(given["entries"][[q * len(parts) + k for q, k in pairs]], np.array(given["pair"]))
    share = terms.count / SAMPLE
    what = f"deep, {terms.count:,} score terms"
    memory = peak(lambda: next(sc.term_values(terms, run)))
    say(f"{what}: streamed", seconds["pair"] * share, seconds["streamed"], memory, "each pair by itself (limit 12)")
    say("  beside `evaluate`", seconds["listed"] * share, seconds["streamed"], memory, "evaluate, listed")
    memory = peak(ways["norms"])
    say("  norms, unmasked", seconds["streamed"], seconds["norms"], memory, "streaming the terms (limit 40)")
    say("  norms, unmasked", seconds["summed"], seconds["norms"], memory, "streaming and squaring them")
    say("  norms, masked", seconds["streamed"], seconds["masked"], peak(ways["masked"]), "streaming the terms")
    say("  one entry of each", seconds["streamed"], seconds["entries"], peak(ways["entries"]), "streaming the terms")


# ------------------------------------------------------------------------------------------------- logits
def by_einsum(run: Run, read: Any, library: Any) -> Any:
    """Of each path by itself, in the order of the expansion, its part of the stream and what `read` makes of it."""
    arrays, arch = run.arrays, run.model.architecture
    made = np.asarray if library is np else torch.from_numpy
    names = [f"{glyph}_{head}" for head in arch.all_heads for glyph in ("A", "W_OV")]
    held = {name: made(arrays[name]) for name in ("X0", *names)}
    more = {"optimize": ORDER} if library is np else {}
    found = []
    for order in range(len(arch.heads) + 1):
        for chain in itertools.combinations(arch.all_heads, order):
            if len({h.layer for h in chain}) < order:
                continue
            x = held["X0"]
            for h in chain:
                x = library.einsum("qk,km,dm->qd", held[f"A_{h}"], x, held[f"W_OV_{h}"], **more)
            found.append(float(read(x)))
    return np.array(found)


def logits(rounds: int, name: str, limits: tuple[int, int]) -> None:
    """Norms of all logit terms, and what each adds to a difference of two logits."""
    run = run_of(SIZES[name])
    terms = sc.logits(run.model.architecture)
    for library in (np, torch):
        if library is None:
            print("  (torch is not installed: no rows for it)")
        else:
            beside(rounds, f"{name}, {terms.count:,} logit terms", run, library, limits)


def beside(rounds: int, what: str, run: Run, library: Any, limits: tuple[int, int]) -> None:
    """The rows beside one library."""
    terms, said = sc.logits(run.model.architecture), "NumPy" if library is np else "torch"
    unembed = run.arrays["W_U"] if library is np else torch.from_numpy(run.arrays["W_U"])
    row, more = unembed[3] - unembed[5], {"optimize": True} if library is np else {}
    ways = {
        "full": lambda: by_einsum(
            run, lambda x: library.linalg.norm(library.einsum("nd,vd->nv", x, unembed, **more)), library
        ),
        "entry": lambda: by_einsum(run, lambda x: x[-1] @ row, library),
        "norms": lambda: joined(sc.norms(terms, run)),
        "contributions": lambda: joined(sc.contributions(terms, run, token=3, against=5)),
    }
    first = cpu(ways["norms"])[0]
    seconds, given = medians(rounds, ways)
    assert close(given["norms"], given["full"])
    assert close(given["contributions"], given["entry"])
    memory = peak(ways["norms"])
    say(f"{what}: norms", seconds["full"], seconds["norms"], memory, f"full logits, {said} einsum (limit {limits[0]})")
    if library is np:
        say("  the first of a model, with W_U = Q T", seconds["full"], first, memory, "the same")
    memory = peak(ways["contributions"])
    note = f"einsum over all paths, {said} (limit {limits[1]})"
    say("  contributions to a difference", seconds["entry"], seconds["contributions"], memory, note)


def paths(rounds: int) -> None:
    """Contributions by the million."""
    for heads, d, d_head, n in (((12,) * 6, 96, 8, 32), ((8,) * 6, 64, 8, 32), ((12,) * 5, 768, 64, 64)):
        run = run_of({"heads": heads, "d_vocab": 200, "d_model": d, "d_head": d_head, "n": n})
        terms = sc.logits(run.model.architecture)
        seconds, given = medians(
            rounds,
            {"ours": lambda: sum(b.values.sum() for b in sc.contributions(terms, run, token=3, against=5))},  # noqa: B023
        )
        error = abs(given["ours"] - (run.logits[-1, 3] - run.logits[-1, 5]))
        assert error < 1e-11 * np.abs(run.logits).max()
        rate = terms.count / seconds["ours"] / 1e6
        memory = peak(lambda: [None for _ in sc.contributions(terms, run, token=3, against=5)])  # noqa: B023
        note = f"{rate:.1f} million paths/s (limit 4 at d_head 8); sum off by {error:.0e}"
        say(f"{terms.count:,} paths, d {d}, d_head {d_head}, n {n}", None, seconds["ours"], memory, note)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["scores", "logits", "paths"])
    asked = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, NumPy {np.__version__}, one thread; CPU s, medians")
    print(ROW.format("", "peer CPU s", "ours CPU s", "ratio", "MB", "peer"))
    if asked.only in (None, "scores"):
        scores(asked.rounds)
    if asked.only in (None, "logits"):
        for name, limits in (("paper-like 8+8", (60, 8)), ("paper-like 12+12", (60, 8)), ("deep", (20, 100))):
            logits(asked.rounds, name, limits)
    if asked.only in (None, "paths"):
        paths(asked.rounds)


if __name__ == "__main__":
    main()
