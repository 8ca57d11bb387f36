"""The same argument as a product of tensors: ``prod_l (Id + sum_h A^h (x) W_OV^h)``, later layers on the left."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.architecture import Head
from symcircuits.core.programs import Layer, Program, norm, pattern, rotation, stream_program, weight
from symcircuits.core.words import Factor, Word, scalar_order, transpose
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import plus, with_alibi_term
from symcircuits.derivation.expressions import scaled, wrap
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.multiplying import ProductTerm, multiply_out
from symcircuits.derivation.nodes import Apply, Expr, Identity, Product, Tensor, Transposed

__all__ = ["factored", "mixed", "rules"]

_MISPRINT = (
    " The paper prints `A_q^T x W y A_k`; that contradicts its own definition of `A`, whose rows are the destinations, "
    "and is not equal: `y` and `A_k` are the factors to transpose."
)


# -------------------------------------------------------------------------------------------------- the rules
def _example_head(frame: Frame, name: str, layer: int) -> tuple[Word, Word]:
    """``A^g`` and ``W_OV^g`` of any head g of a layer, with the norm that it reads through."""
    arch, head = frame.walked, Head(layer, 0)
    read = norm(arch, arch.norm_label(layer), layer)
    values = tuple(Factor(weight(arch, glyph, head)) for glyph in ("W_O", "W_V"))
    a = (Factor(pattern(head, read.context)), *read.left)
    w = (*values, *transpose(read.right))
    return Word(frame.named_for(a, head, name)), Word(frame.named_for(w, head, name))


def rules(frame: Frame) -> Iterator[Draft]:
    """How tensors act, and how they multiply, for any heads; checked by their definition with indices."""
    x = Word(stream_program(frame.walked, 0)[0].sources[0].factors)
    if _three_slots(frame) and not frame.depth:
        yield from _score_rules(frame, x)
        return
    a, w = _example_head(frame, "h", 0)
    action = Claim((Apply(Tensor((a, w)), (x,)), Word(a.factors + x.factors + w.T.factors)))
    yield Draft(
        "definition", (action,),
        "How a head acts: `A` moves information between tokens, `W` transforms what is moved "
        '(paper, "Notation": tensor product; for any head `h`).',
        how="indices",
    )  # fmt: skip
    if frame.depth >= 2:
        b, v = _example_head(frame, "g", 1)
        rule = Claim((Product((Tensor((b, v)), Tensor((a, w)))), Tensor((_join(b, a), _join(v, w)))))
        yield Draft(
            "mixed product", (rule,),
            'Tensors multiply slot by slot; `g` is in a later layer than `h` (paper, "Notation": mixed-product '
            "property, there also called distributive property).",
            how="indices",
        )  # fmt: skip
    if _three_slots(frame):
        yield from _score_rules(frame, x)


def _score_rules(frame: Frame, x: Word) -> Iterator[Draft]:
    qk, scale = _qk(frame), _scale(frame)
    plain = Apply(Tensor((scale, scale, qk)), (x, x))
    d = scale.factors if isinstance(scale, Word) else ()
    claims = [Claim((plain, Word(d + x.factors + qk.factors + x.T.factors + transpose(d))))]
    if frame.depth:
        claims += _joined_scores(frame, x, qk)
    yield Draft(
        "mixed product", tuple(claims),
        "Scores take two streams, so their maps have six indices: `(A_q (x) A_k (x) W)(x, y) = A_q x W y^T A_k^T`, "
        "and maps that act on `x` and `y` first are absorbed into the slots, transposed on the query side (own "
        "derivation)."
        + _MISPRINT,
        how="indices",
    )  # fmt: skip


def _joined_scores(frame: Frame, x: Word, qk: Word) -> list[Claim]:
    """The action with a pattern on each side, and how heads on both sides join ``Id (x) Id (x) W_QK``."""
    (a, w), (b, v) = _example_head(frame, "q", 0), _example_head(frame, "k", 0)
    between = Word(w.T.factors + qk.factors + v.factors)
    before = (Apply(Tensor((a, w)), (x,)), Apply(Tensor((b, v)), (x,)))
    scale = _scale(frame)
    split = Apply(Tensor((scale, scale, qk)), before)
    if isinstance(scale, Word):
        a, b = _join(scale, a), _join(scale, b)
    form = Apply(Tensor((a, b, between)), (x, x))
    direct = Word(a.factors + x.factors + between.factors + x.T.factors + b.T.factors)
    return [Claim((form, direct)), Claim((split, form))]


def _join(a: Word, b: Word) -> Word:
    return Word(a.factors + b.factors)


def _qk(frame: Frame) -> Word:
    query, key = (program[-1].branches[0].right for program in frame.expansion.readout.sides)
    return Word(query + transpose(key))


def _scale(frame: Frame) -> Word | Identity:
    """What the readout multiplies the stream with on the left: ``D`` of its norm, if it has one."""
    return _left(frame.expansion.readout.sides[0][-1])


def _left(layer: Layer) -> Word | Identity:
    left = layer.branches[0].left
    return Word(left) if left else Identity()


def _three_slots(frame: Frame) -> bool:
    """Whether scores are printed as maps of two streams: one source, and one W_QK for all pairs of tokens."""
    return frame.head is not None and frame.plain and not frame.turned and not frame.normed


# -------------------------------------------------------------------------------------------- the factored form
def _layer_operator(frame: Frame, layer: int, side: str) -> Expr:
    """``Id + sum_h A^h (x) W_OV^h`` of one layer (from 0)."""
    terms: list[Expr] = [Identity()]
    for branch in stream_program(frame.walked, layer + 1)[layer + 1].branches:
        a, w = Word(frame.named(branch.left, side)), Word(frame.named(branch.right, side)).T
        terms.append(frame.over_heads(layer, scaled(branch.scales, Tensor((a, w))), side))
    return plus(terms)


def _operators_after(frame: Frame, program: Program, entry: int, side: str) -> list[Expr]:
    """The maps that a source which enters at ``program[entry]`` still goes through, the last on the left."""
    found: list[Expr] = []
    for i, layer in enumerate(program[entry + 1 :], entry + 1):
        if i <= frame.depth:
            found.insert(0, _layer_operator(frame, i - 1, side))
        elif layer.branches:
            last = layer.branches[0]
            found.insert(0, scaled(last.scales, Tensor((_left(layer), Word(last.right).T))))
    return [f for f in found if f != Identity()]


def _applied(operators: list[Expr], argument: Expr, multiplied: bool) -> Expr:
    """The composed operators on an argument; multiplied out by the mixed product where asked."""
    if not operators:
        return argument
    scales = tuple(s for f in operators if isinstance(f, Product) for s in f.scales)
    parts = [f.factors[0] if isinstance(f, Product) else f for f in operators]
    operator = scaled(scales, parts[0] if len(parts) == 1 else Product(tuple(parts)))
    if not multiplied:
        return Apply(operator, (argument,))
    flats = sorted(multiply_out(operator), key=_term_order)
    return Apply(plus([_tensor(flat) for flat in flats]), (argument,))


def _tensor(flat: ProductTerm) -> Expr:
    a = Word(flat.factors) if flat.factors else Identity()
    w = Word(transpose(flat.right)) if flat.right else Identity()
    both = isinstance(a, Identity) and isinstance(w, Identity)
    scales = tuple(sorted(flat.scales, key=scalar_order))
    return wrap(scaled(scales, Identity() if both else Tensor((a, w))), flat.indices)


def _term_order(flat: ProductTerm) -> tuple[int, list[tuple[int, int]]]:
    """By order, then heads as (layer, index), the earliest first."""
    heads = []
    for f in reversed(flat.factors):
        if f.symbol.glyph != "A":
            continue
        digits = f.symbol.label.rpartition("H")[2]
        heads.append((f.symbol.row.point or 0, int(digits) if digits.isdecimal() else 0))
    return len(heads), heads


def _side(frame: Frame, program: Program, side: str, multiplied: bool) -> Expr:
    """One side as the sum over its sources, each under the maps that come after it."""
    terms: list[Expr] = []
    for i, layer in enumerate(program):
        outside: list[Expr] = [Word(s.factors, s.scales) for s in layer.sources if s.head is None]
        inside: list[Expr] = [
            frame.over_heads(i - 1, Word(frame.named(s.factors, side), s.scales), side)
            for s in layer.sources if s.head
        ]  # fmt: skip
        if inside + outside:
            terms.append(_applied(_operators_after(frame, program, i, side), plus(inside + outside), multiplied))
    return plus(terms)


def _on_tokens(frame: Frame, program: Program, side: str) -> tuple[list[Expr], Word]:
    """The maps from the one-hot tokens t on, the embedding ``Id (x) W_E`` first."""
    embed = program[0].sources[0]
    t, w_e = embed.factors
    first = scaled(embed.scales, Tensor((Identity(), Word((w_e,)).T)))
    return [*_operators_after(frame, program, 0, side), first], Word((t,))


def factored(frame: Frame) -> Expr:
    """The target in factored form: ``(Id (x) W_U) prod_l (Id + sum_h A^h (x) W_OV^h) (Id (x) W_E) t``."""
    return with_alibi_term(frame, _form(frame, multiplied=False))


def mixed(frame: Frame) -> Expr:
    """The factored form multiplied out by the mixed product: ``sum A_p (x) W_U W_p W_E`` on t."""
    return with_alibi_term(frame, _form(frame, multiplied=True))


def _form(frame: Frame, multiplied: bool) -> Expr:
    programs, scale = frame.expansion.readout.sides, frame.expansion.readout.scale
    scales = (scale,) if scale else ()
    if frame.head is None:
        if frame.plain:
            operators, t = _on_tokens(frame, programs[0], "")
            return _applied(operators, t, multiplied)
        return _side(frame, programs[0], "", multiplied)
    if not _three_slots(frame):
        query, key = (_side(frame, p, s, multiplied) for p, s in zip(programs, ("query", "key"), strict=True))
        turned = rotation(frame.walked, frame.head)
        return Product((query, *([Word(turned)] if turned else []), Transposed(key)), scales)
    return _six_indices(frame, scales) if multiplied else _bilinear(frame, scales)


def _bilinear(frame: Frame, scales: tuple[str, ...]) -> Expr:
    """``s (Id (x) Id (x) W_QK)(T t, T t)`` with T the factored stream."""
    arguments = []
    for program, side in zip(frame.expansion.readout.sides, ("query", "key"), strict=True):
        operators, t = _on_tokens(frame, program[:-1], side)
        arguments.append(_applied(operators, t, False))
    form = Tensor((_scale(frame), _scale(frame), _qk(frame)))
    return Apply(Product((form,), scales) if scales else form, tuple(arguments))


def _six_indices(frame: Frame, scales: tuple[str, ...]) -> Expr:
    """``s sum (A_q (x) A_k (x) M_q^T W_QK M_k)(t, t)``, a tensor for every score term, in the terms' order."""
    t = Word(frame.expansion.readout.sides[0][0].sources[0].factors[:1])
    tensors: list[Expr] = []
    for flat in (f for _, expr in frame.terms for f in multiply_out(expr)):
        first, last = (i for i, f in enumerate(flat.factors) if f.symbol.glyph == "t")
        a, b = flat.factors[:first], transpose(flat.factors[last + 1 :])
        slots = (Word(a) if a else Identity(), Word(b) if b else Identity(), Word(flat.factors[first + 1 : last]))
        own = tuple(s for s in flat.scales if s not in scales)
        tensors.append(wrap(scaled(own, Tensor(slots)), flat.indices))
    total = plus(tensors)
    return Apply(Product((total,), scales) if scales else total, (t, t))
