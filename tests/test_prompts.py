"""Prompts: the forms of a line, what is refused and by which number, that they are read one at a time."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.explanation.prompts import LONGEST_LINE, BadPrompt, Prompts

MODEL = sc.random_model(sc.attention_only((1,), "standard"), d_vocab=9, n_context=6)
BARE = sc.random_model(sc.attention_only((1,), unembed=False), d_vocab=9)


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "prompts.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


LINES = st.lists(st.tuples(st.sampled_from("clbo"), st.lists(st.integers(0, 8), min_size=1, max_size=6)), min_size=1)


@given(lines=LINES)
def test_every_form_of_a_line_is_the_same_prompt(lines: list[tuple[str, list[int]]], tmp_path_factory: Any) -> None:
    forms = {
        "c": lambda t: ",".join(map(str, t)),
        "l": json.dumps,
        "b": lambda t: " \t".join(map(str, t)) + " \r",
        "o": lambda t: json.dumps({"tokens": t, "target": t[0]}),
    }
    path = written(tmp_path_factory.mktemp("p"), "\n".join(forms[form](tokens) for form, tokens in lines))
    found = list(Prompts(MODEL, path))
    assert [p.tokens.tolist() for p in found] == [tokens for _, tokens in lines]
    assert [p.number for p in found] == list(range(1, len(lines) + 1))
    assert [p.target for p in found] == [t[0] if form == "o" else None for form, t in lines]


def test_empty_lines_count_and_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeff1,2\n\n  \n[3]\n\n")
    assert [(p.number, p.tokens.tolist()) for p in Prompts(MODEL, path)] == [(1, [1, 2]), (4, [3])]


def test_all_keys_of_an_object(tmp_path: Path) -> None:
    line = '{"tokens": [1, 2], "target": 3, "against": 4, "position": 0}\n{"tokens": [1], "target": null}'
    first, second = Prompts(MODEL, written(tmp_path, line))
    assert (first.target, first.against, first.position) == (3, 4, 0)
    assert (second.target, second.against, second.position) == (None, None, None)


BAD = [
    ("1,2,9", "token 9 at position 2 is out of range: the vocabulary has 9 tokens, 0 to 8"),
    ("1,-2", "token -2 at position 1 is out of range"),
    ("[1, 2, 9]", "token 9 at position 2 is out of range"),
    ("1 2 3 4 5 6 7", r"7 tokens are too many: the position table has 6 rows \(n_ctx = 6\)"),
    ("[]", "there are no tokens"),
    ("1,,2", "a number is missing between the commas; a line holds ids such as 3,1,4"),
    ("1,2,", "a number is missing between the commas"),
    ("the cat", "'the' is not a token id"),
    ("1.5", r"'1\.5' is not a token id"),
    ("1" * 30, "is not a token id"),
    ("\u0661,\u0662", "is not a token id"),
    ("[1.0, 2]", "1.0 at position 0 is not a token"),
    ("[true]", "True at position 0 is not a token"),
    ("[[1, 2], [3, 4]]", "a prompt is one row of tokens, but this has 2: give each row separately"),
    ("[1, 2", "this line starts like JSON, but is not valid JSON"),
    ("[NaN]", "nan at position 0 is not a token"),
    ('["1"]', "'1' at position 0 is not a token"),
    ("[" * 100_000, "nested too deep"),
    ("{}", "this prompt has neither tokens nor text"),
    ('{"tokens": [1], "text": "a"}', "this prompt has both tokens and text"),
    ('{"tokens": [1], "tokens": [2]}', "'tokens' appears twice in this line"),
    ('{"tokens": [1], "targets": 3}', "'targets' is not a key of a prompt; the keys are tokens, text, target"),
    ('{"tokens": 3}', "a prompt is a list of token ids"),
    ('{"tokens": "12"}', "a prompt is a list of token ids"),
    ('{"tokens": [1], "target": 9}', "target 9 does not exist: there are 9, counted from 0"),
    ('{"tokens": [1], "target": -1}', "target -1 does not exist"),
    ('{"tokens": [1], "target": true}', "target must be a whole number, not True"),
    ('{"tokens": [1], "against": 2}', "against is the second token of a difference"),
    ('{"tokens": [1], "target": 2, "against": 2}', "the logit of token 2 with itself is 0"),
    ('{"tokens": [1], "position": 1}', "position 1 does not exist: there is 1"),
    ('{"text": "a"}', "this prompt is a text, but no tokenizer is given"),
    (b"\xff1,2", "this line is not UTF-8: invalid start byte at byte 0"),
]


@pytest.mark.parametrize(("line", "what"), BAD, ids=range(len(BAD)))
def test_a_bad_line_is_refused_by_its_number(tmp_path: Path, line: str | bytes, what: str) -> None:
    raw = line.encode() if isinstance(line, str) else line
    path = written(tmp_path, b"1,2\n\n" + raw + b"\n3\n")
    with pytest.raises(BadPrompt, match=what) as fault:
        list(Prompts(MODEL, path))
    assert fault.value.number == 3
    assert str(fault.value).startswith(f"{path}, line 3: ")
    assert len(str(fault.value)) < 400
    read = [number for number, _ in Prompts(MODEL, path).entries()]
    assert read == [1, 3, 4]  # one that is refused does not end the reading


def test_a_line_without_end_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path, b"1\n" + b"1," * (LONGEST_LINE // 2 + 10))
    with pytest.raises(BadPrompt, match=f"line 2: this line is longer than {LONGEST_LINE:,} bytes"):
        list(Prompts(MODEL, path))


def test_a_model_without_unembedding_has_no_logits(tmp_path: Path) -> None:
    with pytest.raises(BadPrompt, match="line 1: this model has no unembedding"):
        list(Prompts(BARE, written(tmp_path, '{"tokens": [1], "target": 2}')))


class Tensor:
    """What turns into an array, as a tensor does."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values

    def __len__(self) -> int:
        return len(self.values)


def test_prompts_from_python() -> None:
    given_: list[Any] = [
        [1, 2], (3,), np.array([4, 5], np.uint8), np.array([[6, 7]]), Tensor([1, 8]), {"tokens": [2]},
        {"text": "ab", "target": 3},
    ]  # fmt: skip
    found = list(Prompts(MODEL, given_, encode=lambda text: [ord(c) - 97 for c in text]))
    assert [p.tokens.tolist() for p in found] == [[1, 2], [3], [4, 5], [6, 7], [1, 8], [2], [0, 1]]
    assert [p.tokens.tolist() for p in Prompts(MODEL, np.array([[1, 2], [3, 4]]))] == [[1, 2], [3, 4]]
    assert [p.tokens.tolist() for p in Prompts(MODEL, iter([[1]]))] == [[1]]
    assert Prompts(MODEL, [[1]]).again
    assert not Prompts(MODEL, iter([[1]])).again


@pytest.mark.parametrize(
    ("prompts", "what"),
    [
        ([[1], [np.float64(2)]], "prompt 2: .* is not a token"),
        ([[1], np.array([[1], [2]])], "prompt 2: a prompt is one row of tokens, but this has 2"),
        ([[1], []], "prompt 2: there are no tokens"),
        ([1, 2, 3], "prompt 1: a prompt is a list of token ids, .*, not 1"),
        (["the cat"], "prompt 1: this prompt is a text, but no tokenizer is given"),
        ([{"text": 3}], "prompt 1: the text of a prompt must be a string, not 3"),
        ([None], "prompt 1: a prompt is a list of token ids, .*, not None"),
        ([b"12"], "prompt 1: a prompt is a list of token ids"),
        ([np.array([True])], "prompt 1: .*bool"),
        ([np.array([1.0])], "prompt 1: .*convert it to integers"),
    ],
)
def test_bad_prompts_from_python(prompts: Any, what: str) -> None:
    with pytest.raises(BadPrompt, match=what):
        list(Prompts(MODEL, prompts))


def test_a_text_without_tokens_is_refused() -> None:
    with pytest.raises(BadPrompt, match="prompt 1: the text '' has no tokens"):
        list(Prompts(MODEL, [{"text": ""}], encode=lambda text: []))


@pytest.mark.parametrize("prompts", [3, b"1,2", {"tokens": [1]}, None])
def test_what_is_no_prompts(prompts: Any) -> None:
    with pytest.raises(TypeError, match="prompts must be the path of a file or an iterable of prompts"):
        Prompts(MODEL, prompts)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="prompts file not found"):
        Prompts(MODEL, tmp_path / "none.txt")
    with pytest.raises(IsADirectoryError, match="this is a folder"):
        Prompts(MODEL, str(tmp_path))


def test_prompts_are_read_one_at_a_time(tmp_path: Path) -> None:
    path = written(tmp_path, "1\n2\nbad\n")
    prompts = iter(Prompts(MODEL, path))
    assert [next(prompts).tokens.tolist(), next(prompts).tokens.tolist()] == [[1], [2]]
    with pytest.raises(BadPrompt):
        next(prompts)
