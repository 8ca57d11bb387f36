"""What is written: whole or not at all, by one place, and never over what the same command reads or over a model."""

import ast
import os
import shutil
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from test_cli import Cli, cli, refused

import symcircuits as sc
from symcircuits.cli.demo import show as demo
from symcircuits.derivation.book import write_book, write_files
from symcircuits.tables import resumable
from symcircuits.work.files import check_apart, check_writable, write_text

__all__ = ["cli"]  # a fixture
PACKAGE = Path(sc.__file__).parent


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    place = tmp_path / "model"
    shutil.copytree(data / "tl_bias_s1", place)
    return place


# --------------------------------------------------------------------------------- whole or not at all
MODEL = sc.random_model(sc.attention_only((1,)), d_vocab=5)
LOGITS = sc.logits(sc.attention_only((2, 2)))
WRITERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "page": ("page.html", lambda f: sc.explain(MODEL, [1, 2]).save_html(f / "page.html")),
    "tex": ("a.tex", lambda f: sc.derive(sc.attention_only((1,))).save(f / "a.tex")),
    "text": ("a.txt", lambda f: sc.derive(sc.attention_only((1,))).save(f / "a.txt")),
    "json": ("a.json", lambda f: sc.derive(sc.attention_only((1,))).save(f / "a.json")),
    "csv": ("a.csv", lambda f: LOGITS.export(f / "a.csv")),
    "jsonl": ("a.jsonl", lambda f: LOGITS.export(f / "a.jsonl")),
    "index": ("README.md", write_files),
    "book": ("book.tex", write_book),
    "demo": ("logits_enumerated.tex", lambda f: demo(str(f))),
}  # fmt: skip


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("step", ["write", "replace"])
@pytest.mark.sampled(6)
def test_a_writer_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, step: str
) -> None:
    name, write = WRITERS[writer]
    (tmp_path / name).write_text("old")

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    class Half:
        def __init__(self, handle: int, _: str) -> None:
            self.handle = handle

        def __enter__(self) -> "Half":
            return self

        def __exit__(self, *_: object) -> None:
            os.close(self.handle)

        def write(self, content: bytes) -> None:
            os.write(self.handle, content[: len(content) // 2])
            full()

    class Full(FileIO):
        def write(self, content: Any) -> int:
            super().write(bytes(content)[: len(content) // 2])
            return int(full())

    if step == "replace":
        monkeypatch.setattr(os, "replace", full)
    else:
        monkeypatch.setattr(os, "fdopen", Half)
        monkeypatch.setattr(resumable, "open", lambda path, mode, **_: Full(path, mode), raising=False)
    with pytest.raises(OSError, match="No space left on device"):
        write(tmp_path)
    assert (tmp_path / name).read_text() == "old"
    left = {p.name for p in tmp_path.iterdir()} - {name}
    assert left <= {f"{name}.part", f"{name}.part.json"}  # of an export, to be taken up


def test_files_are_written_in_one_place() -> None:
    """Nothing else opens a file to write it: so every output is whole or not there."""
    allowed = {
        "files.py",
        "resumable.py",
        "compilers.py",
        "coq.py",
    }  # what grows by parts; what is compiled in a folder of its own
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or path.name in allowed:
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            modes = [a.value for a in (*node.args, *(k.value for k in node.keywords)) if isinstance(a, ast.Constant)]
            writes = any(isinstance(m, str) and 0 < len(m) <= 3 and set(m) & set("wax+") for m in modes)
            method = isinstance(node.func, ast.Attribute) and name in ("write_text", "write_bytes", "savefig", "tofile")
            if method or (name in ("open", "fdopen") and writes):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


# ----------------------------------------------------------------------------------- never over what is read
def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def test_a_command_does_not_write_over_what_it_reads(folder: Path, cli: Cli, tmp_path: Path) -> None:
    labels, link, hard = tmp_path / "labels.txt", tmp_path / "link.html", tmp_path / "hard.html"
    labels.write_text("a\nb\nc\n")
    link.symlink_to(folder / "config.json")
    os.link(folder / "config.json", hard)
    (folder / "report.html").write_text("of before")
    before = contents(folder)
    words = ["explain", str(folder), "--tokens", "1,2,3", "--labels", str(labels)]
    for page in (folder / "config.json", folder / "model.safetensors", folder / "CONFIG.JSON", labels, link, hard,
                 tmp_path / "model" / ".." / "model" / "config.json"):  # fmt: skip
        refused(cli(*words, "--html", str(page)), "cannot write")
    by_file = ["explain", str(folder / "model.safetensors"), "--tokens", "1,2,3"]
    refused(cli(*by_file, "--html", str(hard)), "hard.html: it is ")
    refused(
        cli(*by_file, "--reference", str(folder / "reference.npz"), "--html", str(folder / "reference.npz")), "write"
    )
    for words in (["derive", "--heads", "2"], ["derive", "--theorem", "layer_norm"]):
        for name in ("model.safetensors", "config.json", "novel.pt", "tokenizer.json", "x.safetensors.index.json"):
            refused(cli(*words, "-o", str(folder / name)), f"cannot write {folder / name}: ")
    refused(cli("derive", "--heads", "2", "-o", str(link)), "config.json belongs to the model in")
    assert contents(folder) == before
    assert cli(*by_file, "--html", str(folder / "report.html")).code == 0  # a page beside a model is not an input
    assert contents(folder) | {"report.html": b""} == before | {"report.html": b""}


def test_no_function_writes_over_a_model(folder: Path) -> None:
    before = contents(folder)
    for write in (
        lambda: sc.explain(sc.load(folder), [1, 2]).save_html(folder / "config.json"),
        lambda: sc.derive(sc.attention_only((1,))).save(folder / "config.json"),
        lambda: check_writable(folder / "model.safetensors"),
        lambda: write_text(folder / "model.npz", "x"),
        lambda: write_text(folder / "Tokenizer.json", "x"),
    ):
        with pytest.raises(OSError, match=r"cannot write .*model"):
            write()
    assert contents(folder) == before


def test_other_files_are_written(folder: Path, tmp_path: Path) -> None:
    write_text(tmp_path / "config.json", "{}")  # no model is there
    write_text(folder / "notes.json", "{}")
    write_text(folder / "config.json", "{}", of_model=True)  # by what makes models
    check_apart(tmp_path / "new.html", [folder, tmp_path / "none"])
    check_apart(folder / "notes.json", [folder])
    with pytest.raises(OSError, match=r"notes\.json: this file is read; choose another name"):
        check_apart(folder / "notes.json", [folder / "notes.json"])
