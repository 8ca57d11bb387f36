"""What type checkers see of the public names: signatures, and errors where a name is misspelt."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import symcircuits

ROOT = Path(__file__).parent.parent

RIGHT = """
import symcircuits as sc
from symcircuits import logits, scores

architecture: sc.Architecture = sc.attention_only((2, 2))
expansion: sc.Expansion = logits(architecture)
count: int = scores(architecture, "L1H0").count
model: sc.Model = sc.random_model(architecture)
run: sc.Run = model.run([1, 2, 3])
right: bool = sc.verify(architecture).ok
of_a_model: int = sc.logits(model).count + sc.expand(model, "stream").count + len(sc.derive(model).steps)
value: float | None = sc.explain(run, by=sc.logit(1, against="second"), top=3).labelled(["a", "b", "c"]).value
same: bool = sc.explain(sc.evaluate(expansion, run)).ok and sc.explain(model, [1]).ok and sc.explain("folder", [1]).ok
labels: list[str] = [term.label for term in sc.read(sc.symbolic(architecture, letters="factors").logits, architecture)]
terms: int = len(expansion.lambdify(total=True).arguments) + len(expansion.exprs)
described: sc.Architecture = sc.transformer((2, 2), norm="LN", gains=["L0"], mlps=[1], gated=True, groups=(1, 2))
"""
WRONG = {
    "sc.lgits(sc.attention_only((2, 2)))": 'Module has no attribute "lgits"',
    "sc.logits(3)": 'Argument 1 to "logits" has incompatible type "int"; expected "Architecture | Described"',
    'sc.transformer((2, 2), nrom="LN")': 'Unexpected keyword argument "nrom" for "transformer"',
    "sc.attention_only((2, 2), mlps=True)": 'Unexpected keyword argument "mlps" for "attention_only"',
    "sc.random_model(sc.attention_only((1,)), d_modle=3)": 'Unexpected keyword argument "d_modle"',
    'sc.logits(sc.attention_only((1,))).export("t.csv", max_trems=1)': 'Unexpected keyword argument "max_trems"',
    "sc.explain(run, token=1)": 'Unexpected keyword argument "token" for "explain"',
    "sc.explain(expansion)": 'Argument 1 to "explain" has incompatible type "Expansion"',
    "sc.explain_many(model, [[1]], labels=[])": 'Unexpected keyword argument "labels" for "explain_many"',
    "sc.verify(3)": 'Argument 1 to "verify" has incompatible type "int"',
    "sc.logits(sc.attention_only((2, 2))).cuont": 'has no attribute "cuont"',
    "sc.symbolic(3)": 'Argument 1 to "symbolic" has incompatible type "int"; expected "Architecture | Described"',
    "sc.read(expansion)": 'Missing positional argument "subject" in call to "read"',
    "n: int = sc.evaluate": "Incompatible types in assignment",
}


def errors(folder: Path, source: str) -> list[str]:
    """What mypy, as strict as it can be, says of a user's file."""
    pytest.importorskip("mypy")
    (folder / "user.py").write_text(source, "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", "user.py"]
    command += ["--cache-dir", str(folder / "cache"), "--ignore-missing-imports"]
    environment = os.environ | {"MYPYPATH": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stdout.splitlines() if ": note: " not in line]


def test_a_user_s_file_is_typed(tmp_path: Path) -> None:
    lines = RIGHT.count("\n")
    said = errors(tmp_path, RIGHT + "\n".join(WRONG) + "\n")
    assert len(said) == len(WRONG), said
    for number, (line, (source, fault)) in enumerate(zip(said, WRONG.items(), strict=True), lines + 1):
        assert line.startswith(f"user.py:{number}: error:"), (line, source)
        assert fault in line


def test_type_checkers_read_the_names_that_are_loaded() -> None:
    tree = ast.parse((ROOT / "symcircuits" / "__init__.py").read_text("utf-8"))
    [block] = (n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    typed = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert typed == {name: f"symcircuits.{module}" for name, module in symcircuits._HOME.items()}
    assert set(symcircuits.__all__) == {"__version__", *typed}
    assert all(hasattr(symcircuits, name) for name in symcircuits.__all__)


PYRIGHT_SAYS = {
    "sc.lgits(3)": '"lgits" is not a known attribute of module "symcircuits"',
    "sc.logits(3)": 'cannot be assigned to parameter "subject" of type "Architecture | Described" in function "logits"',
    "sc.explain(3)": 'cannot be assigned to parameter "subject"',
    'sc.transformer((2, 2), nrom="LN")': 'No parameter named "nrom"',
    "reveal_type(sc.logits)": 'Type of "sc.logits" is "(subject: Architecture | Described) -> Expansion"',
}


def pyright(folder: Path, source: str) -> list[tuple[int, str]]:
    """Lines (from 1) and texts of what pyright says of a user's file; skips where neither build is installed."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("basedpyright", path=places) or shutil.which("pyright", path=places)
    if program is None:
        pytest.skip("pyright is not installed: pip install basedpyright")
    (folder / "user.py").write_text(source, "utf-8")
    config = {"include": ["user.py"], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(config), "utf-8")
    command = [program, "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [(one["range"]["start"]["line"] + 1, one["message"]) for one in found]


def test_pyright_sees_the_signatures(tmp_path: Path) -> None:
    lines = RIGHT.count("\n")
    said = pyright(tmp_path, RIGHT + "\n".join(PYRIGHT_SAYS) + "\n")
    assert [line for line, _ in said] == list(range(lines + 1, lines + len(PYRIGHT_SAYS) + 1)), said
    for (_, message), part in zip(said, PYRIGHT_SAYS.values(), strict=True):
        assert part in message


def test_no_public_name_is_unknown_to_pyright(tmp_path: Path) -> None:
    names = [name for name in symcircuits.__all__ if name != "__version__"]
    said = pyright(tmp_path, "import symcircuits as sc\n" + "".join(f"reveal_type(sc.{n})\n" for n in names))
    assert len(said) == len(names)
    for name, (_, message) in zip(names, said, strict=True):
        assert message.startswith(f'Type of "sc.{name}" is "')
        assert message.partition('" is "')[2] not in ('Any"', 'Unknown"')
        assert "Unknown" not in message
