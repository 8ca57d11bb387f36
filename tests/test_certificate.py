"""Certificates: an independent reader confirms every claim, and refuses by its number what was changed."""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_recheck import PRINTED, recheck

import symcircuits as sc
from symcircuits.cli.main import main

Certificate = dict[str, Any]
FEW = (
    "logits",
    "scores",
    "groups",
    "alibi",
    "rms",
    "shared keys",
    "query biases",
    "rotary",
    "normed queries",
    "shared normed keys",
    "stream",
)


def verdicts(found: Certificate | str) -> list[tuple[str, str]]:
    return list(recheck.certificate(found if isinstance(found, str) else json.dumps(found)))


def refused(found: Certificate | str) -> list[str]:
    return [name for name, verdict in verdicts(found) if verdict.startswith("refuted")]


def sealed(found: Certificate) -> Certificate:
    """With the digest that it then has, as a forger would make it."""
    rest = {key: value for key, value in found.items() if key != "sha256"}
    return {**rest, "sha256": hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


@pytest.fixture(scope="module")
def whole() -> Certificate:
    return sc.derive(sc.attention_only((2, 1))).certificate()


@pytest.mark.parametrize("name", FEW)
@pytest.mark.sampled(3)
def test_every_claim_of_an_expansion_is_confirmed(name: str) -> None:
    arch, target, form = PRINTED[name]
    derivation = sc.derive(arch, target=target, form=form)
    found = derivation.certificate()
    assert found["count"] == sum(len(claim.sides) - 1 for step in derivation.steps for claim in step.claims)
    by_values = sum(claim["values"] is not None for claim in found["claims"])
    assert by_values >= 9 or arch.positions == "rotary"
    seen = verdicts(found)
    assert {verdict for _, verdict in seen} == {"confirmed"}
    assert len(seen) == found["count"] + by_values


@pytest.mark.parametrize(
    "name", ["uniqueness", "source_gauge", "composition_scores", "virtual_heads", "concatenated_heads"]
)
@pytest.mark.sampled(1)
def test_every_claim_of_a_result_is_confirmed(name: str) -> None:
    found = sc.theorem(name).certificate()
    assert {verdict for _, verdict in verdicts(found)} <= {"confirmed", "defined"}


def test_what_is_not_read_is_named_and_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, file = sc.theorem("layer_norm").certificate(), tmp_path / "layer_norm.json"
    file.write_text(json.dumps(found), encoding="utf-8")
    assert recheck.main([str(file)]) == 0
    capsys.readouterr()
    file.write_text(json.dumps(sealed(json.loads(json.dumps(found).replace("{LN}", "{RN}")))), encoding="utf-8")
    assert recheck.main([str(file)]) == 2
    printed = capsys.readouterr().out
    assert "claim 1: not read: RN is not known" in printed
    assert "0 refuted" in printed


def other_tree(found: Certificate, number: int) -> None:
    """One symbol of one side is another."""
    claim = found["claims"][number]
    text = json.dumps(claim["sides"])
    new = text.replace("L0H0", "L0H1", 1) if "L0H0" in text else text.replace("W_U", "W_E", 1)
    claim["sides"] = json.loads(new)


def other_value(found: Certificate, number: int) -> None:
    found["claims"][number]["values"][1][0][0] += 1


def both_values(found: Certificate, number: int) -> None:
    for value in found["claims"][number]["values"]:
        value[-1][-1] = (value[-1][-1] + 5) % found["prime"]


def other_relation(found: Certificate, number: int) -> None:
    found["claims"][number]["relation"] = r"\\neq"


def unknown_relation(found: Certificate, number: int) -> None:
    found["claims"][number]["relation"] = "<"


def no_side(found: Certificate, number: int) -> None:
    found["claims"][number]["sides"] = []


def unknown_node(found: Certificate, number: int) -> None:
    found["claims"][number]["sides"][1] = ["quotient", "W_U", "W_E"]


@pytest.mark.parametrize(
    "edit", [other_tree, other_value, both_values, other_relation, unknown_relation, no_side, unknown_node]
)
@pytest.mark.parametrize("number", [4, 6, 9])
@pytest.mark.sampled(7)
def test_an_edited_claim_is_refused_by_its_number(
    whole: Certificate, edit: Callable[[Certificate, int], None], number: int
) -> None:
    found = copy.deepcopy(whole)
    assert found["claims"][number]["values"]
    edit(found, number)
    assert found != whole
    assert {"the certificate", f"claim {number + 1}"} <= set(refused(found))  # the digest, and the claim
    assert set(refused(sealed(found))) == {f"claim {number + 1}"}


def test_another_draw_is_refused(whole: Certificate) -> None:
    for name in whole["draw"]:
        found = copy.deepcopy(whole)
        matrix = found["draw"][name]
        found["draw"][name] = matrix + 1 if isinstance(matrix, int) else [[x + 1 for x in row] for row in matrix]
        assert "the certificate" in refused(found)
        if name in ("W_E", "A^L0H0", "W_O^L1H0"):
            assert any(claim.startswith("claim ") for claim in refused(sealed(found)))


@pytest.mark.parametrize("change", ["heads 2,1", "prime", "size"])
def test_another_model_or_field_is_refused(whole: Certificate, change: str) -> None:
    found = copy.deepcopy(whole)
    if change in found:
        found[change] = {"prime": 2**61 - 1, "size": 10**9}[change]
    else:
        found["model"] = found["model"].replace(change, "heads 1,1")
    assert refused(sealed(found))


def test_a_claim_that_is_missing_is_named(whole: Certificate) -> None:
    found = copy.deepcopy(whole)
    del found["claims"][-2:]
    last = whole["count"]
    assert refused(found) == [f"claim {last - 1}", f"claim {last}", "the certificate"]


def test_another_version_is_refused(whole: Certificate) -> None:
    assert verdicts(sealed({**whole, "schema": "symcircuits.certificate/2"})) == [
        ("the certificate", "refuted: it is 'symcircuits.certificate/2', and this reads 'symcircuits.certificate/1'")
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "3", '{"schema": "symcircuits.certificate/1"}'])
def test_what_is_no_certificate_is_refused(text: str) -> None:
    assert refused(text) == ["the certificate"]


def test_a_certificate_that_was_cut_is_refused(whole: Certificate) -> None:
    text = json.dumps(whole)
    for share in (1, 30, 60, 99):
        assert refused(text[: len(text) * share // 100]) == ["the certificate"]


def test_a_file_after_one_that_was_refused_is_confirmed(whole: Certificate) -> None:
    """The field of a certificate is not that of the next file."""
    damaged = sealed({**whole, "draw": {**whole["draw"], "W_E": 3.5}})
    assert refused(damaged)
    assert refused(whole) == []
    assert {v for _, v in recheck.page(sc.derive(sc.attention_only((1,))).latex())} == {"confirmed"}


def test_the_command_writes_a_page_and_its_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, certificate = tmp_path / "two.tex", tmp_path / "two.json"
    assert main(["derive", "--heads", "2,1", "-o", str(page), "--certificate", str(certificate)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["two.json", "two.tex"]  # no temporary name is left
    assert json.loads(certificate.read_text("utf-8")) == sc.derive(sc.attention_only((2, 1))).certificate()
    capsys.readouterr()
    assert recheck.main([str(page), str(certificate)]) == 0
    assert main(["derive", "--heads", "1", "-o", str(page), "--certificate", str(page)]) != 0
    assert "--certificate and -o are the same file" in capsys.readouterr().err
    assert main(["derive", "--heads", "1", "--certificate", str(tmp_path / "no" / "x.json")]) != 0
    assert "does not exist" in capsys.readouterr().err


def test_a_key_that_stands_twice_is_refused(whole: Certificate) -> None:
    [(name, verdict)] = verdicts('{"title": "FAKE", ' + json.dumps(whole)[1:])
    assert name == "the certificate"
    assert "a key stands twice: 'title'" in verdict
