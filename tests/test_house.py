"""The rules of the house: who may import whom, what files may say, what is documented, what stays fast."""

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "symcircuits"

# --------------------------------------------------------------------------- imports run downward only

# Lowest first; a module imports only what stands before it. A folder of modules (render, loaders, zoo)
# is one entry, and its modules may import each other.
LAYERS = (
    "given",  # what a call was given in place of what it takes
    "algebra",
    "finished",  # rules 2 and 3: what a finished word is
    "spelling",
    "notation",
    "indices",  # whole numbers that somebody gives
    "rings",
    "structured",
    "namespaces",  # arrays of other libraries
    "elimination",
    "files",
    "memory",
    "arrayfile",  # archives of arrays, checked
    "labels",  # names of tokens, and how any text is made safe to show
    "progress",
    "attachments",  # readouts and sources of one's own, described
    "pools",  # of processes that may die
    "workers",  # work in pieces, in order, by any executor
    "spread",  # mean and deviation of numbers that come one at a time
    "architecture",
    "programs",
    "arguments",
    "export",
    "walk",
    "paths",
    "terms",
    "sequence",  # terms counted and numbered, whatever they are
    "expansion",
    "path_tables",
    "path_codes",
    "wording",
    "bulk",
    "term_blocks",
    "term_census",
    "packed",  # words as integers, multiplied out
    "parts",  # files that grow and can be taken up
    "term_rows",
    "term_export",
    "lexing",
    "reading",
    "matching",
    "mistakes",
    "verdicts",
    "checking",
    "symbolic",
    "model",
    "tree",  # values of chosen paths in head space
    "fans",  # those of all, the paths that differ in their last head together
    "fan_reads",  # what is read of them
    "rounding",
    "finite",  # what is no number is refused by name
    "factors",
    "sums",
    "tensor_tree",
    "tensor_values",  # values of terms in such arrays
    "polynomials",  # nothing held fixed: models without softmax, bilinear MLPs
    "evaluation",
    "compact",
    "numbered",  # numbers of terms in blocks
    "tensor_reductions",  # and in arrays of other libraries
    "term_norms",
    "value_blocks",
    "closing",
    "by_head",
    "positions",
    "margins",
    "score_parts",
    "interventions",
    "sizes",
    "magnitudes",  # norms and rounding, for the bounds
    "backward",  # partial paths from the readout back, and bounds on what is behind them
    "bounds",
    "search",
    "asked",
    "term_entries",
    "square_sums",
    "pairs",
    "ranking",
    "sampling",
    "exact",
    "verification",
    "derivation",
    "loaders",
    "model_file",  # a model, or its run on tokens, by path and digest
    "all_scores",  # of every head, by any workers
    "measured",  # the size of every term
    "recorded_types",  # in which type a run was computed, told by its numbers
    "recorded",
    "tokenizer_growth",  # by how much a tokenizer may lengthen a text
    "tokenizing",
    "prompts",
    "explanation",
    "prompt_sums",  # what one prompt gives to averages
    "averages",
    "figures",
    "plot",
    "render",
    "general",  # the proofs for all layers and heads
    "zoo",  # small models that come with the package
    "__init__",  # the public names
    "book",
    "demo",
    "attaching",  # readouts and sources as options
    "many",  # what explain --prompts does
    "option_names",  # of what is said
    "commands",
    "term_command",
    "ranked_command",
    "measuring_commands",  # sample, sizes
    "options",  # of the command line
    "cli",
    "__main__",
)

# Objects that show themselves (latex(), text(), json(), in a notebook) import their renderer when asked to.
SHOWN_BY_RENDER = {
    "ranking",
    "sampling",
    "measured",
    "expansion",
    "derivation",
    "verification",
    "explanation",
    "averages",
    "recorded",
}

# What a module may not import although it stands lower: a witness must not see the answer.
FORBIDDEN = {
    "algebra": set(LAYERS),
    "symbolic": {"paths", "terms", "expansion", "arguments", "export", "tree", "evaluation"},
    "model": {"walk", "paths", "terms", "expansion", "export", "symbolic"},
}


def parts_of(path: Path, package: Path) -> tuple[str, ...]:
    """render/latex.py is ("render", "latex"); the package itself is ("__init__",)."""
    parts = path.relative_to(package).with_suffix("").parts
    return parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts


def imported_names(tree: ast.Module, here: tuple[str, ...]) -> Iterator[tuple[int, str, bool]]:
    """Line, full name and whether it is inside a function, of all that is imported anywhere in a file.

    `here` is the full name of its package.
    """
    for node in ast.walk(tree):
        inside = getattr(node, "col_offset", 0) > 0
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            yield from ((node.lineno, ".".join([*base, alias.name]), inside) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                name = first.value
                dots = len(name) - len(name.lstrip("."))
                base = list(here[: len(here) - dots + 1]) if dots else []
                yield node.lineno, ".".join([*base, name.lstrip(".")]), inside


def target_of(name: str, package: Path) -> str | None:
    """The layer that an imported name belongs to; None if it is not ours."""
    top, *rest = name.split(".")
    if top != package.name:
        return None
    if rest and (rest[0] in LAYERS or (package / rest[0]).is_dir() or (package / f"{rest[0]}.py").is_file()):
        return rest[0]
    return "__init__"


def import_faults(package: Path) -> list[str]:
    """Every import of the package that goes upward or to what is forbidden, and every module without a place."""
    faults = []
    for path in sorted(package.rglob("*.py")):
        parts = parts_of(path, package)
        layer, shown = parts[0], path.relative_to(package.parent).as_posix()
        if layer not in LAYERS:
            faults.append(f"{shown}: has no place yet; add {layer!r} to LAYERS in tests/test_house.py")
            continue
        inside = path.relative_to(package).parent.parts
        for line, name, local in imported_names(ast.parse(path.read_text("utf-8")), (package.name, *inside)):
            target = target_of(name, package)
            if target is None or (target == layer and path.parent != package):
                continue
            if target == "render" and local and layer in SHOWN_BY_RENDER:
                continue
            if target not in LAYERS:
                faults.append(f"{shown}:{line}: imports {target}, which has no place in LAYERS")
            elif target in FORBIDDEN.get(layer, ()):
                faults.append(f"{shown}:{line}: {layer} must not see {target}")
            elif LAYERS.index(target) >= LAYERS.index(layer):
                faults.append(f"{shown}:{line}: {layer} imports {target}, which stands above it")
    return faults


def test_imports_run_downward_only() -> None:
    assert list(PACKAGE.rglob("*.py")), "there is no package"
    assert import_faults(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "source", "fault"),
    [
        ("walk.py", "from symcircuits.expansion import Expansion", "walk imports expansion, which stands above it"),
        ("walk.py", "from .expansion import Expansion", "walk imports expansion, which stands above it"),
        ("walk.py", "from . import expansion", "walk imports expansion, which stands above it"),
        ("walk.py", "import symcircuits.expansion as e", "walk imports expansion, which stands above it"),
        ("walk.py", "def f():\n    from symcircuits import expansion", "walk imports expansion, which stands above it"),
        ("walk.py", "from symcircuits import Expansion", "walk imports __init__, which stands above it"),
        ("walk.py", "import symcircuits", "walk imports __init__, which stands above it"),
        ("walk.py", "import_module('symcircuits.expansion')", "walk imports expansion, which stands above it"),
        ("walk.py", "importlib.import_module('.cli', 'symcircuits')", "walk imports cli, which stands above it"),
        ("render/latex.py", "from ..cli import main", "render imports cli, which stands above it"),
        ("render/__init__.py", "from ..cli import main", "render imports cli, which stands above it"),
        ("algebra.py", "from symcircuits import rings", "algebra must not see rings"),
        ("expansion.py", "from symcircuits.render import latex", "expansion imports render, which stands above it"),
        (
            "model.py",
            "def f():\n    from symcircuits.render import latex",
            "model imports render, which stands above it",
        ),
        ("symbolic.py", "from symcircuits.expansion import Path", "symbolic must not see expansion"),
        ("symbolic.py", "from symcircuits import paths", "symbolic must not see paths"),
        ("symbolic.py", "from symcircuits import export", "symbolic must not see export"),
        ("symbolic.py", "from symcircuits import evaluation", "symbolic must not see evaluation"),
        ("model.py", "from symcircuits.walk import walk", "model must not see walk"),
        ("model.py", "from symcircuits import symbolic", "model must not see symbolic"),
        ("novelty.py", "", "has no place yet; add 'novelty' to LAYERS in tests/test_house.py"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, source: str, fault: str) -> None:
    package = small_package(tmp_path, file, source)
    assert [found.split(": ", 1)[1] for found in import_faults(package)] == [fault]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("expansion.py", "import math\nimport numpy.linalg\nfrom symcircuits.walk import walk"),
        ("symbolic.py", "from symcircuits import algebra, architecture, walk"),
        ("model.py", "from . import algebra, architecture, rings"),
        (
            "render/latex.py",
            "from symcircuits import expansion\nfrom symcircuits.render import text\nfrom . import json",
        ),
        ("render/__init__.py", "from symcircuits.render.latex import print_it\nfrom .json import dump"),
        ("expansion.py", "def f():\n    from symcircuits.render import latex"),
        ("__init__.py", "from symcircuits.explanation import explain"),
        ("cli.py", "from symcircuits import __version__\nfrom . import demo"),
        ("__main__.py", "from symcircuits.cli import main"),
    ],
)
def test_a_right_import_passes(tmp_path: Path, file: str, source: str) -> None:
    assert import_faults(small_package(tmp_path, file, source)) == []


def small_package(folder: Path, file: str, source: str) -> Path:
    """A package with an empty module in each place, and this source in one file."""
    package = folder / "symcircuits"
    for layer in LAYERS:
        name = f"{layer}/__init__.py" if layer in {"render", "loaders", "zoo"} else f"{layer}.py"
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    (package / file).write_text(source, "utf-8")
    return package


# ------------------------------------------------------------------- files speak of the project alone

MACHINE_BOUND = re.compile(
    r"""(?<![\w./~-]) / (?: work/\w | tmp/[\w.-]+/ | home/\w | root/[\w.] | opt/wheels )   # a path of one machine
      | \bpypi\.org | pythonhosted\.org | \bregistry\.npmjs | \bdeb\.debian\.org          # the host of an index
      | --(?:extra-)?index-url""",
    re.VERBOSE,
)


def project_files() -> list[Path]:
    """What git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a git work tree")
    paths = (ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name)
    return sorted(path for path in paths if path.is_file())


def test_no_file_holds_a_path_of_one_machine() -> None:
    faults = []
    for path in project_files():
        content = path.read_bytes()
        if b"\0" in content:
            continue  # not text
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            if found := MACHINE_BOUND.search(line):
                faults.append(f"{path.relative_to(ROOT)}:{number}: {found[0]}")
    assert faults == []


@pytest.mark.parametrize("bad", ["see |work|main", "'|tmp|x|y.tex'", "cd |root|x", "https:||pypi" + ".org|simple"])
def test_a_path_of_one_machine_is_found(bad: str) -> None:
    assert MACHINE_BOUND.search(bad.replace("|", "/"))


@pytest.mark.parametrize("good", ["src|work|x", "https:||example.com|home|page", "the |tmp folder", "$HOME|work|x"])
def test_another_path_passes(good: str) -> None:
    assert not MACHINE_BOUND.search(good.replace("|", "/"))


# --------------------------------------------------------------- public names are explained by example


def test_public_names_have_an_example() -> None:
    package = importlib.import_module("symcircuits")
    assert package.__all__
    missing = []
    for name in package.__all__:
        thing = getattr(package, name)
        if (inspect.isclass(thing) or inspect.isroutine(thing)) and ">>>" not in (thing.__doc__ or ""):
            missing.append(name)
    assert missing == []


# ------------------------------------------------------------------------------- the start stays fast

# Runs in a new Python: notes which file imports a heavy library first, and prints that at the end.
WATCHER = """
import json, runpy, sys, traceback
HEAVY = {"sympy", "mpmath", "numpy", "torch"}
found = {}
class Watcher:
    def find_spec(self, name, path=None, target=None):
        if name in HEAVY and name not in found:
            frames = [f for f in traceback.extract_stack()[:-1] if "importlib" not in f.filename]
            found[name] = f"{frames[-1].filename}:{frames[-1].lineno}"
sys.meta_path.insert(0, Watcher())
code = 0
sys.argv = ["symcircuits", *sys.argv[1:]]
try:
    if len(sys.argv) == 1:
        import symcircuits
    else:
        runpy.run_module("symcircuits", run_name="__main__", alter_sys=True)
except SystemExit as end:
    code = end.code or 0
print("\\n" + json.dumps({"code": code, "found": found}))
"""


@pytest.mark.parametrize("arguments", [[], ["count", "--heads", "12,12"]], ids=["import", "count"])
def test_start_imports_nothing_heavy(arguments: list[str]) -> None:
    command = [sys.executable, "-c", WATCHER, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result == {"code": 0, "found": {}}


# ------------------------------------------------------------------------------ the one command, go.py


def test_go_can_be_read_by_an_old_python() -> None:
    ast.parse((ROOT / "go.py").read_text("utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize(
    ("version", "arguments", "sentence"),
    [
        ((3, 9, 2), ["demo"], "needs Python 3.11 or newer, and this is Python 3.9.2."),
        ((3, 11, 0), ["tset"], "there is no command 'tset'; the commands are demo, test, torch, mutate, lint."),
        ((3, 11, 0), ["lint", "x"], "'lint' takes no arguments, and got 'x'."),
    ],
)
def test_go_refuses_in_one_sentence(version: tuple[int, ...], arguments: list[str], sentence: str) -> None:
    start = f"import runpy, sys; sys.argv = ['go.py', *{arguments!r}]; sys.version_info = {version!r}; "
    command = [sys.executable, "-c", start + "runpy.run_path('go.py', run_name='__main__')"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert sentence in done.stderr


# ------------------------------------------------------------------------------- tests that no load disturbs
def test_no_test_asserts_on_the_clock_of_the_wall() -> None:
    """A loaded machine makes any of them fail: counts, events and clocks of the test's own say the same."""
    clock = re.compile(r"^\s*assert\b.*\btime\.(?:monotonic|time|perf_counter)\(", re.MULTILINE)
    found = [path.name for path in sorted(Path(__file__).parent.glob("*.py")) if clock.search(path.read_text("utf-8"))]
    assert not found
