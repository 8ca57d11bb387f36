"""Files that hold weights: shards, mapped and hostile safetensors, files of torch; whole, or refused by name."""

import json
import shutil
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save, save_file

import symcircuits as sc
from symcircuits.cli.main import main
from symcircuits.loaders import arrayfile, files, tensorfile
from symcircuits.loaders.files import read_weights
from symcircuits.loaders.tensorfile import open_safetensors, read_safetensors
from symcircuits.model import needs
from symcircuits.work.memory import free_memory

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    place = tmp_path / "model"
    shutil.copytree(data / "tl_bias_s1", place)
    return place


def shards(folder: Path, count: int = 3) -> dict[str, str]:
    """The model's file as that many, and the map from weights to files that its index holds."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    shard_of = {name: names[i % count] for i, name in enumerate(weights)}
    for shard in names:
        save_file({k: w for k, w in weights.items() if shard_of[k] == shard}, folder / shard)
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": shard_of}))
    return shard_of


# ------------------------------------------------------------------------------------------------- shards


def test_shards_are_the_same_model(folder: Path, data: Path) -> None:
    shards(folder)
    expected = sc.load(data / "tl_bias_s1").run([1, 2, 3]).logits
    for place in (folder, folder / INDEX):
        assert np.array_equal(sc.load(place).run([1, 2, 3]).logits, expected)


def spoil_index(change: Callable[[dict[str, str]], Any]) -> Callable[[Path, dict[str, str]], None]:
    def spoil(folder: Path, shard_of: dict[str, str]) -> None:
        (folder / INDEX).write_text(json.dumps({"weight_map": change(dict(shard_of))}))

    return spoil


def lose(*numbers: int) -> Callable[[Path, dict[str, str]], None]:
    return lambda folder, _: [(folder / f"model-{n:05}-of-00003.safetensors").unlink() for n in numbers] and None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lose(2), r"index.json: 1 of its 3 files is missing: model-00002-of-00003.safetensors$"),
        (lose(1, 3), r"2 of its 3 files are missing: model-00001-of-00003.safetensors, model-00003-of-00003.safet"),
        (spoil_index(lambda m: m | {"novel": m["embed.W_E"]}), "this file lacks what the index says is there: novel"),
        (spoil_index(lambda m: {k: v for k, v in m.items() if k != "embed.W_E"}), "index does not name: embed.W_E"),
        (spoil_index(lambda m: m | {"embed.W_E": "../../secret.safetensors"}), "secret.safetensors' is not a name"),
        (spoil_index(lambda m: m | {"embed.W_E": 3}), "an index has a weight_map from the names"),
        (spoil_index(lambda m: list(m)), "an index has a weight_map from the names"),
        (lambda folder, _: (folder / INDEX).write_text("{"), "index.json: this is not JSON"),
        (lambda folder, _: (folder / "model.npz").write_bytes(b""), "there are both model.npz and model.safetensors.i"),
    ],
)  # fmt: skip
def test_shards_that_are_not_whole(folder: Path, spoil: Callable[[Path, dict[str, str]], None], message: str) -> None:
    spoil(folder, shards(folder))
    with pytest.raises(ValueError, match=message):
        sc.load(folder)


# -------------------------------------------------------------------------------------------------- memory


def test_a_big_file_needs_its_size_once(tmp_path: Path) -> None:
    weights = {f"w{i}": np.full((1000, 500), i, np.float64) for i in range(10)}  # 40 MB
    save_file(weights, tmp_path / "big.safetensors")
    tracemalloc.start()
    try:
        stored = read_safetensors(tmp_path / "big.safetensors")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert all(np.array_equal(stored.weights[k], w) for k, w in weights.items())
    assert peak < 1.2 * 40e6, peak


def test_a_model_does_not_change_when_its_file_does(folder: Path) -> None:
    model = sc.load(folder)
    before = model.weights["W_E"].copy()
    raw = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(bytes(len(raw)))
    assert np.array_equal(model.weights["W_E"], before)


def test_too_little_memory_is_said_before_anything_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorfile, "free_memory", lambda: 1000)
    monkeypatch.setattr(tensorfile.TensorFile, "read", lambda self, stays: pytest.fail("it was read"))
    message = r"reading these weights takes 0\.0 GB of memory; 0\.0 GB are free"
    with pytest.raises(ValueError, match=message):
        sc.load(folder)
    shards(folder)
    with pytest.raises(ValueError, match=message):
        sc.load(folder)


def big(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on files count as large."""
    monkeypatch.setattr(tensorfile, "MAPPED", 100)


def test_a_large_file_is_mapped_and_not_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = sc.load(folder)
    size = sum(w.nbytes for w in load_file(folder / "model.safetensors").values())
    big(folder, monkeypatch)
    model = sc.load(folder)
    assert f"{size / 1e9:.1f} GB of weights stay in the file and are not copied" in model.notes[-1]
    assert model.notes[:-1] == small.notes
    assert all(np.array_equal(model.weights[k], w) for k, w in small.weights.items())
    assert np.array_equal(model.run([1, 2, 3]).logits, small.run([1, 2, 3]).logits)
    raw = (folder / "model.safetensors").read_bytes()
    with (folder / "model.safetensors").open("r+b") as file:  # the same file, changed in place
        file.seek(len(raw) - size)
        file.write(bytes(size))
    assert not any(w.any() for w in model.weights.values())
    shards(folder)
    assert "of weights stay in the file" in sc.load(folder).notes[-1]


def test_what_reading_takes_is_said_first(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    words = ["explain", str(folder), "--tokens", "1,2", "--top", "1"]
    assert main(words) == 0
    assert capsys.readouterr().err == ""  # small files need no word
    big(folder, monkeypatch)
    monkeypatch.setattr(files, "free_memory", lambda: 3 * 10**9)
    said = "0.0 GB of weights: they stay in the file, reading them takes 0.0 GB of memory (3.0 GB are free)"
    assert main(words) == 0
    assert capsys.readouterr().err == f"{folder}: {said}\n"
    shards(folder)
    assert main(words) == 0
    assert said in capsys.readouterr().err
    (folder / INDEX).write_text('{"weight_map": ["../x.safetensors"]}')
    assert main(words) == 2  # refused as ever
    assert "an index has a weight_map from the names" in capsys.readouterr().err


def test_a_mapped_file_needs_memory_for_what_is_widened_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big(folder, monkeypatch)
    monkeypatch.setattr(tensorfile, "free_memory", lambda: 1000)
    assert sc.load(folder).d_model == 16
    save_bfloat16(folder)
    with pytest.raises(ValueError, match=r"reading these weights takes 0\.0 GB of memory"):
        sc.load(folder)
    monkeypatch.setattr(tensorfile, "free_memory", lambda: 10**6)
    assert sc.load(folder).notes[-1].startswith("weights stored as bfloat16")


def save_bfloat16(folder: Path) -> None:
    """The same weights, each number cut to its upper half."""
    entries, data = {}, b""
    for name, w in load_file(folder / "model.safetensors").items():
        part = (w.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        entries[name] = {"dtype": "BF16", "shape": list(w.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    (folder / "model.safetensors").write_bytes(file_of(entries, data))


def test_a_run_that_takes_too_much_memory_says_so_before_it_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sc.load(folder)
    monkeypatch.setattr(needs, "_LITTLE", 0)  # runs as small as this are not asked for otherwise
    monkeypatch.setattr(needs, "free_memory", lambda: 2000)
    message = r"a run of this model on tokens of shape \[3\] in float64 takes 0\.0 GB of memory, and 0\.0 GB are free"
    with pytest.raises(ValueError, match=message):
        model.run([1, 2, 3])
    monkeypatch.setattr(needs, "free_memory", lambda: None)  # where the system does not say, it is tried
    assert model.run([1, 2, 3]).logits is not None
    large = sc.random_model(sc.attention_only((2,)), d_vocab=50, d_model=40, d_head=20)
    needed = needs._needed(large, np.arange(3), np.dtype(np.float64))
    assert needed == 8 * 3 * ((1 + 1 + 2) * 40 + 2 * 50 + 3 * 2 * 3)
    assert needs._needed(large, np.arange(3), np.dtype(np.float32)) == needed // 2 + 4 * 50 * 40


def test_converted_weights_are_kept_while_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "_LEAST_KEPT", 90)
    monkeypatch.setattr(needs, "free_memory", lambda: 0)
    stored = {"W_E": np.ones((4, 5), np.float32), "a": np.ones(10, np.float32), "b": np.ones(3, np.float32)}
    w = needs.Converted(stored, np.dtype(np.float64))
    assert {name: w[name].dtype.name for name in w} == dict.fromkeys(stored, "float64")
    assert w["a"] is w["a"]
    assert w["b"] is not w["b"]
    assert needs.Converted(stored, np.dtype(np.float32))["b"] is stored["b"]
    assert needs.embedded(w, np.array([1, 2, 1])).dtype == np.float64


def test_an_npz_that_unpacks_to_more_than_there_is_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(folder / "model.npz", **{"embed.W_E": np.zeros((1000, 1000))})
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(arrayfile, "free_memory", lambda: 10**6)
    with pytest.raises(ValueError, match=r"model\.npz: .*it unpacks to 0\.0 GB, and 0\.0 GB of memory are free"):
        sc.load(folder)


def test_the_memory_that_is_free() -> None:
    free = free_memory()
    assert free is None or free > 2**20


# ---------------------------------------------------------------------------------------------- hostile headers


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(start: int, end: int, shape: Any = None, dtype: Any = "F64") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - start) // 8] if shape is None else shape, "data_offsets": [start, end]}


TWICE = b'{"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}, "a": {"dtype": "F64", "shape": [1], ' \
    b'"data_offsets": [0, 8]}}'  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (file_of({"a": entry(0, 8)}, length=2**63), f"its header should have {2**63} bytes, and 61 follow"),
        (file_of({"a": entry(0, 16), "b": entry(8, 24)}, bytes(24)), "damaged: b overlaps the one before"),
        (file_of({"a": entry(0, 8), "b": entry(0, 8)}, bytes(8)), "damaged: b overlaps the one before"),
        (file_of({"a": entry(0, 8), "b": entry(16, 24)}, bytes(24)), "damaged: b leaves 8 bytes before it unused"),
        (file_of({"a": entry(0, 800)}, bytes(8)), "cut off: its header promises 800 bytes of weights, not 8"),
        (file_of({"a": entry(0, 8)}, bytes(16)), "8 bytes at its end belong to no weight"),
        (file_of(TWICE, bytes(8)), "its header cannot be read .'a' appears twice"),
        (file_of({"a": entry(0, 8, [2])}, bytes(8)), r"a \[2\] of F64 takes 16 bytes, and the file gives it 8"),
        (file_of({"a": entry(0, 8, [2**40, 2**40])}, bytes(8)), "the header is damaged: a"),
        (file_of({"a": entry(0, 8, [1], "F32")}, bytes(8)), "takes 4 bytes, and the file gives it 8"),
        (file_of({"a": entry(0, 8, [-1])}, bytes(8)), "'a' has no valid dtype and shape"),
        (file_of({"a": entry(0, 8, [1] * 40)}, bytes(8)), "'a' has no valid dtype and shape"),
        (file_of({"a": entry(0, 8, [True])}, bytes(8)), "'a' has no valid dtype and shape"),
        (file_of({"a": entry(0, 8, [1], 7)}, bytes(8)), "'a' has no valid dtype and shape"),
        (file_of({"a": entry(0, 8, [1], "X9")}, bytes(8)), "a is stored as X9, which is not supported"),
        (file_of({"a": entry(8, 0, [1])}, bytes(8)), "'a' has data_offsets that are not a start and an end"),
        (file_of({"a": entry(0, 8) | {"data_offsets": [0]}}, bytes(8)), "'a' has data_offsets that are not a start"),
        (file_of({"a": {"dtype": "F64"}}), "'a' must have a dtype, a shape and data_offsets"),
        (file_of({"a": [1]}), "'a' must have a dtype, a shape and data_offsets"),
        (file_of(b'{"a":' * 200_000 + b"1" + b"}" * 200_000), "not a safetensors file: its header cannot be read"),
        (file_of(b'{"\xff": 1}'), "this is not a safetensors file: its header cannot be read"),
    ],
)  # fmt: skip
def test_a_header_is_not_believed(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "a.safetensors").write_bytes(raw)
    with pytest.raises(ValueError, match=message) as error:
        read_weights(tmp_path / "a.safetensors")
    assert str(tmp_path) in str(error.value)


def test_a_header_longer_than_the_format_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorfile, "MAX_HEADER", 10)
    (tmp_path / "a.safetensors").write_bytes(file_of({"a": entry(0, 8)}, bytes(8)))
    with pytest.raises(ValueError, match="its header has 61 bytes; the format allows 10"):
        open_safetensors(tmp_path / "a.safetensors")


@example(b"}", True)  # a whole file, of no weights
@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_give_another_kind_of_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, framed: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.safetensors"
    path.write_bytes(file_of(b"{" + raw) if framed else raw)
    with pytest.raises(ValueError, match=r"a\.safetensors"):
        read_weights(path)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "uint16", "bool"])
def test_what_the_formats_own_writer_writes_is_read(tmp_path: Path, dtype: str) -> None:
    weights = {"a": np.arange(6).reshape(2, 3).astype(dtype), "b": np.ones((), dtype), "c": np.ones((0, 3), dtype)}
    (tmp_path / "a.safetensors").write_bytes(save(weights, {"format": "np"}))
    stored = read_safetensors(tmp_path / "a.safetensors")
    assert dict(stored.dtypes) == dict.fromkeys("abc", dtype)
    assert all(np.array_equal(stored.weights[k], w) and stored.weights[k].dtype == w.dtype for k, w in weights.items())


def test_a_half_precision_overflow_is_reported(folder: Path) -> None:
    weights = {k: v.astype(np.float16) for k, v in load_file(folder / "model.safetensors").items()}
    weights["embed.W_E"][1, 2] = np.inf
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"W_E holds inf at \[1, 2\]; .* \(float16 ends at 65504: it may have overfl"):
        sc.load(folder)


# --------------------------------------------------------------------------------------------------- torch


class Tensor:
    """What a tensor of torch is to the loader."""

    def __init__(self, array: Any, dtype: str = "") -> None:
        self.array, self.dtype = np.asarray(array), f"torch.{dtype or np.asarray(array).dtype}"

    def detach(self) -> "Tensor":
        return self

    def float(self) -> "Tensor":
        return Tensor(self.array.astype(np.float32))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.dtype == "torch.bfloat16":
            raise TypeError("NumPy has no bfloat16")
        return self.array


def stand_in(monkeypatch: pytest.MonkeyPatch, found: Any, version: str = "2.13.0+cpu") -> list[dict[str, Any]]:
    """A torch whose load gives `found` (or raises it); the keywords that it was called with."""
    calls: list[dict[str, Any]] = []

    def load(path: Any, **words: Any) -> Any:
        calls.append(words)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(load=load, __version__=version))
    return calls


@pytest.fixture
def pickled(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    weights = {k: Tensor(v) for k, v in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return folder, weights


@pytest.mark.parametrize("inside", [None, "state_dict", "model_state_dict", "model", "net", "model/state_dict"])
def test_tensors_are_read_by_torch_and_nothing_else(
    pickled: tuple[Path, dict[str, Tensor]], data: Path, monkeypatch: pytest.MonkeyPatch, inside: str | None
) -> None:
    folder, weights = pickled
    found: Any = weights
    for name in reversed(inside.split("/") if inside else []):
        found = {name: found, "step": 3, "optimizer": {"state": {}}}
    calls = stand_in(monkeypatch, found)
    assert np.array_equal(sc.load(folder).run([1, 2]).logits, sc.load(data / "tl_bias_s1").run([1, 2]).logits)
    assert calls == [{"map_location": "cpu", "weights_only": True}]


def test_bfloat16_of_torch(pickled: tuple[Path, dict[str, Tensor]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, weights = pickled
    stand_in(monkeypatch, {k: Tensor(np.ones(t.array.shape), "bfloat16") for k, t in weights.items()})
    assert sc.load(folder).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("found", "version", "message"),
    [
        (ValueError("Weights only load failed. More"), "2.6.0", r"from this file \(Weights only load failed\)"),
        ([1, 2], "2.6", "this file holds a list, not named tensors"),
        ({"a": Tensor([1.0]), "epoch": 3}, "2.13.0", "epoch is a int, not a tensor"),
        (
            {"optimizer": {"state": {}}, "epoch": 3}, "2.13.0",
            r"several entries of this file may be the weights: optimizer \(a dict\), epoch \(a int\); save",
        ),
        ({"model": {"a": Tensor([1.0])}, "state_dict": {"a": Tensor([1.0])}}, "2.6", r"model \(a dict\), state_dict"),
        ({"ema": {"a": Tensor([1.0])}, "best": {"a": Tensor([1.0])}}, "2.6", r"ema \(a dict\), best \(a dict\)"),
        ({"model": {"model": {"model": {"model": {"model": {}}}}}}, "2.6", "holds no tensors by name, 4 levels deep"),
        ({}, "2.5.1", r"torch 2\.5\.1 is not used to read this file: before 2\.6 weights_only=True can still run code"),
        ({}, "1.13", r"torch 1\.13 is not used"),
        (OSError(5, "Input/output error"), "2.6", "cannot be read .Input/output error"),
    ],
)  # fmt: skip
def test_files_of_torch_that_are_not_read(
    pickled: tuple[Path, dict[str, Tensor]], monkeypatch: pytest.MonkeyPatch, found: Any, version: str, message: str
) -> None:
    stand_in(monkeypatch, found, version)
    with pytest.raises(ValueError, match=message):
        sc.load(pickled[0])


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "other.bin"])
def test_without_torch_it_is_said_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    path = (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(ValueError, match=r"needs torch, which is not installed \(pip install 'symcircuits\[torch\]'\)"):
        sc.load(path)


def test_a_real_file_of_torch(torch: Any, folder: Path, data: Path) -> None:
    weights = {k: torch.tensor(v) for k, v in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "model.pt")
    assert np.array_equal(sc.load(folder).run([1, 2]).logits, sc.load(data / "tl_bias_s1").run([1, 2]).logits)
    torch.save({"model": weights, "evil": Tensor}, folder / "model.pt")
    with pytest.raises(ValueError, match="torch reads no tensors from this file"):
        sc.load(folder)


def test_half_precision_that_overflows_is_named(folder: Path) -> None:
    """On the way into the file, and in a run; never passed on silently."""
    weights = {k: w.astype(np.float16) for k, w in load_file(folder / "model.safetensors").items()}
    with np.errstate(over="ignore"):
        stored = {**weights, "blocks.1.attn.W_V": (weights["blocks.1.attn.W_V"] * np.float16(6e4)) * np.float16(9e3)}
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"W_V.* holds .*inf at .*float16 ends at 65504: it may have overflowed"):
        sc.load(folder)
    large = {k: np.full_like(w, 6e4) if ".W_" in k else w for k, w in weights.items()}
    save_file(large, folder / "model.safetensors")
    model = sc.load(folder)
    with pytest.raises(ValueError, match=r"the scores of L1H0 leave the range of float32: .* try dtype float64"):
        model.run([1, 2, 3], np.float32)
    run = model.run([1, 2, 3])  # float64 holds them
    assert all(np.isfinite(a).all() for a in (run.logits, *run.streams, *run.patterns.values()))
