"""The tensor product: how a pattern and a matrix act together, on tokens and on what stands at each."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.words import Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.examples import Literal
from symcircuits.derivation.expressions import stream_symbol
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Apply, Expr, Identity, Product, Sum, Tensor
from symcircuits.derivation.results.factors import embed, head_factors
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Kronecker, NamedMatrix, Vectorised
from symcircuits.derivation.tensors import rules

__all__: list[str] = []


@result(
    "tensor_product",
    "The tensor product of a pattern and a matrix",
    "A pattern times a matrix is one map of streams: the pattern moves rows between tokens, the matrix changes what "
    "stands in each. Such maps add, and multiply slot by slot; on the rows of the stream written one after the other "
    "the map is a Kronecker product.",
    "Notation: Tensor Product / Kronecker Product Notation",
    chapter="The tensor product",
    heading="How a map acts",
    heads=(1, 1),
    names_model=False,
    conventions=(
        "`h` and `g` are any heads, `g` in a later layer than `h`. In kron(a, b) every entry of a stands as that "
        "entry times b; vec puts the rows of a matrix, or its columns, into one column. In NumPy the map is "
        "A[:, :, None, None] * W[None, None, :, :].",
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
        "With the identity in one slot it acts on every token alone, or between tokens alone; the two commute, and one "
        "after the other they are the whole map.",
        how="indices",
    )
    both = Word((*b.factors, *x.factors, *v.T.factors))
    yield Draft(
        "distributing",
        (Claim((Apply(Sum((Tensor((a, w)), Tensor((b, v)))), (x,)), Sum((acted, both)))),),
        "A sum of maps is the sum of what they do.",
    )
    yield Draft(
        "identity",
        (
            Claim((Product((Kronecker(a, w), Vectorised(x))), Vectorised(acted))),
            Claim((Product((Kronecker(w, a), Vectorised(x, "columns"))), Vectorised(acted, "columns"))),
        ),
        "As a matrix it is the Kronecker product, in this order where rows stand one after the other, and in the other "
        "order where columns do.",
    )


@result(
    "convolution",
    "Heads that attend to fixed offsets are a convolution",
    "Whatever reads the stream after a layer reads a sum of maps, one for each head and one for the stream that passes "
    "by; where every pattern is a shift by a number of tokens, that sum is a convolution.",
    "Virtual Weights and Convolution-like Structure",
    chapter="Heads",
    heading="Generic virtual weights, and convolutions",
    heads=(3, 1),
    conventions=(
        "`Z` moves every token on by one place: the ones stand below the diagonal. Held fixed: the attention patterns; "
        "in a convolution they are the powers of `Z`. There is no layer norm and no MLP.",
    ),
)
def convolution(frame: Frame) -> Iterator[Draft]:
    """Identity I26."""
    heads, late, x = [head_factors(frame, 0, i) for i in range(3)], head_factors(frame, 1), embed()
    ov = [Word((h["W_O"], h["W_V"])) for h in heads]
    for glyph in ("W_V", "W_Q"):
        read = late[glyph]
        maps = [Tensor((Identity(), Word((read,))))]
        maps += [Tensor((Word((h["A"],)), Word((read, *w.factors)))) for h, w in zip(heads, ov, strict=True)]
        yield Draft(
            "mixed product",
            (Claim((Word((stream_symbol(1), read.T)), Apply(Sum(tuple(maps)), (x,)))),),
            f"What `{read.text}` reads: its own matrix for what passes the layer by, and a virtual weight for each "
            "head, which may be a virtual head too.",
        )
    z = NamedMatrix("Z", "shift")
    shifts: list[Expr] = [Identity(), z, Product((z, z))]
    kernel = Sum(tuple(Tensor((shift, w)) for shift, w in zip(shifts, ov, strict=True)))
    moved = [Product((*(z,) * n, x, w.T)) for n, w in enumerate(ov)]
    yield Draft(
        "identity",
        (Claim((Apply(kernel, (x,)), Sum(tuple(moved)))),),
        "Where the heads attend to the token itself, to the one before and to the one before that, every token gets "
        "the same sum over its neighbours: a convolution, whose weights are the OV matrices.",
    )
    steps = Literal((("0", "0", "0"), ("1", "0", "0"), ("0", "1", "0")))
    column = Literal((("2",), ("3",), ("5",)))
    yield Draft(
        "definition",
        (
            Claim((Product((steps, column)), Literal((("0",), ("2",), ("3",))))),
            Claim((Product((steps, steps, column)), Literal((("0",), ("0",), ("2",))))),
        ),
        "In numbers, `Z` for three tokens: each gets what the one before it had, and the first gets nothing.",
        how="exact",
    )
    w, v = ov[1], Word((late["W_O"], late["W_V"]))
    yield Draft(
        "mixed product",
        (Claim((Apply(Product((Tensor((z, v)), Tensor((z, w)))), (x,)), Product((z, z, x, w.T, v.T)))),),
        "A head of a later layer that attends to the token before, after one that does: the offsets add.",
    )
