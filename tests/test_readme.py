"""README and docs say what is true: examples are run, and links, names of files and of options are looked up."""

import argparse
import doctest
import importlib
import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from sybil import Document, Sybil
from sybil.example import Example
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

import symcircuits
from symcircuits.cli.main import main
from symcircuits.cli.measure import USED
from symcircuits.cli.parser import COMMANDS, parser_of
from symcircuits.zoo import path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
INDEX = ROOT / "docs" / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
# Seconds and rounding errors (0 beside a bound, too) differ from machine to machine; everything else is compared to the
# letter.
VARIES = re.compile(r"\d(?:\.\d+)?e-1\d\b|(?<=\s)0(?=\s+\d(?:\.\d+)?e-1\d\b)|\(\d+\.\d s\)")


# ------------------------------------------------------------------------------------------ examples
def plain(text: str) -> list[str]:
    """The words: where a line is broken depends on the width of the numbers before it."""
    return VARIES.sub("#", text).split()


def test_what_differs_from_machine_to_machine() -> None:
    assert plain("pass  layers  0  3.5e-16  each") == plain("pass  layers  4.4e-16  1.4e-14  each")
    assert plain("pass  types  0  0  logits") != plain("pass  types  1e-16  0  logits")  # exact ones do not
    assert plain("L1H0  3.6e-15") == plain("L1H0  1.1e-15") != plain("L1H1  1.1e-15")


class Console:
    """Runs ``$ symcircuits ...``, or a file of the project by ``$ python ...``, and compares what it prints.

    MODEL stands for the model that the package ships.
    """

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture

    def __call__(self, example: Example) -> str:
        command, _, expected = example.parsed.partition("\n")
        program, *arguments = shlex.split(command.removeprefix("$ "))
        assert program in ("symcircuits", "python"), command
        if program == "python":
            ran = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
            printed = ran.stdout
        else:
            self.capture.readouterr()
            assert main([str(path()) if a == "MODEL" else a for a in arguments]) == 0
            printed = self.capture.readouterr().out.replace(str(path()), "MODEL")
        return "" if plain(printed) == plain(expected) else f"{command} printed\n{printed}"


def examples(page: Path, capture: pytest.CaptureFixture[str]) -> Iterator[Example]:
    parsers = [
        PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS),
        CodeBlockParser("console", Console(capture)),
    ]
    document: Document = Sybil(parsers=parsers).parse(page)
    yield from document.examples()


@every_page
def test_every_example(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each page by itself: what it uses it makes."""
    ran = []
    for example in examples(page, capsys):
        example.evaluate()
        ran.append(example.region.start)
    for block in re.finditer(r"^```(?:python|console)\n.*?^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        assert any(block.start() <= start < block.end() for start in ran), f"not run:\n{block[0]}"


def test_python_and_commands_are_both_run() -> None:
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert text.count("\n```python\n") >= 20
    assert text.count("\n```console\n") >= 4


# ----------------------------------------------------------------------------------------- the README
def test_the_two_commands_stand_there() -> None:
    commands = re.findall(r"^python3 go\.py .*$", README.read_text("utf-8"), re.MULTILINE)
    assert commands == ["python3 go.py demo", "python3 go.py test"]


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 250


# ---------------------------------------------------------------------------------------------- links
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")


def prose(page: Path) -> str:
    """What a page says beside its code blocks."""
    return FENCED.sub("", page.read_text("utf-8"))


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.*?) *$", FENCED.sub("", text), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        if found[slug]:
            found[f"{slug}-{found[slug]}"] = 0
    return set(found)


def dead_links(page: Path, text: str, root: Path) -> list[str]:
    """The links of a page that lead nowhere, or out of the repository."""
    faults = []
    for link in LINK.findall(text):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / unquote(name)).resolve() if name else page
        right = target.exists() and target.is_relative_to(root) and not name.startswith("/")
        if right and anchor:
            right = target.suffix == ".md" and anchor in anchors(target.read_text("utf-8"))
        if not right:
            faults.append(link)
    return faults


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page, prose(page), ROOT) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# One `two`, three?\n\n# Twice\n\n# Twice\n\n```\n# no heading\n```\n", "utf-8")
    good = "[x](a.md) [y](#one-two-three) [z](a.md#twice-1) [`w`](a.md#twice) [p](https://example.com/b.md)"
    bad = "[x](b.md) [y](#no-heading) [z](a.md#twice-2) [u](../a.md) [w](/a.md)"
    assert dead_links(page, good, tmp_path) == []
    assert dead_links(page, bad, tmp_path) == ["b.md", "#no-heading", "a.md#twice-2", "../a.md", "/a.md"]


def test_the_index_has_every_page() -> None:
    named = {(INDEX.parent / link).resolve() for link in LINK.findall(prose(INDEX))}
    assert {page for page in PAGES if page not in (README, INDEX)} <= named


def test_the_menu_of_the_site_has_every_page() -> None:
    """Sphinx finds what it lacks too, where it is installed."""
    menu = re.findall(r"^(?!:)(\S+)$", "\n".join(FENCED.findall((INDEX.parent / "index.md").read_text("utf-8"))), re.M)
    named = {(INDEX.parent / f"{name}.md").resolve() for name in menu if "`" not in name}
    assert {page for page in PAGES if page.name != "index.md"} <= named
    assert all(page.exists() for page in named)


def test_the_python_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    named = re.findall(r"^\.\. auto(?:function|class):: symcircuits\.(\S+)$", page, re.MULTILINE)
    assert set(symcircuits.__all__) - {"__version__"} == {name for name in named if "." not in name}
    assert len(named) == len(set(named))
    for name in named:
        module, _, last = f"symcircuits.{name}".rpartition(".")
        assert getattr(importlib.import_module(module), last).__doc__, name


@every_page
def test_tables_have_a_head(page: Path) -> None:
    """As many cells in the row above the rule, and in every row below, as the rule has."""
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in prose(page).splitlines()]
    for number, line in enumerate(prose(page).splitlines()):
        if re.match(r" *\| ?-{3}", line):
            first = number - 1
            assert (cells[first] > 0, cells[first - 1]) == (True, 0), f"a table without a head: {line}"
            rows = list(itertools.takewhile(bool, cells[first:]))
            assert set(rows) == {cells[number]}, prose(page).splitlines()[first : first + len(rows)]


# ------------------------------------------------------------------------------ names of files and code
PLACEHOLDER = "X.py"  # the file that a reader adds


def missing_files(text: str, root: Path) -> list[str]:
    """Files and folders named in backticks that do not exist; a bare name is that of a file beside one named before."""
    faults, beside = [], [root]
    for name in re.findall(
        r"`((?:[\w.*-]+/)*[\w.*-]+\.(?:py|toml)|(?:symcircuits|tests|derivations)/[\w./*-]*)`", text
    ):
        folder, _, last = name.rpartition("/")
        if last == PLACEHOLDER:
            there = (root / folder).is_dir()
        else:
            there = any(any(place.glob(name.rstrip("/"))) for place in beside)
        if not there:
            faults.append(name)
        elif folder:
            beside.append(root / folder)
    return faults


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    assert missing_files(prose(page), ROOT) == []


def test_a_file_that_there_is_not_is_found(tmp_path: Path) -> None:
    (tmp_path / "symcircuits" / "core").mkdir(parents=True)
    (tmp_path / "symcircuits" / "core" / "walk.py").touch()
    (tmp_path / "symcircuits" / "core" / "paths.py").touch()
    good = (
        "`symcircuits/core/`, `symcircuits/core/walk.py`, `paths.py`, `symcircuits/core/X.py`, `symcircuits/core/p*.py`"
    )
    assert missing_files(good, tmp_path) == []
    bad = "`walk.py`\n`symcircuits/values/`, `symcircuits/walk.py`\n`symcircuits/values/X.py` `symcircuits/core/q*.py`"
    assert missing_files(bad, tmp_path) == [
        "walk.py", "symcircuits/values/", "symcircuits/walk.py", "symcircuits/values/X.py", "symcircuits/core/q*.py",
    ]  # fmt: skip


def is_there(dotted: str) -> bool:
    """Whether ``symcircuits.a.b.c`` is a module, or a name in one."""
    module, _, name = dotted.rpartition(".")
    try:
        importlib.import_module(dotted)
    except ModuleNotFoundError:
        return bool(module) and is_there(module) and hasattr(importlib.import_module(module), name)
    return True


@every_page
def test_names_of_the_package_exist(page: Path) -> None:
    text = re.sub(r"symcircuits\.[\w-]+/\d", "", page.read_text("utf-8"))  # names of schemas
    dotted = {name.rstrip(".") for name in re.findall(r"(?<![\w/])symcircuits\.[\w.]+", text)}
    assert [name for name in sorted(dotted) if not is_there(name)] == []
    public = set(re.findall(r"\bsc\.(\w+)", text))
    assert sorted(public - set(symcircuits.__all__)) == []


def test_a_name_that_there_is_not_is_found() -> None:
    assert is_there("symcircuits.core.words.IllTyped")
    assert is_there("symcircuits.core")
    assert not any(map(is_there, ["symcircuits.algebra", "symcircuits.core.word", "symcircuits.core.words.Illtyped"]))


# ------------------------------------------------------------------------------------------- commands
def commands_shown() -> dict[str, set[str]]:
    """Of every command: the options that some page shows it with."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for block in re.findall(r"^```(?:sh|console)?\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            for command, rest in re.findall(r"^(?:\$ )?symcircuits (\w+)(.*(?:\n  .*)*)", block, re.MULTILINE):
                found.setdefault(command, set()).update(re.findall(r"(?<![\w-])--[a-z-]+|(?<![\w-])-\w\b", rest))
    return found


def test_every_command_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    known = set(re.findall(r"^    (\w+)(?: |$)", capsys.readouterr().out, re.MULTILINE))
    text = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    assert set(re.findall(r"^\| \[?`(\w+)`", text, re.MULTILINE)) == known
    assert commands_shown().keys() == known


@pytest.mark.parametrize(("command", "options"), commands_shown().items())
def test_options_that_are_shown_exist(command: str, options: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    known = set(re.findall(r"(?<![\w-])--?[a-z-]+", capsys.readouterr().out))
    assert options - known == set()


def parsers_of_commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of all commands, called ``""``, and those of the commands."""
    parser = parser_of()
    (commands,) = (a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return {"": parser, **commands}


def unnamed(text: str, parser: argparse.ArgumentParser) -> list[str]:
    """The long options that a text does not name."""
    options = {o for action in parser._actions for o in action.option_strings if o.startswith("--")}
    return sorted(options - set(re.findall(r"(?<![\w-])--[a-z-]+", text)))


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_option_is_named(command: str) -> None:
    assert unnamed((ROOT / "docs" / "command-line.md").read_text("utf-8"), parsers_of_commands()[command]) == []


def test_an_option_that_is_not_named_is_found() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max")
    assert unnamed("`--help`, `--max-terms N`, `x--max`", parser) == ["--max"]


def test_every_measure_is_named() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    (row,) = re.findall(r"^\| `--by MEASURE` \|(.*)$", text, re.MULTILINE)
    assert set(re.findall(r"`([^`]+)`", row)) == set(USED)


# ----------------------------------------------------------------------------------------------- JSON
TOKENS = ["MODEL", "--tokens", "0,7,19,3,11,26,7,19,3,11"]


def test_every_schema_is_described() -> None:
    source = "".join(file.read_text("utf-8") for file in (ROOT / "symcircuits").rglob("*.py"))
    schemas = set(re.findall(r"symcircuits\.[a-z-]+/\d", source)) - {"symcircuits.terms/1", "symcircuits.proved/1"}
    # of FILE.part, and of the record beside the printers: not printed
    assert schemas == set(re.findall(r"symcircuits\.[a-z-]+/\d", (ROOT / "docs" / "json.md").read_text("utf-8")))


@pytest.mark.parametrize(
    ("heading", "arguments"),
    [
        ("count", ["count", "--heads", "3,3"]),
        ("count", ["count", "--heads", "1,1", "--no-softmax"]),
        ("terms", ["terms", "--heads", "1,1", "-o", "FOLDER/t.csv"]),
        ("verify", ["verify", "--heads", "1,1"]),
        ("explain", ["explain", *TOKENS, "--logit-difference", "26,3"]),
        ("explain --prompts", ["explain", "MODEL", "--prompts", "FOLDER/prompts", "--logit-difference", "26,3"]),
        ("largest", ["largest", *TOKENS, "--by", "logit difference", "--top", "2"]),
        ("summary", ["summary", *TOKENS]),
        ("sample", ["sample", *TOKENS, "--draws", "3"]),
        ("check", ["check", "A[L1H0] @ X0 @ W_OV[L1H0].T @ W_U.T", "--heads", "3,3", "--part"]),
        ("derive", ["derive", "--heads", "1,1", "--form", "generic"]),
        ("derive", ["derive", "--heads", "1,1", "--target", "scores:L1H0"]),
        ("derive", ["derive", "--theorem", "linearity"]),
    ],
)
def test_every_key_that_is_printed_is_described(
    heading: str, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "json.md").read_text("utf-8")
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    (tmp_path / "prompts").write_text("0,7,19,3,7,19\n0 4 5 9 4 5\n", "utf-8")
    places = {
        "MODEL": str(path()),
        "FOLDER/t.csv": str(tmp_path / "t.csv"),
        "FOLDER/prompts": str(tmp_path / "prompts"),
    }
    assert main([*(places.get(a, a) for a in arguments), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert f"`{printed['schema']}`" in sections[heading]
    named = set(re.findall(r"`([^`]+)`", sections[heading]))
    assert printed.keys() - named == {"schema"}
    for step in printed.get("steps", []):
        assert not (step.keys() | step["check"].keys() | step["claims"][0].keys()) - named
    for term in [*printed.get("terms", []), *printed.get("families", [])][:1]:
        assert not term.keys() - named
