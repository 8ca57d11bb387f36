"""The notebooks of docs/notebooks: each is its page, runs as in Jupyter, and stays short."""

import doctest
import json
from pathlib import Path
from typing import Any

import notebook
import pytest

every_page = pytest.mark.parametrize("page", notebook.PAGES, ids=lambda page: page.stem)

PAGE = """# Two

As a notebook: [two.ipynb](two.ipynb).

First.

```python
>>> x = 1                                            # a remark
>>> x + 1                                            # a result
2
>>> print(x)
1
>>> for i in range(2):
...     print(i)
0
1
>>> x
1

```

Last.
"""


@every_page
def test_a_notebook_is_its_page_and_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell runs after the ones before it, as in Jupyter, in the folder where Jupyter runs it."""
    assert notebook.file_of(page).read_text("utf-8") == notebook.text_of(page), "run: python tests/notebook.py"
    monkeypatch.chdir(notebook.FOLDER)
    names: dict[str, Any] = {}
    for cell in json.loads(notebook.text_of(page))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile(cell["source"], f"{page.stem}, {cell['id']}", "exec"), names)


def test_there_is_no_notebook_without_a_page() -> None:
    assert sorted(notebook.FOLDER.glob("*.ipynb")) == [notebook.file_of(page) for page in notebook.PAGES]


@every_page
def test_a_notebook_is_short(page: Path) -> None:
    """Few cells, and no result that has to be scrolled."""
    blocks = notebook.CODE.findall(page.read_text("utf-8"))
    assert 5 <= len(blocks) <= 14
    wants = [example.want for block in blocks for example in doctest.DocTestParser().get_examples(block)]
    assert [want for want in wants if want.count("\n") > 15] == []


def test_texts_and_blocks_are_cells_and_what_jupyter_would_not_show_is_printed() -> None:
    first, code, last = notebook.notebook("two", PAGE)["cells"]
    assert first["source"] == (
        "# Two\n\nIn Colab, or where it is not installed, run this first: `%pip install symcircuits`\n\nFirst."
    )
    assert code["source"].splitlines() == [
        "x = 1                                            # a remark",
        "print(x + 1)",
        "print(x)",
        "for i in range(2):",
        "    print(i)",
        "x",
    ]
    assert (last["source"], last["cell_type"], code["outputs"]) == ("Last.", "markdown", [])


def test_what_a_notebook_cannot_be_made_from_is_refused() -> None:
    with pytest.raises(ValueError, match=r"page one\.md does not say where its notebook is"):
        notebook.notebook("one", PAGE)
    drawn = PAGE.replace("2\n>>> print(x)", "<Figure size 1x1 with 1 Axes>\n>>> print(x)")
    assert drawn != PAGE
    with pytest.raises(ValueError, match=r"must be the last of its block, where Jupyter shows it: x \+ 1"):
        notebook.notebook("two", drawn)
    shown = PAGE.replace(">>> x\n1", ">>> x\n<Figure size 1x1 with 1 Axes>")
    assert "`%pip install symcircuits matplotlib`" in notebook.notebook("two", shown)["cells"][0]["source"]
