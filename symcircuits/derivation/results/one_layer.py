"""Zero and one layer: the direct path, individual heads, and the two circuits of a head."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.programs import embedding
from symcircuits.core.words import Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.definitions import layer_definition, readout_definition
from symcircuits.derivation.expressions import stream_symbol
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Product, Sum, Target, Transposed
from symcircuits.derivation.results.factors import head_factors, read_by
from symcircuits.derivation.results.registry import expansion, result
from symcircuits.derivation.specials import Named
from symcircuits.derivation.tensors import factored, mixed

__all__: list[str] = []


zero_layers = expansion(
    "zero_layers",
    "No layer: the direct path",
    "The logits of a model without layers: the direct path, a bigram table.",
    chapter="Zero and one layer",
    heads=(),
    form="enumerated",
)


one_layer = expansion(
    "one_layer",
    "One layer of three heads",
    "The logits of one layer of three heads: the direct path and one term per head.",
    chapter="Zero and one layer",
    heads=(3,),
    form="enumerated",
)


one_layer_generic = expansion(
    "one_layer_generic",
    "One layer, any number of heads",
    "The logits of one layer with any number of heads, as the paper prints them.",
    chapter="Zero and one layer",
    heads=(3,),
)


scores_first_layer = expansion(
    "scores_first_layer",
    "Scores of a first-layer head",
    "The scores of a first-layer head: one term, through the QK circuit.",
    chapter="Zero and one layer",
    heads=(3,),
    target="scores:L0H0",
    form="enumerated",
)


_W_U = 'paper, "One-Layer Attention-Only Transformers": "Splitting Attention Head terms into QK and OV circuits"'


@result(
    "qk_and_ov_circuits",
    "One layer consists of two circuits per head",
    "In one layer, the tokens determine through the QK circuit `W_E^T W_QK W_E` where a head attends, and through the "
    "OV circuit `W_U W_OV W_E` how it changes the logits.",
    "Splitting Attention Head terms into QK and OV circuits",
    chapter="Zero and one layer",
    heading="QK and OV circuits",
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
        "The logits: each source token contributes a row of the direct path or of an OV circuit, weighted by the "
        "patterns.",
    )
    yield Draft(
        "substitution",
        tuple(scores),
        "The scores, from which mask and softmax compute the pattern `A`: entries of the QK circuits at two tokens.",
    )
