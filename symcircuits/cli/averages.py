"""``explain --prompts``, and the options for texts and names of tokens."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from symcircuits.cli.prompt import beside, workers_of
from symcircuits.work.files import is_there, user_path

if TYPE_CHECKING:
    from symcircuits.explanation.many import Averages
    from symcircuits.model import Model
    from symcircuits.values.measure import Measure

__all__ = ["averaged", "named", "refuse_with_prompts"]

_ONE = {
    "--tokens": "tokens", "--text": "text", "--reference": "reference", "--html": "html", "--head": "head",
    "--queries": "queries", "--max-terms": "max_terms", "--notation": "notation", "--symbol": "symbol", "--row": "row",
    "--readout": "readout", "--source": "source",
}  # fmt: skip


def averaged(options: argparse.Namespace, model: Model, by: Measure) -> Averages:
    """The averages over the prompts of a file (``-``: standard input)."""
    from symcircuits.explanation.many import explain_many
    from symcircuits.explanation.tokenizers import vocabulary_labels
    from symcircuits.work.progress import Progress

    refuse_with_prompts(options)
    labels, tokenizer = named(options, model)
    labels = vocabulary_labels(labels, model)  # an error comes before the work
    given = "/dev/stdin" if options.prompts == "-" else options.prompts
    with workers_of(options) as workers, Progress() as progress:
        return explain_many(
            model if workers is None else options.model, given, by=by, tokenizer=tokenizer, skip_bad=options.skip_bad,
            dtype=options.dtype, progress=progress.step, workers=workers,
        ).labelled(labels)  # fmt: skip


def refuse_with_prompts(options: argparse.Namespace) -> None:
    """ValueError for options that are only for a single prompt, or only for many."""
    if options.prompts is None:
        if options.skip_bad:
            raise ValueError("--skip-bad has no effect without --prompts FILE")
        return
    if options.prompts == "-" and sys.stdin is None:
        raise ValueError("standard input is closed: give a FILE of prompts instead of -")
    for option, name in _ONE.items():
        if getattr(options, name) not in (None, []):
            raise ValueError(f"{option} is for a single prompt and cannot be used with --prompts")
    if options.sort is not None:
        raise ValueError("--sort has no effect with --prompts, which does not list terms")


def named(options: argparse.Namespace, model: Any) -> tuple[Any, Any]:
    """Labels and tokenizer: those given, else those of a tokenizer.json next to the model's weights.

    If a tokenizer.json that was not given cannot be used, a note on standard error says why.
    """
    from symcircuits.explanation.tokenizers import is_tokenizer_file, read_tokenizer, tokenizer_labels

    labels, tokenizer = options.labels, options.tokenizer
    if labels is not None and not is_there(user_path(labels)):
        raise ValueError(f"--labels {labels}: there is no such file")
    asked = tokenizer is not None or (labels is not None and is_tokenizer_file(labels))
    if asked:
        tokenizer = read_tokenizer(labels if tokenizer is None else tokenizer)
        return (tokenizer_labels(tokenizer, model) if labels is None else labels), tokenizer
    place = beside(options.model)
    if place is None:
        return labels, None
    try:
        tokenizer = read_tokenizer(place)
        found = tokenizer_labels(tokenizer, model)
    except ValueError as fault:
        if options.text is not None:
            raise
        print(f"note: tokens are shown by number: {fault}", file=sys.stderr)
        return labels, None
    return (found if labels is None else labels), tokenizer
