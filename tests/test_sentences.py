"""Every formula in a sentence of a printed page (conventions, reasons, statements, captions), read and computed again.

Sentences are made beside the claims that are checked, so that nothing else sees a slip in one. Each of their formulas
is read from the printed text and computed on a real run: both sides of an equation, what a head makes of a stream, the
scores of a head, the map of a layer; a formula that fits nothing here fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from made import made
from plain import slope

import symcircuits as sc
from symcircuits.checking.check import check
from symcircuits.core.notation import FLIPPED, NOTATIONS, Notation
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.nodes import every_node
from symcircuits.derivation.other_runs import Changed
from symcircuits.derivation.printing.conventions import caption, conventions
from symcircuits.derivation.printing.prose import prose, sentence
from symcircuits.derivation.printing.words import check_sentence, seal, statement, subject, title
from symcircuits.derivation.results.every import entries
from symcircuits.derivation.specials import Scaled
from symcircuits.model import matrices_of, random_model

N = 4
TOKENS = [3, 1, 4, 1]
ARCHITECTURES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((), {}),
    ((2, 3), {}),
    ((2, 2), {"biases": True, "positions": "standard", "multipliers": True}),
    ((1, 2), {"biases": ["b_Q", "b_V[L0H0]", "b_O"], "positions": "shortformer", "scale": False}),
    ((3, 1), {"biases": ["b_V[L0H1]", "b_K"], "multipliers": ["r[L1]"]}),
    ((2, 1), {"norm": "LN", "biases": True, "mlps": True, "multipliers": True}),
    ((1, 2), {"norm": "LN", "gains": False, "positions": "shortformer", "biases": ["b_K"]}),
    ((2, 1), {"norm": "RMS", "gains": ["L0", "L1"], "mlps": [0], "parallel": True}),
    ((1, 1), {"norm": "RMS", "gains": False}),
    ((4, 2), {"groups": (2, 1), "biases": True}),
    ((1, 1), {"positions": "rotary"}),
    ((2, 2), {"positions": "rotary", "qk_norm": True, "biases": True, "groups": (1, 1)}),
    ((2, 2), {"positions": "alibi", "qk_norm": True}),
    ((1, 2), {"positions": "alibi", "biases": ["b_Q", "b_K"]}),
]


# ------------------------------------------------------------------------------------------------- the sentences
def sentences(derivation: Derivation) -> Iterator[str]:
    """All that is said on a page, its formulas between backticks as they are printed."""
    said = [title(derivation), statement(derivation), subject(derivation), seal(derivation), *conventions(derivation)]
    said += [text for step in derivation.steps for text in (step.reason, check_sentence(step.check))]
    for text in said:
        yield quoted(text, derivation.notation)


def quoted(text: str, notation: Notation) -> str:
    return "".join(f"`{part}`" if formula else part for formula, part in sentence(text, notation))


def formulas(text: str) -> list[str]:
    return text.split("`")[1::2]


# ----------------------------------------------------------------------------------------- formulas, read and computed
TOKEN = re.compile(r"\s*(\(x\)|\^T|\^-1|[-+(),]|(?:[A-Za-z]\w*|1)(?:\[(?:\w+|G\(\w+\))\])?)")
Value = Any  # an array, a number, or a map of one or two arrays


class Here:
    """What the letters of sentences are for one architecture: of a head, and of the stream before its layer."""

    def __init__(self, arch: Any, theirs: bool) -> None:
        model = random_model(arch, d_model=6, d_head=4, d_vocab=5)
        self.arch, self.run, self.theirs, self.model = arch, model.run(TOKENS), theirs, model
        self.arrays = matrices_of(self.run)
        draw = np.random.default_rng(5)
        free = {"x": (N, 6), "y": (N, 6), "A_q": (N, N), "A_k": (N, N), "W": (6, 6), "b": (6, 1), "q": (N, 4),
                "k": (N, 4), "T": (6, 6), "W_M": (6, 7)}  # fmt: skip
        self.free = {name: draw.standard_normal(shape) for name, shape in free.items()}
        self.free["A_1"] = self.free["A_q"] / self.free["A_q"].sum(-1, keepdims=True)
        self.head, self.heads = arch.all_heads[0] if arch.all_heads else None, ()
        self.generic = False  # whether A, X and W are any matrices

    def normed(self, label: str, x: Any) -> Any:
        """What comes out of a norm with the recorded scales, from its definition; without its bias."""
        if not self.arch.norm:
            return x
        x = x - x.mean(-1, keepdims=True) if self.arch.norm == "LN" else x
        return x * self.run.norms[label][:, None] * self.model.weights.get(f"gain_{label}", 1.0)

    def stream(self, glyph: str) -> Any:
        assert self.head is not None
        x = self.run.streams[self.head.layer]
        label = f"L{self.head.layer}"
        norm = self.normed(label, x) + self.model.weights.get(f"b_N_{label}", 0.0)
        short = self.arch.positions == "shortformer"
        shifted = {"Z" if self.arch.norm else "Y": norm + self.arrays["P"]} if short else {}
        return ({"X": x} | ({"Y": norm} if self.arch.norm else {}) | shifted)[glyph]

    def letter(self, name: str) -> Value:
        """A symbol, in the shapes of the notation."""
        glyph, _, label = name.rstrip("]").partition("[")
        found = self._letter({"OV": "W_OV", "QK": "W_QK"}.get(glyph, glyph) if self.theirs else glyph, label)
        flips = glyph in (*FLIPPED, "OV", "b", "W_M") and self.theirs
        return found.T if flips else found

    def _letter(self, glyph: str, label: str) -> Value:
        head, layer = self.head, f"L{self.head.layer}" if self.head else ""
        if glyph == "1":
            return np.ones((N, 1))
        if glyph in self.free or (self.generic and glyph in ("A", "X")):
            return self.free[{"A": "A_q", "X": "x"}.get(glyph, glyph)]
        if glyph in "XYZ":
            return self.stream(glyph)
        if glyph == "X_0":
            return self.arrays["t"] @ self.arrays["W_E"].T
        if glyph == "s":
            return float(self.model.score_scale[str(head)])
        if glyph == "r":
            return float(self.model.multipliers.get(f"r[{layer}]", 1.0))
        if glyph == "alibi":
            steep = slope(head.number, self.arch.heads[head.layer], False)
            return np.array([[-steep * abs(i - j) for j in range(N)] for i in range(N)])
        if glyph in ("W_OV", "W_QK"):
            a, b = (self._letter(g, "") for g in (("W_O", "W_V") if glyph == "W_OV" else ("W_Q", "W_K")))
            return a @ b if glyph == "W_OV" else a.T @ b
        if glyph in ("t", "P", "C", "W_E", "W_U", "b_U"):
            return self.arrays[glyph]
        assert head is not None
        assert label in ("", "h", "G(h)") or glyph in ("D", "gain"), glyph
        if glyph in ("D", "gain"):
            return self.arrays[f"{glyph}_{label or layer}"]
        if label:
            assert (label == "G(h)") == (glyph in ("W_V", "W_K")), f"{glyph}[{label}] is not what these belong to"
        shared = self.arch.key_value(head)
        return self.arrays[f"{glyph}_{shared if glyph in ('W_V', 'W_K', 'b_V', 'b_K') else head}"]

    # ------------------------------------------------------------------------------------------------ reading
    def of(self, formula: str) -> Value:
        """The value of a formula."""
        found, at = [], 0
        while at < len(formula.rstrip()):
            match = TOKEN.match(formula, at)
            assert match, f"cannot read {formula[at:]!r}"
            found.append(match[1])
            at = match.end()
        self.tokens = found
        value = self.total()()
        assert not self.tokens, f"left over: {self.tokens}"
        return value

    def taken(self, token: str) -> bool:
        return bool(self.tokens) and self.tokens[0] == token and self.tokens.pop(0) == token

    def total(self) -> Callable[[], Value]:
        terms = [self.term()]
        while self.taken("+"):
            terms.append(self.term())
        return lambda: added([t() for t in terms])

    def term(self) -> Callable[[], Value]:
        if self.taken("sum"):
            body = self.term()
            return lambda: added([self.at(h, body) for h in self.heads])
        slots = [self.product()]
        while self.taken("(x)"):
            slots.append(self.product())
        return slots[0] if len(slots) == 1 else lambda: tensor([s() for s in slots], self.theirs)

    def at(self, head: Any, body: Callable[[], Value]) -> Value:
        self.head = head
        return body()

    def product(self) -> Callable[[], Value]:
        parts: list[Callable[[], Value]] = []
        cut = None
        while self.tokens and self.tokens[0] not in ("+", ")", ",", "(x)"):
            if self.tokens[0][:1] == "R" and re.fullmatch(r"R(\[\w+\])?", self.tokens[0]):
                self.tokens.pop(0)
                cut = len(parts)
            else:
                parts.append(self.factor())
        if cut is None:
            return lambda: joined([p() for p in parts])
        return lambda: self.rotated([p() for p in parts[:cut]], [p() for p in parts[cut:]])

    def rotated(self, left: list[Value], right: list[Value]) -> Value:
        numbers = [v for v in left if np.ndim(v) == 0 and not callable(v)]
        q, k = joined([v for v in left if np.ndim(v) or callable(v)]), joined(right).T
        turns = self.run.arrays[f"R_{self.head}"]
        q, k = np.einsum("nd,nde->ne", q, turns), np.einsum("nd,nde->ne", k, turns)
        return np.prod(numbers) * (q @ k.T)

    def factor(self) -> Callable[[], Value]:
        if self.taken("("):
            inside = [self.total()]
            while self.taken(","):
                inside.append(self.total())
            assert self.taken(")")
            several = len(inside) > 1
            value: Callable[[], Value] = lambda: tuple(x() for x in inside) if several else inside[0]()  # noqa: E731
        else:
            name = self.tokens.pop(0)
            value = (lambda: lambda *x: x[0]) if name == "Id" else lambda: self.letter(name)
        if self.taken("^T"):
            return lambda: value().T
        return (lambda: np.linalg.inv(value())) if self.taken("^-1") else value


def added(values: list[Value]) -> Value:
    if any(callable(v) for v in values):
        return lambda *x: sum(v(*x) for v in values)
    shapes = {np.shape(v) for v in values}
    assert len(shapes) == 1, f"what is added has shapes {shapes}"
    return sum(values)


def joined(values: list[Value]) -> Value:
    """A product; a map acts on all that stands behind it."""
    value = values[-1]
    for v in reversed(values[:-1]):
        value = v(*value) if callable(v) and isinstance(value, tuple) else v(value) if callable(v) else times(v, value)
    return value


def times(a: Value, b: Value) -> Value:
    return a * b if np.ndim(a) == 0 or np.ndim(b) == 0 else a @ b


def tensor(slots: list[Value], right: bool) -> Callable[..., Value]:
    """``X -> A X W^T`` (``A X W`` where weights act from the right); ``(x, y) -> A_q x W y^T A_k^T``."""
    a, *rest = [s if callable(s) else (lambda x, s=s: s @ x) for s in slots]
    if len(rest) == 1:
        w = slots[1]
        return lambda x: a(x) @ (w if right else w.T) if not callable(w) else a(x)
    k, w = rest[0], slots[2]
    return lambda x, y: a(x) @ w @ k(y).T


# --------------------------------------------------------------------------------------------------- what is claimed
MAPS = re.compile(r"a head maps `([XY])` to `([^`]*)`(?:, or to `([^`]*)` if it has a value bias)?")
SCORES = re.compile(r"the scores of (L\d+H\d+) are `([^`]*)`")
LAYER = re.compile(r"every layer is the map `([^`]*)`")
CIRCUITS = re.compile(r"through the (?:QK|OV) circuit `([^`]*)`")
TURNED = re.compile(r"for query `i` and key `j` `([^`]*)` is `([^`]*)`")
SLIP = re.compile(r"The paper prints `([^`]*)`; that contradicts")
EQUATION = re.compile(r"[^=]+ = [^=]+")
# Numbers, sizes and indices: what these say is compared here or in the tests of what they count.
PLAIN = re.compile(
    r"\*|p|\d+ x \d+|[\d.]+e-\d+|\[\w+, \w+\]|1/sqrt\(d_head\)|-m \|i - j\||j - i|k - 1|i G(_l)? / H(_l)?|L \+ 1|"
    r"\(cos alpha i, sin alpha i\)|Id \(x\) Id|\(1 \+ H_1\) \(1 \+ H_2\)|a_ij b_ji|j = i [-+] 1|"
    r"(1/)?sqrt\(v \+ eps\)|eps|"
    r"S \(S \+ 1\) / 2|\(\d+/p\)\^\d+ = \S+|p = \d+|[hHG]_\d+ = \d+|G\(h\)|R_i R_j\^T|[A-Z]_\d+"
)
NAME = re.compile(r"(1|[A-Za-z]\w*)(\[[\w()]+\])?")
GLYPHS = {
    *FLIPPED, *"AXYZPCDRMQSTWGHLabfghijklmnpqrstuvwxy1", "OV", "QK", "W_QK", "Id", "gain", "mlp", "alibi", "m_E", "m_U",
    "X_0", "X1", "X2", "X3", "X_l", "Y_l", "D_l", "D_f", "H_l", "G_l", "h_l", "q_l", "k_l", "A_k", "A_q", "W_I", "W_M",
    "Tr", "alpha", "W_G", "W_f", "V_1", "V_2", "V_f", "N_h", "d_head",
}  # fmt: skip
# Formulas of results whose letters are said there; they must have a value in the shapes that they have here.
VALUED = re.compile(r"T W_\w+(\^T)?|W_\w+(\^T)? T\^-1|W_U W_M|W_M W_U|1 b\^T|1 b|x \+ A x|x x\^T|A D_l|A \(x\) W")


def same(a: Value, b: Value, mask: Any = None) -> bool:
    keep = np.ones(np.shape(a), bool) if mask is None else mask
    return np.shape(a) == np.shape(b) and bool(np.allclose(np.where(keep, a, 0), np.where(keep, b, 0), atol=1e-9))


def untrue(text: str, derivation: Derivation | None, here: Here) -> Iterator[str]:
    """What is not so of a sentence."""
    done: set[str] = set()
    for found in MAPS.finditer(text):
        yield from _maps(found, derivation, here, done)
    for found in SCORES.finditer(text):
        here.head = here.arch.head(found[1])
        done.add(found[2])
        if not same(here.of(sided(found[2], here)), here.run.scores[found[1]], np.isfinite(here.run.scores[found[1]])):
            yield f"the scores are not {found[2]}"
    for found in LAYER.finditer(text):
        done.add(found[1])
        yield from _layers(found[1], derivation.frame.depth if derivation else 0, here)
    for found in SLIP.finditer(text):
        done.add(found[1])
        try:
            right = same(here.of(found[1]), here.of("A_q x W y^T A_k^T"))
        except ValueError:
            right = False  # sizes do not even fit
        if right:
            yield f"{found[1]} is not a slip"
    for found in TURNED.finditer(text):
        done |= {found[1], found[2]}
        yield from _turned(found[1], found[2], here)
    for found in CIRCUITS.finditer(text):
        done.add(found[1])
        written = " @ ".join(
            f.replace("^T", ".T") for f in found[1].replace("QK", "QK[L0H0]").replace("OV", "OV[L0H0]").split()
        )
        if not check(written, sc.attention_only((1,)), convention="transformerlens" if here.theirs else "paper"):
            yield f"{found[1]} is not a circuit"
    for formula in formulas(text):
        if formula not in done:
            yield from _formula(formula, derivation, here)


def _maps(found: re.Match[str], derivation: Derivation | None, here: Here, done: set[str]) -> Iterator[str]:
    frame = derivation.frame if derivation else None
    heads = [h for h in here.arch.all_heads if frame is None or h.layer < frame.depth]
    assert heads
    for head in heads:
        here.head = head
        biased = f"b_V[{here.arch.key_value(head)}]" in here.arch.biases
        formula = found[3] if biased and found[3] else found[2]
        done |= {found[1], found[2], *([found[3]] if found[3] else [])}
        added_by_head = here.run.results[str(head)] / here.model.multipliers.get(f"r[L{head.layer}]", 1.0)
        if not same(here.of(formula), added_by_head):
            yield f"{head} does not map {found[1]} to {formula}"


def _layers(formula: str, depth: int, here: Here) -> Iterator[str]:
    """Whether a layer below, without what biases and MLPs add, is this map."""
    for layer in range(depth):
        here.heads = here.arch.layer_heads(layer)
        x = here.free["x"]
        if not here.heads:
            continue
        whole = x
        read = here.normed(f"L{layer}", x)
        for head in here.heads:
            w_v, w_o = here.arrays[f"W_V_{here.arch.key_value(head)}"], here.arrays[f"W_O_{head}"]
            moved = here.run.patterns[str(head)] @ read @ w_v.T @ w_o.T
            whole = whole + here.model.multipliers.get(f"r[L{layer}]", 1.0) * moved
        here.head = here.heads[0]
        if not same(here.of(formula)(x), whole):
            yield f"layer {layer} is not the map {formula}"


def _turned(short: str, long: str, here: Here) -> Iterator[str]:
    q, k, turns = here.free["q"], here.free["k"], here.run.arrays[f"R_{here.head}"]
    i, j = 2, 1
    known = {"q_i": q[i : i + 1], "R_i": turns[i], "R_j": turns[j], "k_j": k[j : j + 1]}
    value = np.eye(1)
    for factor in long.split():
        letter = known[factor.removesuffix("^T")]
        value = value @ (letter.T if factor.endswith("^T") else letter)
    if not same(value[0, 0], here.of(short)[i, j]):
        yield f"{short} is not {long}"


def sided(formula: str, here: Here) -> str:
    """The norms of queries and keys by their names, first those of the query."""
    head, shared = here.head, here.arch.key_value(here.head)
    names = {"D": [f"D[Q{head}]", f"D[K{shared}]"], "gain": [f"gain[Q{head.layer}]", f"gain[K{head.layer}]"]}
    return re.sub(r"\b(?:D|gain)\b", lambda m: names[m[0]].pop(0), formula) if here.arch.qk_norm else formula


def letters_of(derivation: Derivation | None) -> set[str]:
    """The letters that a derivation gives a meaning of its own: in its claims, and renamed ones."""
    if derivation is None:
        return set()
    sides = [side for step in derivation.steps for claim in step.claims for side in claim.sides]
    nodes = [node for side in sides for node in every_node(side) if getattr(node, "letter", False)]
    own = {str(getattr(node, "name", "") or getattr(node, "text", "")) for node in nodes}
    changed = {n.name for side in sides for n in every_node(side) if isinstance(n, Changed)}
    numbers = {n.scalar for side in sides for n in every_node(side) if isinstance(n, Scaled)}
    return {*own, *changed, *numbers, *derivation.notation.names.values()}


def _formula(formula: str, derivation: Derivation | None, here: Here) -> Iterator[str]:
    if counts := re.fullmatch(r"H_(\d+) = (\d+)", formula):
        if derivation and derivation.frame.architecture.heads[int(counts[1]) - 1] != int(counts[2]):
            yield f"not so: {formula}"
        return
    if bound := re.fullmatch(r"\((\d+)/p\)\^(\d+) = (\S+)", formula):
        if float(bound[3]) != float(f"{(int(bound[1]) / 2147483647) ** int(bound[2]):.1e}"):
            yield f"not so: {formula}"
        return
    if PLAIN.fullmatch(formula):
        return
    if name := NAME.fullmatch(formula):
        if name[1] not in GLYPHS | letters_of(derivation):
            yield f"unknown letter {formula}"
        return
    if formula[1:-1] in letters_of(derivation) and formula == f"({formula[1:-1]})":
        return  # what a changed model is called
    if VALUED.fullmatch(formula):
        here.generic = True
        if formula not in ("A D_l", "A (x) W"):
            here.of(formula)
        here.generic = False
        return
    if EQUATION.fullmatch(formula):
        yield from _equation(formula, here)
        return
    yield f"nothing here reads {formula}"


def _equation(formula: str, here: Here) -> Iterator[str]:
    left, right = formula.split(" = ")
    if formula in ("W_U = W_E^T", "W_U^T = W_E"):
        return  # an assumption, of tied embeddings
    if formula in ("Y = X + P", "Z = Y + P"):
        here.head = here.arch.all_heads[-1]
    here.generic = "(x)" in formula
    left, right = (re.sub(r"\bA 1\b", "A_1 1", side) if formula == "A 1 = 1" else side for side in (left, right))
    try:
        if not same(here.of(left), here.of(right)):
            yield f"not equal: {formula}"
    except ValueError as fault:
        yield f"not equal: {formula} ({fault})"
    here.generic = False


# -------------------------------------------------------------------------------------------------------- the tests
@cache
def pages(which: int) -> list[Derivation]:
    heads, options = ARCHITECTURES[which]
    arch = sc.transformer(heads, **options)
    targets = ["logits", *([] if which % 3 else ["stream"]), *(f"scores:L{at}H{n - 1}" for at, n in enumerate(heads))]
    mixed = any(len({f"b_V[{h}]" in arch.biases for h in arch.layer_heads(at)}) > 1 for at in range(arch.n_layers))
    forms = ["enumerated"] if mixed and not arch.groups else ["enumerated", "generic"]
    return [sc.derive(arch, target, form=form) for target in targets for form in forms]


@pytest.mark.parametrize("which", range(len(ARCHITECTURES)))
@pytest.mark.sampled(3)
def test_every_formula_in_a_sentence_is_true_of_the_model(which: int) -> None:
    for notation in NOTATIONS:
        here = Here(pages(which)[0].frame.architecture, notation == "transformerlens")
        for derivation in pages(which):
            for text in dict.fromkeys(sentences(derivation.written(notation))):
                assert list(untrue(text, derivation, here)) == [], text


RESULTS = [entry.name for entry in entries() if entry.result is not None]


@cache
def results() -> dict[str, Derivation]:
    return {name: made(name) for name in RESULTS}


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("name", RESULTS)
def test_every_formula_in_a_sentence_of_a_result_is_true(name: str, notation: str) -> None:
    derivation = results()[name].written(notation)
    here = Here(sc.attention_only((2, 2), "standard", True), notation == "transformerlens")
    own = Here(derivation.frame.architecture, notation == "transformerlens")
    for text in dict.fromkeys(sentences(derivation)):
        said = own if MAPS.search(text) or SCORES.search(text) or LAYER.search(text) else here
        assert list(untrue(text, derivation, said)) == [], text


@pytest.mark.parametrize("notation", NOTATIONS)
def test_every_formula_of_a_caption_is_true(notation: str) -> None:
    here = Here(sc.attention_only((2, 2), "standard", True), notation == "transformerlens")
    said = quoted(caption(Notation(notation)), Notation(notation))
    assert list(untrue(said, None, here)) == []
    outside = "".join(said.split("`")[::2])
    assert not re.search(r"[=^]|\(x\)", outside), outside  # every formula stands between backticks
    unmarked = said.replace("`", "")
    assert Notation(notation).convention in unmarked


def from_latex(latex: str) -> str:
    """A formula in LaTeX as it is written in the text of a sentence."""
    for pattern, text in (
        (r"\\otimes ?", "(x)"), (r"\\sum ?", "sum"), (r"\\mathrm\{Id\}", "Id"), (r"\\mathbf\{1\}", "1"),
        (r"\\Gamma", "gain"), (r"\^\{\\mathsf\{T\}\}", "^T"), (r"\^\{-1\}", "^-1"),
        (r"\^\{\\mathrm\{(\w+)\}\\,\\mathsf\{T\}\}", r"[\1]^T"), (r"\^\{\\mathrm\{(\w+)\}\}", r"[\1]"),
        (r"\^\{(\w)\\,\\mathsf\{T\}\}", r"[\1]^T"), (r"\^\{(\w)\}", r"[\1]"), (r"\^\{(\w_\{\w+\})\}", r"[\1]"),
        (r"\^\{(G\(\w\))\\,\\mathsf\{T\}\}", r"[\1]^T"), (r"\^\{(G\(\w\))\}", r"[\1]"),
        (r"\\sqrt\{d_\{\\mathrm\{head\}\}\}", "sqrt(d_head)"),
        (r"\\sqrt\{v \+ \\epsilon\}", "sqrt(v + eps)"), (r"\\epsilon", "eps"), (r"\\mathbf\{(\w)\}", r"\1"),
        (r"\\times", "x"), (r"\\cdot10\^\{-(\d+)\}", r"e-\1"), (r"_\{(\w+)\}", r"_\1"), (r"\\,", " "),
    ):  # fmt: skip
        latex = re.sub(pattern, text, latex)
    return latex


def bare(formula: str, theirs: bool) -> str:
    """Without what the two formats write otherwise."""
    formula = re.sub(r"\bX_(\d)", r"X\1", formula.replace("mlp", "M").replace("e-0", "e-"))
    return re.sub(r"\s+", "", formula.replace("W_OV", "OV").replace("W_QK", "QK") if theirs else formula)


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("which", range(len(ARCHITECTURES)))
@pytest.mark.sampled(9)
def test_sentences_say_the_same_in_latex(which: int, notation: str) -> None:
    theirs = notation == "transformerlens"
    for derivation in pages(which):
        derivation = derivation.written(notation)
        said = [*conventions(derivation), *(s.reason for s in derivation.steps)]
        for text in dict.fromkeys(said):
            shown = [from_latex(f) for f in prose(text, derivation.notation).split("$")[1::2]]
            plainly = formulas(quoted(text, derivation.notation))
            assert [bare(f, theirs) for f in shown] == [bare(f, theirs) for f in plainly], text


@pytest.mark.parametrize("options", [{"norm": "LN"}, {"norm": "RMS"}, {"qk_norm": True}], ids=str)
def test_the_scale_of_a_norm_is_what_the_sentence_says_with_its_epsilon(options: dict[str, Any]) -> None:
    model = random_model(sc.transformer((2, 1), **options), d_model=6, d_head=4, d_vocab=5)
    derivation = sc.derive(model.architecture, "scores:L1H0", form="enumerated")
    (said,) = [line for line in conventions(derivation) if "`1/sqrt(v + eps)`" in line]
    kind = re.search(r"with `v` the (variance|mean square) of (?:its|their) (row|query)", said)
    assert kind is not None
    run, head = model.run(TOKENS), "L0" if "norm" in options else "QL1H0"
    stream = run.streams[0 if head == "L0" else 1]
    x = stream if kind[2] == "row" else stream @ run.model.weights["W_Q_L1H0"].T
    v = x.var(-1) if kind[1] == "variance" else (x**2).mean(-1)
    assert np.allclose(run.norms[head], 1 / np.sqrt(v + model.settings.eps), rtol=1e-12)
    assert not np.allclose(run.norms[head], 1 / np.sqrt(v), rtol=1e-9)
