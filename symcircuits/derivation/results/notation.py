"""The tensor product: how a pattern and a matrix act together, on tokens and on what stands at each."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.words import Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Apply, Identity, Product, Sum, Tensor
from symcircuits.derivation.results.factors import embed, head_factors
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Kronecker, Vectorised
from symcircuits.derivation.tensors import rules

__all__: list[str] = []


@result(
    "tensor_product",
    "The tensor product of a pattern and a matrix",
    "The tensor product of a pattern and a matrix is one map on streams: the pattern moves rows between tokens, and "
    "the matrix changes each row. Such maps add, and they multiply slot by slot; on the stream written as one column, "
    "row after row, the map is a Kronecker product.",
    "Notation: Tensor Product / Kronecker Product Notation",
    chapter="The tensor product",
    heading="How a map acts",
    heads=(1, 1),
    names_model=False,
    conventions=(
        "`h` and `g` are any heads, `g` in a later layer than `h`, in a model with or without positions. In kron(a, "
        "b) every entry of a is replaced by that entry times b; vec writes the rows of a matrix, or its columns, as "
        "one column. In NumPy the map is A[:, :, None, None] * W[None, None, :, :].",
    ),
)
def tensor_product(frame: Frame) -> Iterator[Draft]:
    """Identities I5 and I6."""
    yield from rules(frame)
    (h, g), x = (head_factors(frame, layer, name=name) for layer, name in enumerate("hg")), embed()
    (a, w), (b, v) = ((Word((f["A"],)), Word((f["W_O"], f["W_V"]))) for f in (h, g))
    across, within = Tensor((a, Identity())), Tensor((Identity(), w))
    acted = Word((*a.factors, *x.factors, *w.T.factors))
    yield Draft(
        "identity",
        (
            Claim((Apply(within, (x,)), Word((*x.factors, *w.T.factors)))),
            Claim((Apply(across, (x,)), Word((*a.factors, *x.factors)))),
            Claim((Product((across, within)), Product((within, across)), Tensor((a, w)))),
        ),
        "With the identity in one slot, it acts only within each token or only between tokens; the two commute, and "
        "their product is the whole map.",
        how="indices",
    )
    both = Word((*b.factors, *x.factors, *v.T.factors))
    yield Draft(
        "distributing",
        (Claim((Apply(Sum((Tensor((a, w)), Tensor((b, v)))), (x,)), Sum((acted, both)))),),
        "A sum of maps acts as the sum of their results.",
    )
    yield Draft(
        "identity",
        (
            Claim((Product((Kronecker(a, w), Vectorised(x))), Vectorised(acted))),
            Claim((Product((Kronecker(w, a), Vectorised(x, "columns"))), Vectorised(acted, "columns"))),
        ),
        "As a matrix it is the Kronecker product, in this order if rows are written one after the other, and in the "
        "other order if columns are.",
    )
