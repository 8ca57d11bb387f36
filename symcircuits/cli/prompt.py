"""Options for the prompt (tokens, a text, recorded activations), the number type and the workers."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symcircuits.cli.numbers import tokens as read_tokens
from symcircuits.cli.numbers import whole

if TYPE_CHECKING:
    from symcircuits.model import Model
    from symcircuits.verification.reference import Comparison

__all__ = [
    "add_dtype", "add_prompt", "add_workers", "beside", "check_prompt", "compared_tokens", "prompt_of", "workers_of",
]  # fmt: skip


def add_prompt(parser: Any) -> None:
    """``--tokens``, ``--text`` and ``--tokenizer``, ``--reference``: the input of the model."""
    group = parser.add_argument_group("the prompt")
    group.add_argument(
        "--tokens",
        metavar="1,2,3",
        help="token ids, 1,2,3 or '1 2 3' or a JSON list; rows of a batch are separated by ;",
    )
    group.add_argument("--text", metavar="TEXT", help="the prompt as text, for a tokenizer; no token is added")
    group.add_argument("--tokenizer", metavar="FILE", help="a tokenizer.json (default: the one beside the weights)")
    group.add_argument(
        "--reference", metavar="FILE", help="recorded activations (.npz, .safetensors) to compare with first"
    )


def add_dtype(parser: Any) -> None:
    """``--dtype``."""
    parser.add_argument("--dtype", choices=["float64", "float32"], help="run the model in this type (default float64)")


def add_workers(parser: Any) -> None:
    """``--workers`` and ``--scheduler``."""
    parser.add_argument("--workers", type=whole(1), metavar="N", help="split the work over N processes on this machine")
    parser.add_argument("--scheduler", metavar="tcp://HOST:PORT", help="split the work over a Dask cluster")


def check_prompt(options: argparse.Namespace, more: str = "") -> None:
    """ValueError if there is no prompt; ``more``: another option that gives one."""
    if options.tokens is None and options.text is None and options.reference is None:
        raise ValueError(f"give --tokens 1,2,3, --text{more}, or a --reference FILE with tokens")


def prompt_of(options: argparse.Namespace, model: Model) -> tuple[Any, Comparison | None]:
    """The tokens, for a command that does not show names of tokens; errors as in :func:`compared_tokens`."""
    if options.text is None:
        if options.tokenizer is not None:
            raise ValueError("--tokenizer has no effect without --text")
        return compared_tokens(options, model)
    from symcircuits.explanation.tokenizers import read_tokenizer

    place = beside(options.model) if options.tokenizer is None else options.tokenizer
    return compared_tokens(options, model, None if place is None else read_tokenizer(place))


def beside(model: str) -> Path | None:
    """The tokenizer.json next to a model's weights; None if there is none."""
    from symcircuits.loaders.files import model_place

    place = model_place(model)
    found = (place if place.is_dir() else place.parent) / "tokenizer.json"
    return found if found.is_file() else None


def compared_tokens(options: argparse.Namespace, model: Model, tokenizer: Any = None) -> tuple[Any, Comparison | None]:
    """The tokens, and the comparison of our forward pass with the recorded one if --reference is given.

    ValueError if a text has no tokenizer or no tokens, or --tokens is given too.
    """
    tokens = _encoded(options, model, tokenizer)
    if options.tokens is not None:
        tokens = read_tokens(options.tokens)
    if options.reference is None:
        return tokens, None
    from symcircuits.verification.reference import compare_with_reference

    found = compare_with_reference(model, options.reference, tokens)
    return found.run.tokens, found


def _encoded(options: argparse.Namespace, model: Model, tokenizer: Any) -> list[int] | None:
    """The tokens of --text; None if it is not given."""
    if options.text is None:
        return None
    from symcircuits.explanation.tokenizers import encoder

    if options.tokens is not None:
        raise ValueError("give either --tokens or --text, not both")
    if tokenizer is None:
        raise ValueError(
            "--text needs a tokenizer.json: give --tokenizer FILE (there is none next to the model's weights)"
        )
    tokens = encoder(tokenizer, model)(options.text)
    if not tokens:
        raise ValueError(f"--text {options.text!r} has no tokens; at least one is needed")
    return tokens


def workers_of(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """The workers: processes on this machine, a Dask cluster, or None for only this process."""
    from symcircuits.work.workers import dask, processes

    if options.scheduler is not None:
        if options.workers is not None:
            raise ValueError("give either --workers N or --scheduler ADDRESS, not both")
        return dask(options.scheduler)
    return nullcontext(None if options.workers is None else processes(options.workers))
