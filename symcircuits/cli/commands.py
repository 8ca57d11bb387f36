"""What the commands of the command line do: read what is asked, ask the library, print; each returns the exit code.

Everything heavy is imported by the command that needs it.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from symcircuits.core.architecture import Architecture, transformer
from symcircuits.core.names import visible
from symcircuits.core.notation import Notation, amount, many

if TYPE_CHECKING:
    from symcircuits.derivation.derive import Derivation
    from symcircuits.model import Model
    from symcircuits.verification.reference import Comparison

__all__ = ["book", "check", "count", "demo", "derive", "explain", "verify"]


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
    groups = options.key_value_heads
    if options.no_gains and options.norm == "none":
        raise ValueError("--no-gains says what norms are like, but there are none (see --norm)")
    return transformer(
        heads, positions, options.biases,
        scale=not options.no_scale, causal=not options.bidirectional, unembed=not options.no_unembed,
        norm=None if options.norm == "none" else options.norm, gains=not options.no_gains, mlps=options.mlps,
        groups=None if groups is None else _numbers(groups, "--key-value-heads"),
        gated=options.gated, parallel=options.parallel, qk_norm=options.qk_norm,
        multipliers=_read_multipliers(options.multipliers), softmax=not options.no_softmax, bilinear=options.bilinear,
    )  # fmt: skip


def _read_multipliers(text: str | None) -> bool | list[str]:
    """``--multipliers all`` or the names between commas."""
    if text is None or text.strip() == "all":
        return text is not None
    return [name.strip() for name in text.split(",")]


def _read_notation(options: argparse.Namespace) -> Notation:
    """``--notation`` and every ``--symbol``, checked before any work is done."""
    return Notation(options.notation or "row", _read_symbols(options.symbol))


def _read_symbols(given: list[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for text in given:
        glyph, sign, name = text.partition("=")
        if not sign:
            raise ValueError(f"--symbol {text!r}: write the symbol and its name, e.g. --symbol W_OV=M")
        if glyph in names:
            raise ValueError(f"--symbol {glyph} is given twice, as {names[glyph]!r} and as {name!r}")
        names[glyph] = name
    return names


def _described(options: argparse.Namespace) -> list[str]:
    """The options given that describe an architecture, beside --heads."""
    flags = ("biases", "no_scale", "bidirectional", "no_unembed", "no_gains", "mlps", "key_value_heads")
    more = ("gated", "bilinear", "parallel", "qk_norm", "multipliers", "no_softmax")
    found = [o for o in (*flags, *more) if getattr(options, o)]
    found += [o for o in ("positions", "norm") if getattr(options, o) != "none"]
    return [f"--{o.replace('_', '-')}" for o in found]


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
def count(options: argparse.Namespace) -> int:
    from symcircuits.core.expansion import expand
    from symcircuits.core.unfrozen.unfrozen import still_held, unfrozen

    architecture = _read_architecture(options)
    expansion = expand(architecture, _default_target(architecture, options.target))
    by_order, by_composition = expansion.counts_by_order(), expansion.counts_by_composition()
    whole = unfrozen(expansion).count if architecture.polynomial else None
    if options.json:
        _print_json({
            "schema": "symcircuits.count/1", "architecture": str(architecture), "target": expansion.target,
            "count": expansion.count, "by_order": by_order, "by_composition": by_composition,
            **({} if whole is None else _unfrozen_json(whole)),
        })  # fmt: skip
        return 0
    print(_fitted(f"{expansion.target} of {architecture}: {amount(expansion.count, 'term')}"))
    for kind, counts in (("order", by_order), ("composition", by_composition)):
        size = max(len(f"{n:,}") for n in counts.values()) if counts else 0
        for key, n in counts.items():
            print(f"  {kind} {key!s:<5} {n:>{size},}")
    if whole is not None:
        print(_fitted(f"with {still_held(architecture)} (unfrozen): {amount(whole, 'term')}"))
    return 0


def _unfrozen_json(whole: int) -> dict[str, Any]:
    """The number of terms with nothing held fixed, exact where a reader of JSON can take it; else about how many."""
    return {"unfrozen": whole} if whole < 10**300 else {"unfrozen": None, "unfrozen_about": many(whole)}


def derive(options: argparse.Namespace) -> int:
    from symcircuits.derivation.printing.formats import FORMATS

    chosen = FORMATS[options.format]
    if options.standalone and not chosen.standalone:
        raise ValueError("--standalone makes a LaTeX document; it does not go with --format " + options.format)
    if options.output == "-":
        options.output = None
    if options.output is not None:
        from symcircuits.work.files import check_writable

        check_writable(options.output)
    found = _derived(options)
    text = chosen.written(found) if options.standalone else chosen.printed(found)
    if options.output is not None:
        _write(options.output, text if text.endswith("\n") else text + "\n")
    else:
        print(text)
    return 0


def _derived(options: argparse.Namespace) -> Derivation:
    """The derivation that is asked for: of an architecture, or a result by its name."""
    from symcircuits.derivation.derive import derive, theorem

    if (options.theorem is None) == (options.heads is None):
        raise ValueError("give either --heads or --theorem NAME")
    notation = _read_notation(options)
    if options.theorem is None:
        architecture, form = _read_architecture(options), options.form or "enumerated"
        return derive(architecture, _default_target(architecture, options.target), form, notation=notation)
    wrong = _described(options) + [f"--{o}" for o in ("target", "form") if getattr(options, o) is not None]
    if wrong:
        raise ValueError(f"{wrong[0]} goes with --heads; a theorem says by itself of what it speaks")
    return theorem(options.theorem, notation=notation)


def _load(path: str) -> Model:
    from pathlib import Path

    from symcircuits.loaders import load
    from symcircuits.loaders.files import announced

    said = announced(Path(path))
    if said:
        print(f"{visible(path)}: {said}", file=sys.stderr)
    return load(path)


def _compared(options: argparse.Namespace, model: Model, tokens: Any = None) -> tuple[Any, Comparison | None]:
    """The tokens of a command, and our forward pass beside the recorded one where --reference names one."""
    tokens = _read_tokens(options.tokens) if options.tokens is not None else tokens
    if options.reference is None:
        return tokens, None
    from symcircuits.verification.reference import compare_with_reference

    found = compare_with_reference(model, options.reference, tokens)
    return found.run.tokens, found


def _print_found(found: Any, compared: Comparison | None, as_json: bool) -> None:
    """A report (or explanation), and the comparison that stands before it."""
    if as_json:
        _print_json(found.json() | ({} if compared is None else {"reference": compared.json()}))
        return
    print(found.text(_width()) if compared is None else f"{compared.text(_width())}\n\n{found.text(_width())}")


def _print_refused(compared: Comparison, as_json: bool) -> int:
    """What differs from the reference; nothing is said about a model that is another one."""
    _print_json(compared.json()) if as_json else print(compared.text(_width()))
    return 1


def verify(options: argparse.Namespace) -> int:
    if options.general:
        return _verify_general(options)
    from symcircuits.verification.verify import MAX_TERMS, verify
    from symcircuits.work.progress import Progress

    if (options.model is None) == (options.heads is None):
        raise ValueError("give either --heads or a MODEL to verify")
    described = _described(options)
    if options.model is not None and described:
        raise ValueError(f"{described[0]} goes with --heads; a MODEL says by itself what it has")
    _at_least_zero("--seed", options.seed)
    _at_least_zero("--max-terms", options.max_terms)
    from symcircuits.cli.attachments import read_options

    if options.model is None and (options.readout is not None or options.source):
        raise ValueError("--readout and --source go with a MODEL, whose stream they read or are a part of")
    own, sources = read_options(options)
    subject: Any = _load(options.model) if options.model is not None else _read_architecture(options)
    if options.model is None and options.reference is not None:
        raise ValueError("--reference goes with a MODEL: an architecture alone computes nothing that was recorded")
    tokens, compared = _compared(options, subject)
    if compared is not None and not compared.ok:
        return _print_refused(compared, options.json)
    if own is not None or sources:
        subject = subject.with_(*sources, *([] if own is None else [own]))
    with Progress() as progress:
        report = verify(
            subject, tokens, targets=options.target, seed=options.seed, progress=progress.note,
            max_terms=MAX_TERMS if options.max_terms is None else options.max_terms,
        )  # fmt: skip
    _print_found(report, compared, options.json)
    return 0 if report.ok else 1


def _verify_general(options: argparse.Namespace) -> int:
    from symcircuits.verification.coq import check_general

    if options.model is not None or options.heads is not None:
        raise ValueError("--general is about every architecture: give no MODEL and no --heads with it")
    report = check_general()
    _print_json(report.json()) if options.json else print(report.text(_width()))
    return (0 if report.ok else 1) if report.available else 2


def explain(options: argparse.Namespace) -> int:
    from symcircuits.cli.attachments import read_options
    from symcircuits.cli.prompts import averaged, crew, encoded, named, refuse_with_prompts
    from symcircuits.explanation.explain import MAX_TERMS, explain
    from symcircuits.work.files import check_writable
    from symcircuits.work.progress import Progress

    refuse_with_prompts(options)
    notation = _read_notation(options)
    if options.html is not None:
        check_writable(options.html)
    elif options.head is not None:
        raise ValueError("--head chooses the head that the page opens; it goes with --html FILE")
    token, against = _chosen_tokens(options)
    own, sources = read_options(options)
    model = _load(options.model)
    if options.prompts is not None:
        averages = averaged(options, model, token, against)
        _print_json(averages.json()) if options.json else print(averages.text(_width(), options.top))
        return 0 if averages.ok else 1
    if options.tokens is None and options.text is None and options.reference is None:
        raise ValueError("give --tokens 1,2,3, --text or --prompts FILE, or a --reference FILE that holds tokens")
    labels, tokenizer = named(options, model)
    tokens, compared = _compared(options, model, encoded(options, model, tokenizer))
    if compared is not None and not compared.ok:
        return _print_refused(compared, options.json)
    queries = None if options.queries is None else _numbers(options.queries, "--queries")
    if options.head is not None:
        model.architecture.head(options.head)  # refused before the work rather than after it
    with crew(options) as workers, Progress() as progress:
        found = explain(
            model if workers is None else options.model, tokens, position=options.position, token=token,
            against=against, row=options.row, top=options.top, sort=options.sort, queries=queries, dtype=options.dtype,
            labels=labels, progress=progress.step,
            max_terms=MAX_TERMS if options.max_terms is None else options.max_terms, notation=notation,
            readout=own, sources=sources, workers=workers,
        )  # fmt: skip
        page = None if options.html is None else found.html(options.head, progress.step)
    if page is not None:
        _write(options.html, page)
    _print_found(found, compared, options.json)
    return 0 if found.ok else 1


def _chosen_tokens(options: argparse.Namespace) -> tuple[int | None, int | None]:
    """The token of the chosen logit, and the one it is set against."""
    if options.logit_difference is None:
        return options.token, None
    two = _numbers(options.logit_difference, "--logit-difference")
    if len(two) != 2:
        raise ValueError(f"--logit-difference {options.logit_difference!r}: two tokens make a difference, e.g. 26,3")
    if options.token not in (None, two[0]):
        raise ValueError(f"--token {options.token} is not the first of --logit-difference {options.logit_difference}")
    return two[0], two[1]


def _write(path: str, text: str) -> None:
    from symcircuits.work.files import write_text

    write_text(path, text)
    print(f"wrote {visible(str(path))}", file=sys.stderr)


def check(options: argparse.Namespace) -> int:
    from symcircuits.checking.check import check

    formula = sys.stdin.read() if options.formula == "-" else options.formula
    verdict = check(
        formula, _read_architecture(options), options.target, options.convention, part=options.part,
        notation=options.notation, symbols=_read_symbols(options.symbol),
    )  # fmt: skip
    _print_json(verdict.json()) if options.json else print(verdict.text(_width()))
    return 0 if verdict.right else 1


def book(options: argparse.Namespace) -> int:
    from symcircuits.derivation.book import write_book
    from symcircuits.work.files import make_folder

    notation = _read_notation(options)
    print(f"wrote {visible(str(write_book(make_folder(options.output), notation)))}")
    return 0


def demo(options: argparse.Namespace) -> int:
    from symcircuits.cli.demo import run

    return run(options.out, _width())
