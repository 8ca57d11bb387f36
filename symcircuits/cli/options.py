"""The options of every command, and the parser that says what was meant where one is misspelt.

Everything heavy is imported by the command that needs it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from symcircuits.cli import commands as does
from symcircuits.cli import largest as ranked_command
from symcircuits.cli import sizes as measuring_commands
from symcircuits.cli.attachments import add_options

__all__ = ["parser_of"]

_HELP = {
    "count": "count the terms of an expansion, exactly",
    "terms": "write the terms of an expansion to a table, however many: CSV, JSON lines, Arrow, Parquet",
    "derive": "write a derivation, every step checked, as LaTeX, text or JSON",
    "verify": "check expansions against SymPy, over a prime field, and on a softmax model",
    "check": "check a formula: is it right, and if not, which mistake is it",
    "explain": "take a model apart on tokens: closure, largest terms, totals, remainder",
    "largest": "find the largest terms of a model on tokens, and prove that no other is larger",
    "sizes": "look at every term of a model on tokens, one by one: sums of their sizes, and the largest",
    "sample": "estimate the sum of the sizes of all terms of a model on tokens, with its error, from some of them",
    "book": "write all derivations as one document, and its PDF where pdflatex is there",
    "demo": "derive the two-layer results, verify them, explain the model that comes along",
}


class _Once(argparse._StoreAction):
    """The value of an option that is given once: of two, one would be dropped without a word."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if option_string is not None and self.dest in parser.given:
            parser.error(f"{option_string} is given twice; it takes one value")
        parser.given.add(self.dest)
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """Says what was meant when a command or option is misspelt, and refuses an option that is given twice."""

    words: Sequence[str] = ()

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.given: set[str] = set()
        for name in (None, "store"):
            self.register("action", name, _Once)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse; keeps the words for the hint."""
        self.words = list(args or ())
        self.given.clear()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        import difflib

        from symcircuits.core.names import visible

        commands = {
            c: p for a in self._actions if isinstance(a, argparse._SubParsersAction) for c, p in a.choices.items()
        }
        chosen = [p for c, p in commands.items() if c in self.words[:1]]
        known = [o for parser in (self, *chosen) for action in parser._actions for o in action.option_strings]
        known += [] if chosen else commands
        options = [w.partition("=")[0] for w in self.words if w.startswith("--")]
        wrong = [*options, *(w.strip("'\",:") for w in message.split("(")[0].split())]
        close = [
            f" ({w}: did you mean {m}?)" for w in wrong if len(w) > 2 and not any(k.startswith(w) for k in known)
            for m in difflib.get_close_matches(w, known, 1, 0.7)
        ]  # fmt: skip
        said = visible(message + (close[0] if close else ""))
        name = chosen[0].prog if chosen else self.prog  # what is unknown is met by the parser of all commands
        self.exit(2, f"{name}: error: {said}\nSee {name} --help\n")


def parser_of(chosen: str = "") -> argparse.ArgumentParser:
    """The parser; of the chosen command, or of all commands where none is chosen."""
    parser = _Parser(
        prog="symcircuits",
        description="The algebra of transformer circuits: derived, verified and evaluated.",
        epilog="Heads are listed per layer (--heads 3,3); a head is called L1H0, counted from 0.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.set_defaults(run=_no_command(parser), command="")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser, prog="symcircuits")
    for name, add in _ADD.items():
        if chosen not in _ADD or name == chosen:  # the others are not asked for: starting up stays fast
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


def _command(commands: Any, name: str, run: Callable[[argparse.Namespace], int], examples: str) -> Any:
    help = _HELP[name]
    parser = commands.add_parser(
        name, help=help, description=help[:1].upper() + help[1:] + ".", epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(run=run, command=name)
    return parser


def _architecture_options(parser: Any, required: bool = True) -> None:
    parser.add_argument("--heads", required=required, metavar="3,3", help='heads of each layer; "none" for zero layers')
    parser.add_argument(
        "--positions", choices=["none", "standard", "shortformer", "rotary", "alibi"], default="none", help="positions"
    )
    parser.add_argument("--biases", action="store_true", help="all biases, each a source of its own")
    parser.add_argument("--no-scale", action="store_true", help="scores without a scale")
    parser.add_argument("--no-softmax", action="store_true", help="patterns are the masked scores themselves")
    parser.add_argument("--bidirectional", action="store_true", help="attention without a causal mask")
    parser.add_argument("--no-unembed", action="store_true", help="a model without unembedding (expand the stream)")
    parser.add_argument("--norm", choices=["none", "LN", "RMS"], default="none", help="norm before whatever reads")
    parser.add_argument("--no-gains", action="store_true", help="norms without gain (folded into the weights)")
    parser.add_argument("--mlps", action="store_true", help="an MLP in every layer, what it writes a source of its own")
    parser.add_argument("--gated", action="store_true", help="MLPs with a gate (with --mlps)")
    parser.add_argument("--bilinear", action="store_true", help="MLPs with a gate and no activation (with --mlps)")
    parser.add_argument("--parallel", action="store_true", help="MLPs read what attention reads (with --mlps)")
    parser.add_argument("--key-value-heads", metavar="1,1", help="key/value heads of each layer (grouped queries)")
    parser.add_argument("--qk-norm", action="store_true", help="an RMS norm of the queries and keys of every head")
    parser.add_argument(
        "--multipliers", metavar="m_E,r",
        help="numbers that multiply: the embedding (m_E), what layers add (r, or r[L0], r[M0], ...), the logits (m_U); "
        "or all",
    )  # fmt: skip


def _notation_options(parser: Any) -> None:
    parser.add_argument(
        "--notation", choices=["row", "paper", "transformerlens"],
        help="A X W^T with the paper's shapes (row), (A (x) W) X as the paper prints it, or TransformerLens's shapes",
    )  # fmt: skip
    parser.add_argument(
        "--symbol", action="append", default=[], metavar="W_OV=M", help="another name for a symbol; may be repeated"
    )


def _json_option(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_count(commands: Any) -> None:
    parser = _command(
        commands, "count", does.count,
        "  symcircuits count --heads 12,12\n"
        "  symcircuits count --heads 12,12 --target scores:L1H0 --positions shortformer --json",
    )  # fmt: skip
    _architecture_options(parser)
    parser.add_argument("--target", metavar="T", help="logits (default), stream or scores:L1H0")
    _json_option(parser)


def _terms(options: argparse.Namespace) -> int:
    from symcircuits.cli.terms import terms

    return terms(options)


def _add_terms(commands: Any) -> None:
    parser = _command(
        commands, "terms", _terms,
        "  symcircuits terms --heads 12,12 -o terms.csv\n"
        "  symcircuits terms --heads 12,12,12 --target scores:L2H0 --composition K --columns heads -o k.parquet\n"
        "  symcircuits terms MODEL --through L0H2 --columns label,latex -o terms.jsonl --timeout 60\n"
        "  symcircuits terms MODEL --through L0H2 --columns label,latex -o terms.jsonl --resume",
    )  # fmt: skip
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a model whose terms they are, instead of --heads")
    _architecture_options(parser, required=False)
    parser.add_argument("--target", metavar="T", help="logits (default), stream or scores:L1H0")
    parser.add_argument("--order", metavar="0,1", help="terms of these orders only")
    parser.add_argument("--composition", metavar="K,QK", help="terms of these types only")
    parser.add_argument(
        "--through", action="append", default=[], metavar="L0H1", help="terms through it; may be repeated"
    )
    parser.add_argument(
        "--from-source", action="append", default=[], metavar="embed", help="terms that start from it; may be repeated"
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the file: .csv, .jsonl, .arrow or .parquet"
    )
    parser.add_argument(
        "--columns", metavar="A,B",
        help="of number, order, orders, composition, sources, heads, label, text, latex (default number,order,"
        "composition,label,text)",
    )  # fmt: skip
    parser.add_argument("--start", type=int, default=0, metavar="N", help="the number of the first term (default 0)")
    parser.add_argument("--stop", type=int, metavar="N", help="the number behind the last term (default: all)")
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted export of this file was left")
    parser.add_argument("--max-terms", type=int, metavar="N", help="stop after so many terms")
    parser.add_argument("--max-memory", type=float, metavar="MB", help="megabytes, beyond Python and imports")
    parser.add_argument("--timeout", type=float, metavar="S", help="stop after so many seconds")
    _workers_options(parser)
    _notation_options(parser)
    _json_option(parser)


def _add_derive(commands: Any) -> None:
    from symcircuits.derivation.printing.formats import FORMATS

    parser = _command(
        commands, "derive", does.derive,
        "  symcircuits derive --heads 3,3\n"
        "  symcircuits derive --heads 3,3 --target scores:L1H0 --form generic --standalone -o scores.tex\n"
        "  symcircuits derive --heads 3,3 --notation paper --symbol W_OV=M --symbol A=Omega\n"
        "  symcircuits derive --heads 4,4 --norm LN --mlps --key-value-heads 2,2 --form generic --format text\n"
        "  symcircuits derive --heads 2,2 --norm RMS --mlps --gated --multipliers m_E,r --format text\n"
        "  symcircuits derive --theorem layer_norm --format text",
    )  # fmt: skip
    parser.add_argument("--theorem", metavar="NAME", help="a result by its name, instead of --heads")
    _architecture_options(parser, required=False)
    parser.add_argument("--target", metavar="T", help="logits (default), stream or scores:L1H0")
    parser.add_argument(
        "--form", choices=["enumerated", "generic"], help="every term (enumerated, the default), or sums over heads"
    )
    parser.add_argument("--format", choices=list(FORMATS), default="latex")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    parser.add_argument("--standalone", action="store_true", help="a LaTeX document that compiles")
    _notation_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file (- or nothing: standard output)")


def _add_verify(commands: Any) -> None:
    parser = _command(
        commands, "verify", does.verify,
        "  symcircuits verify --heads 3,3\n"
        "  symcircuits verify --heads 12,12,12 --max-terms 30000 --target scores:L2H0\n"
        "  symcircuits verify MODEL --tokens 1,2,3\n"
        "  symcircuits verify MODEL --reference recorded.npz\n"
        "  symcircuits verify --general",
    )  # fmt: skip
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a model to verify on, instead of --heads")
    _architecture_options(parser, required=False)
    _tokens_option(parser)
    parser.add_argument("--target", action="append", metavar="T", help="logits, stream or scores:L1H0; may be repeated")
    parser.add_argument(
        "--general", action="store_true", help="compile the proofs for all layers and heads (needs Coq)"
    )
    add_options(parser)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-terms", type=int, metavar="N", help="terms of one target to be listed (default 5000)")
    _json_option(parser)


def _add_check(commands: Any) -> None:
    parser = _command(
        commands, "check", does.check,
        "  symcircuits check 'A[L0H1] @ X0 @ W_OV[L0H1].T @ W_U.T' --heads 3,3\n"
        "  symcircuits check 'W_E @ QK[L1H0] @ OV[L0H1].T @ W_E.T' --heads 3,3 --convention transformerlens --json",
    )  # fmt: skip
    parser.add_argument("formula", metavar="FORMULA", help="a term or a sum, as text or LaTeX (-: standard input)")
    _architecture_options(parser)
    parser.add_argument("--target", metavar="T", help="logits, stream or scores:L1H0 (default: what it speaks of)")
    parser.add_argument(
        "--convention", choices=["paper", "row", "transformerlens"], default="paper",
        help="of the formula and of the answer: the paper's shapes (paper, row: the same) or TransformerLens's",
    )  # fmt: skip
    parser.add_argument("--part", action="store_true", help="a sum is right when it is some of the terms, each once")
    _notation_options(parser)
    _json_option(parser)


def _add_explain(commands: Any) -> None:
    parser = _command(
        commands, "explain", does.explain,
        "  symcircuits explain MODEL --tokens 1,2,3\n"
        "  symcircuits explain MODEL --tokens '1,2,3;4,5,6' --position 2 --token 7 --sort contribution --json\n"
        "  symcircuits explain MODEL --tokens 1,2,3 --logit-difference 7,4 --labels vocabulary.txt --html report.html\n"
        "  symcircuits explain MODEL --tokens 1,2,3 --readout probe.npy --source 'feature 12=feature.npy@1'\n"
        "  symcircuits explain MODEL --text 'The cat' --tokenizer tokenizer.json\n"
        "  symcircuits explain MODEL --prompts prompts.jsonl --json\n"
        "  symcircuits explain MODEL --prompts prompts.jsonl --workers 4",
    )  # fmt: skip
    parser.add_argument("model", metavar="MODEL", help="a folder (or file) with weights and config.json")
    _tokens_option(parser)
    _prompts_options(parser)
    parser.add_argument("--position", type=int, default=-1, help="position of the chosen logit (default: the last)")
    parser.add_argument(
        "--token", type=int, help="output token of the chosen logit (default: the model's first choice)"
    )
    parser.add_argument(
        "--logit-difference", metavar="A,B", help="two output tokens: contributions to logit[A] - logit[B] too"
    )
    parser.add_argument("--row", type=int, default=0, help="batch row of the chosen logit")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="number of terms shown (default 20)")
    parser.add_argument("--sort", choices=["norm", "contribution", "difference"], default="norm")
    add_options(parser)
    parser.add_argument("--queries", metavar="0,1", help="query positions that count in the margin (default: all)")
    parser.add_argument("--max-terms", type=int, metavar="N", help="terms to look at one by one (default 20000)")
    parser.add_argument("--dtype", choices=["float64", "float32"], help="compute in this type (default float64)")
    _notation_options(parser)
    parser.add_argument(
        "--labels",
        metavar="FILE",
        help="names of tokens: a line (or JSON string) for each vocabulary entry or position, or a tokenizer.json",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write a page with formulas and figures too; it needs no network"
    )
    parser.add_argument("--head", metavar="L1H0", help="the head that the page opens (default: by its margin)")
    _json_option(parser)


def _add_largest(commands: Any) -> None:
    parser = _command(commands, "largest", ranked_command.largest, ranked_command.EXAMPLES)
    _tokens_option(parser)
    ranked_command.add_options(parser)


def _add_sizes(commands: Any) -> None:
    parser = _command(commands, "sizes", measuring_commands.sizes, measuring_commands.SIZES)
    _tokens_option(parser)
    measuring_commands.add_sizes_options(parser)
    _workers_options(parser)


def _add_sample(commands: Any) -> None:
    parser = _command(commands, "sample", measuring_commands.sample, measuring_commands.SAMPLE)
    _tokens_option(parser)
    measuring_commands.add_sample_options(parser)


def _add_book(commands: Any) -> None:
    parser = _command(
        commands, "book", does.book,
        "  symcircuits book -o book\n"
        "  symcircuits book -o book --notation transformerlens",
    )  # fmt: skip
    parser.add_argument("-o", "--output", default="symcircuits-book", metavar="DIR", help="folder of the book")
    _notation_options(parser)


def _add_demo(commands: Any) -> None:
    parser = _command(
        commands, "demo", does.demo,
        "  symcircuits demo\n"
        "  symcircuits demo --out results",
    )  # fmt: skip
    parser.add_argument(
        "--out", default="symcircuits-demo", metavar="DIR", help="folder for LaTeX and page (default symcircuits-demo)"
    )


def _tokens_option(parser: Any) -> None:
    parser.add_argument("--tokens", metavar="1,2,3", help="token ids; rows of a batch are separated by ;")
    parser.add_argument(
        "--reference", metavar="FILE", help="recorded activations (.npz, .safetensors) to compare with first"
    )


def _prompts_options(parser: Any) -> None:
    parser.add_argument("--text", metavar="TEXT", help="the prompt as text, for a tokenizer; no token is added to it")
    parser.add_argument("--tokenizer", metavar="FILE", help="a tokenizer.json (default: the one beside the weights)")
    parser.add_argument(
        "--prompts", metavar="FILE",
        help='average over prompts: a line of ids, a JSON list of them, or {"tokens": [3, 1], "target": 4} each',
    )  # fmt: skip
    parser.add_argument("--skip-bad", action="store_true", help="leave out (and name) lines of --prompts that are bad")
    _workers_options(parser)


def _workers_options(parser: Any) -> None:
    parser.add_argument("--workers", type=int, metavar="N", help="split the work over N processes of this machine")
    parser.add_argument("--scheduler", metavar="tcp://HOST:PORT", help="split the work over a Dask cluster")


_ADD: dict[str, Callable[[Any], None]] = {
    "derive": _add_derive,
    "verify": _add_verify,
    "count": _add_count,
    "terms": _add_terms,
    "check": _add_check,
    "explain": _add_explain,
    "largest": _add_largest,
    "sizes": _add_sizes,
    "sample": _add_sample,
    "book": _add_book,
    "demo": _add_demo,
}
