"""What is said with the names of Python's arguments is said with the options of a command; all else stays."""

import pytest

from symcircuits.cli.option_names import as_options

LARGEST = ["tokens", "count", "max_seconds", "max_memory", "against", "key"]
TERMS = ["output", "resume", "timeout", "max_terms", "start", "mlps", "gated"]


@pytest.mark.parametrize(
    ("said", "options", "told"),
    [
        ("k must be a whole number", LARGEST, "--count must be a whole number"),
        ("k must be a whole number", ["draws"], "--draws must be a whole number"),
        ("against says nothing where terms are", LARGEST, "--against says nothing where terms are"),
        ("max_seconds must be a number", LARGEST, "--max-seconds must be a number"),
        ("max_seconds must be a number", TERMS, "--timeout must be a number"),
        ("3 draws need 1 MiB, and max_memory is 0 MiB", LARGEST, "3 draws need 1 MiB, and --max-memory is 0 MiB"),
        ("gated says what MLPs are like (see mlps)", TERMS, "--gated says what MLPs are like (see --mlps)"),
        ("x is there: take it up with resume, or", TERMS, "x is there: take it up with --resume, or"),
        ("max_terms (7) reached; the same again with resume goes", TERMS,
         "--max-terms (7) reached; the same again with --resume goes"),
    ],
)  # fmt: skip
def test_names_of_arguments_become_options(said: str, options: list[str], told: str) -> None:
    assert as_options(said, options) == told


@pytest.mark.parametrize(
    "said",
    [
        "k must be a whole number",  # no option stands for it
        "cannot write max_terms.csv: it is a folder",
        "cannot write out/max_terms: it is a folder",
        "the key must be one of them",
        "/tmp/with resume/x: there is no such file",
    ],
)
def test_what_is_no_argument_stays(said: str) -> None:
    assert as_options(said, TERMS) == said
