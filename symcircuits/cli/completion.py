"""``symcircuits completion``: completion of commands, options and values in bash, zsh and fish.

argcomplete (extra ``terminal``) reads the parser; it runs only when the shell asks for completions.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, Final

from symcircuits.cli.output import PATHS

__all__ = ["EXAMPLES", "HELP", "add_options", "complete", "run"]

HELP = "print the script for completion of commands and options in a shell"
EXAMPLES = (
    '  eval "$(symcircuits completion bash)"  # .bashrc\n'
    '  eval "$(symcircuits completion zsh)"   # .zshrc, after compinit\n'
    "  symcircuits completion fish | source   # config.fish"
)
SHELLS: Final = ("bash", "zsh", "fish")


def add_options(parser: Any) -> None:
    """The options of the command."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    """Print the script: 2 if argcomplete is not installed."""
    try:
        from argcomplete import shellcode
    except ImportError:
        raise ValueError("completion needs the package argcomplete: pip install 'symcircuits[terminal]'") from None
    print(shellcode(["symcircuits"], shell=options.shell))
    return 0


def complete(parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]) -> None:
    """Answer a shell that asks for completions, and exit; nothing if argcomplete is not installed."""
    try:
        from argcomplete import autocomplete
    except ImportError:
        return
    for command in commands.values():
        for action in command._actions:
            if action.choices is None and action.dest not in PATHS:  # complete files only where files are expected
                action.completer = _VALUES.get(action.dest, _none)  # type: ignore[attr-defined]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helped = action.add_parser("help", help="show the options of a command, with examples")
            helped.add_argument("of", nargs="?", choices=[*commands])
    autocomplete(parser)


def _none(**_: Any) -> list[str]:
    return []


def _theorems(**_: Any) -> list[str]:
    from symcircuits.derivation.derive import theorems

    return list(theorems())


def _columns(prefix: str, **_: Any) -> list[str]:
    """The columns, after those that are named already."""
    from symcircuits.tables.formats import COLUMNS

    return _after(prefix, COLUMNS)


def _after(prefix: str, names: Iterable[str]) -> list[str]:
    """A list with one more of the names that are not in it yet, for each of these."""
    before = prefix.rpartition(",")[0].split(",") if "," in prefix else []
    return [",".join([*before, name]) for name in names if name not in before]


def _measures(**_: Any) -> list[str]:
    from symcircuits.cli.measure import USED

    return list(USED)


def _targets(**_: Any) -> list[str]:
    return ["logits", "stream", "scores:"]


def _compositions(prefix: str, **_: Any) -> list[str]:
    """The composition types, after those that are named already."""
    return _after(prefix, ("none", "Q", "K", "QK", "V"))


_VALUES: Final = {
    "theorem": _theorems, "columns": _columns, "by": _measures, "target": _targets, "composition": _compositions,
}  # fmt: skip
