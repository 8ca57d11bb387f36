"""Tokenizers: what a token is called, tokens of texts, hostile and broken files, and life without the package."""

import json
import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import Cli, cli, refused

import symcircuits as sc
from symcircuits.explanation import tokenizers as tokenizing
from symcircuits.explanation.labels import Labels, printable
from symcircuits.explanation.tokenizers import any_labels, encoder, is_tokenizer_file, read_tokenizer, tokenizer_labels
from symcircuits.work.files import LIMITS

__all__ = ["cli"]  # a fixture
NAMES = ["<|end|>", "t", "h", "e", "Ġ", "th", "the", "Ġthe", "Ċ", "Ã", "©", "Ã©"]
MERGES = ["t h", "th e", "Ġ the", "Ã ©"]
MODEL = sc.random_model(sc.attention_only((2, 2)), d_vocab=12, seed=1)


def byte_level(names: list[str] = NAMES, merges: list[str] = MERGES, **more: Any) -> dict[str, Any]:
    """A byte-level BPE as GPT-2's, with few tokens, the first of which is special."""
    special = {"id": 0, "content": names[0], "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    bpe = {"type": "BPE", "vocab": {name: i for i, name in enumerate(names)}, "merges": merges}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": bpe, **more}  # fmt: skip


def word_piece() -> dict[str, Any]:
    names = ["[UNK]", "[CLS]", "[SEP]", "the", "##ing", "cat", "##s"]
    pieces = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100, "vocab": {name: i for i, name in enumerate(names)}}  # fmt: skip
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}}
    ends = {"type": "TemplateProcessing", "pair": [], "single": single, "special_tokens": special}
    return byte_level() | {
        "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": pieces, "post_processor": ends,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    }  # fmt: skip


def sentence_piece() -> dict[str, Any]:
    names = ["<unk>", "▁", "▁the", "t", "h", "e", "▁t", "he", "<0xE2>"]
    bpe = {"type": "BPE", "vocab": {n: i for i, n in enumerate(names)}, "merges": ["▁ t", "h e", "▁t he"],
           "unk_token": "<unk>", "byte_fallback": True}  # fmt: skip
    meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return byte_level() | {"added_tokens": [], "pre_tokenizer": meta, "model": bpe, "decoder": meta}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tokenizer.json; without the package the test is skipped."""
    pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    return written(tmp_path, byte_level())


def written(folder: Path, content: Any, name: str = "tokenizer.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


# -------------------------------------------------------------------------------------------------- names
def test_byte_level_tokens_show_what_they_decode_to(file: Path) -> None:
    labels = tokenizer_labels(file, MODEL)
    assert labels.names == ("<|end|>", "t", "h", "e", " ", "th", "the", " the", "\n", "\\xc3", "\\xa9", "é")
    assert (labels.of, labels.at(0, 8), labels.output(7), labels.output(0)) == (
        "tokenizer", "\\n", " the", "<|end|>",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (word_piece(), ("[UNK]", "[CLS]", "[SEP]", "the", "##ing", "cat", "##s", "7", "8")),
        (sentence_piece(), ("<unk>", " ", " the", "t", "h", "e", " t", "he", "<0xE2>")),
    ],
    ids=["WordPiece", "SentencePiece"],
)
def test_other_kinds_of_tokens(file: Path, content: Any, names: tuple[str, ...]) -> None:
    model = sc.random_model(sc.attention_only((1,)), d_vocab=9)
    assert tokenizer_labels(written(file.parent, content), model).names == names  # a number where there is no token


def test_every_byte_has_its_letter(file: Path) -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert set(tokenizing._bytes()) == set(ByteLevel.alphabet())
    assert sorted(tokenizing._bytes().values()) == list(range(256))
    assert (tokenizing._bytes()["Ġ"], tokenizing._bytes()["Ċ"]) == (32, 10)


def test_output_tokens_are_named_where_there_are_as_many(file: Path) -> None:
    model = sc.random_model(sc.attention_only((1,)), d_vocab=12, d_vocab_out=3)
    labels = tokenizer_labels(file, model)
    assert (labels.at(0, 1), labels.output(1)) == ("t", "1")


def test_another_models_tokenizer_is_refused(file: Path) -> None:
    small = sc.random_model(sc.attention_only((1,)), d_vocab=11)
    for read in (tokenizer_labels, encoder):
        with pytest.raises(ValueError, match="this tokenizer has 12 tokens, and the model's vocabulary 11"):
            read(file, small)


def test_labels_in_every_form(file: Path) -> None:
    from tokenizers import Tokenizer

    class Fast:
        backend_tokenizer = Tokenizer.from_file(str(file))

    whole = tokenizer_labels(file, MODEL)
    for labels in (file, str(file), Tokenizer.from_file(str(file)), Fast(), whole):
        assert any_labels(labels, 2, MODEL) == whole
        assert sc.explain(MODEL, [1, 7]).labelled(labels).labels == whole
        assert sc.explain_many(MODEL, [[1, 7]]).labelled(labels).labels == whole
    assert sc.explain_many(MODEL, [[1, 7]], tokenizer=file).labels == whole
    lines = written(file.parent, "\n".join(NAMES), "names.txt")
    for given_ in (lines, str(lines), NAMES):
        assert any_labels(given_, 2, MODEL).names == tuple(NAMES)
    assert any_labels(None, 2, MODEL) == Labels()


@pytest.mark.parametrize(
    ("name", "content", "is_one"),
    [
        ("a.json", '{"model": 3}', True),
        ("a.txt", ' \n{"model": 3}', True),
        ("a.txt", "{\n}\n", True),
        ("a.txt", "{\n|\n}\n", False),
        ("a.txt", '["{"]', False),
        ("a.txt", "{" * 100_000, False),
        ("a.txt", "", False),
    ],
)
def test_a_tokenizer_file_is_known_by_its_content(tmp_path: Path, name: str, content: str, is_one: bool) -> None:
    assert is_tokenizer_file(written(tmp_path, content, name)) is is_one


@given(st.text(), st.integers(2, 60))
def test_names_are_hostile_input(name: str, width: int) -> None:
    labels = Labels((name, "b"), "tokenizer")
    for shown in (labels.at(0, 0), labels.output(0)):
        assert shown == printable(name)
        assert all(c.isprintable() for c in shown)


def test_hostile_tokens_are_escaped_everywhere(file: Path) -> None:
    hostile = ["<end>", "<script>alert(1)</script>", "\x1b[2J", "\\input{x}$", "\u202eabc", "a" * 5000, "|", '"', "&"]
    content = byte_level()
    content |= {"pre_tokenizer": None, "decoder": None, "added_tokens": []}
    content["model"] |= {"vocab": {name: i for i, name in enumerate(hostile)}, "merges": []}
    model = sc.random_model(sc.attention_only((1,)), d_vocab=9)
    found = sc.explain(model, [1, 2, 3, 4, 5], by=sc.logit(2, against=1)).labelled(written(file.parent, content))
    page, text = found.html(), found.text(60)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page + text
    assert "\u202e" not in page + text
    assert 'token 2 "\\x1b[2J"' in text
    assert max(map(len, text.splitlines())) <= 60
    assert max(map(len, page.split("a" * 61))) == len(page)  # shortened
    many = sc.explain_many(model, [[1, 2]], by=sc.logit(2, against=1)).labelled(file).text(60)
    assert max(map(len, many.splitlines())) <= 60
    json.dumps(found.json(), allow_nan=False)


def test_a_blank_at_the_start_of_a_name_is_not_lost_where_lines_break(file: Path) -> None:
    found, many = (f(MODEL, given_, by=sc.logit(7, against=4)).labelled(file) for f, given_ in (
        (sc.explain, [1, 7]), (sc.explain_many, [[1, 7]]),
    ))  # fmt: skip
    assert 'logit of token 7 " the" at position 1' in unescape(found.html())
    for width in range(40, 100):
        for text in (found.text(width), many.text(width)):
            assert 'token 7 " the"' in " ".join(text.replace('" the"', '"_the"').split()).replace("_", " ")
            assert '" "' in text
            assert text.isascii()


def test_json_names_the_tokens_that_occur(file: Path) -> None:
    data = sc.explain(MODEL, [1, 7], by=sc.logit(8, against=0)).labelled(file).json()
    assert (data["labels_of"], data["labels"]) == ("tokenizer", {"0": "<|end|>", "1": "t", "7": " the", "8": "\n"})


# -------------------------------------------------------------------------------------------------- texts
@pytest.mark.parametrize(
    ("text", "tokens"),
    [("the the\n", [6, 7, 8]), ("<|end|>th", [0, 5]), ("é", [11]), ("", []), (" ", [4])],
)
def test_tokens_of_a_text(file: Path, text: str, tokens: list[int]) -> None:
    assert encoder(file, MODEL)(text) == tokens


def test_nothing_is_added_cut_or_padded(file: Path) -> None:
    short = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
               "pad_type_id": 0, "pad_token": "<|end|>"}  # fmt: skip
    cut = written(file.parent, byte_level(truncation=short, padding=padding))
    assert encoder(cut, MODEL)("thethethethe") == [6, 6, 6, 6]
    pieces = sc.random_model(sc.attention_only((1,)), d_vocab=9)
    assert encoder(written(file.parent, word_piece()), pieces)("the cats") == [3, 5, 6]  # no [CLS]


def test_a_given_tokenizer_is_not_changed(file: Path) -> None:
    from tokenizers import Tokenizer

    mine = Tokenizer.from_file(str(file))
    mine.enable_truncation(1)
    assert encoder(mine, MODEL)("the the") == [6, 7]
    assert mine.truncation["max_length"] == 1


def test_texts_among_prompts(file: Path) -> None:
    prompts = written(file.parent, '{"text": "the the", "target": 8}\n6,7\n', "prompts.jsonl")
    found = sc.explain_many(MODEL, prompts, tokenizer=file)
    assert (found.prompts, found.lengths.most) == (2, 2.0)
    other = sc.explain_many(MODEL, [{"tokens": [6, 7], "target": 8}, [6, 7]])
    assert found.columns() == other.columns()
    with pytest.raises(ValueError, match=r"prompt 1: the (tokenizer makes no tokens of|text .* has no tokens)"):
        sc.explain_many(MODEL, [{"text": "\ud800"}], tokenizer=file)
    with pytest.raises(ValueError, match="prompt 1: the text '' has no tokens"):
        sc.explain_many(MODEL, [{"text": ""}], tokenizer=file)


# ------------------------------------------------------------------------------------------- broken files
BROKEN = [
    "{}", "[]", "", "{", '{"model": 3}', json.dumps(byte_level(merges=["x y"])), '{"a":' * 10_000,
    json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b c"]}}),
    json.dumps(byte_level() | {"normalizer": {"type": "Replace", "pattern": {"Regex": "((("}, "content": ""}}),
    # this one panics in tokenizers 0.23
    json.dumps({"version": "1.0", "model": {
        "type": "BPE", "vocab": {"##a": 0, "b": 1, "ba": 2}, "merges": ["##a b"], "continuing_subword_prefix": "##"}}),
]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_file_is_a_plain_error(file: Path, content: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = written(file.parent, content)
    with pytest.raises(ValueError, match=re.escape(f"{path}: this is not a tokenizer.json (")) as fault:
        read_tokenizer(path)
    assert len(str(fault.value)) < 400
    assert capfd.readouterr() == ("", "")


def test_a_panic_is_a_plain_error(capfd: pytest.CaptureFixture[str]) -> None:
    class Panic(BaseException):
        pass

    def panics() -> None:
        import os

        os.write(2, b"thread panicked\n")
        raise Panic("index out of range\x1b")

    with pytest.raises(ValueError, match=r"no tokenizer \(index out of range\\x1b\)"):
        tokenizing._guarded("no tokenizer", panics)
    assert capfd.readouterr().err == ""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenizing._guarded("no tokenizer", interrupted)


def test_a_panic_while_a_text_is_read_prints_nothing(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A pattern that gives up on a text: the package panics there, not where the file is read."""
    gives_up = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}
    names = {f"a{i}": i for i in range(12)}
    words = {"type": "WordLevel", "vocab": names, "unk_token": "a0"}
    plain = byte_level() | {"added_tokens": [], "pre_tokenizer": None, "decoder": None, "model": words}
    path = written(file.parent, plain | {"normalizer": gives_up})
    with pytest.raises(ValueError, match=r"the tokenizer makes no tokens of 'aaa.*b' \(.*retry-limit-in-match over"):
        encoder(path, MODEL)("a" * 40 + "b")
    assert capfd.readouterr() == ("", "")


def test_files_that_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there is no such file"):
        read_tokenizer(tmp_path / "no.json")
    with pytest.raises(ValueError, match="this is a folder"):
        read_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b'{"\xff"')
    with pytest.raises(ValueError, match="is not UTF-8: invalid start byte at byte 2"):
        read_tokenizer(path)
    monkeypatch.setitem(LIMITS, "a tokenizer.json", 4)
    with pytest.raises(ValueError, match=r"this file has 5 bytes; a tokenizer.json has 4 at most"):
        read_tokenizer(path.write_text("{    ") and path)


@pytest.mark.parametrize("thing", [3, ["a"], object(), None])
def test_what_is_no_tokenizer(thing: Any) -> None:
    with pytest.raises(ValueError, match=r"a tokenizer is the path of a tokenizer.json, or an object"):
        read_tokenizer(thing)


def test_labels_that_are_none_of_the_forms() -> None:
    with pytest.raises(ValueError, match=r"labels must be a list of strings, .* or a tokenizer; there is no file abc"):
        sc.explain(MODEL, [1, 2]).labelled("abc")
    with pytest.raises(ValueError, match="labels must be a list of strings"):
        sc.explain(MODEL, [1, 2]).labelled(3)


# ------------------------------------------------------------------------------------ without the package
@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the package is not installed."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)


@pytest.mark.usefixtures("without")
def test_without_the_package_the_extra_is_named(tmp_path: Path, cli: Cli) -> None:
    path = str(written(tmp_path, byte_level()))
    install = "is read by the package tokenizers (pip install 'symcircuits[tokenizers]')"
    with pytest.raises(ValueError, match=re.escape(install)):
        read_tokenizer(path)
    model = str(Path(__file__).parent / "data" / "tl_plain_s0")
    for words in (["--labels", path], ["--tokenizer", path]):
        refused(cli("explain", model, "--tokens", "1,2", *words), install)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A model's folder with a tokenizer.json in it."""
    place = tmp_path / "model"
    place.mkdir()
    for part in (Path(__file__).parent / "data" / "tl_plain_s0").iterdir():
        if part.name in ("config.json", "model.safetensors"):
            (place / part.name).write_bytes(part.read_bytes())
    written(place, byte_level(NAMES[:9], MERGES[:3]))
    return str(place)


@pytest.mark.usefixtures("without")
def test_without_the_package_a_tokenizer_beside_the_model_is_noted(folder: str, cli: Cli) -> None:
    ran = cli("explain", folder, "--tokens", "1,2", "--token", "3")
    assert ran.code == 0
    assert ran.err.startswith("note: tokens are shown by number: ")
    assert ran.err.endswith("tokenizers (pip install 'symcircuits[tokenizers]')\n")
    assert "logit of token 3 at" in ran.out
    refused(cli("explain", folder, "--text", "the"), "pip install 'symcircuits[tokenizers]'")


# ---------------------------------------------------------------------------------------- the command line
@pytest.mark.usefixtures("file")
def test_a_tokenizer_beside_the_model_names_its_tokens(folder: str, cli: Cli) -> None:
    ran = cli("explain", folder, "--tokens", "6,7", "--token", "7")
    assert (ran.code, ran.err) == (0, "")
    assert 'logit of token 7 " the" at position 1' in " ".join(ran.out.split())
    by_text = cli("explain", folder, "--text", "the the", "--token", "7")
    assert by_text.out == ran.out
    prompts = written(Path(folder), '{"text": "the the"}\n[6, 7]\n', "prompts.jsonl")
    many = cli("explain", folder, "--prompts", str(prompts), "--token", "7")
    assert 'to the logit of token 7 " the", at' in many.out
    own = written(Path(folder), "\n".join(f"n{i}" for i in range(sc.load(folder).d_vocab)), "names.txt")
    assert 'token 7 "n7"' in cli("explain", folder, "--text", "the the", "--token", "7", "--labels", str(own)).out


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("command", ["largest", "summary", "sample", "verify", "explain"])
def test_every_command_that_takes_tokens_takes_a_text(folder: str, cli: Cli, command: str) -> None:
    by_text, by_tokens = (
        cli(command, folder, *words, "--json") for words in (["--text", "the the"], ["--tokens", "6,7"])
    )
    assert (by_text.code, by_text.err) == (0, "")
    one, other = by_text.json, by_tokens.json
    for timed in (one, other):
        timed.pop("seconds", None)
    assert one == other
    other = cli(command, folder, "--text", "the", "--json").json
    other.pop("seconds", None)
    assert one != other
    if command != "explain":
        refused(
            cli(command, folder, "--tokens", "6", "--tokenizer", "t.json"), "--tokenizer has no effect without --text"
        )
    if command == "verify":
        refused(cli(command, "--heads", "2", "--text", "the"), "--text needs a MODEL")
        refused(cli(command, "--general", "--text", "the"), "--text has no effect with --general")


@pytest.mark.usefixtures("file")
def test_one_that_cannot_be_used_is_noted(folder: str, cli: Cli) -> None:
    written(Path(folder), "{}")
    ran = cli("explain", folder, "--tokens", "6,7", "--token", "7")
    assert (ran.code, ran.err.count("\n")) == (0, 1)
    assert ran.err.startswith("note: tokens are shown by number: ")
    assert "logit of token 7 at" in ran.out
    written(Path(folder), byte_level([f"n{i}" for i in range(50)], []))
    assert "note: tokens are shown by number: this tokenizer has 50 tokens" in cli(
        "explain", folder, "--tokens", "6,7"
    ).err  # fmt: skip
    refused(cli("explain", folder, "--text", "the"), "this tokenizer has 50 tokens")


def test_texts_that_are_refused(file: Path, cli: Cli) -> None:
    model = str(Path(__file__).parent / "data" / "tl_plain_s0")
    given_ = written(file.parent, byte_level(NAMES[:9], MERGES[:3]))
    refused(cli("explain", model, "--text", "the"), "--text needs a tokenizer.json: give --tokenizer FILE")
    refused(cli("explain", model, "--text", "", "--tokenizer", str(given_)), "--text '' has no tokens")
    both = cli("explain", model, "--text", "the", "--tokens", "1", "--tokenizer", str(given_))
    refused(both, "give either --tokens or --text, not both")
    refused(cli("explain", model, "--tokens", "1", "--labels", str(given_.parent / "no")), "there is no such file")
    by_labels = cli("explain", model, "--text", "the", "--labels", str(given_), "--token", "8")
    assert 'token 8 "\\n"' in by_labels.out
