"""Tokens in every form that a person has them in: lists, arrays of any integer type, tensors; and what is none."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcircuits as sc
from symcircuits.model.tokens import read_tokens

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", ">i4"]
MODEL = sc.random_model(sc.attention_only((1,)), d_vocab=9)


class Tensor:
    """A stand-in for a tensor of torch: an array, unless it is on another device or of a type that NumPy lacks."""

    def __init__(self, values: Any, dtype: str = "torch.int64", refuses: Exception | None = None) -> None:
        self.values, self.dtype, self.refuses = np.asarray(values), dtype, refuses
        self.ndim = self.values.ndim

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.refuses is not None:
            raise self.refuses
        return self.values

    def __len__(self) -> int:
        return len(self.values)

    def detach(self) -> "Tensor":
        return self

    def cpu(self) -> "Tensor":
        return Tensor(self.values, self.dtype)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.sampled_from(INTEGERS), st.booleans())
def test_every_form_is_the_same_run(tokens: list[int], dtype: str, row: bool) -> None:
    array = np.array([tokens] if row else tokens, dtype)
    forms: list[Any] = [
        array,
        array.tolist(),
        tuple(array.tolist()),
        Tensor(array),
        list(array),
        np.asfortranarray(array),
    ]
    forms += [[tuple(tokens)]] if row else [[np.dtype(dtype).type(t) for t in tokens]]
    wanted = MODEL.run(tokens).logits
    for form in forms:
        found = read_tokens(form, 9)
        assert found.dtype == np.int64
        assert found.tolist() == array.tolist()
        logits = MODEL.run(form).logits
        assert np.array_equal(logits[0] if row else logits, wanted)


def test_a_tensor_on_another_device() -> None:
    away = Tensor([1, 2], refuses=TypeError("can't convert cuda:0 device type tensor to numpy"))
    assert read_tokens(away, 9).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.array([True, False]), r"this array holds bool, such as True at position 0"),
        (np.array([1.0, 2.0]), r"this array holds float64, such as 1\.0 at position 0; convert it to integers if"),
        (np.array([1.0, 2.5], np.float16), r"this array holds float16, such as 2\.5 at position 1"),
        (np.array([1 + 0j]), "this array holds complex128"),
        (np.array(["1"]), "this array holds <U1"),
        ([1.0], r"1\.0 at position 0 is not a token"),
        ([True], "True at position 0 is not a token"),
        ([Tensor(True, "torch.bool")], "at position 0 is not a token"),
        (Tensor([1.0], "torch.float32"), r"this array holds float64, such as 1\.0 at position 0"),
        (
            Tensor([1.0], "torch.bfloat16", TypeError("Got unsupported ScalarType BFloat16")),
            r"this is a Tensor of torch\.bfloat16, and cannot be read: Got unsupported ScalarType BFloat16",
        ),
        (
            Tensor([1.0], "torch.float32", RuntimeError("Can't call numpy() on Tensor that requires grad.")),
            r"this is a Tensor of torch\.float32, and cannot be read",
        ),
        (np.zeros((2, 2, 2), int), "this array has 3 axes"),
        (np.array([2**64 - 1], np.uint64), "token 18446744073709551615 at position 0 is out of range"),
        (np.array([-1], np.int8), "token -1 at position 0 is out of range"),
        ("12", "not '12'"),
        ({1, 2}, r"not \{1, 2\}"),
    ],
)
def test_what_is_no_tokens(tokens: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_tokens(tokens, 9)


def test_small_integers_and_a_large_vocabulary() -> None:
    for dtype in ("int8", "uint8"):
        assert read_tokens(np.array([1, 100], dtype), 50_257).tolist() == [1, 100]


def test_many_rows_are_a_batch_here_and_prompts_there() -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6]])
    assert sc.explain(MODEL, rows, by=sc.logit(row=1)).run.tokens.shape == (2, 3)
    assert sc.explain_many(MODEL, rows).prompts == 2
    assert sc.explain_many(MODEL, [Tensor(rows[0]), Tensor(rows[:1])]).prompts == 2
    with pytest.raises(ValueError, match="prompt 1: a prompt is one row of tokens, but this has 2: give each row"):
        sc.explain_many(MODEL, [rows])
