"""The subject of a command: an architecture, by ``--heads`` and further options, or a MODEL; and notations."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from symcircuits.cli.numbers import numbers
from symcircuits.core.architecture import Architecture, transformer
from symcircuits.core.names import visible
from symcircuits.core.notation import Notation
from symcircuits.core.text import brief

if TYPE_CHECKING:
    from symcircuits.model import Model

__all__ = [
    "add_architecture", "add_model", "add_notation", "add_subject", "add_target", "architecture_of", "default_target",
    "described", "load_model", "notation_of", "subject_architecture", "subject_of",
    "symbols_of",
]  # fmt: skip


def add_subject(parser: Any) -> None:
    """MODEL, or ``--heads`` and the options of an architecture."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a model's folder or file, instead of --heads")
    add_architecture(parser)


def add_model(parser: Any) -> None:
    """MODEL, for commands that compute."""
    parser.add_argument("model", metavar="MODEL", help="a folder (or file) with weights and config.json")


def add_target(parser: Any) -> None:
    """``--target``."""
    parser.add_argument("--target", metavar="T", help="logits (default), stream or scores:L1H0")


def add_architecture(parser: Any) -> None:
    """``--heads`` and the other options of an architecture."""
    group = parser.add_argument_group("an architecture, instead of MODEL")
    group.add_argument("--heads", metavar="3,3", help='heads of each layer; "none" for zero layers')
    group.add_argument(
        "--positions", choices=["none", "standard", "shortformer", "rotary", "alibi"], default="none", metavar="P",
        help="how positions enter: none (default), standard, shortformer, rotary or alibi",
    )  # fmt: skip
    group.add_argument("--biases", action="store_true", help="all biases, each as a separate source")
    group.add_argument("--no-scale", action="store_true", help="scores without a scale")
    group.add_argument("--no-softmax", action="store_true", help="patterns are the masked scores themselves")
    group.add_argument("--capped", action="store_true", help="a soft cap on scores: softmax sees every term")
    group.add_argument("--bidirectional", action="store_true", help="attention without a causal mask")
    group.add_argument("--no-unembed", action="store_true", help="a model without unembedding (expand the stream)")
    group.add_argument(
        "--norm", choices=["none", "LN", "RMS"], default="none", help="norm before attention, MLPs and unembedding"
    )
    group.add_argument("--no-gains", action="store_true", help="norms without gain (folded into the weights)")
    group.add_argument("--mlps", action="store_true", help="an MLP in every layer, its output a separate source")
    group.add_argument("--gated", action="store_true", help="MLPs with a gate (with --mlps)")
    group.add_argument("--bilinear", action="store_true", help="MLPs with a gate and no activation (with --mlps)")
    group.add_argument("--parallel", action="store_true", help="MLPs read what attention reads (with --mlps)")
    group.add_argument("--key-value-heads", metavar="1,1", help="key/value heads of each layer (grouped queries)")
    group.add_argument("--qk-norm", action="store_true", help="an RMS norm of the queries and keys of every head")
    group.add_argument(
        "--multipliers", metavar="m_E,r",
        help="multipliers: of the embedding (m_E), of the outputs of layers (r, or r[L0], r[M0], ...), of the logits "
        "(m_U); or all",
    )  # fmt: skip


def add_notation(parser: Any) -> None:
    """``--notation`` and ``--symbol``."""
    parser.add_argument(
        "--notation", choices=["row", "paper", "transformerlens"], metavar="NAME",
        help="row: A X W^T with the paper's shapes; paper: (A (x) W) X as the paper prints it; transformerlens: with "
        "TransformerLens's shapes",
    )  # fmt: skip
    parser.add_argument(
        "--symbol", action="append", default=[], metavar="W_OV=M", help="another name for a symbol; may be repeated"
    )


def subject_of(options: argparse.Namespace) -> Architecture | Model:
    """The given model, loaded, or the given architecture; ValueError if both are given, or neither."""
    if options.model is None and options.heads is None:
        raise ValueError("give --heads, e.g. --heads 3,3, or a MODEL")
    if options.model is not None and options.heads is not None:
        both = f"--heads {brief(options.heads)} and MODEL {brief(options.model)}"
        raise ValueError(f"give either --heads or a MODEL, not both: {both}")
    beside = described(options)
    if options.model is not None and beside:
        raise ValueError(f"{beside[0]} needs --heads; the architecture of a MODEL is read from its files")
    return architecture_of(options) if options.model is None else load_model(options.model)


def subject_architecture(options: argparse.Namespace) -> Architecture:
    """The given architecture, or that of the given model; errors as in :func:`subject_of`."""
    subject = subject_of(options)
    return subject if isinstance(subject, Architecture) else subject.architecture


def architecture_of(options: argparse.Namespace) -> Architecture:
    """The architecture that the options describe."""
    text = options.heads
    if not text.strip():
        raise ValueError('--heads is empty; write the heads of each layer, e.g. --heads 3,3, or "none" for zero layers')
    heads = [] if text.strip().lower() == "none" else numbers(text, "--heads")
    positions = None if options.positions == "none" else options.positions
    groups = options.key_value_heads
    if options.no_gains and options.norm == "none":
        raise ValueError("--no-gains has no effect without norms: give --norm LN or --norm RMS")
    for option in ("gated", "bilinear", "parallel"):
        if getattr(options, option) and not options.mlps:
            raise ValueError(f"--{option} has no effect without MLPs: give --mlps")
    return transformer(
        heads, positions, options.biases,
        scale=not options.no_scale, causal=not options.bidirectional, unembed=not options.no_unembed,
        norm=None if options.norm == "none" else options.norm, gains=not options.no_gains, mlps=options.mlps,
        groups=None if groups is None else numbers(groups, "--key-value-heads"),
        gated=options.gated, parallel=options.parallel, qk_norm=options.qk_norm,
        multipliers=_multipliers(options.multipliers), softmax=not options.no_softmax, bilinear=options.bilinear,
        capped=options.capped,
    )  # fmt: skip


def _multipliers(text: str | None) -> bool | list[str]:
    """``--multipliers all``, or names separated by commas."""
    if text is None or text.strip() == "all":
        return text is not None
    return [name.strip() for name in text.split(",")]


def described(options: argparse.Namespace) -> list[str]:
    """The given options of an architecture, other than --heads."""
    flags = ("biases", "no_scale", "bidirectional", "no_unembed", "no_gains", "mlps", "key_value_heads")
    more = ("gated", "bilinear", "parallel", "qk_norm", "multipliers", "no_softmax", "capped")
    found = [o for o in (*flags, *more) if getattr(options, o)]
    found += [o for o in ("positions", "norm") if getattr(options, o) != "none"]
    return [f"--{o.replace('_', '-')}" for o in found]


def default_target(architecture: Architecture, target: str | None) -> str:
    """The target: by default the logits, or the stream if there is no unembedding."""
    return architecture.end if target is None else target


def load_model(path: str) -> Model:
    """The model; a note on standard error if reading it takes long."""
    from symcircuits.loaders import load
    from symcircuits.loaders.files import announced, model_place

    said = announced(model_place(path))
    if said:
        print(f"{visible(path)}: {said}", file=sys.stderr)
    return load(path)


def notation_of(options: argparse.Namespace) -> Notation:
    """``--notation`` and every ``--symbol``, checked before any work is done."""
    return Notation(options.notation or "row", symbols_of(options.symbol))


def symbols_of(given: list[str]) -> dict[str, str]:
    """Other names of symbols, ``--symbol W_OV=M``."""
    names: dict[str, str] = {}
    for text in given:
        glyph, sign, name = text.partition("=")
        if not sign:
            raise ValueError(f"--symbol {text!r}: write the symbol and its name, e.g. --symbol W_OV=M")
        if glyph in names:
            raise ValueError(f"--symbol {glyph} is given twice, as {names[glyph]!r} and as {name!r}")
        names[glyph] = name
    return names
