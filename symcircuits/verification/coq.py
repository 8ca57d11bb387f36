"""The general theorem: proved in Coq for every number of layers and heads, and checked here if Coq is installed.

The proofs are in the repository, in ``derivations/general``. :func:`check_general` copies them to a temporary
folder, compiles them with ``coqc``, and asks Coq what each theorem assumes. Only "Closed under the global
context" (nothing) counts as proved.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from symcircuits.core.shown import Shown
from symcircuits.verification import listing
from symcircuits.verification.coqc import CLOSED, INSTALL, Compiler
from symcircuits.work.files import user_path

__all__ = ["THEOREMS", "GeneralReport", "check_general"]

# Every theorem of derivations/general, in the order of its files: what it says, in words.
THEOREMS = {
    "identity_head_acts": "the identity head leaves every stream as it is",
    "mixed_product": "one head after another is one two-sided map: both sides are multiplied, in the same order",
    "head_in_three_steps": "values, mixing and output together are the pair (A, W_O W_V)",
    "concatenation_of_two": "concatenated results of two heads times their output matrix are a sum",
    "concatenation_is_sum": "the same for any number of heads, of head dimensions that may differ",
    "concatenated_layer_is_sum_of_heads": "an attention layer with concatenation is the sum of its heads",
    "path_acts_by_its_heads": "the virtual head of a path acts as its heads do, one after the other",
    "stream_is_sum_over_paths": "the stream after any layers is the sum over all paths",
    "stream_is_linear": "the stream is linear in what enters it, the patterns held fixed",
    "identity_head_is_the_residual": "the residual is an identity head among the others",
    "logits_are_sum_over_paths": "the logits are the sum over all paths of end-to-end terms",
    "scores_are_double_sum": "scores are a double sum over paths, on the query side and on the key side",
    "scores_from_tokens": "the same from the tokens, with the end-to-end QK circuit of each pair of paths",
    "scores_in_four_families": "scores split into no composition, Q-, K- and QK-composition",
    "path_rows_sum_to_one": "rows of the pattern of a virtual head sum to one where those of its heads do",
    "path_is_causal": "the pattern of a virtual head is causal where those of its heads are",
    "number_of_paths": "the number of paths is the product of 1 + H_l",
    "number_of_paths_of_order": "the number of paths of order k is e_k(H_1, ..., H_L)",
    "number_of_score_terms": "the number of score terms is the square of the number of paths",
    "elementary_uniform": "with H heads in each of L layers e_k is L choose k times H^k",
    "elementary_is_coefficient": "e_k is the coefficient of z^k in the product of 1 + H_l z",
    "elementary_is_sum_over_sets": "e_k is the sum over sets of k layers of the products of their head counts",
    "stream_with_sources": "with sources at any layer the stream is the sum over sources and the paths after them",
    "scores_with_sources": "scores are the double sum over those terms",
    "number_of_terms": "a layer multiplies the number of terms by 1 + H and adds its sources",
    "value_bias_is_source": "a value bias is a source inside its head, which goes through its pattern once",
    "biased_layer_has_sources": "a layer with value biases is a layer with sources",
    "bias_collapses": "where rows sum to one, a bias stays a bias along every path",
    "query_and_key_biases": "biases of queries and keys add three kinds of terms to the scores",
    "norm_folds_into_head": "a frozen norm folds into the head that reads it: A D on the left, W G on the right",
    "centring_and_gain_fold": "centring and then gain are one matrix on the right",
    "norms_fold": "layers with frozen norms are layers of folded heads",
    "normed_stream_is_sum_over_paths": "the stream with frozen norms is the sum over paths of folded heads",
    "normed_logits_are_sum_over_paths": "the final norm stands on the left of every logit term",
    "normed_scores_are_double_sum": "a norm before scores stands outside both paths, its gain at W_QK",
    "norm_commutes_where_scales_agree": "a norm commutes with a pattern that joins tokens of one scale alone",
    "norm_side_matters": "where two scales differ there is a causal pattern with which they do not commute",
    "term_importance_truncates": "run k of the term-importance algorithm holds exactly the terms of order up to k",
    "last_run_is_the_model": "with as many reruns as layers it is the model",
    "ablation_takes_the_terms_through": "ablating a head, patterns kept, takes away all terms of paths through it",
    "remainder_is_sum": "what heads with k heads above them read, taken along these, is the terms above order k",
    "truncation_and_remainder": "the stream is run k of the term-importance algorithm and that",
    "weights_of_order": "numbers multiplied along paths and summed over those of order k are e_k of the layers' sums",
    "truncation_bound": "what truncation leaves is at most their sum for higher orders, times the size of what enters",
    "head_bound": "a head enlarges the largest entry at most by the largest absolute row sum of its W",
    "largest_entry_of_a_path": "along a path these numbers are multiplied",
    "pair_bound": "a score term is at most the size of its query times that of its key, masked or not",
    "spectral_bound": "the trace of a power of a matrix times its transpose bounds what it does to the size of a row",
    "trace_of_the_smaller": "the transpose times the matrix has the same traces",
    "paths_into_add_up": "what a head reads is the sum over all paths into it",
    "suffix_grows": "with one head more a suffix reads what two products more give",
    "beta_bounds_every_path": "a bound for sources and for each head after another bounds what is read of every path",
    "suffix_bounds_every_term": "so it bounds every term that ends in given heads, as the search for the largest does",
    "moments_are_sums_over_paths": "second moments, computed head by head, are sums over all paths into a head",
    "mass_is_the_sum_of_squares": "so they give the sum of the squares of all terms that end in given heads",
    "mass_bounds_every_term": "and that sum bounds every such term, as the search for the largest does",
    "paths_are_distinct": "no path is listed twice",
    "run_is_sum_of_its_terms": "a run that keeps some heads is the sum of the terms of the paths that take only these",
    "term_is_alternating_sum": "a term is the alternating sum of the runs that keep some of its heads and no others",
    "no_term_without_path": "for heads that are not the heads of a path that alternating sum is zero",
    "terms_are_unique": "any family of matrices that sums to every such run is the terms",
    "logit_term_is_alternating_sum": "a term of the logits is the alternating sum of the logits of these runs",
    "logit_terms_are_unique": "any family of matrices that sums to the logits of every such run is the terms",
    "score_term_is_alternating_sum": "a term of the scores is the alternating sum over a run on each side",
    "score_terms_are_unique": "any family that sums to the scores of every pair of such runs is the terms",
    "listing_has_every_path": "the list that Coq computes has every path, and nothing else",
    "listing_has_no_path_twice": "it has no path twice",
    "listing_is_in_order": "it is in order: by the order of paths, then as in a dictionary",
    "stream_is_sum_over_routes": "the stream of layers of any two-sided maps and sources is a sum over routes",
    "stream_is_sum_over_maps": "a layer of heads is the identity head and its heads",
    "general_layer_is_maps": "a layer with norms, groups, biases and multipliers is such a list of maps and sources",
    "general_stream_is_sum_over_routes": "so the stream of general layers is a sum over routes",
    "turned_scores_of_sums": "scores with a matrix for each pair of tokens are bilinear",
    "only_distance_matters": "between turned queries and keys stands a power that depends on the distance alone",
    "general_scores_are_double_sum": "scores after general layers, turned and with biases, are a double sum",
    "softmax_sees_no_row_constant": "softmax does not see what is added to all scores of a row",
    "bias_keys_give_row_constants": "a term whose key side begins with a bias adds the same to all scores of a row",
    "new_OV": "in a new basis of the stream W_OV is rewritten as its factors are",
    "new_QK": "in a new basis of the stream W_QK is rewritten as its factors are",
    "stream_in_new_basis": "the whole stream is then written in the new basis",
    "logit_terms_unchanged": "no end-to-end matrix of a logit term depends on the basis of the stream",
    "logits_unchanged": "nor do the logits",
    "score_terms_unchanged": "no end-to-end matrix of a score term depends on the basis of the stream",
    "scores_unchanged": "nor do the scores",
    "OV_unchanged_inside": "W_OV does not depend on the basis inside the head",
    "QK_unchanged_inside": "W_QK does not depend on the basis inside the head",
}

# Words with which a file passes without a proof, or which switch a check of Coq off.
_REFUSED = re.compile(
    r"\b(?:Admitted|admit|Axioms?|Parameters?|Conjectures?|Abort|give_up|bypass_check|Declare\s+ML\s+Module|Load"
    r"|(?:Unset|Set)\s+(?:Guard|Positivity|Universe)\s+Checking|type_in_type)\b"
)


_DEFINED = re.compile(r"^(?:Definition|Fixpoint|Record|Structure|Inductive|Variant|Canonical) (\w+)", re.MULTILINE)
_ANSWER = re.compile(r"^@(assumes|states|lists) (\w+)\n(.*?)(?=^@|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class GeneralReport(Shown):
    """Coq's answer on the general theorem.

    ``available`` is False if Coq could not be asked: no Coq, no mathcomp, or no sources; ``reason`` says which, and
    what to do. ``theorems`` maps each theorem to its assumptions, as Coq prints them; ``statements`` to its statement.
    ``faults`` are the faults found, one sentence each. ``ok``: Coq was asked, and every theorem is proved from nothing.
    """

    available: bool
    theorems: dict[str, str] = field(default_factory=dict)
    statements: dict[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    reason: str = ""
    coq: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether Coq was asked and every theorem is proved without axioms."""
        return self.available and not self.faults and self.proved == len(THEOREMS)

    @property
    def proved(self) -> int:
        """How many of the theorems are proved without axioms."""
        return sum(self.theorems.get(name) == CLOSED for name in THEOREMS)

    def record(self) -> str:
        """All statements, as ``statements.txt`` records them."""
        return "\n\n".join([f"Coq {self.coq}", *self.statements.values()]) + "\n"

    def json(self) -> dict[str, Any]:
        """The report as plain data."""
        assumed, stated = self.theorems.get, self.statements.get
        theorems = [
            {"name": name, "words": words, "assumptions": assumed(name), "statement": stated(name)}
            for name, words in THEOREMS.items()
        ]
        definitions = {name: text for name, text in self.statements.items() if name not in THEOREMS}
        return {
            "schema": "symcircuits.general/1", "ok": self.ok, "available": self.available, "reason": self.reason,
            "coq": self.coq, "faults": list(self.faults), "theorems": theorems, "definitions": definitions,
        }  # fmt: skip


def check_general(folder: str | os.PathLike[str] | None = None) -> GeneralReport:
    """Compile the proofs of ``derivations/general`` (or of another folder) and report what each theorem assumes.

    Nothing is written to that folder; it takes about 30 seconds. Raises FileNotFoundError if a given folder has no
    proofs.

    >>> print(check_general().text())  # doctest: +SKIP
    general theorem, for every number of layers and heads, over any commutative ring
    <BLANKLINE>
            theorem                             in words
    proved  identity_head_acts                  the identity head leaves every stream as it is
    ...
    """
    start = time.perf_counter()
    sources = Path(__file__).parents[2] / "derivations" / "general" if folder is None else user_path(folder)
    if not (sources / "_CoqProject").is_file():
        if folder is not None:
            raise FileNotFoundError(f"there are no proofs in {os.fspath(sources)!r}: it has no file _CoqProject")
        return GeneralReport(available=False, reason=(
            "The proofs are not part of the installed package: they are in the repository, in derivations/general."
        ))  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="symcircuits-") as scratch:
        if (compiler := Compiler.found(Path(scratch))) is None:
            return GeneralReport(available=False, reason=f"Coq is not installed; on Debian and Ubuntu: {INSTALL}")
        report = _Proofs(compiler).check(sources)
    return replace(report, seconds=time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class _Proofs:
    """Run the compiler on the proofs and ask it about the theorems."""

    compiler: Compiler

    def check(self, sources: Path) -> GeneralReport:
        coq = self.compiler.version()
        if reason := self.compiler.unusable():
            return GeneralReport(available=False, coq=coq, reason=reason)
        names, faults = _order(sources)
        texts = {name: (sources / name).read_text("utf-8") for name in names if (sources / name).is_file()}
        faults += [fault for name, text in texts.items() for fault in _refused(name, text)]
        if faults:
            return GeneralReport(available=True, coq=coq, faults=tuple(faults))
        for name, text in texts.items():
            if fault := self.compiler.compile(name, text).fault:
                return GeneralReport(available=True, coq=coq, faults=(f"{name} does not compile: {fault}",))
        record = sources / "statements.txt"
        return self._audit(texts, record.read_text("utf-8") if record.is_file() else "")

    def _audit(self, texts: dict[str, str], recorded: str) -> GeneralReport:
        """Ask Coq for the assumptions and the statement of each theorem, and for each definition."""
        definitions = [name for text in texts.values() for name in _DEFINED.findall(text)]
        proofs = [f"pose proof @{name}." for name in THEOREMS]
        script = [
            *(f"@states {name}\nPrint {name}." for name in definitions),
            *(f"@states {name}\nCheck {name}." for name in THEOREMS),
            f"Lemma all_of_them : True. Proof. {' '.join(proofs)} exact I. Qed.",  # asking one by one takes 5 s more
            "@assumes all_of_them\nPrint Assumptions all_of_them.",
            *listing.questions(),
        ]
        answers, fault = self._answers(texts, script)
        closed = answers["assumes"].pop("all_of_them", "") == CLOSED
        if not fault and not closed:  # find out which
            questions = [f"@assumes {name}\nPrint Assumptions {name}." for name in THEOREMS]
            found, fault = self._answers(texts, questions)
            answers["assumes"] = found["assumes"]
        elif not fault:
            answers["assumes"] = dict.fromkeys(THEOREMS, CLOSED)
        faults = [f"a theorem is missing: {fault}"] if fault else []
        faults += [
            f"{name} is not proved from nothing; Coq says: {' '.join(assumed.split())}"
            for name, assumed in answers["assumes"].items() if assumed != CLOSED
        ]  # fmt: skip
        faults += listing.differences(answers["lists"]) if not fault else []
        report = GeneralReport(True, answers["assumes"], answers["states"])
        coq = self.compiler.version()
        if not fault and recorded.startswith(f"Coq {coq.rpartition('.')[0]}"):
            faults += _differences(recorded, report.record())
        return replace(report, coq=coq, faults=tuple(faults))

    def _answers(self, texts: dict[str, str], script: list[str]) -> tuple[dict[str, dict[str, str]], str]:
        """Coq's answers after the marks ``@assumes NAME``, ``@states NAME``, ``@lists NAME``; and the faults found."""
        imports = [
            "From mathcomp Require Import all_ssreflect all_algebra.",
            f"From Circuits Require Import {' '.join(Path(name).stem for name in texts)}.",
            "Unset Printing Implicit Defensive.\nLocal Open Scope ring_scope.",
        ]
        marks = r'Goal True. idtac "\g<0>". exact I. Qed.'
        text = re.sub(r"@(?:assumes|states|lists) \w+", marks, "\n".join(imports + script))
        output, fault, _ = self.compiler.compile("Audit.v", text)
        answers: dict[str, dict[str, str]] = {"assumes": {}, "states": {}, "lists": {}}
        for kind, name, answer in _ANSWER.findall(output):
            answers[kind][name] = re.sub(r" +$", "", answer.partition("\n\nArguments")[0].strip(), flags=re.MULTILINE)
        return answers, fault


def _order(sources: Path) -> tuple[list[str], list[str]]:
    """The files in the order of ``_CoqProject``, and the faults of the list."""
    words = (sources / "_CoqProject").read_text("utf-8").split()
    listed = [word for word in words if word.endswith(".v")]
    present = {path.name for path in sources.glob("*.v")}
    faults = [f"_CoqProject names {name}, which is not there" for name in listed if name not in present]
    faults += [f"{name} is not named in _CoqProject, and so not checked" for name in sorted(present - set(listed))]
    faults += [] if listed else ["_CoqProject names no file"]
    return listed, faults


def _refused(name: str, text: str) -> list[str]:
    """A sentence for every word in a proof file that stands in for a proof."""
    bare = _without_comments(text)
    found = [(bare.count("\n", 0, match.start()) + 1, " ".join(match[0].split())) for match in _REFUSED.finditer(bare)]
    return [f"{name}:{line}: {word!r} is in place of a proof" for line, word in found]


def _differences(recorded: str, stated: str) -> list[str]:
    """A sentence for every statement that differs from the recorded one."""
    old, new = ({_stated(part): part for part in text.strip().split("\n\n")[1:]} for text in (recorded, stated))
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return [f"{name} does not state what statements.txt records for it" for name in names]


def _stated(part: str) -> str:
    """The name that a statement is about: for a record or an inductive type, its second word."""
    first, *rest = part.split()
    return rest[0] if first in ("Record", "Inductive", "Variant") and rest else first


def _without_comments(text: str) -> str:
    """The text with its comments (which nest) and strings blanked, lines kept."""
    kept, depth = [], 0
    for token in re.findall(r'\(\*|\*\)|"(?:[^"]|"")*"|\n|.', text):
        depth += token == "(*"
        blank = depth > 0 or token.startswith('"')
        kept.append("\n" * token.count("\n") if blank else token)
        depth -= token == "*)" and depth > 0
    return "".join(kept)
