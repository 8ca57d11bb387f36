"""How Sphinx makes the site of these pages: ``python3 go.py docs``.

The source folder is the root of the repository, so that a page's links to the README, the derivations and the code are
the same on the site as they are on a forge.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extension"))

import symcircuits  # noqa: E402 - the path above is for the extensions alone

project = "symcircuits"
author = "the symcircuits developers"
copyright = "the symcircuits developers, MIT licence"
release = version = symcircuits.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "commands"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "derivations/**.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
html_theme = "furo"
html_title = f"symcircuits {release}"
html_copy_source = False
html_theme_options = {"source_view_link": "", "navigation_with_keys": True}

myst_heading_anchors = 4  # as a forge makes them
myst_enable_extensions = ["dollarmath"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
autodoc_default_options = {"exclude-members": "__init__, __new__"}  # most are made by functions, not by readers
toc_object_entries_show_parents = "hide"


def formulas(app: Any, page: str, source: list[str]) -> None:
    """Formulas as a forge writes them, a code in dollars, are formulas here."""
    source[0] = re.sub(r"\$`([^`]+)`\$", r"$\1$", source[0])


def front_door(app: Any, fault: Exception | None) -> None:
    """The site's own address leads to its first page."""
    if fault is None:
        page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={root_doc}.html">'
        (Path(app.outdir) / "index.html").write_text(page + f"<title>{project}</title>", "utf-8")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", formulas)
    app.connect("build-finished", front_door)
