"""Mutation testing of the kernel with Cosmic Ray: python3 go.py mutate [MODULE ...] [--jobs N]

A mutant is a module with one small change: another operator or comparison, a number off by one, a condition negated, a
loop left out, a decorator taken away. The tests run on each; a mutant that passes them all has survived: the tests
would take that program for the right one. kernel.toml says which modules and tests these are, and which mutants may
survive, with the reason. Any other survivor is a gap in the tests. Exit code: 0 every survivor is accepted, 1 some
are not, 2 it did not run.

The working tree is only read. All happens in a temporary folder, in a copy for each module, and the folder is removed
however the run ends.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
KERNEL = Path(__file__).with_name("kernel.toml")

# Of Cosmic Ray's replacements of an operator in an expression these are made; most others raise TypeError at once.
BINARY = {
    "Add": ("Sub", "Mul"), "Sub": ("Add", "Mul"), "Mul": ("Add", "FloorDiv"), "FloorDiv": ("Mul", "Mod"),
    "Mod": ("FloorDiv", "Add"), "LShift": ("RShift", "Add"), "BitOr": ("BitAnd", "BitXor", "Add"),
}  # fmt: skip
UNARY = ("Delete_Not", "Delete_USub", "USub_Invert")

MEMORY = 4 << 30  # bytes that a mutant may take: one that never stops collecting must not fill the machine
PACE = 3  # times as much of the processor's time as the right program a mutant may take
PATIENCE = 40  # times as long by the clock, which also counts what others do on the machine
OUT_OF_TIME = b"mutate: out of time"


class Failure(Exception):
    """Ends the run with one plain sentence."""


class Mutant(NamedTuple):
    """One change: the function or class it is in, the changed lines before and after, and the line it begins in."""

    module: str
    inside: str
    was: str
    now: str
    line: int = 0

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is recognized by: not the number of its line, which every edit above it moves."""
        return self[:4]

    @property
    def diff(self) -> str:
        """As it is printed."""
        lines = [f"symcircuits/{self.module}.py:{self.line} in {self.inside or 'the module'}"]
        lines += [f"- {line}" for line in self.was.splitlines()] + [f"+ {line}" for line in self.now.splitlines()]
        return "\n".join(lines)

    @property
    def entry(self) -> str:
        """As it stands in kernel.toml."""
        named = zip(("module", "inside", "was", "now"), self.key, strict=True)
        return "{ " + ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in named) + " },"


class Result(NamedTuple):
    """A mutant and what became of it: ``killed``, ``timed out`` or ``survived``."""

    mutant: Mutant
    outcome: str


class Kind(NamedTuple):
    """Mutants that may survive for one reason."""

    name: str
    reason: str
    mutants: tuple[Mutant, ...]


class Kernel(NamedTuple):
    """What kernel.toml says: the modules with their own tests, what all are tested by, and what may survive."""

    modules: Mapping[str, tuple[str, ...]]
    tests: tuple[str, ...]
    accepted: tuple[Kind, ...]


def read_kernel(text: str) -> Kernel:
    """Read kernel.toml."""
    given = tomllib.loads(text)
    kinds = (Kind(k["kind"], k["reason"], tuple(Mutant(**m) for m in k["mutants"])) for k in given.get("accepted", ()))
    modules = {name: tuple(tests) for name, tests in given["modules"].items()}
    return Kernel(modules, tuple(given["tests"]), tuple(kinds))


# --------------------------------------------------------------------------------------- which mutants
def annotations(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where types stand, each from (line, column) to (line, column): they are not evaluated."""
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            found.append(node.returns)
    return [((a.lineno, a.col_offset), (a.end_lineno or 0, a.end_col_offset or 0)) for a in found if a]


def wanted(operator: str) -> bool:
    """Whether mutants by this operator of Cosmic Ray are made."""
    kind, _, change = operator.removeprefix("core/").partition("_")
    before, _, after = change.partition("_")
    if kind == "ReplaceBinaryOperator":
        return after in BINARY.get(before, ())
    if kind == "ReplaceUnaryOperator":
        return change in UNARY
    if kind == "ReplaceComparisonOperator":
        return (before in ("Is", "IsNot")) == (after in ("Is", "IsNot"))
    return True


def choose(session: Path, source: str) -> None:
    """Take out of a session what is not wanted, and what changes a type only."""
    from cosmic_ray.work_db import use_db
    from cosmic_ray.work_item import WorkerOutcome, WorkResult

    types = annotations(source)
    with use_db(str(session)) as db:
        dropped = [
            item.job_id
            for item in db.pending_work_items
            for change in item.mutations
            if not wanted(change.operator_name) or any(begin <= tuple(change.start_pos) < end for begin, end in types)
        ]
        db.set_multiple_results(dropped, WorkResult(output="not wanted", worker_outcome=WorkerOutcome.SKIPPED))


def results(session: Path, module: str) -> list[Result]:
    """What became of the mutants of a session, in the order of the file."""
    from cosmic_ray.work_db import use_db

    found, source = [], source_of(module, session.parent).read_text("utf-8")
    with use_db(str(session)) as db:
        for item, result in db.completed_work_items:
            if result.worker_outcome.value == "skipped":
                continue
            change, outcome = item.mutations[0], result.test_outcome and result.test_outcome.value
            if outcome not in ("killed", "survived"):
                raise Failure(f"Cosmic Ray could not try a mutant of {module}: {str(result.output).strip()}")
            line = change.start_pos[0]
            mutant = Mutant(module, definition(source, line), *read_diff(result.diff or ""), line)
            late = result.output == "timeout" or OUT_OF_TIME.decode() in (result.output or "")
            found.append(Result(mutant, "timed out" if late else outcome))
    return sorted(found, key=lambda r: (r.mutant.line, r.mutant.key))


def definition(source: str, line: int) -> str:
    """The function or class that a line is in, with those around it and with its decorators: ``Marked.add``."""
    names = []
    for node in ast.walk(ast.parse(source)):  # outer ones first
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            begin = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if begin <= line <= (node.end_lineno or 0):
                names.append(node.name)
    return ".".join(names)


def read_diff(diff: str) -> tuple[str, str]:
    """The changed lines, before and after, of the unified diff that Cosmic Ray keeps; comments are not part of it."""
    lines = [(text[:1], text[1:].strip()) for text in diff.partition("\n@@")[2].splitlines()[1:]]
    code = [(sign, text) for sign, text in lines if text and not text.startswith("#")]  # a decorator takes them along
    was, now = ("\n".join(text for sign, text in code if sign == side) for side in "-+")
    return was, now


# --------------------------------------------------------------------------------- the tests on a mutant
def against(kernel: Kernel, module: str, seconds: int) -> int:
    """Run the tests, those of the module first; 0 where all pass. This is what Cosmic Ray calls for every mutant."""
    import pytest

    threading.Thread(target=leave_with, args=(os.getppid(),), daemon=True).start()
    limit(seconds)
    import symcircuits

    if not Path(symcircuits.__file__).is_relative_to(ROOT):
        raise Failure(f"the tests would run {symcircuits.__file__} instead of the copy in {ROOT}.")
    first = kernel.modules[module]
    options = ("-x", "-q", "--no-header", "--tb=line", "--assert=plain", "-p", "no:cacheprovider")
    for tests in (first, [t for t in kernel.tests if t not in first]):
        if code := pytest.main([*options, *tests]):
            return int(code)
    return 0


def leave_with(parent: int) -> None:
    """End this process when the one that started it is gone: an interrupted run leaves nothing running."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(70)


def limit(seconds: int) -> None:
    """Bound the memory and the processor's time of this process (on Windows only Cosmic Ray's clock bounds it)."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY if hard < 0 else min(MEMORY, hard), hard))
    if seconds:
        output = os.dup(1)  # pytest captures the first
        signal.signal(signal.SIGXCPU, lambda *_: (os.write(output, OUT_OF_TIME), os._exit(1)))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))


# ------------------------------------------------------------------------------------------- the copies
def environment(copy: Path) -> dict[str, str]:
    """The same in every run: no chance in Hypothesis or in the order of sets, one thread, and the copy's code."""
    fixed = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    fixed |= {"HYPOTHESIS_PROFILE": "mutation", "PYTHONHASHSEED": "0", "PYTHONPATH": str(copy)}
    return {**os.environ, **fixed}


def command(module: str, seconds: int = 0) -> list[str]:
    return [sys.executable, "tests/mutation/mutate.py", "--against", module, "--seconds", str(seconds)]


def source_of(module: str, folder: Path) -> Path:
    return folder / "symcircuits" / f"{module}.py"


def copy_of_the_project(kernel: Kernel, folder: Path) -> tuple[Path, float]:
    """A copy with compiled bytecode, and the seconds that the tests take in it; Failure where they do not pass."""
    copy, module = folder / "right", next(iter(kernel.modules))
    for name in ("symcircuits", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shutil.copy2(ROOT / "pyproject.toml", copy)
    began = time.monotonic(), os.times()
    run = subprocess.run(
        command(module), cwd=copy, env=environment(copy), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if run.returncode:
        sys.stderr.write(run.stdout.decode("utf-8", "replace"))
        raise Failure("the tests must pass before mutants are tried on them.")
    clock, spent = time.monotonic() - began[0], os.times()
    seconds = spent.children_user - began[1].children_user or clock  # Windows knows only the clock
    for name in kernel.modules:  # bytecode of the right module must not stand in for a mutant
        path = source_of(name, copy)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
    return copy, seconds


def start(module: str, right: Path, seconds: float) -> tuple[subprocess.Popen[bytes], Path]:
    """Make the mutants of a module in a copy of its own, and begin to try them; the process and the session's file."""
    copy = right.with_name("mutants-of-" + module.replace("/", "-"))
    shutil.copytree(right, copy)
    session, config = copy / "session.sqlite", copy / "cosmic-ray.toml"
    config.write_text(
        "[cosmic-ray]\n"
        f'module-path = "symcircuits/{module}.py"\n'
        f"timeout = {PATIENCE * seconds:.1f}\n"
        "excluded-modules = []\n"
        f"test-command = {json.dumps(shlex.join(command(module, 10 + round(PACE * seconds))))}\n"
        '[cosmic-ray.distributor]\nname = "local"\n',
        "utf-8",
    )
    cosmic_ray = [sys.executable, "-m", "cosmic_ray.cli"]
    made = subprocess.run([*cosmic_ray, "init", config.name, session.name], cwd=copy, capture_output=True, check=False)
    if made.returncode:
        raise Failure(f"Cosmic Ray could not mutate {module}: {made.stderr.decode('utf-8', 'replace').strip()}")
    choose(session, source_of(module, copy).read_text("utf-8"))
    with (copy / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [*cosmic_ray, "exec", config.name, session.name],
            cwd=copy, env=environment(copy), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    return process, session


def examine(kernel: Kernel, modules: Sequence[str], jobs: int) -> Iterator[tuple[str, list[Result]]]:
    """Each module with what became of its mutants, as they are finished."""
    running: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
    waiting = list(modules)
    with tempfile.TemporaryDirectory(prefix="symcircuits-mutation-", ignore_cleanup_errors=True) as name:
        try:
            right, seconds = copy_of_the_project(kernel, Path(name))
            say(f"the tests pass on the right program, in {seconds:.0f} s")
            while waiting or running:
                while waiting and len(running) < jobs:
                    module = waiting.pop(0)
                    running[module] = start(module, right, seconds)
                for module, (process, session) in list(running.items()):
                    if process.poll() is None:
                        continue
                    del running[module]
                    if process.returncode:
                        output = session.with_name("output.txt").read_text("utf-8", "replace")
                        raise Failure(f"Cosmic Ray ended with {process.returncode} on {module}: {output.strip()}")
                    yield module, results(session, module)
                time.sleep(0.2)
        finally:
            for process, _ in running.values():
                process.terminate()
                process.wait()


# -------------------------------------------------------------------------------------------- the report
def report(found: Mapping[str, Sequence[Result]], accepted: Iterable[Kind]) -> int:
    """Print the figures and the survivors; the number of those without a reason."""
    print(f"{'module':<10}{'mutants':>9}{'killed':>9}{'timed out':>11}{'survived':>10}")
    for module, tried in found.items():
        print(figures(module, tried))
    print(figures("all", [r for tried in found.values() for r in tried]))
    alive = [r.mutant for tried in found.values() for r in tried if r.outcome == "survived"]
    keys, known = {m.key for m in alive}, set()
    for kind in accepted:
        mine = {m.key for m in kind.mutants if m.module in found}
        known |= mine
        show(f"Accepted, {kind.name}: {kind.reason}", [m.diff for m in alive if m.key in mine])
        gone = [m.entry for m in kind.mutants if m.key in mine - keys]
        show(f"No survivors any more, to be taken out of kernel.toml ({kind.name})", gone)
    gaps = [m for m in alive if m.key not in known]
    show("Survivors without a reason", [f"{m.diff}\n  {m.entry}" for m in gaps])
    return len(gaps)


def figures(name: str, tried: Sequence[Result]) -> str:
    counts = Counter(r.outcome for r in tried)
    return f"{name:<10}{len(tried):>9}{counts['killed']:>9}{counts['timed out']:>11}{counts['survived']:>10}"


def show(title: str, items: Sequence[str]) -> None:
    if items:
        print(f"\n{title} ({len(items)})", *items, sep="\n")


def say(text: str) -> None:
    sys.stderr.write(f"mutate: {text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    kernel = read_kernel(KERNEL.read_text("utf-8"))
    names = ", ".join(kernel.modules)
    parser = argparse.ArgumentParser(prog="go.py mutate", description="Mutation testing of the kernel.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {names}; all where none is named")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="modules at the same time (default 1)")
    parser.add_argument("--against", choices=kernel.modules, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.against:
        return against(kernel, given.against, given.seconds)
    for module in given.modules:
        if module not in kernel.modules:
            parser.error(f"there is no {module!r} in kernel.toml; its modules are {names}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the copies are removed then too
    found: dict[str, list[Result]] = {}
    began = time.monotonic()
    for module, tried in examine(kernel, given.modules or list(kernel.modules), max(1, given.jobs)):
        found[module] = tried
        say(f"{module}: {len(tried)} mutants tried, {time.monotonic() - began:.0f} s so far")
    return 1 if report({name: found[name] for name in kernel.modules if name in found}, kernel.accepted) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("\nmutate: interrupted; nothing is left behind.\n")
        sys.exit(130)
    except (Failure, OSError) as problem:
        sys.stderr.write(f"mutate: {problem}\n")
        sys.exit(2)
