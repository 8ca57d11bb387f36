"""The notebooks: ``docs/notebooks/NAME.ipynb`` is made from all of ``NAME.md`` beside it.

``python tests/notebook.py`` writes all of them anew; a test holds each to its page and runs its cells.
"""

from __future__ import annotations

import ast
import doctest
import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
PAGES = sorted(FOLDER.glob("*.md"))
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = "<Figure"  # how what is drawn begins where it is shown as text


def code_of(block: str) -> str:
    """The input of a block with prompts; what Jupyter would not show, because it is not the last, is printed."""
    examples = doctest.DocTestParser().get_examples(block)
    parts = [example.source.rstrip("\n") for example in examples]
    for i, example in enumerate(examples[:-1]):
        (statement,) = ast.parse(example.source).body
        if example.want.startswith(FIGURE):
            raise ValueError(f"a figure must be the last of its block, where Jupyter shows it: {parts[i]}")
        if example.want and isinstance(statement, ast.Expr) and not parts[i].startswith("print("):
            parts[i] = f"print({ast.get_source_segment(example.source, statement)})"
    return "\n".join(parts)


def notebook(name: str, page: str) -> dict[str, Any]:
    """The notebook of a page: its texts and its blocks of Python as cells, in their order."""
    link = f"As a notebook: [{name}.ipynb]({name}.ipynb)."
    if f"\n\n{link}\n\n" not in page:
        raise ValueError(f"the page {name}.md does not say where its notebook is, in a paragraph of its own: {link}")
    needs = "symcircuits matplotlib" if FIGURE in page else "symcircuits"
    page = page.replace(link, f"In Colab, or where it is not installed, run this first: `%pip install {needs}`")
    texts, blocks = CODE.split(page)[::2], CODE.findall(page)
    cells: list[dict[str, Any]] = []
    for text, block in zip(texts, [*blocks, ""], strict=True):
        cells += [_cell("markdown", text.strip())] if text.strip() else []
        cells += [_cell("code", code_of(block))] if block else []
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return {
        "cells": cells,
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(kind: str, source: str) -> dict[str, Any]:
    more: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source, **more}


def file_of(page: Path) -> Path:
    """Where the notebook of a page is."""
    return page.with_suffix(".ipynb")


def text_of(page: Path) -> str:
    """The notebook of a page, as the text of its file."""
    made = notebook(page.stem, page.read_text("utf-8"))
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in PAGES:
        file_of(each).write_text(text_of(each), "utf-8")
