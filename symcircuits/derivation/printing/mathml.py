"""Words as MathML Core, from the same glyphs as their LaTeX (:mod:`symcircuits.core.notation`)."""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape

from symcircuits.core.names import spelled
from symcircuits.core.notation import factor_latex, scale_latex, word_latex
from symcircuits.core.words import Factor, Word

__all__ = ["latex_mathml", "word_mathml"]

_TOKEN = re.compile(r"\\([A-Za-z]+)|\\(.)|([{}_^])|([0-9]+)|(\s+)|(.)", re.DOTALL)
_FONTS = {"mathrm": "", "mathsf": "sf", "mathbf": "bf", "mathcal": "cal", "mathit": "", "text": "", "operatorname": ""}
_TRANSPOSE = r"\mathsf{T}"
_SPACES = {",", ";", ":", "!", " "}
_LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "lambda": "λ", "mu": "μ", "nu": "ν",
    "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "ϕ", "varphi": "φ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ",
    "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Omega": "Ω", "ell": "ℓ", "top": "⊤", "prime": "′", "cdot": "⋅",
    "odot": "⊙", "otimes": "⊗", "circ": "∘", "star": "⋆", "ast": "∗", "times": "×",
}  # fmt: skip
_GAP = '<mspace width="0.17em"/>'


def word_mathml(word: Word) -> str:
    """A word as one ``<math>`` element: its factors in order, abbreviations used, the scale in front.

    The LaTeX stands in it as an annotation, the text notation as alternative text.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import logits
    >>> print(word_mathml(logits(attention_only((1,)))[0].word))
    <math alttext="X0 @ W_U.T"><semantics><mrow><msub><mi>X</mi><mn>0</mn></msub><mspace width="0.17em"/>\
<msubsup><mi>W</mi><mi>U</mi><mi class="sf" mathvariant="normal">T</mi></msubsup>\
</mrow><annotation encoding="application/x-tex">X_0\\,W_U^{\\mathsf{T}}</annotation></semantics></math>
    """
    parts = [latex_mathml(scale_latex(s)) for s in word.scales] + [_factor(f) for f in word.fused]
    note = f'<annotation encoding="application/x-tex">{escape(word_latex(word))}</annotation>'
    row = f"<mrow>{_GAP.join(parts)}</mrow>"
    return f'<math alttext="{escape(word.text)}"><semantics>{row}{note}</semantics></math>'


def _factor(factor: Factor) -> str:
    """A factor; a name that somebody gave, and that is not mathematics, stands as text."""
    name = factor.symbol.glyph
    if not factor.symbol.own or not spelled(name).latex.startswith(r"\text"):
        return latex_mathml(factor_latex(factor))
    base = f"<mtext>{escape(name)}</mtext>"
    return f"<msup>{base}{latex_mathml(_TRANSPOSE)}</msup>" if factor.transposed else base


@lru_cache(maxsize=1024)  # the terms of a page are made of few factors
def latex_mathml(latex: str) -> str:
    """One symbol with its scripts, written in LaTeX, as presentation MathML; what is not known stands as text.

    Letters, digits, ``_``, ``^``, groups, fonts (``\\\\mathrm{L0H1}``) and Greek letters are read.

    >>> print(latex_mathml(r"A^{\\mathrm{L0H1}}"))
    <msup><mi>A</mi><mi>L0H1</mi></msup>
    """
    return _row(_items(_Reader(latex)))


class _Reader:
    """The tokens of a formula, one ahead."""

    def __init__(self, latex: str) -> None:
        self._tokens = [m for m in _TOKEN.finditer(latex) if not m[5]]
        self._at = 0

    @property
    def ahead(self) -> re.Match[str] | None:
        """The next token."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def take(self) -> re.Match[str]:
        """The next token, taken."""
        self._at += 1
        return self._tokens[self._at - 1]

    def raw_group(self) -> str:
        """What stands between the braces that come next, as it is written."""
        depth, found = 0, ""
        while self.ahead is not None:
            token = self.take()[0]
            depth += {"{": 1, "}": -1}.get(token, 0)
            if depth == 0:
                return found + (token if token != "}" else "")
            found += "" if token == "{" and depth == 1 else token
        return found


def _items(reader: _Reader, inside: bool = False) -> list[str]:
    """Elements up to the end, or to the brace that closes; scripts go to the element before them."""
    found: list[str] = []
    while reader.ahead is not None:
        if reader.ahead[3] == "}":
            reader.take()
            if inside:
                break
            continue
        found.append(_scripted(_atom(reader), reader))
    return found


def _scripted(base: str, reader: _Reader) -> str:
    """A base with the subscript and the superscript that follow it."""
    scripts: dict[str, str] = {}
    while reader.ahead is not None and reader.ahead[3] in ("_", "^") and reader.ahead[3] not in scripts:
        mark = reader.take()[3]
        scripts[mark] = _atom(reader) if reader.ahead is not None else "<mrow/>"
    base = base or "<mrow/>"
    if len(scripts) == 2:
        return f"<msubsup>{base}{scripts['_']}{scripts['^']}</msubsup>"
    if scripts:
        tag = "msub" if "_" in scripts else "msup"
        return f"<{tag}>{base}{next(iter(scripts.values()))}</{tag}>"
    return base


def _atom(reader: _Reader) -> str:
    token = reader.take()
    if token[3] == "{":
        return _row(_items(reader, inside=True))
    if token[3] in ("_", "^"):
        return _scripted("<mrow/>", _back(reader))
    if token[4]:
        return f"<mn>{token[4]}</mn>"
    if token[2]:
        return _GAP if token[2] in _SPACES else f"<mtext>{escape(token[2])}</mtext>"
    if token[1]:
        return _command(token[1], reader)
    letter = escape(token[0])
    return f"<mi>{letter}</mi>" if token[0].isalpha() else f"<mo>{letter}</mo>"


def _back(reader: _Reader) -> _Reader:
    reader._at -= 1
    return reader


def _command(name: str, reader: _Reader) -> str:
    if name in _FONTS:
        text = escape(reader.raw_group())
        look = f' class="{_FONTS[name]}"' if _FONTS[name] else ""
        tag = "mn" if text.isdigit() else "mi"
        upright = ' mathvariant="normal"' if tag == "mi" and len(text) == 1 else ""
        return f"<{tag}{look}{upright}>{text}</{tag}>"
    if name in _LETTERS:
        upright = ' mathvariant="normal"' if name[0].isupper() else ""  # as in LaTeX
        return f"<mi{upright}>{_LETTERS[name]}</mi>"
    return f"<mtext>{escape(name)}</mtext>"


def _row(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"<mrow>{''.join(items)}</mrow>"
