"""The frame of every page: head, styles, script, contents, footer. Nothing is loaded."""

from __future__ import annotations

import hashlib
import os
import time
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from symcircuits.core.names import visible
from symcircuits.core.text import command_called
from symcircuits.core.version import VERSION
from symcircuits.loaders.by_path import digests_of
from symcircuits.render.markup import Markup, el
from symcircuits.render.svg import palette

if TYPE_CHECKING:
    from symcircuits.model import Model

__all__ = ["page_of"]

_LONGEST = 2000  # characters of a command


def page_of(title: str, header: Markup, main: Sequence[Markup], first: tuple[str, str], model: Model) -> str:
    """The whole page; ``first``: the words and the name of the section that a keyboard can skip to.

    The footer gives the version, the date, the command and the weights (of ``model``) that it was made from.
    """
    skip = el("a", first[0], class_="skip", href=f"#{first[1]}")
    body = (skip, header, _contents(main), el("main", *main), _footer(model))
    script, style = Markup(_resource("report.js")), Markup(_resource("report.css") + palette())
    page = el("html", _head(title, script, style), el("body", *body, el("script", script)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _resource(name: str) -> str:
    return (files("symcircuits.render") / "page" / name).read_text("utf-8")


def _head(title: str, script: str, style: str) -> Markup:
    """What stands before the body; the policy lets nothing run and nothing load but what is written here."""
    allowed = [f"'sha256-{b64encode(hashlib.sha256(x.encode()).digest()).decode()}'" for x in (script, style)]
    policy = f"default-src 'none'; script-src {allowed[0]}; style-src {allowed[1]}; base-uri 'none'; form-action 'none'"
    return el(
        "head", el("meta", charset="utf-8"), el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"), el("title", title),
        el("style", style),
    )  # fmt: skip


def _contents(main: Sequence[str]) -> Markup:
    links = []
    for part in main:
        if '<section><h2 id="' in part:
            name, _, after = part.partition('<section><h2 id="')[2].partition('">')
            links.append(el("li", el("a", Markup(after.partition("</h2>")[0]), href=f"#{name}")))
    return el("nav", el("ul", *links), aria_label="sections")


def _footer(model: Model) -> Markup:
    """Version, date, command, and the digest of every file of the weights."""
    said = [el("p", f"Written by symcircuits {VERSION} on {_today()}. Nothing in this page is loaded from elsewhere.")]
    command = command_called()
    if command:
        said.append(
            el(
                "p",
                "Command: ",
                el("code", visible(command if len(command) <= _LONGEST else command[:_LONGEST] + " ...")),
            )
        )
    files = digests_of(model)
    rows = [el("li", visible(name), ": ", el("code", digest)) for name, digest in files.items()]
    said.append(el("p", "Weights (SHA-256):") if rows else el("p", "Weights: not those of a file."))
    return el("footer", *said, *([el("ul", *rows)] if rows else []))


def _today() -> str:
    """The day, in UTC; SOURCE_DATE_EPOCH is another, for pages that are to be the same tomorrow."""
    at = os.environ.get("SOURCE_DATE_EPOCH", "")
    return time.strftime("%Y-%m-%d", time.gmtime(int(at)) if at.isdigit() else time.gmtime())
