"""The reasons of steps for a given model: they depend on its biases, positions and head counts."""

from __future__ import annotations

from symcircuits.derivation.frames import Frame

__all__ = ["collected", "counted", "distributed", "factored", "layers", "norms", "read", "substituted", "unseen"]


def one_source(frame: Frame) -> bool:
    """Whether every path starts from the same source: the token embedding."""
    return frame.plain


def _biased(frame: Frame, *kinds: str) -> bool:
    return any(name.partition("[")[0] in kinds for name in frame.biases)


def layers(frame: Frame) -> str:
    """The definition of the streams."""
    more = (["its output bias if it has one"] if _biased(frame, "b_O") else []) + (
        ["the output of its MLP"] if frame.mlps else []
    )
    said = "".join(f", {x}" for x in more[:-1]) + (f", and {more[-1]}," if more else "")
    times = f"{'' if said[-1:] == ',' else ','} each times its multiplier," * any(
        m[0] == "r" for m in frame.multipliers
    )
    to = "the stream before it" if frame.norms or frame.mlps else "its input"
    reads = "; its heads read the output of its norm, `Y`" if frame.norms else ""
    return (
        f"The residual stream: each layer adds the outputs of its heads{said}{times} to {to}, with the attention "
        f'patterns held fixed{reads} (paper, "High-Level Architecture" and "Attention Heads as Information Movement").'
    )


def norms(frame: Frame) -> str:
    """The definition of the frozen norms."""
    kind = frame.architecture.norm
    square = "variance" if kind == "LN" else "mean square"
    words = [f"divide every row by `sqrt(v + eps)`, with `v` its {square} and `eps` the epsilon of the norm"]
    right = ["subtract its mean (`C`)"] if kind == "LN" else []
    right += ["multiply by the gain"] if frame.gains else []
    bias = ", and add the bias" if _biased(frame, "b_N") else ""
    after = f"; on the right, {' and '.join(right)}{bias}" if right else bias
    return (
        f"The norms, with the scale of every token held fixed: {words[0]} (the diagonal `D` on the left){after}. "
        "`D` scales tokens and a pattern moves them, so the two do not commute: `D` stays on the side of the source "
        '(paper, "Handling Layer Normalization"; own derivation).'
    )


def read(frame: Frame) -> str:
    """The definition of the target."""
    if frame.target == "stream":
        return "The stream after the last layer is expanded."
    through = " through its norm" if frame.norms else ""
    if frame.head is None:
        bias = " and adds its bias" if _biased(frame, "b_U") else ""
        times = ", all multiplied by its multiplier" if "m_U" in frame.multipliers else ""
        return (
            f"The unembedding reads the stream after the last layer{through}{bias}{times} "
            '(paper, "High-Level Architecture").'
        )
    plus = " plus the position embedding `P`" if frame.architecture.positions == "shortformer" else ""
    more = ["go through norms of their own"] if frame.normed else []
    more += ["are rotated according to their positions, by `R` between them"] if frame.turned else []
    more += ["are multiplied, and ALiBi adds a bias that depends only on positions"] * frame.alibi
    then = "".join(f"; they {x}" for x in more)
    return (
        f"The scores of {frame.head}, before mask and softmax: its queries and its keys both read the stream before "
        f'its layer{through}{plus}{then} (paper, "Path Expansion of Attention Scores QK Circuit").'
    )


def substituted(frame: Frame, symbol: str) -> str:
    """The definition of one stream is substituted."""
    many = "s" if "and" in symbol else ""
    return f"Substitute the definition{many} of `{symbol}`" + (
        ", on the query and on the key side." if frame.head else "."
    )


def distributed(frame: Frame, complete: bool) -> str:
    """Products are multiplied out."""
    reason = "Matrix multiplication distributes over sums, on the left and on the right"
    if not complete:
        return reason + "."
    if one_source(frame):
        return reason + "; in each layer, a path takes the residual stream or one head."
    inside = f" ({_inside(frame)} starts inside its head)" if _inside(frame) else ""
    return (
        f"{reason}; a path starts from a source{inside} and takes the residual stream or one head in each layer after "
        "it."
    )


def _inside(frame: Frame) -> str:
    """The biases that are sources inside a head."""
    norm = any(name.startswith("b_N[L") and int(name[5:-1]) < frame.depth for name in frame.biases)
    kinds = (["a value bias"] if _biased(frame, "b_V") else []) + (["the bias of a norm"] if norm else [])
    return " or ".join(kinds)


def factored(frame: Frame) -> str:
    """The factored form."""
    head = "A (x) W_OV"
    if frame.norms:
        folded = "gain C" if frame.gains and frame.architecture.norm == "LN" else "gain" if frame.gains else ""
        folded = folded or ("C" if frame.architecture.norm == "LN" else "")
        head = f"A D (x) W_OV {folded}".rstrip()
    layers = [f"r[L{layer}]" in frame.multipliers for layer in range(frame.depth)]
    head = f"r {head}" if any(layers) else head
    one = " (`r` is 1 if a layer has no multiplier)" if any(layers) and not all(layers) else ""
    sources = "" if one_source(frame) else ", and every source goes through the layers after it"
    return (
        f"The factored form: every layer is the map `Id + sum {head}`{one}, with later layers on the left"
        f'{sources} (paper, "The Path Expansion Trick").'
    )


def collected(frame: Frame) -> str:
    """The terms in families."""
    if frame.head is not None:
        reason = (
            "By composition type: whether there are heads on the query side (Q), on the key side (K), on both (QK) or "
            "on neither (none)."
        )
    else:
        reason = (
            "By order, the number of heads on the path: order 0 is the direct path, order 1 an individual head, and "
            "from order 2 on, heads are combined by V-composition into virtual heads."
        )
    if frame.target == "stream":
        return reason + " Own derivation, like the paper's for logits."
    name = "Path Expansion of Attention Scores QK Circuit" if frame.head else "Path Expansion of Logits"
    return f'{reason} Paper, "{name}".'


def unseen(frame: Frame) -> str:
    """What the mark beside a score term means."""
    rows = ", and the rows of every pattern sum to one, `A 1 = 1`" if frame.depth else ""
    meets = " and goes through no norm, which would scale every key by its own factor" if frame.norms else ""
    return (
        " Terms marked `*` are the same for every key, so softmax does not see them: their key side starts from "
        f"a bias, `1 b^T`{meets or rows} (own derivation)."
    )


def counted(frame: Frame) -> str:
    """The numbers of terms."""
    if one_source(frame):
        reason = "In each layer, a path chooses the residual stream or one of the heads; "
    else:
        reason = (
            "A path starts from one of the sources and chooses the residual stream or one of the heads in each layer "
            "after it; "
        )
    if frame.head is not None:
        return reason + "a score has a path on each side. Own derivation."
    if one_source(frame):
        reason += (
            "the number of paths through `k` heads is the number of choices of `k` layers and of a head in each: the "
            "elementary symmetric polynomial of the head counts."
        )
    else:
        inside = f", and `k - 1` for {_inside(frame)}, whose path starts inside a head" if _inside(frame) else ""
        reason += (
            "from one source, the number of paths through `k` heads is the number of choices of `k` of the layers "
            f"after it and of a head in each{inside}; the numbers of all sources are added."
        )
    return reason + " Own derivation."
