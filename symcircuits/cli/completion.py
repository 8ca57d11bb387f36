"""``symcircuits completion``: completion of commands, options and values in bash, zsh and fish.

argcomplete (extra ``terminal``) reads the parser; it runs only when the shell asks for completions.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, Final

from symcircuits.cli.output import PATHS

__all__ = ["EXAMPLES", "HELP", "add_options", "complete", "run"]

HELP = "print the script for completion of commands and options in a shell"
EXAMPLES = (
    '  eval "$(symcircuits completion bash)"    # in ~/.bashrc\n'
    '  eval "$(symcircuits completion zsh)"     # in ~/.zshrc, after compinit\n'
    "  symcircuits completion fish | source     # in ~/.config/fish/config.fish"
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


def complete(parser: argparse.ArgumentParser, commands: Iterable[argparse.ArgumentParser]) -> None:
    """Answer a shell that asks for completions, and exit; nothing if argcomplete is not installed."""
    try:
        from argcomplete import autocomplete
    except ImportError:
        return
    for command in commands:
        for action in command._actions:
            if action.choices is None and action.dest not in PATHS:  # complete files only where files are expected
                action.completer = _VALUES.get(action.dest, _none)  # type: ignore[attr-defined]
    autocomplete(parser)


def _none(**_: Any) -> list[str]:
    return []


def _theorems(**_: Any) -> list[str]:
    from symcircuits.derivation.derive import theorems

    return list(theorems())


def _columns(prefix: str, **_: Any) -> list[str]:
    """The columns that are not named yet, after those that are."""
    from symcircuits.tables.formats import COLUMNS

    before = prefix.rpartition(",")[0].split(",") if "," in prefix else []
    return [",".join([*before, name]) for name in COLUMNS if name not in before]


_VALUES: Final = {"theorem": _theorems, "columns": _columns}
