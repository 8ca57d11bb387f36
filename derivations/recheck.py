"""Evaluate both sides of every claim of printed derivations: a second evaluator, which imports nothing of symcircuits.

`recheck.py FILES`: random matrices modulo a prime, its own forward pass; a new name alone on the left is defined. Not
read: prose, types, numbers beside lines. Exit status: 0 all read is confirmed, 1 a claim is refuted, 2 nothing read.
"""

import random
import re
import sys
from functools import partialmethod
from pathlib import Path

P, N = 2**127 - 1, 4  # all matrices are N x N, so that nothing is equal by its shape; vectors are N x 1
GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
TOKEN = rf"(?:\\math\w+{GROUP}|\\[A-Za-z]+|{GROUP}|[A-Za-z]|\d+|\))(?:[_^](?:{GROUP}|\w))*|\S"
SPACE = r"\\(?:big[lr]?|left|qquad|quad|cdot|ast)(?![A-Za-z])\.?|\\[,;]|&|\{\}|\\(?:begin|end)\{aligned\}|\\\\\*?"
NORM, PMATRIX = r"\\bigl\\\|(.*?)\\bigr\\\|\^\{2\}", r"\\begin\{pmatrix\}([-\d\s&\\]*)\\end\{pmatrix\}"
BESIDE = r"&\\quad&.*?(?=\\\\|\n)|\\quad(\[.*?\]|\\text{.*?})|\\right\\}\\;(\\begin.*?\\end{array}|.*?terms?})"


def plain(name):
    return "{" * (name[0] == "{") + re.sub(r"\\mathrm|\\text|[{}\s]", "", name)  # `W_OV^L0H1`; `{Y}` as `{Y`


class Value:  # a matrix (a number is a multiple of `Id`), or a map of streams: a function of values, and its slots
    def __init__(self, it, slots=()):
        self.it = [[it * (i == j) for j in range(N)] for i in range(N)] if isinstance(it, int) else it
        self.slots = slots

    T = property(lambda self: Value([list(column) for column in zip(*self.it, strict=True)]))
    square = property(lambda self: self @ self)
    inverse = property(lambda self: Value(pow(self.it[0][0], -1, P)))  # of a number

    def __add__(self, other):
        if callable(self.it) or callable(other.it):
            return Value(lambda x: self @ x + other @ x)
        return Value([[(x + y) % P for x, y in zip(*r, strict=True)] for r in zip(self.it, other.it, strict=True)])

    def __matmul__(self, other):
        if callable(self.it) and not callable(getattr(other, "it", None)):
            return self.it(other)
        if callable(self.it) or callable(other.it):
            return Value(lambda x: self @ (other @ x))
        return Value([[sum(x * y for x, y in zip(r, c, strict=True)) % P for c in other.T.it] for r in self.it])

    def __mul__(self, w, flip=True):
        if self.slots:
            return Value(lambda pair: self.slots[0] @ pair[0] @ w @ pair[1].T @ self.slots[1].T)
        return Value(lambda x: self @ x @ (w.T if flip else w), (self, w))

    __mod__ = partialmethod(__mul__, flip=False)  # in TransformerLens's shapes
    __pow__ = __matmul__  # `**`, `*` and `%`, `+`: Python binds them as the paper does products, maps and sums


class Model:  # that of the line "Model:"; with `count`, all is `Id` and patterns are `count`, which counts paths
    def __init__(self, tex, count=0, given=()):
        self.tex, self.count, self.known = tex, count, {"Id": Value(1), "-": Value(P - 1), **dict(given)}
        self.known["\\mathbf1"] = Value(1 if count else [[1]] * N)
        line = self.line = (re.search(r"Model: .*", tex) or [""])[0]
        self.flipped = "TransformerLens's convention" in tex
        self.stochastic = re.search(r"rows (of every pattern |that )?sum to one", tex.split("Step 1 ")[0])
        has = re.findall(r"\$(b.*?)\$", line.split("no others")[0]) + re.findall(r"m_[EU]|(?<!{)r\^{.mathrm{\w+}}", tex)
        self.has = {re.sub(r"G\(|\)|(?<=\d)[HG]\d+$", "", plain(name)) for name in has}
        counts = dict(re.findall(r"(value )?heads ([\d,]+)", line))
        self.heads, self.groups = ([int(n) for n in counts.get(key, "").split(",") if n] for key in ("", "value "))
        if generic := re.search(r"(\d+) layers?( below the head)?, any number", line):
            layers = range(int(generic[1]) + bool(generic[2]))
            self.heads = [max(k + 3, 0, *(int(n) + 1 for n in re.findall(rf"L{k}H(\d+)", tex))) for k in layers]
            self.groups = [heads // 2 for heads in self.heads if "shared by groups" in line]
        known, part, one = self.known, self.part, self.known["\\mathbf1"]
        trace = Value(lambda x: Value(sum(x.it[i][i] for i in range(N))))  # these act on all that follows in a product
        known |= {"Tr": trace, "\\norm": Value(lambda x: trace @ (x @ x.T)), "/": Value(lambda x: x.inverse)}
        for name, u, v in ((name, self.get("b_Q", name), self.get("b_K", name)) for name in "TRSVQ"):
            known["{" + name] = Value(1) + u @ v.T  # `T`, `R`, `S`, `V`; `Q` is two mirrors, `c` and `z` are vectors
            known[name + "^-1"] = Value(1) + u @ v.T @ Value(-1 - (v.T @ u).it[0][0]).inverse
        first, second = (Value(1) + w @ w.T @ Value((w.T @ w).it[0][0] * (P // 2)).inverse for w in (u, v))
        known |= {"{c": u, "{z": v, "{Q": first @ second, "{C": Value(1) + one @ one.T @ Value(-N).inverse}
        known["X_0"] = self.get("t") @ self.get("W_E").T  # the forward pass, under the names that are printed
        x = part("m_E") @ known["X_0"] + part("P", "", "positions standard", 0)
        for layer, heads in enumerate(self.heads):
            known[f"H_{layer + 1}"], known[f"H_{layer + 1}^2"] = Value(heads), Value(heads**2)
            y = known[f"Y^L{layer}"] = self.norm(x, f"L{layer}")
            out = part("b_O", f"L{layer}")
            for head in (f"L{layer}H{index}" for index in range(heads)):
                for kind in "QK":
                    read = (y + part("P", "", "shortformer", 0)) @ self.get(f"W_{kind}", head).T
                    scale, gain = part("D", kind + head, "normed q"), part("\\Gamma", f"{kind}{layer}", "normed q")
                    known[kind + head] = scale @ (read + part(f"b_{kind}", head)) @ gain
                scaled = part("s", head, "^(?!.*no score scale)") @ known["Q" + head] @ part("R_j-i", head, "rotary")
                known[f"S^{head}"] = scaled @ known["K" + head].T + part("{alibi", head, "alibi", 0)
                out += self.get("A", head) @ (y @ self.get("W_V", head).T + part("b_V", head)) @ self.get("W_O", head).T
            mlp = part("r", f"M{layer}") @ part("M", f"L{layer}", "MLPs", 0)
            x = known[f"X_{layer + 1}"] = x + part("r", f"L{layer}") @ out + mlp
        known["stream"], known["Y^final"] = x, self.norm(x, "final")
        known["logits"] = part("m_U") @ (known["Y^final"] @ self.get("W_U").T + part("b_U"))

    def get(self, letter, label=""):  # what a symbol stands for, in the paper's shapes
        if self.groups and letter[2:] in ("K", "V") and (head := re.fullmatch(r"L(\d+)H(\d+)", label)):
            label = f"L{head[1]}G{int(head[2]) * self.groups[int(head[1])] // self.heads[int(head[1])]}"
        name = f"{letter}^{label}" if label else letter
        if letter in ("W_OV", "W_QK"):
            first, second = self.get("W_" + letter[2], label), self.get("W_" + letter[3], label)
            return first @ second if letter == "W_OV" else first.T @ second
        if name in self.known or self.count:
            return self.known.get(name, Value(self.count if letter == "A" else 1))
        if (run := re.fullmatch(r"(logits|stream|S\^\w+)\^?\([cz]\)", name)) and "{E" in self.known:
            given = {w: self.known[m] for w, m in (("W_E", "{E"), ("P", "{F"), ("W_U", "{W")) if m in self.known}
            return Model(self.tex, given=given).known[run[1]]  # with the matrices that the page defines for these
        if not re.fullmatch(r"[tPMACDsr]|W_[EUQKVO]|b_[VQKONU]|R_j-i|\\Gamma|\{(alibi|[Jabpr])|m_[EU]", letter):
            raise ValueError(f"{name} is not known")
        chance = random.Random(name)
        drawn = [[chance.randrange(1, P) for _ in range(N if letter[0] != "b" else 1)] for _ in range(N)]
        drawn = [[*r[1:], (1 - sum(r[1:])) % P] for r in drawn] if letter in ("A", "t") and self.stochastic else drawn
        value = Value(drawn[0][0] if letter in ("s", "r", "m_E", "m_U") else drawn)
        return self.known.setdefault(name, value + value.T if letter in ("C", "D", "\\Gamma") else value)

    def part(self, letter, label="", when="", absent=1):  # a symbol where the model has it, else what changes nothing
        place = re.sub(r"H\d+$", "", label)
        names = {letter, f"{letter}^{place}", re.sub(r"L(\d+)", lambda l: f"h_{int(l[1]) + 1}", f"{letter}^{place}")}
        there = re.search(when, self.line) if when else names & self.has
        value = self.get(letter, label) if there else Value(absent * (letter[0] != "b"))
        return self.known["\\mathbf1"] @ value.T if there and letter[0] == "b" else value

    def norm(self, x, label):
        gain = self.part("C", "", "LN norm") @ self.part("\\Gamma", label, "(LN|RMS) norm(?! without gain)")
        return self.part("D", label, "(LN|RMS) norm") @ x @ gain + self.part("b_N", label)

    def terms(self, which):  # the number of terms: all, those of an order, or those of a composition type of the scores
        ones = {z: Model(self.tex, z).known for z in (1, P, 2**24)}  # P counts as zero
        if scores := re.search(r"S\^\{\\mathrm\{(L\w+)\}\}", self.tex):
            q, k, a, b = (ones[z][x + scores[1]].it[0][0] for z in (1, P) for x in "QK")
            return {"": q * k, "none": a * b, "Q": (q - a) * b, "K": a * (k - b), "QK": (q - a) * (k - b)}[which]
        many, one = (ones[z]["logits"].it[0][0] for z in (2**24, 1))
        return many >> 24 * range(5 * (len(self.heads) < 5))[int(which)] & 2**24 - 1 if which else one

    def symbol(self, token):  # the value of a name with its scripts, in the shapes of the notation
        name, turned = re.subn(r"\\mathsf\{T\}", "", token)
        letter, _, label = re.sub(r"\^G\((.*)\)$", r"^\1", plain(name)).partition("^")
        if re.match(r"\d|N(_|$)", letter):
            return Value(int(letter) if letter.isdigit() else self.terms(letter[2:]))
        if re.match(r"\{-?\d", letter):  # a small matrix, zeros beside and below
            return Value([*([*map(int, r.split(",")), *[0] * N][:N] for r in letter[1:].split(";")), *Value(0).it][:N])
        value = self.get(letter, label)
        return value.T if turned ^ (self.flipped and bool(re.match("W_(?!QK)|b_", letter))) else value

    def evaluate(self, side):  # sums over heads written out, then what Python makes of brackets and signs
        tokens = [part for token in side for part in ("+-" if token == "-" else [token])]
        for at in reversed(range(len(tokens))):
            if over := re.fullmatch(r"\\sum_\{(\w_\{(\d+)\})=1\}\^\{H_\{(\d+)\}\}", tokens[at]):
                end, depth = at + 1, 0
                while end < len(tokens) and (depth or tokens[end][0] not in "+,)"):
                    depth += (tokens[end] == "(") - (tokens[end][0] == ")")
                    end += 1
                heads = [f"L{int(over[2]) - 1}H{index}" for index in range(self.heads[int(over[3]) - 1])]
                body = [t.replace(over[1], head) for head in heads for t in ["+", *tokens[at + 1 : end]]]
                tokens[at:end] = ["(", *body[1:], ")"]
        source, values, marks = "", [], {"(": "(", "+": "+", ",": ",", ")": ")", ")^{2}": ").square"}
        marks |= {"\\otimes": "%" if self.flipped else "*", r")^{\mathsf{T}}": ").T"}
        for token in tokens:
            mark = marks.get(token, f"v[{len(values)}]")
            values += [self.symbol(token)] if token not in marks else []
            source += "**" * (source[-1:] not in ("", *"(+,*%") and mark[0] in "v(") + mark
        return eval(source, {"v": values})  # only brackets, signs and v[0], v[1], ... stand in it

    def claims(self):  # left side, relation and right side of every claim of every display, sides as lists of tokens
        for display in re.findall(r"\\begin\{align(?:at)?\*\}(?:\{2\})?(.*?)\\end\{align(?:at)?\*", self.tex, re.S):
            body = re.sub(NORM, r"(\\norm(\1))", re.sub(BESIDE, "", display, flags=re.S), flags=re.S)
            body = re.sub(PMATRIX, lambda m: f"{{{m[1]}}}".replace("&", ",").replace(r"\\", ";"), body)
            body = re.sub(rf"\\textcolor\{{[^{{}}]*\}}({GROUP})", lambda found: found[1][1:-1], body)
            for chain in re.split(r"\\\\\*?+(?!\s*&\s*(?:=|\\neq|\{\}|\\q?quad))", body):
                parts = re.split(r"\s(=|\\neq)\s", re.sub(SPACE, " ", chain))
                for left, relation, right in zip(parts[::2], parts[1::2] or [""], parts[2::2] or [""], strict=False):
                    yield re.findall(TOKEN, left), relation, re.findall(TOKEN, right)

    def judge(self, left, relation, right):  # `confirmed`, `refuted` or `defined`, or why it is not read
        try:
            if len(left) == 1 and left[0][0] == "{" and plain(left[0]) not in self.known:
                return self.known.update({plain(left[0]): self.evaluate(right)}) or "defined"
            d = self.evaluate(left) + Value(P - 1) @ self.evaluate(right)
            apart = any(map(any, (d @ self.get("t") if callable(d.it) else d).it))
            return "refuted" if apart == (relation == "=") else "confirmed"
        except (ValueError, TypeError, AttributeError, LookupError, SyntaxError, RecursionError) as error:
            return f"not read: {error}"


def main(paths):
    counts = dict.fromkeys(("confirmed", "refuted", "defined", "not read"), 0)
    for path, model in ((path, Model(Path(path).read_text(encoding="utf-8"))) for path in paths):
        for left, relation, right in model.claims():
            found = model.judge(left, relation, right)
            counts[found.partition(":")[0]] += 1
            if found not in ("confirmed", "defined"):
                print(f"{path}: {' '.join(left)} {relation} ...: {found}")
    print(", ".join(f"{number} {what}" for what, number in counts.items()))
    return 1 if counts["refuted"] else 0 if counts["confirmed"] else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
