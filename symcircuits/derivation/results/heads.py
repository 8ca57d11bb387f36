"""Results about heads: they add, they compose to heads, they write what others read."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.programs import embedding
from symcircuits.core.words import Factor, Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import plus
from symcircuits.derivation.examples import Literal
from symcircuits.derivation.expressions import stream_symbol
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Apply, Expr, Identity, Product, Sum, Target, Tensor, Transposed
from symcircuits.derivation.results.factors import embed, head_factors, ones, read_by
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Beside, HeadWidth, Masked, Named, NamedMatrix, Rank

__all__: list[str] = []


def _result_of(h: dict[str, Factor], stream: Word, label: str) -> Named:
    """``r^h = A^h X W_V^T``, what a head moves."""
    return Named(f"r[{label}]", rf"r^{{\mathrm{{{label}}}}}", Word((h["A"], *stream.factors, h["W_V"].T)))


@result(
    "concatenated_heads",
    "Concatenated heads times one output matrix are a sum of heads",
    "Heads placed side by side and multiplied by one output matrix give the sum of the heads, each with its block of "
    "the matrix.",
    "Attention Heads are Independent and Additive",
    chapter="Heads",
    heading="Concatenated heads are a sum of heads",
    heads=(3,),
    target="stream",
)
def concatenated_heads(frame: Frame) -> Iterator[Draft]:
    """Identities I3 and I4."""
    heads = [head_factors(frame, 0, i) for i in range(3)]
    any_head = head_factors(frame, 0, name="h")
    a, v, o = (Word((any_head[g],)) for g in ("A", "W_V", "W_O"))
    whole = Tensor((a, Word((any_head["W_O"], any_head["W_V"]))))
    steps = Product((Tensor((Identity(), o)), Tensor((a, Identity())), Tensor((Identity(), v))))
    yield Draft(
        "mixed product",
        (Claim((steps, whole)), Claim((Apply(whole, (embed(),)), _acts(any_head)))),
        "A head in three steps, for any head `h`: values are computed for every token, moved between tokens, and "
        'written to the stream (paper, "Attention Heads as Information Movement").',
        how="indices",
    )
    moved = [_result_of(h, embed(), f"L0H{i}") for i, h in enumerate(heads)]
    claims = tuple(Claim((r, r.body)) for r in moved)
    yield Draft("definition", claims, "What each head moves, one row of values for each token.")
    side, blocks = Beside(tuple(moved)), Beside(tuple(Word((h["W_O"],)) for h in heads))
    w_o = Named("W_O", "W_O", blocks, flips=True, glyph="W_O")
    yield Draft(
        "definition",
        (Claim((w_o, blocks)),),
        "The output matrix of the layer as one matrix: the columns that read the values of one head are adjacent.",
    )
    products = [Product((r, Word((h["W_O"].T,)))) for r, h in zip(moved, heads, strict=True)]
    yield Draft(
        "identity",
        (Claim((Product((side, Transposed(w_o))), Product((side, Transposed(blocks))), Sum(tuple(products)))),),
        "Matrices in blocks multiply block by block.",
    )
    added = Sum((embed(), *map(_acts, heads)))
    yield Draft(
        "substitution",
        (Claim((Target("stream"), Sum((embed(), *products)), added)),),
        "So the layer adds to the stream the sum of its heads, each with `W_OV = W_O W_V`; no head depends on another.",
        complete=True,
    )


def _acts(h: dict[str, Factor]) -> Word:
    return Word((h["A"], *embedding(), h["W_V"].T, h["W_O"].T))


@result(
    "virtual_heads",
    "A product of heads is a head",
    "A product of heads acts as one head: its pattern is the product of the patterns, causal with rows that sum to "
    "one, and its OV matrix has rank at most `d_head`.",
    "Virtual Attention Heads",
    chapter="Heads",
    heads=(1, 1, 1),
    given=("rows sum to one", "causal", "narrow heads"),
    names_model=False,
    conventions=(
        "Heads `h`, `g`, `f` are any heads of three layers, `h` in the first of them, in a model with or without "
        "positions. `M` is the causal mask, one on and below the diagonal; multiplied entry by entry, it keeps these "
        "entries.",
    ),
)
def virtual_heads(frame: Frame) -> Iterator[Draft]:
    """Identities I6 and I7."""
    h, g, f = (head_factors(frame, layer, name=name) for layer, name in enumerate("hgf"))
    ov = [Word((x["W_O"], x["W_V"])) for x in (f, g, h)]
    a = [Word((x["A"],)) for x in (f, g, h)]
    tensors = [Tensor(pair) for pair in zip(a, ov, strict=True)]

    def joined(words: list[Word]) -> Word:
        return Word(tuple(x for w in words for x in w.factors))

    yield Draft(
        "mixed product",
        tuple(Claim((Product(tuple(tensors[i:])), Tensor((joined(a[i:]), joined(ov[i:]))))) for i in (1, 0)),
        'Tensors multiply slot by slot (paper, "Notation": mixed-product property); `g` after `h` is one map of the '
        "same form, and so is `f` after both.",
        how="indices",
    )
    one = ones()
    yield Draft(
        "identity",
        (
            Claim((Word((*a[2].factors, *one.factors)), one)),
            Claim((Word((*joined(a[1:]).factors, *one.factors)), Word((*a[1].factors, *one.factors)), one)),
            Claim((Word((*joined(a).factors, *one.factors)), one)),
        ),
        "Rows that sum to one, `A 1 = 1`, still do so in a product. (Nonnegative entries stay nonnegative, as sums of "
        "products.)",
    )
    yield Draft(
        "identity",
        tuple(Claim((Masked(joined(a[i:])), joined(a[i:]))) for i in (2, 1, 0)),
        "A product of causal patterns is causal: no token sees what comes after it.",
    )
    yield Draft(
        "identity",
        tuple(Claim((Rank(joined(ov[i:])), HeadWidth()), "<=") for i in (2, 1, 0)),
        "The values pass through `d_head` dimensions in every head, and a product has no larger rank than a factor.",
    )


@result(
    "identity_heads",
    "With identity heads, the direct path is not a special case",
    "A head whose pattern and OV matrix are the identity passes the stream on; with one in each layer, every term "
    "takes one head in each layer, and the direct path is the term that takes only identity heads.",
    "Identity Attention Heads?",
    chapter="Heads",
    heading="Identity heads",
    heads=(1, 1),
    conventions=("`Id (x) Id` is the identity head: its pattern and its OV matrix are the identity.",),
)
def identity_heads(frame: Frame) -> Iterator[Draft]:
    """Identity I27."""
    t, w_e_t = embedding()
    first, last = (Tensor((Identity(), Word((w,)))) for w in (w_e_t.T, read_by(frame)))
    same = Tensor((Identity(), Identity()))
    h, g = (head_factors(frame, layer) for layer in (0, 1))
    slots = [(Word((x["A"],)), Word((x["W_O"], x["W_V"]))) for x in (h, g)]
    heads = [Tensor(pair) for pair in slots]
    yield Draft(
        "mixed product",
        (
            Claim((Apply(same, (embed(),)), embed())),
            *(Claim((Product(pair), head)) for head in heads for pair in ((head, same), (same, head))),
        ),
        "The identity head passes its input on, and changes nothing before or after another head.",
        how="indices",
    )
    layers = [Sum((same, head)) for head in reversed(heads)]
    yield Draft(
        "substitution",
        (Claim((Target("logits"), Apply(Product((last, *layers, first)), (Word((t,)),)))),),
        "A layer is then just a sum over heads: the skip connection is its identity head.",
    )
    terms = [Product((last, late, early, first)) for late in (same, heads[1]) for early in (same, heads[0])]
    yield Draft(
        "distributing",
        (Claim((Target("logits"), Apply(Sum(tuple(terms)), (Word((t,)),)))),),
        "Multiplied out, every term has one head of each layer, so there are `(1 + H_1) (1 + H_2)` of them, here "
        "four; the order of a term is the number of heads that are not identity heads.",
    )
    paths = [(a, b) for a in (None, slots[1]) for b in (None, slots[0])]
    words = []
    for late, early in paths:
        through = [x for x in (late, early) if x is not None]
        left = tuple(f for a, _ in through for f in a.factors)
        right = tuple(f for _, w in through for f in w.factors)
        words.append(Word((*left, t, *Word((read_by(frame), *right, w_e_t.T)).T.factors)))
    yield Draft(
        "identity",
        tuple(Claim((Apply(term, (Word((t,)),)), word)) for term, word in zip(terms, words, strict=True)),
        "Each is the term of the path through its other heads: the direct path, the heads of the second and of the "
        "first layer, the virtual head.",
    )


@result(
    "virtual_weights",
    "Virtual weights between any two components",
    "The input of a component is the sum of the outputs of all earlier ones, each through a virtual weight: the "
    "reading matrix times the writing matrix.",
    "Virtual Weights and the Residual Stream as a Communication Channel",
    chapter="Heads",
    heading="Virtual weights",
    heads=(2, 1),
)
def virtual_weights(frame: Frame) -> Iterator[Draft]:
    """Identity I2."""
    t, w_e_t = embedding()
    x1, x2 = (Word((stream_symbol(n),)) for n in (1, 2))
    writers = [(head_factors(frame, 0, i), _result_of(head_factors(frame, 0, i), embed(), f"L0H{i}")) for i in (0, 1)]
    late = head_factors(frame, 1)
    last = (late, _result_of(late, x1, "L1H0"))
    yield Draft(
        "definition",
        tuple(Claim((r, r.body)) for _, r in [*writers, last]),
        "What each head moves between tokens, before its output matrix writes it.",
    )
    yield Draft(
        "definition",
        (Claim((x1, plus([embed(), *_written(writers)]))), Claim((x2, plus([embed(), *_written([*writers, last])])))),
        'The stream is the sum of everything written to it, without any processing in between (paper, "High-Level '
        'Architecture").',
    )
    readers = [(x1, late[g], writers) for g in ("W_Q", "W_K", "W_V")] + [(x2, read_by(frame), [*writers, last])]
    for stream, reader, before in readers:
        terms: list[Expr] = [Product((Word((t,)), Transposed(Word((reader, w_e_t.T)))))]
        terms += [Product((r, Transposed(Word((reader, h["W_O"]))))) for h, r in before]
        yield Draft(
            "distributing",
            (Claim((Word((*stream.factors, reader.T)), Sum(tuple(terms)))),),
            f"What `{reader.text}` reads: a virtual weight for each writer; the stream itself adds no factor.",
        )


def _written(writers: list[tuple[dict[str, Factor], Named]]) -> list[Expr]:
    return [Product((r, Word((h["W_O"].T,)))) for h, r in writers]


@result(
    "convolution",
    "Heads that attend at fixed offsets form a convolution",
    "Whatever reads the stream after a layer reads a sum of maps, one for each head and one for the skip connection; "
    "if every pattern is a shift by a number of tokens, that sum is a convolution.",
    "Virtual Weights and Convolution-like Structure",
    chapter="Heads",
    heading="Generic virtual weights, and convolutions",
    heads=(3, 1),
    conventions=(
        "`Z` shifts every token by one position: its ones are just below the diagonal. Held fixed: the attention "
        "patterns; in a convolution they are the powers of `Z`. There is no position embedding, no layer norm and no "
        "MLP.",
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
            f"What `{read.text}` reads: its own matrix for the skip connection, and a virtual weight for each head, "
            "which may also be a virtual head.",
        )
    z = NamedMatrix("Z", "shift")
    shifts: list[Expr] = [Identity(), z, Product((z, z))]
    kernel = Sum(tuple(Tensor((shift, w)) for shift, w in zip(shifts, ov, strict=True)))
    moved = [Product((*(z,) * n, x, w.T)) for n, w in enumerate(ov)]
    yield Draft(
        "identity",
        (Claim((Apply(kernel, (x,)), Sum(tuple(moved)))),),
        "If the heads attend to the token itself, to the previous one and to the one before that, every token "
        "receives the same sum over its neighbours: a convolution whose weights are the OV matrices.",
    )
    steps = Literal((("0", "0", "0"), ("1", "0", "0"), ("0", "1", "0")))
    column = Literal((("2",), ("3",), ("5",)))
    yield Draft(
        "definition",
        (
            Claim((Product((steps, column)), Literal((("0",), ("2",), ("3",))))),
            Claim((Product((steps, steps, column)), Literal((("0",), ("0",), ("2",))))),
        ),
        "In numbers, `Z` for three tokens: each receives the entry of the previous one, and the first receives zero.",
        how="exact",
    )
    w, v = ov[1], Word((late["W_O"], late["W_V"]))
    yield Draft(
        "mixed product",
        (Claim((Apply(Product((Tensor((z, v)), Tensor((z, w)))), (x,)), Product((z, z, x, w.T, v.T)))),),
        "A head of a later layer that attends to the previous token, after another that does the same: the offsets "
        "add.",
    )
