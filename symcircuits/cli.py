"""The command line: ``symcircuits derive | verify | count | explain | demo``.

Exit codes: 0 right, 1 a check failed, 2 bad input or a missing optional tool. Results on standard output,
progress and notes on standard error. Everything heavy is imported by the command that needs it.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from symcircuits.architecture import Architecture, attention_only
from symcircuits.notation import amount

if TYPE_CHECKING:
    from symcircuits.model import Model

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """Says what was meant when a command or option is misspelt."""

    words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse; keeps the words for the hint."""
        self.words = list(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        import difflib

        commands = {
            c: p for a in self._actions if isinstance(a, argparse._SubParsersAction) for c, p in a.choices.items()
        }
        chosen = [p for c, p in commands.items() if c in self.words]
        known = [o for parser in (self, *chosen) for action in parser._actions for o in action.option_strings]
        known += [] if chosen else commands
        options = [w.partition("=")[0] for w in self.words if w.startswith("--")]
        wrong = [*options, *(w.strip("'\",:") for w in message.split("(")[0].split())]
        close = [
            f" ({w}: did you mean {m}?)" for w in wrong if len(w) > 2 and not any(k.startswith(w) for k in known)
            for m in difflib.get_close_matches(w, known, 1, 0.7)
        ]  # fmt: skip
        hint = close[0] if close else ""
        self.exit(2, f"{self.prog}: error: {message}{hint}\nSee {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    command = "symcircuits"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no failure
    try:
        try:
            options = _parser().parse_args(_joined(sys.argv[1:] if argv is None else argv))
            command = f"symcircuits {options.command}".strip()
            code: int = options.run(options)
        finally:
            sys.stdout.flush()  # here, so that a closed pipe is met here
        return code
    except BrokenPipeError:
        _drop_output()  # quiet when the reader has gone
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, OverflowError, TypeError) as fault:
        if os.environ.get("SYMCIRCUITS_DEBUG"):
            raise
        print(f"{command}: error: {fault}", file=sys.stderr)
        if isinstance(fault, OSError):
            _drop_output()
        return 2
    except AssertionError as fault:  # a step of a derivation that does not hold
        print(f"{command}: a check failed: {fault}", file=sys.stderr)
        return 1


def _drop_output() -> None:
    """Let go of what cannot be written to standard output, so that it is not tried again on leaving."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _joined(argv: Sequence[str]) -> list[str]:
    """``--heads -1,3`` as ``--heads=-1,3``, so that the value is read as a value and refused for what it is."""
    out: list[str] = []
    for word in argv:
        if out and out[-1].startswith("--") and "=" not in out[-1] and word[:1] == "-" and word[1:2].isdigit():
            out[-1] += "=" + word
        else:
            out.append(word)
    return out


# ---------------------------------------------------------------------------------------------- arguments
def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="symcircuits",
        description="The algebra of transformer circuits: derived, verified and evaluated.",
        epilog="Heads are listed per layer (--heads 3,3); a head is called L1H0, counted from 0.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.set_defaults(run=_no_command(parser), command="")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser, prog="symcircuits")
    for add in (_add_derive, _add_verify, _add_count, _add_explain, _add_demo):
        add(commands)
    return parser


def _no_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        if options.version:
            from symcircuits import __version__

            print(f"symcircuits {__version__}")
            return 0
        parser.print_help(sys.stderr)
        return 2

    return run


def _command(commands: Any, name: str, run: Callable[[argparse.Namespace], int], help: str, examples: str) -> Any:
    parser = commands.add_parser(
        name, help=help, description=help[:1].upper() + help[1:] + ".", epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(run=run, command=name)
    return parser


def _architecture_options(parser: Any, required: bool = True) -> None:
    parser.add_argument("--heads", required=required, metavar="3,3", help='heads of each layer; "none" for zero layers')
    parser.add_argument(
        "--positions", choices=["none", "standard", "shortformer"], default="none", help="position embedding"
    )
    parser.add_argument("--biases", action="store_true", help="all biases, each a source of its own")
    parser.add_argument("--no-scale", action="store_true", help="scores without a scale")
    parser.add_argument("--bidirectional", action="store_true", help="attention without a causal mask")
    parser.add_argument("--no-unembed", action="store_true", help="a model without unembedding (expand the stream)")


def _json_option(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_count(commands: Any) -> None:
    parser = _command(
        commands, "count", _count, "count the terms of an expansion, exactly",
        "  symcircuits count --heads 12,12\n"
        "  symcircuits count --heads 12,12 --target scores:L1H0 --positions shortformer --json",
    )  # fmt: skip
    _architecture_options(parser)
    parser.add_argument("--target", metavar="T", help="logits (default), stream or scores:L1H0")
    _json_option(parser)


def _add_derive(commands: Any) -> None:
    parser = _command(
        commands, "derive", _derive, "write a derivation, every step checked, as LaTeX, text or JSON",
        "  symcircuits derive --heads 3,3\n"
        "  symcircuits derive --heads 3,3 --target scores:L1H0 --form generic --standalone -o scores.tex",
    )  # fmt: skip
    _architecture_options(parser)
    parser.add_argument("--target", metavar="T", help="logits (default), stream or scores:L1H0")
    parser.add_argument(
        "--form", choices=["enumerated", "generic"], default="enumerated", help="every term, or sums over heads"
    )
    parser.add_argument("--format", choices=["latex", "text", "json"], default="latex")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    parser.add_argument("--standalone", action="store_true", help="a LaTeX document that compiles")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file (- or nothing: standard output)")


def _add_verify(commands: Any) -> None:
    parser = _command(
        commands, "verify", _verify, "check the expansions against SymPy, over a prime field, and on a softmax model",
        "  symcircuits verify --heads 3,3\n"
        "  symcircuits verify --heads 12,12,12 --max-terms 30000 --target scores:L2H0\n"
        "  symcircuits verify MODEL --tokens 1,2,3\n"
        "  symcircuits verify --general",
    )  # fmt: skip
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a model to verify on, instead of --heads")
    _architecture_options(parser, required=False)
    _tokens_option(parser, required=False)
    parser.add_argument("--target", action="append", metavar="T", help="logits, stream or scores:L1H0; may be repeated")
    parser.add_argument(
        "--general", action="store_true", help="compile the proofs for all layers and heads (needs Coq)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-terms", type=int, metavar="N", help="terms of one target to be listed (default 5000)")
    _json_option(parser)


def _add_explain(commands: Any) -> None:
    parser = _command(
        commands, "explain", _explain, "take a model apart on tokens: closure, largest terms, totals, remainder",
        "  symcircuits explain MODEL --tokens 1,2,3\n"
        "  symcircuits explain MODEL --tokens '1,2,3;4,5,6' --position 2 --token 7 --sort contribution --json",
    )  # fmt: skip
    parser.add_argument("model", metavar="MODEL", help="a folder (or file) with weights and config.json")
    _tokens_option(parser, required=True)
    parser.add_argument("--position", type=int, default=-1, help="position of the chosen logit (default: the last)")
    parser.add_argument(
        "--token", type=int, help="output token of the chosen logit (default: the model's first choice)"
    )
    parser.add_argument("--row", type=int, default=0, help="batch row of the chosen logit")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="number of terms shown (default 20)")
    parser.add_argument("--sort", choices=["norm", "contribution"], default="norm")
    parser.add_argument("--queries", metavar="0,1", help="query positions that count in the margin (default: all)")
    parser.add_argument("--max-terms", type=int, metavar="N", help="terms to look at one by one (default 20000)")
    parser.add_argument("--dtype", choices=["float64", "float32"], help="compute in this type (default float64)")
    _json_option(parser)


def _add_demo(commands: Any) -> None:
    parser = _command(
        commands, "demo", _demo, "derive the two-layer results, verify them, explain the model that the package ships",
        "  symcircuits demo\n"
        "  symcircuits demo --out results",
    )  # fmt: skip
    parser.add_argument(
        "--out", default="symcircuits-demo", metavar="DIR", help="folder for the LaTeX (default symcircuits-demo)"
    )


def _tokens_option(parser: Any, required: bool) -> None:
    parser.add_argument(
        "--tokens", required=required, metavar="1,2,3", help="token ids; rows of a batch are separated by ;"
    )


def _numbers(text: str, option: str) -> list[int]:
    """Whole numbers between commas; ValueError names the option and the one at fault."""
    if not text.strip():
        raise ValueError(f"{option} is empty; write whole numbers with commas between, e.g. {option} 1,2,3")
    found = []
    for word in text.split(","):
        seen = word.strip()
        if not re.fullmatch(r"[+-]?[0-9]+", seen):
            fault = f"{seen!r} is not a whole number" if seen else "a number is missing between the commas"
            raise ValueError(f"{option} {text!r}: {fault}")
        found.append(int(seen))
    return found


def _read_tokens(text: str) -> Any:
    parts = text.split(";")
    if len(parts) > 1 and not all(part.strip() for part in parts):
        raise ValueError(f"--tokens {text!r}: a row is empty")
    rows = [_numbers(row, "--tokens") for row in parts]
    return rows if len(rows) > 1 else rows[0]


def _read_architecture(options: argparse.Namespace) -> Architecture:
    text = options.heads
    if not text.strip():
        raise ValueError('--heads is empty; write the heads of each layer, e.g. --heads 3,3, or "none" for zero layers')
    heads = [] if text.strip().lower() == "none" else _numbers(text, "--heads")
    positions = None if options.positions == "none" else options.positions
    return attention_only(
        heads, positions, options.biases,
        scale=not options.no_scale, causal=not options.bidirectional, unembed=not options.no_unembed,
    )  # fmt: skip


def _at_least_zero(name: str, number: int | None) -> None:
    if number is not None and number < 0:
        raise ValueError(f"{name} must be 0 or more, not {number}")


def _default_target(architecture: Architecture, target: str | None) -> str:
    return target if target is not None else "logits" if architecture.unembed else "stream"


def _print_json(data: Any) -> None:
    import json

    print(json.dumps(data, indent=1, allow_nan=False))


def _width() -> int:
    import shutil

    return max(40, shutil.get_terminal_size((100, 24)).columns) if sys.stdout.isatty() else 100


def _fitted(line: str) -> str:
    """A line as it is where it fits the terminal, wrapped where it does not."""
    if len(line) <= _width():
        return line
    import textwrap

    return textwrap.fill(line, _width(), subsequent_indent="  ", break_on_hyphens=False)


# ----------------------------------------------------------------------------------------------- commands
def _count(options: argparse.Namespace) -> int:
    from symcircuits.expansion import expand

    architecture = _read_architecture(options)
    expansion = expand(architecture, _default_target(architecture, options.target))
    by_order, by_composition = expansion.counts_by_order(), expansion.counts_by_composition()
    if options.json:
        _print_json({
            "schema": "symcircuits.count/1", "architecture": str(architecture), "target": expansion.target,
            "count": expansion.count, "by_order": by_order, "by_composition": by_composition,
        })  # fmt: skip
        return 0
    print(_fitted(f"{expansion.target} of {architecture}: {amount(expansion.count, 'term')}"))
    for kind, counts in (("order", by_order), ("composition", by_composition)):
        size = max(len(f"{n:,}") for n in counts.values()) if counts else 0
        for key, n in counts.items():
            print(f"  {kind} {key!s:<5} {n:>{size},}")
    return 0


def _derive(options: argparse.Namespace) -> int:
    from symcircuits.derivation import derive

    if options.standalone and options.format != "latex":
        raise ValueError("--standalone makes a LaTeX document; it does not go with --format " + options.format)
    if options.output == "-":
        options.output = None
    if options.output is not None:
        from symcircuits.files import check_writable, write_text

        check_writable(options.output)
    architecture = _read_architecture(options)
    found = derive(architecture, _default_target(architecture, options.target), options.form)
    if options.format == "latex":
        text = found.latex(standalone=options.standalone)
    elif options.format == "text":
        text = found.text()
    else:
        import json

        text = json.dumps(found.json(), indent=1)
    if options.output is not None:
        write_text(options.output, text if text.endswith("\n") else text + "\n")
        print(f"wrote {options.output}", file=sys.stderr)
    else:
        print(text)
    return 0


def _load(path: str) -> Model:
    from symcircuits.loaders import load

    return load(path)


def _verify(options: argparse.Namespace) -> int:
    if options.general:
        return _verify_general(options)
    from symcircuits.progress import Progress
    from symcircuits.verification import MAX_TERMS, verify

    if (options.model is None) == (options.heads is None):
        raise ValueError("give either --heads or a MODEL to verify")
    described = [o for o in ("biases", "no_scale", "bidirectional", "no_unembed") if getattr(options, o)]
    described += ["positions"] if options.positions != "none" else []
    if options.model is not None and described:
        raise ValueError(f"--{described[0].replace('_', '-')} goes with --heads; a MODEL says by itself what it has")
    _at_least_zero("--seed", options.seed)
    _at_least_zero("--max-terms", options.max_terms)
    subject = _load(options.model) if options.model is not None else _read_architecture(options)
    tokens = _read_tokens(options.tokens) if options.tokens is not None else None
    with Progress() as progress:
        report = verify(
            subject, tokens, targets=options.target, seed=options.seed, progress=progress.note,
            max_terms=MAX_TERMS if options.max_terms is None else options.max_terms,
        )  # fmt: skip
    _print_json(report.json()) if options.json else print(report.text(_width()))
    return 0 if report.ok else 1


def _verify_general(options: argparse.Namespace) -> int:
    from symcircuits.general import check_general

    if options.model is not None or options.heads is not None:
        raise ValueError("--general is about every architecture: give no MODEL and no --heads with it")
    report = check_general()
    _print_json(report.json()) if options.json else print(report.text(_width()))
    return (0 if report.ok else 1) if report.available else 2


def _explain(options: argparse.Namespace) -> int:
    from symcircuits.explanation import MAX_TERMS, explain
    from symcircuits.progress import Progress

    model = _load(options.model)
    queries = None if options.queries is None else _numbers(options.queries, "--queries")
    with Progress() as progress:
        found = explain(
            model, _read_tokens(options.tokens), position=options.position, token=options.token, row=options.row,
            top=options.top, sort=options.sort, queries=queries, dtype=options.dtype, progress=progress.step,
            max_terms=MAX_TERMS if options.max_terms is None else options.max_terms,
        )  # fmt: skip
    _print_json(found.json()) if options.json else print(found.text(_width()))
    return 0 if found.ok else 1


def _demo(options: argparse.Namespace) -> int:
    from symcircuits.demo import run

    return run(options.out, _width())
