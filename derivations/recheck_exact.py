"""Small examples of `recheck.py` in exact numbers modulo its prime, which imports nothing of symcircuits.

Fractions are fractions modulo the prime. `e` and the point of the circle at `alpha` are random: what follows from
`e^{a+b} = e^a e^b`, or from the addition theorems, holds for every such number, and two expressions that differ do so
at almost all. A layer is `x + softmax*(x x^T) x`: one head, every weight the identity, two tokens.
"""

import re
from random import Random

import recheck_model
from recheck_model import Value

TOKENS = 2
LARGEST = 999  # quarters in an exponent
ENTRY = r"[-+*/()E\d]+"
SPELLED = ((r"\frac{", "(("), ("}{", ")/("), ("e^{", "E(("), ("}", "))"))


class Element(int):  # of the field
    def __add__(self, other):
        return Element((int(self) + int(other)) % recheck_model.P)

    def __mul__(self, other):
        return Element(int(self) * int(other) % recheck_model.P)

    def __truediv__(self, other):
        return self * pow(int(other), -1, recheck_model.P)

    def __neg__(self):
        return Element(-int(self) % recheck_model.P)

    def __sub__(self, other):
        return self + -Element(other)


def exponential(x):  # `e` to the power of a number of quarters, by a random `e^{1/4}`
    p = recheck_model.P
    quarters = 4 * int(x) % p
    quarters -= p * (quarters > p // 2)
    if abs(quarters) > LARGEST:
        raise ValueError("an exponent that is not a small number of quarters")
    return Element(pow(Random("e").randrange(2, p), quarters, p))


def spelled(entries):  # of a small matrix `1,2;3,4`, fractions and exponentials without braces
    entries = entries.replace("&", ",").replace(r"\\", ";")
    if not re.search(r"\\frac|(?<![A-Za-z])e(?![A-Za-z])", entries):
        return entries
    for latex, ours in SPELLED:
        entries = entries.replace(latex, ours)
    entries = re.sub(r"(?<![A-Za-z])e(?![A-Za-z])", "E(1)", entries)
    return re.sub(r"(?<=\d) +(?=E)", "*", entries)


def number(entry):
    if not re.fullmatch(ENTRY, entry := entry.replace(" ", "")):
        raise ValueError(f"{entry} is not a number")
    return eval(re.sub(r"\d+", r"F(\g<0>)", entry), {"F": Element, "E": exponential, "__builtins__": {}})


def wave(entry):  # of a random point of the circle, turned by its angle so many times; `i` and `j` are random numbers
    minus, kind, times = re.fullmatch(r"(-?)\\(cos|sin)\(\\alpha\(?([-+ij\d]*?)(?:\\right\)){1,2}", entry).groups()
    p, slope = recheck_model.P, Random("alpha").randrange(recheck_model.P)
    x, y = ((part * pow(1 + slope * slope, -1, p)) % p for part in (1 - slope * slope, 2 * slope))
    found, known = (1, 0), {"i": Random("i").randrange(99), "j": Random("j").randrange(200, 299)}
    for sign, name in re.findall(r"([-+]?)(\w)", times or "1"):
        for _ in range(known[name] if name in known else int(name)):
            back = -y if sign == "-" else y
            found = (found[0] * x - found[1] * back) % p, (found[0] * back + found[1] * x) % p
    return (-1 if minus else 1) * found[kind == "sin"]


def attention(rows):  # the causal softmax of their products
    scores = [[sum((x * y for x, y in zip(a, b, strict=True)), Element(0)) for b in rows] for a in rows]
    sums = [[sum((exponential(s - t) for s in row[: i + 1]), Element(0)) for t in row] for i, row in enumerate(scores)]
    return [[Element(1) / x if j <= i else Element(0) for j, x in enumerate(row)] for i, row in enumerate(sums)]


def layer(x, given=None):  # of the first tokens; `given`: those whose pattern is held
    rows, of = ([[*map(Element, row)] for row in stream.it[:TOKENS]] for stream in (x, given or x))
    found = Value(0).it
    for i, weights in enumerate(attention(of)):
        moved = [sum((w * row[j] for w, row in zip(weights, rows, strict=True)), rows[i][j]) for j in range(len(found))]
        found[i] = [*map(int, moved)]
    return Value(found)


# One layer, or two without the first head, where the second keeps its pattern or makes it of what it now reads.
RUNS = {
    "": lambda x: layer(*x) if isinstance(x, tuple) else layer(x),
    "(\\setminusL0H0,Aheld)": lambda x: layer(x, layer(x)),
    "(\\setminusL0H0,Aanew)": layer,
}
