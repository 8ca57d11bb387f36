"""Python code becomes nodes: as researchers write it, with places, with bounds, and never executed."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import symcircuits as sc
from symcircuits.checking import syntax
from symcircuits.checking.faults import ReadError
from symcircuits.checking.python_code import read_code
from symcircuits.checking.syntax import Node, nodes

FORMULAS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "code_formulas.jsonl").read_text(encoding="utf-8").splitlines()
]


def shown(node: Node) -> str:
    """A node as one line: ``@`` for what stands side by side, ``^T`` for a transpose."""
    match node:
        case syntax.Name(text=text, scripts=scripts):
            return text + "".join(f"[{','.join(script.parts)}]" for script in scripts)
        case syntax.Number(value=value):
            return str(value)
        case syntax.Text(text=text):
            return repr(text)
        case syntax.Sum(signs=signs, summands=summands):
            terms = ("+-"[sign < 0] + shown(term) for sign, term in zip(signs, summands, strict=True))
            return f"({''.join(terms)})"
        case syntax.Product(operator=operator, factors=factors):
            return f"({(f' {operator} ' if operator else ' @ ').join(map(shown, factors))})"
        case syntax.Transposed(inner=inner):
            return shown(inner) + "^T"
        case syntax.BigSum(bounds=bounds, body=body):
            return "sum" + "".join(f"{{{','.join(b.names)}:{b.over}}}" for b in bounds) + shown(body)
        case syntax.Fraction(numerator=above, denominator=below):
            return f"{shown(above)}/{shown(below)}"
        case syntax.Power(base=base, exponent=exponent):
            return f"{shown(base)}**{shown(exponent)}"
        case syntax.Call(function=function, arguments=arguments):
            return f"{shown(function)}({', '.join(map(shown, arguments))})"
        case syntax.Indexed(inner=inner, script=script):
            return f"{shown(inner)}[{','.join(script.parts)}]"
    raise AssertionError(node)


def lines(code: str) -> list[str]:
    return [
        f"{line.number}: {' = '.join(shown(side) for side in equation.sides if side is not None)}"
        for line in read_code(code).lines
        for equation in line.equations
    ]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        # names, attributes, paths, dictionaries
        ("model.W_V[0, 1]", "W_V[0,1]"),
        ("W_V[0, 1, :, :]", "W_V[0,1,:,:]"),
        ("W_V[0][1]", "W_V[0,1]"),
        ("model.blocks[0].attn.W_V[1]", "W_V[0,1]"),
        ("blocks.0.attn.W_V[1]", "W_V[0,1]"),
        ("model.transformer.h[0].attn.W_V[1]", "W_V[0,1]"),
        ("transformer.h.0.attn.W_V[1]", "W_V[0,1]"),
        ('params["blocks.0.attn.W_V"][1]', "W_V[0,1]"),
        ('model.state_dict()["blocks.0.attn.W_V"][1, :]', "W_V[0,1,:]"),
        ('params["unembed.W_U"]', "W_U"),
        ("model.W_V[layer, head]", "W_V[layer,head]"),
        ("W_V[h // 2]", "W_V[h//2]"),
        ("W_pos[-1]", "W_pos[-1]"),
        ("first['w_o']", "first['w_o']"),
        ("first.w_o", "first['w_o']"),
        ("self.W_E", "W_E"),
        ("model.cfg.d_head", "d_head"),
        ("eqke[tokens[-1], tokens]", "eqke[tokens[-1],tokens]"),
        ("(W_E @ W_U)[:, 0]", "(W_E @ W_U)[:,0]"),
        ("(W_Q @ W_K.T).AB.detach().cpu()", "(W_Q @ W_K^T)"),
        # operations
        ("a @ b @ c", "(a @ b @ c)"),
        ("a @ (b @ c)", "(a @ (b @ c))"),
        ("a - b + c", "(+a-b+c)"),
        ("a - (b + c)", "(+a-(+b+c))"),
        ("-a @ b", "(-a @ b)".replace("(-a", "((-a)")),
        ("X @ Y / d_head ** 0.5", "(X @ Y)/d_head**1/2"),
        ("X @ Y / math.sqrt(d_head)", "(X @ Y)/sqrt(d_head)"),
        ("1 / np.sqrt(d_head) * X @ Y", "(1/sqrt(d_head) @ X @ Y)"),
        ("scale * X", "(scale @ X)"),
        ("X * Y", "(X o Y)"),
        ("norm(a) * norm(b)", "(norm(a) @ norm(b))"),
        ("X @ (gamma * Y)", "(X @ (gamma o Y))"),
        ("0.1 * X", "(1/10 @ X)"),
        # transposes
        ("W_K.T", "W_K^T"),
        ("W_K[0, 1].T", "W_K[0,1]^T"),
        ("W_K.mT", "W_K^T"),
        ("W_K.t()", "W_K^T"),
        ("W_K.transpose(-1, -2)", "W_K^T"),
        ("W_K.transpose(-2, -1)", "W_K^T"),
        ("W_K.permute(1, 0)", "W_K^T"),
        ("W_K.permute(0, 1)", "W_K"),
        ("np.transpose(W_K)", "W_K^T"),
        ("torch.transpose(W_K, 0, 1)", "W_K^T"),
        ("(W_V @ W_O).T.T", "(W_V @ W_O)^T^T"),
        # functions
        ("FactoredMatrix(a, b) @ c", "(FactoredMatrix(a, b) @ c)"),
        ("torch.matmul(a, b)", "(a @ b)"),
        ("a.matmul(b)", "(a @ b)"),
        ("np.linalg.multi_dot([a, b, c])", "(a @ b @ c)"),
        ("np.linalg.norm(a @ b, 'fro')", "norm((a @ b))"),
        ("(a @ b).norm()", "norm((a @ b))"),
        ("torch.softmax(S / scale, dim=-1)", "softmax(S/scale)"),
        ("S.softmax(-1)", "softmax(S)"),
        ("np.einsum('ij,jk->ik', a, b)", "einsum('ij,jk->ik', a, b)"),
        ('einops.einsum(a, b, "h i j, h j k -> h i k")', "einsum(a, b, 'h i j, h j k -> h i k')"),
        ("sum(A[0, h] @ X for h in range(n_heads))", "sum{h:0..H-1}(A[0,h] @ X)"),
        ("sum(A[0, h] @ X for h in range(model.cfg.n_heads))", "sum{h:0..H-1}(A[0,h] @ X)"),
        ("sum([A[0, h] @ X for h in range(3)])", "sum{h:0..2}(A[0,h] @ X)"),
        ("sum(W_V[l, h] for l in range(1, n_layers) for h in heads)", "sum{l:1..L-1}{h:heads}W_V[l,h]"),
        ("torch.stack([A[0, h] @ X for h in range(n_heads)]).sum(0)", "sum{h:0..H-1}(A[0,h] @ X)"),
        ("sum([a, b, c])", "(+a+b+c)"),
    ],
)
def test_values(code: str, found: str) -> None:
    assert lines(code) == [f"1: {found}"]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("a = b = W_E @ W_U", ["1: a = b = (W_E @ W_U)"]),
        ("a: Tensor = W_E", ["1: a = W_E"]),
        ("a, b = W_E, W_U", ["1: a = W_E", "1: b = W_U"]),
        ("x += W_E", ["1: x = (+x+W_E)"]),
        ("x @= W_E", ["1: x = (x @ W_E)"]),
        ("\n# the direct path\na = W_E  # embedding\n\nb = a @ W_U", ["3: a = W_E", "5: b = (a @ W_U)"]),
        ("a = (W_E\n     @ W_U)\nb = a", ["1: a = (W_E @ W_U)", "3: b = a"]),
        ("import torch\nfrom math import sqrt\n'''what it is'''\nW_E @ W_U", ["4: (W_E @ W_U)"]),
        ("def ov(h):\n    v = W_V[0, h]\n    return v @ W_O[0, h]", ["2: v = W_V[0,h]", "3: (v @ W_O[0,h])"]),
        ("with torch.no_grad():\n    a = W_E", ["2: a = W_E"]),
        ("    a = W_E\n    b = a @ W_U", ["1: a = W_E", "2: b = (a @ W_U)"]),
        (">>> a = W_E\n>>> a @ W_U", ["1: a = W_E", "2: (a @ W_U)"]),
        ("assert torch.allclose(a @ b, c, atol=1e-5)", ["1: (a @ b) = c"]),
        ("assert (a @ b == c).all()", ["1: (a @ b) = c"]),
        ("torch.testing.assert_close(a @ b, c)", ["1: (a @ b) = c"]),
        ("a == b == c", ["1: a = b = c"]),
        ("m = HookedTransformer.from_pretrained('x')\nm.W_E @ m.W_U", ["2: (W_E @ W_U)"]),
        ("sd = model.state_dict()\nsd['embed.W_E']", ["2: W_E"]),
        ("s = 1 / d_head ** 0.5\nS = s * X", ["1: s = 1/d_head**1/2", "2: S = (s @ X)"]),
        ("a = W_E\r\nb = a @ W_U\rc = b", ["1: a = W_E", "2: b = (a @ W_U)", "3: c = b"]),
    ],
)
def test_lines(code: str, found: list[str]) -> None:
    assert lines(code) == found


@pytest.mark.parametrize(
    "code",
    [
        "ov = model.W_E @ model.W_V[0, 1] @ model.W_O[0, 1]",
        "    first = W_V\n    second = first @ W_O[0, 1].T  # after it",
        ">>> a = W_E @ W_U\n>>> b = a - W_pos",
        "b = norm(W_Q)  # é è\nc = (W_E  # ü\n  @ W_U)",
        "é = W_E @ W_U + W_pos",
        "a = blocks.0.attn.W_V[1] @ blocks.10.attn.W_O[1]\nb = a",
    ],
)
def test_places_are_those_of_the_text(code: str) -> None:
    document = read_code(code)
    for line in document.lines:
        assert code[: line.at].count("\n") == line.number - 1
        for equation in line.equations:
            for side in equation.sides:
                assert side is not None
                for node in nodes(side):
                    if isinstance(node, syntax.Name):
                        assert re.match(rf"(?:blocks\.\d+\.attn\.)?{node.text}\b", code[node.at :])


@pytest.mark.parametrize(
    ("code", "place", "says"),
    [
        ("a = W_E\nfor h in range(2):\n    a = a @ W_U", 8, "sum"),
        ("a = W_E if x else W_U", 4, "matrix or a number"),
        ("a = W_E\nb = a < W_U", 12, "matrix or a number"),
        ("a = W_E // 2", 4, "use +, -, @, *, / or"),
        ("a = 1e999 * W_E", 4, "inf"),
        ("a = True @ W_E", 4, "matrix or a number"),
        ("a = W_V.transpose(0, 2)", 4, "last two axes"),
        ("a = (W_E @ W_U).shape", 16, "'shape'"),
        ("a = sum(W_V[h] for h in heads if h)", 7, "condition"),
        ("a = sum(W_V)", 8, "over heads"),
        ("a = f(*W)", 4, "star"),
        ("del W_E", 0, "statement"),
        ("x, y = f(W_E)", 0, "matrix or a number"),
    ],
)
def test_what_is_not_a_formula_is_refused_with_its_place(code: str, place: int, says: str) -> None:
    with pytest.raises(ReadError, match=re.escape(says)) as refusal:
        read_code(code)
    assert refusal.value.position == place


@pytest.mark.parametrize("code", ["W_E @", "W_{OV}^h", "A X W^T W", "a = W\0E", "if", "a = 1 +* 2", "(" * 1000])
def test_what_is_not_python_is_a_syntax_error(code: str) -> None:
    with pytest.raises(SyntaxError):
        read_code(code)


@pytest.mark.parametrize(
    "code",
    [
        " @ ".join(["W_E"] * 50_000),
        " + ".join(["W_E"] * 100_000),
        "W_E" + ".T" * 50_000,
        "W" + "[0]" * 20_000,
        "-" * 20_000 + "W_E",
        "**".join(["d_head"] * 20_000),
        "norm(" * 150 + "W_E" + ")" * 150,
        "W_E # " + "é" * 1_000_000,
        "W_" + "x" * 1_000_000,
    ],
    ids=["products", "sums", "transposes", "brackets", "signs", "powers", "calls", "comment", "name"],
)
def test_large_and_deep_code_is_read_or_refused(code: str) -> None:
    try:
        assert len(read_code(code).lines) == 1
    except ReadError as refusal:
        assert "nested too deep" in str(refusal)  # noqa: PT017


def test_ten_thousand_lines_and_too_long_a_text() -> None:
    document = read_code("\n".join(f"a{i} = W_V[0, {i}] @ W_O[0, {i}]" for i in range(10_000)))
    assert [line.number for line in document.lines] == list(range(1, 10_001))
    with pytest.raises(ReadError, match="longer than"):
        read_code("#" * 3_000_000)


def test_code_is_never_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ast, "literal_eval", None)
    marker = tmp_path / "executed"
    for code in (f"__import__('pathlib').Path({str(marker)!r}).touch()", f"open({str(marker)!r}, 'w')"):
        read_code(code)
    assert not marker.exists()


@pytest.mark.parametrize("entry", FORMULAS, ids=lambda entry: entry["id"])
def test_formulas_as_researchers_write_them(entry: dict[str, Any]) -> None:
    text: str = entry["text"]
    if entry["mistake"] == "refused" and "for " in text:
        with pytest.raises(ReadError):
            read_code(text)
        return
    numbers = [line.number for line in read_code(text).lines]
    assigned = [i for i, line in enumerate(text.splitlines(), 1) if "state_dict" not in line and line[:4] != "for "]
    assert numbers == assigned


@pytest.mark.parametrize("entry", FORMULAS, ids=lambda entry: entry["id"])
def test_check_judges_code(entry: dict[str, Any]) -> None:
    arch = sc.attention_only(tuple(entry["heads"]), **entry["options"])
    if entry["mistake"] == "refused":
        with pytest.raises(ReadError):
            sc.check(entry["text"], arch)
        return
    verdict = sc.check(entry["text"], arch)
    assert verdict.right == entry["right"]
    if not verdict.right:
        assert verdict.line == entry["wrong_line"]
        assert entry["mistake"] in (None, verdict.mistake)


@pytest.mark.parametrize(
    ("text", "convention", "mistake"),
    [
        ("np.einsum('qk,kd,de->qe', A[L0H1], X0, W_OV[L0H1].T) @ W_U.T", "row", None),
        ("np.einsum('qk,kd,ed->qe', A[L0H1], X0, W_OV[L0H1])", "row", None),
        ("np.einsum('qk,kd,de->qe', A[L0H1], X0, W_OV[L0H1])", "row", "transpose"),
        ("torch.einsum('qk,kd,de->qe', A[L0H1], X0, OV[L0H1])", "transformerlens", None),
        ("np.linalg.multi_dot([A[L0H1], X0, W_OV[L0H1].T, W_U.T])", "row", None),
        ("X0 @ W_QK[L1H0] @ X0.T / math.sqrt(d_head)", "row", None),
        ("logits = np.matmul(X0, W_U.T)", "row", "missing-terms"),
    ],
)
def test_calls_of_libraries_may_hold_the_names_that_are_printed(
    text: str, convention: str, mistake: str | None
) -> None:
    verdict = sc.check(text, sc.attention_only((2, 2)))
    assert verdict.mistake == mistake
    assert verdict.read[0].startswith("TransformerLens" if convention == "transformerlens" else "the row convention")
