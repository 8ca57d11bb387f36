"""A derivation as a file of Lean 4 with Mathlib: each plain claim is a theorem.

The statements are those of :mod:`symcircuits.derivation.printing.coq`, spelled as in Lean and Mathlib: matrices over
a commutative ring ``R``, indexed by finite types, with abbreviations and the recursion as local notations. Sums over
heads are written out, and claims about rotary positions are named as not proved. Proofs multiply out both sides and
compare their sums of words (``claims.lean``, the beginning of every file). The file is written without running Lean
and says so; ``verify --lean`` compiles it if Lean is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from textwrap import wrap

from symcircuits.core.notation import ROW
from symcircuits.derivation.derive import Derivation
from symcircuits.derivation.printing.prose import plain
from symcircuits.derivation.printing.spelling import Spelling
from symcircuits.derivation.printing.statements import Coverage, Writer, statements
from symcircuits.derivation.printing.words import title

__all__ = ["LEAN", "derivation_lean", "lean_coverage", "preamble"]

_PREAMBLE = Path(__file__).with_name("claims.lean")
_WIDTH = 100
_FAST = "\N{NO-BREAK SPACE}"  # a line does not end there
_PLUS, _COMMA = re.compile(r" \+ₒ? "), re.compile(", ")

LEAN = Spelling(
    matrix="Matrix {0} {1} R",
    one="identity",
    transposed="{0}ᵀ",
    times=" * ",
    scaled="({0} • {1})",
    identity="id",
    acts_plus=" +ₒ ",
    after=" ∘ ",
    acts_scaled="(scaled {0} {1})",
    acts_alike="∀ X, {0} X = {1} X",
    numbers_equal="({0} : ℕ) = {1}",
    listed="[{0}].length",
    between=", ",
    elementary="(elementary {0} [{1}])",
)


def lean_coverage(derivation: Derivation) -> Coverage:
    """Which claims are theorems, with their statements, which are notations, and which are neither, and why.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.derivation.derive import derive
    >>> found = lean_coverage(derive(attention_only((1,)), "stream"))
    >>> found.defined["step 3, claim 1"], found.lemmas["step1_2_1"], found.left
    ('stream', 'W_OV_h = (W_O_h * W_V_h)', {})
    """
    return statements(derivation, LEAN)[0]


def preamble() -> str:
    """What stands at the beginning of every file: imports, what acts, and how a claim is proved."""
    return _PREAMBLE.read_text("utf-8")


def derivation_lean(derivation: Derivation) -> str:
    """The derivation as one file for Lean 4 with Mathlib, in the row convention, whatever its notation is.

    It says that it was not compiled. Types, matrices and numbers are variables, abbreviations are local notations; D, C
    and gain are assumed to be symmetric. Each plain claim is a theorem, and Lean is asked what each assumes. A comment
    at the end names every claim that has no theorem, with the reason.

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.derivation.derive import derive
    >>> text = derivation_lean(derive(attention_only((1,)), "logits"))
    >>> print(text[text.index("theorem step4_1_1"):].splitlines()[0])
    theorem step4_1_1 : logits = X1 * W_Uᵀ := by multiply_out
    """
    found, writer = statements(derivation, LEAN)
    lines = [*_filled(f"/-! # {plain(title(derivation), ROW)} -/"), ""]
    lines += [*_variables(writer), "", *_notations(writer)]
    for step in derivation.steps:
        stated = {name: of for name, of in found.lemmas.items() if name.startswith(f"step{step.number}_")}
        lines += ["", f"/-! ### Step {step.number} ({step.kind}) -/"] if stated else []
        for name, statement in stated.items():
            lines += ["", *_theorem(name, statement)]
    lines += ["", *(f"#print axioms {name}" for name in found.lemmas), "", "end Symcircuits"]
    said = f"{len(found.lemmas)} theorems, {len(found.defined)} claims that are notations. Not proved here:"
    lines += ["", f"/- {said}", *(f"   {claim}: {reason}" for claim, reason in found.left.items()), "-/"]
    return preamble() + "\n".join(lines) + "\n"


def _variables(writer: Writer) -> Iterator[str]:
    """The declarations of what the statements are about."""
    yield "variable {R : Type*} [CommRing R]"
    yield from _filled(f"variable {{{' '.join(writer.sizes)} : Type*}}")
    yield from _filled("variable " + " ".join(f"[Fintype{_FAST}{size}]" for size in writer.sizes))
    yield from _filled("variable " + " ".join(f"[DecidableEq{_FAST}{size}]" for size in writer.sizes))
    yield from (f"variable ({name} : {shape})" for name, shape in writer.letters.items())
    if writer.numbers:
        yield from _filled(f"variable ({' '.join(writer.numbers)} : R)")
    yield from (f"variable (symmetric_{name} : {name}ᵀ = {name})" for name in writer.symmetric)
    if writer.symmetric:
        yield from _filled(f"include {' '.join(f'symmetric_{name}' for name in writer.symmetric)}")


def _notations(writer: Writer) -> Iterator[str]:
    """Abbreviations and the recursion: Lean puts what they mean in their place."""
    for name, body in writer.defined.items():
        yield from _laid_out(f'local notation "{name}" =>', [body], "")


def _theorem(name: str, statement: str) -> Iterator[str]:
    """A theorem, in lines."""
    counts, for_all = " : ℕ) = " in statement, statement.startswith("∀")
    sides = statement.split(" = ")
    if not counts and not for_all:
        sides[0] = _bare(sides[0])
    sides = [*sides[:-1], sides[-1] if for_all else _bare(sides[-1])]
    yield from _laid_out(f"theorem {name} :", sides, f" :={_FAST}by {'count_terms' if counts else 'multiply_out'}")


def _laid_out(begin: str, sides: list[str], end: str) -> Iterator[str]:
    """A declaration on a line, or with its sides in lines of their own, one for each summand where they are long."""
    one = f"{begin} {' = '.join(sides)}{end}"
    if len(one) <= _WIDTH:
        yield one.replace(_FAST, " ")
        return
    yield begin
    for side in sides:
        yield from _in_lines(side, end if side is sides[-1] else f"{_FAST}=", "    ")


def _in_lines(text: str, end: str, indent: str) -> Iterator[str]:
    """A side, or a part of one; where it is long, each summand and each term of a list in a line of its own."""
    depths = list(accumulate((c in "([") - (c in ")]") for c in text))
    signs = [(depths[sign.start()], sign) for sign in (_COMMA if text.startswith("([") else _PLUS).finditer(text)]
    outermost = min((depth for depth, _ in signs), default=0)
    if len(indent + text + end) <= _WIDTH or not signs or outermost > len(text) - len(text.lstrip("([")):
        yield from _filled(text + end, indent, indent + "  ")
        return
    begin = 0
    for depth, sign in signs:
        if depth == outermost:
            yield from _in_lines(text[begin : sign.start()], sign[0].rstrip(), indent + "  " * (begin > 0))
            begin = sign.end()
    yield from _in_lines(text[begin:], end, indent + "  ")


def _bare(side: str) -> str:
    """A side without the parentheses around it."""
    depths = list(accumulate((c == "(") - (c == ")") for c in side))
    return side[1:-1] if side.startswith("(") and 0 not in depths[:-1] else side


def _filled(text: str, indent: str = "", further: str = "    ") -> list[str]:
    """A text in lines, cut at spaces."""
    lines = wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_FAST, " ") for line in lines]
