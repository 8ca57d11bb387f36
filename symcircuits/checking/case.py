"""One formula against the terms of an expansion.

Every word is looked up among the terms by its letters and numbered by arithmetic, so the expansion may have any size.
A wrong word is explained by the types, and shown beside the nearest right term.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

from symcircuits.checking.formula import CONVENTIONS, Formula, Letter
from symcircuits.checking.matching import Letters, Match, Matcher, Spelling, multipliers_of_weights, of_tokens_in
from symcircuits.checking.mistakes import Edit, Nearest, mistake_of, nearest, type_fault
from symcircuits.checking.verdict import Found, Texts, Verdict
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import Expansion, Term, expand
from symcircuits.core.notation import ROW, Notation, letter_text, scale_text, word_text
from symcircuits.core.symbols import READERS
from symcircuits.core.terms import readout_notation
from symcircuits.core.text import amount
from symcircuits.core.words import Word, is_multiplier, scalar_order

__all__ = ["Asked", "Case", "is_circuit", "target_of"]

_LISTED: Final = 20
_EXPLAINED: Final = 3
_LONG: Final = 300


class Asked(NamedTuple):
    """The question about a formula, and how the answer is printed."""

    architecture: Architecture
    target: str | None
    convention: str
    part: bool
    notation: Notation
    every: bool = False  # whether the question is for every number of heads, and the architecture is one choice of them


class _Word(NamedTuple):
    """A word of the formula, equal ones added up: ``match`` is the term it is, if it is one."""

    coefficient: int
    scales: tuple[str, ...]
    letters: Letters
    match: Match | None


class Case:
    """A formula and the expansion that it is compared with.

    ``as_read`` is the notation of the formula, ``notation`` that of the right terms in the answer.
    """

    def __init__(self, formula: Formula, asked: Asked) -> None:
        architecture, target, self.convention, self.part, self.notation, _ = asked
        self.as_read = Notation(CONVENTIONS[self.convention], self.notation.symbols)
        sums: dict[tuple[Letters, tuple[str, ...]], int] = {}
        spelling = Spelling(architecture)
        beside: dict[tuple[Letter, tuple[str, ...]], int] = {}
        for word in formula.words:
            if len(word.letters) == 1 and word.letters[0].glyph == "alibi":  # it is not part of any path
                alone = word.letters[0], word.scales
                beside[alone] = beside.get(alone, 0) + word.coefficient
                continue
            key = spelling.fuse(word.letters), tuple(sorted(word.scales, key=scalar_order))
            sums[key] = sums.get(key, 0) + word.coefficient
        self.circuit = is_circuit([letters for letters, _ in sums], architecture)
        self.named = formula.target is not None
        wanted = target if target is not None else formula.target
        if wanted is None:
            wanted = target_of([letters for letters, _ in sums], architecture, self.circuit)
            if not sums and beside:
                wanted = f"scores:{next(iter(beside))[0].label}"
        self.beside = [(letter, scales, n) for (letter, scales), n in beside.items() if n]
        self.expansion: Expansion = expand(architecture, wanted)
        readout_notation(self.expansion.readout, self.notation)  # an error where a name is already used here
        self.matcher = Matcher(self.expansion)
        self._numbers: dict[str, int] = {}
        added = _added_up([_Word(c, s, ls, self.match(ls)) for (ls, s), c in sums.items()])
        self.words = [w for w in added if w.coefficient]
        self.cancelled = [w for w in added if not w.coefficient]
        self.spelling = spelling
        self.notes = ["some terms cancel"] if self.cancelled else []
        self.wrong: tuple[Letters, Letters] | None = None  # the first wrong product, and the right one
        self.unscaled = False  # whether scores were written without their scale
        self.other = formula.target if formula.target not in (None, self.expansion.target) else None
        if self.other is not None:
            self.notes.append(f"the left-hand side is {self.other}")

    def match(self, letters: Letters) -> Match | None:
        """The term that a word is or, for a circuit, the term that it belongs to."""
        if self.circuit:
            return self.matcher.circuit(letters)
        term = self.matcher.term(letters)
        return Match(term) if term else None

    def number(self, term: Term) -> int:
        """The number of a term, found once."""
        label = term.label  # hashing a whole term takes longer
        if label not in self._numbers:
            self._numbers[label] = self.expansion.index(term)
        return self._numbers[label]

    def text(self, letters: Letters, scales: Sequence[str] = ()) -> str:
        """A word as it is written in the convention of the formula."""
        front = "".join(f"{scale_text(s, self.as_read)} * " for s in scales)
        return front + (" @ ".join(letter_text(*f, self.as_read) for f in letters) or "Id")

    def term_text(self, term: Term) -> str:
        """A term in the notation of the answer, with its scale if the formula writes one."""
        if self.notation == self.as_read:
            return self.text(self.matcher.term_letters(term), self._own_scales(term))
        return word_text(Word(term.word.factors, self._own_scales(term)), self.notation)

    @property
    def scaled(self) -> bool:
        """Whether any score scale is written."""
        return any(not is_multiplier(s) for w in self.words for s in w.scales)

    # ------------------------------------------------------------------------------------------- the verdict
    def verdict(self) -> Verdict:
        """The first fault, or that the formula is right."""
        wrong = [w for w in self.words if w.match is None]
        if wrong:
            return self._wrong_words(wrong)
        self._note_forms()
        if self.beside and not self.words and self._beside_fault() is None:
            return self._make(f"this is what ALiBi adds to {self.expansion.target}; it is not part of any path.")
        faults = (
            self._beside_fault,
            self._scale_fault,
            self._number_fault,
            self._left_fault,
            self._sizes_fault,
            self._missing_fault,
        )
        for fault in faults:
            found = fault()
            if found is not None:  # a wrong verdict is false
                return found
        return self._right()

    def _make(self, message: str, mistake: str | None = None, **more: Any) -> Verdict:
        numbers: dict[int, Found] = {}
        for word in self.words:
            if word.match is not None:
                term, i = word.match.term, self.number(word.match.term)
                text = self.text(word.letters, word.scales) if self.circuit else self.term_text(term)
                numbers[i] = Found(i, term.label, term.composition, text)
        start = "Right" if mistake is None else f"Wrong ({mistake})"
        return Verdict(
            mistake is None, self.expansion.target, tuple(numbers[i] for i in sorted(numbers)), mistake,
            f"{start}: {message}", notes=tuple(self.notes), circuit=self.circuit, count=self.expansion.count,
            architecture=str(self.expansion.architecture), convention=self.convention, notation=self.notation,
            **more,
        )  # fmt: skip

    def _wrong_words(self, wrong: list[_Word]) -> Verdict:
        explained = [(w, nearest(self.matcher, w.letters, self.circuit)) for w in wrong[:_EXPLAINED]]
        sentences = [self._why(w, found) for w, found in explained]
        first, meant = explained[0]
        self.wrong = first.letters, meant.letters if meant else ()
        extra = Texts(len(wrong), tuple(self.text(w.letters, w.scales) for w in wrong[:_LISTED]))
        shown = None if meant is None else self._nearest_text(meant)
        missing = self._missing() if self._whole() else Texts()
        if len(wrong) > _EXPLAINED:
            n = len(wrong) - _EXPLAINED
            sentences.append(f"{amount(n, 'more product')} {'is not a term' if n == 1 else 'are not terms'} either.")
        mistake = mistake_of(self.matcher, first.letters, meant)
        if self._whole() and not missing.count and len(wrong) > 1:
            mistake = "extra-terms"  # all terms are there, and more
        return self._make(" ".join(sentences), mistake, nearest=shown, extra=extra, missing=missing)

    def _nearest_text(self, meant: Nearest) -> str:
        """The nearest right term; in the formula's own spelling where the answer is in the formula's notation."""
        if self.circuit or self.notation == self.as_read:
            return self.text(meant.letters, self._own_scales(meant.term, meant.letters))
        return self.term_text(meant.term)

    def _own_scales(self, term: Term, letters: Letters = ()) -> tuple[str, ...]:
        """The scalars of a term: its scale if any is written, and its multipliers.

        Those of a circuit are the ones that its own ``letters`` bring; none if the formula writes no multipliers.
        """
        scales = tuple(s for s in term.word.scales if self.scaled and not is_multiplier(s))
        if not (self.circuit and letters):
            return scales + tuple(s for s in term.word.scales if is_multiplier(s))
        if not any(is_multiplier(s) for w in self.words for s in w.scales):
            return scales
        return scales + multipliers_of_weights(letters, self.expansion.architecture)

    def _why(self, word: _Word, found: Nearest | None) -> str:
        what = "not the circuit of a term" if self.circuit else "not a term"
        said = [f"{_cut(self.text(word.letters, word.scales))} is {what} of {self.expansion.target}."]
        mistake = mistake_of(self.matcher, word.letters, found)
        if mistake == "position-in-ov":
            said.append("Here positions enter only queries and keys: no W_V reads them, and no logit has them.")
        elif mistake == "extra-terms":
            said.append("The model has no such source.")
        elif mistake == "bias-per-head":
            said.append("A bias is a separate source: b_V enters once, with its head's pattern; b_O once per layer.")
        if found is not None:
            said.append(f"The nearest is term {self.number(found.term):,}, {found.term.label}: "
                        + "; ".join(self._change(e) for e in found.edits[:6]) + ".")  # fmt: skip
        said += self._other_order(word.letters)
        fault = type_fault(self.expansion.architecture, word.letters, (), self.circuit)
        if fault and word.letters:
            said.append(("Types: " if self.as_read == ROW else "Types (in the paper's convention): ") + fault)
        return " ".join(said)

    def _other_order(self, letters: Letters) -> list[str]:
        """The right order, where W_V and W_O are in the order of the other convention."""
        for pair in pairwise(letters):
            if {f.glyph for f in pair} == {"W_O", "W_V"} and len(self.spelling.fuse(pair[::-1])) == 1:
                return [f"{self.text(pair)} is the order in the other convention; here it is {self.text(pair[::-1])}."]
        return []

    def _change(self, edit: Edit) -> str:
        given = letter_text(*edit.given, self.as_read) if edit.given else ""
        right = letter_text(*edit.right, self.as_read) if edit.right else ""
        return {
            "missing": f"{right} is missing", "extra": f"{given} is extra",
            "order": "the factors are in another order", "whole": "the whole product is transposed",
            "sides": "the patterns of the query side and of the key side are swapped",
        }.get(edit.kind, f"{given} should be {right}")  # fmt: skip

    def _note_forms(self) -> None:
        matches = [w.match for w in self.words if w.match]
        self.notes += dict.fromkeys(f"the circuit is written {m.note}" for m in matches if m.note)

    def _scale_fault(self) -> Verdict | None:
        label = self.expansion.readout.scale
        if not self.scaled and label and not self.circuit:
            self.unscaled = True
            self.notes.append("no score scale is written, so these are read as unscaled scores; "
                              f"the model's have {scale_text(label, self.as_read)}")  # fmt: skip
        wanted = [(w, self._own_scales(w.match.term, w.letters)) for w in self.words if w.match]
        bad = [w for w, scales in wanted if w.scales != scales]
        if not bad:
            return None
        first, right = next((w, scales) for w, scales in wanted if w.scales != scales)
        seen = " * ".join(scale_text(s, self.as_read) for s in first.scales[:6]) or "no scale"
        if [s for s in first.scales if is_multiplier(s)] != [s for s in right if is_multiplier(s)]:
            rule = f"this term has {' * '.join(scale_text(s, self.as_read) for s in right) or 'none'}"
        else:
            rule = f"every term has {scale_text(label, self.as_read)}, once" if label else "no term has a scale"
        self.wrong = first.letters, ()
        message = f"{self.text(first.letters)} has {seen} in front; in {self.expansion.target} {rule}."
        shown = self.text(first.letters, right)
        return self._make(message, "scale", nearest=shown, extra=_texts(self, bad))

    def _beside_fault(self) -> Verdict | None:
        """The fault, unless what ALiBi adds is added to the scores of its own head, once, after they are scaled."""
        head = self.expansion.readout.head
        for letter, scales, n in self.beside:
            text = self.text((letter,), scales)
            self.wrong = (letter,), ()
            if head is None:
                return self._make(f"{text} is added to scores, not to {self.expansion.target}.", "extra-terms")
            if letter.label != head.label:
                return self._make(f"{text} is added to the scores of {letter.label}, not of {head}.", "wrong-head")
            if scales:
                scale = " * ".join(scale_text(s, self.as_read) for s in scales)
                return self._make(f"{letter.text} is multiplied by {scale}, but it is added after scaling.", "scale")
            if n != 1:
                return self._make(f"{text} occurs {n:,} times, not once.", "extra-terms")
        self.wrong = None
        if self.beside and self.words:
            self.notes.append("the formula also has what ALiBi adds, which is not part of any path")
        return None

    def _number_fault(self) -> Verdict | None:
        bad = [w for w in self.words if w.coefficient != 1]
        if not bad:
            return None
        first = bad[0]
        assert first.match is not None
        self.wrong = first.letters, ()
        mistake = "bias-per-head" if self._per_head(first) else "extra-terms"
        why = " It enters once, not once per head." if mistake == "bias-per-head" else ""
        message = f"{self.text(first.letters)} occurs {first.coefficient:,} times, not once.{why}"
        doubled = [w for w in bad if w.coefficient > 1]
        extra = [w for w in bad if w.coefficient < 0]
        return self._make(message, mistake, doubled=_texts(self, doubled), extra=_texts(self, extra),
                          missing=self._missing() if self._whole() else Texts())  # fmt: skip

    def _left_fault(self) -> Verdict | None:
        """The fault of a left-hand side: it names another target, or all of the target, but only weights follow."""
        if self.other is not None:
            both = self.other[:6] == self.expansion.target[:6] == "scores"
            message = f"the left-hand side is {self.other}, but these are terms of {self.expansion.target}."
            return self._make(message, "wrong-head" if both else "unknown")
        if not (self.circuit and self.named and self.words):
            return None
        terms = [w.match.term for w in self.words if w.match]
        message = (
            f"the left-hand side names all of {self.expansion.target}, {amount(self.expansion.count, 'term')} with "
            "their tokens and attention patterns, but the right-hand side has only weights: "
            f"{'the circuit' if len(terms) == 1 else 'the circuits'} of {amount(len(terms), 'term')}. "
            "Write the terms, with X0 and A[...], or leave out the left-hand side."
        )
        return self._make(message, "dropped-factor", nearest=self.term_text(terms[0]), missing=self._missing())

    def _sizes_fault(self) -> Verdict | None:
        """The fault where words are added, or cancel, whose rows and columns have different meanings."""
        if len(self.words) + len(self.cancelled) < 2 or not self.words:
            return None
        first, sizes = self.words[0], self.spelling.sizes
        bad = [w for w in self.cancelled if not w.match and sizes(w.letters) != sizes(first.letters)]
        ways = first.match.forms if first.match else frozenset()
        for word in [w for w in (*self.words, *self.cancelled) if w.match and self.circuit]:
            common = ways & (word.match.forms if word.match else frozenset())
            bad += [] if common else [word]
            ways = common or ways
        if not bad:
            return None
        self.wrong = bad[0].letters, ()
        message = (
            f"{self.text(bad[0].letters)} cannot be added to {self.text(first.letters)}: its rows and columns mean "
            "other things (is it transposed, or are the matrices at its ends missing?)."
        )
        return self._make(message, "transpose", extra=_texts(self, bad))

    def _per_head(self, word: _Word) -> bool:
        """Whether a bias, or the position, was counted once per head of a layer."""
        assert word.match is not None
        source = word.match.term.paths[-1].source if word.match.term.order == 0 else word.match.term.paths[0].source
        heads = self.expansion.architecture.heads
        position = source.name == "pos" and word.match.term.order == 0 and word.coefficient in heads
        return word.coefficient > 1 and (source.is_bias or position)

    def _whole(self) -> bool:
        return not self.circuit and not self.part and (self.named or len(self.words) > 1)

    def _missing(self) -> Texts:
        """The missing terms: their number, and the first of them, without listing the others."""
        here = {self.number(w.match.term) for w in self.words if w.match}
        count = self.expansion.count - len(here)
        gaps = (i for i in range(self.expansion.count) if i not in here)
        return Texts(count, tuple(self.term_text(self.expansion[i]) for i in islice(gaps, min(_LISTED, count))))

    def _missing_fault(self) -> Verdict | None:
        missing = self._missing() if self._whole() else Texts()
        if not missing.count and self.words:
            return None
        n, target = self.expansion.count, self.expansion.target
        are = "is" if missing.count == 1 else "are"
        message = f"these are terms of {target}, but {missing.count:,} of its {amount(n, 'term')} {are} missing."
        if not self.words:
            message, missing = f"all terms cancel; {target} has {amount(n, 'term')}.", self._missing()
        return self._make(message, "missing-terms", missing=missing)

    def _right(self) -> Verdict:
        n, target, terms = self.expansion.count, self.expansion.target, [w.match.term for w in self.words if w.match]
        if len(terms) == 1:
            term, what = terms[0], "the circuit of term" if self.circuit else "term"
            return self._make(f"this is {what} {self.number(term):,} of {n:,} (counted from 0) of {target}: "
                              f"{term.label}, {term.composition}.")  # fmt: skip
        if self.circuit:
            return self._make(f"these are the circuits of {len(terms):,} of the {amount(n, 'term')} of {target}.")
        if len(terms) < n:
            return self._make(f"these are {len(terms):,} of the {amount(n, 'term')} of {target}, each once.")
        return self._make(f"these are all {amount(n, 'term')} of {target}, each once.")


def _added_up(words: list[_Word]) -> list[_Word]:
    """The words, with those that spell the same term differently as one word."""
    found: dict[tuple[object, ...], _Word] = {}
    for word in words:
        same = (word.letters,) if word.match is None else (word.match.term.label, word.match.forms)
        key = *same, word.scales
        there = found.get(key)
        found[key] = word if there is None else there._replace(coefficient=there.coefficient + word.coefficient)
    return list(found.values())


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else text[:_LONG] + " ..."


def _texts(case: Case, words: list[_Word]) -> Texts:
    times = [f"{w.coefficient} * " if w.coefficient != 1 else "" for w in words[:_LISTED]]
    texts = (t + case.text(w.letters, w.scales) for t, w in zip(times, words, strict=False))
    return Texts(len(words), tuple(texts))


def is_circuit(words: Sequence[Letters], architecture: Architecture) -> bool:
    """Whether these are products of weights only."""
    of_tokens = of_tokens_in(architecture)
    if any(f.glyph in of_tokens for letters in words for f in letters):
        return False
    glyphs = {f.glyph for letters in words for f in letters}
    return "W_E" in glyphs or "P" not in glyphs


def target_of(words: Sequence[Letters], architecture: Architecture, circuit: bool) -> str:
    """The target of a formula: scores where a query meets a key, else the logits or the stream."""
    read = [f.label for letters in words for f in letters if f.glyph in READERS]
    own = [label for label in read if "G" not in label]  # the keys of a group do not say whose scores
    own += [str(h) for h in architecture.all_heads if architecture.key_value(h) in read]
    if read and own:
        return f"scores:{own[0]}"
    probes = {r.name for r in architecture.readings}
    for f in (f for letters in words for f in letters):
        if f.glyph in probes:
            return f"readout:{f.glyph}"
    ends = circuit or any(f.glyph in ("W_U", "b_U") for letters in words for f in letters)
    return architecture.end if ends else "stream"
