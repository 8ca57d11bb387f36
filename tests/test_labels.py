"""Names of tokens: read from lists and files, told apart, made safe to show."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.explanation.labels import Labels, printable, read_label_file, read_labels


@given(st.text(st.characters(codec=None)), st.integers(2, 80))
def test_what_is_shown_prints(text: str, longest: int) -> None:
    shown = printable(text, longest)
    assert len(shown) <= longest
    assert all(c.isprintable() for c in shown)
    shown.encode("utf-8")
    if text.isprintable() and len(text) <= longest:
        assert shown == text


def test_controls_and_directions_are_escaped() -> None:
    assert printable("\x1b[2J\n\u202eabc\ud800\u00a0 ") == "\\x1b[2J\\n\\u202eabc\\ud800\\xa0 "


@pytest.mark.parametrize(
    ("count", "of", "at", "output"),
    [(3, "positions", "n2", "1"), (9, "vocabulary", "n5", "1"), (7, "vocabulary", "5", "n1")],
)
def test_the_length_says_what_is_named(count: int, of: str, at: str, output: str) -> None:
    labels = read_labels([f"n{i}" for i in range(count)], n=3, d_vocab=9, d_vocab_out=7)
    assert (labels.of, labels.at(2, 5), labels.output(1)) == (of, at, output)


def test_as_many_positions_as_entries_means_the_vocabulary() -> None:
    assert read_labels(["a", "b"], 2, 2).of == "vocabulary"
    assert (Labels().at(0, 4), Labels().output(4)) == ("4", "4")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("abc", "a list of strings"),
        (7, "a list of strings"),
        (["a", 1], "label 1 is not a string but 1"),
        (["a"], "there are 1 labels.*the vocabulary has 9, the output vocabulary has 7, the row of tokens has 3"),
        ([], "there are 0 labels"),
    ],
)
def test_other_labels_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_labels(labels, 3, 9, 7)


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\r\n b\r\n\r\nc", ["a", " b", "", "c"]),
        ("\ufeffa\n", ["a"]),
        ('["a\\n", "b"]', ["a\n", "b"]),
        ("[\n]\n", []),
        ("[CLS]\n[SEP]\n", ["[CLS]", "[SEP]"]),
        ("\u2028x\ny\x0b\n", ["\u2028x", "y\x0b"]),
    ],
)
def test_files(tmp_path: Path, content: str, labels: list[str]) -> None:
    (tmp_path / "labels.txt").write_bytes(content.encode())
    assert read_label_file(tmp_path / "labels.txt") == labels


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"[1, ", "is not a JSON list of strings"),
        ("a.json", b'{"a": 1}', "is not a JSON list of strings; it starts with '{\"a\": 1}'"),
        ("a.txt", b"\xff\xfe", "are not UTF-8"),
        ("a.json", b"[" * 100_000, "is not a JSON list of strings"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_label_file(tmp_path / name)


def test_labels_stand_in_what_explain_shows() -> None:
    model = sc.random_model(sc.attention_only((1,)), d_vocab=3, seed=1)
    found = sc.explain(model, [0, 1, 2, 0], by=sc.logit(1)).labelled(["zero", "o\nne", "two"])
    assert 'logit of token 1 "o\\nne" at position 3' in " ".join(found.text(200).split())
    data = json.loads(json.dumps(found.json()))
    assert (data["labels"], data["labels_of"]) == (["zero", "o\nne", "two"], "vocabulary")
    assert "labels" not in sc.explain(model, [0, 1]).json()
    with pytest.raises(ValueError, match="there are 2 labels"):
        sc.explain(model, [0, 1, 2, 0]).labelled(["a", "b"])
