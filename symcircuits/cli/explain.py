"""``symcircuits explain``: a model's output on tokens as a sum of its terms, or averages over prompts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from symcircuits.cli.attachments import add_attachments, attachments_of
from symcircuits.cli.averages import averaged, named, refuse_with_prompts
from symcircuits.cli.measure import add_logit, logit_options
from symcircuits.cli.numbers import numbers
from symcircuits.cli.output import add_json, print_found, print_refused, print_result, write
from symcircuits.cli.prompt import add_dtype, add_prompt, add_workers, check_prompt, compared_tokens, workers_of
from symcircuits.cli.selection import add_budgets, add_top
from symcircuits.cli.subject import add_model, add_notation, default_target, load_model, notation_of

if TYPE_CHECKING:
    from symcircuits.core.notation import Notation
    from symcircuits.model import Run
    from symcircuits.values.evaluate import Values
    from symcircuits.values.measure import Measure

__all__ = ["EXAMPLES", "HELP", "add_options", "run"]

HELP = "explain a model's output on tokens by its terms: closure, largest terms, totals, remainder"
EXAMPLES = (
    "  symcircuits explain MODEL --tokens 1,2,3\n"
    "  symcircuits explain MODEL --tokens '1,2,3;4,5,6' --position 2 --token 7 --sort contribution --json\n"
    "  symcircuits explain MODEL --tokens 1,2,3 --logit-difference 7,4 --labels vocabulary.txt --html report.html\n"
    "  symcircuits explain MODEL --tokens 1,2,3 --readout probe.npy --source 'feature 12=feature.npy@1'\n"
    "  symcircuits explain MODEL --text 'The cat' --tokenizer tokenizer.json\n"
    "  symcircuits explain MODEL --prompts prompts.jsonl --json\n"
    "  symcircuits explain MODEL --prompts prompts.jsonl --workers 4"
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    add_model(parser)
    add_prompt(parser)
    parser.add_argument(
        "--prompts", metavar="FILE",
        help='average over the prompts in a file, one per line: ids, a JSON list, or {"tokens": [3, 1], "target": 4}',
    )  # fmt: skip
    parser.add_argument("--skip-bad", action="store_true", help="skip invalid lines of --prompts, and report them")
    add_workers(parser)
    add_logit(parser)
    add_top(parser)
    parser.add_argument(
        "--sort", choices=["centred", "norm", "contribution", "difference"], metavar="NAME",
        help="rank each term separately by centred, norm, contribution or difference (default: by the difference if "
        "one is given, else by the contribution minus its mean over all outputs, with terms from token and position "
        "embedding in one row)",
    )  # fmt: skip
    add_attachments(parser)
    parser.add_argument("--queries", metavar="0,1", help="query positions for the margin (default: all)")
    add_budgets(parser, "terms", terms="number of terms to look at one by one (default 20000)")
    add_dtype(parser)
    add_notation(parser)
    parser.add_argument(
        "--labels", metavar="FILE",
        help="names of tokens: a file with a line (or JSON string) for each vocabulary entry or position, or a "
        "tokenizer.json",
    )  # fmt: skip
    parser.add_argument(
        "--html", metavar="FILE", help="also write a page with formulas and figures, which works offline"
    )
    parser.add_argument("--head", metavar="L1H0", help="head that is open on the page (default: chosen by its margin)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Explain, and print the explanation: 0 if the terms add up to what the model computes."""
    from symcircuits.explanation.explain import MAX_TERMS, explain
    from symcircuits.explanation.tokenizers import any_labels
    from symcircuits.work.files import check_writable
    from symcircuits.work.progress import Progress

    refuse_with_prompts(options)
    notation = notation_of(options)
    if options.html is not None:
        check_writable(options.html)
    elif options.head is not None:
        raise ValueError("--head needs --html FILE: it chooses the head that is open on the page")
    if options.sort == "difference" and options.logit_difference is None and options.against is None:
        raise ValueError("--sort difference needs --logit-difference A,B")
    by = _chosen(options)
    readout, attached = attachments_of(options)
    model = load_model(options.model)
    if options.prompts is not None:
        averages = averaged(options, model, by)
        print_result(averages, options.json, top=options.top)
        return 0 if averages.ok else 1
    check_prompt(options, " or --prompts FILE")
    labels, tokenizer = named(options, model)
    tokens, compared = compared_tokens(options, model, tokenizer)
    if compared is not None and not compared.ok:
        return print_refused(compared, options.json)
    queries = None if options.queries is None else numbers(options.queries, "--queries")
    if options.head is not None:
        model.architecture.head(options.head)  # an error comes before the work
    run = model.with_(*attached).run(tokens, options.dtype)
    labels = any_labels(labels, run.tokens.shape[-1], model)  # the same
    target = None if readout is None else f"readout:{readout.name}"
    with workers_of(options) as workers, Progress() as progress:
        found = explain(
            _values(run, target, notation), by=by, top=options.top, sort=options.sort,
            queries=queries, max_terms=MAX_TERMS if options.max_terms is None else options.max_terms,
            progress=progress.step, workers=workers,
        ).labelled(labels)  # fmt: skip
        page = None if options.html is None else found.html(options.head, progress.step)
    if page is not None:
        write(options.html, page)
    print_found(found, compared, options.json)
    return 0 if found.ok else 1


def _values(run: Run, target: str | None, notation: Notation) -> Values:
    """The values of all terms, which are printed in a notation."""
    from symcircuits.core.expansion import expand
    from symcircuits.values.evaluate import evaluate

    architecture = run.model.architecture
    return evaluate(expand(architecture, default_target(architecture, target)).written(notation), run)


def _chosen(options: argparse.Namespace) -> Measure:
    """The chosen logit, or the difference of two."""
    from symcircuits.values.measure import logit

    token, against = logit_options(options)
    return logit(token, against, position=-1 if options.position is None else options.position, row=options.row)
