"""Judges a claim: about the model, equal to another side, or by itself a term, a circuit, or what a head adds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from symcircuits.checking.case import Asked, Case
from symcircuits.checking.claims import Claim
from symcircuits.checking.comparing import (
    INVISIBLE,
    NO_ALIBI,
    NO_NORMS,
    ROWS_SUM,
    UNSCALED,
    Difference,
    compared,
    place_of,
    rows_summed,
)
from symcircuits.checking.finishing import heads_of
from symcircuits.checking.formula import CONVENTIONS, Formula, Letter, RawFactor, RawWord
from symcircuits.checking.judged_numbers import JudgedNumbers
from symcircuits.checking.labels import Finding
from symcircuits.checking.matching import Letters, Matcher, transpose
from symcircuits.checking.meaning import Meaning
from symcircuits.checking.mistakes import Counterpart, Edit, counterpart, mistake_between, nearest_terms
from symcircuits.checking.values import Chain, Value, Word
from symcircuits.checking.verdict import Outcome, Texts, Verdict
from symcircuits.core.architecture import Architecture
from symcircuits.core.expansion import expand
from symcircuits.core.notation import Notation, letter_text, scale_text
from symcircuits.core.symbols import READERS, labelled_by
from symcircuits.core.text import amount

__all__ = ["judged"]

_LISTED: Final = 20
_NORMED: Final = (*labelled_by("norm"), "C")  # what norms add to a product
_NORM_WORD: Final = r"\b(?:norms?|layer-?norms?|LN|RMS\w*)\b"
_LEFT_OUT: Final = r"\b(?:ignor|neglect|omit|without|freez|frozen|fold|left out|leav|drop)\w*\b"
_SAID_OF_NORMS: Final = re.compile(rf"(?i){_LEFT_OUT}[^\n.]{{0,30}}{_NORM_WORD}|{_NORM_WORD}[^\n.]{{0,30}}{_LEFT_OUT}")
_SLIP_OF_HEADS: Final = (
    "the paper prints A_q^T x W y A_k, which contradicts its own definition of A, whose rows are the destinations: it "
    "is A_q x W y^T A_k^T"
)
_SLIP_OF_TOKENS: Final = (
    "the paper prints t^T W_E^T W_QK W_E t, where its t has a row for each token: then it is t W_E^T W_QK W_E t^T"
)
_SEARCHED: Final = 5_000  # terms looked through one by one


def judged(claim: Claim, meaning: Meaning, asked: Asked) -> Outcome:
    """The verdict on one claim."""
    judge = _Judge(claim, meaning, asked)
    if claim.kind == "count":
        return judge.counted()
    found = judge.equal() if claim.kind == "equal" else judge.target() if claim.kind == "target" else judge.bare()
    if slip := judge.slip():
        found = found._replace(verdict=replace(found.verdict, notes=(*found.verdict.notes, slip)))
    if claim.findings:
        return judge.found(claim.findings[0], found)
    if found.right and meaning.noted.unscaled:  # scores inside a softmax
        where = tuple(dict.fromkeys((*found.verdict.where, UNSCALED)))
        return found._replace(verdict=replace(found.verdict, where=where))
    return found


@lru_cache(maxsize=4)
def _leaves_norms_out(source: str) -> bool:
    """Whether a text says that norms are left out; cached, because every line of it may ask."""
    return _SAID_OF_NORMS.search(source) is not None


class _Judge(JudgedNumbers):
    def __init__(self, claim: Claim, meaning: Meaning, asked: Asked) -> None:
        self.claim, self.meaning, self.asked = claim, meaning, asked
        self.words = claim.found.words
        self.spelling = meaning.sizes.spelling
        self.as_read = Notation(CONVENTIONS[asked.convention], asked.notation.symbols)

    def slip(self) -> str:
        """A remark on a formula that the paper prints differently from its own definitions; else empty."""
        if len(self.words) != 1:
            return ""
        letters = self.spelling.unfuse(self.words[0].letters, ("X0",))
        flips = [f.transposed for f in letters]
        glyphs = [f.glyph for f in letters]
        if self.claim.generic and glyphs[:1] + glyphs[-1:] == ["A", "A"] and len(letters) == 5:
            return _SLIP_OF_HEADS if [flips[i] for i in (0, 1, 3, 4)] == [True, False, False, False] else ""
        letters = self.spelling.fuse(letters[1:-1]) if glyphs[:1] + glyphs[-1:] == ["t", "t"] else ()
        if [f.glyph for f in letters] != ["W_E", "W_QK", "W_E"]:
            return ""
        as_printed = flips[0] and not flips[-1]
        columns = self.meaning.reading.columns and not flips[0] and flips[-1]
        right_way = letters[0].transposed and not letters[-1].transposed
        return _SLIP_OF_TOKENS if right_way and (as_printed or columns) else ""

    # ----------------------------------------------------------------------------------------- three kinds
    def target(self) -> Outcome:
        """About the model: all terms, each once."""
        claim, target = self.claim, self.claim.target or ""
        circuit = claim.own == "C_QK" and not self.of_tokens
        case = Case(Formula(self.words, None if circuit else target), self.asked)
        verdict = case.verdict()
        if case.unscaled and verdict.right:
            verdict = replace(verdict, where=(*verdict.where, UNSCALED))
        of_scores = self.asked.architecture.positions == "alibi" and target.startswith("scores")
        if verdict.right and of_scores and not case.beside:
            verdict = replace(verdict, where=(*verdict.where, NO_ALIBI))
        if not verdict.right:
            weaker = self.under_hypotheses(case, target, verdict)
            if weaker is not None:
                return weaker
        return self.outcome(case, verdict, claim)

    def equal(self) -> Outcome:
        """Equal to the side before it."""
        assert self.claim.against is not None
        right = self.claim.against.words
        if not self.words and not right:
            return self.right("both sides are the same number.")
        found = compared(self.words, right, self.spelling)
        if found.equal:
            return self.right(f"these are equal, {amount(len(self.words), 'product')} on this side.", found.where)
        return self.different(found, "the other side", right)

    def bare(self) -> Outcome:
        """By itself: a term, a whole, a circuit, a part of one, or what a head or a layer adds."""
        words, claim = self.words, self.claim
        if any(f.letter.glyph == "Y" for w in words for f in w.factors):
            return self.added()
        if claim.own and (named := self.named()) is not None:
            return named
        case = Case(Formula(words, None), self.asked)
        verdict = case.verdict()
        if case.unscaled and verdict.right:
            verdict = replace(verdict, where=(*verdict.where, UNSCALED))
        if verdict.right:
            return Outcome(verdict, claim.at)
        if case.circuit and (claim.own or self.is_virtual):
            fragment = self.fragment(case)
            ends = any(f.letter.glyph in ("W_E", "W_U") for w in words for f in w.factors)
            whole = all(f.letter.glyph in ("W_OV", "W_QK") for w in words for f in w.factors)
            if fragment is not None and (fragment.right or not (whole or (ends and len(words[0].factors) > 2))):
                return fragment
        if claim.own:
            added = self.added()
            if added.right or (added.cost < 10_000 and added.cost <= self.outcome(case, verdict, claim).cost):
                return added
        elif verdict.mistake == "missing-terms" and self.asked.target is None and not case.circuit:
            added = self.added()  # an intermediate stream, or what a head adds
            if added.right:
                return added
        return self.outcome(case, verdict, claim)

    def named(self) -> Outcome | None:
        """A name of queries, keys, values or a pattern, compared with what it names."""
        heads = sorted(heads_of(self.words))[-1:] or list(
            self.asked.architecture.all_heads[:1]
        )  # what it reads is before
        letters = [f.letter for w in self.words for f in w.factors]
        if len(letters) == 1 and letters[0] == Letter("A", letters[0].label) and self.words[0].coefficient == 1:
            return self.right(f"this is the attention pattern of head {letters[0].label}.")
        if not re.fullmatch(r"[qkvzQKVZ](?:_\w)?", self.claim.own) or not heads:
            return None
        head, q = heads[0], self.meaning.quantities
        what, value = {
            "q": ("the queries", q.side(head, 0)), "k": ("the keys", q.side(head, 1)),
            "v": ("the values", q.values(head)), "z": ("the values, averaged by its pattern,", q.averaged(head)),
        }[self.claim.own[0].lower()]  # fmt: skip
        found = compared(self.words, _raw(value), self.spelling)
        if found.equal:
            return self.right(f"these are {what} of head {head}.", found.where)
        return self.different(found, f"{what} of head {head}", _raw(value))

    # -------------------------------------------------------------------------------------------- outcomes
    @property
    def of_tokens(self) -> bool:
        """Whether it contains tokens or patterns."""
        return any("token" in self.meaning.sizes.of(f.letter) for w in self.words for f in w.factors)

    @property
    def is_virtual(self) -> bool:
        """Whether it is a virtual weight, what one head reads of the output of another: two matrices."""
        return all(len(w.factors) == 2 for w in self.words) and len(self.words) == 1

    def outcome(self, case: Case, verdict: Verdict, claim: Claim) -> Outcome:
        """The verdict of a case, with the place of its fault."""
        if verdict.right:
            return Outcome(verdict, claim.at)
        at = None
        if case.wrong is not None:
            at = self.place(*case.wrong)
        elif verdict.mistake == "missing-terms":
            at = self.incomplete(case)
            if at is None:
                at = max((f.at for w in self.words for f in w.factors), default=claim.at)
                at = max(at, claim.at)
        cost = 100 * (verdict.extra.count + verdict.doubled.count) + min(verdict.missing.count, 90)
        return Outcome(verdict, claim.at if at is None else at, cost or 1)

    def place(self, wrong: Letters, right: Letters) -> int | None:
        """The place where a product is wrong; if its letters come from several definitions, where they were joined."""
        found = place_of(self.words, wrong, right, self.spelling)
        if found is None:
            return None
        at, about = found
        source = self.meaning.source
        rows = {source.count("\n", 0, a) for a in about if a < self.claim.at}
        plain = {source.count("\n", 0, p) for p in self.meaning.plain}
        rightly = source.count("\n", 0, at) in plain  # so its use is wrong
        return self.claim.at if len(rows) > 1 or rightly else at

    def incomplete(self, case: Case) -> int | None:
        """For scores that are built in several lines: the line that lacks the missing products, if there is one.

        It has some products of query and key sides, but neither all queries of its keys nor all keys of its queries;
        with the missing products it has.
        """
        expansion = case.expansion
        if not expansion.readout.bilinear or expansion.count > _SEARCHED:
            return None
        source = self.meaning.source
        by_row: dict[int, set[tuple[str, str]]] = {}
        first: dict[int, int] = {}
        for word in self.words:
            term = case.matcher.term(self.spelling.fuse(word.letters))
            places = [f.at for f in word.factors if f.at < self.claim.at]
            if term is None or not places:
                return None
            row = source.count("\n", 0, max(places))
            by_row.setdefault(row, set()).add((term.paths[0].label, term.paths[1].label))
            first[row] = max(first.get(row, 0), *places)
        everything = {(t.paths[0].label, t.paths[1].label) for t in expansion}
        missing = everything - {pair for pairs in by_row.values() for pair in pairs}

        def full(pairs: set[tuple[str, str]]) -> bool:
            return any(all(p in pairs for p in everything if p[side] in {q[side] for q in pairs}) for side in (0, 1))

        found = [row for row, pairs in by_row.items() if not full(pairs) and full(pairs | missing)]
        return first[found[0]] if len(found) == 1 else None

    def text(self, letters: Letters, scales: Sequence[str] = ()) -> str:
        """A word as it is written in the convention of the formula."""
        front = "".join(f"{scale_text(s, self.as_read)} * " for s in scales if s != "?")
        return front + (" @ ".join(self.letter_text(f) for f in letters) or "Id")

    def letter_text(self, letter: Letter) -> str:
        """A letter; a generic letter by its own name."""
        for name, generic in self.claim.generic.items():
            if letter.name == generic.name:
                return name + ".T" * letter.transposed
        return letter_text(*letter, self.as_read)

    def made(self, message: str, mistake: str | None, **more: Any) -> Verdict:
        """A verdict on a claim that is not about an expansion."""
        asked = self.asked
        start = "Right" if mistake is None else f"Wrong ({mistake})"
        return Verdict(
            mistake is None, more.pop("target", "equation"), (), mistake, f"{start}: {message}",
            architecture=str(asked.architecture), convention=asked.convention, notation=asked.notation, **more,
        )  # fmt: skip

    def right(self, message: str, where: tuple[str, ...] = (), target: str = "equation") -> Outcome:
        """Right, possibly under hypotheses."""
        return Outcome(self.made(message, None, where=where, target=target), self.claim.at)

    def found(self, finding: Finding, otherwise: Outcome) -> Outcome:
        """Wrong in itself."""
        verdict = self.made(finding.message + ".", finding.mistake, target=otherwise.verdict.target,
                            nearest=otherwise.verdict.nearest)  # fmt: skip
        return Outcome(verdict, finding.at, 500)

    def different(self, found: Difference, what: str, right: Sequence[RawWord], target: str = "equation") -> Outcome:
        """Wrong: not equal to a known value."""
        missing = [key for key, _ in found.missing]
        extra = [key for key, _ in found.extra]
        texts = Texts(len(missing), tuple(self.text(k[1], k[0]) for k in missing[:_LISTED]))
        too_much = Texts(len(extra), tuple(self.text(k[1], k[0]) for k in extra[:_LISTED]))
        cost = 100 * len(extra) + min(len(missing), 90)
        if not extra:
            end = max((f.at for w in self.words for f in w.factors), default=self.claim.at)
            message = f"{amount(len(missing), 'product')} of {what} {'is' if len(missing) == 1 else 'are'} missing."
            return Outcome(self.made(message, "missing-terms", missing=texts, target=target), end, cost)
        (scales, letters), count = found.extra[0]
        if count > 0 and any(k == (scales, letters) for k in ((s, ls) for (s, ls) in self._keys(right))):
            at = self.place(letters, ())
            mistake = "bias-per-head" if any(f.glyph[:2] == "b_" for f in letters) else "extra-terms"
            message = f"{self.text(letters, scales)} occurs {amount(count, 'time')} too often."
            verdict = self.made(message, mistake, doubled=too_much, missing=texts, target=target)
            return Outcome(verdict, self.claim.at if at is None else at, cost)
        near = counterpart(letters, [k[1] for k in missing] or [k[1] for k in self._keys(right)], self.spelling)
        same = [k for k in missing if k[1] == letters]
        at = self.place(letters, near.letters if near and not same else ())
        if same:
            mistake, nearest = "scale", self.text(same[0][1], same[0][0])
        elif near is None:
            mistake, nearest = "extra-terms" if not missing else "unknown", None
        else:
            mistake, nearest = mistake_between(letters, near, self.spelling), self.text(near.letters)
        message = f"{self.text(letters, scales)} is not part of {what}."
        if nearest:
            message += f" The nearest there is {nearest}."
        verdict = self.made(message, mistake, nearest=nearest, extra=too_much, missing=texts, target=target)
        return Outcome(verdict, self.claim.at if at is None else at, cost)

    def _keys(self, words: Sequence[RawWord]) -> Iterator[tuple[tuple[str, ...], Letters]]:
        for w in words:
            yield w.scales, self.spelling.canonical(self.spelling.fuse(w.letters))

    # ------------------------------------------------------------------------------------------ hypotheses
    def under_hypotheses(self, case: Case, target: str, verdict: Verdict) -> Outcome | None:
        """The verdict where it is right under a hypothesis, which is stated; else None."""
        expansion = case.expansion
        if expansion.count > _SEARCHED or expansion.target != target:
            return None
        if (bare := self.without_norms(target)) is not None:
            return bare
        ones = any(f.letter.glyph == "ones" for w in self.words for f in w.factors)
        if ones and self.asked.architecture.softmax:
            terms = [RawWord(1, t.word.scales, tuple(RawFactor(x, 0) for x in case.matcher.term_letters(t)))
                     for t in expansion]  # fmt: skip
            found = compared(self.words, terms, self.spelling)
            if found.equal:
                return self.right(f"these are all {amount(expansion.count, 'term')} of {target}.", found.where, target)
        if verdict.mistake == "missing-terms" and expansion.readout.bilinear:
            here = {f.number for f in verdict.terms}
            if here and all(expansion[i].softmax_invisible for i in range(expansion.count) if i not in here):
                where = (INVISIBLE, *((UNSCALED,) if case.unscaled else ()))
                return self.right(
                    f"these are the {amount(len(here), 'term')} of {target} that softmax sees.", where, target
                )
        return None

    def without_norms(self, target: str) -> Outcome | None:
        """The verdict where a sum is right for the model without norms and the text says that it leaves them out."""
        architecture = self.asked.architecture
        if not architecture.norm or architecture.qk_norm or len(self.words) < 2:
            return None
        glyphs = {f.letter.glyph for w in self.words for f in w.factors}
        if glyphs & set(_NORMED) or not _leaves_norms_out(self.meaning.source):
            return None
        plain = replace(architecture, norm=None, gains=frozenset(),
                        biases=frozenset(b for b in architecture.biases if b[:3] != "b_N"))  # fmt: skip
        case = Case(Formula(self.words, target), self.asked._replace(architecture=plain))
        verdict = case.verdict()
        if not verdict.right:
            return None
        where = (NO_NORMS, *((UNSCALED,) if case.unscaled else ()))
        return Outcome(replace(verdict, where=where, architecture=str(architecture)), self.claim.at)

    # ------------------------------------------------------------------------------- parts of what is computed
    def fragment(self, case: Case) -> Outcome | None:
        """A part of a circuit: adjacent weights of a term, as written or transposed."""
        if len(self.words) != 1 or abs(self.words[0].coefficient) != 1 or self.words[0].scales:
            return None
        letters = self.spelling.fuse(self.words[0].letters)
        spelled = self.spelling.unfuse(letters)
        best = None
        targets = {case.expansion.target, *(f"scores:{h}" for h in list(heads_of(self.words))[:2])}
        if self.asked.architecture.unembed:
            targets.add("logits")
        for target in sorted(targets):
            matcher = Matcher(expand(self.asked.architecture, target))
            for whole in nearest_terms(matcher, letters):
                weights = self.spelling.unfuse(whole)
                inner = tuple(f for f in weights if "token" not in self.meaning.sizes.of(f))
                for turned in (inner, transpose(inner)):
                    windows = [turned[i : i + len(spelled)] for i in range(len(turned) - len(spelled) + 1)]
                    if turned != inner:  # key and query is another circuit than query and key
                        windows = [w for w in windows if sum(f.glyph in READERS for f in w) < 2]
                    same = self.spelling.canonical(spelled)
                    if any(self.spelling.canonical(w) == same for w in windows) and len(spelled) > 1:
                        return self.right("these weights are adjacent in a term: one reads what the other "
                                          "writes.", (), target)  # fmt: skip
                    if reordered := next((w for w in windows if sorted(w) == sorted(spelled)), None):
                        best = Counterpart(reordered, (Edit("order"),), 0), target
                    for size in (0, 1):
                        more = [inner[i : i + len(spelled) + size] for i in range(len(inner) - len(spelled) - size + 1)]
                        near = counterpart(spelled, [w for w in more if w], self.spelling)
                        if near and (best is None or near.cost < best[0].cost):
                            best = near, target
        if best is None:
            return None
        near, target = best
        mistake = mistake_between(spelled, near, self.spelling)
        if len(letters) == 2 and sorted(spelled) == sorted(near.letters):
            glyphs = {f.glyph for f in letters}
            mistake = "gain-order" if "gain" in glyphs else "layer-order" if glyphs == {"W_OV"} else "factor-order"
        message = f"{self.text(letters)} is not part of a circuit. The nearest is {self.text(near.letters)}."
        at = self.place(letters, near.letters)
        verdict = self.made(message, mistake, nearest=self.text(near.letters), target=target, circuit=True)
        return Outcome(verdict, self.claim.at if at is None else at, near.cost)

    def added(self) -> Outcome:
        """What a head or a layer adds, an intermediate stream, or the part of it that is the same for every token."""
        best: Outcome | None = None
        constant = self.constant()
        if constant is not None:
            return constant
        for name, value in self._quantities():
            right = _raw(value)
            found = compared(self.words, right, self.spelling)
            if found.equal:
                return self.right(f"this is {name}.", found.where, name)
            outcome = self.different(found, name, right, name)
            if len(found.extra) < len(self.words) and (best is None or outcome.cost < best.cost):
                best = outcome
        if best is None:
            return Outcome(self.made("the model does not compute this.", "unknown"), self.claim.at, 10_000)
        return best

    def constant(self) -> Outcome | None:
        """The biases of a layer, which it adds to every token, as one vector."""
        if self.of_tokens or not any(f.letter.glyph[:2] == "b_" for w in self.words for f in w.factors):
            return None
        best: Outcome | None = None
        for layer in range(min(self.asked.architecture.n_layers, 4)):
            words = _raw(self.meaning.quantities.attention(layer))
            fixed = [w for w in words if any(f.letter.glyph == "ones" for f in w.factors)]
            rows = [tuple(f for f in rows_summed(w.letters) if f.glyph != "ones") for w in fixed]
            right = [RawWord(w.coefficient, w.scales, tuple(RawFactor(f, 0) for f in letters))
                     for w, letters in zip(fixed, rows, strict=True)]  # fmt: skip
            for way in (right, [w.T for w in right]):
                found = compared(self.words, way, self.spelling)
                where = (ROWS_SUM,) if any(f.letter.glyph == "A" for w in fixed for f in w.factors) else ()
                if found.equal and right:
                    return self.right(f"this is what layer {layer} adds to every token.", where)
                outcome = self.different(found, f"what layer {layer} adds to every token", way)
                if way and len(found.extra) < len(self.words) and (best is None or outcome.cost < best.cost):
                    best = outcome
        return best

    def _quantities(self) -> Iterator[tuple[str, Value]]:
        arch, q = self.asked.architecture, self.meaning.quantities
        opaque = any(f.letter.glyph == "Y" for w in self.words for f in w.factors)
        stream = [_opaque()] if opaque else None
        heads = heads_of(self.words)
        layers = sorted({h.layer for h in heads}) or list(range(arch.n_layers))
        for head in sorted(heads)[:4]:
            yield f"what head {head} adds", q.head(head, stream)
            if not opaque:
                yield f"the values of head {head}, averaged by its pattern", q.averaged(head)
        for layer in layers[:4]:
            both = q.attention(layer, stream)
            yield f"what the heads of layer {layer} add", both
            if opaque:
                yield f"the stream after layer {layer}", [_opaque(), *both]
        if not opaque:
            for point in sorted({x + 1 for x in layers} | {0})[:4]:
                if _size(arch, point) <= _SEARCHED:
                    yield f"the stream after {amount(point, 'layer')}", q.stream(point)


def _opaque() -> Any:
    return Word(1, (), (Chain((RawFactor(Letter("Y"), 0),)),))


def _size(arch: Architecture, point: int) -> int:
    count = 1
    for heads in arch.heads[:point]:
        count *= 2 * (1 + heads)
    return count


def _raw(value: Value) -> list[RawWord]:
    return [RawWord(int(w.coefficient), w.scales, (w.slots or ())[0].factors) for w in value]
