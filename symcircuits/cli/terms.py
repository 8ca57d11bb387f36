"""What ``symcircuits terms`` does: the terms of an expansion, or of a selection of it, written to a file."""

from __future__ import annotations

import argparse
import sys

from symcircuits.cli import commands
from symcircuits.cli.option_names import as_options
from symcircuits.core.expansion import Expansion
from symcircuits.core.notation import amount

__all__ = ["terms"]

STOPPED = 3  # the exit code where a budget ended the work


def terms(options: argparse.Namespace) -> int:
    """Write terms to a file."""
    from symcircuits.cli.prompts import crew
    from symcircuits.tables.export import export_terms
    from symcircuits.tables.formats import DEFAULT
    from symcircuits.work.progress import Progress

    if options.max_memory is not None and not options.max_memory > 0:
        raise ValueError(f"--max-memory is a number of megabytes, not {options.max_memory:g}")
    expansion = _selected(options)
    columns = DEFAULT if options.columns is None else [c.strip() for c in options.columns.split(",")]
    with crew(options) as workers, Progress() as progress:
        try:
            found = export_terms(
                expansion, options.output, columns, start=options.start, stop=options.stop, resume=options.resume,
                max_terms=options.max_terms, max_seconds=options.timeout, progress=progress.step,
                max_memory=None if options.max_memory is None else int(options.max_memory * 1e6),
                workers=workers,
            )  # fmt: skip
        except KeyboardInterrupt as fault:
            progress.__exit__()
            print("\n".join(as_options(n, vars(options)) for n in getattr(fault, "__notes__", [])), file=sys.stderr)
            raise
    if options.json:
        commands._print_json({
            "schema": "symcircuits.export/1", "file": str(found.path), "complete": found.complete, "rows": found.rows,
            "total": found.total, "bytes": found.size, "stopped": found.stopped or None,
        })  # fmt: skip
    else:
        print(
            commands._fitted(as_options(found.text(), vars(options))), file=sys.stdout if found.complete else sys.stderr
        )
    return 0 if found.complete else STOPPED


def _selected(options: argparse.Namespace) -> Expansion:
    """The expansion that is asked for, with every condition."""
    from symcircuits.core.expansion import expand

    if (options.model is None) == (options.heads is None):
        raise ValueError("give either --heads or a MODEL")
    described = commands._described(options)
    if options.model is not None and described:
        raise ValueError(f"{described[0]} goes with --heads; a MODEL says by itself what it has")
    notation = commands._read_notation(options)
    if options.model is None:
        architecture = commands._read_architecture(options)
    else:
        architecture = commands._load(options.model).architecture
    found = expand(architecture, commands._default_target(architecture, options.target))
    if options.order is not None:
        found = found.order(*commands._numbers(options.order, "--order"))
    if options.composition is not None:
        found = found.where(options.composition.split(","))
    for head in options.through:
        found = found.through(head.split(","))
    for source in options.from_source:
        found = found.from_source(source.split(","))
    if not found:
        print(f"note: {amount(0, 'term')} meet these conditions; the file has none", file=sys.stderr)
    return found.written(notation)
