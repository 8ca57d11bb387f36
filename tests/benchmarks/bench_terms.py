"""Symbolic work beside its peers in the same run: words multiplied out, terms enumerated, text written. A script.

    python tests/benchmarks/bench_terms.py [--heads 12,12,12,12] [--rounds 3] [--no-sets] [--quick]

The scores of the first head of the last layer. Peers, where they are installed: FORM with noncommuting functions (one
for each matrix) and with commuting letters (one for each head and side, which says which head but not in which order),
its text written to a file; SymPy's noncommutative symbols and python-flint's commutative polynomials; plain NumPy, and
loops of plain Python that write the same files. CPU seconds of one thread, medians over rounds that take turns; memory
is the largest resident size beyond the start, of a process of its own. What was multiplied out is compared as a set
with what was enumerated, ours and FORM's, and files byte for byte.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import measuring
import numpy as np
from plain_terms import by_loop, by_plain_products, by_plain_types, plain_labels, plain_table, plain_texts
from results import Row, beside

import symcircuits as sc
from symcircuits.tables.formats import DEFAULT
from symcircuits.verification.packed_words import Group, Words, multiply_out
from symcircuits.verification.printed_words import WordReader, printed

FORM = measuring.form()


class Way(NamedTuple):
    """One way to do the work: by whom, how many terms, and the work itself; None where its maker is not installed."""

    name: str
    terms: int
    work: Callable[[Path], None] | None


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
        found = expansion.census()
        assert found.by_composition() == expansion.counts_by_composition()
        assert found.by_order() == expansion.counts_by_order()

    return work


def by_text(expansion: sc.Expansion, *columns: str) -> Callable[[Path], None]:
    """Every term's text (every matrix, in order), its label (every head), or several columns, to a file."""

    def work(folder: Path) -> None:
        assert expansion.export(folder / "terms.csv", columns).complete

    return work


# ----------------------------------------------------------------------------------------- plain loops
# Our way, its columns, and the loop that writes the same bytes.
LOOPS = {
    "labels": (("label",), plain_labels),
    "text": (("text",), plain_texts),
    "five columns": (DEFAULT, plain_table),
}


def compare_files(heads: tuple[int, ...], folder: Path) -> str:
    """Our files against those of the plain loops: the same bytes?"""
    for name, (columns, loop) in LOOPS.items():
        by_text(scores_of(heads), *columns)(folder)
        by_loop(heads, loop)(folder)
        assert filecmp.cmp(folder / "terms.csv", folder / "plain.csv", shallow=False), f"{name} differ"
    return "labels, text, five columns: ours = the plain loops', byte for byte"


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
    counts = np.bincount(term)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    columns = [np.full(len(counts), alphabet.letters[alphabet.scale])]  # which FORM is not given
    for i in range(int(counts.max())):
        there = counts > i
        at = np.minimum(first + i, len(letter) - 1)
        columns += [np.where(there, letter[at], 0), np.where(there, second[at], 0)]
    return Words(alphabet, _packed(alphabet, columns))


def _packed(alphabet: Any, columns: list[Any]) -> dict[int, Group]:
    """Letters by place (0: none) as words, by length."""
    lengths = sum((c > 0).astype(np.int64) for c in columns)
    limbs = [np.zeros(len(lengths), np.uint64) for _ in range(alphabet.limbs(int(lengths.max())))]
    bits, top = np.uint64(alphabet.bits), np.uint64((alphabet.per_limb - 1) * alphabet.bits)
    mask = np.uint64((1 << alphabet.per_limb * alphabet.bits) - 1)
    for column in columns:
        there = column > 0
        for i in reversed(range(len(limbs))):
            carried = limbs[i - 1] >> top if i else column.astype(np.uint64)
            limbs[i] = np.where(there, (limbs[i] << bits) & mask | carried, limbs[i])
    found = {}
    for n in np.unique(lengths).tolist():
        rows = lengths == n
        found[n] = tuple(limb[rows] for limb in limbs[: alphabet.limbs(n)])
    return found


def compare_sets(expansion: sc.Expansion, heads: tuple[int, ...], folder: Path) -> str:
    """What was multiplied out, by us and by FORM, against what is enumerated: the same set of words?"""
    words = multiply_out(expansion.readout)
    found = WordReader(words.alphabet).words(printed(expansion.blocks()))
    assert words.same(found), "what is multiplied out is not what is printed"
    if FORM is None:
        return "multiplied out = printed; FORM is not installed"
    by_form(heads, False, True, expansion.count)(folder)
    theirs = form_words((folder / "form.txt").read_bytes(), words.alphabet)
    assert theirs.same(found), "what FORM multiplies out is not what is enumerated"
    return "multiplied out = FORM's = printed, as sets of words"


# ------------------------------------------------------------------------------------------ other peers
def by_sympy(heads: tuple[int, ...]) -> Callable[[Path], None]:
    """SymPy's noncommutative symbols, expanded."""
    from sympy import Symbol, expand  # before the clock starts

    def work(folder: Path) -> None:
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
        assert len(expand(side(x, "qa", "qw") * m * side(y, "kw", "ka")).args) == scores_of(heads).count

    return work


def by_flint(heads: tuple[int, ...], terms: int) -> Callable[[Path], None]:
    """python-flint's commutative polynomials, a letter for each head and side."""
    from flint import Ordering, fmpz_mpoly_ctx

    def work(folder: Path) -> None:
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
    assert way.work is not None
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
    known = Path("/proc/self/status")
    if not known.is_file():  # not Linux: the peak since the start of the process
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) / 1024 for line in known.read_text().splitlines() if line.startswith(field))


def _resident() -> float:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    return _status("VmRSS")


def _peak() -> float:
    return _status("VmHWM")


def ways_of(heads: tuple[int, ...]) -> list[Way]:
    """Everything that is measured, peers first."""
    expansion, missing = scores_of(heads), measuring.absent()
    n = expansion.count
    small = (*(min(h, 4) for h in heads[-3:-1]), 1)  # of the 4,826,809 terms SymPy would need an hour
    peers = [
        Way(f"FORM, {'commuting' if commuting else 'noncommuting'}{', text' if text else ''}", n,
            by_form(heads, commuting, text, n) if FORM else None)
        for text in (False, True) for commuting in (False, True)
    ]  # fmt: skip
    return [
        *peers,
        Way("python-flint, commuting", n, None if "python-flint" in missing else by_flint(heads, n)),
        Way("SymPy, noncommuting", scores_of(small).count, by_sympy(small)),
        Way("packed words", n, by_packed_words(expansion)),
        Way("typed blocks", n, by_blocks(expansion)),
        Way("plain NumPy, products", n, by_plain_products(heads, n) if len(heads) <= 4 and sum(heads) < 120 else None),
        Way("plain NumPy, types", n, by_plain_types(heads, n)),
        *(Way(f"plain loop, {name}", n, by_loop(heads, loop)) for name, (_, loop) in LOOPS.items()),
        *(Way(name, n, by_text(expansion, *columns)) for name, (columns, _) in LOOPS.items()),
    ]


# Ours, what it is, beside whom, how many times as fast is asked.
BESIDE: tuple[tuple[str, str, str, float | None], ...] = (
    ("packed words", "score terms multiplied out", "FORM, noncommuting", None),
    ("packed words", "", "plain NumPy, products", 1.0),
    ("packed words", "", "python-flint, commuting", 2.0),
    ("packed words", "", "SymPy, noncommuting", None),
    ("typed blocks", "enumerated with types, counted", "FORM, commuting", 80.0),
    ("typed blocks", "", "plain NumPy, types", 1.0),
    ("labels", "labels to a file", "FORM, commuting, text", 3.0),
    ("labels", "", "plain loop, labels", 1.5),
    ("text", "every word to a file", "FORM, noncommuting, text", 3.0),
    ("text", "", "plain loop, text", 1.5),
    ("five columns", "five columns to a file", "plain loop, five columns", 1.5),
)
RATE, MEMORY = 20.0, 200.0  # asked: million terms a second multiplied out; MB beyond the start when enumerating
FUNCTION = 2.0  # asked: milliseconds in which a function is made of a term
START = 5.0  # asked: times what Python takes to start


def start_row(rounds: int) -> Row:
    """A command that computes next to nothing, beside Python that does nothing; compiled files are there."""
    asked = ["-m", "symcircuits", "count", "--heads", "12,12"]
    ways, spent = {"Python": ["-c", "pass"], "ours": asked}, dict[str, list[float]]()
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(sc.__file__).parents[1])
        known = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": root}
        for _ in range(1 + 5 * rounds):
            for name, words in ways.items():
                before = _children()
                subprocess.run([sys.executable, *words], env=known, stdout=subprocess.DEVNULL, check=True)
                spent.setdefault(name, []).append(_children() - before)
    bare, ours = (statistics.median(spent[name][1:]) for name in ways)  # the first run compiles
    return Row("start: count --heads 12,12", "", "Python -c pass", bare, ours, ours / bare, "times as long",
               START, most=True)  # fmt: skip


def function_row(rounds: int) -> Row:
    """A term as a function of arrays, beside SymPy's ``lambdify`` of the same product as it is."""
    from sympy import MatrixSymbol, Symbol, lambdify

    term = scores_of((3, 3, 1))[-1]
    letters = [*sorted(term.matrix_expr().atoms(MatrixSymbol), key=str), Symbol(f"scale_{term.readout.head}")]
    peer = "SymPy's lambdify, as it is"
    ways: measuring.Ways = {"ours": term.lambdify, peer: lambda: lambdify(letters, term.matrix_expr(), "numpy")}
    spent, _ = measuring.medians(rounds, ways)
    note = f"{spent[peer] / spent['ours']:.2g}x"
    return Row("a term as a function", "", peer, spent[peer], spent["ours"], 1e3 * spent["ours"], "ms",
               FUNCTION, most=True, note=note)  # fmt: skip


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    """Each of ours beside its peers."""
    heads = (3, 3, 1) if asked.quick else tuple(int(h) for h in asked.heads.split(","))
    ways = {w.name: w for w in ways_of(heads) if w.work is not None}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(asked.rounds):
        for name, way in ways.items():
            found[name].append(measured(way))
    count = scores_of(heads).count
    seconds = {name: statistics.median(s for s, _ in turns) * count / ways[name].terms for name, turns in found.items()}
    memory = {name: max(m for _, m in turns) for name, turns in found.items()}
    size, what = f"{count:,}", ""
    ours = seconds["packed words"]
    yield Row(BESIDE[0][1], size, "", None, ours, count / ours / 1e6, "M terms/s",
              None if asked.quick else RATE, memory=memory["packed words"])  # fmt: skip
    for name, said, peer, limit in BESIDE:
        what, theirs = said or what, seconds.get(peer)
        note = f"{count / seconds[name] / 1e6:.3g} M/s" + (f"; {peer} {memory[peer]:,.0f} MB" if peer in memory else "")
        if peer in ways and ways[peer].terms != count:
            note = f"{note}; {ways[peer].terms:,} of its terms, for all"
        yield beside(what, size, peer, theirs, seconds[name], limit=None if asked.quick else limit,
                     memory=memory[name], note=note)  # fmt: skip
        if name == "typed blocks" and said:
            yield Row("  memory beyond the start", size, "", figure=memory[name], unit="MB", limit=MEMORY, most=True)
    yield function_row(asked.rounds)
    yield start_row(asked.rounds)
    if not asked.no_sets:
        with tempfile.TemporaryDirectory() as folder:
            said = compare_sets(scores_of(heads), heads, Path(folder))
            yield Row("  the same set of words", size, "", note=said)
            yield Row("  the same files", size, "", note=compare_files(heads, Path(folder)))


def options(parser: argparse.ArgumentParser) -> None:
    """What else can be asked of this script."""
    parser.add_argument("--heads", default="12,12,12,12")
    parser.add_argument("--no-sets", action="store_true", help="do not compare sets of words")


if __name__ == "__main__":
    measuring.script(rows, __doc__, options)
