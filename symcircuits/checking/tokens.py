"""Splits text notation and LaTeX into tokens, which :mod:`symcircuits.checking.statements` joins to statements."""

from __future__ import annotations

import re
from fractions import Fraction as Rational
from typing import Any, Final, NamedTuple, NoReturn

from symcircuits.checking.displays import outside_prose
from symcircuits.checking.faults import ReadError
from symcircuits.checking.formula import MAX_FACTORS, MAX_WORDS
from symcircuits.checking.scripts import bounds_of, parts_of, plain, split_transposes
from symcircuits.checking.syntax import Name, Script
from symcircuits.checking.token_patterns import (
    ACCENTED,
    ANGLE,
    BARS,
    BEGIN,
    BIGPROD,
    BIGSUM,
    CLOSE,
    COLOURED,
    DOT_T,
    END,
    ENDING,
    FACED,
    FRAC,
    FUNCTIONS,
    KIND,
    LATEX_NAME,
    MAX_DEPTH,
    NUMBER,
    OPEN,
    OPEN_BRACE,
    OPERATORS,
    PROSE,
    REFUSED,
    ROW,
    SCRIPT,
    SKIP,
    SLOPE,
    SQRT,
    STRING,
    SUBSCRIPTED,
    TEXT_NAME,
)

__all__ = ["MAX_SIDES", "MAX_TEXT", "Scanner", "Token"]

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


class Scanner:
    """One text, token by token."""

    def __init__(self, source: str, own: re.Pattern[str] | None) -> None:
        self.source, self.own = source, own
        bare = own.sub("", source) if own else source
        self.latex = "\\" in bare or "_{" in bare or "^{" in bare
        self.name = LATEX_NAME if self.latex else TEXT_NAME
        self.braces: list[tuple[int, bool | None]] = []  # whether a subscript is left out; None: not brackets
        self.depth: list[int] = []  # places of open parentheses
        self.bars: list[tuple[int, bool]] = []  # open bars of norms: the depth, and whether it is one bar

    def fault(self, message: str, at: int) -> ReadError:
        return ReadError(message, self.source, at)

    def tokens(self) -> list[Token]:
        """All tokens, with the ends of rows."""
        text, at, out = self.source, 0, list[Token]()
        shown = outside_prose(text)
        run = signs = seen = sides = 0
        while at < len(text):
            for token in out[seen:]:
                run = run + 1 if token.kind in ("NAME", "NUMBER") else run
                if token.kind in ENDING:
                    run = 0
                    signs = signs + 1 if token.kind == "SIGN" else 0
                sides += token.kind == "EQ"
                if sides > MAX_SIDES:
                    raise self.fault(f"the text has more than {MAX_SIDES:,} equations, the limit", token.at)
                if run > 3 * MAX_FACTORS:
                    raise self.fault(f"the product has more than {MAX_FACTORS:,} factors, the limit", token.at)
                if signs > MAX_WORDS:
                    raise self.fault(f"the formula has more than {MAX_WORDS:,} products, the limit", token.at)
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
        if char == "m" and (found := SLOPE.match(text, at)) and self._slope(found, out):
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
            found = SKIP.match(text, at)
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
        if char == "(" and not OPERATORS[0][1].match(text, at):
            return self._open(at, at + 1, out)
        if char == ")":
            return self._close(at, at + 1, out)
        if "0" <= char <= "9":
            return self._number(at, out)
        if found := BIGSUM.match(text, at):
            return self._big_sum(found.end(), at, out)
        if found := BIGPROD.match(text, at):
            return self._big_sum(found.end(), at, out, "BIGPROD")
        if found := self.name.match(text, at):
            return self._name(found, out)
        if char in "\"'" and (found := STRING.match(text, at)):
            out.append(Token("STRING", at, found[0][1:-1]))
            return found.end()
        for kind, pattern in OPERATORS:
            if found := pattern.match(text, at):
                out.append(Token(kind, at))
                return found.end()
        if char == "√":
            return self._root(at + 1, at, out)
        if found := BARS.match(text, at):
            return self._bars(at, found.end(), out)
        self._refuse(at)

    def _refuse(self, at: int) -> NoReturn:
        text = self.source
        for pattern, message in REFUSED:
            if pattern.match(text, at):
                raise self.fault(message, at)
        shown = text[at] if text[at].isprintable() else f"U+{ord(text[at]):04X}"
        raise self.fault(f"unknown character {shown!r}", at)

    def _command(self, at: int, out: list[Token]) -> int:
        """Read what a backslash starts; 0 if it is nothing known."""
        text = self.source
        if found := BEGIN.match(text, at):
            out.append(Token("BEGIN", at))
            return found.end()
        if found := END.match(text, at):
            out.append(Token("CLOSED", at))
            return found.end()
        if found := ROW.match(text, at):
            out.append(Token("ROW", at))
            return found.end()
        if text.startswith(r"\qquad", at):
            out.append(Token("APART", at))
            return at + 6
        if found := BARS.match(text, at):
            return self._bars(at, found.end(), out)
        if found := ANGLE.match(text, at):
            out.append(Token("FUNC", at, Name("inner", at)))
            return self._open(at, found.end(), out)
        if found := OPEN.match(text, at):
            return self._open(at, found.end(), out)
        if found := CLOSE.match(text, at):
            return self._close(at, found.end(), out)
        if found := COLOURED.match(text, at):
            self.braces.append((at, None))
            return found.end()
        if found := OPEN_BRACE.match(text, at):
            self.braces.append((at, "brace" in found[0][:12]))
            out.append(Token("LBRACE", at))
            return found.end()
        if found := FRAC.match(text, at):
            return self._fraction(found.end(), at, out)
        if found := SQRT.match(text, at):
            return self._root(found.end(), at, out)
        if found := BIGSUM.match(text, at):
            return self._big_sum(found.end(), at, out)
        if found := BIGPROD.match(text, at):
            return self._big_sum(found.end(), at, out, "BIGPROD")
        if found := ACCENTED.match(text, at):
            accent = {"widetilde": "tilde", "widehat": "hat", "overline": "bar"}
            kind = re.match(r"\\([a-z]+)", found[0])[1]  # type: ignore[index]
            return self._named(
                f"{accent.get(kind, kind)} {plain(found[1] or found[3])}", found.end(), at, out, found[2] or ""
            )
        if found := FACED.match(text, at):
            return self._faced(found, at, out)
        if found := PROSE.match(text, at):
            out.append(Token("PROSE", at, found[1].strip().lower()))
            return found.end()
        for kind, pattern in OPERATORS:
            if found := pattern.match(text, at):
                out.append(Token(kind, at))
                return found.end()
        if found := self.name.match(text, at) or LATEX_NAME.match(text, at):
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
        if name == "1":  # SymPy prints a column of ones like a row of ones, as the second
            name = "mathbbm" if found[0].startswith(r"\mathbb") else "ones"
        return self._named(name, found.end(), at, out, below or (f"_{{{sub}}}" if sub else ""))

    def _slope(self, found: re.Match[str], out: list[Token]) -> bool:
        """Read ``- m_h |i - j|``, what ALiBi adds to the scores of head h, after a sign; False if it is not here."""
        before = out[-1] if out else None
        if before is not None and before.kind == "SIGN":
            out[-1] = Token("SIGN", before.at, -int(before.value))
        elif before is None or before.kind in ("LPAR", "EQ", "LINE"):
            out.append(Token("SIGN", found.start(), -1))
        else:
            return False
        head, first, second = found[1] or found[2], found[3], found[4]
        scripts: tuple[Script, ...] = (Script("super", (head,), found.start()),) if head else ()
        if re.search(rf"_\{{?\w*{first}\b|_\{{?{first}\w*\b", self.source):  # entries, not whole matrices
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
            if len(self.braces) > MAX_DEPTH:
                raise self.fault(f"braces are nested more than {MAX_DEPTH:,} deep here", at)
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
        if len(self.depth) > MAX_DEPTH:
            raise self.fault(f"parentheses are nested more than {MAX_DEPTH:,} deep here", at)
        out.append(Token("LPAR", at))
        return end

    def _close(self, at: int, end: int, out: list[Token]) -> int:
        if not self.depth:
            raise self.fault("this parenthesis was never opened", at)
        self.depth.pop()
        out.append(Token("RPAR", at))
        return self._scripts(end, None, out)

    def _bars(self, at: int, end: int, out: list[Token]) -> int:
        """The bars of a norm, which is read as a call: they close an open norm, or open one."""
        depth, single = self.bars[-1] if self.bars else (0, False)
        if depth and depth == len(self.depth):
            if out[-1].kind == "LPAR":
                raise self.fault("a formula is missing between these bars", at)
            end -= single and self.source[end - 2 : end] == "||"  # only the first of |A||B|
            self.bars.pop()
            self.depth.pop()
            out.append(Token("RPAR", at))
            kind = KIND.match(self.source, end)
            return kind.end() if kind else end
        out.append(Token("FUNC", at, Name("norm", at, ())))
        self._open(at, end, out)
        self.bars.append((len(self.depth), self.source[at:end] == "|"))
        return end

    def _number(self, at: int, out: list[Token]) -> int:
        found = NUMBER.match(self.source, at)
        assert found is not None
        if len(found[0]) > _DIGITS:
            raise self.fault(f"the coefficient has more than {_DIGITS} digits, the limit", at)
        out.append(Token("NUMBER", at, Rational(found[0])))
        return found.end()

    def _name(self, found: re.Match[str], out: list[Token]) -> int:
        at, end = found.start(), found.end()
        if found.re is TEXT_NAME and (split := SUBSCRIPTED.fullmatch(found[0])):
            return self._named(split[1], end, at, out, "_" + split[2])
        if found.re is TEXT_NAME and "." in found[0]:
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
        opened = called or (OPEN.match(self.source, end) or re.compile(r"\\!\s*\\left\(").match(self.source, end))
        if name in FUNCTIONS and not scripts and not after and self.source.startswith(r"{\left(", end):
            self.braces.append((end, None))  # SymPy prints functions like this
            end, called = end + 1, True
            opened = True
        if name in FUNCTIONS and opened and not after and (called or name not in ("T", "h", "f", "g")):
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
                if following == "." and not DOT_T.match(text, step):
                    return end
                end = step
            elif dot := (DOT_T.match(text, end) if char in ".'⊤ᵀ" else None):
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
                raise self.fault("a label must come before the transpose", at)
            scripts.append(script) if scripts is not None else out.append(Token("SCRIPT", at, script))
        elif parts:
            flips += 1
        elif not flips and inner.strip():
            raise self.fault("cannot read this superscript: write a label and T, e.g. W_{OV}^{L0H1 T}", start)
        out += [Token("T", at)] * flips
        return end

    def _group(self, at: int) -> tuple[str, int, int]:
        """The text of a script, its start, and the end of the script."""
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
        """The place where the bracket that opens here closes, within 1,000 characters."""
        depth, text = 0, self.source
        for i in range(at, min(len(text), at + SCRIPT)):
            depth += (text[i] == opening) - (text[i] == closing)
            if depth == 0:
                return i
        if len(text) > at + SCRIPT:
            raise self.fault(f"{message}, or has more than {SCRIPT:,} characters, the limit", at)
        raise self.fault(message, at)

    def _fraction(self, end: int, at: int, out: list[Token]) -> int:
        out.append(Token("FRAC", at))
        return self._arguments(end, at, 2, out)

    def _arguments(self, end: int, at: int, count: int, out: list[Token]) -> int:
        """The arguments of a command: arguments in braces are read as usual, single characters get braces."""
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
            raise self.fault("a sum sign needs a range, e.g. \\sum_h or \\sum_{h \\in H_1}, and a product "
                             "its layers, \\prod_{l=L}^{1}", at)  # fmt: skip
        out.append(Token(kind, at, bounds_of(below, above, at)))
        return end
