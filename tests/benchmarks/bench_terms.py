"""Symbolic work beside its peers in the same run: words multiplied out, terms enumerated, text written. A script.

    python tests/benchmarks/bench_terms.py [--heads 12,12,12,12] [--rounds 3] [--no-sets]

The scores of the first head of the last layer. Peers, where they are installed: FORM with noncommuting functions (one
for each matrix) and with commuting letters (one for each head and side, which says which head but not in which order),
its text written to a file; SymPy's noncommutative symbols and python-flint's commutative polynomials. CPU seconds of
one thread, medians over rounds that take turns; memory is the largest resident size beyond the start, of a process of
its own. What was multiplied out is compared as a set with what was enumerated, ours and FORM's.
"""
# ruff: noqa: E402

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy is imported

import argparse
import importlib.util
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import symcircuits as sc
from symcircuits.packed import Words, multiply_out, words_of
from symcircuits.term_export import export_terms

FORM = shutil.which("form") or shutil.which("tform")
SMALL = 1_000  # terms beyond which SymPy is given a smaller case


class Way(NamedTuple):
    """One way to do the work: by whom, what, how many terms, and the work itself."""

    name: str
    terms: int
    work: Callable[[Path], None]
    limit: str = ""


# ------------------------------------------------------------------------------------------------- ours
def scores_of(heads: tuple[int, ...]) -> sc.Expansion:
    """The scores of the first head of the last layer."""
    return sc.scores(sc.attention_only(heads), f"L{len(heads) - 1}H0")


def by_packed_words(expansion: sc.Expansion) -> Callable[[Path], None]:
    """Every word multiplied out, and like terms looked for."""

    def work(folder: Path) -> None:
        words = multiply_out(expansion.readout)
        assert (words.count, words.like_terms) == (expansion.count, 0)

    return work


def by_blocks(expansion: sc.Expansion) -> Callable[[Path], None]:
    """Every term as integers with its type; counted from the heads by order and type."""

    def work(folder: Path) -> None:
        found = sc.census(expansion)
        assert found.by_composition() == expansion.counts_by_composition()
        assert found.by_order() == expansion.counts_by_order()

    return work


def by_text(expansion: sc.Expansion, column: str) -> Callable[[Path], None]:
    """Every term's text (every matrix, in order), or its label (every head), to a file."""

    def work(folder: Path) -> None:
        assert export_terms(expansion, folder / "terms.csv", [column]).complete

    return work


# ------------------------------------------------------------------------------------------------- FORM
def form_program(heads: tuple[int, ...], commuting: bool, output: Path | None) -> str:
    """A FORM program that expands the scores; it writes the text, or the number of terms."""
    before = heads[:-1]
    if commuting:
        names = [f"{s}{layer}h{h}" for s in "qk" for layer, n in enumerate(before) for h in range(n)]
        factors = [
            "(1" + "".join(f"+{s}{layer}h{h}" for h in range(n)) + ")" for s in "qk" for layer, n in enumerate(before)
        ]
        lines = [f"Symbols {','.join(names)};", f"Local F = {'*'.join(factors)};", ".sort"]
    else:
        names = [
            f"{s}{layer}h{h}" for s in ("qa", "qw", "ka", "kw") for layer, n in enumerate(before) for h in range(n)
        ]
        lines = [f"Functions x,m,y,{','.join(names)};", "Local Q0 = x;", "Local K0 = y;", ".sort"]
        for layer, n in enumerate(before):
            query = "".join(f"+qa{layer}h{h}*Q{layer}*qw{layer}h{h}" for h in range(n))
            key = "".join(f"+kw{layer}h{h}*K{layer}*ka{layer}h{h}" for h in range(n))
            lines += [f"Local Q{layer + 1} = Q{layer}{query};", f"Local K{layer + 1} = K{layer}{key};", ".sort"]
            lines += [f"Drop Q{layer},K{layer};"]
        last = len(before)
        lines += [f"Local F = Q{last}*m*K{last};", ".sort", f"Drop Q{last},K{last};", ".sort"]
    lines += ["#$n = termsin_(F);", "#message terms=`$n'"] if output is None else [f'#write <{output}> "%E",F']
    return "\n".join(["#-", "Off statistics;", *lines, ".end", ""])


def by_form(heads: tuple[int, ...], commuting: bool, text: bool, terms: int) -> Callable[[Path], None]:
    """FORM's expansion, in a process of its own."""

    def work(folder: Path) -> None:
        assert FORM is not None
        program = folder / "expand.frm"
        program.write_text(form_program(heads, commuting, folder / "form.txt" if text else None))
        done = subprocess.run([FORM, "-q", str(program)], cwd=folder, capture_output=True, text=True, check=True)
        assert text or f"terms={terms}" in done.stdout, done.stdout

    return work


def form_words(text: bytes, alphabet: Any) -> Words:
    """FORM's text as packed words in our letters, all at once: names are looked up by their bytes."""
    packed = bytes(text).translate(None, b" \n\r")
    assert b"-" not in packed, "no term is subtracted"
    head = alphabet.readout.head

    def code(name: bytes) -> list[int]:
        word = name.decode()
        if word == "m":
            return [alphabet.letters[f"W_Q[{head}].T"], alphabet.letters[f"W_K[{head}]"]]
        if word in ("x", "y"):
            return [alphabet.letters["X0" if word == "x" else "X0.T"]]
        at = "L" + word[2:].replace("h", "H")
        kind = {"qa": "A[{}]", "qw": "W_OV[{}].T", "ka": "A[{}].T", "kw": "W_OV[{}]"}[word[:2]]
        return [alphabet.letters[kind.format(at)]]

    data = np.frombuffer(packed + b"+", np.uint8)
    ends = np.flatnonzero((data == ord("+")) | (data == ord("*")))
    starts = np.concatenate([[0], ends[:-1] + 1])
    width = int((ends - starts).max())
    # Each name as one integer of its bytes, then by a table to letters: m is two.
    key = np.zeros(len(ends), np.uint64)
    for i in range(width):
        inside = starts + i < ends
        key[inside] = key[inside] << np.uint64(8) | data[starts[inside] + i].astype(np.uint64)
    unique, place = np.unique(key, return_inverse=True)
    spelled = [code(int(k).to_bytes(8, "big").lstrip(b"\0")) for k in unique]
    letter = np.array([s[0] for s in spelled])[place]
    second = np.array([s[1] if len(s) == 2 else 0 for s in spelled])[place]
    last = data[ends] == ord("+")
    term = np.concatenate([[0], np.cumsum(last)[:-1]])
    return _assembled(alphabet, term, letter, second)


def _assembled(alphabet: Any, term: Any, letter: Any, second: Any) -> Words:
    """Letters in order, each with the number of its term, as words."""
    from symcircuits.packed import _packed

    counts = np.bincount(term)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    columns = []
    for i in range(int(counts.max())):
        there = counts > i
        at = np.minimum(first + i, len(letter) - 1)
        columns += [np.where(there, letter[at], 0), np.where(there, second[at], 0)]
    return Words(alphabet, _packed(alphabet, columns))


def compare_sets(expansion: sc.Expansion, heads: tuple[int, ...], folder: Path) -> str:
    """What was multiplied out, by us and by FORM, against what is enumerated: the same set of words?"""
    words = multiply_out(expansion.readout)
    found = words_of(sc.blocks(expansion), words.alphabet)
    said = f"sets of {expansion.count:,} words: multiplied out = enumerated: {words.same(found)}"
    if FORM is None:
        return said + "; FORM is not installed"
    by_form(heads, False, True, expansion.count)(folder)
    theirs = form_words((folder / "form.txt").read_bytes(), words.alphabet)
    return said + f"; FORM's = enumerated: {theirs.same(found)}"


# ------------------------------------------------------------------------------------------ other peers
def by_sympy(heads: tuple[int, ...]) -> Callable[[Path], None]:
    """SymPy's noncommutative symbols, expanded."""

    def work(folder: Path) -> None:
        from sympy import Symbol, expand

        def side(start: Any, left: str, right: str) -> Any:
            value = start
            for layer, n in enumerate(heads[:-1]):
                parts = [
                    Symbol(f"{left}{layer}h{h}", commutative=False)
                    * value
                    * Symbol(f"{right}{layer}h{h}", commutative=False)
                    for h in range(n)
                ]
                value = value + sum(parts)
            return value

        x, m, y = (Symbol(s, commutative=False) for s in "xmy")
        assert len(expand(side(x, "qa", "qw") * m * side(y, "kw", "ka")).args) > 0

    return work


def by_flint(heads: tuple[int, ...], terms: int) -> Callable[[Path], None]:
    """python-flint's commutative polynomials, a letter for each head and side."""

    def work(folder: Path) -> None:
        from flint import Ordering, fmpz_mpoly_ctx

        names = [f"{s}{layer}h{h}" for s in "qk" for layer, n in enumerate(heads[:-1]) for h in range(n)]
        letters = dict(zip(names, fmpz_mpoly_ctx.get(names, Ordering.lex).gens(), strict=True))
        total = None
        for side in "qk":
            for layer, n in enumerate(heads[:-1]):
                factor = 1 + sum(letters[f"{side}{layer}h{h}"] for h in range(n))
                total = factor if total is None else total * factor
        assert len(total) == terms  # type: ignore[arg-type]

    return work


# ------------------------------------------------------------------------------------------------ measuring
def measured(way: Way) -> tuple[float, float]:
    """CPU seconds (of a child that the work starts, too) and megabytes beyond the start, in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with tempfile.TemporaryDirectory() as folder:
                before = _resident()
                start = time.process_time() + _children()
                way.work(Path(folder))
                spent = time.process_time() + _children() - start
                peak = max(_peak() - before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
                os.write(write, f"{spent} {peak}".encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write)
    said = os.read(read, 100).decode()
    os.close(read)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"{way.name} failed")
    seconds, megabytes = map(float, said.split())
    return seconds, megabytes


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def _resident() -> float:
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    return _status("VmRSS")


def _peak() -> float:
    return _status("VmHWM")


def ways_of(heads: tuple[int, ...]) -> list[Way]:
    """Everything that is measured, peers first."""
    expansion = scores_of(heads)
    n = expansion.count
    found = []
    if FORM is not None:
        found = [
            Way("FORM, noncommuting", n, by_form(heads, False, False, n)),
            Way("FORM, commuting", n, by_form(heads, True, False, n)),
            Way("FORM, noncommuting, text", n, by_form(heads, False, True, n)),
            Way("FORM, commuting, text", n, by_form(heads, True, True, n)),
        ]
    if importlib.util.find_spec("flint") is not None:
        found.append(Way("flint, commuting", n, by_flint(heads, n)))
    small = (*(min(h, 4) for h in heads[-3:-1]), 1)
    found.append(Way("SymPy, noncommuting", scores_of(small).count, by_sympy(small)))
    found += [
        Way("packed words", n, by_packed_words(expansion), "5 M/s"),
        Way("typed blocks and census", n, by_blocks(expansion), "30x FORM, commuting"),
        Way("labels to disk", n, by_text(expansion, "label"), "3x FORM, commuting, text"),
        Way("text to disk", n, by_text(expansion, "text"), "3x FORM, noncommuting, text"),
    ]
    return found


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", default="12,12,12,12")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-sets", action="store_true", help="do not compare sets of words")
    asked = parser.parse_args()
    heads = tuple(int(h) for h in asked.heads.split(","))
    ways = ways_of(heads)
    seconds: dict[str, list[float]] = {w.name: [] for w in ways}
    memory: dict[str, float] = dict.fromkeys(seconds, 0.0)
    for _ in range(asked.rounds):
        for way in ways:
            spent, used = measured(way)
            seconds[way.name].append(spent)
            memory[way.name] = max(memory[way.name], used)
    speed = {w.name: w.terms / statistics.median(seconds[w.name]) for w in ways}
    print(f"{scores_of(heads)}; CPU of one thread, medians of {asked.rounds} rounds")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}")
    absent = [n for n, there in (("FORM", FORM), ("python-flint", "flint, commuting" in speed)) if not there]
    if absent:
        print(f"not installed, so not compared: {', '.join(absent)}")
    print(f"{'':28}{'terms':>12}{'CPU s':>9}{'M terms/s':>11}{'MB':>7}  {'asked':29}{'reached'}")
    for way in ways:
        reached = _reached(way, speed)
        print(
            f"{way.name:28}{way.terms:12,}{statistics.median(seconds[way.name]):9.2f}{speed[way.name] / 1e6:11.3f}"
            f"{memory[way.name]:7.0f}  {way.limit:29}{reached}"
        )  # fmt: skip
    if not asked.no_sets:
        with tempfile.TemporaryDirectory() as folder:
            print(compare_sets(scores_of(heads), heads, Path(folder)))


def _reached(way: Way, speed: dict[str, float]) -> str:
    """The ratio that is asked for, where its peer is there."""
    if way.limit.endswith("M/s"):
        return f"{speed[way.name] / 1e6:.1f} M/s"
    peer = way.limit.partition("x ")[2]
    if not peer:
        return ""
    return f"{speed[way.name] / speed[peer]:.1f}x" if peer in speed else "no peer"


if __name__ == "__main__":
    sys.exit(main())
