"""Results about heads: they add, they compose to heads, they are two circuits, they write what others read."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.architecture import Head, attention_only, possible_biases
from symcircuits.core.programs import embedding, pattern, stream_program, weight
from symcircuits.core.words import Factor, Symbol, Word
from symcircuits.derivation.checks import Claim, Draft
from symcircuits.derivation.definitions import layer_definition, plus, readout_definition
from symcircuits.derivation.expressions import relabelled, stream_symbol
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Apply, Expr, Identity, Number, Product, Sum, Target, Tensor, Transposed
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Beside, CountIn, HeadWidth, Masked, Named, Rank
from symcircuits.derivation.tensors import factored, mixed

__all__ = ["embed", "head_factors", "read_by"]

_W_U = 'paper, "One-Layer Attention-Only Transformers": "Splitting Attention Head terms into QK and OV circuits"'


def embed() -> Word:
    """``X_0 = t W_E^T``."""
    return Word(embedding())


def head_factors(frame: Frame, layer: int, index: int = 0, name: str = "") -> dict[str, Factor]:
    """``A``, ``W_Q``, ``W_K``, ``W_V`` and ``W_O`` of a head, under another name where one is given."""
    head = Head(layer, index)
    symbols: dict[str, Symbol] = {g: weight(frame.walked, g, head) for g in ("W_Q", "W_K", "W_V", "W_O")}
    symbols["A"] = pattern(head)
    names = {head.label: name} if name else {}
    return {glyph: relabelled((Factor(symbol),), names)[0] for glyph, symbol in symbols.items()}


def read_by(frame: Frame) -> Factor:
    """``W_U``."""
    last = frame.expansion.readout.sides[0][-1].branches[0].right
    return last[0].T


def _result_of(h: dict[str, Factor], stream: Word, label: str) -> Named:
    """``r^h = A^h X W_V^T``, what a head moves."""
    return Named(f"r[{label}]", rf"r^{{\mathrm{{{label}}}}}", Word((h["A"], *stream.factors, h["W_V"].T)))


# ------------------------------------------------------------------------------------------------- heads add
@result(
    "concatenated_heads",
    "Concatenated heads times one output matrix are a sum of heads",
    "Heads put side by side and multiplied with one output matrix are the sum of the heads, each with its block of it.",
    "Attention Heads are Independent and Additive",
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
        "A head in three steps, for any head `h`: values of every token, moved between tokens, written to the stream "
        '(paper, "Attention Heads as Information Movement").',
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
        "The output matrix of the layer as one matrix: the columns that read one head's values stand together.",
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
        "So the layer adds to the stream the sum of its heads, each with `W_OV = W_O W_V`; none sees another.",
        complete=True,
    )


def _acts(h: dict[str, Factor]) -> Word:
    return Word((h["A"], *embedding(), h["W_V"].T, h["W_O"].T))


# ---------------------------------------------------------------------------------------------- virtual heads
@result(
    "virtual_heads",
    "A product of heads is a head",
    "A product of heads acts as one head: its pattern is the product of the patterns, causal with rows that sum to "
    "one, and its OV matrix has rank at most `d_head`.",
    "Virtual Attention Heads",
    heads=(1, 1, 1),
    given=("rows sum to one", "causal", "narrow heads"),
    names_model=False,
    conventions=(
        "Heads `h`, `g`, `f` are any heads of three layers, `h` in the first of them, in a model with positions or "
        "without. `M` is the causal mask, one on and below the diagonal; multiplied entry by entry it keeps what "
        "stands there.",
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
    ones = stream_program(attention_only((1,), biases=["b_O"]), 1)[1].sources[-1].factors[0]
    one = Word((ones,))
    yield Draft(
        "identity",
        (
            Claim((Word((*a[2].factors, ones)), one)),
            Claim((Word((*joined(a[1:]).factors, ones)), Word((*a[1].factors, ones)), one)),
            Claim((Word((*joined(a).factors, ones)), one)),
        ),
        "Rows that sum to one, `A 1 = 1`, still do in a product. (Entries that are not negative stay so, being sums "
        "of products.)",
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


# ------------------------------------------------------------------------------------------ QK and OV circuits
@result(
    "qk_and_ov_circuits",
    "One layer is made of two circuits a head",
    "One layer: the tokens decide through the QK circuit `W_E^T W_QK W_E` where a head attends, and through the "
    "OV circuit `W_U W_OV W_E` what it does to the logits.",
    "Splitting Attention Head terms into QK and OV circuits",
    heads=(2,),
)
def qk_and_ov_circuits(frame: Frame) -> Iterator[Draft]:
    """Identities I8 and I9."""
    target, w_u, (t, w_e_t) = Target("logits"), read_by(frame), embedding()
    tokens, w_e = Word((t,)), w_e_t.T
    yield Draft(
        "definition",
        (Claim((Word((stream_symbol(1),)), layer_definition(frame, 1))), Claim((target, readout_definition(frame)))),
        'One layer of heads with the patterns held fixed, and the unembedding (paper, "High-Level Architecture").',
    )
    yield Draft(
        "mixed product",
        (Claim((target, factored(frame), mixed(frame))),),
        'The factored form, multiplied out by the mixed product (paper, "The Path Expansion Trick").',
    )
    direct = Named("C_direct", r"C_{\mathrm{direct}}", Word((w_u, w_e)), flips=True)
    claims, terms, scores = [Claim((direct, direct.body))], [Product((tokens, Transposed(direct)))], []
    for head in frame.walked.layer_heads(0):
        x, up = head_factors(frame, 0, head.number), rf"\mathrm{{{head}}}"
        ov = Named(f"C_OV[{head}]", f"C_{{OV}}^{{{up}}}", Word((w_u, x["W_O"], x["W_V"], w_e)), flips=True)
        qk = Named(f"C_QK[{head}]", f"C_{{QK}}^{{{up}}}", Word((w_e.T, x["W_Q"].T, x["W_K"], w_e)))
        claims += [Claim((ov, ov.body)), Claim((qk, qk.body))]
        terms.append(Product((Word((x["A"], t)), Transposed(ov))))
        scores.append(Claim((Target(f"scores:{head}"), Product((tokens, qk, Word((t.T,))), (head.label,)))))
    yield Draft(
        "definition",
        tuple(claims),
        "All matrices between tokens and tokens, `W_E` and `W_U` included: the direct path (a bigram table), and for "
        f"each head an OV and a QK circuit ({_W_U}).",
    )
    yield Draft(
        "substitution",
        (Claim((target, Sum(tuple(terms)))),),
        "The logits: what token a source adds is a row of the direct or of an OV circuit, weighted by the patterns.",
    )
    yield Draft(
        "substitution",
        tuple(scores),
        "The scores, from which mask and softmax make the pattern `A`: entries of the QK circuits at two tokens.",
    )


# --------------------------------------------------------------------------------------------- virtual weights
@result(
    "virtual_weights",
    "Virtual weights between any two components",
    "What a component reads is the sum of what all earlier ones wrote, each through a virtual weight: the reading "
    "matrix times the writing matrix.",
    "Virtual Weights and the Residual Stream as a Communication Channel",
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
        'The stream is the sum of all that was written to it; nothing is done to it between (paper, "High-Level '
        'Architecture").',
    )
    readers = [(x1, late[g], writers) for g in ("W_Q", "W_K", "W_V")] + [(x2, read_by(frame), [*writers, last])]
    for stream, reader, before in readers:
        terms: list[Expr] = [Product((Word((t,)), Transposed(Word((reader, w_e_t.T)))))]
        terms += [Product((r, Transposed(Word((reader, h["W_O"]))))) for h, r in before]
        yield Draft(
            "distributing",
            (Claim((Word((*stream.factors, reader.T)), Sum(tuple(terms)))),),
            f"What `{reader.text}` reads: a virtual weight for each writer, none with a factor for the stream.",
        )


def _written(writers: list[tuple[dict[str, Factor], Named]]) -> list[Expr]:
    return [Product((r, Word((h["W_O"].T,)))) for h, r in writers]


# ------------------------------------------------------------------------------------------------ how many terms
@result(
    "numbers_of_terms",
    "How many terms there are",
    "Two layers of 12 heads: 169 terms; 338 of the logits and 676 of the scores with the position in the stream; "
    "196 of the scores with the position in queries and keys only.",
    "Path Expansion of Logits; Path Expansion of Attention Scores QK Circuit",
    heads=(12, 12),
    names_model=False,
    conventions=("Every count is of terms that were listed, not of a formula.",),
)
def numbers_of_terms(frame: Frame) -> Iterator[Draft]:
    """Extension E6, and the counts of the paper."""
    one, twelve, two = Number(1), Number(12), Number(2)
    layer = Sum((one, twelve))
    both = Sum((one, one, twelve, twelve))
    queries = Sum((one, twelve, one))

    def claim(target: str, positions: str | None, formula: list[Expr], n: int) -> Claim:
        return Claim((CountIn(target, (12, 12), positions), Product(tuple(formula)), Number(n)))

    yield Draft(
        "counting",
        (claim("logits", None, [layer, layer], 169), claim("scores:L1H0", None, [layer, layer], 169)),
        "Logits: in each of two layers the stream or one of 12 heads. Scores of a second-layer head: on each of two "
        "sides the stream or one of 12 heads. The same number, and different things.",
        how="count",
    )
    yield Draft(
        "counting",
        (claim("logits", "standard", [two, layer, layer], 338), claim("scores:L1H0", "standard", [both, both], 676)),
        "The position embedding in the stream is a second source: every path starts from the token or from the "
        "position.",
        how="count",
    )
    yield Draft(
        "counting",
        (
            claim("logits", "shortformer", [layer, layer], 169),
            claim("scores:L1H0", "shortformer", [queries, queries], 196),
        ),
        "The position embedding in queries and keys only passes through no head below: one more path on each side, "
        "and none in the logits.",
        how="count",
    )
    yield _all_sources()


def _all_sources() -> Draft:
    """Two layers of two heads with everything that can be a source."""
    one, two = Number(1), Number(2)
    sources = len(possible_biases(attention_only((2, 2))))
    listed = CountIn("logits", (2, 2), "standard", True)
    three = Sum((one, two))
    by_entry: tuple[Expr, ...] = (Product((two, three, three)), Product((two, three)), Number(3), two, one, one)
    return Draft(
        "counting",
        (Claim((listed, Sum(by_entry), Number(31))),),
        f"Two layers of two heads, the position in the stream and all biases ({sources} names, of which those of "
        "queries and keys are in no logit): token and position, then `b_V` and `b_O` of each layer, then `b_U`; each "
        "source takes in the layers after it the stream or a head.",
        how="count",
    )
