"""What all tests share: how hard Hypothesis tries, where the data is, and what needs LaTeX or Chromium."""

import importlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background job, and all that tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
# Containers often ask for no bytecode: each worker would compile all tests anew, in 15 seconds, and each process that
# a test starts the package. Mutants need it so: two of one second could be taken for each other.
if PROFILE != "mutation" and os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False

# HYPOTHESIS_PROFILE=thorough tries 25 times as many examples of each property.
settings.register_profile("default", deadline=None, max_examples=16, derandomize=bool(os.environ.get("CI")))
settings.register_profile("thorough", deadline=None, max_examples=400)
# For mutation testing (tests/mutation): the same examples for every mutant, and none made smaller once it has failed.
settings.register_profile(
    "mutation",
    deadline=None,
    max_examples=15,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``sampled(n)``: of the cases of a test n run always, spread evenly; the others are slow.

    One of each n-th part of them, and not at the same place in each: else, where a part is a multiple of an inner list
    of values, one of these alone would be taken.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for those in cases.values():
        marker = those[0].get_closest_marker("sampled")
        assert marker is not None
        kept = min(marker.args[0], len(those))
        turn = 0.618 if len(those) >= 2 * kept else 0  # the golden section: the place in a part
        always = {int((i + i * turn % 1) * len(those) / kept) for i in range(kept)}
        for i, item in enumerate(those):
            if i not in always:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of small models and golden files."""
    return Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def by_the_tree() -> Iterator[None]:
    """Small models too are evaluated as large ones are: path by path, not all paths at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("symcircuits.values.all_paths._MOST", -1)
        yield


@pytest.fixture
def limited() -> Iterator[None]:
    """A test of what must not hang fails after two minutes, rather than hang itself."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def fail(*_: object) -> None:
        pytest.fail("it hangs")  # no Exception, so that nothing catches it

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(120)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def find_tool(*names: str, part: str = "LATEX") -> str:
    """The path of an outside program, the first that is there of several names.

    Where it is missing the test is skipped, or fails if that part (LaTeX, Chromium) is required.
    """
    found = [path for path in map(shutil.which, names) if path is not None]
    if found:
        return found[0]
    required = f"SYMCIRCUITS_REQUIRE_{part}"
    if os.environ.get(required) == "1":
        pytest.fail(f"{names[0]} is not installed, and {required}=1 asks for it", pytrace=False)
    pytest.skip(f"{names[0]} is not installed")


def find_module(name: str) -> Any:
    """An optional library. Where it is missing the test is skipped, or fails if it is required (torch)."""
    if os.environ.get(f"SYMCIRCUITS_REQUIRE_{name.upper()}") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch."""
    return find_module("torch")


@pytest.fixture(scope="session")
def jax() -> Any:
    """JAX."""
    return find_module("jax")


@pytest.fixture(scope="session")
def pdflatex() -> str:
    """The path of pdflatex."""
    return find_tool("pdflatex")


@pytest.fixture(scope="session")
def pdftoppm() -> str:
    """The path of pdftoppm, which turns a PDF into images."""
    return find_tool("pdftoppm")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium, without which pages are not looked at."""
    return find_tool("chromium", "chromium-browser", "google-chrome", part="CHROMIUM")
