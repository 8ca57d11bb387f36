"""Text notation and LaTeX taken apart into tokens, and these into statements; nothing is understood but the layout.

A statement is what stands between two ends of a line: a line of text, or a row of a display; a row goes on with the
statement before where it starts with an operator or an equals sign, inside brackets, and (in text) where it is
indented more. Rows are counted as a person counts them, from 1.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from fractions import Fraction as Rational
from typing import Any, Final, NamedTuple, NoReturn

from symcircuits.checking.faults import ReadError
from symcircuits.checking.formula import MAX_FACTORS, MAX_WORDS
from symcircuits.checking.scripts import bounds_of, parts_of, plain, split_transposes
from symcircuits.checking.syntax import Name, Script
from symcircuits.core.symbols import ANY_OWNER

__all__ = ["MAX_SIDES", "MAX_TEXT", "Rows", "Statement", "Token", "statements_of"]

MAX_TEXT: Final = 2_000_000  # characters
MAX_SIDES: Final = 10_000
_DIGITS: Final = 18


class Token(NamedTuple):
    """``kind`` is a terminal of the grammar; ``value`` its node, script, sign or bounds."""

    kind: str
    at: int
    value: Any = None

    def __str__(self) -> str:
        return self.kind


@dataclass(slots=True)
class Statement:
    """Tokens up to the end of a statement; ``let``: it is said to be a definition; ``open``: brackets left open."""

    at: int
    tokens: list[Token] = field(default_factory=list)
    let: bool = False
    open: int = 0
    signs: int = 0

    def add(self, tokens: list[Token]) -> None:
        """More tokens at its end."""
        self.tokens += tokens
        self.open += _opened(tokens)
        self.signs += sum(token.kind == "SIGN" for token in tokens)


class Rows:
    """Which row a place of the text is in, counted from 1."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.numbers: list[int] = []

    def add(self, at: int, number: int) -> None:
        """A row starts here."""
        self.starts.append(at)
        self.numbers.append(number)

    def number(self, at: int) -> int:
        """The row of a place."""
        i = bisect_right(self.starts, at)
        return self.numbers[max(0, i - 1)] if self.numbers else 1


# ------------------------------------------------------------------------------------------------ single tokens
_ENVIRONMENTS: Final = (
    r"(?:align|alignat|aligned|alignedat|gather|gathered|equation|eqnarray|multline|split|displaymath|math)"
)
_EDGE: Final = re.compile(rf"(\\begin\{{{_ENVIRONMENTS}\*?\}}|\\\[)|(\\end\{{{_ENVIRONMENTS}\*?\}}|\\\])|(\$\$)")
_WORDS: Final = r"[^{}]*" + r"(?:\{[^{}]*" * 4 + r"\}[^{}]*)*" * 4  # braces in braces, as names in words have them
_FACE: Final = (
    r"\\(?:mathrm|mathbf|mathcal|mathsf|mathit|mathbb|mathtt|boldsymbol|bm|operatorname\*?|textrm|textbf|textit|text)"
)
_ACCENT: Final = r"\\(?:tilde|widetilde|hat|widehat|bar|overline|check|dot|vec)"
_LETTERS: Final = (
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "kappa", "lambda",
    "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta", "Theta",
    "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega", "ell", "mathbbm",
)  # fmt: skip
_KNOWN_WORDS: Final = (
    r"(?:ones|scale|gain|mlp|rest|logits|stream|scores|softmax|diag|norm|Id|LN|RMSNorm|LayerNorm|Attn|MLP|attn_out|id"
    r"|X\d+|head(?=\()|pos|embed|sqrt|Let|let|where|with|and|for|so|Then|then|Here|Where|Hence|hence|sum)(?![A-Za-z])"
)

_SKIP: Final = re.compile(
    r"""[ \t]{2,}\((?!(?:[a-z]+[\ ,-]+)*(?:ones|scale|gain|mlp|rest|alibi)\b)
        (?:[a-z]{2,}[\ ,-]+)+[a-z]{2,}\)(?=[ \t]*(?:\n|$))
      | [^\S\n]+ | ~ | & | \$ | \{\s*\} | \\[,;:!>\ ] | \\quad\[[^\[\]]{0,40}\] | \\quad(?![A-Za-z])
      | \\(?:displaystyle|textstyle|limits|nonumber|notag|noindent|medskip|smallskip|bigskip|centering|par|item
        |allowdisplaybreaks|begingroup|endgroup|footnotesize|small)(?![A-Za-z])
      | \\right\\\}\\;(?: \\begin\{array\}.*?\\end\{array\} | \\text\{[^{}]*\}.*?\\text\{[^{}]*\} )
      | \\(?:left|right)\. | \\ast(?![A-Za-z]) | \\(?:label|tag|cite|ref|eqref|hspace|vspace|color)\*?\{[^{}]*\}
      | \\(?:begin|end)\{(?:enumerate|itemize|document|center|proof|lemma|theorem|quote)\*?\}(?:\[[^\]]*\])?
      | (?<!\\)%[^\n]* | \#[^\n]*""",
    re.VERBOSE | re.DOTALL,
)  # fmt: skip
_BEGIN: Final = re.compile(rf"\\begin\{{{_ENVIRONMENTS}\*?\}}(?:\[[^\]]*\])?(?:\{{\d+\}})?|\$\$|\\\[|\\\(")
_END: Final = re.compile(rf"\\end\{{{_ENVIRONMENTS}\*?\}}|\\\]|\\\)")
_ROW: Final = re.compile(r"\\\\\*?(?:\[[^\[\]]{0,12}\])?|\\newline(?![A-Za-z])|\\cr(?![A-Za-z])")
_PROSE: Final = re.compile(rf"\\(?:text|textrm|textbf|textit|mbox|intertext|shortintertext)\*?\{{({_WORDS})\}}")
_OPEN_BRACE: Final = re.compile(r"\\(?:underbrace|overbrace|underline|boxed|ensuremath|mathop|mathbin|mathrel)\s*\{|\{")
_COLOURED: Final = re.compile(r"\\(?:textcolor\{[^{}]*\}|ensuremath|mathopen|mathclose)\s*\{")
_OPEN: Final = re.compile(r"\\(?:left|[bB]igg?l?)\s*(?:\(|\[|\\\{|\\lbrack|\\lparen)|\(")
_ANGLE: Final = re.compile(r"(?:\\(?:left|[bB]igg?l?)\s*)?\\langle(?![A-Za-z])")  # an inner product
_CLOSE: Final = re.compile(
    r"\\(?:right|[bB]igg?r?)\s*(?:\)|\]|\\\}|\\rbrack|\\rparen|\\rangle)|\\rangle(?![A-Za-z])|\)"
)
_BARS: Final = re.compile(r"(?:\\(?:left|right|[bB]igg?[lr]?)\s*)?(?:\\(?:[lr]?Vert(?![A-Za-z])|\|)|\|\|?|‖)")
_KIND: Final = re.compile(r"_(?:F(?!\w)|\{\s*(?:F|\\(?:mathrm|text)\{F\})\s*\})")  # of a norm
_OPERATORS: Final = (
    ("OTIMES", re.compile(r"\\(?:otimes|bigotimes)(?![A-Za-z])|⊗|(?<=\s)\(x\)(?=\s)")),
    ("ODOT", re.compile(r"\\(?:odot|circ)(?![A-Za-z])|⊙")),
    ("DOT", re.compile(r"\\(?:cdot|times)(?![A-Za-z])|·")),
    ("LET", re.compile(r":=|\\(?:coloneqq|triangleq|equiv|doteq)(?![A-Za-z])|≡|≜")),
    (
        "NE",
        re.compile(
            r"!=|\\neq?(?![A-Za-z])|≠|\\(?:approx|propto|sim|simeq)(?![A-Za-z])|≈|<|>|\\(?:leq?|geq?)(?![A-Za-z])"
        ),
    ),
    ("EQ", re.compile(r"==?")),
    ("POW", re.compile(r"\*\*")),
    ("AT", re.compile(r"@|\*")),
    ("SLASH", re.compile(r"/(?!/)")),
    ("COMMA", re.compile(r",")),
    ("END", re.compile(r";|\.(?=\s|$|\$|\\(?:end\b|[\]\\)]))|:(?=\s|$)")),
)
_DOT_T: Final = re.compile(r"[^\S\n]*(?:\.[^\S\n]*(?:T|mT|t\(\)|transpose\(\))(?!\w)|'|⊤|ᵀ)")
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_STRING: Final = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
_BIGSUM: Final = re.compile(r"\\sum(?![A-Za-z])(?:\\limits|\\nolimits)?|[Σ∑]|\bsum(?=_|\[)")
_BIGPROD: Final = re.compile(r"\\prod(?![A-Za-z])(?:\\limits|\\nolimits)?|∏")
_SQRT: Final = re.compile(r"\\sqrt(?![A-Za-z])|√")
_FRAC: Final = re.compile(r"\\[dt]?frac(?![A-Za-z])")
_MODEL: Final = r"(?:model|self|m|net|transformer|tl_model|hooked)\."
_TEXT_NAME: Final = re.compile(
    rf"(?:{_MODEL})?blocks\.(\d+)\.\w+\.(W_\w+|b_\w+|w_\w+)|{_MODEL}(W_\w+|b_\w+|w_\w+)"
    r"|(?:unembed|embed|pos_embed)\.(W_\w+|b_\w+)|([^\W\d]\w*)"
)
_LATEX_NAME: Final = re.compile(
    rf"R_\{{j-i\}}|{_KNOWN_WORDS}|(?P<owned>[A-Za-z]\w*?_(?:{ANY_OWNER}))(?![A-Za-z])|[A-Za-z]|\\(?:{'|'.join(_LETTERS)})(?![A-Za-z])|[α-ωΑ-Ω]"
)
_SUBSCRIPTED: Final = re.compile(r"([xXqkvrAeSzhoRaHN])_([a-z]{1,2}|\d)")  # of names in text; others keep theirs
_FACED: Final = re.compile(
    rf"{_FACE}\s*(?:\{{\s*((?:\\(?:{'|'.join(_LETTERS)})|[^{{}}\\])+)((?:_\{{[^{{}}]*\}})?)\s*\}}|([A-Za-z0-9]))"
)
_ACCENTED: Final = re.compile(
    rf"{_ACCENT}\s*(?:\{{\s*([A-Za-z]|\\[A-Za-z]+)((?:_\w|_\{{[^{{}}]*\}})?)\s*\}}|([A-Za-z]))"
)
_LET_WORDS: Final = frozenset({"let", "where", "with", "define", "for", "write", "set", "put", "denote"})
_FILLERS: Final = frozenset(
    {"and", "so", "then", "hence", "here", "thus", "therefore", "since", "as", "we", "have", "is", "by"}
)
_FUNCTIONS: Final = frozenset({
    "softmax", "diag", "norm", "sqrt", "einsum", "FactoredMatrix", "LN", "RMSNorm", "LayerNorm", "Attn", "MLP", "attn",
    "sigma", "h", "head", "T", "logits", "stream", "scores", "rms", "std", "transpose", "f", "g", "F",
})  # fmt: skip
_REFUSED: Final = (
    (re.compile(r"\\(?:c?dots|ldots)|\.\.\.|…"), "dots stand for terms that cannot be read; write all of them"),
    (re.compile(r"\^"), "a power or superscript cannot be read here; ^{T} and .T transpose"),
    (re.compile(r"_"), "a subscript cannot be read here"),
    (re.compile(r"\."), "only .T may follow a symbol"),
    (re.compile(r"[\[\]]"), "a label in brackets stands directly after a symbol, e.g. W_OV[L0H1]"),
    (re.compile(r"\\[A-Za-z]+|\\."), "this LaTeX command cannot be read"),
)
_ENDING: Final = frozenset({"SIGN", "EQ", "ROW", "LINE", "COMMA", "LET"})
_SCRIPT: Final = 1_000  # characters of a script or label
_MAX_DEPTH: Final = 10_000  # brackets in brackets
_LEADING: Final = frozenset({"SIGN", "EQ", "LET", "AT", "DOT", "OTIMES", "ODOT", "SLASH", "POW", "T"})
_TRAILING: Final = _LEADING - {"T"} | {"BIGSUM", "BIGPROD", "COMMA"}


_BAR: Final = r"(?:\\left\s*|\\right\s*)?(?:\||\\[lr]?vert\b|\\mid\b)"
_SLOPE: Final = re.compile(
    rf"m(?:_\{{?(\w+)\}}?|\^\{{?\(?(\w+)\)?\}}?)?\s*(?:\\cdot|\\,|\*)?\s*{_BAR}\s*([a-z])\s*-\s*([a-z])\s*{_BAR}"
)


class _Scanner:
    """One text, token by token."""

    def __init__(self, source: str, own: re.Pattern[str] | None) -> None:
        self.source, self.own = source, own
        bare = own.sub("", source) if own else source
        self.latex = "\\" in bare or "_{" in bare or "^{" in bare
        self.name = _LATEX_NAME if self.latex else _TEXT_NAME
        self.braces: list[tuple[int, bool | None]] = []  # whether a script below is left out; None: not brackets
        self.depth: list[int] = []  # where parentheses were opened
        self.bars: list[tuple[int, bool]] = []  # of those that are a norm's, how many there were then; of one bar

    def fault(self, message: str, at: int) -> ReadError:
        return ReadError(message, self.source, at)

    def tokens(self) -> list[Token]:
        """Everything, ends of rows among it."""
        text, at, out = self.source, 0, list[Token]()
        shown = _outside_prose(text)
        run = signs = seen = sides = 0
        while at < len(text):
            for token in out[seen:]:
                run = run + 1 if token.kind in ("NAME", "NUMBER") else run
                if token.kind in _ENDING:
                    run = 0
                    signs = signs + 1 if token.kind == "SIGN" else 0
                sides += token.kind == "EQ"
                if sides > MAX_SIDES:
                    raise self.fault(f"a text of more than {MAX_SIDES:,} equations is not read", token.at)
                if run > 3 * MAX_FACTORS:
                    raise self.fault(f"a product of more than {MAX_FACTORS:,} factors is not read", token.at)
                if signs > MAX_WORDS:
                    raise self.fault(f"the formula has more than {MAX_WORDS:,} words, the most that are read", token.at)
            seen = len(out)
            if shown is not None and not shown[at]:
                at = next((i for i in range(at, len(text)) if shown[i]), len(text))
                out.append(Token("ROW", at))
                continue
            at = self._next(at, out)
        if self.braces:
            raise self.fault("this brace is never closed", self.braces[-1][0])
        if self.depth:
            bar = bool(self.bars) and self.bars[-1][0] == len(self.depth)
            raise self.fault(f"this {'bar' if bar else 'parenthesis'} is never closed", self.depth[-1])
        return out

    def _next(self, at: int, out: list[Token]) -> int:
        text = self.source
        char = text[at]
        if char == "\n":
            out.append(Token("LINE", at))
            return at + 1
        if char == "m" and (found := _SLOPE.match(text, at)) and self._slope(found, out):
            return found.end()
        if self.own and (found := self.own.match(text, at)):
            return self._named(found[0], found.end(), at, out)
        if (
            char.isalpha()
            and char not in "Σ∑∏"
            and not text.startswith("sum", at)
            and (found := self.name.match(text, at))
        ):
            return self._name(found, out)
        if char in " \t\r&~$\\{%#\f\v\xa0" or char.isspace():
            found = _SKIP.match(text, at)
            if found:
                return found.end()
        if char == "\\":
            after = self._command(at, out)
            if after:
                return after
        if char in "+-−–":
            return self._sign(at, out)
        if char == "{" or char == "}":
            return self._brace(at, out)
        if char == "(" and not _OPERATORS[0][1].match(text, at):
            return self._open(at, at + 1, out)
        if char == ")":
            return self._close(at, at + 1, out)
        if "0" <= char <= "9":
            return self._number(at, out)
        if found := _BIGSUM.match(text, at):
            return self._big_sum(found.end(), at, out)
        if found := _BIGPROD.match(text, at):
            return self._big_sum(found.end(), at, out, "BIGPROD")
        if found := self.name.match(text, at):
            return self._name(found, out)
        if char in "\"'" and (found := _STRING.match(text, at)):
            out.append(Token("STRING", at, found[0][1:-1]))
            return found.end()
        for kind, pattern in _OPERATORS:
            if found := pattern.match(text, at):
                out.append(Token(kind, at))
                return found.end()
        if char == "√":
            return self._root(at + 1, at, out)
        if found := _BARS.match(text, at):
            return self._bars(at, found.end(), out)
        self._refuse(at)

    def _refuse(self, at: int) -> NoReturn:
        text = self.source
        for pattern, message in _REFUSED:
            if pattern.match(text, at):
                raise self.fault(message, at)
        shown = text[at] if text[at].isprintable() else f"U+{ord(text[at]):04X}"
        raise self.fault(f"unknown character {shown!r}", at)

    def _command(self, at: int, out: list[Token]) -> int:
        """What a backslash starts; 0 where it is not one of these."""
        text = self.source
        if found := _BEGIN.match(text, at):
            out.append(Token("BEGIN", at))
            return found.end()
        if found := _END.match(text, at):
            out.append(Token("CLOSED", at))
            return found.end()
        if found := _ROW.match(text, at):
            out.append(Token("ROW", at))
            return found.end()
        if text.startswith(r"\qquad", at):
            out.append(Token("APART", at))
            return at + 6
        if found := _BARS.match(text, at):
            return self._bars(at, found.end(), out)
        if found := _ANGLE.match(text, at):
            out.append(Token("FUNC", at, Name("inner", at)))
            return self._open(at, found.end(), out)
        if found := _OPEN.match(text, at):
            return self._open(at, found.end(), out)
        if found := _CLOSE.match(text, at):
            return self._close(at, found.end(), out)
        if found := _COLOURED.match(text, at):
            self.braces.append((at, None))
            return found.end()
        if found := _OPEN_BRACE.match(text, at):
            self.braces.append((at, "brace" in found[0][:12]))
            out.append(Token("LBRACE", at))
            return found.end()
        if found := _FRAC.match(text, at):
            return self._fraction(found.end(), at, out)
        if found := _SQRT.match(text, at):
            return self._root(found.end(), at, out)
        if found := _BIGSUM.match(text, at):
            return self._big_sum(found.end(), at, out)
        if found := _BIGPROD.match(text, at):
            return self._big_sum(found.end(), at, out, "BIGPROD")
        if found := _ACCENTED.match(text, at):
            accent = {"widetilde": "tilde", "widehat": "hat", "overline": "bar"}
            kind = re.match(r"\\([a-z]+)", found[0])[1]  # type: ignore[index]
            return self._named(
                f"{accent.get(kind, kind)} {plain(found[1] or found[3])}", found.end(), at, out, found[2] or ""
            )
        if found := _FACED.match(text, at):
            return self._faced(found, at, out)
        if found := _PROSE.match(text, at):
            out.append(Token("PROSE", at, found[1].strip().lower()))
            return found.end()
        for kind, pattern in _OPERATORS:
            if found := pattern.match(text, at):
                out.append(Token(kind, at))
                return found.end()
        if found := self.name.match(text, at) or _LATEX_NAME.match(text, at):
            return self._name(found, out)
        return 0

    def _faced(self, found: re.Match[str], at: int, out: list[Token]) -> int:
        word, below = plain(found[1] or found[3]), found[2] or ""
        if found[0].startswith("\\text") and word not in ("softmax", "diag", "logits", "Id", "I", "LN", "norm"):
            out.append(Token("PROSE", at, (found[1] or "").strip().lower()))
            return found.end()
        name, _, sub = word.partition("_")
        if not re.fullmatch(r"[^\W\d]\w*|1|[α-ω]", name):
            self._refuse(at)
        if name == "1":  # SymPy prints a column and a row of ones alike, as the second
            name = "mathbbm" if found[0].startswith(r"\mathbb") else "ones"
        return self._named(name, found.end(), at, out, below or (f"_{{{sub}}}" if sub else ""))

    def _slope(self, found: re.Match[str], out: list[Token]) -> bool:
        """``- m_h |i - j|``, what ALiBi adds to the scores of head h; whether it is read here, behind a sign."""
        before = out[-1] if out else None
        if before is not None and before.kind == "SIGN":
            out[-1] = Token("SIGN", before.at, -int(before.value))
        elif before is None or before.kind in ("LPAR", "EQ", "LINE"):
            out.append(Token("SIGN", found.start(), -1))
        else:
            return False
        head, first, second = found[1] or found[2], found[3], found[4]
        scripts: tuple[Script, ...] = (Script("super", (head,), found.start()),) if head else ()
        if re.search(rf"_\{{?\w*{first}\b|_\{{?{first}\w*\b", self.source):  # entries, and not whole matrices
            scripts += (Script("sub", (first, second), found.start()),)
        out.append(Token("NAME", found.start(), Name("alibi", found.start(), scripts)))
        return True

    def _sign(self, at: int, out: list[Token]) -> int:
        text, value, end = self.source, 1, at
        while end < len(text) and text[end] in "+-−– ":
            value *= -1 if text[end] in "-−–" else 1
            end += 1
        out.append(Token("SIGN", at, value))
        return end

    def _brace(self, at: int, out: list[Token]) -> int:
        if self.source[at] == "{":
            self.braces.append((at, False))
            if len(self.braces) > _MAX_DEPTH:
                raise self.fault(f"braces are nested more than {_MAX_DEPTH:,} deep here", at)
            out.append(Token("LBRACE", at))
            return at + 1
        if not self.braces:
            raise self.fault("this brace was never opened", at)
        _, dropped = self.braces.pop()
        if dropped is None:
            return at + 1
        out.append(Token("RBRACE", at))
        return self._scripts(at + 1, None, out, dropped)

    def _open(self, at: int, end: int, out: list[Token]) -> int:
        self.depth.append(at)
        if len(self.depth) > _MAX_DEPTH:
            raise self.fault(f"parentheses are nested more than {_MAX_DEPTH:,} deep here", at)
        out.append(Token("LPAR", at))
        return end

    def _close(self, at: int, end: int, out: list[Token]) -> int:
        if not self.depth:
            raise self.fault("this parenthesis was never opened", at)
        self.depth.pop()
        out.append(Token("RPAR", at))
        return self._scripts(end, None, out)

    def _bars(self, at: int, end: int, out: list[Token]) -> int:
        """The bars of a norm, which is read as a call: they close the one that is open, or open one."""
        depth, single = self.bars[-1] if self.bars else (0, False)
        if depth and depth == len(self.depth):
            if out[-1].kind == "LPAR":
                raise self.fault("nothing stands between these bars", at)
            end -= single and self.source[end - 2 : end] == "||"  # of |A||B| the first alone
            self.bars.pop()
            self.depth.pop()
            out.append(Token("RPAR", at))
            kind = _KIND.match(self.source, end)
            return kind.end() if kind else end
        out.append(Token("FUNC", at, Name("norm", at, ())))
        self._open(at, end, out)
        self.bars.append((len(self.depth), self.source[at:end] == "|"))
        return end

    def _number(self, at: int, out: list[Token]) -> int:
        found = _NUMBER.match(self.source, at)
        assert found is not None
        if len(found[0]) > _DIGITS:
            raise self.fault(f"a coefficient of more than {_DIGITS} digits", at)
        out.append(Token("NUMBER", at, Rational(found[0])))
        return found.end()

    def _name(self, found: re.Match[str], out: list[Token]) -> int:
        at, end = found.start(), found.end()
        if found.re is _TEXT_NAME and (split := _SUBSCRIPTED.fullmatch(found[0])):
            return self._named(split[1], end, at, out, "_" + split[2])
        if found.re is _TEXT_NAME and "." in found[0]:
            name = next(g for g in found.groups()[1:] if g)
            layer = found[1]
            return self._named(name, end, at, out, "", (layer,) if layer else ())
        return self._named("R" if found[0] == "R_{j-i}" else found[0].removeprefix("\\"), end, at, out)

    def _named(
        self, name: str, end: int, at: int, out: list[Token], below: str = "", first: tuple[str, ...] = ()
    ) -> int:
        """A name with its scripts, and the transposes after it."""
        scripts: list[Script] = []
        if below:
            scripts.append(Script("sub", parts_of(below[1:]), at))
        after: list[Token] = []
        start = end
        end = self._scripts(end, scripts, after)
        if first:
            index = [s for s in scripts if s.kind == "index"]
            rest = index[0].parts if index else ()
            scripts = [s for s in scripts if s.kind != "index"] + [Script("index", first + rest, start)]
        node = Name(name, at, tuple(scripts))
        called = end < len(self.source) and self.source[end] == "(" and not scripts and not after
        opened = called or (_OPEN.match(self.source, end) or re.compile(r"\\!\s*\\left\(").match(self.source, end))
        if name in _FUNCTIONS and not scripts and not after and self.source.startswith(r"{\left(", end):
            self.braces.append((end, None))  # as SymPy prints functions
            end, called = end + 1, True
            opened = True
        if name in _FUNCTIONS and opened and not after and (called or name not in ("T", "h", "f", "g")):
            out.append(Token("FUNC", at, node))
        else:
            out.append(Token("NAME", at, node))
        out += after
        return end

    def _scripts(self, end: int, scripts: list[Script] | None, out: list[Token], dropped: bool = False) -> int:
        """Scripts and transposes after a name (or, without ``scripts``, after a bracket)."""
        text = self.source
        while end < len(text):
            char = text[end]
            if char.isspace() or (char == "\\" and text[end + 1 : end + 2] in ("!", ",")):
                step = end + (2 if char == "\\" else 1)
                following = text[step : step + 1]
                if char == "\n" or not (following in "^_." or (following == "[" and not self.latex)):
                    return end
                if following == "." and not _DOT_T.match(text, step):
                    return end
                end = step
            elif dot := (_DOT_T.match(text, end) if char in ".'⊤ᵀ" else None):
                if char == "'" and text[end + 1 : end + 2].isalnum():
                    return end
                out.append(Token("T", end))
                end = dot.end()
                if len(out) > MAX_FACTORS and out[-MAX_FACTORS].kind == "T":
                    raise self.fault(f"more than {MAX_FACTORS:,} transposes", end)
            elif char == "[":
                end = self._bracket(end, scripts, out)
            elif char in "_^" and end + 1 < len(text):
                end = self._script(end, scripts, out, dropped)
            else:
                return end
        return end

    def _bracket(self, at: int, scripts: list[Script] | None, out: list[Token]) -> int:
        end = self._matching(at, "[", "]", "a label in brackets is never closed")
        if "\n" in self.source[at:end]:
            raise self.fault("a label in brackets is never closed", at)
        script = Script("index", parts_of(self.source[at + 1 : end]), at)
        scripts.append(script) if scripts is not None and not any(t.kind == "T" for t in out) else out.append(
            Token("SCRIPT", at, script)
        )
        return end + 1

    def _script(self, at: int, scripts: list[Script] | None, out: list[Token], dropped: bool) -> int:
        inner, start, end = self._group(at + 1)
        if self.source[at] == "_":
            script = Script("sub", parts_of(inner), at)
            if not dropped:
                scripts.append(script) if scripts is not None else out.append(Token("SCRIPT", at, script))
            return end
        inner, flips = split_transposes(inner)
        parts = parts_of(inner)
        if parts and scripts is None and re.fullmatch(r"-?\d+(?:/\d+|\.\d+)?", parts[0]) and len(parts) == 1:
            out.append(Token("POWER", at, Rational(parts[0])))
        elif parts and parts != ("'",):
            script = Script("super", parts, at)
            if scripts is not None and any(t.kind == "T" for t in out):
                raise self.fault("a label stands before the transpose", at)
            scripts.append(script) if scripts is not None else out.append(Token("SCRIPT", at, script))
        elif parts:
            flips += 1
        elif not flips and inner.strip():
            raise self.fault("a superscript holds the label of a head and T, e.g. W_{OV}^{L0H1 T}", start)
        out += [Token("T", at)] * flips
        return end

    def _group(self, at: int) -> tuple[str, int, int]:
        """What a script holds, where that starts and where the script ends."""
        text = self.source
        while at < len(text) and text[at] == " ":
            at += 1
        if text[at : at + 1] == "{":
            end = self._matching(at, "{", "}", "this brace is never closed")
            return text[at + 1 : end], at + 1, end + 1
        if text[at : at + 1] == "(":
            end = self._matching(at, "(", ")", "this parenthesis is never closed")
            return text[at + 1 : end], at + 1, end + 1
        if found := re.compile(r"\\(?:mathrm|mathsf|text|mathbf)\s*(?:\{[^{}]*\}|[A-Za-z])|\\[A-Za-z]+").match(
            text, at
        ):
            return found[0], at, found.end()
        pattern = r"OV(?![a-z])|QK(?![a-z])|\d+\.\d+|\w" if self.latex else r"L\d+[HG]\d+|\d+\.\d+|\w+|\*"
        if found := re.compile(pattern).match(text, at):
            return found[0], at, found.end()
        raise self.fault("a superscript or subscript is missing here" if at >= len(text) else
                         "this superscript or subscript cannot be read", min(at, len(text)) - 1)  # fmt: skip

    def _matching(self, at: int, opening: str, closing: str, message: str) -> int:
        """Where the bracket that opens here closes, within 1,000 characters."""
        depth, text = 0, self.source
        for i in range(at, min(len(text), at + _SCRIPT)):
            depth += (text[i] == opening) - (text[i] == closing)
            if depth == 0:
                return i
        if len(text) > at + _SCRIPT:
            raise self.fault(f"a script or label of more than {_SCRIPT:,} characters is not read, or {message}", at)
        raise self.fault(message, at)

    def _fraction(self, end: int, at: int, out: list[Token]) -> int:
        out.append(Token("FRAC", at))
        return self._arguments(end, at, 2, out)

    def _arguments(self, end: int, at: int, count: int, out: list[Token]) -> int:
        """The arguments of a command: those in braces are read as they come, single characters are put in braces."""
        text = self.source
        found = re.compile(r"\s*(?:\{|([0-9A-Za-z])|(\\[A-Za-z]+))").match(text, end)
        if not found or not (found[1] or found[2]):
            return end
        short = re.compile(r"\s*([0-9A-Za-z]|\\[A-Za-z]+)")
        for _ in range(count):
            one = short.match(text, end)
            if not one:
                return end  # braces follow
            out.append(Token("LBRACE", one.start(1)))
            if one[1].isdigit():
                out.append(Token("NUMBER", one.start(1), Rational(one[1])))
            else:
                out.append(Token("NAME", one.start(1), Name(one[1].removeprefix("\\"), one.start(1))))
            out.append(Token("RBRACE", one.end() - 1))
            end = one.end()
        return end

    def _root(self, end: int, at: int, out: list[Token]) -> int:
        if self.source[end : end + 1] == "(":  # √(d_head)
            out.append(Token("FUNC", at, Name("sqrt", at)))
            return end
        out.append(Token("SQRT", at))
        if self.source[at] == "√":
            word = re.compile(r"\w+").match(self.source, end)
            if word:
                out += [Token("LBRACE", end), Token("NAME", end, Name(word[0], end)), Token("RBRACE", word.end())]
                return word.end()
        return self._arguments(end, at, 1, out)

    def _big_sum(self, end: int, at: int, out: list[Token], kind: str = "BIGSUM") -> int:
        text, below, above = self.source, "", ""
        while end < len(text):
            rest = re.compile(r"\s*(?:\\limits)?\s*([_^\[])").match(text, end)
            if not rest or "\n" in rest[0]:
                break
            if rest[1] == "[":
                close = self._matching(rest.start(1), "[", "]", "the range of this sum is never closed")
                below, end = text[rest.start(1) + 1 : close], close + 1
                continue
            inner, _, end = self._group(rest.end())
            below, above = (inner, above) if rest[1] == "_" else (below, inner)
        if not below.strip():
            raise self.fault("a sum sign needs what it runs over, e.g. \\sum_h or \\sum_{h \\in H_1}, a product "
                             "its layers, \\prod_{l=L}^{1}", at)  # fmt: skip
        out.append(Token(kind, at, bounds_of(below, above, at)))
        return end


# -------------------------------------------------------------------------------------------------- statements
def statements_of(source: str, own: re.Pattern[str] | None = None) -> tuple[list[Statement], Rows]:
    """The statements of a text, and its rows. ``own``: names that are printed as they stand.

    >>> found, rows = statements_of("T = X0 W_U.T\\n  + P W_U.T\\nX1 = X0")
    >>> [len(s.tokens) for s in found], [rows.number(s.at) for s in found]
    ([9, 3], [1, 3])
    """
    if len(source) > MAX_TEXT:
        raise ReadError(f"the formula has {len(source):,} characters; at most {MAX_TEXT:,} are read")
    if not source.strip():
        raise ReadError("the formula is empty")
    scanner = _Scanner(source, own)
    return _Layout(scanner).statements(scanner.tokens())


class _Layout:
    """Rows put together to statements."""

    def __init__(self, scanner: _Scanner) -> None:
        self.scanner, self.source = scanner, scanner.source
        self.rows, self.found = Rows(), list[Statement]()
        self.displays = scanner.latex and bool(_displays(self.source))
        self.counted = 0
        self.breaks = [found.start() for found in re.finditer("\n", self.source)]

    def statements(self, tokens: list[Token]) -> tuple[list[Statement], Rows]:
        row: list[Token] = []
        depth = inside = 0
        for token in tokens:
            if token.kind in ("BEGIN", "CLOSED"):
                inside += 1 if token.kind == "BEGIN" else -1
                self.row(row, True)
                row = []
            elif token.kind == "ROW" or (token.kind == "LINE" and inside <= 0 and not depth):
                self.row(row, inside > 0)
                row = []
            elif token.kind != "LINE":
                depth += (token.kind in ("LPAR", "LBRACE")) - (token.kind in ("RPAR", "RBRACE"))
                row.append(token)
        self.row(row, inside > 0)
        return [s for s in self.found if s.tokens], self.rows

    def row(self, tokens: list[Token], display: bool) -> None:
        """One row: it goes on with the statement before it, or is one of its own."""
        inside = bool(self.found) and self.found[-1].open > 0
        let, tokens = _without_words(tokens, inside)
        if not tokens:
            return
        at = tokens[0].at
        self.counted += 1
        line = self.counted if self.scanner.latex else bisect_left(self.breaks, at) + 1
        self.rows.add(at if self.rows.starts else 0, line)
        for i, (part, apart) in enumerate(_apart(tokens)):
            goes_on = self.found and not i and not let and not self.found[-1].let and self._goes_on(part, display)
            if goes_on:
                self.found[-1].add(part)
            else:
                if len(self.found) >= MAX_SIDES:
                    raise self.scanner.fault(f"a text of more than {MAX_SIDES:,} lines is not read", part[0].at)
                self.found.append(Statement(part[0].at, let=let or apart))
                self.found[-1].add(part)
            if self.found[-1].signs > MAX_WORDS:
                message = f"the formula has more than {MAX_WORDS:,} words, the most that are read"
                raise self.scanner.fault(message, part[0].at)

    def _goes_on(self, tokens: list[Token], display: bool) -> bool:
        before = self.found[-1]
        if tokens[0].kind in _LEADING or before.tokens[-1].kind in _TRAILING or before.open > 0:
            return True
        if any(t.kind in ("EQ", "LET") for t in tokens):
            return False
        if display:
            return True
        return not self.scanner.latex and self._indent(tokens[0].at) > self._indent(before.at)

    def _indent(self, at: int) -> int:
        start = self.source.rfind("\n", 0, at) + 1
        line = self.source[start:at]
        return len(line) - len(line.lstrip())


def _opened(tokens: list[Token]) -> int:
    """How many brackets are opened and not closed."""
    return sum((t.kind in ("LPAR", "LBRACE")) - (t.kind in ("RPAR", "RBRACE")) for t in tokens)


def _word(token: Token) -> str:
    if token.kind == "PROSE":
        return str(token.value)
    plain_name = token.kind == "NAME" and not token.value.scripts
    return token.value.text.lower() if plain_name else ""


def _without_words(tokens: list[Token], inside: bool = False) -> tuple[bool, list[Token]]:
    """A row without the words around its formula, and whether they say that it defines.

    ``inside``: it goes on inside brackets, where a comma at its end parts arguments.
    """
    let = False
    start = 0
    while start < len(tokens):
        words = _word(tokens[start]).rstrip(":,.").split()
        if tokens[start].kind in ("END", "COMMA", "APART"):
            start += 1
        elif tokens[start].kind == "PROSE" or (words and words[0] in _LET_WORDS | _FILLERS and start + 1 < len(tokens)):
            let = let or any(w in _LET_WORDS for w in words)
            start += 1
        else:
            break
    kept: list[Token] = []
    for token in tokens[start:]:
        if kept and token.kind == "PROSE" and str(token.value).split(" ")[0] == "for" and _opened(kept) <= 0:
            break  # for all h
        if token.kind == "RBRACE" and kept and kept[-1].kind == "LBRACE":
            kept.pop()  # nothing but words stood in these braces
        elif token.kind != "PROSE":
            kept.append(token)
    inside = inside or _opened(kept) > 0
    while kept and kept[-1].kind in (("END", "APART") if inside else ("END", "COMMA", "APART")):
        kept.pop()
    let = let or any(t.kind == "LET" for t in kept)
    return let, [t if t.kind != "LET" else t._replace(kind="EQ") for t in kept]


def _apart(tokens: list[Token]) -> list[tuple[list[Token], bool]]:
    """Formulas that stand in one row: after a wide space, a comma or a semicolon another equation may follow."""
    parts: list[tuple[list[Token], bool]] = []
    start = depth = 0
    equals = [i for i, t in enumerate(tokens) if t.kind == "EQ"]
    for i, token in enumerate(tokens):
        depth += (token.kind in ("LPAR", "LBRACE")) - (token.kind in ("RPAR", "RBRACE"))
        if depth or token.kind not in ("APART", "COMMA", "END"):
            continue
        if any(start <= e < i for e in equals) and equals and equals[-1] > i:
            parts.append((tokens[start:i], bool(parts)))
            start = i + 1
    parts.append((tokens[start:], bool(parts)))
    cleaned = [([t for t in part if t.kind != "APART"], apart) for part, apart in parts]
    return [(part, apart) for part, apart in cleaned if part]


def _outside_prose(source: str) -> list[bool] | None:
    """Of a text with displays: which characters are read. Prose around them is not, nor formulas in a sentence."""
    if "\\begin" not in source and "$$" not in source and "\\[" not in source:
        return None
    shown = [False] * len(source)
    last = 0
    spans = _displays(source)
    if not spans:
        return None
    for start, end in [*spans, (len(source), len(source))]:
        for line in re.compile(r"[^\n]*\n?").finditer(source, last, start):
            if _is_formula(line[0]):
                shown[line.start() : min(line.end(), start)] = [True] * (min(line.end(), start) - line.start())
        shown[start:end] = [True] * (end - start)
        last = end
    return shown


def _displays(source: str) -> list[tuple[int, int]]:
    """Where displays start and end."""
    spans: list[tuple[int, int]] = []
    depth, start, dollars = 0, 0, False
    for found in _EDGE.finditer(source):
        opens = found[1] or (found[3] and not dollars)
        dollars = not dollars if found[3] else dollars
        if opens:
            start = start if depth else found.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                spans.append((start, found.end()))
    return spans


def _is_formula(line: str) -> bool:
    """Whether a line between displays is a formula, and not a sentence or a command of the layout."""
    bare = re.sub(r"\$[^$]*\$", " ", line)
    words = re.findall(r"(?<![\\A-Za-z_{^])[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+\*?(?:\{[^{}]*\})?", " ", bare))
    return ("=" in bare or "otimes" in bare) and len([w for w in words if w not in ("Id", "logits")]) < 3
