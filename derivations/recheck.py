"""Evaluate both sides of every claim of printed derivations: a second evaluator, which imports nothing of symcircuits.

`recheck.py FILES`: random matrices modulo a prime, its own forward pass (`recheck_model.py`), floats in small examples
(`recheck_exact.py`); a new name alone on the left is defined. Certificates (`.json`) have recorded matrices too. Prose,
types and numbers beside lines are not read. Exit status: 0 all confirmed, 1 a claim refuted, 2 one not read, or none.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

import recheck_exact
import recheck_model
from recheck_model import Model as Transformer
from recheck_model import Value, plain

GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
TOKEN = rf"(?:\\math\w+{GROUP}|\\[A-Za-z]+|{GROUP}|[A-Za-z]|\d+|[)\]])(?:[_^](?:{GROUP}|\w))*|\S"
SPACE = r"\\(?:big[lr]?|left|qquad|quad|cdot|ast)(?![A-Za-z])\.?|\\[,;]|&|\{\}|\\(?:begin|end)\{aligned\}|\\\\\*?"
SPACE += r"|\\notag|\\label\{[^{}]*\}"
DISPLAY = r"\\begin\{align(?:at)?\*?\}(?:\{2\})?(.*?)\\end\{align(?:at)?\*?\}"
OF = r"\\;\\big\|\\;\{?A\}?\\text\{ of \}"
NORM, PMATRIX = r"\\bigl\\\|(.*?)\\bigr\\\|\^\{2\}", r"\\begin\{pmatrix\}(.*?)\\end\{pmatrix\}"
ERRORS = (ValueError, TypeError, AttributeError, LookupError, SyntaxError, ArithmeticError, RecursionError)
SCHEMA, LARGEST = "symcircuits.certificate/1", 99  # of a certificate, and rows of its matrices
JOINTS = {"product": " ", "sum": " + ", "tensor": r" \otimes ", "pair": ", ", "transposed": "", "written": " "}
BESIDE = r"&\\quad&.*?(?=\\\\|\n)|\\quad(\[.*?\]|\\text{.*?})|\\right\\}\\;(\\begin.*?\\end{array}|.*?terms?})"


def beside(*values):
    return Value([[x for row in rows for x in row] for rows in zip(*(value.it for value in values), strict=True)])


def spelled(body):  # norms as functions, small matrices as `{#1,2;3,4}`
    body = re.sub(OF, ",", re.sub(NORM, r"(\\norm(\1))", body, flags=re.S))
    return re.sub(PMATRIX, lambda found: f"{{#{recheck_exact.spelled(found[1])}}}", body, flags=re.S)


class Model(Transformer):  # that of a page, whose formulas are read
    def symbol(self, token):  # the value of a name with its scripts, in the shapes of the notation
        name, turned = re.subn(r"\\mathsf\{T\}", "", token)
        letter, _, label = re.sub(r"\^G\((.*)\)$", r"^\1", plain(name)).rstrip("^").partition("^")
        if re.match(r"\d|N(_|$)", letter):
            return Value(int(letter) if letter.isdigit() else self.terms(letter[2:]))
        if token[:2] == "{#":
            return recheck_exact.matrix(token[2:-1])
        if function := recheck_exact.FUNCTIONS.get(f"{letter}^{label}".rstrip("^")):
            return Value(function)
        value = self.get(letter, label)
        return value.T if turned ^ (self.flipped and bool(re.match(r"W_(?!QK)|\{?b_", letter))) else value

    def terms(self, which):  # the number of terms: all, those of an order, or those of a composition type of the scores
        if where := re.fullmatch(r"(logits|scoresof(L1H0)),(heads.*?)(,biases)?", which):  # in a model of its own
            biases = ", ".join(f"${b}$" for b in ("b_V^L0", "b_V^L1", "b_O^L0", "b_O^L1", "b_U") if where[4])
            line = re.sub("(heads|positions)", r"\1 ", where[3])
            ones = Model(f"Model: {line}. {biases}, and no others", 1).known
            return (ones["logits"] if not where[2] else ones["QL1H0"] @ ones["KL1H0"]).it[0][0]
        ones = {z: Model(self.tex, z).known for z in (1, recheck_model.P, 2**24)}  # P is zero
        if scores := re.search(r"S\^\{\\mathrm\{(L\w+)\}\}", self.tex):
            q, k, a, b = (ones[z][x + scores[1]].it[0][0] for z in (1, recheck_model.P) for x in "QK")
            return {"": q * k, "none": a * b, "Q": (q - a) * b, "K": a * (k - b), "QK": (q - a) * (k - b)}[which]
        many, one = (ones[z]["logits"].it[0][0] for z in (2**24, 1))
        return many >> 24 * range(5 * (len(self.heads) < 5))[int(which)] & 2**24 - 1 if which else one

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
        source, values, marks = "", [], {"(": "(", "+": "+", ",": ",", ")": ")", ")^{2}": ").square", "\\odot": "//"}
        marks |= {"\\otimes": "%" if self.flipped else "*", r")^{\mathsf{T}}": ").T", r"]^{\mathsf{T}}": ").T"}
        marks |= {"[": "beside(", "|": ",", "]": ")"}
        for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
            mark = marks.get(token, f"v[{len(values)}]")
            if token == r"\mathrm{logits}" and after == "(":  # at other tokens
                values.append(
                    Value(lambda tokens: Transformer(self.tex, given={**self.given, "t": tokens}).known["logits"])
                )
            elif token not in marks:
                values.append(self.symbol(token))
            source += "**" * (source[-1:] not in ("", *"(+,*%/") and mark[0] in "v(b") + mark
        return eval(source, {"v": values, "beside": beside})  # only brackets, signs and v[0], v[1], ... stand in it

    def claims(self):  # left side, relation and right side of every claim of every display, sides as lists of tokens
        for display in re.findall(DISPLAY, self.tex, re.S):
            body = spelled(re.sub(BESIDE, "", display, flags=re.S))
            body = re.sub(rf"\\textcolor\{{[^{{}}]*\}}({GROUP})", lambda found: found[1][1:-1], body)
            for chain in re.split(r"\\\\\*?+(?!\s*&\s*(?:=|\\neq|\\le\s|\{\}|\\q?quad))", body):
                parts = re.split(r"\s(=|\\neq|\\le)\s", re.sub(SPACE, " ", chain))
                for left, relation, right in zip(parts[::2], parts[1::2] or [""], parts[2::2] or [""], strict=False):
                    yield re.findall(TOKEN, left), relation, re.findall(TOKEN, right)

    def judge(self, left, relation, right):  # `confirmed`, `refuted` or `defined`, or why it is not read
        try:
            name = plain(re.sub(r"\^\{\\mathsf\{T\}\}$", "", left[0])) if len(left) == 1 else ""
            if name[:1] == "{" and name[1] != "#" and name not in self.known:
                value = self.evaluate(right)
                return self.known.update({name: value.T if "\\mathsf" in left[0] else value}) or "defined"
            if relation == "\\le":
                a, b = (self.evaluate(side).it[0][0] for side in (left, right))
                return "confirmed" if a <= b else "refuted"
            d = self.evaluate(left) + Value(-1) @ self.evaluate(right)
            d = d @ self.get("t") if callable(d.it) else d
            apart = any(abs(x) > recheck_exact.TOLERANCE for row in d.it for x in row)
            return "refuted" if apart == (relation == "=") else "confirmed"
        except ERRORS as error:
            return f"not read: {error}"


def flat(tree):  # an expression tree as it would be printed
    if isinstance(tree, str):
        return tree
    body = JOINTS[tree[0]].join(map(flat, tree[1:]))
    return body if tree[0] == "written" else f"({body})" + r"^{\mathsf{T}}" * (tree[0] == "transposed")


def judged(model, claim, recorded):  # the verdict on a claim of a certificate; with what was recorded, its values too
    try:
        left, right = (re.findall(TOKEN, re.sub(SPACE, " ", spelled(flat(side)))) for side in claim["sides"])
        found = model.judge(left, claim["relation"], right)
        if recorded and not found.startswith("not"):
            pairs = zip(map(Value, claim["values"]), map(model.evaluate, (left, right)), strict=True)
            rows = ([[[x % recheck_model.P for x in row] for row in value.it] for value in pair] for pair in pairs)
            found = found if all(one == other for one, other in rows) else "refuted: other values were recorded"
        return found if claim["relation"] in ("=", "\\neq", "\\le") else "refuted: its relation is unknown"
    except ERRORS as error:
        return f"refuted: it is damaged: {error!r}"


def once(pairs):  # an object of JSON, in which a key that stands twice would hide what another reader sees
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError(f"a key stands twice: {max((key for key, _ in pairs), key=[key for key, _ in pairs].count)!r}")
    return found


def certificate(text):  # the number of every claim and its verdict: on the recorded matrices, then on new ones
    try:
        whole = json.loads(text, object_pairs_hook=once)
        if whole["schema"] != SCHEMA:
            return [("the certificate", f"refuted: it is {whole['schema']!r}, and this reads {SCHEMA!r}")]
        said, claims, own = whole.pop("sha256"), whole["claims"], (recheck_model.P, recheck_model.N)
        found = [(f"claim {n}", "refuted: it is missing") for n in range(len(claims) + 1, whole["count"] + 1)]
        if said != hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest():
            found.append(("the certificate", "refuted: it was edited, for its digest is another"))
        if not 2 <= whole["size"] <= LARGEST:
            return [*found, ("the certificate", f"refuted: its matrices must have 2 to {LARGEST} rows")]
        try:
            recheck_model.P, recheck_model.N = whole["prime"], whole["size"]
            model = Model(whole["model"], given={name: Value(rows) for name, rows in whole["draw"].items()})
            found += [
                (f"claim {n}", judged(model, claim, True)) for n, claim in enumerate(claims, 1) if claim["values"]
            ]
        finally:
            recheck_model.P, recheck_model.N = own
        model = Model(whole["model"])
        return found + [(f"claim {n}", judged(model, claim, False)) for n, claim in enumerate(claims, 1)]
    except ERRORS as error:
        return [("the certificate", f"refuted: it is cut or damaged: {error!r}")]


def page(text):  # every claim of a page and its verdict; in a book every result is a page, after an introduction to all
    (head, *results), named = re.split(r"\\subsection(?=\{)", text), "Names of symbols: " in text
    for model in (Model(head + result) for result in results or [""]):
        for left, relation, right in model.claims():
            found = "not read: the page has names of its own" if named else model.judge(left, relation, right)
            yield f"{' '.join(left)} {relation} ...", found


def main(paths):
    counts, unread = dict.fromkeys(("confirmed", "refuted", "defined", "not read"), 0), False
    for path in paths:
        try:
            verdicts = list((certificate if path.endswith(".json") else page)(Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            print(f"{path}: it cannot be read: {error}")
            unread = True
            continue
        for claim, found in verdicts:
            counts[found.partition(":")[0]] += 1
            unread |= found.startswith("not")
            if found not in ("confirmed", "defined"):
                print(f"{path}: {claim}: {found}")
        if not verdicts:
            print(f"{path}: no claim was found in it")
            unread = True
    print(", ".join(f"{number} {what}" for what, number in counts.items()))
    return 1 if counts["refuted"] else 0 if counts["confirmed"] and not unread else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
