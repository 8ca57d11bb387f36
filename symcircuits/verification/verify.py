"""verify: the enumeration against two independent witnesses, by three questions, each with its own row.

1. *same algebra*: SymPy multiplies the recursion out; its multiset of terms is the enumeration's. For more terms
   than SymPy is given, *same letters* uses its commuting polynomials, and *same words* multiplies out packed integers;
2. *same polynomial*: with random matrices over a prime field the frozen forward pass of the model, written from
   its definition, equals the walk and the sum of the listed terms; exact;
3. *same transformer*: on a real softmax model, logits and scores equal the sum of the SymPy-lambdified terms and
   of the fast evaluation, within the bound for rounding.

If one head of a layer represents the others in these rows, *every head* says which, and checks for every single head
the number of terms, the first terms, and whether forward pass and walk agree over the prime field.

A fourth way is *isolated terms*: the same forward pass, run with only some heads and one source kept, measures each
term by itself (as :func:`symcircuits.isolate` does), exactly.

In addition: *same page* (the printed LaTeX, read back, gives the words that were checked), *types* (every word is
accepted by the rules of :mod:`symcircuits.core.words`), *same names* (labels, orders, counts and numbers of terms
agree with their words) and *basis freedom* (a random
invertible change of basis of the stream and of every head space leaves every end-to-end term unchanged, and
changes a term of the stream like the stream; exact). For polynomial models, without softmax or with
bilinear MLPs, *nothing frozen*: the terms multiplied out, against a pass that computes patterns and MLPs. For a model
also *sum of parts*: after every layer the stream is the one before plus the outputs of heads, b_O and MLP.

A row that checked nothing never passes: it says that it was not run, or it fails. A row with an exception fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from symcircuits.core.architecture import Architecture, Head, architecture_of
from symcircuits.core.expansion import Expansion, expand
from symcircuits.core.programs import made_once
from symcircuits.core.text import amount, argument, entries, flag, need, shown, whole
from symcircuits.core.words import IllTyped
from symcircuits.model import Model, Run, random_model
from symcircuits.model.tokens import read_tokens
from symcircuits.verification.every_head import check_every_head
from symcircuits.verification.isolated import check_isolated
from symcircuits.verification.lean import PROVED_BY_LEAN, check_lean
from symcircuits.verification.names import check_names
from symcircuits.verification.nothing_frozen import check_nothing_frozen, check_unfrozen_types, expands
from symcircuits.verification.proofs import PROVED, check_proved
from symcircuits.verification.result import Check, Report
from symcircuits.verification.rows import (
    LETTERS_LIMIT,
    MAX_TERMS,
    check_algebra,
    check_basis,
    check_lambdified,
    check_layers,
    check_monomials,
    check_polynomial,
    check_transformer,
    check_types,
    named,
)
from symcircuits.verification.same_page import check_page
from symcircuits.verification.same_words import MAX_WORDS, check_words
from symcircuits.work.progress import OnProgress, told_by

__all__ = ["MAX_TERMS", "Check", "Report", "default_targets", "verify"]

MOST = 10**13  # terms listed per target
TOTAL_LIMIT = 20_000  # above this number of terms of all heads together, one head per layer represents its layer
HEADS_LIMIT = 2_000  # and above this number of heads
ROWS = (
    "types", "same names", "same page", "same algebra", "same letters", "same words", "same polynomial",
    "isolated terms", "basis freedom", "same transformer, lambdified", "same transformer", "nothing frozen: types",
    "nothing frozen", "every head", PROVED, PROVED_BY_LEAN,
)  # fmt: skip


def verify(
    subject: Architecture | Model,
    tokens: Any = None,
    *,
    targets: Sequence[str] | None = None,
    seed: int = 0,
    max_terms: int = MAX_TERMS,
    coq: bool = False,
    lean: bool = False,
    progress: OnProgress | bool = None,
) -> Report:
    """Verify the expansions of an architecture, or of a model on tokens, three ways.

    ``targets``: ``"logits"``, ``"stream"``, ``"scores:L1H0"``; by default the logits (the stream without
    unembedding) and the scores of every head; if that is too much, most rows check one head per layer, and the row
    *every head* names these and checks each head. For an architecture the
    third question uses a random model (vocabulary 11, d_model 16, d_head 4, 7 tokens). Raises ValueError on
    invalid targets or tokens, TypeError if it is neither architecture nor model. ``coq``: the row *proved* has Coq
    prove the claims of the derivation of each target, for one head per layer if no targets are given; ``lean``: the row
    *proved by Lean* has Lean 4 with Mathlib prove the same.
    ``progress(row, done, total)`` is called after each row. Source: own derivation; the Schwartz-Zippel lemma.

    >>> import symcircuits as sc
    >>> sc.verify(sc.attention_only((2, 1))).ok
    True
    """
    need("verify", subject, Architecture, Model)
    start, architecture = time.perf_counter(), architecture_of("verify", subject)
    seed, max_terms = whole("seed", seed, 0), whole("max_terms", max_terms, 0)
    flag("coq", coq)
    flag("lean", lean)
    asked, standing = _targets(architecture, targets), None if targets is not None else _standing(architecture)
    with made_once():
        expansions = [expand(architecture, t) for t in asked]
    for e in expansions:
        if MOST <= e.count <= max_terms:
            raise OverflowError(
                f"{amount(e.count, 'term')} of {e.target} are too many to list: give a smaller "
                f"{argument('max_terms')}, and the rows that list none still run"
            )
    run, told = _run(subject, tokens, seed), told_by(progress)
    questions: dict[str, Callable[[list[Expansion]], Check | None]] = {
        "types": lambda g: check_types(g, max_terms),
        "same names": lambda g: check_names(g, seed, max_terms),
        "same page": check_page,
        "same algebra": lambda g: check_algebra(g, max_terms),
        "same letters": lambda g: check_monomials(g, (max_terms, LETTERS_LIMIT)),
        "same words": lambda g: check_words(g, (max_terms, MAX_WORDS)),
        "same polynomial": lambda g: check_polynomial(g, seed, max_terms),
        "isolated terms": lambda g: check_isolated(g, seed, max_terms),
        "basis freedom": lambda g: check_basis(g, seed, max_terms),
        "same transformer, lambdified": lambda g: check_lambdified(g, run, seed, max_terms),
        "same transformer": lambda g: check_transformer(g, run, seed, max_terms),
        "nothing frozen: types": lambda g: check_unfrozen_types(g, max_terms) if expands(g) else None,
        "nothing frozen": lambda g: check_nothing_frozen(g, run, seed, max_terms) if expands(g) else None,
    }
    rows: list[Check] = []
    groups = _groups(expansions)
    for done, (group, row) in enumerate(product(groups, questions), 1):
        if found := _asked(row, named(group), partial(questions[row], group)):
            rows.append(found)
            if told:
                told(f"{found.name}: {found.target}", done, len(groups) * len(questions))
    if standing:
        heads = architecture.all_heads
        every = partial(check_every_head, architecture, heads, standing, seed, told)
        rows += filter(None, [_asked("every head", f"scores of {heads[0]} ... {heads[-1]}", every)])
    to_prove = asked if targets is not None else None
    rows += _proved(PROVED, check_proved, architecture, to_prove, told) if coq else []
    rows += _proved(PROVED_BY_LEAN, check_lean, architecture, to_prove, told) if lean else []
    rows.sort(key=lambda r: ROWS.index(r.name))
    if isinstance(subject, Model) and architecture.n_layers:
        rows += filter(None, [_asked("sum of parts", "stream", partial(check_layers, run))])
    name = str(subject) if isinstance(subject, Architecture) else subject.name
    return Report(name, tuple(rows), time.perf_counter() - start)


def _asked(row: str, target: str, question: Callable[[], Check | None]) -> Check | None:
    """A row; if its check raises an exception, it fails, and names that."""
    try:
        return question()
    except Exception as fault:
        said = str(fault).partition("\n")[0]
        kind = "a term is not a word" if isinstance(fault, (IllTyped, NotImplementedError)) else type(fault).__name__
        return Check(row, target, False, 1, 0, what=f"{kind}: {said}" if said else kind)


def _proved(
    name: str, check: Callable[..., list[Check]], architecture: Architecture, asked: Sequence[str] | None,
    told: OnProgress | None,
) -> list[Check]:  # fmt: skip
    """The rows of a prover; if asking it raises an exception, one that fails.

    If no targets are named, the scores of the last head of each layer represent those of the others.
    """
    done: list[Check] = []
    targets = _one_a_layer(architecture) if asked is None else asked

    def tell(row: Check) -> None:
        done.append(row)
        if told:
            told(f"{row.name}: {row.target}", len(done), len(targets))

    try:
        rows = check(architecture, targets, tell)
        return rows if asked is not None else [_represents_others(architecture, row) for row in rows]
    except Exception as fault:
        said = str(fault).partition("\n")[0]
        return [*done, Check(name, ", ".join(targets), False, 1, 0, what=f"{type(fault).__name__}: {said}")]


def _represents_others(architecture: Architecture, row: Check) -> Check:
    """A row of scores, with the number of heads that were not asked because their claims are the same."""
    layers = [head.layer for head in architecture.all_heads if row.target == f"scores:{head}"]
    if not layers or (n := architecture.heads[layers[0]]) < 2:
        return row
    others = f"the other {n - 1} heads of its layer were" if n > 2 else "the other head of its layer was"
    return replace(row, what=f"{row.what}; {others} not asked: their claims differ only in the name of the head")


def _one_a_layer(architecture: Architecture) -> list[str]:
    """The logits or stream, and the scores of the last head of each layer: the others have the same claims."""
    return architecture.targets([Head(layer, n - 1) for layer, n in enumerate(architecture.heads) if n])


def default_targets(architecture: Architecture) -> list[str]:
    """The logits or stream, and the scores of every head; of one head per layer if all would be too many terms."""
    return architecture.targets(_standing(architecture) or architecture.all_heads)


def _standing(architecture: Architecture) -> tuple[Head, ...]:
    """The last head of each layer, if the heads of all layers have too many terms together; else none."""
    total, last = 0, []
    with made_once():
        for layer, n in enumerate(architecture.heads):
            if n:
                last.append(Head(layer, n - 1))
                total += n * expand(architecture, f"scores:{last[-1]}").count
    return tuple(last) if total > TOTAL_LIMIT or len(architecture.all_heads) > HEADS_LIMIT else ()


def _targets(architecture: Architecture, targets: Sequence[str] | None) -> list[str]:
    if targets is None:
        return default_targets(architecture)
    if isinstance(targets, str) and targets:
        return [targets]
    found = [] if isinstance(targets, str) else entries("targets", targets, "names such as logits and scores:L1H0")
    if not found:
        raise ValueError('no targets: give some of "logits", "stream" and "scores:L1H0", or None for the usual ones')
    return list(dict.fromkeys(map(_name, found)))


def _name(target: Any) -> str:
    if not isinstance(target, str):
        raise TypeError(f"a target must be a name such as logits or scores:L1H0, not {shown(target)}")
    return target


def _groups(expansions: Sequence[Expansion]) -> list[list[Expansion]]:
    """Logits, stream and scores separately: each check runs once for each kind."""
    groups: dict[str, list[Expansion]] = {}
    for e in expansions:
        groups.setdefault(e.target.partition(":")[0], []).append(e)
    return list(groups.values())


def _run(subject: Architecture | Model, tokens: Any, seed: int) -> Run:
    model = subject
    if isinstance(model, Architecture):
        model = random_model(model, seed=seed)
        # A different scale for every head, so another head's scale is detected.
        scales = {head: scale * (1 + i / 10) for i, (head, scale) in enumerate(model.score_scale.items())}
        model = replace(model, score_scale=scales)
        rng, n = np.random.default_rng([seed, 1]), 7
        if tokens is not None:
            n = read_tokens(tokens, model.d_vocab, model.n_context).shape[-1]
        apart = {p.name: rng.standard_normal((n, model.d_model)) for p in model.architecture.parts}
        model = replace(model, attached={**model.attached, **apart})  # a different row for every token
    if tokens is None:
        n = min(model.n_context or 7, 7)
        tokens = np.random.default_rng(seed).integers(0, model.d_vocab, n)
    return model.run(tokens)
