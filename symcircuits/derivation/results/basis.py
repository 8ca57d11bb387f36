"""What does not depend on the basis of the stream or of a head, and what does."""

from __future__ import annotations

from collections.abc import Iterator

from symcircuits.core.programs import embedding
from symcircuits.core.words import Factor, Word
from symcircuits.derivation.claims import Claim, Draft
from symcircuits.derivation.frames import Frame
from symcircuits.derivation.nodes import Identity, Product, Target, Transposed
from symcircuits.derivation.other_runs import Rebased
from symcircuits.derivation.results.circuits import composition_score, compositions, in_basis_t
from symcircuits.derivation.results.factors import head_factors, read_by, separate
from symcircuits.derivation.results.registry import result
from symcircuits.derivation.specials import Inverse, NamedMatrix, Parentheses, SquaredNorm

__all__: list[str] = []


_T, _Q = NamedMatrix("T"), NamedMatrix("Q", "orthogonal")


@result(
    "basis_freedom",
    "The bases of the stream and of every head are arbitrary",
    "Every end-to-end matrix is the same in every basis of the stream, under all invertible `T` and not only under "
    "rotations, and in every basis of a head; norms of factors, tied embeddings and layer norm depend on the basis.",
    "Virtual Weights and the Residual Stream as a Communication Channel; Activation Properties",
    chapter="Heads",
    heading="Basis freedom",
    heads=(1, 1),
    conventions=(
        "`T`, `R` and `S` are any invertible matrices, `Q` is any orthogonal one. In the basis `T`, a matrix that "
        "writes to the stream is multiplied by `T` and one that reads from it by the inverse: `T W_E`, `T W_O`, and "
        "`W_Q T^-1`, `W_K T^-1`, `W_V T^-1`, `W_U T^-1`.",
    ),
)
def basis_freedom(frame: Frame) -> Iterator[Draft]:
    """Identity I29."""
    h, g = (head_factors(frame, layer) for layer in (0, 1))
    w_u, w_e = read_by(frame), embedding()[1].T
    yield Draft(
        "definition",
        (Claim((Product((Inverse(_T), _T)), Identity())), Claim((Product((Transposed(_Q), _Q)), Identity()))),
        "A change of basis of the stream, and a rotation.",
    )
    virtual = (w_u, g["W_O"], g["W_V"], h["W_O"], h["W_V"], w_e)
    early = (w_e.T, h["W_V"].T, h["W_O"].T)
    qk = (g["W_Q"].T, g["W_K"])
    circuits = [(w_u, w_e), virtual, (w_e.T, *qk, w_e), (*early, *qk, w_e), (w_e.T, *qk, h["W_O"], h["W_V"], w_e)]
    yield Draft(
        "identity",
        tuple(Claim((Word(c), separate(c, _T))) for c in circuits),
        "Between a matrix that writes and one that reads, `T` and its inverse cancel: in the direct path, a virtual "
        "OV circuit, the QK circuit, Q-composition and K-composition.",
    )
    yield Draft(
        "identity",
        tuple(Claim((Rebased(t, _T), Target(t))) for t in ("logits", "scores:L1H0")),
        "So the whole model in another basis, run with the same patterns, gives the same logits and scores.",
    )
    yield from _inside(h)
    yield from _excluded(h, g, w_e)


def _inside(h: dict[str, Factor]) -> Iterator[Draft]:
    """The basis of a head's values, and of its queries and keys."""
    r, s = NamedMatrix("R"), NamedMatrix("S")
    o, v, q, k = (Word((h[g],)) for g in ("W_O", "W_V", "W_Q", "W_K"))
    values = Product((Parentheses(Product((o, Inverse(s)))), Parentheses(Product((s, v)))))
    scores = Product((Transposed(Product((r, q))), Parentheses(Product((Transposed(Inverse(r)), k)))))
    yield Draft(
        "identity",
        (Claim((Word((h["W_O"], h["W_V"])), values)), Claim((Word((h["W_Q"].T, h["W_K"])), scores))),
        "Inside a head: values in the basis `S`, queries and keys in the basis `R` and its dual. Only `W_OV` and "
        "`W_QK` are meaningful.",
    )


def _excluded(h: dict[str, Factor], g: dict[str, Factor], w_e: Factor) -> Iterator[Draft]:
    """What depends on the basis."""
    slip = (w_e.T, g["W_Q"].T, g["W_K"], h["W_V"].T, h["W_O"].T, w_e)
    yield Draft(
        "counterexample",
        (Claim((separate(slip), separate(slip, _T)), "!="),),
        "A wrong transpose is detected: K-composition with the transpose of `W_OV` changes with the basis.",
    )
    yield Draft(
        "identity",
        (Claim((separate(slip), separate(slip, _Q))),),
        "Rotations do not detect it: the same wrong formula is unchanged by every orthogonal `Q`.",
    )
    ov, qk = (h["W_O"], h["W_V"]), (g["W_Q"].T, g["W_K"])
    norms = [Claim((SquaredNorm(separate(x)), SquaredNorm(separate(x, _T))), "!=") for x in (ov, qk)]
    yield Draft(
        "counterexample",
        tuple(norms),
        "Frobenius norms depend on the basis.",
    )
    scores = [(composition_score(a, b), composition_score(in_basis_t(a), in_basis_t(b))) for a, b in compositions(h, g)]
    yield Draft(
        "counterexample",
        tuple(Claim(pair, "!=") for pair in scores),
        "So do composition scores (here their squares, for Q-, K- and V-composition), which consist of these norms: "
        "the ratios change too, not only the norms. They can be compared within one model, in one basis up to "
        "rotation.",
    )
    yield Draft(
        "identity",
        tuple(Claim((SquaredNorm(separate(x)), SquaredNorm(separate(x, _Q)))) for x in (ov, qk)),
        "Rotations do not change the norms, and so not the scores.",
    )
    e, read = Word((w_e,)), Word((w_e.T,))
    tied = (Product((read, Inverse(_T))), Transposed(Product((_T, e))))
    turned = (Product((read, Transposed(_Q))), Transposed(Product((_Q, e))))
    yield Draft(
        "counterexample",
        (Claim(tied, "!="),),
        "Tied embeddings, `W_U = W_E^T`, do not stay tied: the unembedding changes by the inverse, the embedding by "
        "`T`. (Norms of the stream, which divide by a length, are invariant at most under rotations.)",
    )
    yield Draft("identity", (Claim(turned),), "They do stay tied under rotations.")
