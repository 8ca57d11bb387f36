"""What is around the content of every page: head, styles, script, contents, footer. Nothing is loaded."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files

from symcircuits.core.version import VERSION
from symcircuits.render.markup import Markup, el
from symcircuits.render.svg import palette

__all__ = ["page_of"]


def page_of(title: str, header: Markup, main: Sequence[Markup], first: tuple[str, str]) -> str:
    """The whole page; ``first``: the words and the name of the section that a keyboard can skip to."""
    skip = el("a", first[0], class_="skip", href=f"#{first[1]}")
    body = (skip, header, _contents(main), el("main", *main), _footer())
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


def _footer() -> Markup:
    return el("footer", el("p", f"Written by symcircuits {VERSION}. Nothing in this page is loaded from elsewhere."))
