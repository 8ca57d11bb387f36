"""Checks of the claims of a result: exactly over the prime field with what is given, by SymPy, or on a real model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Any

from symcircuits.arrays.rings import Array
from symcircuits.core.words import Factor, Word
from symcircuits.derivation.claim_checker import ClaimChecker
from symcircuits.derivation.claims import KINDS, Check, Claim, DerivationError, Draft
from symcircuits.derivation.examples import Elementwise, Literal, TinyModel, TwoLayers
from symcircuits.derivation.expressions import is_recursion
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Number, Product, Special, Spelled, Sum, Target, parts
from symcircuits.derivation.other_runs import Rebased
from symcircuits.derivation.real_models import SIZE, RealModel, RealModelRun
from symcircuits.derivation.specials import Inverse, NamedMatrix, Scaled, SquaredNorm, Trace
from symcircuits.derivation.values import Instance

__all__ = ["GIVEN", "ResultChecker"]

GIVEN = ("rows sum to one", "causal", "narrow heads", "equal ones", "one-hot tokens")
HEAD_WIDTH = 2  # of heads that are narrow: their other rows and columns are zero


class ResultChecker(ClaimChecker):
    """Checks the claims of one result, which may use what is given of its matrices."""

    kinds = (*KINDS, "identity", "counterexample")

    def __init__(
        self,
        frame: Frame,
        drafts: Sequence[Draft],
        given: tuple[str, ...] = (),
        seed: int = 0,
        real_model: RealModel | None = None,
    ) -> None:
        super().__init__(frame, seed)
        self.given, self.real_model = given, real_model
        sides = [side for draft in drafts if draft.how == "values" for claim in draft.claims for side in claim.sides]
        self.largest = max(map(self.size, sides), default=1)

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """One instance for each choice of head counts, with what is given."""
        rows, causal, narrow, ones, tokens = (name in self.given for name in GIVEN)
        k = max(self.largest // 2 + 1, HEAD_WIDTH + 2)
        return tuple(
            Instance(
                a, self.frame.target, k, self.seed, self.trials,
                rows_sum_to_one=rows, causal=causal, equal_ones=ones, tokens_sum_to_one=tokens,
                d_head=HEAD_WIDTH if narrow else 0,
            )
            for a in self.frame.instances
        )  # fmt: skip

    @property
    def _sums_in_sympy(self) -> bool:
        """Never: results speak of other runs, of what is given of the matrices and of numbers made of them."""
        return False

    def size(self, expr: Expr) -> int:
        """The degree of the entries of an expression as polynomials in what is drawn, an inverse counted once."""
        match expr:
            case Word():
                return sum(map(self._letter, expr.factors)) + len(expr.scales)
            case Spelled():
                return self.size(expr.word)
            case Product():
                return sum(map(self.size, expr.factors)) + len(expr.scales)
            case Sum():
                return max(map(self.size, expr.terms), default=0)
            case Target():
                return self.frame.letters + 1
            case Special():
                return expr.size(self.size)
            case _:
                return sum(map(self.size, parts(expr)))

    def _letter(self, factor: Factor) -> int:
        return self.frame.letters if is_recursion(factor) else 1

    # ------------------------------------------------------------------------------------------------ checks
    def _check_values(self, name: str, claim: Claim, draft: Draft) -> None:
        try:
            self._check_relation(name, claim, draft)
        except ValueError as fault:  # matrices that do not fit, or one without an inverse
            raise DerivationError(f"{name} fails: a side cannot be evaluated: {fault}") from None

    def _check_relation(self, name: str, claim: Claim, draft: Draft) -> None:
        if claim.relation == "=":
            super()._check_values(name, claim, draft)
            return
        for instance in self.instances:
            first = instance.value(claim.lhs)
            for side in claim.sides[1:]:
                if not _holds(first, instance.value(side), claim.relation):
                    raise DerivationError(f"{name} fails{self._at(instance)}: it is not true that {claim.text}")

    @cached_property
    def _run(self) -> RealModelRun:
        assert self.real_model is not None, "a claim about a real model needs one"
        return self.real_model.run(self.frame.architecture.heads, self.seed)

    def _check_model(self, name: str, claim: Claim, draft: Draft) -> None:
        """Both sides on a run of a real model, up to rounding."""
        if claim.relation != "=":
            raise DerivationError(f"{name} claims what is not an equation")
        first = self._run.value(claim.lhs)
        for side in claim.sides[1:]:
            if not self._run.agrees(first, self._run.value(side)):
                raise DerivationError(
                    f"{name} fails: the two sides differ on {self.real_model and self.real_model.words}"
                )

    def _check_exact(self, name: str, claim: Claim, draft: Draft) -> None:
        try:
            first, *others = map(_exact, claim.sides)
        except ValueError as fault:  # matrices that do not fit
            raise DerivationError(f"{name} fails: a side cannot be evaluated: {fault}") from None
        for other in others:
            fits = first.shape == other.shape
            if not (fits and (_zero if claim.relation == "=" else _apart)(first - other)):
                raise DerivationError(f"{name} fails: it is not true that {claim.text}")

    def _record(self, draft: Draft) -> Check:
        claims = len(draft.claims)
        if draft.how == "exact":
            return Check("exact", claims, also=("sympy",))
        if draft.how == "model" and self.real_model is not None:
            return Check("model", claims, SIZE, 1, seed=self.seed, also=(self.real_model.words,))
        found = super()._record(draft)
        if draft.how == "count":
            return Check("count", claims, head_counts=found.head_counts, also=("listed",))
        if draft.how != "values":
            return found
        k = self.instances[0].k
        inverses = max(sum(map(_inverses, claim.sides)) for claim in draft.claims)
        degree = max(self.size(side) for claim in draft.claims for side in claim.sides)
        degree += 2 * k * inverses + 1 if inverses else 0
        given = self.given if not inverses else (*self.given, "invertible")
        return Check(
            "values",
            claims,
            k=k,
            trials=found.trials,
            prime=found.prime,
            seed=self.seed,
            degree=degree,
            head_counts=found.head_counts,
            also=found.also,
            given=given,
            relations=tuple(claim.relation for claim in draft.claims),
        )


def _holds(a: Array, b: Array, relation: str) -> bool:
    """``!=`` asks that the sides differ on every draw, ``<=`` that no entry is larger."""
    if relation == "<=":
        return bool((a <= b).all())
    return a.shape == b.shape and all(bool((x != y).any()) for x, y in zip(a, b, strict=True))


def _inverses(expr: Expr) -> int:
    """How many inverses of drawn matrices stand in an expression."""
    match expr:
        case Inverse() | NamedMatrix(kind="orthogonal"):
            return 1
        case Rebased():
            return 12
        case SquaredNorm():
            return 2 * _inverses(expr.body)
        case _:
            return sum(map(_inverses, parts(expr)))


def _zero(difference: Any) -> bool:
    """Whether a matrix is zero, whatever its letters stand for."""
    from sympy import exp, expand, simplify

    if _apart(difference):
        return False
    sums = difference.applyfunc(lambda entry: expand(entry.rewrite(exp)))  # sines and cosines as exponentials
    return sums.is_zero_matrix is True or simplify(difference).is_zero_matrix is True


def _apart(difference: Any) -> bool:
    """Whether a matrix is far from zero where its letters stand for some numbers."""
    from sympy import N, Rational

    numbers = {letter: Rational(n, 7) for n, letter in enumerate(sorted(difference.free_symbols, key=str), 2)}
    return bool(max(abs(N(entry.subs(numbers))) for entry in difference) > 1e-6)


def _exact(expr: Expr) -> Any:
    match expr:
        case Literal() | TinyModel() | TwoLayers() | Elementwise():
            return expr.exact()
        case Product():
            first, *others = map(_exact, expr.factors)
            return reduce(lambda a, b: a * b, others, first)
        case Sum():
            first, *others = map(_exact, expr.terms)
            return sum(others, first)
        case Number():
            from sympy import Matrix

            return Matrix([[expr.value]])
        case Trace():
            from sympy import Matrix

            return Matrix([[_exact(expr.body).trace()]])
        case Scaled() if expr.scalar.isdecimal():
            return int(expr.scalar) * _exact(expr.body)
        case _:
            raise TypeError(f"{type(expr).__name__} cannot be computed exactly")
