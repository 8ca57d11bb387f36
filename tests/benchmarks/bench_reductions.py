"""Norms, contributions and score terms of all paths beside their peers, in one run. Run it as a script.

    python tests/benchmarks/bench_reductions.py [--rounds 3] [--only small,scores,logits,paths] [--quick]

Peers: streaming the terms; each pair of paths by itself (``P_q W_QK P_k^T``, the paths' parts of the stream made before
the clock starts; timed on a sample, for all); an einsum of all pairs at once where they fit; full logits of every path,
and one difference of logits of every path, by einsum over all paths (prefixes shared), in NumPy and, where it is
installed, in torch. Everything is compared with the peer's numbers. CPU seconds of one thread; memory as NumPy
allocates it (tracemalloc).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import measuring
import numpy as np
from measuring import cpu, medians, peak
from peers import SIZES, Size, einsum_paths, plain, torch
from results import Row, beside

import symcircuits as sc
from symcircuits.model import Run

PARTS = ("small", "scores", "logits", "paths")
SMALL = 0.8  # asked: times as fast as 25 lines of NumPy
# Asked of norms (beside full logits) and of contributions (beside one difference of logits of every path).
LOGITS = {"paper8": (60.0, 8.0), "paper12": (60.0, 8.0), "deep": (20.0, 150.0)}
MANY = (
    Size("12 x 6 layers", (12,) * 6, 200, 96, 8, 32),
    Size("8 x 6 layers", (8,) * 6, 200, 64, 8, 32),
    Size("12 x 5 layers", (12,) * 5, 200, 768, 64, 64),
)
SAMPLE = 10_000


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


def scores(size: Size, rounds: int) -> Iterator[Row]:
    """All score terms of the first head of the last layer."""
    run, head = size.run(), f"L{len(size.heads) - 1}H0"
    terms = sc.scores(run.model.architecture, head)
    parts, w_qk = streams_by_path(run, len(size.heads) - 1), run.arrays[f"W_QK_{head}"]
    scale, mask = float(run.arrays[f"scale_{head}"]), run.masks[f"L{len(size.heads) - 1}"]
    sample = min(SAMPLE, terms.count)
    pairs = [divmod(i, len(parts)) for i in np.random.default_rng(0).integers(0, terms.count, sample)]

    def norms_of_streamed(masked: Any = 1) -> Any:
        found = [np.einsum("tij,tij->t", b.values * masked, b.values) for b in sc.evaluate(terms, run).blocks()]
        return np.sqrt(np.concatenate(found))

    ways = {
        "pair": lambda: [scale * (parts[q] @ w_qk @ parts[k].T)[-1, 0] for q, k in pairs],
        "streamed": lambda: sum(len(b.values) for b in sc.evaluate(terms, run).blocks()),
        "listed": lambda: sum(1 for _ in itertools.islice(sc.evaluate(terms, run), sample)),
        "summed": norms_of_streamed,
        "norms": lambda: joined(sc.evaluate(terms, run).measure()),
        "masked": lambda: joined(sc.evaluate(terms, run).measure(sc.norm(masked=True))),
        "entries": lambda: joined(sc.evaluate(terms, run).measure(sc.score_entry(-1, 0))),
        "summary": lambda: sc.evaluate(terms, run).summary(),
    }
    seconds, given = medians(rounds, ways)
    assert close(given["norms"], given["summed"])
    assert close(given["masked"], norms_of_streamed(mask))
    assert close(given["summary"].total.total, given["norms"].sum())
    assert close(given["entries"][[q * len(parts) + k for q, k in pairs]], np.array(given["pair"]))
    share, what = terms.count / sample, f"all {terms.count:,} score terms of a head"
    memory = {name: peak(ways[name]) for name in ("norms", "masked", "entries", "summary")}
    memory["streamed"] = peak(lambda: [None for _ in sc.evaluate(terms, run).blocks()])
    deep = size.name == "deep"
    for name, ours, peer, theirs, limit in (
        (what, "streamed", "each pair of paths by itself, cached", seconds["pair"] * share, 18.0),
        (what, "streamed", "evaluate, term by term", seconds["listed"] * share, None),
        ("  their norms, unmasked", "norms", "streaming the terms", seconds["streamed"], 40.0),
        ("  their norms, unmasked", "norms", "streaming and squaring them", seconds["summed"], None),
        ("  their norms, masked", "masked", "streaming the terms", seconds["streamed"], None),
        ("  one entry of each", "entries", "streaming the terms", seconds["streamed"], None),
        ("  summed up by order and type", "summary", "their norms", seconds["norms"], 0.5),
    ):
        asked = limit if deep else None
        yield beside(name, size.name, peer, theirs, seconds[ours], limit=asked, memory=memory[ours])


def pairs_at_once(size: Size, rounds: int) -> Iterator[Row]:
    """All score terms where they fit in memory: einsum through d_head, as ARENA's ``decompose_attn_scores``."""
    run, last = size.run(), len(size.heads) - 1
    terms = sc.scores(run.model.architecture, f"L{last}H0")
    parts = np.stack(streams_by_path(run, last))
    w_q, w_k, scale = (run.arrays[f"{name}_L{last}H0"] for name in ("W_Q", "W_K", "scale"))

    def by_einsum() -> Any:
        q = np.einsum("pim,dm->pid", parts, w_q * scale, optimize=True)
        k = np.einsum("pim,dm->pid", parts, w_k, optimize=True)
        return np.einsum("qid,kjd->qkij", q, k, optimize=True)

    ways = {"einsum": by_einsum, "ours": lambda: [None for _ in sc.evaluate(terms, run).blocks()]}
    seconds, given = medians(rounds, ways)
    found = np.concatenate([b.values.copy() for b in sc.evaluate(terms, run).blocks()])
    assert close(found, given["einsum"].reshape(found.shape))
    what = f"all {terms.count:,} score terms of a head"
    peer = "einsum of all pairs, parts of the stream cached"
    yield beside(what, size.name, peer, seconds["einsum"], seconds["ours"], memory=peak(ways["ours"]))


# ------------------------------------------------------------------------------------------------- logits
def logits(size: Size, rounds: int) -> Iterator[Row]:
    """Norms of all logit terms, and what each adds to a difference of two logits."""
    run = size.run()
    terms = sc.logits(run.model.architecture)
    ways: dict[str, Any] = {
        "norms": lambda: joined(sc.evaluate(terms, run).measure()),
        "contributions": lambda: joined(sc.evaluate(terms, run).measure(sc.logit(3, against=5))),
    }
    first = cpu(ways["norms"])[0]
    for library in ("NumPy", "torch"):
        for name, read in (("full", "logits"), ("entry", "difference")):
            work = einsum_paths(run, library, read)
            ways |= {} if work is None else {f"{name} {library}": work}
    seconds, given = medians(rounds, ways)
    for library in ("NumPy", "torch"):
        if f"full {library}" in given:  # paths come in another order there
            full = np.sort([np.linalg.norm(np.asarray(x)) for x in given.pop(f"full {library}")])
            assert close(np.sort(given["norms"]), full)
            assert close(np.sort(given["contributions"]), np.sort(np.asarray(given[f"entry {library}"])))
    what = f"norms of all {terms.count:,} logit terms"
    asked = dict.fromkeys(("NumPy", "torch"), (None, None))  # the limits are about torch, where it is installed
    asked["NumPy" if torch is None else "torch"] = LOGITS.get(size.name, (None, None))
    memory = {name: peak(ways[name]) for name in ("norms", "contributions")}
    note = f"{first:.2g} s the first time (W_U = Q T)"
    for library, (limit, _) in asked.items():
        peer, full = f"full logits, einsum over all paths, {library}", seconds.get(f"full {library}")
        yield beside(what, size.name, peer, full, seconds["norms"], limit=limit, memory=memory["norms"], note=note)
    for library, (_, limit) in asked.items():
        what, entry = "  their parts in a logit difference", seconds.get(f"entry {library}")
        yield beside(what, size.name, f"einsum over all paths, {library}", entry, seconds["contributions"],
                     limit=limit, memory=memory["contributions"])  # fmt: skip


def small(size: Size, rounds: int) -> Iterator[Row]:
    """What a teacher asks of a small model, beside 25 lines that compute all of it as plainly.

    A run keeps what all paths write before they are read, so that only the first question makes it.
    """
    run = size.run()
    terms = sc.logits(run.model.architecture)
    pairs = sc.scores(run.model.architecture, f"L{len(size.heads) - 1}H0")
    measured: dict[str, Any] = {
        "norms": lambda: joined(sc.evaluate(terms, run).measure()),
        "contributions": lambda: joined(sc.evaluate(terms, run).measure(sc.logit(3, against=5))),
        "norms of scores": lambda: joined(sc.evaluate(pairs, run).measure()),
    }
    ours = measured | {
        "values": lambda: [None for _ in sc.evaluate(terms, run).blocks()],
        "scores": lambda: [None for _ in sc.evaluate(pairs, run).blocks()],
    }
    theirs = plain(run)
    seconds, given = medians(
        max(rounds, 5),
        {f"{name} {who}": way[name] for name in theirs for who, way in (("ours", ours), ("plain", theirs))},
    )
    for name in measured:  # paths come in another order there
        assert close(np.sort(given[f"{name} ours"]), np.sort(given[f"{name} plain"]))
    for name, e in (("values", terms), ("scores", pairs)):
        total = sum(b.values.sum(0) for b in sc.evaluate(e, run).blocks())
        assert close(total, given[f"{name} plain"].reshape(-1, *total.shape).sum(0))
    limit = None if size.name == "tiny" else SMALL
    for name in theirs:
        what = f"{name} of all {(pairs if 'scores' in name else terms).count:,} terms"
        yield beside(what, size.name, "25 lines of NumPy", seconds[f"{name} plain"], seconds[f"{name} ours"],
                     limit=limit, memory=peak(ours[name]))  # fmt: skip


def paths(size: Size, rounds: int) -> Iterator[Row]:
    """Contributions by the million."""
    run = size.run()
    terms = sc.logits(run.model.architecture)
    work = lambda: sum(b.values.sum() for b in sc.evaluate(terms, run).measure(sc.logit(3, against=5)))  # noqa: E731
    seconds, given = medians(rounds, {"ours": work})
    error = abs(given["ours"] - (run.logits[-1, 3] - run.logits[-1, 5]))
    assert error < 1e-11 * np.abs(run.logits).max()
    limit = 12.0 if size.d_head == 8 else None
    yield Row(f"parts of {terms.count:,} paths", size.name, "", None, seconds["ours"],
              terms.count / seconds["ours"] / 1e6, "M paths/s", limit, memory=peak(work),
              note=f"d {size.d_model}, d_head {size.d_head}, n {size.n}; sum off by {error:.0e}")  # fmt: skip


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    """Scores, logits, paths."""
    chosen = PARTS if asked.only is None else asked.only.split(",")
    if "small" in chosen:
        for name in ("tiny",) if asked.quick else ("record", "small"):
            yield from small(SIZES[name], asked.rounds)
    if "scores" in chosen:
        yield from scores(SIZES["tiny" if asked.quick else "deep"], asked.rounds)
        for name in ("tiny",) if asked.quick else ("small", "paper8"):
            yield from pairs_at_once(SIZES[name], asked.rounds)
    if "logits" in chosen:
        for name in ("tiny",) if asked.quick else LOGITS:
            yield from logits(SIZES[name], asked.rounds)
    if "paths" in chosen:
        for size in (SIZES["tiny"],) if asked.quick else MANY:
            yield from paths(size, asked.rounds)


def options(parser: argparse.ArgumentParser) -> None:
    """What else can be asked of this script."""
    parser.add_argument("--only", help=f"some of {', '.join(PARTS)}")


if __name__ == "__main__":
    measuring.script(rows, __doc__, options)
