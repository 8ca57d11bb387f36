"""The directive ``commands``: the help of every command of the command line, made from its parser."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from symcircuits.cli.parser import COMMANDS, commands_of, parser_of


class Commands(SphinxDirective):
    """A section for each command, with its help as a terminal of 80 columns prints it."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(map(section, COMMANDS)), allow_section_headings=True)


def section(command: str) -> str:
    """The section of a command, in Markdown."""
    with mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"}):
        text = commands_of(parser_of(command))[command].format_help()
    return f"## {command}\n\n```text\n{text}```\n"


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
