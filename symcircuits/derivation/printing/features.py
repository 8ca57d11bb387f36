"""The sentences on norms, multipliers, MLPs and groups of heads in a printed derivation."""

from __future__ import annotations

from symcircuits.core.architecture import FINAL
from symcircuits.derivation.frames import Frame

__all__ = ["features"]


def features(frame: Frame) -> list[str]:
    """What a reader needs to know about norms, groups of heads, multipliers and MLPs, if there are any."""
    lines = _norm_lines(frame) + _score_lines(frame) + _group_lines(frame) + _multiplier_lines(frame)
    if frame.mlps:
        reads = ", which has the same input as the heads of its layer," if frame.architecture.parallel else ""
        lines.append(
            f"The output of an MLP{reads} is a separate source, one row for each token "
            f"(`mlp[L{frame.mlps[0]}]`: {'that of the first layer' if not frame.mlps[0] else 'counted from 0'}); it is "
            "given, not expanded."
        )
    return lines


def _multiplier_lines(frame: Frame) -> list[str]:
    """What each multiplier multiplies."""
    found = frame.multipliers
    said = [
        "`m_E` multiplies the token embedding" + (" (not the position)" * (frame.architecture.positions is not None))
    ]
    said = said if "m_E" in found else []
    biases = " and its `b_O`" if any(name[:3] == "b_O" for name in frame.biases) else ""
    for letter, what in (("L", f"the output of the heads of a layer{biases}"), ("M", "the output of its MLP")):
        names = [name for name in found if name[:3] == f"r[{letter}"]
        where = f" ({names[0][2:-1]}: that of layer {int(names[0][3:-1]) + 1})" if names else ""
        said += [f"`{names[0]}` multiplies {what}{where}"] if names else []
    said += ["`m_U` multiplies the logits"] if "m_U" in found else []
    return [f"Multipliers are numbers in front of a term: {', '.join(said)}."] if said else []


def _score_lines(frame: Frame) -> list[str]:
    """How rotary positions, ALiBi and norms of queries and keys act on the derived scores."""
    lines, head = [], frame.head
    if head is not None and frame.normed:
        shared = frame.architecture.key_value(head)
        lines.append(
            f"`D[Q{head}]` and `D[K{shared}]` are diagonal: for each token `1/sqrt(v + eps)`, with `v` the mean square "
            f"of its query, or of its key, and `eps` the epsilon of the norm; `gain[Q{head.layer}]` and "
            f"`gain[K{head.layer}]` are the gains of their layer, also diagonal. They are held fixed, and written "
            "without transposes because they are symmetric."
        )
    if frame.turned:
        lines.append(
            f"`R[{head}]` stands between queries and keys, and rotates the rows of both: for query `i` and key `j` "
            "`q R k^T` is `q_i R_i R_j^T k_j^T`, and `R_i R_j^T` depends only on `j - i`. It differs between pairs of "
            "tokens, so there is no single `W_QK` (Su et al. 2021)."
        )
    if frame.alibi:
        lines.append(
            f"`alibi[{head}]` is, for query `i` and key `j`, `-m |i - j|`, with `m` the slope of the head. It depends "
            "only on positions and does not come from a path: it is not a path term and is not counted "
            "(Press et al. 2022)."
        )
    return lines


def _norm_lines(frame: Frame) -> list[str]:
    """What ``D``, ``C`` and the gains are, and which comparisons of terms are not valid."""
    if not frame.norms:
        return []
    layers = [label for label in frame.norms if label != FINAL]
    final = " (`D[final]`: the row that the unembedding reads)" if FINAL in frame.norms else ""
    where = f"the heads of that layer read{final}" if layers else "the unembedding reads"
    ln = frame.architecture.norm == "LN"
    what = "variance" if ln else "mean square"
    said = [f"`D[{frame.norms[0]}]` is diagonal: for each token `1/sqrt(v + eps)`, with `v` the {what} of its row "
            f"of the stream that {where}, and `eps` the epsilon of the norm"]  # fmt: skip
    said += ["`C` subtracts from every row its mean"] if ln else []
    said += [f"`gain[{frame.gains[0]}]` is diagonal, the gain of that norm"] if frame.gains else []
    symmetric = ["`D`"] + (["`C`"] if ln else []) + (["`gain`"] if frame.gains else [])
    names = symmetric[0] if len(symmetric) == 1 else ", ".join(symmetric[:-1]) + " and " + symmetric[-1]
    constant = " A bias that goes through a norm is no longer the same row for every token." if frame.biases else ""
    return [
        f"{'; '.join(said)}. {names} {'is' if len(symmetric) == 1 else 'are'} symmetric, and so written without "
        "transposes.",
        f"`D` does not commute with `A`.{constant} Terms through different norms carry different scales, so their "
        "sizes are not comparable.",
    ]


def _group_lines(frame: Frame) -> list[str]:
    """Which heads share keys and values."""
    if not frame.architecture.groups:
        return []
    groups = "of `H_l` heads in `G_l` groups" if frame.generic else "of `H` heads in `G` groups, L0G0, L0G1, ...,"
    count = "G_l / H_l" if frame.generic else "G / H"
    return [
        f"Heads share keys and values; `G(h)` is the group of head `h`: {groups} the head with number `i`, counted "
        f"from 0, is in the group with number `i {count}`, rounded down. `W_V`, `W_K` and their biases belong to a "
        "group, `W_O` and `W_Q` to a head, and so do `W_OV` and `W_QK`."
    ]
