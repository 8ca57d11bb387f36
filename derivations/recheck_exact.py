"""Small examples of `recheck.py` in numbers, which imports nothing of symcircuits: entries, functions, a tiny model.

Fractions, `e`, angles, roots, softmax, LN and gelu are computed in floats, at some `i`, `j`, `alpha` and `epsilon`, and
what is printed must agree to 1e-9. A layer is `x + softmax*(x x^T) x`: one head, every weight the identity.
"""

import math
import re

from recheck_model import Value

TOLERANCE = 1e-9
GIVEN = {"i": 2.37, "j": 5.91, "alpha": 0.73, "epsilon": 0.019, "e": math.e}
NAMES = {**GIVEN, "exp": math.exp, "sqrt": math.sqrt, "cos": math.cos, "sin": math.sin}
PLAINER = (
    (r"\\(?:left|right)|\\(?=alpha|epsilon)", ""),
    (r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))"),
    (r"(?<![A-Za-z])e\^\{([^{}]*)\}", r"exp(\1)"),
    (r"\\(sqrt|cos|sin)\{([^{}]*)\}", r"\1(\2)"),
    (r"(?<=[\w)]) +(?=[\w(])", "*"),
)


def spelled(entries):  # of a small matrix, as Python writes them: `1,2;((3)/(4)),exp(2*i)`
    before, text = "", entries.replace("&", ",").replace(r"\\", ";")
    while text != before:
        before = text
        for latex, python in PLAINER:
            text = re.sub(latex, python, text)
    return re.sub(r"\s", "", text)


def number(entry):
    if not re.fullmatch(rf"(?:{'|'.join(NAMES)}|\d{{1,9}}|[-+*/()])+", entry) or "**" in entry:
        raise ValueError(f"{entry} is not a number")
    return eval(entry, {"__builtins__": {}}, NAMES)


def matrix(text):
    return Value([[number(entry) for entry in row.split(",")] for row in text.split(";")])


def layer(x, given=None):  # `given`: the tokens whose pattern is held
    read = given or x
    rows = [[math.exp(score) for score in row[: i + 1]] for i, row in enumerate((read @ read.T).it)]
    return x + Value([[y / sum(row) for y in row] + [0] * (len(rows) - len(row)) for row in rows]) @ x


def normed(x):
    centred = [[y - sum(row) / len(row) for y in row] for row in x.it]
    scales = [math.sqrt(sum(y * y for y in row) / len(row) + GIVEN["epsilon"]) for row in centred]
    return Value([[y / scale for y in row] for row, scale in zip(centred, scales, strict=True)])


# One layer, or two without the first head, where the second keeps its pattern or makes it of what it now reads.
FUNCTIONS = {
    "f": lambda x: layer(*x) if isinstance(x, tuple) else layer(x),
    "f^(\\setminusL0H0,Aheld)": lambda x: layer(x, layer(x)),
    "f^(\\setminusL0H0,Aanew)": layer,
    "LN": normed,
    "gelu": lambda x: Value([[y * (1 + math.erf(y / math.sqrt(2))) / 2 for y in row] for row in x.it]),
}
