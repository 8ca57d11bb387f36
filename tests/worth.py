"""What a formula is worth: text notation over random matrices modulo a prime, and mutants of right formulas.

Nothing of the package's reading and matching is used: the text is taken apart by Python's own parser, and a formula is
right where its value is that of a term, of all terms together, or of the weights of a term. Norms are diagonal,
centring is a projection, every other letter is an independent random matrix of a size of its own kind.
"""

from __future__ import annotations

import ast
import random
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from itertools import product as product_of
from typing import Any

import numpy as np
from strategies import oracle, possible_biases

from symcircuits.core.architecture import Architecture, transformer
from symcircuits.core.attachments import Part, Reading
from symcircuits.core.expansion import expand

PRIME = 536870909  # products of entries, added up ten times, fit into 64 bits
N, D, IN, OUT, QK, OV, ONE = 3, 5, 4, 6, 2, 7, 1
TOKENS = ("t", "X0", "A", "D", "ones", "mlp", "rest")  # what has a row for each token, beside positions
SYMMETRIC = ("D", "C", "gain")
FLIPPED = ("W_E", "W_U", "W_Q", "W_K", "W_V", "W_O", "W_OV", "b_N", "b_V", "b_O", "b_Q", "b_K", "b_U")
SHAPES = {
    "t": (N, IN), "P": (N, D), "ones": (N, ONE), "mlp": (N, D), "rest": (N, D), "A": (N, N), "D": (N, N), "C": (D, D),
    "W_E": (D, IN), "W_U": (OUT, D), "W_Q": (QK, D), "W_K": (QK, D), "W_V": (OV, D), "W_O": (D, OV), "R": (QK, QK),
    "b_N": (D, ONE), "b_O": (D, ONE), "b_V": (OV, ONE), "b_Q": (QK, ONE), "b_K": (QK, ONE), "b_U": (OUT, ONE),
}  # fmt: skip


def group_of(arch: Architecture, head: str) -> str:
    """The label of a head's keys and values."""
    layer, number = map(int, head[1:].split("H"))
    if arch.groups is None or arch.groups[layer] == arch.heads[layer]:
        return head
    return f"L{layer}G{number * arch.groups[layer] // arch.heads[layer]}"


class Worth:
    """The value of formulas of one architecture; None where they have none, because sizes do not fit."""

    def __init__(self, arch: Architecture, theirs: bool = False, seed: int = 0) -> None:
        self.arch, self.theirs, self.seed = arch, theirs, seed
        self.own = {p.name: (N, D) for p in arch.parts} | {r.name: (OUT + 2, D) for r in arch.readings}
        self.made: dict[tuple[str, str], Any] = {}

    def matrix(self, glyph: str, label: str) -> Any:
        """A letter in the paper's shapes."""
        if glyph in ("W_K", "W_V", "b_K", "b_V") and "H" in label:
            label = group_of(self.arch, label)
        if glyph in ("D",) and label[:1] == "K" and "H" in label:
            label = "K" + group_of(self.arch, label[1:])
        key = glyph, label
        if key not in self.made:
            self.made[key] = self._make(glyph, label)
        return self.made[key]

    def _make(self, glyph: str, label: str) -> Any:
        draw = np.random.default_rng([self.seed, *f"{glyph}[{label}]".encode()])
        if glyph == "X0":
            return times(self.matrix("t", ""), self.matrix("W_E", "").T)
        if glyph == "W_OV":
            return times(self.matrix("W_O", label), self.matrix("W_V", label))
        if glyph == "W_QK":
            return times(self.matrix("W_Q", label).T, self.matrix("W_K", label))
        if glyph == "C":
            return (np.eye(D, dtype=np.int64) - pow(D, -1, PRIME)) % PRIME
        if glyph in ("D", "gain"):
            size = N if glyph == "D" else QK if label[:1] in "QK" else D
            return np.diag(draw.integers(1, PRIME, size))
        if glyph in ("scale", "m_E", "m_U", "r"):
            return int(draw.integers(1, PRIME))
        return draw.integers(1, PRIME, SHAPES[glyph] if glyph in SHAPES else self.own[glyph])

    def letter(self, glyph: str, label: str = "") -> Any:
        """A letter as the convention of the formula has it."""
        glyph = {"OV": "W_OV", "QK": "W_QK", "W_pos": "P"}.get(glyph, glyph) if self.theirs else glyph
        found = self.matrix(glyph, label)
        return found.T if self.theirs and glyph in FLIPPED else found

    def of(self, text: str) -> Any:
        """The value of a formula."""
        text = re.sub(r"R\[(\w+)\] @ R\[\1\]\.T", r"R[\1]", text)  # R_i R_j^T is what R stands for
        try:
            return self._of(ast.parse(text.strip(), mode="eval").body)
        except Misfit:
            return None

    def _of(self, node: ast.expr) -> Any:
        match node:
            case ast.BinOp(left, ast.Add() | ast.Sub() as sign, right):
                a, b = self._of(left), self._of(right)
                if np.shape(a) != np.shape(b):
                    raise Misfit
                return (a + b if isinstance(sign, ast.Add) else a - b) % PRIME
            case ast.BinOp(left, _, right):
                return times(self._of(left), self._of(right))
            case ast.UnaryOp(ast.USub(), inner):
                return -self._of(inner) % PRIME
            case ast.Attribute(inner, "T"):
                return self._of(inner).T
            case ast.Subscript(ast.Name(glyph), ast.Name(label)):
                return self.letter(glyph, label)
            case ast.Name(glyph):
                return self.letter(glyph)
            case ast.Constant(value):
                return value % PRIME if isinstance(value, int) else self.letter(value)
        raise ValueError(ast.dump(node))


class Misfit(Exception):
    """Sizes do not fit."""


def times(a: Any, b: Any) -> Any:
    """The product of matrices or numbers."""
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b % PRIME
    if a.shape[1] != b.shape[0]:
        raise Misfit
    return a @ b % PRIME


def key(value: Any) -> Any:
    """What values are compared by."""
    return None if value is None or np.ndim(value) != 2 else (value.shape, value.tobytes())


# ------------------------------------------------------------------------------------------------ what is right
def split(text: str) -> tuple[list[str], list[str]]:
    """The numbers before a product, and its factors."""
    *front, product = text.split(" * ")
    return front, product.split(" @ ")


def glyph_of(factor: str) -> str:
    return factor.removesuffix(".T").partition("[")[0].strip('"')


class Truth:
    """What is right of one target: decided by values alone."""

    def __init__(self, arch: Architecture, target: str) -> None:
        self.arch, self.target, self.worth = arch, target, Worth(arch)
        own = bool(arch.readings or arch.parts)
        self.texts = [t.text for t in expand(arch, target)] if own else [row.text for row in oracle(arch, target)]
        self.unscaled = [" * ".join([*(x for x in split(t)[0] if x[:6] != "scale["), " @ ".join(split(t)[1])])
                         for t in self.texts]  # fmt: skip
        self.terms = [[self.worth.of(t) for t in some] for some in (self.texts, self.unscaled)]
        self.single = {key(v) for some in self.terms for v in some}
        self.whole = {key(sum(some[1:], some[0]) % PRIME) for some in self.terms if some}
        self.tokens = {*TOKENS, *(p.name for p in arch.parts)}

    def is_circuit(self, glyphs: set[str]) -> bool:
        """Whether these are letters of weights alone."""
        return not glyphs & self.tokens and ("W_E" in glyphs or "P" not in glyphs)

    def circuits(self) -> list[list[str]]:
        """The weights of every term, one list for each way to write them."""
        forms: dict[Any, list[str]] = {}
        for text in self.texts:
            front, factors = split(text)
            inner = [g for f in factors for g in {"X0": ["t", "W_E.T"], "X0.T": ["W_E", "t.T"]}.get(f, [f])]
            inner = [f for f in inner if glyph_of(f) not in self.tokens]
            if not inner or ("P" in map(glyph_of, inner) and "W_E" not in map(glyph_of, inner)):
                continue
            scores = self.target[:6] == "scores"
            for first in {0, int(glyph_of(inner[0]) == "W_E")}:
                for last in {0, int(glyph_of(inner[-1]) in ("W_E", "W_U"))}:
                    form = inner[first : len(inner) - last]
                    alone = len(form) == 1 and not scores and glyph_of(form[0]) in ("W_E", "W_U")
                    if form and not alone:
                        self._add(forms, front, form, scores, "".join(sorted(f"{first}{last}")), inner)
                    ends = list(map(glyph_of, form))
                    if last and not scores and ends[-1:] in (["C"], ["gain"]):  # a head alone, without the next norm
                        kept = max((i + 1 for i, g in enumerate(ends) if g not in ("C", "gain")), default=0)
                        if kept > 1 or (kept and ends[0] != "W_E"):
                            self._add(forms, front, form[:kept], scores, f"{first}n", inner)
        return list(forms.values())

    def _add(self, forms: Any, front: list[str], form: list[str], scores: bool, way: str, inner: list[str]) -> None:
        glyphs = [glyph_of(f) for f in form]
        brought = []
        for f in form:
            layer = f"r[{f.partition('[')[2].partition('H')[0].partition(']')[0]}]"
            brought += [{"W_E": "m_E", "W_U": "m_U", "b_U": "m_U"}.get(glyph_of(f), "")]
            brought += [layer] if glyph_of(f) in ("W_OV", "W_O", "b_O") else []
        numbers = [n for n in front if n[:6] == "scale["] + [n for n in brought if n in self.arch.multipliers]
        backwards = [f if glyph_of(f) in SYMMETRIC else f.removesuffix(".T") if f.endswith(".T") else f + ".T"
                     for f in reversed(form)]  # fmt: skip
        bare = len(form) == len(inner) - 2
        middle = next((i for i, g in enumerate(glyphs) if g in ("W_QK", "W_Q", "b_Q")), 0)
        sided = {any(g in ("W_OV", "W_O") for g in some) for some in (glyphs[:middle], glyphs[middle:])} == {
            True,
            False,
        }
        turned = [True, False] if not scores or (bare and sided) else [False]
        for turn in turned:
            product = " @ ".join(backwards if turn else form)
            flags = product_of({False, self.arch.scale}, {False, bool(self.arch.multipliers)})
            ways = {f: tuple(n for n in numbers if f[n[:6] != "scale["]) for f in flags}
            for written, kept in ways.items():
                name = turn, way, written, key(self.worth.of(product))[0]
                forms.setdefault(name, []).append(" * ".join([*kept, product]))

    def right(self, text: str, named: bool = False, theirs: bool = False, part: bool = False) -> bool:
        """Whether a formula is right; ``named``: whether a left-hand side claims that it is the whole.

        ``part``: one or two terms are right too.
        """
        found = key(Worth(self.arch, theirs).of(text))
        if found is None:
            return False
        if self.is_circuit(glyphs_in(text)):
            return not named and found in self.of_circuits
        return found in self.whole or (not named and found in self.single) or (part and found in self.few)

    @cached_property
    def few(self) -> set[Any]:
        """The values of one term, and of two."""
        pairs = {key((a + b) % PRIME) for some in self.terms for a, b in combinations(some, 2)}
        return self.single | pairs

    @cached_property
    def of_circuits(self) -> set[Any]:
        """The values of circuits, and of two in the same form."""
        found: set[Any] = set()
        for some in self.circuits():
            values = list({key(v): v for v in map(self.worth.of, dict.fromkeys(some))}.values())
            found |= set(map(key, values)) | {key((a + b) % PRIME) for a, b in combinations(values, 2)}
        return found


def glyphs_in(text: str) -> set[str]:
    """The letters of a formula, without the numbers."""
    names = {n.id for n in ast.walk(ast.parse(text.strip(), mode="eval")) if isinstance(n, ast.Name)}
    quoted = {n.value for n in ast.walk(ast.parse(text.strip(), mode="eval"))
              if isinstance(n, ast.Constant) and isinstance(n.value, str)}  # fmt: skip
    return {{"OV": "W_OV", "QK": "W_QK", "W_pos": "P"}.get(n, n) for n in names} | quoted


# ------------------------------------------------------------------------------------------------------ mutants
@dataclass
class Product:
    """Numbers and factors of one product."""

    front: list[str]
    factors: list[str]
    sign: str = "+"
    grouped: bool = False

    def text(self, arch: Architecture, theirs: bool) -> str:
        factors = [in_theirs(f) for f in self.factors] if theirs else self.factors
        if self.grouped and len(factors) > 1:
            cut = len(factors) // 2
            tail = " @ ".join(turned(f) for f in reversed(factors[cut:]))
            factors = [*factors[:cut], f"({tail}).T"]
        return " * ".join([*self.front, " @ ".join(factors)])


def in_theirs(factor: str) -> str:
    """A factor in TransformerLens's shapes and names."""
    glyph = glyph_of(factor)
    flipped = turned(factor) if glyph in FLIPPED else factor
    return flipped.replace("W_OV", "OV").replace("W_QK", "QK")


def turned(factor: str) -> str:
    if glyph_of(factor) in SYMMETRIC:
        return factor
    return factor.removesuffix(".T") if factor.endswith(".T") else factor + ".T"


def alphabet(arch: Architecture, labels: list[str]) -> list[str]:
    """Letters that a formula of this architecture may hold."""
    letters = ["X0", "t", "W_E", "ones", *(["W_U"] if arch.unembed else [])]
    heads = [f"L{layer}H{i}" for layer, n in enumerate(arch.heads) for i in range(n)]
    letters += [f"{g}[{h}]" for h in heads for g in ("A", "W_OV", "W_QK", "W_Q", "W_O", "W_V", "W_K")]
    letters += ["P"] if arch.positions in ("standard", "shortformer") else []
    letters += [f"R[{h}]" for h in heads] if arch.positions == "rotary" else []
    letters += ["C"] if arch.norm == "LN" else []
    letters += [f"D[{n}]" for n in labels] + [f"gain[{n}]" for n in sorted(arch.gains)]
    if arch.qk_norm:
        letters += [f"D[{s}{h if s == 'Q' else group_of(arch, h)}]" for h in heads for s in "QK"]
        letters += [f"gain[{s}{layer}]" for layer in range(len(arch.heads)) for s in "QK"]
    inside = ("b_in", "b_gate", "b_out")
    letters += [b for b in possible_biases(arch) if not b.startswith(inside) and ("[" in b or arch.unembed)]
    return letters


def spelled(factors: list[str], arch: Architecture, rng: random.Random) -> list[str]:
    """Abbreviations written out, some or all of them."""
    out: list[str] = []
    for f in factors:
        glyph, transposed = glyph_of(f), f.endswith(".T")
        label = f.partition("[")[2].partition("]")[0]
        parts = [f]
        if rng.random() < 0.6 and glyph in ("X0", "W_OV", "W_QK"):
            shared = group_of(arch, label) if label else ""
            parts = {"X0": ["t", "W_E.T"], "W_OV": [f"W_O[{label}]", f"W_V[{shared}]"],
                     "W_QK": [f"W_Q[{label}].T", f"W_K[{shared}]"]}[glyph]  # fmt: skip
            parts = [turned(p) for p in reversed(parts)] if transposed else parts
        out += parts
    return out


def mutate(word: Product, letters: list[str], numbers: list[str], rng: random.Random) -> None:
    """One random change."""
    f = word.factors
    i, j = rng.randrange(len(f)), rng.randrange(len(f))
    kind = rng.choice(["turn", "drop", "double", "swap", "move", "replace", "relabel", "insert", "reverse", "number",
                       "like", "scalar", "swap", "relabel"])  # fmt: skip
    if kind == "turn":
        f[i] = turned(f[i])
    elif kind == "drop" and len(f) > 1:
        del f[i]
    elif kind == "double":
        f.insert(i, f[i])
    elif kind == "swap" and i:
        f[i - 1], f[i] = f[i], f[i - 1]
    elif kind == "move":
        f.insert(j, f.pop(i))
    elif kind == "replace":
        f[i] = rng.choice(letters) + rng.choice(["", ".T"])
    elif kind == "relabel":
        alike = [x for x in letters if glyph_of(x) == glyph_of(f[i])]
        f[i] = (rng.choice(alike) + ".T" * f[i].endswith(".T")) if alike else f[i]
    elif kind == "insert":
        f.insert(i, rng.choice(letters) + rng.choice(["", ".T"]))
    elif kind == "reverse":
        a, b = min(i, j), max(i, j) + 1
        f[a:b] = [turned(x) for x in reversed(f[a:b])] if rng.random() < 0.5 else f[a:b][::-1]
    elif kind == "number":
        word.front = [n for n in word.front if rng.random() < 0.7] + rng.sample(numbers, rng.random() < 0.3)
    elif kind == "like":
        f[:] = [turned(x) if glyph_of(x) == glyph_of(f[i]) else x for x in f]
    elif kind == "scalar" and "ones" in f and "ones.T" in f:
        a, b = f.index("ones") + 1, f.index("ones.T")
        f[a:b] = [turned(x) for x in reversed(f[a:b])]
    f[:] = [x.removesuffix(".T") if glyph_of(x) in SYMMETRIC else x for x in f]


def random_architecture(rng: random.Random) -> Architecture:
    """Any mixture of features, small."""
    heads = [rng.choice([1, 2, 2]) for _ in range(rng.choice([1, 2, 2, 3]))]
    heads = [1] * 3 if len(heads) == 3 else heads
    mlps = [layer for layer in range(len(heads)) if rng.random() < 0.4]
    more: dict[str, Any] = {"norm": rng.choice([None, None, "LN", "RMS"]), "mlps": mlps}
    more["qk_norm"], more["scale"] = rng.random() < 0.3, rng.random() < 0.7
    more["groups"] = [rng.choice([1, n]) for n in heads] if rng.random() < 0.3 else None
    more["parallel"] = bool(mlps) and rng.random() < 0.3
    more["unembed"] = rng.random() < 0.85
    positions = rng.choice([None, "standard", "shortformer", "rotary", "alibi"])
    if rng.random() < 0.3:
        more["multipliers"] = True
    plain = transformer(heads, positions, **more)
    if plain.norm_labels:
        more["gains"] = [n for n in plain.norm_labels if rng.random() < 0.7]
    share = rng.choice([0.0, 0.3, 1.0])
    arch = transformer(heads, positions, [b for b in possible_biases(plain) if rng.random() < share], **more)
    if rng.random() < 0.2:
        arch = attach(arch, mlps, more, rng)
    return arch


def attach(arch: Architecture, mlps: list[int], more: dict[str, Any], rng: random.Random) -> Architecture:
    """With attached readouts and sources."""
    layer = rng.randrange(len(arch.heads) + 1)
    norm = f"L{layer}" if arch.norm and layer < len(arch.heads) else ""
    found: list[Any] = [Reading("probe", layer, norm=norm)]
    found += [Part("feature 12", rng.randrange(len(arch.heads) + 1), rng.choice(["stream", "added"]))]
    found += [Part("neuron", mlps[0], "mlp")] if mlps and not more.get("multipliers") else []
    return arch.attached(*found)


@dataclass(frozen=True)
class Mutant:
    """A formula, how it is to be read, and whether its value is right; ``formula`` is the text, or it as LaTeX."""

    truth: Truth
    text: str
    formula: str
    right: bool
    theirs: bool
    part: bool

    def __str__(self) -> str:
        how = f"theirs: {self.theirs}, part: {self.part}"
        return f"{self.formula!r}\n    of {self.truth.target}, {self.truth.arch}; {how}; by numbers: {self.right}"


def mutants(seed: int, count: int, max_terms: int = 130) -> list[Mutant]:
    """So many mutants, of one architecture and one target."""
    rng = random.Random(seed)
    while True:
        arch = random_architecture(rng)
        heads = [f"scores:L{layer}H{i}" for layer, n in enumerate(arch.heads) for i in range(n)]
        targets = ["stream", "logits", "logits", *heads, *heads, *(f"readout:{r.name}" for r in arch.readings)]
        target = rng.choice([t for t in targets if arch.unembed or t != "logits"])
        if 0 < expand(arch, target).count <= max_terms:
            break
    truth = Truth(arch, target)
    return [_mutant(truth, rng) for _ in range(count)]


def _mutant(truth: Truth, rng: random.Random) -> Mutant:
    arch, theirs = truth.arch, rng.random() < 0.3
    letters = alphabet(arch, list(arch.norm_labels))
    numbers = [f"scale[L{layer}H{i}]" for layer, n in enumerate(arch.heads) for i in range(n)] + ["2", "-1"]
    numbers += sorted(arch.multipliers)
    kind = rng.choice(["term", "term", "term", "sum", "circuit", "circuits", "some"])
    texts = rng.sample(truth.texts, len(truth.texts))
    texts = texts if kind == "sum" else texts[: 2 if kind in ("some", "circuits") else 1]
    words = [Product(*split(t)) for t in texts]
    for w in words:
        w.factors = spelled(w.factors, arch, rng) if rng.random() < 0.5 else w.factors
        w.grouped = rng.random() < 0.15
    if kind[:7] == "circuit":
        _strip(words, truth, rng)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        mutate(rng.choice(words), letters, numbers, rng)
    extra = rng.random()
    if extra < 0.1 and len(words) > 1:
        words.remove(rng.choice(words))
    elif extra < 0.2:
        again = rng.choice(words)
        words.append(Product([*again.front], [*again.factors], rng.choice("+-")))
        words[-1].factors = spelled(words[-1].factors, arch, rng)
        if rng.random() < 0.3:
            words[-1].factors = [turned(f) for f in reversed(words[-1].factors)]
    text = factored(words, arch, theirs) if rng.random() < 0.3 else summed(words, arch, theirs)
    named = rng.random() < 0.25 and truth.target[:7] != "readout"
    said = rng.choice(["stream", *numbers[:1]]) if named and rng.random() < 0.1 else truth.target
    left = (said if said in ("logits", "stream") else f"S[{said.rpartition(':')[2].strip('scale[]')}]") + " = "
    left *= named
    part = rng.random() < 0.15 and len(words) < 3
    same = not named or left == f"{truth.target} = " or left == f"S[{truth.target[7:]}] = "
    right = same and truth.right(text, named, theirs, part)
    formula = in_latex(text) if rng.random() < 0.2 and not (arch.parts or arch.readings) else text
    return Mutant(truth, text, left + formula, right, theirs, part)


def summed(words: list[Product], arch: Architecture, theirs: bool) -> str:
    """A sum of products."""
    return words[0].text(arch, theirs) + "".join(f" {w.sign} {w.text(arch, theirs)}" for w in words[1:])


def factored(words: list[Product], arch: Architecture, theirs: bool) -> str:
    """The last factor taken out of a sum, where all words end with it."""
    last = {w.factors[-1] for w in words}
    if len(last) > 1 or any(len(w.factors) < 2 for w in words):
        return summed(words, arch, theirs)
    inner = [Product(w.front, w.factors[:-1], w.sign) for w in words]
    [end] = last
    return f"({summed(inner, arch, theirs)}) @ {in_theirs(end) if theirs else end}"


_LATEX = {"X0": "X_0", "ones": r"\mathbf{1}", "gain": r"\Gamma", "mlp": "M", "rest": r"\mathrm{rest}", "scale": "s",
          "W_OV": "W_{OV}", "W_QK": "W_{QK}", "OV": "W_{OV}", "QK": "W_{QK}", "R": "R_{j-i}"}  # fmt: skip


def in_latex(text: str) -> str:
    """The formula as LaTeX."""

    def letter(found: re.Match[str]) -> str:
        scripts = [rf"\mathrm{{{found[2]}}}"] * bool(found[2]) + [r"\mathsf{T}"] * bool(found[3])
        return _LATEX.get(found[1], found[1]) + (r"^{" + r"\,".join(scripts) + "}" if scripts else "")

    text = text.replace(").T", r")^{\mathsf{T}}").replace(" @ ", r"\,").replace(" * ", r"\,")
    return re.sub(r"(?<![\\{\w])([A-Za-z]\w*)(?:\[(\w+)\])?(\.T)?(?!\w)(?!\}\^|\{)", letter, text)


def _strip(words: list[Product], truth: Truth, rng: random.Random) -> None:
    """Weights alone, with or without what stands at the ends, one way round or the other."""
    ends, back, front = rng.choice([0, 0, 1]), rng.random() < 0.5, rng.random() < 0.5
    for w in words:
        f = [g for x in w.factors for g in {"X0": ["t", "W_E.T"], "X0.T": ["W_E", "t.T"]}.get(x, [x])]
        kept = [x for x in f if glyph_of(x) not in truth.tokens] or f
        if ends and len(kept) > 2:
            kept = kept[1:] if glyph_of(kept[0]) == "W_E" else kept
            kept = kept[:-1] if glyph_of(kept[-1]) in ("W_E", "W_U") else kept
        w.factors = [turned(x) for x in reversed(kept)] if back else kept
        w.front = w.front if front else []
