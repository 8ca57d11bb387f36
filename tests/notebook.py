"""The notebook of docs/sympy.md: its eight cells, as a file that Jupyter opens.

``python tests/notebook.py`` writes it anew; a test holds it to the page, whose examples are run.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "sympy.md"
NOTEBOOK = PAGE.parent / "notebooks" / "sympy.ipynb"
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def code_of(example: str) -> str:
    """The input of an example with prompts; what Jupyter would not show, because it is not the last, is printed."""
    source = "\n".join(line[4:] for line in example.splitlines() if line.startswith((">>> ", "... ")))
    *first, last = ast.parse(source).body
    parts = [ast.get_source_segment(source, statement) or "" for statement in (*first, last)]
    for i, statement in enumerate(first):
        shown = isinstance(statement, ast.Expr) and not parts[i].startswith("print(")
        parts[i] = f"print({parts[i]})" if shown else parts[i]
    return "\n".join(parts)


def notebook(page: str) -> dict[str, Any]:
    """The notebook: the title and the section in cells, each a text and its code."""
    head, _, rest = page.partition("## In eight cells\n")
    section = rest.partition("\n## ")[0]
    title = f"{head.partition(chr(10))[0]}\n\nThe eight cells of `docs/sympy.md`."
    cells: list[dict[str, Any]] = [_cell("markdown", title)]
    texts = CODE.split(section)
    for text, code in zip(texts[::2], texts[1::2], strict=False):
        cells += [_cell("markdown", text.strip()), _cell("code", code_of(code))]
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


def text_of(made: dict[str, Any]) -> str:
    """The file."""
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.parent.mkdir(exist_ok=True)
    NOTEBOOK.write_text(text_of(notebook(PAGE.read_text("utf-8"))), "utf-8")
