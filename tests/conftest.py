"""What all tests share: how hard Hypothesis tries, where the data is, and what needs LaTeX."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=40, derandomize=bool(os.environ.get("CI")))
settings.register_profile("thorough", deadline=None, max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of small models and golden files."""
    return Path(__file__).parent / "data"


def find_tool(name: str) -> str:
    """The path of an outside program; where it is missing the test is skipped, or fails if LaTeX is required."""
    path = shutil.which(name)
    if path is None:
        if os.environ.get("SYMCIRCUITS_REQUIRE_LATEX") == "1":
            pytest.fail(f"{name} is not installed, and SYMCIRCUITS_REQUIRE_LATEX=1 asks for it", pytrace=False)
        pytest.skip(f"{name} is not installed")
    return path


@pytest.fixture(scope="session")
def pdflatex() -> str:
    """The path of pdflatex."""
    return find_tool("pdflatex")


@pytest.fixture(scope="session")
def pdftoppm() -> str:
    """The path of pdftoppm, which turns a PDF into images."""
    return find_tool("pdftoppm")
