"""The parser of the command line: suggestions for misspelt words, and one file per command.

A command is a module with ``HELP``, ``EXAMPLES``, ``add_options(parser)`` and ``run(options)``, and a row in
``COMMANDS``. Each command imports the heavy modules that it needs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, Protocol

__all__ = ["COMMANDS", "Command", "commands_of", "parser_of", "spelling_of"]


class Command(Protocol):
    """A module of a command."""

    HELP: str
    EXAMPLES: str

    def add_options(self, parser: Any) -> None:
        """Add the options of the command to its parser."""
        raise NotImplementedError

    def run(self, options: argparse.Namespace) -> int:
        """Run the command: 0 success, 1 a check failed, 3 a budget ended the work."""
        raise NotImplementedError


def _derive() -> Any:
    from symcircuits.cli import derive

    return derive


def _verify() -> Any:
    from symcircuits.cli import verify

    return verify


def _count() -> Any:
    from symcircuits.cli import count

    return count


def _terms() -> Any:
    from symcircuits.cli import terms

    return terms


def _check() -> Any:
    from symcircuits.cli import check

    return check


def _explain() -> Any:
    from symcircuits.cli import explain

    return explain


def _largest() -> Any:
    from symcircuits.cli import largest

    return largest


def _summary() -> Any:
    from symcircuits.cli import summary

    return summary


def _sample() -> Any:
    from symcircuits.cli import sample

    return sample


def _circuits() -> Any:
    from symcircuits.cli import circuits

    return circuits


def _book() -> Any:
    from symcircuits.cli import book

    return book


def _demo() -> Any:
    from symcircuits.cli import demo

    return demo


def _completion() -> Any:
    from symcircuits.cli import completion

    return completion


COMMANDS: Final[dict[str, Callable[[], Any]]] = {
    "derive": _derive,
    "verify": _verify,
    "count": _count,
    "terms": _terms,
    "check": _check,
    "explain": _explain,
    "largest": _largest,
    "summary": _summary,
    "sample": _sample,
    "circuits": _circuits,
    "book": _book,
    "demo": _demo,
    "completion": _completion,
}


class _Once(argparse._StoreAction):
    """An option that may be given only once: of two values one would be lost silently."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if option_string is not None and self.dest in parser.given:
            parser.error(f"{option_string} is given twice; it takes one value")
        parser.given.add(self.dest)
        setattr(namespace, self.dest, values)


def _of_any_width() -> argparse.HelpFormatter:
    return argparse.HelpFormatter("", width=80)


class _Help(argparse.HelpFormatter):
    """Help that fits the terminal: prose is wrapped, examples are broken before options."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith("examples:"):
            return super()._fill_text(text, width, indent)
        return "\n".join(line for example in text.split("\n") for line in _continued(example, width))


def _continued(example: str, width: int) -> list[str]:
    """An example in lines that fit, with a backslash at the end of all but the last.

    >>> _continued("  symcircuits count --heads 12,12 --json", 38)
    ['  symcircuits count --heads 12,12 \\\\', '      --json']
    """
    lines = [""]
    for part in re.split(r" (?=-)", example):
        if lines[-1] and len(lines[-1]) + len(part) + 3 > width:
            lines[-1] += " \\"
            lines.append(f"      {part}")
        else:
            lines[-1] += f" {part}" if lines[-1] else part
    return lines


class Parser(argparse.ArgumentParser):
    """A parser with suggestions for misspelt commands and options, and an error for an option that is given twice."""

    words: Sequence[str] = ()

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.given: set[str] = set()
        for name in (None, "store"):
            self.register("action", name, _Once)

    def add_argument(self, *args: Any, **more: Any) -> argparse.Action:
        """As in argparse, which formats a usage line here as a test: with a fixed width, not the terminal's."""
        self._get_formatter = _of_any_width  # type: ignore[method-assign]
        try:
            return super().add_argument(*args, **more)
        finally:
            del self._get_formatter

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse; an option that the command does not take is reported with the commands that do."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            self.error(_NOT_TAKEN + next((word for word in left if word[:1] == "-"), left[0]))
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse; keeps the words for messages about unknown ones."""
        self.words = list(args or ())
        self.given.clear()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with code 2, after a line that says what is wrong and one that says where help is."""
        from symcircuits.core.names import visible

        chosen = [p for c, p in commands_of(self).items() if c in self.words[:1]]
        name = chosen[0].prog if chosen else self.prog  # the main parser reports what is unknown
        self.exit(2, f"{name}: error: {visible(self._said(message, chosen))}\nSee {name} --help\n")

    def _said(self, message: str, chosen: Sequence[argparse.ArgumentParser]) -> str:
        """The message; for an unknown word with a suggestion, or the commands that take it."""
        from symcircuits.cli.spelling import nearest, not_a_command, not_taken

        known = [option for parser in (self, *chosen) for option in _options(parser)]
        if message.startswith("argument COMMAND: ") and self.words:
            return not_a_command(self.words[0], list(commands_of(self)), _takers())
        if message.startswith(_NOT_TAKEN):
            command = (chosen or [self])[0].prog.rpartition(" ")[2]
            return not_taken(command, message.removeprefix(_NOT_TAKEN), known, _takers())
        given = [w.partition("=")[0] for w in self.words if w.startswith("--") and len(w) > 4]
        for word in given:  # a missing option may be misspelt; an option of another command is not
            if not any(k.startswith(word) for k in known) and word not in _takers():
                near = nearest(word, known)
                if near:
                    return f"{message} ({word}: did you mean {near}?)"
        return message


_NOT_TAKEN: Final = "not taken: "


def _takers() -> dict[str, list[str]]:
    """The commands that take an option, by option."""
    found: dict[str, list[str]] = {}
    for command, parser in commands_of(parser_of()).items():
        for option in _options(parser):
            found.setdefault(option, []).append(command)
    return found


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of the main parser, with their parsers; empty for another parser."""
    return {c: p for a in parser._actions if isinstance(a, argparse._SubParsersAction) for c, p in a.choices.items()}


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """The option strings of a parser."""
    return [option for action in parser._actions for option in action.option_strings]


def spelling_of(parser: argparse.ArgumentParser, command: str) -> Callable[..., str]:
    """A function that writes an argument as an option of a command, for messages; "" if the command has no such option.

    >>> spelling = spelling_of(parser_of("terms"), "terms")
    >>> spelling("max_terms"), spelling("resume", True), spelling("order", 2), spelling("seed", 1)
    ('--max-terms', '--resume', '--order 2', '')
    """
    actions = [action for action in commands_of(parser)[command]._actions if action.option_strings]

    def written(name: str, *value: Any) -> str:
        for action in actions:
            options = [o for o in action.option_strings if o.startswith("--")]
            if action.dest == f"no_{name}" and value == (False,):
                return options[0]
            if action.dest != name:
                continue
            if isinstance(action, argparse.BooleanOptionalAction) and value in ((True,), (False,)):
                return options[value == (False,)]
            if not value or (action.nargs == 0 and action.const == value[0]):
                return options[0]
            if action.nargs != 0:
                import shlex  # only for errors

                return f"{options[0]} {shlex.quote(str(value[0]))}"
        return ""

    return written


def parser_of(chosen: str = "") -> argparse.ArgumentParser:
    """The parser of the chosen command, or of all commands if none is chosen."""
    parser = Parser(
        prog="symcircuits",
        description="The algebra of transformer circuits: derived, verified and evaluated.",
        epilog="symcircuits help COMMAND shows the options of a command, with examples. Heads are listed per layer "
        "(--heads 3,3); a head is called L1H0, counted from 0.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.set_defaults(run=_no_command(parser), command="")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser, prog="symcircuits")
    for name, module in COMMANDS.items():
        if chosen not in COMMANDS or name == chosen:  # only the chosen one, for a fast start
            _add(commands, name, module())
    return parser


def _add(commands: Any, name: str, command: Command) -> None:
    help = command.HELP
    parser = commands.add_parser(
        name, help=help, description=help[:1].upper() + help[1:] + ".", epilog="examples:\n" + command.EXAMPLES,
        formatter_class=_Help,
    )  # fmt: skip
    parser.set_defaults(run=command.run, command=name)
    command.add_options(parser)


def _no_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        if options.version:
            from symcircuits.core.version import VERSION

            print(f"symcircuits {VERSION}")
            return 0
        parser.print_help(sys.stderr)
        return 2

    return run
