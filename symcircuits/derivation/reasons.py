"""Why a step holds, said for the model at hand: what depends on its biases, positions and head counts."""

from __future__ import annotations

from symcircuits.derivation.frames import Frame

__all__ = ["collected", "counted", "distributed", "factored", "layers", "read", "substituted", "unseen"]


def one_source(frame: Frame) -> bool:
    """Whether every path starts from the same source: the token embedding."""
    return frame.plain


def _biased(frame: Frame, *kinds: str) -> bool:
    return any(name.partition("[")[0] in kinds for name in frame.biases)


def layers(frame: Frame) -> str:
    """The definition of the streams."""
    bias = ", and its output bias where it has one," if _biased(frame, "b_O") else ""
    return (
        f"The residual stream: each layer adds what its heads write{bias} to what it reads, with the attention "
        'patterns held fixed (paper, "High-Level Architecture" and "Attention Heads as Information Movement").'
    )


def read(frame: Frame) -> str:
    """The definition of the target."""
    if frame.target == "stream":
        return "What is expanded is the stream after the last layer."
    if frame.head is None:
        bias = " and adds its bias" if _biased(frame, "b_U") else ""
        return f'The unembedding reads the stream after the last layer{bias} (paper, "High-Level Architecture").'
    plus = " plus the position embedding `P`" if frame.architecture.positions == "shortformer" else ""
    return (
        f"The scores of {frame.head}, before mask and softmax: its queries and its keys both read the stream before "
        f'its layer{plus} (paper, "Path Expansion of Attention Scores QK Circuit").'
    )


def substituted(frame: Frame, symbol: str) -> str:
    """The definition of one stream is put in."""
    return f"Put in the definition of `{symbol}`" + (", on the query and on the key side." if frame.head else ".")


def distributed(frame: Frame, complete: bool) -> str:
    """Products are multiplied out."""
    reason = "Matrix multiplication distributes over sums, on the left and on the right"
    if not complete:
        return reason + "."
    if one_source(frame):
        return reason + "; a path takes in each layer the residual stream or one head."
    inside = " (a value bias starts inside its head)" if _biased(frame, "b_V") else ""
    return (
        f"{reason}; a path starts from a source{inside} and takes in each layer after it the residual stream or one "
        "head."
    )


def factored(frame: Frame) -> str:
    """The factored form."""
    sources = "" if one_source(frame) else ", and every source goes through the layers after it"
    return (
        "The factored form: every layer is the map `Id + sum A (x) W_OV`, later layers stand on the left"
        f'{sources} (paper, "The Path Expansion Trick").'
    )


def collected(frame: Frame) -> str:
    """The terms in families."""
    if frame.head is not None:
        reason = (
            "By composition type: whether a head stands on the query side (Q), on the key side (K), on both (QK) or on "
            "neither (none)."
        )
    else:
        reason = (
            "By order, the number of heads of the path: order 0 is the direct path, order 1 an individual head, and "
            "from order 2 on heads are joined by V-composition into virtual heads."
        )
    if frame.target == "stream":
        return reason + " Own derivation, as the paper's for logits."
    name = "Path Expansion of Attention Scores QK Circuit" if frame.head else "Path Expansion of Logits"
    return f'{reason} Paper, "{name}".'


def unseen(frame: Frame) -> str:
    """What the mark beside a score term says."""
    rows = ", and the rows of every pattern sum to one, `A 1 = 1`" if frame.depth else ""
    return (
        " Terms marked `*` are the same for every key, so that softmax does not see them: their key side starts from "
        f"a bias, `1 b^T`{rows} (own derivation)."
    )


def counted(frame: Frame) -> str:
    """The numbers of terms."""
    if one_source(frame):
        reason = "A path chooses in each layer the residual stream or one of the heads; "
    else:
        reason = (
            "A path starts from one of the sources and chooses in each layer after it the residual stream or one of "
            "the heads; "
        )
    if frame.head is not None:
        return reason + "a score has a path on each side. Own derivation."
    if one_source(frame):
        reason += (
            "so many paths go through `k` heads as there are choices of `k` layers and of a head in each: the "
            "elementary symmetric polynomial of the head counts."
        )
    else:
        inside = ", and `k - 1` for a value bias, whose path starts inside a head" if _biased(frame, "b_V") else ""
        reason += (
            "from one source so many paths go through `k` heads as there are choices of `k` of the layers after it "
            f"and of a head in each{inside}; the numbers of all sources are added."
        )
    return reason + " Own derivation."
