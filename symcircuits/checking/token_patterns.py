"""The tokens of text notation and LaTeX as regular expressions, tried in the order of the scanner."""

from __future__ import annotations

import re
from typing import Final

from symcircuits.checking.displays import ENVIRONMENTS
from symcircuits.core.symbols import ANY_OWNER

__all__ = [
    "ACCENTED",
    "ANGLE",
    "BARS",
    "BEGIN",
    "BIGPROD",
    "BIGSUM",
    "CLOSE",
    "COLOURED",
    "DOT_T",
    "END",
    "ENDING",
    "FACED",
    "FRAC",
    "FUNCTIONS",
    "KIND",
    "LATEX_NAME",
    "MAX_DEPTH",
    "NUMBER",
    "OPEN",
    "OPEN_BRACE",
    "OPERATORS",
    "PROSE",
    "REFUSED",
    "ROW",
    "SCRIPT",
    "SKIP",
    "SLOPE",
    "SQRT",
    "STRING",
    "SUBSCRIPTED",
    "TEXT_NAME",
]

_WORDS: Final = r"[^{}]*" + r"(?:\{[^{}]*" * 4 + r"\}[^{}]*)*" * 4  # nested braces, as in names made of words
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
SKIP: Final = re.compile(
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
BEGIN: Final = re.compile(rf"\\begin\{{{ENVIRONMENTS}\*?\}}(?:\[[^\]]*\])?(?:\{{\d+\}})?|\$\$|\\\[|\\\(")
END: Final = re.compile(rf"\\end\{{{ENVIRONMENTS}\*?\}}|\\\]|\\\)")
ROW: Final = re.compile(r"\\\\\*?(?:\[[^\[\]]{0,12}\])?|\\newline(?![A-Za-z])|\\cr(?![A-Za-z])")
PROSE: Final = re.compile(rf"\\(?:text|textrm|textbf|textit|mbox|intertext|shortintertext)\*?\{{({_WORDS})\}}")
OPEN_BRACE: Final = re.compile(r"\\(?:underbrace|overbrace|underline|boxed|ensuremath|mathop|mathbin|mathrel)\s*\{|\{")
COLOURED: Final = re.compile(r"\\(?:textcolor\{[^{}]*\}|ensuremath|mathopen|mathclose)\s*\{")
OPEN: Final = re.compile(r"\\(?:left|[bB]igg?l?)\s*(?:\(|\[|\\\{|\\lbrack|\\lparen)|\(")
ANGLE: Final = re.compile(r"(?:\\(?:left|[bB]igg?l?)\s*)?\\langle(?![A-Za-z])")  # an inner product
CLOSE: Final = re.compile(r"\\(?:right|[bB]igg?r?)\s*(?:\)|\]|\\\}|\\rbrack|\\rparen|\\rangle)|\\rangle(?![A-Za-z])|\)")
BARS: Final = re.compile(r"(?:\\(?:left|right|[bB]igg?[lr]?)\s*)?(?:\\(?:[lr]?Vert(?![A-Za-z])|\|)|\|\|?|‖)")
KIND: Final = re.compile(r"_(?:F(?!\w)|\{\s*(?:F|\\(?:mathrm|text)\{F\})\s*\})")  # of a norm
OPERATORS: Final = (
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
DOT_T: Final = re.compile(r"[^\S\n]*(?:\.[^\S\n]*(?:T|mT|t\(\)|transpose\(\))(?!\w)|'|⊤|ᵀ)")
NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
STRING: Final = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
BIGSUM: Final = re.compile(r"\\sum(?![A-Za-z])(?:\\limits|\\nolimits)?|[Σ∑]|\bsum(?=_|\[)")
BIGPROD: Final = re.compile(r"\\prod(?![A-Za-z])(?:\\limits|\\nolimits)?|∏")
SQRT: Final = re.compile(r"\\sqrt(?![A-Za-z])|√")
FRAC: Final = re.compile(r"\\[dt]?frac(?![A-Za-z])")
_MODEL: Final = r"(?:model|self|m|net|transformer|tl_model|hooked)\."
TEXT_NAME: Final = re.compile(
    rf"(?:{_MODEL})?blocks\.(\d+)\.\w+\.(W_\w+|b_\w+|w_\w+)|{_MODEL}(W_\w+|b_\w+|w_\w+)"
    r"|(?:unembed|embed|pos_embed)\.(W_\w+|b_\w+)|([^\W\d]\w*)"
)
LATEX_NAME: Final = re.compile(
    rf"R_\{{j-i\}}|{_KNOWN_WORDS}|(?P<owned>[A-Za-z]\w*?_(?:{ANY_OWNER}))(?![A-Za-z])|[A-Za-z]|\\(?:{'|'.join(_LETTERS)})(?![A-Za-z])|[α-ωΑ-Ω]"
)
SUBSCRIPTED: Final = re.compile(r"([xXqkvrAeSzhoRaHN])_([a-z]{1,2}|\d)")  # of names in text; others keep theirs
FACED: Final = re.compile(
    rf"{_FACE}\s*(?:\{{\s*((?:\\(?:{'|'.join(_LETTERS)})|[^{{}}\\])+)((?:_\{{[^{{}}]*\}})?)\s*\}}|([A-Za-z0-9]))"
)
ACCENTED: Final = re.compile(
    rf"{_ACCENT}\s*(?:\{{\s*([A-Za-z]|\\[A-Za-z]+)((?:_\w|_\{{[^{{}}]*\}})?)\s*\}}|([A-Za-z]))"
)
FUNCTIONS: Final = frozenset({
    "softmax", "diag", "norm", "sqrt", "einsum", "FactoredMatrix", "LN", "RMSNorm", "LayerNorm", "Attn", "MLP", "attn",
    "sigma", "h", "head", "T", "logits", "stream", "scores", "rms", "std", "transpose", "f", "g", "F",
})  # fmt: skip
REFUSED: Final = (
    (re.compile(r"\\(?:c?dots|ldots)|\.\.\.|…"), "dots cannot be read; write all of the terms"),
    (re.compile(r"\^"), "a power or superscript cannot be read here; for a transpose write ^{T} or .T"),
    (re.compile(r"_"), "a subscript cannot be read here"),
    (re.compile(r"\."), "only .T may follow a symbol"),
    (re.compile(r"[\[\]]"), "a label in brackets must follow a symbol directly, e.g. W_OV[L0H1]"),
    (re.compile(r"\\[A-Za-z]+|\\."), "this LaTeX command cannot be read"),
)
ENDING: Final = frozenset({"SIGN", "EQ", "ROW", "LINE", "COMMA", "LET"})
SCRIPT: Final = 1_000  # characters of a script or label
MAX_DEPTH: Final = 10_000  # nested brackets
_BAR: Final = r"(?:\\left\s*|\\right\s*)?(?:\||\\[lr]?vert\b|\\mid\b)"
SLOPE: Final = re.compile(
    rf"m(?:_\{{?(\w+)\}}?|\^\{{?\(?(\w+)\)?\}}?)?\s*(?:\\cdot|\\,|\*)?\s*{_BAR}\s*([a-z])\s*-\s*([a-z])\s*{_BAR}"
)
