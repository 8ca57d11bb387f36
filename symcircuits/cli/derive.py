"""``symcircuits derive``: a derivation with every step checked, as LaTeX, text, JSON, Coq or Lean."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from symcircuits.cli.listing import add_listing
from symcircuits.cli.output import write
from symcircuits.cli.subject import add_notation, add_subject, add_target, default_target, described, notation_of
from symcircuits.cli.subject import subject_of as subject
from symcircuits.core.architecture import Architecture

if TYPE_CHECKING:
    from symcircuits.derivation.derive import Derivation

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "write a derivation with every step checked, as LaTeX, text, JSON, Coq or Lean"
EXAMPLES = (
    "  symcircuits derive --heads 3,3\n"
    "  symcircuits derive --heads 3,3 --target scores:L1H0 --form generic --standalone -o scores.tex\n"
    "  symcircuits derive --heads 3,3 --notation paper --symbol W_OV=M --symbol A=Omega\n"
    "  symcircuits derive --heads 4,4 --norm LN --mlps --key-value-heads 2,2 --form generic --format text\n"
    "  symcircuits derive --heads 2,2 --norm RMS --mlps --gated --multipliers m_E,r --format text\n"
    "  symcircuits derive MODEL --format text\n"
    "  symcircuits derive --theorem layer_norm --format text\n"
    "  symcircuits derive --heads 3,3 --form generic --for paper --width two-column --label eq:paths\n"
    "  symcircuits derive --heads 2,2 -o two_layers.tex --certificate two_layers.json\n"
    "  symcircuits derive --heads 2,2 -o two_layers.lean"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    from symcircuits.derivation.printing.formats import FORMATS

    add_subject(parser)
    parser.add_argument("--theorem", metavar="NAME", help="a result by name, instead of --heads or MODEL")
    add_listing(parser, "--list-theorems", _theorems, "list the names for --theorem, with titles, and exit")
    add_target(parser)
    parser.add_argument(
        "--form",
        choices=["enumerated", "generic"],
        help="all terms (enumerated, the default), or sums over heads (generic)",
    )
    endings = ", ".join(f"{chosen.suffix} is {name}" for name, chosen in FORMATS.items())
    parser.add_argument(
        "--format", choices=list(FORMATS), help=f"default: by the ending of FILE ({endings}), else latex"
    )
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument("--standalone", action="store_true", help="a LaTeX document that compiles")
    parser.add_argument(
        "--for", dest="for_", choices=["paper"], help="LaTeX for a paper: labelled equations, little text"
    )
    parser.add_argument(
        "--width", metavar="W", help="text width of the paper: article (default), neurips, two-column or a number of pt"
    )
    parser.add_argument(
        "--label", metavar="NAME", help="prefix of the labels: NAME:3.1 is the first equation of step 3 (default eq)"
    )
    add_notation(parser)
    parser.add_argument(
        "--certificate", metavar="FILE",
        help="also write each claim as a tree, with random values, as JSON that derivations/recheck.py evaluates again",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", metavar="FILE",
        help="write to a file (default, or -: standard output); --format overrides its ending",
    )  # fmt: skip


def _theorems() -> list[tuple[str, str]]:
    from symcircuits.derivation.results.every import entries

    return [(entry.name, entry.result.title) for entry in entries() if entry.result is not None]


def run(options: argparse.Namespace) -> int:
    """Derive, and print or write the derivation."""
    from symcircuits.derivation.printing.formats import FORMATS

    output = None if options.output == "-" else options.output
    name, said = _format(options, output)
    chosen = FORMATS[name]
    if options.standalone and not chosen.standalone:
        raise ValueError(f"--standalone writes a LaTeX document; it cannot be used with {said}")
    paper = _paper(options, name, said)
    for file in filter(None, (output, options.certificate)):
        from symcircuits.work.files import check_writable

        check_writable(file)
    found = _derived(options)
    if options.certificate:
        found.save_certificate(options.certificate)
    if options.for_ == "paper":
        text = found.paper(**paper, standalone=options.standalone)
    else:
        text = chosen.written(found) if options.standalone else chosen.printed(found)
    if output is None:
        print(text)
    else:
        write(output, text if text.endswith("\n") else text + "\n")
    return 0


def _paper(options: argparse.Namespace, name: str, said: str) -> dict[str, str]:
    """The given options for papers; ValueError, before the work, if they are invalid or have no effect."""
    given = {option: value for option in ("width", "label") if (value := getattr(options, option)) is not None}
    if options.for_ is None:
        for option in given:
            raise ValueError(f"--{option} needs --for paper")
    elif name != "latex":
        raise ValueError(f"--for paper writes LaTeX; it cannot be used with {said}")
    elif given:
        from symcircuits.derivation.printing.paper import check_label, text_width

        checks = {"width": text_width, "label": check_label}
        for option, value in given.items():
            checks[option](value)
    return given


def _format(options: argparse.Namespace, output: str | None) -> tuple[str, str]:
    """The name of the format, and what chose it: an option, else the ending of the file, else LaTeX."""
    from symcircuits.derivation.printing.formats import FORMATS
    from symcircuits.work.files import user_path

    if options.json and options.format not in (None, "json"):
        raise ValueError(f"--json is the same as --format json; it cannot be used with --format {options.format}")
    if options.json or options.format is not None:
        name = options.format or "json"
        return name, f"--format {name}"
    suffix = "" if output is None else user_path(output).suffix
    return next((n for n, chosen in FORMATS.items() if chosen.suffix == suffix), "latex"), f"-o {output}"


def _derived(options: argparse.Namespace) -> Derivation:
    """The derivation: for an architecture, or a result by name."""
    from symcircuits.derivation.derive import derive, theorem

    notation = notation_of(options)
    if options.theorem is None:
        if options.heads is None and options.model is None:
            raise ValueError("give --heads, a MODEL or --theorem NAME")
        given = subject(options)
        architecture = given if isinstance(given, Architecture) else given.architecture
        target = default_target(architecture, options.target)
        return derive(architecture, target, options.form or "enumerated", notation=notation)
    given_too = [f"--{o}" for o in ("heads", "target", "form") if getattr(options, o) is not None]
    wrong = (["MODEL"] if options.model is not None else []) + given_too + described(options)
    if wrong:
        raise ValueError(f"{wrong[0]} cannot be used with --theorem, which has its own model and form")
    return theorem(options.theorem, notation=notation)
