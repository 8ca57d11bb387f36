"""The matrix of one term, measured by running the frozen model with only some heads kept."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from symcircuits.arrays.rings import Floats
from symcircuits.core.terms import Term
from symcircuits.core.text import amount, argument, need, whole
from symcircuits.model import Run, matrices_of
from symcircuits.model.alone import Alone

__all__ = ["MAX_RUNS", "isolate"]

MAX_RUNS = 4096  # a path through twelve heads


def isolate(run: Run, term: Term, *, max_runs: int = MAX_RUNS) -> npt.NDArray[Any]:
    """A term of a run, computed only by running its frozen model with some heads and one source kept.

    ``term_p = sum over subsets S of the heads of p of (-1)^|p without S| X(only the heads of S and the source of p)``,
    with patterns, norms and MLP outputs held at those of the run; for scores on each side. It is the array that
    ``evaluate`` gives for the term, ``[..., n, d_vocab_out]``, ``[..., n, d_model]`` or ``[..., n, n]``, up to rounding
    in runs that may be larger than the term. The two share the run's arrays, and the names in ``term.sources`` and
    ``term.heads``; no product is formed from the term's word. Raises ValueError on a term of another architecture and
    if more than ``max_runs`` runs are needed (``2^heads`` on each side), TypeError if it is not a run or a term.
    Source: own derivation (Moebius inversion).

    >>> import symcircuits as sc
    >>> run = sc.random_model(sc.attention_only((2, 2)), seed=1).run([1, 2, 3])
    >>> scores = sc.scores(run.model, "L1H0")
    >>> differences = [sc.isolate(run, t) - v for t, v in zip(scores, sc.evaluate(scores, run), strict=True)]
    >>> bool(max(abs(d).max() for d in differences) < 1e-12)
    True
    """
    need("isolate(run, term)", run, Run)
    need("isolate(run, term)", term, Term)
    most, needed = whole("max_runs", max_runs, 1), sum(2**order for order in term.orders)
    architecture = run.model.architecture
    if term.readout.architecture != architecture:
        raise ValueError(
            f"this term is of [{term.readout.architecture}], but the run is of a model that is [{architecture}]; take "
            "a term of the expansion of run.model"
        )
    if needed > most:
        raise ValueError(
            f"{term.label} needs {amount(needed, 'run')} of the frozen model, 2^heads on each side; "
            f"{argument('max_runs')} is {most:,}"
        )
    alone = Alone(architecture, matrices_of(run), Floats(run.dtype))
    return alone.term(term.readout.target, term.sources, term.heads)
