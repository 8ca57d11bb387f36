"""MLPs: what they read and write expands, the activation between does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.programs import embedding
from symcircuits.core.words import Factor, Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.examples import Elementwise, Literal
from symcircuits.derivation.expressions import stream_symbol
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Expr, Product, Sum, Target, Transposed
from symcircuits.derivation.real_models import ModelLogits, RealModel
from symcircuits.derivation.results.factors import head_factors, read_by
from symcircuits.derivation.results.registry import expansion, result
from symcircuits.derivation.specials import NamedMatrix, Scaled
from symcircuits.model import Run
from symcircuits.model.forward import ACTIVATIONS

__all__: list[str] = []


def _word(*factors: Factor) -> Word:
    return Word(factors)


_ONE = Literal((("1", "-1"),))


_TWO = Literal((("2", "-2"),))


def _activations(run: Run) -> Array:
    """``gelu(X W_in^T)`` of the stream after the heads."""
    x = run.streams[0] + np.sum(list(run.results.values()), axis=0)
    return ACTIVATIONS["gelu"](x @ run.model.weights["W_in_L0"].T)


_MLP_LETTERS: dict[str, str | Callable[[Run], Array]] = {
    "W_I": "W_in_L0",
    "W_M": "W_out_L0",
    "m": _activations,
}


@result(
    "mlp",
    "MLPs in the expansion",
    "The pre-activations of an MLP are a sum over the same paths as the logits, and the logits are linear in its "
    "activations; the GeLU in between does not expand.",
    "Additional Intuition: MLP Layers",
    chapter="Norms, MLPs and grouped queries",
    heading="MLPs",
    summary="MLPs in the expansion: their input and output expand, the GeLU in between does not.",
    heads=(2,),
    conventions=(
        "`W_I` and `W_M` are the matrices with which the MLP reads from the stream and writes to it, `m` its "
        "activations, one row for each token. Held fixed: the attention patterns. There is no position embedding and "
        "no layer norm.",
    ),
    real_model=RealModel("a model with a GeLU MLP and softmax patterns", {"mlps": True}, _MLP_LETTERS),
)
def mlp(frame: Frame) -> Iterator[Draft]:
    """Identity I25."""
    t, w_e_t = embedding()
    w_i, w_m, m, w_u = NamedMatrix("W_I", flips=True), NamedMatrix("W_M", flips=True), NamedMatrix("m"), read_by(frame)
    x1, heads = _word(stream_symbol(1)), [head_factors(frame, 0, i) for i in (0, 1)]

    def paths(reader: Expr) -> Sum:
        ov = [_word(h["W_O"], h["W_V"], w_e_t.T) for h in heads]
        pairs = [(_word(t), _word(w_e_t.T)), *((_word(h["A"], t), w) for h, w in zip(heads, ov, strict=True))]
        return Sum(tuple(Product((moved, Transposed(Product((reader, w))))) for moved, w in pairs))

    yield Draft(
        "distributing",
        (
            Claim((Target("logits"), paths(_word(w_u)))),
            Claim((Product((x1, Transposed(w_i))), paths(w_i))),
        ),
        "The pre-activations, after one layer of heads, have the form of the logits, with `W_I` in place of `W_U`.",
    )
    written = Product((Sum((x1, Product((m, Transposed(w_m))))), _word(w_u.T)))
    direct = Product((m, Transposed(Product((_word(w_u), w_m)))))
    yield Draft(
        "distributing",
        (Claim((written, Sum((Target("logits"), direct)))),),
        "The output of the MLP is one more source; its term is linear in the activations, with the matrix `W_U W_M`.",
    )
    yield Draft(
        "identity",
        (Claim((ModelLogits(), Sum((*paths(_word(w_u)).terms, direct)))),),
        "In a transformer: the sum equals the logits of a model with an MLP, with the patterns and the activations of "
        "its own run held fixed.",
        how="model",
    )
    yield Draft(
        "counterexample",
        (Claim((Elementwise("gelu", _TWO), Scaled("2", Elementwise("gelu", _ONE))), "!="),),
        "Between the two is the GeLU, which is not additive, not even for a sum of two equal parts: no sum over paths "
        "goes through it.",
        how="exact",
    )


logits_mlps = expansion(
    "logits_mlps",
    "Logits with MLP outputs as sources",
    "The logits of two layers with layer norms and MLPs: the output of each MLP is a separate source.",
    chapter="Norms, MLPs and grouped queries",
    heads=(2, 2),
    norm="LN",
    mlps=True,
)


logits_parallel_blocks = expansion(
    "logits_parallel_blocks",
    "Logits of parallel blocks",
    "The logits of parallel blocks, whose MLPs and heads read the same input: the same expansion, other MLP outputs.",
    chapter="Norms, MLPs and grouped queries",
    heads=(2, 2),
    norm="RMS",
    gains=False,
    mlps=True,
    parallel=True,
)


logits_multipliers = expansion(
    "logits_multipliers",
    "Logits with multipliers",
    "The logits of two layers of any number of heads, with multipliers for the embedding, the layers and the logits.",
    chapter="Norms, MLPs and grouped queries",
    heads=(2, 2),
    biases=["b_O"],
    mlps=True,
    multipliers=True,
)
