"""The second evaluator reads what derivations print, confirms it, and refutes what one wrong token makes of it."""

from __future__ import annotations

import ast
import importlib.util
import random
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from made import made

import symcircuits as sc

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "derivations" / "recheck.py"
FILES = (SCRIPT, SCRIPT.with_name("recheck_model.py"), SCRIPT.with_name("recheck_exact.py"))
BOOK = sorted(map(str, (ROOT / "derivations").glob("*.tex")))
NOTATIONS = ("row", "paper", "transformerlens")
PRINTED: dict[str, tuple[Any, str, str]] = {
    "logits": (sc.attention_only((2, 3)), "logits", "enumerated"),
    "generic": (sc.attention_only((2, 1, 1)), "logits", "generic"),
    "scores": (sc.attention_only((2, 1)), "scores:L1H0", "enumerated"),
    "pairs": (sc.attention_only((1, 1, 1)), "scores:L2H0", "generic"),
    "positions": (sc.attention_only((1, 1), positions="standard"), "scores:L1H0", "generic"),
    "shortformer": (sc.attention_only((2, 1), positions="shortformer"), "scores:L1H0", "enumerated"),
    "rotary": (sc.attention_only((2, 1), positions="rotary"), "scores:L1H0", "enumerated"),
    "alibi": (sc.attention_only((2, 1), positions="alibi"), "scores:L1H0", "generic"),
    "biases": (sc.attention_only((2, 3), biases=True), "logits", "enumerated"),
    "query biases": (sc.attention_only((1, 1), biases=True), "scores:L1H0", "generic"),
    "groups": (sc.attention_only((2, 4), groups=(1, 2), biases=["b_V"]), "logits", "enumerated"),
    "shared keys": (sc.attention_only((2, 2), groups=(1, 2)), "scores:L1H1", "generic"),
    "norms": (sc.transformer((1, 1), norm="LN", mlps=True, biases=True), "logits", "generic"),
    "rms": (
        sc.transformer((2, 3), norm="RMS", mlps=True, gated=True, multipliers=("m_E", "r")),
        "logits",
        "enumerated",
    ),
    "normed queries": (sc.attention_only((1, 1), qk_norm=True, norm="RMS", gains=False), "scores:L1H0", "generic"),
    "shared normed keys": (sc.attention_only((2, 4), groups=(1, 2), qk_norm=True), "scores:L1H3", "enumerated"),
    "stream": (sc.attention_only((2, 1), unembed=False), "stream", "generic"),
    "a later head": (sc.attention_only((6, 6)), "scores:L1H5", "generic"),
    "four layers": (sc.attention_only((1, 1, 1, 1)), "logits", "generic"),
}


# Plain expansions in every notation, each of the others in one.
CASES = [
    (name, notation)
    for i, name in enumerate(PRINTED)
    for j, notation in enumerate(NOTATIONS)
    if i < 3 or (i + j) % 3 == 0
]


def load() -> ModuleType:
    sys.path.insert(0, str(SCRIPT.parent))  # where a script finds what stands beside it
    spec = importlib.util.spec_from_file_location("recheck", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recheck = load()


@cache
def printed(name: str, notation: str) -> str:
    arch, target, form = PRINTED[name]
    return sc.derive(arch, target=target, form=form, notation=notation).latex()


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_it_is_short_and_knows_nothing_of_symcircuits(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    names = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {alias.name for node in names if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in names if isinstance(node, ast.ImportFrom)}
    assert imported <= {*sys.stdlib_module_names, "recheck_model", "recheck_exact"}
    assert not re.search(r"__import__|importlib|sys\.path", text)


@pytest.mark.parametrize(("name", "notation"), CASES)
@pytest.mark.sampled(6)
def test_it_confirms_every_claim_that_is_printed(name: str, notation: str) -> None:
    model = recheck.Model(printed(name, notation))
    claims = list(model.claims())
    assert len(claims) >= 10
    assert [model.judge(*claim) for claim in claims] == ["confirmed"] * len(claims)


def corruptions(side: list[str]) -> list[tuple[str, list[str]]]:
    """Every list of tokens that one change of one token makes of a side, with the kind of the change."""
    found = []
    heads = [r"\mathrm{L0H0}", r"\mathrm{L1H0}", "h_{1}", "h_{2}", "q_{1}", "k_{1}", r"\mathrm{L0}", r"\mathrm{L1}"]
    for at, token in enumerate(side):
        before, after = side[:at], side[at + 1 :]
        if token in ("+", "-"):
            found.append(("sign", [*before, "-" if token == "+" else "+", *after]))
        if not re.match(r"[A-Za-z]|\\(Gamma|math)", token):
            continue
        found += [("drop", before + after), ("double", [*before, token, token, *after])]
        turned = re.sub(r"\^\{\\mathsf\{T\}\}| *\\mathsf\{T\}", "", token)
        if turned == token:
            script = re.search(r"\^\{(.*)\}$", token)
            turned = token[:-1] + r" \mathsf{T}}" if script else token + r"^{\mathsf{T}}"
        found.append(("transpose", [*before, turned, *after]))
        if after and re.match(r"[A-Za-z]|\\(Gamma|math)", after[0]):
            found.append(("swap", [*before, after[0], token, *after[1:]]))
        for old in heads:
            found += [("relabel", [*before, token.replace(old, new), *after]) for new in heads if old in token != new]
        if index := re.match(r"([XHN])_\{?(\d)\}?", token):
            other = f"{index[1]}_{{{int(index[2]) + 1}}}"
            found.append(("index", [*before, token.replace(index[0], other), *after]))
        if token[:2] == "W_":
            other = {"W_{OV}": "W_{QK}", "W_{QK}": "W_{OV}", "W_E": "W_U", "W_U": "W_E"}.get(token.split("^")[0], "W_E")
            found.append(("letter", [*before, token.replace(token.split("^")[0], other), *after]))
    return [(kind, changed) for kind, changed in found if changed != side]


def moves_nothing(kind: str, side: list[str], changed: list[str]) -> bool:
    """Is the change one that leaves every value as it is: a number moved or transposed, a symmetric matrix, Id?"""
    at = next(i for i, (old, new) in enumerate(zip([*side, ""], [*changed, ""], strict=False)) if old != new)
    if kind == "swap":
        return any(re.match(r"[Hsrm]_|[ab]_\d|[sr]\^|\\mathrm\{Id", token) for token in side[at : at + 2])
    if kind == "double":
        return side[at - 1] == r"\mathrm{Id}"
    if kind == "transpose" and side[at - 2 : at] == [r"\norm", "("] and side[at + 1] == ")":
        return True  # the norm of a matrix and of its transpose
    return kind == "transpose" and bool(re.match(r"[HN]_|[ab]_\d|[srCD]\^|m_|[Cab]$|\\Gamma|\\mathrm\{Id", side[at]))


@pytest.mark.parametrize(("name", "notation"), CASES)
@pytest.mark.sampled(6)
def test_one_wrong_token_is_refused_unless_it_changes_nothing(name: str, notation: str) -> None:
    model = recheck.Model(printed(name, notation))
    draw = random.Random(f"{name} {notation}")
    wrong = [(claim, *change) for claim in model.claims() for change in corruptions(claim[2])]
    for (left, relation, right), kind, changed in draw.sample(wrong, 12):
        verdict = model.judge(left, relation, changed)
        assert (verdict == "confirmed") == moves_nothing(kind, right, changed), (kind, left, changed, verdict)


def test_the_line_of_the_model_decides_and_not_the_formulas() -> None:
    tex = printed("biases", "row")
    for line, other in ((", $b_U$, and", ", and"), ("heads 2,3", "heads 3,2"), ("$b_O^{\\mathrm{L0}}$, ", "")):
        assert line in tex
        model = recheck.Model(tex.replace(line, other))
        assert "refuted" in {model.judge(*claim) for claim in model.claims()}


@pytest.mark.parametrize(
    ("every", "claims", "definitions"), [(4, 140, 5), pytest.param(1, 775, 50, marks=pytest.mark.slow)]
)
def test_every_claim_of_the_book_is_confirmed(
    every: int, claims: int, definitions: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recheck.main(BOOK[::every]) == 0
    *named, total = capsys.readouterr().out.splitlines()
    confirmed, refuted, defined, unread = (int(number) for number in re.findall(r"\d+", total))
    assert (named, refuted, unread) == ([], 0, 0)
    assert confirmed >= claims
    assert defined >= definitions


def test_a_claim_that_is_not_read_is_named_and_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.tex"
    page.write_text((ROOT / "derivations" / "mlp.tex").read_text("utf-8").replace("gelu", "relu"), encoding="utf-8")
    assert recheck.main([str(page)]) == 2
    named, total = capsys.readouterr().out.splitlines()
    assert re.search(r"mathrm\{relu\}.*: not read: relu is not known", named)
    assert "0 refuted" in total


SOFTMAX = {
    "ablation": [
        (r"e^{- \frac{3}{4}}", r"e^{- \frac{3}{2}}"), (r"\frac{1}{2}", r"\frac{1}{3}"),
        (r"\text{ anew}", r"\text{ held}"), (r"\text{ held}", r"\text{ anew}"), (r"\neq", "="),
        (r"e^{- \frac{3}{4}} + 1", r"e^{- \frac{3}{4}} - 1"),
    ],
    "linearity": [
        (r"\frac{2 e^{4}}", r"\frac{2 e^{3}}"), (r"\frac{1}{1 + e} ", r"\frac{1}{2 + e} "), (r"\neq 2", "= 2"),
        (r"\;\big|\;{A}\text{ of }\begin{pmatrix} 1 & 0", r"\;\big|\;{A}\text{ of }\begin{pmatrix} 1 & 1"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_of_small_numbers_is_read_and_what_is_wrong_is_refuted(name: str) -> None:
    tex = (ROOT / "derivations" / f"{name}.tex").read_text("utf-8")
    assert {found for _, found in recheck.page(tex)} == {"confirmed"}
    start = tex.index(r"f\bigl(") if name == "linearity" else tex.index("f^{")
    for right, wrong in SOFTMAX[name]:
        assert right in tex[start:], right
        changed = tex[:start] + tex[start:].replace(right, wrong, 1)
        assert "refuted" in {found for _, found in recheck.page(changed)}, (right, wrong)


@pytest.mark.parametrize("entry", [r"\frac{1}{x}", r"\frac{1}{e^{9999}}", r"\frac{__import__}{2}"])
def test_entries_that_are_no_such_numbers_are_not_read(entry: str) -> None:
    claim = recheck.spelled(rf"f\bigl(\begin{{pmatrix}} 1 & 0 \\ 0 & {entry} \end{{pmatrix}}\bigr)")
    tokens = re.findall(recheck.TOKEN, re.sub(recheck.SPACE, " ", claim))
    assert recheck.Model(printed("logits", "row")).judge(tokens, "=", tokens).startswith("not read: ")


@pytest.mark.parametrize(("every", "least"), [(4, 90), pytest.param(1, 370, marks=pytest.mark.slow)])
def test_single_wrong_tokens_of_the_book_are_refused(every: int, least: int) -> None:
    """Of both sides of the equations of every page; what changes nothing (a number moved, ...) is confirmed."""
    refused = nothing = 0
    for path in BOOK[::every]:
        model = recheck.Model(Path(path).read_text(encoding="utf-8"))
        read = [claim for claim in model.claims() if model.judge(*claim) == "confirmed" and claim[1] == "="]
        read = [claim for claim in read if claim[2] != ["1"]]  # one term: 1 times 1 is 1
        wrong = [(claim, side, *change) for claim in read for side in (0, 2) for change in corruptions(claim[side])]
        for claim, side, kind, changed in random.Random(Path(path).name).sample(wrong, min(8, len(wrong))):
            verdict = model.judge(*(changed if i == side else part for i, part in enumerate(claim)))
            refused += verdict.startswith(("refuted", "not read"))
            nothing += verdict == "confirmed"
            assert verdict != "defined"
            if model.stochastic and verdict == "confirmed":  # a pattern, or another, before a column of ones
                assert [token for token in claim[side] if token[:2] != "A^"] == [t for t in changed if t[:2] != "A^"]
            else:
                assert (verdict == "confirmed") == moves_nothing(kind, claim[side], changed), (path, claim, changed)
    assert refused >= least
    assert nothing < 20


CIRCUITS = (
    "basis_freedom", "composition_scores", "copying", "eigenvalue_tricks", "frobenius_not_cyclic", "identity_heads",
    "pointer_arithmetic", "source_gauge", "uniqueness",
)  # fmt: skip


@cache
def theorem(name: str, notation: str = "row") -> str:
    return made(name).written(notation).latex(standalone=True)


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("name", CIRCUITS)
@pytest.mark.sampled(11)
def test_traces_norms_and_small_matrices_are_read(name: str, notation: str) -> None:
    model = recheck.Model(theorem(name, notation))
    claims = list(model.claims())
    verdicts = [(" ".join(left + right), model.judge(left, relation, right)) for left, relation, right in claims]
    unread = [claim for claim, verdict in verdicts if verdict not in ("confirmed", "defined")]
    assert unread == []
    assert sum(verdict == "confirmed" for _, verdict in verdicts) >= 4


WRONG = {  # a true line of a page, and what makes it wrong
    "another entry": ("copying", r"-1 & 3 \\ -2 & 4", r"-1 & 3 \\ -2 & 5"),
    "another number": ("copying", r"\bigr) &= 3", r"\bigr) &= 2"),
    "an inverse on the wrong side": ("copying", r"{V}\,{J}\,V^{-1}", r"{V}\,{J}\,{V}"),
    "another power": ("eigenvalue_tricks", r"\mathrm{Tr}\bigl({F}\,{F}\,{F}\bigr)", r"\mathrm{Tr}\bigl({F}\,{F}\bigr)"),
    "a norm that is not cyclic": ("frobenius_not_cyclic", r"\neq \bigl\|", r"= \bigl\|"),
    "a trace of a transpose": ("frobenius_not_cyclic", r"\bigl({b}\,{b}^{\mathsf{T}}\bigr)", r"\bigl({b}\,{b}\bigr)"),
    "no rotation": ("basis_freedom", r"{Q}^{\mathsf{T}}\,{Q} &= \mathrm{Id}", r"{Q}\,{Q} &= \mathrm{Id}"),
    "upside down": ("composition_scores", r"\,\big/\,\bigl(\mathrm{Tr}", r"\,\bigl(\mathrm{Tr}"),
    "a head too few": ("uniqueness", r"(\mathrm{L0H1},\mathrm{L1H0})} &= X_0", r"(\mathrm{L1H0})} &= X_0"),
    "a run too few": ("uniqueness", r" - \mathrm{logits}^{(\mathrm{L1H0})}", ""),
    "the sides of scores": ("uniqueness", r"(\mathrm{L0H1}|\varnothing)}", r"(\varnothing|\mathrm{L0H1})}"),
    "a turn too many": ("pointer_arithmetic", r"\left(j + 1\right)", r"\left(j + 2\right)"),
    "a turn the other way": ("pointer_arithmetic", r"\left(- i + j\right)", r"\left(i + j\right)"),
    "a sine too few": ("pointer_arithmetic", r"& - \sin{", r"& \sin{"),
    "another head removed": ("ablation", r"^{\setminus\mathrm{L0H1}} &=", r"^{\setminus\mathrm{L0H0}} &="),
    "another basis": ("basis_freedom", r"\mathrm{logits}^{(T)} &= \mathrm{logits}", r"\mathrm{logits}^{(T)} &= X_0"),
    "another run": ("term_importance", r"+ Y_{2}^{(\text{run }1)}", r"+ Y_{2}^{(\text{run }2)}"),
    "a mask too many": ("attention_without_softmax", r"{A_2} &= M\odot", r"{A_2} &= M\,"),
    "other places": (
        "concatenated_heads",
        r"{W_O} &= \bigl[\,W_O^{\mathrm{L0H0}}",
        r"{W_O} &= \bigl[\,W_O^{\mathrm{L0H1}}",
    ),
    "a rank": (
        "virtual_heads",
        r"W_{OV}^{g}\,W_{OV}^{h}\bigr) &\le d_{\mathrm{head}}",
        r"W_U\bigr) &\le d_{\mathrm{head}}",
    ),
    "another count": ("numbers_of_terms", "= 676", "= 677"),
    "a sign": ("source_gauge", r"P - \mathbf{1}\,{c}", r"P + \mathbf{1}\,{c}"),
    "no ones": ("source_gauge", r"X_{2}\,{z}\,\mathbf{1}^{\mathsf{T}}", r"X_{2}"),
    "another variance": ("layer_norm", r"\frac{14}{3}", r"\frac{13}{3}"),
    "another epsilon": ("layer_norm", r"\sqrt{\epsilon + 2}", r"\sqrt{2}"),
    "no mean taken away": ("layer_norm", r"\frac{2}{3} & - \frac{1}{3}", r"\frac{2}{3} & \frac{1}{3}"),
    "norms of another place": ("layer_norm", r"^{(\text{model})} &= {D_f}", r"^{(\text{model})} &= {D_1}"),
    "a gelu that is linear": ("mlp", r"\neq 2\,\mathrm{gelu}", r"= 2\,\mathrm{gelu}"),
    "no embedding of a real run": (
        "mlp",
        r"^{(\text{model})} &= t\,\bigl(W_U\,W_E",
        r"^{(\text{model})} &= t\,\bigl(W_E\,W_U",
    ),
    "a term of a real run too few": (
        "attention_without_softmax",
        r"^{(\text{model})} &= X_0\,W_U",
        r"^{(\text{model})} &= X_0\,W_E",
    ),
    "another order in a bilinear run": (
        "bilinear_mlp",
        r"^{(\text{model})} &= X_0\,W_U",
        r"^{(\text{model})} &= X_0\,W_E",
    ),
    "weights of another run": (
        "pointer_arithmetic",
        r"{W_O^{\mathrm{L0H0}\,(Q)}} &= \mathrm{Id}",
        r"{W_O^{\mathrm{L0H0}\,(Q)}} &= {Q}",
    ),
    "the other turn": ("pointer_arithmetic", r"0 & 1 \\ -1 & 0 \end", r"0 & -1 \\ 1 & 0 \end"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_trace_norm_or_matrix_is_refuted(what: str) -> None:
    name, right, wrong = WRONG[what]
    tex = theorem(name)
    assert right in tex
    model = recheck.Model(tex.replace(right, wrong))
    assert "refuted" in {model.judge(*claim) for claim in model.claims()}


def test_a_run_with_other_matrices_is_not_read_before_they_are_defined() -> None:
    model = recheck.Model(theorem("source_gauge"))
    [claim] = [claim for claim in model.claims() if claim[0] == [r"\mathrm{logits}^{(c)}"]]
    assert model.judge(*claim).startswith("not read: the run (c) is not known")


def test_exit_statuses(tmp_path: Path) -> None:
    tex = printed("logits", "row")
    for name, text, status in (
        ("right", tex, 0),
        ("wrong", tex.replace(r"A^{\mathrm{L1H0}}\,A^{\mathrm{L0H0}}", r"A^{\mathrm{L0H0}}\,A^{\mathrm{L1H0}}"), 1),
        ("other", r"\begin{align*} f(x) &= y \end{align*}", 2),
        ("empty", "nothing is claimed here", 2),
    ):
        path = tmp_path / f"{name}.tex"
        path.write_text(text, encoding="utf-8")
        run = subprocess.run([sys.executable, str(SCRIPT), str(path)], capture_output=True, text=True, check=False)
        assert run.returncode == status, run.stdout + run.stderr


@pytest.mark.parametrize(
    "side",
    ["W_U W_E +", "( W_U", "W_U )", "+ W_U", "W_U , W_E", r"\otimes W_U", "Z W_U", r"\odot W_U", r"\mathbf{1} W_U", "",
     r"\mathbf{1} \mathbf{1}", "( )", "__import__", r"\sum_{h_{1}=1}^{H_{9}} W_U", "t W_E b_U + 3", "( W_U , W_E )"],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_never_confirmed(side: str) -> None:
    model = recheck.Model(printed("logits", "row"))
    tokens = re.findall(recheck.TOKEN, side)
    assert model.judge(tokens, "=", tokens).startswith("not read: ")


def test_a_page_with_names_of_its_own_is_not_read_and_not_refuted() -> None:
    tex = sc.derive(sc.attention_only((1, 1)), symbols={"W_OV": "M"}).latex()
    assert {verdict.partition(":")[0] for _, verdict in recheck.page(tex)} == {"not read"}


def test_numbered_equations_of_a_paper_are_read() -> None:
    tex = sc.derive(sc.attention_only((1, 1))).paper()
    seen = [verdict for _, verdict in recheck.page(str(tex))]
    assert len(seen) >= 10
    assert "refuted" not in seen


def test_a_file_without_a_claim_or_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, fine = tmp_path / "empty.tex", tmp_path / "fine.tex"
    empty.write_text("hello", encoding="utf-8")
    fine.write_text(printed("logits", "row"), encoding="utf-8")
    assert recheck.main([str(fine), str(empty)]) == 2
    assert f"{empty}: no claim was found in it" in capsys.readouterr().out
    assert recheck.main([str(fine), str(tmp_path / "no.tex")]) == 2
    assert "no.tex: it cannot be read" in capsys.readouterr().out
