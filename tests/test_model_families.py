"""The page of model families describes what the loaders give."""

import doctest
from dataclasses import replace
from pathlib import Path
from typing import Any

import notebook
import pytest

import symcircuits as sc

PAGE = Path(__file__).parent.parent / "docs" / "families.md"
DATA = Path(__file__).parent / "data"
FOLDERS = {
    "GPT-2": "hf_gpt2", "GPT-NeoX": "hf_neox", "LLaMA": "hf_llama", "Mistral": "hf_mistral", "Qwen2": "hf_qwen2",
    "Granite": "hf_granite", "Gemma": "hf_gemma",
}  # fmt: skip


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """The architectures of the page by family."""
    block = notebook.CODE.findall(PAGE.read_text("utf-8"))[0]
    names: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(block):
        if not example.source.startswith("for "):
            exec(example.source, names)
    families: dict[str, Any] = names["families"]
    return families


def test_every_family_is_looked_up(described: dict[str, Any]) -> None:
    assert described.keys() - {"attention-only"} == FOLDERS.keys()


@pytest.mark.parametrize("family", FOLDERS)
def test_a_family_is_what_its_loader_gives(family: str, described: dict[str, Any]) -> None:
    loaded = sc.load(DATA / FOLDERS[family]).architecture
    if family == "Granite":  # this file has biases, which its config may switch on
        loaded = replace(loaded, biases=frozenset())
    assert loaded == described[family]
