"""The symbols of a formula that somebody wrote: text notation and LaTeX taken apart into tokens, with positions.

Nothing is checked but names: which symbols there are, which carry the label of a head or of a layer, and whether
the model has it. Nothing is ever executed. :mod:`symcircuits.checking.parser` puts the tokens together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, NoReturn

from symcircuits.core.architecture import Architecture, as_head
from symcircuits.core.notation import ROW, Notation, letter_text, name_of
from symcircuits.core.symbols import FLIPPED, SHARED, SHORT_NAMES, SYMMETRIC, labelled_by
from symcircuits.core.text import amount, setting
from symcircuits.core.words import scalar_order

__all__ = ["CONVENTIONS", "Letter", "Names", "RawFactor", "ReadError", "Token", "split_target", "tokens"]

# In which notation the products of a convention are printed: a map, as the paper prints it, is not read.
CONVENTIONS: Final = {"paper": "row", "row": "row", "transformerlens": "transformerlens"}
_LABELLED: Final = labelled_by("head", "group")
_PLAIN: Final = ("t", "P", "ones", "X0", "W_E", "W_U", "b_U", "C")
_OF_LAYER: Final = ("b_O", "mlp")
_OF_NORM: Final = labelled_by("norm")
_NUMBERS: Final = ("m_E", "m_U")  # multipliers without a label; those of layers are r[L0] and r[M0]
_ALIASES: Final = {"s": "scale", "X_0": "X0", r"\Gamma": "gain", "Gamma": "gain", "M": "mlp"}
_THEIR_NAMES: Final = {short: glyph for glyph, short in SHORT_NAMES.items()} | {"W_pos": "P"}
_SHOWN: Final = 56  # characters of the text that an error shows
_DIGITS: Final = 18


class ReadError(ValueError):
    """A formula that cannot be read: what is wrong, where, and the place with a mark under it.

    ``position`` counts characters of the text from 0 (of a SymPy expression: its factors); ``place`` is two lines.

    >>> fault = ReadError("what is this?", "X0 @ %", 5)
    >>> print(fault)
    what is this? (position 5)
      X0 @ %
           ^
    """

    def __init__(self, message: str, source: str = "", position: int = 0) -> None:
        self.position = position
        self.place = _place(source, position) if source.strip() else ""
        where = f" (position {position})" if source else ""
        super().__init__(message + where + (f"\n{self.place}" if self.place else ""))


def _place(source: str, at: int) -> str:
    start = source.rfind("\n", 0, at) + 1
    end = source.find("\n", at) if "\n" in source[at:] else len(source)
    first = max(start, at - _SHOWN // 2)
    line = "".join(c if c.isprintable() else "?" for c in source[first : min(end, first + _SHOWN)])
    before, after = "..." if first > start else "", "..." if end > first + _SHOWN else ""
    return f"  {before}{line}{after}\n  {' ' * (len(before) + at - first)}^"


class Letter(NamedTuple):
    """A matrix symbol by name, transposed or not, in the paper's convention: ``W_OV[L0H1].T``."""

    glyph: str
    label: str = ""
    transposed: bool = False

    @property
    def text(self) -> str:
        """Text notation."""
        return letter_text(*self)

    @property
    def T(self) -> Letter:
        """The transpose; a symmetric matrix is never marked."""
        return Letter(self.glyph, self.label, not self.transposed and self.glyph not in SYMMETRIC)

    @property
    def name(self) -> tuple[str, str]:
        """Glyph and label, whatever the transpose."""
        return self.glyph, self.label


class RawFactor(NamedTuple):
    """A letter and where it stands in the text."""

    letter: Letter
    at: int


class Token(NamedTuple):
    """``kind`` is ``factor``, ``scale``, ``number``, ``T`` or one of ``( ) + - *``."""

    kind: str
    at: int
    value: Any = None


class Names:
    """The symbols of one model in one notation; says what is wrong with one that is not there.

    ``own`` finds the names that were given to symbols, as they are printed in text and in LaTeX.
    """

    def __init__(self, architecture: Architecture, notation: Notation = ROW, source: str = "") -> None:
        self.architecture, self.notation, self.source = architecture, notation, source
        theirs = _THEIR_NAMES if notation.flips else {}
        self._attached = {one.name for one in architecture.attachments}
        given = (*notation.names, *self._attached)
        self._own = {printed: glyph for glyph in given for printed in name_of(glyph, notation)}
        known = [*_LABELLED, *_PLAIN, "b_O", *(["mlp"] if architecture.mlps else [])]
        known += ["rest"] if _rests(architecture) else []
        known += _OF_NORM if architecture.norm else ["D", "gain"] if architecture.qk_norm else []
        without = {"C": architecture.norm == "LN", "R": architecture.positions == "rotary"}
        known = [n for n in known if without.get(n, True)]
        known += dict.fromkeys(name.partition("[")[0] for name in sorted(architecture.multipliers))
        aliases = {a: n for a, n in _ALIASES.items() if n in known}
        self._known = {n: n for n in known} | aliases | theirs | self._own
        longest = "|".join(re.escape(n) for n in sorted(self._own, key=len, reverse=True))
        self.own = re.compile(rf"(?:{longest})(?![A-Za-z0-9_])") if longest else None

    def fault(self, message: str, at: int) -> NoReturn:
        """Refuse the formula at this place."""
        raise ReadError(message, self.source, at)

    def token(self, name: str, label: str | None, transposed: bool, at: int) -> Token:
        """The token of a symbol by its written name and label; ReadError where there is no such symbol."""
        glyph, label = self._glyph(name, label, at)
        if glyph == "scale":
            return Token("scale", at, self._head(label, at))
        if glyph in _NUMBERS:
            return Token("scale", at, glyph)
        if glyph == "r":
            return Token("scale", at, self._multiplier(label, at))
        if glyph in SHARED:
            label = self._shared(label, at)
        elif glyph in _LABELLED:
            label = self._head(label, at)
        elif glyph in _OF_LAYER:
            label = self._layer(glyph, label, at)
        elif glyph in _OF_NORM:
            label = self._norm(glyph, label, at)
        elif glyph == "rest":
            label = self._rest(label, at)
        transposed ^= self.notation.flips and glyph in FLIPPED
        transposed &= glyph not in SYMMETRIC
        return Token("factor", at, RawFactor(Letter(glyph, label, transposed), at))

    def _glyph(self, name: str, label: str | None, at: int) -> tuple[str, str]:
        plain = name if name in self._own else name.replace("{", "").replace("}", "")
        found = re.fullmatch(rf"(\w+?)_({_OWNER})", plain)  # a Python identifier: W_OV_L0H1
        if found and label is None:
            plain, label = found.groups()
        glyph = self._known.get(plain)
        if glyph is None:
            self._unknown(plain, at)
        alone = glyph in _PLAIN + _NUMBERS or glyph in self._attached
        if alone and label is not None:
            self.fault(f"{plain} has no label", at)
        if not alone and not label:
            layered = (*_OF_LAYER, *_OF_NORM, "rest", "r")
            example = f"{plain}[L0], of a layer" if glyph in layered else f"{plain}[L0H0], of a head"
            self.fault(f"{plain} needs a label, e.g. {example}", at)
        return glyph, label or ""

    def _unknown(self, name: str, at: int) -> NoReturn:
        shown = name if len(name) <= 40 else name[:40] + "..."
        if not self.notation.flips and name in ("OV", "QK"):
            self.fault(f"unknown symbol {name!r}: here it is W_{name}; {name} is TransformerLens's "
                       f"({setting('convention', 'transformerlens')})", at)  # fmt: skip
        near = difflib.get_close_matches(name[:40], list(self._known), 1, 0.5)
        alike = [k for k in self._known if sorted(k.lower().replace("_", "")) == sorted(name.lower().replace("_", ""))]
        hint = (alike or near)[:1]
        if name == "mask":
            self.fault("masks stand in terms in which patterns are multiplied out (unfrozen), which are not read: with "
                       "patterns held fixed a head has its pattern A[L0H0] there", at)  # fmt: skip
        if re.fullmatch(r"X_?\d{1,9}", name):
            self.fault(f"{name} is the stream after some layers; write out what it is, in X0", at)
        hints = f"the nearest known is {hint[0]}" if hint else f"known are {', '.join(sorted(self._known))}"
        self.fault(f"unknown symbol {shown!r}; {hints}", at)

    def _head(self, label: str, at: int) -> str:
        try:
            return str(self.architecture.head(label[:40]))
        except ValueError as fault:
            self.fault(str(fault), at)

    def _shared(self, label: str, at: int) -> str:
        """The label of keys and values: a group's, or that of a head's group."""
        found = re.fullmatch(r"[Ll](\d{1,9})[Gg](\d{1,9})", label)
        if not found:
            return self.architecture.key_value(as_head(self._head(label, at)))
        layer, name = int(found[1]), f"L{int(found[1])}G{int(found[2])}"
        groups = self.architecture.key_values(layer) if layer < self.architecture.n_layers else ()
        if name not in groups:
            known = f"layer {layer} has {', '.join(groups)}" if groups else "there is no such layer"
            self.fault(f"there are no keys and values {name}: {known}", at)
        return name

    def _layer(self, glyph: str, label: str, at: int) -> str:
        found = re.fullmatch(r"[Ll](\d{1,9})", label)
        if not found:
            self.fault(f"{label[:40]!r} is not the name of a layer; write {glyph}[L0]", at)
        if int(found[1]) >= self.architecture.n_layers:
            layers = amount(self.architecture.n_layers, "layer")
            self.fault(f"there is no layer {label}: the model has {layers}, counted from 0", at)
        return f"L{int(found[1])}"

    def _multiplier(self, label: str, at: int) -> str:
        known = sorted((m for m in self.architecture.multipliers if m[0] == "r"), key=scalar_order)
        found = next((m for m in known if m[2:-1].lower() == label.lower()), None)
        if found is None:
            self.fault(f"there is no multiplier r[{label[:40]}]; there are {', '.join(known)}", at)
        return found

    def _rest(self, label: str, at: int) -> str:
        known = _rests(self.architecture)
        if label.upper() not in known:
            there = " and ".join(f"rest[{k}]" for k in known)
            self.fault(f"{label[:40]!r} is not what a rest is of; here there is {there}", at)
        return label.upper()

    def _norm(self, glyph: str, label: str, at: int) -> str:
        read = {r.norm for r in self.architecture.readings}
        labels = self.architecture.scale_labels if glyph == "D" else self.architecture.norm_labels
        known = [name for name in labels if name[0] != "M" or name in read]
        if self.architecture.qk_norm and glyph != "b_N":
            known += _qk_norms(self.architecture, glyph)
        found = next((name for name in known if name.lower() == label.lower()), None)
        if found is None:
            self.fault(f"{label[:40]!r} is not the name of a norm; write {glyph}[...] with {' or '.join(known)}", at)
        return found


def _rests(architecture: Architecture) -> list[str]:
    """The labels of what is left beside attached sources: of the stream, ``L1``, or of an MLP, ``M1``."""
    letters = {"stream": "L", "mlp": "M"}
    return list(dict.fromkeys(f"{letters[p.of]}{p.layer}" for p in architecture.parts if p.of in letters))


def _qk_norms(architecture: Architecture, glyph: str) -> list[str]:
    """The labels of the norms of queries and keys: of a layer's gains, or of a head's (a group's) rows."""
    if glyph == "gain":
        return [f"{side}{layer}" for layer in range(architecture.n_layers) for side in "QK"]
    heads = architecture.all_heads
    return [f"Q{h}" for h in heads] + [*dict.fromkeys(f"K{architecture.key_value(h)}" for h in heads)]


# ------------------------------------------------------------------------------------------ text and LaTeX
_OWNER: Final = r"L\d+(?:[HG]\d+)?|M\d+|final(?:[LM]\d+)?|[QK](?:\d+|L\d+[HG]\d+)"
_NESTED = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_WORDS: Final = r"[^{}]*" + r"(?:\{[^{}]*" * 4 + r"\}[^{}]*)*" * 4  # braces in braces, as names in words have them
_SKIP: Final = re.compile(
    r"""\s+ | ~ | & | \$ | \{\s*\} | \\[,;:!>\[\]()\ ] | \\\\\*? | \\q?quad(?![A-Za-z]) | \\displaystyle(?![A-Za-z])
      | \\right\\\}\\;(?: \\begin\{array\}.*?\\end\{array\} | \\text\{[^{}]*\}.*?\\text\{[^{}]*\} )
      | \\(?:left|right)(?:\.|(?=[()])) | \\[bB]igg?[lrm]?(?=[()]) | \\ast(?![A-Za-z])
      | \\begin\{[a-z]+\*?\}(?:\{\d\})? | \\end\{[a-z]+\*?\} | \\text(?:rm|bf)?\{"""
    + _WORDS
    + r"\}",
    re.VERBOSE | re.DOTALL,
)
_OPEN: Final = re.compile(r"\\textcolor\{[^{}]*\}\{|\{")
_TIMES: Final = re.compile(r"@|\*|·|\\cdot(?![A-Za-z])")
_WORD: Final = re.compile(r"[^\W\d]\w*")
_LATEX_NAME: Final = re.compile(
    r"\\mathbf\{1\}|\\mathrm\{rest\}|R_\{j-i\}|\\Gamma(?![A-Za-z])|(?:ones|scale|gain|mlp|rest)(?![A-Za-z])|X\d+"
    rf"|[A-Za-z]\w*?_(?:{_OWNER})(?![A-Za-z])|[A-Za-z](?:_(?:\{{\w+\}}|OV|QK|[A-Za-z0-9]))?"
)
_LABEL: Final = re.compile(r"\s*\[([^\[\]]*)\]")
_DOT_T: Final = re.compile(r"\s*\.\s*T(?!\w)")
_SUPER: Final = re.compile(rf"\s*\^\s*(?:{_NESTED}|(\\top(?![A-Za-z])|\\mathsf\{{T\}}|[A-Za-z0-9]))")
_SUPER_PART: Final = re.compile(
    r"(?P<space>\s+|\\[,;:! ])|(?P<T>\\mathsf\{T\}|\\mathrm\{T\}|\\top(?![A-Za-z])|T(?!\w))"
    r"|\\mathrm\{(?P<roman>[^{}]*)\}|(?P<plain>[Ll]\d+(?:[HhGg]\d+)?)"
)
_LEFT_SIDE: Final = re.compile(
    r"(?:\s|\$|\\displaystyle|\\\[|&|\\begin\{[a-z]+\*?\}(?:\{\d\})?)*"
    r"(?:(?P<word>logits|stream)|\\mathrm\{(?P<roman>logits|stream)\}|X_?\{?(?P<layer>\d{1,6})\}?"
    r"|(?:S|scores)\s*(?:\^\{\\mathrm\{(?P<tex>[^{}]{1,40})\}\}|\[(?P<head>[^\[\]]{1,40})\]))(?:\s|&)*="
)
_REFUSED: Final = (
    (re.compile(r"\\(?:c?dots|ldots)|\.\.\.|…"), "dots stand for terms that cannot be read; write all of them"),
    (re.compile(r"\\otimes|⊗"), "a tensor product cannot be read; write A @ X0 @ W.T for (A (x) W) X0"),
    (re.compile(r"/|\\frac|\\sqrt"), "a quotient cannot be read; write the score scale as scale[L1H0] *"),
    (re.compile(r"="), "only one left-hand side is read: logits, stream, S[L1H0] or X_2; circuits stand alone"),
    (re.compile(r"\\sum"), "a sum sign cannot be read; write the terms with + between"),
    (re.compile(r"\^"), "a power or superscript cannot be read here; ^{T} and .T transpose"),
    (re.compile(r"\."), "only .T may follow a symbol, and coefficients are whole numbers"),
    (re.compile(r"[\[\]]"), "a label in brackets stands directly after a symbol, e.g. W_OV[L0H1]"),
    (re.compile(r"\\[A-Za-z]+|\\."), "this LaTeX command cannot be read"),
)


def split_target(text: str, names: Names) -> tuple[str | None, int]:
    """The target that a left-hand side such as ``logits =`` names, if there is one, and where the formula starts."""
    found = _LEFT_SIDE.match(text)
    if not found:
        return None, 0
    word, head = found["word"] or found["roman"], found["tex"] or found["head"]
    if word:
        return word, found.end()
    if head is None:
        if int(found["layer"]) != names.architecture.n_layers:
            names.fault("as a left-hand side X stands for the stream after the last layer, "
                        f"X_{names.architecture.n_layers}", found.start("layer"))  # fmt: skip
        return "stream", found.end()
    try:
        return f"scores:{names.architecture.head(as_head(head))}", found.end()
    except ValueError as fault:
        names.fault(str(fault), found.start("tex" if found["tex"] else "head"))


def tokens(text: str, names: Names, start: int = 0) -> Iterator[Token]:
    """The tokens of a formula in text notation or LaTeX, in order."""
    bare = names.own.sub("", text) if names.own else text
    name = _LATEX_NAME if "\\" in bare or "_{" in bare or "^{" in bare else _WORD
    braces: list[int] = []
    at = start
    while at < len(text):
        if own := names.own and names.own.match(text, at):
            token, at = _symbol(text, own, names)
            yield token
        elif skipped := _SKIP.match(text, at):
            at = skipped.end()
        elif opened := _OPEN.match(text, at):
            braces.append(at)
            at = opened.end()
        elif text[at] == "}":
            if not braces:
                names.fault("this brace was never opened", at)
            braces.pop()
            at += 1
        else:
            token, at = _token(text, at, names, name)
            yield token
            if token.kind == ")":
                flips, at = _flips(text, at, names)
                if flips % 2:
                    yield Token("T", at)
    if braces:
        names.fault("this brace is never closed", braces[-1])


def _token(text: str, at: int, names: Names, name: re.Pattern[str]) -> tuple[Token, int]:
    char = text[at]
    if char in "()+":
        return Token(char, at), at + 1
    if char in "-−":
        return Token("-", at), at + 1
    if times := _TIMES.match(text, at):
        return Token("*", at), times.end()
    if char in "0123456789":
        digits = re.compile(r"[0-9]+").match(text, at)
        assert digits is not None
        if len(digits[0]) > _DIGITS:
            names.fault(f"a coefficient of more than {_DIGITS} digits", at)
        return Token("number", at, int(digits[0])), digits.end()
    if found := name.match(text, at):
        return _symbol(text, found, names)
    for pattern, message in _REFUSED:
        if pattern.match(text, at):
            names.fault(message, at)
    shown = char if char.isprintable() else f"U+{ord(char):04X}"
    names.fault(f"unknown character {shown!r}", at)


def _symbol(text: str, found: re.Match[str], names: Names) -> tuple[Token, int]:
    """A symbol with its label and transposes."""
    label, transposed, at = None, False, found.end()
    written = {r"\mathbf{1}": "ones", r"\mathrm{rest}": "rest"}.get(found[0], found[0].removesuffix("_{j-i}"))
    if bracket := _LABEL.match(text, at):
        label, at = bracket[1].strip(), bracket.end()
    while True:
        if dot := _DOT_T.match(text, at):
            transposed, at = not transposed, dot.end()
        elif script := _SUPER.match(text, at):
            own, flips = _superscript(script, names)
            if own is not None and label is not None:
                names.fault("a second label", script.start())
            label = own if own is not None else label
            transposed, at = transposed ^ (flips % 2 == 1), script.end()
        else:
            return names.token(written, label, transposed, found.start()), at


def _flips(text: str, at: int, names: Names) -> tuple[int, int]:
    """How often what stands in parentheses is transposed, and where that ends."""
    flips = 0
    while True:
        if dot := _DOT_T.match(text, at):
            flips, at = flips + 1, dot.end()
        elif script := _SUPER.match(text, at):
            label, more = _superscript(script, names)
            if label is not None:
                names.fault("a label cannot stand on parentheses", script.start())
            flips, at = flips + more, script.end()
        else:
            return flips, at


def _superscript(script: re.Match[str], names: Names) -> tuple[str | None, int]:
    """The label and the number of transposes in a superscript."""
    inner, offset = (script[1], script.start(1)) if script[1] is not None else (script[2], script.start(2))
    label: str | None = None
    flips = at = 0
    while at < len(inner):
        part = _SUPER_PART.match(inner, at)
        if part is None or (label is not None and part.lastgroup in ("roman", "plain")):
            names.fault("a superscript holds the label of a head and T, e.g. W_{OV}^{L0H1 T}", offset + at)
        flips += part["T"] is not None
        label = part["roman"] or part["plain"] or label
        at = part.end()
    return label, flips
