"""Tokens, recorded activations and workers as options."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from symcircuits.cli.numbers import tokens as read_tokens
from symcircuits.cli.numbers import whole

if TYPE_CHECKING:
    from symcircuits.model import Model
    from symcircuits.verification.reference import Comparison

__all__ = ["add_dtype", "add_tokens", "add_workers", "compared_tokens", "workers_of"]


def add_tokens(parser: Any) -> None:
    """``--tokens`` and ``--reference``."""
    parser.add_argument(
        "--tokens", metavar="1,2,3", help="token ids, or a JSON list; rows of a batch are separated by ;"
    )
    parser.add_argument(
        "--reference", metavar="FILE", help="recorded activations (.npz, .safetensors) to compare with first"
    )


def add_dtype(parser: Any) -> None:
    """``--dtype``."""
    parser.add_argument("--dtype", choices=["float64", "float32"], help="run the model in this type (default float64)")


def add_workers(parser: Any) -> None:
    """``--workers`` and ``--scheduler``."""
    parser.add_argument("--workers", type=whole(1), metavar="N", help="split the work over N processes of this machine")
    parser.add_argument("--scheduler", metavar="tcp://HOST:PORT", help="split the work over a Dask cluster")


def compared_tokens(options: argparse.Namespace, model: Model, given: Any = None) -> tuple[Any, Comparison | None]:
    """The tokens of a command, and our forward pass beside the recorded one where --reference names one."""
    tokens = read_tokens(options.tokens) if options.tokens is not None else given
    if options.reference is None:
        return tokens, None
    from symcircuits.verification.reference import compare_with_reference

    found = compare_with_reference(model, options.reference, tokens)
    return found.run.tokens, found


def workers_of(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """Who works: processes of this machine, a Dask cluster, or (None) nobody but this process."""
    from symcircuits.work.workers import dask, processes

    if options.scheduler is not None:
        if options.workers is not None:
            raise ValueError("give either --workers N or --scheduler ADDRESS")
        return dask(options.scheduler)
    return nullcontext(None if options.workers is None else processes(options.workers))
