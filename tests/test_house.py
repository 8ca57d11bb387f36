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
from functools import cache
from pathlib import Path

import pytest

import symcircuits
from symcircuits.core.seam import HIGHER, higher

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "symcircuits"

# --------------------------------------------------------------------------- imports run downward only

# Packages, the lowest first; those of one row do not import each other. "" is the package itself: the public names.
ROWS = (
    "core arrays work",
    "model sympy_layer checking tables zoo",
    "loaders derivation",
    "values",
    "search circuits explanation verification",
    "render",
    "",
    "cli",
    "__main__",
)
PLACE = {package: row for row, packages in enumerate(ROWS) for package in packages.split(" ")}

# What a witness may see, however far the imports go: what a transformer is, and nothing of how it is expanded.
DESCRIPTION = {
    f"core.{name}" for name in ("words", "symbols", "rules", "names", "text", "notation", "attachments", "architecture")
}
WITNESSES = {
    "model": {*DESCRIPTION, "arrays", "work.memory"},
    "sympy_layer.streams": {*DESCRIPTION, "sympy_layer.letters", "core.programs", "core.walk"},
    "verification.packed_words": {*DESCRIPTION, "core.programs", "core.walk"},
}
LOOK_UP = {"", "core.seam", "zoo.train"}  # what imports modules by their names: public names, the seam, PyTorch
STANDARD_LIBRARY_ALONE = "core"


def name_of(path: Path, package: Path) -> str:
    """core/walk.py is "core.walk", core/__init__.py is "core", the package itself is ""."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def imported_names(tree: ast.Module, here: list[str]) -> Iterator[str]:
    """The full names of all that a file can import, anywhere in it; `here` is the full name of its package."""
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in (n for n in ast.walk(tree) if id(n) not in typing_only):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def looks_up(tree: ast.Module) -> bool:
    """Whether a file imports modules by names that are values."""
    return any(isinstance(n, ast.Name) and n.id in ("import_module", "__import__") for n in ast.walk(tree)) or any(
        isinstance(n, ast.Attribute) and n.attr == "import_module" for n in ast.walk(tree)
    )


def graph(package: Path) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Of every module of the package: the modules of the package that it can import, and the other libraries."""
    files = {name_of(path, package): path for path in sorted(package.rglob("*.py"))}
    ours: dict[str, set[str]] = {}
    theirs: dict[str, set[str]] = {}
    for name, path in files.items():
        inside = [package.name, *path.relative_to(package).parent.parts]
        ours[name], theirs[name] = set(), set()
        for full in imported_names(parsed(path.read_text("utf-8")), inside):
            top, _, rest = full.partition(".")
            if top != package.name:
                theirs[name].add(top)
                continue
            while rest and rest not in files:
                rest = rest.rpartition(".")[0]
            ours[name] |= {rest} - {name}
    return ours, theirs


def reached(arrows: dict[str, set[str]], start: str) -> set[str]:
    """All modules that a module, or a package, imports however far."""
    found, todo = set[str](), [n for n in arrows if n == start or n.startswith(f"{start}.")]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += arrows[name]
    return {n for n in found if n != start and not n.startswith(f"{start}.")}


def import_faults(package: Path) -> list[str]:
    """Every import that goes upward, in a circle, or to what a witness must not see; every module without a place."""
    arrows, libraries = graph(package)
    faults = []
    for name, targets in arrows.items():
        top = name.partition(".")[0]
        path = package / f"{name.replace('.', '/')}.py"
        if top not in PLACE or (path.parent == package and path.is_file() and name != "__main__"):
            faults.append(f"{name} has no place: a package of ROWS in tests/test_house.py")
            continue
        for target in sorted(targets):
            other = target.partition(".")[0]
            if other != top and PLACE.get(other, -1) >= PLACE[top] and name:
                faults.append(f"{name} imports {target or 'the public names'}, which does not stand below it")
        if name and name in reached(arrows, name) | {n for t in targets for n in reached(arrows, t)}:
            faults.append(f"{name} imports itself, by way of others")
        if top == STANDARD_LIBRARY_ALONE and (other_libraries := libraries[name] - set(sys.stdlib_module_names)):
            faults.append(f"{name} imports {', '.join(sorted(other_libraries))}, beside the standard library")
        source = path if path.is_file() else package / name.replace(".", "/") / "__init__.py"
        if name not in LOOK_UP and looks_up(parsed(source.read_text("utf-8"))):
            faults.append(f"{name} looks modules up by name, which the seam alone does")
    for witness, may in WITNESSES.items():
        seen = (n for n in sorted(reached(arrows, witness)) if not any(n == m or n.startswith(f"{m}.") for m in may))
        faults += [f"the witness {witness} sees {n}" for n in seen]
    return faults


def test_imports_run_downward_only() -> None:
    assert list(PACKAGE.rglob("*.py")), "there is no package"
    assert import_faults(PACKAGE) == []


def test_no_package_hides_a_public_function() -> None:
    package = importlib.import_module("symcircuits")
    assert not set(package.__all__) & {path.name for path in PACKAGE.iterdir()}


UPWARD = "core.walk imports values.evaluate, which does not stand below it"


@pytest.mark.parametrize(
    ("file", "source", "fault"),
    [
        ("core/walk.py", "from symcircuits.values.evaluate import evaluate", UPWARD),
        ("core/walk.py", "from ..values.evaluate import evaluate", UPWARD),
        ("core/walk.py", "from ..values import evaluate", UPWARD),
        ("core/walk.py", "import symcircuits.values.evaluate as e", UPWARD),
        ("core/walk.py", "def f():\n    from symcircuits.values import evaluate", UPWARD),
        ("core/walk.py", "import symcircuits", "core.walk imports the public names, which does not stand below it"),
        ("core/walk.py", "from symcircuits import arrays", "core.walk imports arrays, which does not stand below it"),
        ("core/walk.py", "import numpy.linalg", "core.walk imports numpy, beside the standard library"),
        ("core/walk.py", "f = import_module('symcircuits.cli')", "core.walk looks modules up by name"),
        ("core/walk.py", "f = importlib.import_module('symcircuits.cli')", "core.walk looks modules up by name"),
        ("render/latex.py", "from ..cli import main", "render.latex imports cli.main, which does not stand below it"),
        ("render/__init__.py", "from ..cli import main", "render imports cli.main, which does not stand below it"),
        ("values/novelty.py", "from symcircuits.values import evaluate\nfrom symcircuits.search import best", "values"),
        ("novelty.py", "", "novelty has no place"),
        ("novelty/__init__.py", "", "novelty has no place"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, source: str, fault: str) -> None:
    package = small_package(tmp_path, {file: source})
    assert [found[: len(fault)] for found in import_faults(package)] == [fault]


@pytest.mark.parametrize(
    ("files", "faults"),
    [
        (
            {"sympy_layer/streams.py": "from symcircuits.sympy_layer import lambdify"},
            ["the witness sympy_layer.streams sees sympy_layer.lambdify"],
        ),
        (
            {"verification/packed_words.py": "from symcircuits.tables.blocks import TermBlock"},
            ["the witness verification.packed_words sees tables.blocks"],
        ),
        (
            {"model/run.py": "from symcircuits.core.programs import readout"},
            ["the witness model sees core.programs"],
        ),
        (  # however far
            {
                "model/run.py": "from symcircuits.core import architecture",
                "core/architecture.py": "from symcircuits.core import programs",
            },
            ["the witness model sees core.programs", "the witness sympy_layer.streams sees tables.blocks"],
        ),
        (
            {"core/walk.py": "from symcircuits.core import programs", "core/programs.py": "from . import walk"},
            ["core.programs imports itself, by way of others", "core.walk imports itself, by way of others"],
        ),
    ],
)
def test_what_a_witness_must_not_see_and_circles_are_found(
    tmp_path: Path, files: dict[str, str], faults: list[str]
) -> None:
    if len(faults) == 2 and "tables" in faults[1]:  # the tables, from the SymPy witness
        files |= {"sympy_layer/streams.py": "from symcircuits.tables import blocks"}
        found = import_faults(small_package(tmp_path, files))
        assert found == ["sympy_layer.streams imports tables.blocks, which does not stand below it", *faults]
    else:
        assert import_faults(small_package(tmp_path, files)) == faults


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("values/evaluate.py", "import math\nimport numpy.linalg\nfrom symcircuits.core.walk import walk"),
        ("sympy_layer/streams.py", "from symcircuits.core import architecture, walk"),
        ("model/run.py", "from symcircuits import arrays\nfrom . import weights"),
        ("render/latex.py", "from symcircuits.values import evaluate\nfrom . import json"),
        ("core/walk.py", "if TYPE_CHECKING:\n    from symcircuits.values import evaluate"),
        ("core/seam.py", "f = import_module('symcircuits.cli')"),
        ("__init__.py", "from symcircuits.values.evaluate import evaluate"),
        ("cli/main.py", "from symcircuits import __version__\nfrom . import demo"),
        ("__main__.py", "from symcircuits.cli.main import main"),
    ],
)
def test_a_right_import_passes(tmp_path: Path, file: str, source: str) -> None:
    assert import_faults(small_package(tmp_path, {file: source})) == []


def small_package(folder: Path, sources: dict[str, str]) -> Path:
    """A package with a few empty modules, and these sources in their files."""
    package = folder / "symcircuits"
    empty = (
        "core/walk core/programs core/architecture core/seam arrays/rings work/memory model/run model/weights "
        "tables/blocks sympy_layer/streams sympy_layer/lambdify values/evaluate search/best render/latex render/json "
        "cli/main cli/demo verification/packed_words"
    )
    for name in empty.split():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").touch()
    for file, source in sources.items():
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text(source, "utf-8")
    for inner in [package, *(path for path in package.iterdir() if path.is_dir())]:
        (inner / "__init__.py").touch()
    return package


def test_every_method_of_the_seam_finds_its_function() -> None:
    for method in HIGHER:
        assert callable(higher(None, method)), method
    used: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        used |= {*re.findall(r"""\bhigher\(\w+, ["']([\w.]+)["']\)""", text)}
        used |= {f"{name}.parts" for name in re.findall(r"^class (\w+)\((?:.*, )?Shown\):", text, re.MULTILINE)}
    assert used == set(HIGHER)


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
HEAVY = {"sympy", "mpmath", "numpy", "torch", "lark", "rich", "argcomplete", "tqdm", "jinja2"}
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


def test_the_version_needs_no_parser() -> None:
    code = (
        "import sys; from symcircuits.cli.main import main; main(['--version']); "
        "print([m for m in ('argparse', 'dataclasses', 'symcircuits.core.words') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [f"symcircuits {symcircuits.__version__}", "[]"], done.stderr


# ------------------------------------------------------------------------------ the one command, go.py


def test_go_can_be_read_by_an_old_python() -> None:
    ast.parse((ROOT / "go.py").read_text("utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize(
    ("version", "arguments", "sentence"),
    [
        ((3, 9, 2), ["demo"], "needs Python 3.11 or newer, and this is Python 3.9.2."),
        (
            (3, 11, 0),
            ["tset"],
            "there is no command 'tset'; the commands are demo, test, torch, mutate, docs, prove, wheel, lint.",
        ),
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
def test_no_test_asserts_on_a_clock() -> None:
    """A loaded machine makes any of them fail: counts, events and clocks of the test's own say the same."""
    clock = re.compile(r"^\s*assert\b.*\btime\.(?:monotonic|time|perf_counter|process_time)\(", re.MULTILINE)
    found = [path.name for path in sorted(Path(__file__).parent.glob("*.py")) if clock.search(path.read_text("utf-8"))]
    assert not found


def positional(tree: ast.Module) -> list[tuple[int, str]]:
    """Classes that are filled with more than five values by their places alone, with their lines."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and len(n.args) > 5]
    named = [(n.lineno, n.func.attr if isinstance(n.func, ast.Attribute) else ast.unparse(n.func)) for n in calls]
    return [(line, name) for line, name in named if name.lstrip("_")[:1].isupper()]


def arguments(tree: ast.Module) -> list[tuple[str, int]]:
    """Every function with its number of arguments, without self; a table of keywords (**sizes) is one."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            of = node.args
            named = [a.arg for a in (*of.posonlyargs, *of.args, *of.kwonlyargs) if a.arg not in ("self", "cls")]
            found.append((node.name, len(named) + (of.vararg is not None) + (of.kwarg is not None)))
    return found


def test_no_function_takes_more_than_nine_arguments() -> None:
    """Beyond nine nobody remembers them: what belongs together is one object, or one table of keywords with a type."""
    found = [one for path in PACKAGE.rglob("*.py") for one in arguments(parsed(path.read_text("utf-8")))]
    assert len(found) > 1000
    assert [name for name, n in found if n > 9] == []
    source = "class A:\n def f(self, a, /, b, *, c=1): ...\ndef g(x, *rest, **sizes):\n def h(): ..."
    assert arguments(ast.parse(source)) == [("g", 3), ("f", 3), ("h", 0)]


def test_classes_are_filled_by_name() -> None:
    """Two values that change places would be a silent fault: from the sixth on they have names."""
    found = {path.name: positional(parsed(path.read_text("utf-8"))) for path in sorted(PACKAGE.rglob("*.py"))}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert positional(ast.parse("x = _Row(1, 2, 3, 4, 5, 6)\ny = row(1, 2, 3, 4, 5, 6)")) == [(1, "_Row")]


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^version: (.*)$", text, re.MULTILINE) == [symcircuits.__version__]
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    assert re.findall(r'^version = "(.*)"$', pyproject, re.MULTILINE) == [symcircuits.__version__]
    released = re.findall(r"^date-released: (.*)$", text, re.MULTILINE)
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions = re.findall(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    assert versions[0] == (symcircuits.__version__, released[0])
    assert changes.index("## [Unreleased]") < changes.index(f"## [{symcircuits.__version__}]")
