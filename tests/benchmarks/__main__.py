"""All benchmarks in one run, as one table of speed, one of growth and one of accuracy: `python tests/benchmarks`.

    python tests/benchmarks [--only terms,values] [--rounds 3] [--model FOLDER] [--quick]
                            [--markdown FILE] [--json FILE] [--readme]

Each script runs in a process of its own, one after the other, with BLAS on one thread, so that CPU seconds compare; its
lines are printed as they come. Peers that are not installed are said to be absent. What a script ends with when it
fails is printed, the others still run, and the exit code is 1. ``--readme`` prints what docs/speed.md shows of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measuring import absent, machine
from results import Accuracy, Row, Summing, digest, from_json, markdown, shown

from symcircuits.work.files import check_writable, write_text

HERE = Path(__file__).parent
# In the order in which they are run; which take what is asked here.
SCRIPTS = ("terms", "values", "reductions", "circuits", "deep", "workers", "tensors", "gpt2", "growth", "accuracy")


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """A script and the peers that it runs end where its lines are no longer read."""
    try:
        yield
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise


def collected(scripts: list[str], options: dict[str, list[str]], failed: list[str]) -> Iterator[Any]:
    """The lines of all scripts as they come; ``failed`` takes up the names of those that fail."""
    for name in scripts:
        start = time.perf_counter()
        command = [sys.executable, str(HERE / f"bench_{name}.py"), "--lines", *options[name]]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True
        ) as process, ended(process):  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                yield from_json(line)
        if process.returncode:
            failed.append(name)
            print(f"bench_{name}.py failed with exit code {process.returncode}", file=sys.stderr)
        print(f"({name}: {time.perf_counter() - start:.0f} s)", file=sys.stderr)


def conditions() -> str:
    """The machine, and the peers that are not installed."""
    missing = absent()
    return machine() + f"; not installed: {', '.join(missing) or 'no peer'}"


def reached(rows: list[Any]) -> str:
    """How many limits are reached, and which are not."""
    asked = [row for row in rows if isinstance(row, Row) and row.limit is not None]
    missed = [f"{row.what.strip()}, {row.size} ({row.verdict})" for row in asked if row.verdict != "ok"]
    said = f"{len(asked) - len(missed)} of {len(asked)} limits reached"
    return said + (f"; not: {'; '.join(missed)}" if missed else "")


def legend() -> str:
    """The sizes that have names."""
    from peers import SIZES  # which imports torch, where it is

    sizes = [size for size in SIZES.values() if size.name != "tiny"]
    said = (
        f"`{s.name}` {len(s.heads)} x {s.heads[0]}, V {s.d_vocab:,}, d_model {s.d_model}, d_head {s.d_head}, n {s.n}"
        for s in sizes
    )
    return f"Sizes (layers x heads; V the vocabulary, n the tokens): {'; '.join(said)}."


def for_speed_page(rows: list[Any]) -> str:
    """What docs/speed.md shows: the machine, speed, growth, accuracy in short."""
    short = [row for row in rows if not isinstance(row, (Accuracy, Summing))]
    short += digest(row for row in rows if isinstance(row, Accuracy))
    return f"{conditions()}.\n{legend()}\n\n{markdown(short)}"


def arguments() -> argparse.Namespace:
    """What is asked; ends with a sentence where it cannot be done, before any work."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks", description="all benchmarks in one run")
    parser.add_argument("--only", metavar="values,terms", help=f"some of {', '.join(SCRIPTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="of which medians are taken (default 3)")
    parser.add_argument("--model", type=Path, help="a folder with a trained model and reference.npz (largest terms)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: to see that it works")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the tables there, too")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every line as data there, too")
    parser.add_argument(
        "--readme", action="store_true", help="print what docs/speed.md shows (the tables go to stderr)"
    )
    asked = parser.parse_args()
    asked.scripts = list(SCRIPTS) if asked.only is None else asked.only.split(",")
    for name in asked.scripts:
        if name not in SCRIPTS:
            parser.error(f"there is no benchmark {name!r}; they are {', '.join(SCRIPTS)}")
    if asked.model is not None and not asked.model.exists():
        parser.error(f"--model {asked.model}: there is no such folder")
    if asked.rounds < 1:
        parser.error(f"--rounds is 1 or more, not {asked.rounds}")
    try:
        for file in filter(None, (asked.markdown, asked.json)):
            check_writable(file)
    except OSError as fault:
        parser.error(str(fault))
    return asked


def main() -> int:
    """Run them; 1 where one fails."""
    asked = arguments()
    common = ["--rounds", str(asked.rounds), *(["--quick"] if asked.quick else [])]
    options = dict.fromkeys(SCRIPTS, common)
    if asked.model is not None:
        options |= {name: [*common, "--model", str(asked.model)] for name in ("deep", "workers")}
    to, failed = sys.stderr if asked.readme else sys.stdout, list[str]()
    print(conditions(), file=to, flush=True)
    rows = shown(collected(asked.scripts, options, failed), to)
    print(f"\n{reached(rows)}", file=to)
    if asked.json is not None:
        found = [{"kind": type(row).__name__, **asdict(row)} for row in rows]
        write_text(asked.json, json.dumps({"machine": machine(), "absent": absent(), "rows": found}, indent=1) + "\n")
    if asked.markdown is not None:
        write_text(asked.markdown, f"{conditions()}.\n\n{markdown(rows)}")
    if asked.readme:
        print(for_speed_page(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # quiet when the reader has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
