"""Mutation testing with Cosmic Ray: python3 go.py mutate [MODULE ...] [--jobs N] [--sample N --seed S]

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
import contextlib
import difflib
import gc
import importlib
import json
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Running = subprocess.Popen[bytes]

ROOT = Path(__file__).resolve().parents[2]
KERNEL = Path(__file__).with_name("kernel.toml")

# Of Cosmic Ray's replacements of an operator in an expression these are made; most others raise TypeError at once.
BINARY = {
    "Add": ("Sub", "Mul"), "Sub": ("Add", "Mul"), "Mul": ("Add", "FloorDiv"), "FloorDiv": ("Mul", "Mod"),
    "Mod": ("FloorDiv", "Add"), "LShift": ("RShift", "Add"), "BitOr": ("BitAnd", "BitXor", "Add"),
}  # fmt: skip
UNARY = ("Delete_Not", "Delete_USub", "USub_Invert")

MEMORY = 4 << 30  # bytes that a mutant may take: one that never stops collecting must not fill the machine
OPTIONS = ("-x", "-q", "--no-header", "--tb=line", "--assert=plain", "-p", "no:cacheprovider", "-m", "")
TIMES = Path("times-of-the-tests.json")  # in a copy
KILLS = Path("kills-of-the-tests.json")

PACE = 3  # times as much of the processor's time as the right program a mutant may take
PATIENCE = 40  # times as long by the clock, which also counts what others do on the machine
NOT_IN_SAMPLE = "not in the sample"
OUT_OF_TIME = b"mutate: out of time"
AT_HAND = ("numpy", "sympy", "pytest", "hypothesis.strategies", "hypothesis.internal.conjecture.engine")  # see fork_of


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


class Tried(NamedTuple):
    """The mutants of a module that were tried, and how many there are: more where they are a sample."""

    results: Sequence[Result]
    there: int


class Sample(NamedTuple):
    """At most so many mutants of a module, drawn at random: the same ones from the same code and seed.

    A larger sample with the same seed has those of a smaller one and more.
    """

    size: int
    seed: int = 0

    def of(self, module: str, there: int) -> set[int]:
        """Which of the mutants of a module, by their place in the file."""
        places = list(range(there))
        random.Random(f"{self.seed} {module}").shuffle(places)
        return set(places[: self.size])


class Kind(NamedTuple):
    """Mutants that may survive for one reason."""

    name: str
    reason: str
    mutants: tuple[Mutant, ...]


class Kernel(NamedTuple):
    """What kernel.toml says: the modules with what their mutants are tested by, and which of them may survive."""

    modules: Mapping[str, tuple[str, ...]]
    accepted: tuple[Kind, ...]


def read_kernel(text: str) -> Kernel:
    """Read kernel.toml."""
    given = tomllib.loads(text)
    kinds = (Kind(k["kind"], k["reason"], tuple(Mutant(**m) for m in k["mutants"])) for k in given.get("accepted", ()))
    return Kernel({name: tuple(tests) for name, tests in given["modules"].items()}, tuple(kinds))


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


def choose(session: Path, module: str, sample: Sample | None) -> None:
    """Take out of a session what is not wanted, what changes a type only, and what is not in the sample."""
    from cosmic_ray.work_db import use_db
    from cosmic_ray.work_item import WorkerOutcome, WorkResult

    types = annotations(source_of(module, session.parent).read_text("utf-8"))
    with use_db(str(session)) as db:
        made, dropped = [], []
        for item in db.pending_work_items:
            change = item.mutations[0]
            begin, name = tuple(change.start_pos), change.operator_name
            if wanted(name) and not any(first <= begin < end for first, end in types):
                made.append((begin, name, change.occurrence, item.job_id))
            else:
                dropped.append(item.job_id)
        db.set_multiple_results(dropped, WorkResult(output="not wanted", worker_outcome=WorkerOutcome.SKIPPED))
        chosen = sample.of(module, len(made)) if sample else range(len(made))
        left_out = [job for i, (*_, job) in enumerate(sorted(made)) if i not in chosen]
        db.set_multiple_results(left_out, WorkResult(output=NOT_IN_SAMPLE, worker_outcome=WorkerOutcome.SKIPPED))


def results(session: Path, module: str) -> Tried:
    """What became of the mutants of a session, in the order of the file."""
    from cosmic_ray.work_db import use_db

    found, left_out, source = [], 0, source_of(module, session.parent).read_text("utf-8")
    with use_db(str(session)) as db:
        for item, result in db.completed_work_items:
            if result.worker_outcome.value == "skipped":
                left_out += result.output == NOT_IN_SAMPLE
                continue
            change, outcome = item.mutations[0], result.test_outcome and result.test_outcome.value
            if outcome not in ("killed", "survived"):
                raise Failure(f"Cosmic Ray could not try a mutant of {module}: {str(result.output).strip()}")
            line = change.start_pos[0]
            mutant = Mutant(module, definition(source, line), *read_diff(result.diff or ""), line)
            late = result.output == "timeout" or OUT_OF_TIME.decode() in (result.output or "")
            found.append(Result(mutant, "timed out" if late else outcome))
    return Tried(sorted(found, key=lambda r: (r.mutant.line, r.mutant.key)), len(found) + left_out)


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
    """Run the tests of a module within so many seconds (0: no limit); 0 where all pass."""
    import pytest

    threading.Thread(target=leave_with, args=(os.getppid(),), daemon=True).start()
    limit(seconds)
    import symcircuits

    if not Path(symcircuits.__file__).is_relative_to(ROOT):
        raise Failure(f"the tests would run {symcircuits.__file__} instead of the copy in {ROOT}.")
    return int(pytest.main([*OPTIONS, *shlex.split(" ".join(kernel.modules[module]))], plugins=[Quickest()]))


def noted(file: Path) -> dict[str, float]:
    """A number for each test that is known."""
    found: dict[str, float] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return found


class Quickest:
    """For pytest: first the tests that killed mutants of the module, by mutants a second; then, file by file, the
    tests that were quickest on the right program."""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        times, kills = noted(TIMES), noted(KILLS)
        files = list(dict.fromkeys(item.path for item in items))

        def place(item: Any) -> tuple[float, int, float]:
            took = times.get(item.nodeid, 0.0)
            return -kills.get(item.nodeid, 0.0) / (0.01 + took), files.index(item.path), took

        items.sort(key=place)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            kills, new = noted(KILLS), KILLS.with_suffix(".new")
            new.write_text(json.dumps({**kills, report.nodeid: kills.get(report.nodeid, 0.0) + 1}), "utf-8")
            new.replace(KILLS)  # whole or not at all: time may be up at any moment


class Stopwatch:
    """For pytest: adds the seconds of each test to the file of times."""

    def __init__(self) -> None:
        self.seen = noted(TIMES)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seen[report.nodeid] = self.seen.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        TIMES.write_text(json.dumps(self.seen), "utf-8")


def execute(kernel: Kernel, module: str, seconds: int, new: bool) -> None:
    """Try every mutant of the session in this folder, as Cosmic Ray does, but in forks of this process (see fork_of).

    Where processes cannot be forked Cosmic Ray starts a new one for every mutant. ``new``: those that kernel.toml
    accepts count as survivors without being tried.
    """
    from cosmic_ray import mutating
    from cosmic_ray.work_db import use_db
    from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

    if hasattr(os, "fork"):
        mutating.run_tests = fork_of(lambda: against(kernel, module, seconds))
    known = {m.key for kind in kernel.accepted for m in kind.mutants if m.module == module} if new else set()
    run, clock = shlex.join(command(module, seconds)), PATIENCE * seconds
    with use_db("session.sqlite") as db:
        for item in list(db.pending_work_items):
            if diff := accepted_diff(item.mutations[0], module, known):
                result = WorkResult(WorkerOutcome.NORMAL, "accepted", TestOutcome.SURVIVED, diff)
            else:
                result = mutating.mutate_and_test(item.mutations, run, clock)
            db.set_result(item.job_id, result)


def accepted_diff(change: Any, module: str, known: set[tuple[str, ...]]) -> str:
    """The diff of a mutant where it is one of these, else nothing."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source, line = source_of(module, ROOT).read_text("utf-8"), change.start_pos[0]
    if source.splitlines()[line - 1].strip() not in {text for _, _, was, _ in known for text in was.splitlines()}:
        return ""
    mutated = mutate_code(source, get_operator(change.operator_name)(**change.operator_args), change.occurrence)
    diff = "\n".join(difflib.unified_diff(source.split("\n"), mutated.split("\n"), lineterm=""))
    return diff if Mutant(module, definition(source, line), *read_diff(diff)).key in known else ""


def fork_of(job: Callable[[], int]) -> Callable[[str, float], Any]:
    """What runs the tests for Cosmic Ray, in a fork of this process.

    Half of the time of a mutant that is killed early goes into the import of NumPy, SymPy, pytest and Hypothesis, which
    are the same for all. Here they are imported once; of the package and its tests nothing is.
    """
    from cosmic_ray.work_item import TestOutcome

    for name in AT_HAND:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.dont_write_bytecode = True  # two mutants of one second could be taken for each other
    gc.freeze()

    def child(output: str) -> None:
        os.setsid()
        with open(output, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        try:
            code = job()
        except BaseException:
            code = 2
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def run_tests(_: str, clock: float) -> tuple[TestOutcome, str]:
        process = multiprocessing.get_context("fork").Process(target=child, args=("output-of-the-mutant.txt",))
        process.start()
        process.join(clock)
        late = process.exitcode is None
        with contextlib.suppress(ProcessLookupError, PermissionError):  # and what it started
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        output = Path("output-of-the-mutant.txt").read_text("utf-8", "replace")
        alive = process.exitcode == 0 and not late
        return TestOutcome.SURVIVED if alive else TestOutcome.KILLED, "timeout" if late else output

    return run_tests


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


def command(module: str, seconds: int = 0, what: str = "--against") -> list[str]:
    return [sys.executable, "tests/mutation/mutate.py", what, module, "--seconds", str(seconds)]


def source_of(module: str, folder: Path) -> Path:
    return folder / "symcircuits" / f"{module}.py"


def copy_of_the_project(folder: Path) -> Path:
    """A copy of the package and its tests, into which the right program's bytecode will be compiled."""
    copy = folder / "right"
    for name in ("symcircuits", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shutil.copy2(ROOT / "pyproject.toml", copy)
    return copy


def time_of(test: str, copy: Path) -> float:
    """The processor's seconds that the tests of a file take on the right program; Failure where they do not pass."""
    began = time.monotonic(), os.times()
    run = subprocess.run(
        [sys.executable, "tests/mutation/mutate.py", "--time", test], cwd=copy, env=environment(copy),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if run.returncode:
        sys.stderr.write(run.stdout.decode("utf-8", "replace"))
        raise Failure("the tests must pass before mutants are tried on them.")
    clock, spent = time.monotonic() - began[0], os.times()
    return spent.children_user - began[1].children_user or clock  # Windows knows only the clock


def start(module: str, right: Path, seconds: int, sample: Sample | None, new: bool) -> tuple[Running, Path]:
    """Make the mutants of a module in a copy of its own, and begin to try them; the process and the session's file."""
    copy = right.with_name("mutants-of-" + module.replace("/", "-"))
    shutil.copytree(right, copy)
    path = source_of(module, copy)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()  # bytecode of the right module must not stand in for a mutant
    session, config = copy / "session.sqlite", copy / "cosmic-ray.toml"
    config.write_text(
        "[cosmic-ray]\n"
        f'module-path = "symcircuits/{module}.py"\n'
        "timeout = 1.0\n"  # this and the command are given to each mutant: see execute
        "excluded-modules = []\n"
        'test-command = ""\n'
        '[cosmic-ray.distributor]\nname = "local"\n',
        "utf-8",
    )
    cosmic_ray = [sys.executable, "-m", "cosmic_ray.cli"]
    made = subprocess.run([*cosmic_ray, "init", config.name, session.name], cwd=copy, capture_output=True, check=False)
    if made.returncode:
        raise Failure(f"Cosmic Ray could not mutate {module}: {made.stderr.decode('utf-8', 'replace').strip()}")
    choose(session, module, sample)
    with (copy / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [*command(module, seconds, "--execute"), *(["--new"] if new else [])],
            cwd=copy, env=environment(copy), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    return process, session


def examine(
    kernel: Kernel, modules: Sequence[str], jobs: int, sample: Sample | None = None, new: bool = False
) -> Iterator[tuple[str, Tried]]:
    """Each module with what became of its mutants, as they are finished."""
    running: dict[str, tuple[Running, Path]] = {}
    waiting, took = list(modules), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="symcircuits-mutation-", ignore_cleanup_errors=True) as name:
        try:
            right = copy_of_the_project(Path(name))
            for test in dict.fromkeys(test for module in modules for test in kernel.modules[module]):
                took[test] = time_of(test, right)
            say(f"the tests pass on the right program, in {sum(took.values()):.0f} s")
            while waiting or running:
                while waiting and len(running) < jobs:
                    module = waiting.pop(0)
                    seconds = 10 + round(PACE * sum(took[test] for test in kernel.modules[module]))
                    running[module] = start(module, right, seconds, sample, new)
                for module, (process, session) in list(running.items()):
                    if process.poll() is None:
                        continue
                    del running[module]
                    if process.returncode:
                        output = session.with_name("output.txt").read_text("utf-8", "replace")
                        raise Failure(f"mutants of {module} could not be tried: {output.strip()}")
                    yield module, results(session, module)
                time.sleep(0.2)
        finally:
            for process, _ in running.values():
                process.terminate()
                process.wait()


# -------------------------------------------------------------------------------------------- the report
def report(found: Mapping[str, Tried], accepted: Iterable[Kind]) -> int:
    """Print the figures and the survivors; the number of those without a reason."""
    print(f"{'module':<24}{'mutants':>9}{'tried':>9}{'killed':>9}{'timed out':>11}{'survived':>10}")
    for module, tried in found.items():
        print(figures(module, tried))
    every = [r for tried in found.values() for r in tried.results]
    print(figures("all", Tried(every, sum(tried.there for tried in found.values()))))
    alive = [r.mutant for r in every if r.outcome == "survived"]
    keys, known, tried_keys = {m.key for m in alive}, set(), {r.mutant.key for r in every}
    whole = {module for module, tried in found.items() if tried.there == len(tried.results)}
    for kind in accepted:
        mine = {m.key for m in kind.mutants if m.module in found}
        known |= mine
        show(f"Accepted, {kind.name}: {kind.reason}", [m.diff for m in alive if m.key in mine])
        gone = [m for m in kind.mutants if m.key in mine - keys and (m.module in whole or m.key in tried_keys)]
        show(f"No survivors any more, to be taken out of kernel.toml ({kind.name})", [m.entry for m in gone])
    gaps = [m for m in alive if m.key not in known]
    show("Survivors without a reason", [f"{m.diff}\n  {m.entry}" for m in gaps])
    return len(gaps)


def figures(name: str, tried: Tried) -> str:
    counts, number = Counter(r.outcome for r in tried.results), len(tried.results)
    return (
        f"{name:<24}{tried.there:>9}{number:>9}{counts['killed']:>9}{counts['timed out']:>11}{counts['survived']:>10}"
    )


def show(title: str, items: Sequence[str]) -> None:
    if items:
        print(f"\n{title} ({len(items)})", *items, sep="\n")


def say(text: str) -> None:
    sys.stderr.write(f"mutate: {text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    kernel = read_kernel(KERNEL.read_text("utf-8"))
    names = ", ".join(kernel.modules)
    parser = argparse.ArgumentParser(prog="go.py mutate", description="Mutation testing.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {names}; all where none is named")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="modules at the same time (default 1)")
    parser.add_argument("--sample", type=int, metavar="N", help="try N mutants of each module, drawn at random")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="what the sample is drawn with (default 0)")
    parser.add_argument("--new", action="store_true", help="count what kernel.toml accepts as alive without trying it")
    for hidden in ("--against", "--execute"):
        parser.add_argument(hidden, choices=kernel.modules, help=argparse.SUPPRESS)
    parser.add_argument("--time", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.against:
        return against(kernel, given.against, given.seconds)
    if given.execute:
        execute(kernel, given.execute, given.seconds, given.new)
        return 0
    if given.time:
        import pytest

        return int(pytest.main([*OPTIONS, *shlex.split(given.time)], plugins=[Stopwatch()]))
    for module in given.modules:
        if module not in kernel.modules:
            parser.error(f"there is no {module!r} in kernel.toml; its modules are {names}")
    for name, number in (("--jobs", given.jobs), ("--sample", given.sample)):
        if number is not None and number < 1:
            parser.error(f"{name} {number} must be at least 1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the copies are removed then too
    found: dict[str, Tried] = {}
    began, sample = time.monotonic(), Sample(given.sample, given.seed) if given.sample else None
    try:
        for module, tried in examine(kernel, given.modules or list(kernel.modules), given.jobs, sample, given.new):
            found[module] = tried
            say(f"{module}: {len(tried.results)} mutants tried, {time.monotonic() - began:.0f} s so far")
    finally:  # of an interrupted run what is finished
        gaps = report({name: found[name] for name in kernel.modules if name in found}, kernel.accepted) if found else 0
    return 1 if gaps else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("\nmutate: interrupted; nothing is left behind.\n")
        sys.exit(130)
    except (Failure, OSError) as problem:
        sys.stderr.write(f"mutate: {problem}\n")
        sys.exit(2)
