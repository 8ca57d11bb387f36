"""The transformer of `recheck.py`, which imports nothing of symcircuits: a forward pass in matrices modulo a prime."""

import random
import re
from functools import partialmethod

P, N = 2**127 - 1, 4  # all matrices are N x N, so that nothing is equal by its shape; vectors are N x 1
WIDTH = 2  # of narrow heads
NORMS = (("D", "{D_"), ("\\Gamma", "{G_"))  # of a model, and as pages on norms have them


def plain(name):
    return "{" * (name[0] == "{") + re.sub(r"\\mathrm|\\text|[{}\s]", "", name)  # `W_OV^L0H1`; `{Y}` as `{Y`


def reduced(x):  # modulo the prime; the floats of small examples stay as they are
    return x if -P < x < P else x % P


class Value:  # a matrix (a number is a multiple of `Id`), or a map of streams: a function of values, and its slots
    def __init__(self, it, slots=()):
        self.it = [[it * (i == j) for j in range(N)] for i in range(N)] if isinstance(it, int) else it
        self.slots = slots

    T = property(lambda self: Value([list(column) for column in zip(*self.it, strict=True)]))
    square = property(lambda self: self @ self)
    inverse = property(lambda self: Value(pow(self.it[0][0], -1, P)))  # of a number

    @property
    def rank(self):
        rows, rank = [list(row) for row in self.it], 0
        for at in range(len(rows[0])):
            if pivot := next((row for row in rows[rank:] if row[at]), None):
                rows.remove(pivot)
                rows.insert(rank, pivot)
                rank, pivot = rank + 1, [x * pow(pivot[at], -1, P) for x in pivot]
                pairs = [[(x, row[at] * y) for x, y in zip(row, pivot, strict=True)] for row in rows[rank:]]
                rows[rank:] = [[reduced(x - y) for x, y in row] for row in pairs]
        return Value(rank)

    def __add__(self, other):
        if callable(self.it) or callable(other.it):
            return Value(lambda x: self @ x + other @ x)
        return Value([[reduced(x + y) for x, y in zip(*r, strict=True)] for r in zip(self.it, other.it, strict=True)])

    def __matmul__(self, other):
        if callable(self.it) and not callable(getattr(other, "it", None)):
            return self.it(other)
        if callable(self.it) or callable(other.it):
            return Value(lambda x: self @ (other @ x))
        if len(self.it[0]) != len(other.it) and self.it == Value(self.it[0][0]).it:  # a number
            return Value([[reduced(self.it[0][0] * x) for x in row] for row in other.it])
        return Value([[reduced(sum(x * y for x, y in zip(r, c, strict=True))) for c in other.T.it] for r in self.it])

    def __mul__(self, w, flip=True):
        if self.slots:
            return Value(lambda pair: self.slots[0] @ pair[0] @ w @ pair[1].T @ self.slots[1].T)
        return Value(lambda x: self @ x @ (w.T if flip else w), (self, w))

    def __floordiv__(self, other):  # entry by entry
        return Value([[reduced(x * y) for x, y in zip(*r, strict=True)] for r in zip(self.it, other.it, strict=True)])

    __mod__ = partialmethod(__mul__, flip=False)  # in TransformerLens's shapes
    __rpow__ = partialmethod(lambda self, pair: (*pair, self))  # two matrices, and what their product acts on
    __pow__ = __matmul__  # Python binds `**`; `*`, `%` and `//`; `+` as the paper does products, maps, sums


class Model:  # that of the line "Model:"; with `count`, all is `Id` and patterns are `count`, which counts paths
    def __init__(self, tex, count=0, given=()):
        tex = re.sub(r"\\labelled\{(\w+)\}\{(?:[^{}]|\{\w*\})*\}", r"\\mathrm{\1}", tex)  # labels printed as numbers
        self.tex, self.count, self.given = tex, count, dict(given)
        self.known = {"Id": Value(1), "-": Value(-1), "\\mathbf1": Value(1 if count else [[1]] * N), **self.given}
        line = self.line = (re.search(r"Model: .*?(?=\. (?:Row|The paper's|TransformerLens's) |\n|$)", tex) or [""])[0]
        self.flipped = "TransformerLens's convention" in tex
        drawn = " ".join(re.findall(r"modulo \$p\$ \((.*?)\)", tex))  # what is given of the matrices
        self.stochastic, self.causal, self.narrow = (w in drawn for w in ("rows sum", "causal", "heads of width"))
        self.stochastic |= bool(re.search(r"rows [\w ]*sum to one", re.split(r"Step 1 |named{Proof", tex)[0]))
        has = re.findall(r"\$(b.*?)\$", line.split("no others")[0]) + re.findall(r"m_[EU]|(?<!{)r\^{.mathrm{\w+}}", tex)
        self.has = {re.sub(r"G\(|\)|(?<=\d)[HG]\d+$", "", plain(name)) for name in has}
        counts = dict(re.findall(r"(value )?heads ([\d,]+)", line))
        self.heads, self.groups = ([int(n) for n in counts.get(key, "").split(",") if n] for key in ("", "value "))
        if generic := re.search(r"(\d+) layers?( below the head)?, any number", line):
            layers = range(int(generic[1]) + bool(generic[2]))
            self.heads = [max(k + 3, 0, *(int(n) + 1 for n in re.findall(rf"L{k}H(\d+)", tex))) for k in layers]
            self.groups = [heads // 2 for heads in self.heads if "shared by groups" in line]
        known, part = self.known, self.part
        trace = Value(lambda x: Value(sum(row[i] for i, row in enumerate(x.it))))  # acts on what follows in a product
        known |= {"Tr": trace, "\\norm": Value(lambda x: trace @ (x @ x.T)), "/": Value(lambda x: x.inverse)}
        known |= {"rank": Value(lambda x: x.rank), "d_head": Value(WIDTH)}
        known["M"] = Value([[int(j <= i) for j in range(N)] for i in range(N)])  # the causal mask
        for name, u, v in ((name, self.get("b_Q", name), self.get("b_K", name)) for name in "TRSVQ"):
            known.setdefault("{" + name, Value(1) + u @ v.T)  # `T`, `R`, `S`, `V`; two mirrors are `P` and `Q`
            known.setdefault(name + "^-1", Value(1) + u @ v.T @ Value(-1 - (v.T @ u).it[0][0]).inverse)
        first, *others = (Value(1) + w @ w.T @ Value((w.T @ w).it[0][0] * (P // 2)).inverse for w in (u, v, u + v))
        known |= {"{c": u, "{z": v, "{Q": first @ others[0], "{P": first @ others[1], **self.given}
        known["vec_rows"] = Value(lambda x: Value([[y] for row in x.it for y in row]))
        known["vec_columns"] = Value(lambda x: known["vec_rows"] @ x.T)
        known["kron"] = Value(lambda x: Value([[p * q for p in r for q in s] for r in x[0].it for s in x[1].it]) @ x[2])
        known["{C"] = Value(1) + Value([[1] * N] * N) @ Value(-N).inverse
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
                    known.setdefault(kind + head, scale @ (read + part(f"b_{kind}", head)) @ gain)
                scaled = part("s", head, "^(?!.*no score scale)") @ known["Q" + head] @ part("R_j-i", head, "rotary")
                known[f"S^{head}"] = scaled @ known["K" + head].T + part("{alibi", head, "alibi", 0)
                if "no softmax" in line:
                    known[f"A^{head}"] = known["M"] // known[f"S^{head}"]
                out += self.get("A", head) @ (y @ self.get("W_V", head).T + part("b_V", head)) @ self.get("W_O", head).T
            mlp = part("r", f"M{layer}") @ part("M", f"L{layer}", "MLPs", 0)
            x = known[f"X_{layer + 1}"] = x + part("r", f"L{layer}") @ out + mlp
        known["stream"], known["Y^final"] = x, self.norm(x, "final")
        known["logits"] = part("m_U") @ (known["Y^final"] @ self.get("W_U").T + part("b_U"))

    def get(self, letter, label=""):  # what a symbol stands for, in the paper's shapes
        head = re.fullmatch(r"(K?)L(\d+)H(\d+)", label)  # keys and values are those of a group, and norms of keys too
        if self.groups and head and (head[1] or letter[2:] in ("K", "V")):
            heads, groups = self.heads[int(head[2])], self.groups[int(head[2])]
            label = f"{head[1]}L{head[2]}G{int(head[3]) * groups // heads}" if groups < heads else label
        name = f"{letter}^{label}" if label else letter
        if letter in ("W_OV", "W_QK"):
            first, second = self.get("W_" + letter[2], label), self.get("W_" + letter[3], label)
            return first @ second if letter == "W_OV" else first.T @ second
        if name in self.known or self.count:
            return self.known.get(name, Value(self.count if letter == "A" else 1))
        if run := re.fullmatch(r"(logits|stream|S\^\w+|[XY]_\d)\^?(?:\(([^A]*)\)|(\\setminus\w+))", name):
            return self.other(run[1], run[2] or run[3])
        if not re.fullmatch(
            r"[tPMACDsr]|[ab](_\d)?|W_[EUQKVO]|b_[VQKONU]|R_j-i|\\Gamma|\{\\?[A-Za-z]\w*|\{alibi.*|m_[EU]", letter
        ):
            raise ValueError(f"{name} is not known")
        chance = random.Random(name)
        vector, columns = letter[0] == "b" or letter[:3] == "{b_" or "bf" in letter, letter == "W_O"
        drawn = [[chance.randrange(1, P) for _ in range(1 if vector else N)] for _ in range(N)]
        if (self.causal and letter == "A") or (self.narrow and re.match(r"W_[OVQK]$|b_[VQK]$", letter)):
            keep = (lambda i, j: j <= i) if letter == "A" else (lambda i, j: (j if columns else i) < WIDTH)
            drawn = [[x * keep(i, j) for j, x in enumerate(row)] for i, row in enumerate(drawn)]
        drawn = [[(1 - sum(r[1:])) % P, *r[1:]] for r in drawn] if letter in ("A", "t") and self.stochastic else drawn
        value = Value(drawn[0][0] if re.fullmatch(r"[sr]|m_[EU]|[ab](_\d)?", letter) else drawn)
        if re.match(r"\{[DG]", letter):  # diagonal
            value = value // Value(1)
        return self.known.setdefault(name, value + value.T if letter in ("C", "D", "\\Gamma") else value)

    def other(self, target, how):  # a target of another run: with changed matrices, or where only some heads write
        heads, known = [f"L{l}H{i}" for l, n in enumerate(self.heads) for i in range(n)], self.known
        if how == "model":
            return self.held()
        changed = {re.sub(r"\{|\^?\(.*", "", name): new for name, new in known.items() if f"({how})" in name}
        given = {name: new.T if self.flipped and name[0] == "W" else new for name, new in changed.items()}
        for name in ["W_E", "W_U", *(f"W_{w}^{head}" for w in "QKVO" for head in heads)] if how == "T" else []:
            w = self.get(*name.split("^"))
            given[name] = known["{T"] @ w if name[2] in "EO" else w @ known["T^-1"]
        if run := re.fullmatch(r"run(\d)", how):  # of the term-importance algorithm
            return self.importance(int(run[1]))[target]
        if not given and not re.match(r"L\d|\\", how):
            raise ValueError(f"the run ({how}) is not known")
        for kept in reversed(how.split("|")):  # of scores those that the keys read, then those that the queries read
            named = re.findall(r"L\d+H\d+", kept)
            off = [head for head in heads if how[0] in "L\\" and (head in named) == (kept[1] == "s")]
            found = Model(self.tex, given={**self.given, **{f"W_O^{head}": Value(0) for head in off}, **given}).known
            given |= {f"K{head}": found[f"K{head}"] for head in heads}
        return found[target]

    def held(self):  # the logits of any run, with its patterns, norms and neurons under the names that the page has
        places = (("L0", "1"), ("L1", "2"), ("final", "f")) if "{D_f" in self.known else ()
        given = {f"{ours}^{place}": self.get(name + to) for place, to in places for ours, name in NORMS}
        given |= {"C": self.known["{C"], **self.given}
        run = Model(self.tex.replace(self.line, self.line + ", LN norm" * bool(places)), given=given)
        out = self.get("W_U") @ (self.get("{W_M").T if self.flipped else self.get("{W_M"))
        return run.known["logits"] + (self.get("{m") @ out.T if "{W_M}" in self.tex else Value(0))

    def importance(self, runs):  # what is read are the streams that the outputs of the run before make
        saved = [Value(0) for _ in self.heads]
        for _ in range(runs):
            x, made = self.known["X_0"], {"X_0": self.known["X_0"]}
            for layer, heads in enumerate(self.heads):
                out = Value(0)
                for head in (f"L{layer}H{index}" for index in range(heads)):
                    out += self.get("A", head) @ x @ self.get("W_OV", head).T
                x = x + saved[layer]
                made |= {f"Y_{layer + 1}": out, f"X_{layer + 1}": x}
            saved = [made[f"Y_{layer + 1}"] for layer in range(len(self.heads))]
        return made | {"logits": x @ self.get("W_U").T}

    def part(self, letter, label="", when="", absent=1):  # a symbol where the model has it, else what changes nothing
        place = re.sub(r"H\d+$", "", label)
        names = {letter, f"{letter}^{place}", re.sub(r"L(\d+)", lambda l: f"h_{int(l[1]) + 1}", f"{letter}^{place}")}
        there = re.search(when, self.line) if when else names & self.has
        value = self.get(letter, label) if there else Value(absent * (letter[0] != "b"))
        return self.known["\\mathbf1"] @ value.T if there and letter[0] == "b" else value

    def norm(self, x, label):
        gain = self.part("C", "", "LN norm") @ self.part("\\Gamma", label, "(LN|RMS) norm(?! without gain)")
        return self.part("D", label, "(LN|RMS) norm") @ x @ gain + self.part("b_N", label)
