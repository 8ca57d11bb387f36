"""User-supplied names: printed in text, LaTeX and HTML as text, never as markup.

A name of letters and digits, with one subscript after ``_``, is set as mathematics; Greek letters may be spelled out
(``Omega``). Every other name is shown character by character, so no character of it can mean anything to LaTeX.
The LaTeX is ASCII, and needs no package but amsmath.

Symbols that are not matrices can be renamed too: the keys of ``OTHER`` are accepted, besides the symbols of matrices,
in ``Notation(symbols=)`` and ``--symbol``. ``L0H1`` is how the second head of the first layer is written, ``T`` how a
transpose is marked in LaTeX.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from symcircuits.core.text import brief
from symcircuits.core.words import quoted

__all__ = [
    "HEAD", "INDICES", "MARK", "MARKS", "OTHER", "RESULTS", "Name", "called", "check_other", "escaped", "fields_html",
    "relabelled", "spelled", "visible",
]  # fmt: skip

_LONGEST: Final = 40
_FIELD: Final = 500  # characters of one field in a notebook
_GREEK: Final = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma",
    "τ": "tau", "υ": "upsilon", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta",
    "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Υ": "Upsilon", "Φ": "Phi", "Ψ": "Psi",
    "Ω": "Omega",
}  # fmt: skip
_ESCAPES: Final = {
    "\\": r"\textbackslash{}", "_": r"\_", "^": r"\textasciicircum{}", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip
# Character pairs that LaTeX would join or change.
_EXACT: Final = {" ": r"\ ", '"': r"\symbol{34}", "`": r"\`{}", **{c: c + "{}" for c in "-',?!"}}
_LATIN: Final = {"ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}", "ø": r"\o{}", "Ø": r"\O{}",
                 "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "§": r"\S{}", "¶": r"\P{}", "£": r"\pounds{}"}  # fmt: skip
_ACCENTS: Final = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip
_PART: Final = re.compile(r"[A-Za-z0-9]+")
# What formulas and sentences use besides the symbols of matrices: labels of heads and layers, streams, counts, the
# letters of any matrix (W, b), of any two streams (x, y), of a layer and of the prime.
_LABELS: Final = r"[Ll]\d+(?:[Hh]\d+)?"
_INDICES: Final = r"[fghkq](?:_?\d+)?|[hqk]_l"
_STREAMS: Final = r"[XY]_?\d*|X_l|Y_l"
_COUNTS: Final = r"H(?:_\w+)?|N(?:_\w+)?|e(?:_\w+)?|d_\w+|[Tblpxy]|W|sum|rank"
_RESULTS: Final = ("S", "logits", "stream", "scores", "Id")
# What formulas use besides matrices, and the names it may be given: results, counts, indices, heads, transposes.
RESULTS: Final = {
    "logits": r"\mathrm{logits}", "stream": r"\mathrm{stream}", "S": "S", "Id": r"\mathrm{Id}", "H": "H", "N": "N",
}  # fmt: skip
INDICES: Final = ("h", "q", "k", "f", "g")
MARK: Final = "T"
MARKS: Final = {
    "T": r"\mathsf{T}", "top": r"\top", "t": "t", "intercal": r"\intercal", "prime": r"\prime", "dagger": r"\dagger",
}  # fmt: skip
HEAD: Final = "L0H1"
OTHER: Final = (*RESULTS, *INDICES, MARK, HEAD)
_FREE: Final = (
    "a", "c", "n", "o", "u", "v", "w", "z", "alpha", "beta", "gamma", "delta", "eta", "theta", "iota", "kappa",
    "lambda", "mu", "nu", "xi", "rho", "tau", "phi", "psi", "omega",
)  # fmt: skip  # letters that are nothing else in formulas
_HEAD_LABEL: Final = re.compile(r"[A-Za-z0-9.,:()|/-]+")


class Name(NamedTuple):
    """A name as it is printed: in text notation and in LaTeX (math mode)."""

    text: str
    latex: str


def escaped(text: str, exact: bool = False) -> str:
    """Text for LaTeX's text mode: every character prints as itself; ``exact`` keeps spaces and forms no ligatures.

    A character missing from LaTeX's own fonts is printed as its code point.

    >>> print(escaped(r"100% of \\input{x} & a_b"))
    100\\% of \\textbackslash{}input\\{x\\} \\& a\\_b
    """
    table = _ESCAPES | _EXACT if exact else _ESCAPES
    return "".join(table.get(c) or (c if c.isascii() else _foreign(c)) for c in _composed(text))


def _composed(text: str) -> str:
    """With letters and their accents as one character each (NFC)."""
    if text.isascii():
        return text
    import unicodedata  # imported late: it would slow down the start

    return unicodedata.normalize("NFC", text)


def _foreign(char: str) -> str:
    """One character beyond ASCII."""
    if char in _GREEK:
        return rf"$\{_GREEK[char]}$"
    import unicodedata

    apart = unicodedata.normalize("NFD", char)
    letter, accent = apart[:1], _ACCENTS.get(apart[1:])
    if accent and letter.isascii() and letter.isalpha():
        dotless = rf"\{letter}{{}}" if letter in "ij" and accent != "c" else letter
        return rf"\{accent}{{{dotless}}}"
    return _LATIN.get(char) or rf"$\langle$U+{ord(char):04X}$\rangle$"


def visible(text: str) -> str:
    r"""Text for a terminal: nonprinting characters (control characters, direction marks) become code points.

    >>> print(visible("model\x1b[2J"))
    model\x1b[2J
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


@lru_cache(maxsize=1024)
def spelled(name: str) -> Name:
    """A user-supplied name, as it is printed; raises ValueError, with the reason, if it cannot be.

    >>> spelled("Omega_att")
    Name(text='Omega_att', latex='\\\\Omega_{\\\\mathrm{att}}')
    >>> print(spelled("$x_1%").latex)
    \\text{\\$x\\_1\\%}
    """
    if not isinstance(name, str):
        raise ValueError(f"the name of a symbol is a string, not {brief(name)}")
    name = _composed(name)
    if not name or name != name.strip():
        raise ValueError(f"the name of a symbol must not be empty, nor start or end with a space, as {name!r} does")
    if len(name) > _LONGEST:
        raise ValueError(f"the name of a symbol has at most {_LONGEST} characters; {name[:12]!r}... has {len(name)}")
    import unicodedata

    hidden = [c for c in name if unicodedata.category(c)[0] == "C" or unicodedata.category(c) in ("Zl", "Zp")]
    if hidden:
        raise ValueError(f"the name of a symbol has no control characters; {name!r} has U+{ord(hidden[0]):04X}")
    _check_free(name)
    base, under, script = name.partition("_")
    if _part(base) and bool(_part(script)) == bool(under):
        below = script if len(script) == 2 and script.isupper() and script.isascii() else _part(script)  # as in W_{OV}
        latex = _part(base) + (f"_{below}" if len(below) == 1 else f"_{{{below}}}" if below else "")
    else:
        latex = rf"\text{{{escaped(name, exact=True)}}}"
    return Name(visible(quoted(name)), latex)


def _check_free(name: str) -> None:
    """Raise ValueError on a name that formulas use for something other than a matrix."""
    used = [
        (re.fullmatch(_LABELS, name), "the label of a head or layer"),
        (
            re.fullmatch(_INDICES, name),
            "an index of heads in formulas, as f, g, h, k and q do, with a number or without",
        ),
        (re.fullmatch(_STREAMS, name) and name != "X_0", "a stream"),
        (re.fullmatch(_COUNTS, name) or name in _RESULTS, "something else in formulas"),
        (re.fullmatch(r"[\d.,+-]+", name), "a number"),
    ]
    for found, what in used:
        if found:
            raise ValueError(f"{name!r} cannot be the name of a symbol: it stands for {what}")


def _part(part: str) -> str:
    """A base or a subscript in mathematics; empty if it is not a word of ASCII letters and digits."""
    greek = part if part in _GREEK.values() else _GREEK.get(part)
    if greek:
        return rf"\{greek}"
    if not _PART.fullmatch(part):
        return ""
    return part if len(part) == 1 or part.isdigit() else rf"\mathrm{{{part}}}"


def check_other(key: str, own: object) -> None:
    """Raise ValueError if a symbol that is not a matrix cannot have that name.

    >>> check_other("T", "top"), check_other("L0H1", "(1,2)"), check_other("h", "a")
    (None, None, None)
    """
    if key == MARK and own not in MARKS:
        raise ValueError(f"the mark of a transpose is one of {', '.join(MARKS)}, not {brief(own)}")
    if key in INDICES and own not in (key, *_FREE):
        raise ValueError(
            f"index {key} can be called one of {', '.join(_FREE)}, not {brief(own)}: other letters are taken"
        )
    if key == HEAD:
        _template(own)
    if key in RESULTS:
        spelled(own)  # raises if it is not a string


def called(key: str, own: str) -> Name | None:
    """A result, count or index as it is printed; None for a mark or a label."""
    if key in INDICES:
        return Name(own, own if len(own) == 1 else rf"\{own}")
    return spelled(own) if key in RESULTS else None


def _template(own: object) -> tuple[str, int, int]:
    """How a head is written, with ``{l}`` and ``{h}`` for its numbers, and where layers and heads start to count."""
    numbers = re.findall(r"[0-9]+", own) if isinstance(own, str) else []
    if (
        not isinstance(own, str)
        or not _HEAD_LABEL.fullmatch(own)
        or numbers not in (["0", "1"], ["0", "2"], ["1", "1"], ["1", "2"])
    ):
        raise ValueError(
            f"{HEAD} is written with the number of its layer, then its own, e.g. 0.1 or, counted from 1, (1,2), and "
            f"letters, digits and . , : ( ) | / - alone, not {brief(own)}"
        )
    parts = re.split(r"[0-9]+", own)
    return "{l}".join([parts[0], parts[1]]) + "{h}" + parts[2], int(numbers[0]), int(numbers[1]) - 1


def relabelled(text: str, own: str | None) -> str:
    """Labels of heads as ``own`` writes ``L0H1``, and of layers counted from the same number; None: unchanged.

    >>> relabelled("L2H0", "(1,2)"), relabelled("final", "1.2"), relabelled("M0", "1.2"), relabelled("L2H0", None)
    ('(3,1)', 'final', 'M1', 'L2H0')
    """
    if own is None:
        return text
    form, layer, head = _template(own)

    def written(found: re.Match[str]) -> str:
        if found[3] is None:
            return f"{found[1]}{int(found[2]) + layer}"
        return form.format(l=int(found[2]) + layer, h=int(found[3]) + head)

    return re.sub(r"(?<![A-Za-z_0-9])([LM])([0-9]+)(?:H([0-9]+))?(?![A-Za-z_0-9])", written, text)


def fields_html(title: str, fields: Mapping[str, object]) -> str:
    """A small table in the notebook's own colours; empty fields are left out.

    >>> fields_html("Model <a>", {"d_model": 4, "file": ""})
    '<div><strong>Model &lt;a&gt;</strong><table><tr><th>d_model</th><td>4</td></tr></table></div>'
    """
    rows = [f"<tr><th>{_text(name)}</th><td>{_text(said)}</td></tr>" for name, said in fields.items() if said != ""]
    return f"<div><strong>{_text(title)}</strong><table>{''.join(rows)}</table></div>"


def _text(said: object) -> str:
    from html import escape  # rarely needed

    text = visible(str(said))
    return escape(text if len(text) <= _FIELD else text[:_FIELD] + " ...")
