"""The rows of ``verify``: each compares terms with something independent of them, and says what it compared.

Every row accepts ``terms`` (or ``values``), so tests can pass a corrupted expansion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from symcircuits.arrays.rings import PrimeField, transpose
from symcircuits.core.expansion import Expansion, Term
from symcircuits.core.programs import Readout
from symcircuits.core.rules import check_finished
from symcircuits.core.text import amount
from symcircuits.core.words import IllTyped
from symcircuits.model import Run, frozen
from symcircuits.sympy_layer.lambdify import lambdify_words
from symcircuits.sympy_layer.streams import polynomial_terms, symbolic_terms, tally, word_tokens
from symcircuits.values.closure import layer_closures, parts_named, worst_closure
from symcircuits.values.evaluate import compare, evaluate
from symcircuits.values.finite import too_large
from symcircuits.verification.prime_field import (
    Instance,
    change_of_basis,
    degrees,
    instance,
    sizes_for,
    walked,
    walks,
    word_values,
)
from symcircuits.verification.result import Check

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "check_algebra", "check_basis", "check_lambdified", "check_layers", "check_monomials", "check_polynomial",
    "check_transformer", "check_types", "draw_seed", "frozen_value", "left_out", "named",
    "spell",
]  # fmt: skip

MAX_TERMS = 5_000  # default number of terms per target that are listed, and multiplied out by SymPy
LETTERS_LIMIT = 100_000  # above MAX_TERMS and up to here SymPy's commuting polynomials are used
LETTERS_WORK = 4_000_000  # terms times heads
TRIALS = 2
NOTHING = "no term was looked at"


def named(group: Sequence[Expansion]) -> str:
    kind = group[0].target.partition(":")[0]
    names = [e.target.partition(":")[2] for e in group]
    if kind == "readout":
        return "readout " + (", ".join(names[:3]) + (f", ... ({len(names)} readouts)" if len(names) > 3 else ""))
    if kind != "scores":
        return kind
    return "scores of " + (", ".join(names) if len(names) <= 3 else f"{names[0]} ... {names[-1]} ({len(names)} heads)")


# ------------------------------------------------------------------------------------------------- types
def check_types(group: Sequence[Expansion], limit: int = MAX_TERMS, terms: Iterable[Term] | None = None) -> Check:
    """Whether the rules accept every listed word."""
    chosen, left = _within(group, limit)
    if not chosen:
        return _not_run("types", group, limit)
    seen, faults = 0, list[str]()
    for term in terms if terms is not None else (t for e in chosen for t in e):
        seen += 1
        try:
            arch = group[0].architecture
            check_finished(term.word, scaled=arch.scale, multipliers=arch.multipliers)
        except IllTyped as fault:
            faults.append(str(fault))
    faults += [] if seen else [f"{named(group)}: {NOTHING}"]
    what = f"{amount(seen, 'word')} accepted by the rules of types" + left_out(left)
    return Check("types", named(group), not faults, len(faults), 0, what=faults[0] if faults else what)


def _within(group: Sequence[Expansion], limit: int) -> tuple[list[Expansion], list[Expansion]]:
    return [e for e in group if e.count <= limit], [e for e in group if e.count > limit]


def left_out(left: Sequence[Expansion]) -> str:
    if not left:
        return ""
    more = f"{left[0].target}" + (f" and {len(left) - 1} more" if len(left) > 1 else "")
    return f"; not {more}: above the limit"


def _not_run(name: str, group: Sequence[Expansion], limit: int) -> Check:
    smallest = min(e.count for e in group)
    return Check(
        name, named(group), None, None, None, what=f"{amount(smallest, 'term')} or more, the limit is {limit:,}"
    )


# ------------------------------------------------------------------------------------------ same algebra
def spell(term: Term) -> tuple[tuple[str, ...], str, tuple[int, ...]]:
    """A term in the form that the first question compares: its letters in order, composition type and orders."""
    return word_tokens(term.word), term.composition, term.orders


def check_algebra(
    group: Sequence[Expansion], limit: int = MAX_TERMS, terms: Callable[[Expansion], Iterable[Term]] = iter
) -> Check:
    """Whether SymPy's own expansion of the recursion has exactly the enumeration's terms, including types."""
    chosen, left = _within(group, limit)
    if not chosen:
        return _not_run("same algebra", group, limit)
    differing, seen, example = 0, 0, ""
    for e in chosen:
        sympy_terms = tally(symbolic_terms(e.architecture, e.target))
        ours = Counter(spell(t) for t in terms(e))
        extra, missing = ours - sympy_terms, sympy_terms - ours
        differing += sum(extra.values()) + sum(missing.values()) + (not sympy_terms)
        example = example or ("" if sympy_terms else f"{e.target}: SymPy found no term")
        seen += sum(sympy_terms.values())
        if (extra or missing) and not example:
            kind, found = ("missing here", missing) if missing else ("not in SymPy's result", extra)
            letters, composition, _ = next(iter(found))
            example = f"{e.target}: {kind}: {' @ '.join(letters)} ({composition})"
    what = f"SymPy multiplied the recursion out: {amount(seen, 'term')}, the same with the same types" + left_out(left)
    return Check(
        "same algebra", named(group), differing == 0, differing, 0, what=example or what, details={"terms": seen}
    )


def check_monomials(
    group: Sequence[Expansion],
    limits: tuple[int, int] = (MAX_TERMS, LETTERS_LIMIT),
    terms: Callable[[Expansion], Iterable[Term]] = iter,
) -> Check | None:
    """Above the limit for noncommuting letters: the same terms, by SymPy's commuting polynomials.

    This ignores the order of the letters of a term. None if there is nothing of that size.
    """
    sized = [e for e in group if limits[0] < e.count <= limits[1]]
    chosen = [e for e in sized if e.count * _branches_in(e) <= LETTERS_WORK]
    if sized and not chosen:
        said = f"polynomials in {_branches_in(sized[0]):,} letters or more"
        what = f"{amount(sized[0].count, 'term')} are too many for {said}"
        return Check("same letters", named(sized), None, None, None, what=what)
    if not chosen:
        return None
    differing, seen = 0, 0
    for e in chosen:
        found = Counter({(key, *_type(key, e)): n for key, n in polynomial_terms(e.architecture, e.target).items()})
        ours = Counter((tuple(sorted(word_tokens(t.word))), t.composition, t.orders) for t in terms(e))
        seen += sum(found.values())
        differing += sum((ours - found).values()) + sum((found - ours).values()) + (not found)
    terms_seen = amount(seen, "term")
    what = f"SymPy's commuting polynomials: {terms_seen}, the same letters and types (their order is not checked here)"
    if differing:
        what = f"SymPy's commuting polynomials have {terms_seen}, and {differing:,} differ from the enumeration"
    return Check("same letters", named(chosen), differing == 0, differing, 0, what=what, details={"terms": seen})


def _branches_in(e: Expansion) -> int:
    """The number of branches in its words, each with letters: SymPy stores a number per letter for each term."""
    return sum(len(layer.branches) for side in e.readout.sides for layer in side)


def _type(letters: tuple[str, ...], e: Expansion) -> tuple[str, tuple[int, ...]]:
    """Composition type and orders, from the letters of SymPy's monomial: patterns, and transposed patterns."""
    patterns = [letter for letter in letters if letter.startswith("A[")]
    keys = sum(letter.endswith(".T") for letter in patterns)
    if not e.readout.bilinear:
        return ("V" if len(patterns) > 1 else "none"), (len(patterns),)
    queries = len(patterns) - keys
    return ("Q" * (queries > 0) + "K" * (keys > 0)) or "none", (queries, keys)


# --------------------------------------------------------------------------------------- same polynomial
def frozen_value(target: Readout, found: Any) -> npt.NDArray[Any]:
    if target.target == "logits":
        return found.logits  # type: ignore[no-any-return]
    if target.target.startswith("readout:"):
        return found.readouts[target.target.partition(":")[2]]  # type: ignore[no-any-return]
    return found.streams[-1] if target.target == "stream" else found.scores[str(target.head)]  # type: ignore[no-any-return]


def check_polynomial(
    group: Sequence[Expansion],
    seed: int = 0,
    limit: int = MAX_TERMS,
    terms: Callable[[Expansion], Iterable[Term]] = iter,
    trials: int = TRIALS,
) -> Check:
    """Whether forward pass, walk and sum of the listed terms are one polynomial, over a prime field."""
    if trials < 1:
        raise ValueError(f"trials must be 1 or more, not {trials}: without trials nothing is checked")
    ring, faults = PrimeField(), list[str]()
    differing, listed = 0, 0
    sizes = sizes_for([e.readout for e in group])
    for trial, k in product(range(trials), sorted(set(sizes))):
        at = instance(group[0].architecture, k, draw_seed(seed, trial), ring)
        forward, shared = frozen(group[0].architecture, at.matrices, ring), walks(at)
        for e in (e for e, size in zip(group, sizes, strict=True) if size == k):
            model = frozen_value(e.readout, forward)
            message = f"{e.target}: the walk differs from the forward pass"
            differing += _differ(model, walked(e.readout, at, shared), message, faults)
            if e.count > limit:
                continue
            total = ring.zeros((k, k))
            try:
                for values in word_values((t.word for t in terms(e)), at):
                    total = ring.add(total, values.sum(axis=0) % ring.p)
                    listed += len(values) if not trial else 0
            except IllTyped as fault:
                faults.append(f"{e.target}: a term is not a word: {fault}")
            message = f"{e.target}: the sum of the terms differs from the forward pass"
            differing += _differ(model, total, message, faults)
    top = max(degrees([e.readout for e in group]))
    not_listed = left_out([e for e in group if e.count > limit])
    what = f"forward pass = walk = sum of {listed:,} listed terms, exactly" + not_listed
    if not listed:
        what = "forward pass = walk, exactly; too many terms to list"
    details = {
        "p": ring.p, "k": [min(sizes), max(sizes)], "degree": top, "trials": trials,
        "false_pass": (top / ring.p) ** trials, "seed": seed, "listed": listed,
    }  # fmt: skip
    return Check(
        "same polynomial", named(group), not faults, differing, 0, what=faults[0] if faults else what, details=details
    )


def _differ(a: npt.NDArray[Any], b: npt.NDArray[Any], message: str, faults: list[str]) -> int:
    if a.shape != b.shape:
        faults.append(message)
        return int(a.size)
    count = int(np.count_nonzero(a != b))
    if count:
        faults.append(f"{message} in {count} of {a.size} entries")
    return count


def draw_seed(seed: int, trial: int) -> int:
    return int(np.random.SeedSequence([seed, trial]).generate_state(1)[0])


def check_basis(
    group: Sequence[Expansion],
    seed: int = 0,
    limit: int = MAX_TERMS,
    terms: Callable[[Expansion], Iterable[Term]] = iter,
) -> Check:
    """Whether a random change of basis of the stream and of every head space leaves every term unchanged.

    A term of the stream is a vector of the stream: it changes with the basis like every such vector.
    """
    seen, walks, changed = 0, 0, list[str]()
    pairs: dict[int, tuple[Instance, Instance]] = {}
    for e, k in zip(group, sizes_for([e.readout for e in group]), strict=True):
        if k not in pairs:
            at = instance(e.architecture, k, draw_seed(seed, 100))
            pairs = {k: (at, change_of_basis(at, draw_seed(seed, 101)))}  # for all heads of a layer together
        (at, moved), numbered = pairs[k], iter(terms(e))
        if e.count > limit:
            walks += 1
            old, new = _in_basis(e, walked(e.readout, at), moved), walked(e.readout, moved)
            _differ(old, new, f"{e.target}: the sum changes with the basis", changed)
            continue
        before_this = seen
        before, after = (word_values((t.word for t in terms(e)), where) for where in (at, moved))
        for a, b in zip(before, after, strict=True):
            for same, term in zip((_in_basis(e, a, moved) == b).all(axis=(1, 2)), numbered, strict=False):
                seen += 1
                if not same:
                    changed.append(f"{e.target}: {term.word.text} changes with the basis")
        changed += [f"{e.target}: {NOTHING}"] if seen == before_this else []
    what = [amount(seen, "term")] if seen else []
    what += [f"{amount(walks, 'sum')} of too many terms to list"] if walks else []
    kept = "changed with the stream alone" if group[0].target == "stream" else "unchanged"
    unchanged = " and ".join(what) + f" {kept}, exactly, by random bases of the stream and all head spaces"
    message = changed[0] if changed else unchanged
    return Check("basis freedom", named(group), not changed, len(changed), 0, what=message, details={"seed": seed})


def _in_basis(e: Expansion, values: npt.NDArray[Any], moved: Instance) -> npt.NDArray[Any]:
    """The values expected after a change of basis: ``X basis^T`` for the stream, unchanged for all others."""
    if e.target != "stream" or moved.basis is None:
        return values
    return moved.ring.matmul(values, transpose(moved.basis))


# -------------------------------------------------------------------------------------- same transformer
def check_lambdified(
    group: Sequence[Expansion],
    run: Run,
    seed: int = 0,
    limit: int = MAX_TERMS,
    terms: Callable[[Expansion], Iterable[Term]] = iter,
) -> Check:
    """Whether the SymPy-lambdified terms add up to what the model computes."""
    chosen, left = _within(group, limit)
    if not chosen:
        return _not_run("same transformer, lambdified", group, limit)

    def values(e: Expansion) -> Iterator[Any]:
        yield from lambdify_words([t.word for t in terms(e)])(run.arrays)

    what = "the sum of the SymPy-lambdified terms" + left_out(left)
    return _closures("same transformer, lambdified", group, chosen, run, values, what, seed, fused=True)


def check_transformer(
    group: Sequence[Expansion],
    run: Run,
    seed: int = 0,
    limit: int = MAX_TERMS,
    values: Callable[[Expansion], Iterator[Any]] | None = None,
) -> Check:
    """Whether the fast evaluation adds up to what the model computes, term by term or by the walk's sums."""

    def fast(e: Expansion) -> Iterator[Any]:
        found = evaluate(e, run)
        return iter(found) if e.count <= limit else (value for _, value in found.classes())

    walks = [e for e in group if e.count > limit]
    what = "the fast evaluation" + (f" ({len(walks)} of {len(group)} by the walk)" if walks else " of every term")
    return _closures("same transformer", group, group, run, values or fast, what, seed)


def _closures(
    name: str,
    group: Sequence[Expansion],
    chosen: Sequence[Expansion],
    run: Run,
    values: Callable[[Expansion], Iterator[Any]],
    what: str,
    seed: int,
    fused: bool = False,
) -> Check:
    found = [compare(e.target, run, values(e), e.count <= MAX_TERMS, fused) for e in chosen]
    worst = max(found, key=lambda c: np.inf if not c.passed else (c.error / c.bound if c.bound else 0.0))
    details = {"tokens": list(np.shape(run.tokens)), "dtype": str(run.dtype), "worst": worst.target, "seed": seed}
    passed = all(c.passed for c in found)
    kind = "softmax model" if run.model.architecture.softmax else "model"
    message = f"{kind} = {what}" if passed else f"{worst.target}: the model differs from {what}"
    if not np.isfinite([worst.error, worst.bound]).all():
        message += f" ({too_large(worst.target, run)})"
    return Check(name, named(group), passed, worst.error, worst.bound, what=message, details=details)


def check_layers(run: Run) -> Check:
    """Whether the stream after every layer is the one before plus the outputs of its heads, b_O and MLP."""
    layers = layer_closures(run)
    worst = worst_closure(layers)
    if worst is None:
        return Check("sum of parts", "stream", None, None, None, what="there are no layers")
    message = f"after each of {amount(len(layers), 'layer')}: the stream before + {parts_named(run)}"
    if not worst.passed:
        message = f"{worst.target.replace(':', ' ')}: the stream after it is not the one before + {parts_named(run)}"
    details = {"tokens": list(np.shape(run.tokens)), "dtype": str(run.dtype), "worst": worst.target}
    return Check("sum of parts", "stream", worst.passed, worst.error, worst.bound, what=message, details=details)
