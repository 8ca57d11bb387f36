"""Damaged and hostile files of every kind: plain errors, no silent wrong numbers, nothing executed, memory bounded.

``SYMCIRCUITS_FUZZ=20`` tries twenty times as many.
"""

import io
import json
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from damage import ODD, TIMES, damaged, files_of
from safetensors.numpy import load_file, save
from test_cli import Cli, cli, refused
from test_tokenizing import byte_level

import symcircuits as sc
from symcircuits.cli.attachments import read_array
from symcircuits.explanation.labels import read_label_file
from symcircuits.explanation.prompts import BadPrompt, Prompts
from symcircuits.explanation.tokenizers import any_labels, encoder
from symcircuits.loaders import arrayfile
from symcircuits.loaders.files import read_config, read_weights
from symcircuits.work.files import LIMITS

__all__ = ["cli"]  # a fixture
INDEX = "model.safetensors.index.json"
MODEL = sc.random_model(sc.attention_only((1,)), d_vocab=12)
WEIGHTS = {"embed.W_E": np.arange(24.0).reshape(6, 4), "n": np.arange(5), "f": np.asfortranarray(np.ones((3, 2), "f4"))}


def npz(arrays: dict[str, Any] = WEIGHTS, compressed: bool = False) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    place = tmp_path / "model"
    shutil.copytree(data / "tl_bias_s1", place)
    return place


def outcome(read: Callable[[], Any]) -> tuple[Any, str]:
    """What is read, or what the ValueError says; any other class of error fails the test."""
    try:
        return read(), ""
    except ValueError as fault:
        return None, str(fault)


# ------------------------------------------------------------------------------------------ damage at any place
def same(found: Any, whole: dict[str, Any]) -> bool:
    return found.keys() == whole.keys() and all(
        found[k].dtype == w.dtype and np.array_equal(found[k], w) for k, w in whole.items()
    )


@pytest.mark.parametrize("compressed", [False, True])
def test_an_npz_is_read_as_it_was_or_refused(tmp_path: Path, compressed: bool) -> None:
    path, raw, kept = tmp_path / "a.npz", npz(compressed=compressed), 0
    path.write_bytes(raw)
    assert same(read_weights(path).weights, WEIGHTS)
    for content in files_of(raw, 600, seed=compressed):
        path.write_bytes(content)
        stored, fault = outcome(lambda: read_weights(path))
        kept += stored is not None
        assert fault.startswith(f"{path}: ") if stored is None else same(stored.weights, WEIGHTS)
    assert kept  # dates and the like


def test_a_file_of_torch_is_read_as_it_was_or_refused(tmp_path: Path, torch: Any) -> None:
    path, weights = tmp_path / "a.pt", {k: torch.tensor(w) for k, w in WEIGHTS.items()}
    torch.save(weights, path)
    raw = path.read_bytes()
    assert (same(read_weights(path).weights, WEIGHTS), read_weights(path).notes) == (True, ())
    for content in files_of(raw, 300, seed=2):
        path.write_bytes(content)
        stored, fault = outcome(lambda: read_weights(path))
        assert fault.startswith(f"{path}: ") if stored is None else same(stored.weights, WEIGHTS)
    torch.save(weights, path, _use_new_zipfile_serialization=False)
    stored = read_weights(path)
    assert same(stored.weights, WEIGHTS)
    assert "has no checksum: damage to its numbers is not seen" in stored.notes[0]
    torch.save({"a": torch.zeros(1).expand(10**6, 10**6)}, path)
    with pytest.raises(ValueError, match=r"a\.pt: it unpacks to 4,000,000,000,000 bytes, which is more than 32 times"):
        read_weights(path)
    torch.save({"a": torch.eye(2).to_sparse()}, path)
    with pytest.raises(ValueError, match=r"a.pt: (a cannot be read as an array|torch reads no tensors)"):
        read_weights(path)


def test_what_a_file_of_torch_would_run_is_not_run(tmp_path: Path, torch: Any) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    torch.save({"a": torch.zeros(1), "b": Evil()}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Evil()))
    (tmp_path / "c.npz").write_bytes(pickle.dumps(Evil()))
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as packed:
        packed.writestr("a.npy", npy(np.array([1, None], object)) + pickle.dumps(Evil()))
    for name in ("a.pt", "b.pt", "c.npz", "d.npz"):
        with pytest.raises(ValueError, match=name):
            read_weights(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def tokenizer_file() -> bytes:
    return json.dumps(byte_level()).encode()


def line(given: bytes, folder: Path) -> None:
    (folder / "prompts.jsonl").write_bytes(given)
    for number, read in Prompts(MODEL, folder / "prompts.jsonl").entries():
        try:
            found = read(number)
        except BadPrompt:
            continue
        assert found.tokens.dtype == np.int64
        assert ((found.tokens >= 0) & (found.tokens < 12)).all()


def reader(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    def do(given: bytes, folder: Path) -> Any:
        (folder / name).write_bytes(given)
        return read(folder / name)

    return do


def named(path: Path) -> None:
    assert all(isinstance(name, str) for name in any_labels(path, 2, MODEL).names)


def spell(path: Path) -> None:
    assert all(type(n) is int for n in encoder(path, MODEL)("the thé\n"))


def compare(path: Path) -> None:
    model = sc.random_model(sc.attention_only((1,)), d_vocab=12, seed=1)
    found = sc.compare_with_reference(model, path)
    json.dumps(found.json(), allow_nan=False)
    found.text(60)


def recorded() -> dict[str, Any]:
    run = sc.random_model(sc.attention_only((1,)), d_vocab=12, seed=1).run([1, 2, 3])
    return {"tokens": run.tokens, "logits": run.logits, "blocks.0.attn.hook_pattern": run.patterns["L0H0"][None]}


PROMPTS = b'{"tokens": [3, 1], "target": 4, "against": 2, "position": -1}\n[1, 2, 3]\n3,4\n{"text": "a"}\n'
KINDS: dict[str, tuple[bytes, bool, Callable[[bytes, Path], Any]]] = {
    "safetensors": (save(WEIGHTS), False, reader("a.safetensors", read_weights)),
    "npy": (npy(np.ones((2, 3))), False, reader("a.npy", lambda p: read_array(str(p)))),
    "config": (b'{"n_layers": 2, "act_fn": "relu", "n_ctx": [1, {"a": 2}]}', True, reader("config.json", read_config)),
    "labels": (json.dumps([f"n{i}" for i in range(12)]).encode(), True, reader("labels.txt", named)),
    "labels.json": (json.dumps(["a", "b"]).encode(), True, reader("labels.json", read_label_file)),
    "tokenizer": (tokenizer_file(), True, reader("tokenizer.json", spell)),
    "prompts": (PROMPTS, False, line),
    "a prompt": (PROMPTS.split(b"\n")[0], True, line),
    "reference": (npz(recorded()), False, reader("reference.npz", compare)),
    "reference.safetensors": (save(recorded()), False, reader("reference.safetensors", compare)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_or_refused_in_plain_words(tmp_path: Path, kind: str) -> None:
    raw, text, read = KINDS[kind]
    if kind == "tokenizer":
        pytest.importorskip("tokenizers")
    read(raw, tmp_path)
    said = [outcome(partial(read, content, tmp_path))[1] for content in files_of(raw, 150, 3, text)]
    assert any(said) or kind in ("labels", "prompts", "a prompt")  # a line that is wrong is refused by itself


def test_a_damaged_model_is_loaded_or_refused_by_name(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    shard_of = dict.fromkeys(weights, "a.safetensors")
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    index = json.dumps({"metadata": {}, "weight_map": shard_of}).encode()
    (folder / INDEX).write_bytes(index)
    whole = sc.load(folder)
    for content in files_of(index, 100, 4, text=True):
        (folder / INDEX).write_bytes(content)
        found, fault = outcome(lambda: sc.load(folder))
        assert (
            fault.startswith(str(folder))
            if found is None
            else all(np.array_equal(found.weights[k], w) for k, w in whole.weights.items())
        )
    for name in (INDEX, "a.INDEX.json"):
        (folder / INDEX).write_text(json.dumps({"weight_map": {**shard_of, "embed.W_E": name}}))
        with pytest.raises(ValueError, match=r"is an index, but must be a file of weights"):
            sc.load(folder)


# A weight of 1e200, which no checksum of safetensors shows, overflows in the bounds of rounding.
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_every_command_says_one_line(folder: Path, cli: Cli, tmp_path: Path) -> None:
    rng, whole = Random(5), {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    given = {"labels.txt": b"a\nb\nc\n", "prompts.jsonl": PROMPTS, "reference.npz": whole["reference.npz"],
             "probe.npy": npy(np.ones(16)), "model.safetensors": whole["model.safetensors"]}  # fmt: skip
    for name, raw in [pair for pair in given.items() for _ in range(8 * TIMES)]:
        for known, content in (whole | given).items():
            (folder / known).write_bytes(content)
        (folder / name).write_bytes(damaged(raw, rng))
        at = [str(folder / n) for n in given]
        words = ["explain", str(folder), "--tokens", "1,2,3", "--html", str(tmp_path / "page.html")]
        extra = {"labels.txt": ["--labels", at[0]], "probe.npy": ["--readout", at[3]], "model.safetensors": []}
        if name == "prompts.jsonl":
            ran = cli("explain", str(folder), "--prompts", at[1])
        elif name == "reference.npz":
            ran = cli("verify", str(folder), "--reference", at[2], "--max-terms", "10")
        else:
            ran = cli(*words, *extra[name])
        assert ran.code in (0, 1, 2), ran
        assert "Traceback" not in ran.err
        assert ran.code != 2 or ran.err.splitlines()[-1].startswith("symcircuits "), ran.err
        assert not list(tmp_path.glob(".page*"))


@pytest.mark.parametrize(("said", "message"), [("", "not enough memory"), ("of 9 GB", "not enough memory (of 9 GB)")])
def test_too_little_memory_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch, said: str, message: str) -> None:
    def full(*_: Any) -> Any:
        raise MemoryError(said)

    monkeypatch.setattr("symcircuits.loaders.load", full)
    refused(cli("explain", str(Path(__file__).parent / "data" / "tl_bias_s1"), "--tokens", "1"), message)


# ------------------------------------------------------------------------------------------------- by name
def header(text: str) -> bytes:
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode()


def archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in members.items():
            packed.writestr(name + ".npy", content)
    return buffer.getvalue()


def say(descr: Any = "<f4", shape: str = "(3,)", more: str = "") -> bytes:
    return header(f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}{more}}}")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (archive(a=say(shape="(3,")[:-1] + bytes(12)), "a: its header"),
        (archive(a=header("{'descr': '<f4', 'fortran_order': False, 'shape': (3,")), "a: its header is not a desc"),
        (archive(a=say(shape="(True,)") + bytes(12)), "a: the shape in its header is not a tuple of sizes"),
        (archive(a=say(shape="(-1,)") + bytes(12)), "a: the shape in its header is not a tuple of sizes"),
        (archive(a=say(shape="[3]") + bytes(12)), "a: the shape in its header is not a tuple of sizes"),
        (archive(a=say(shape="(1,)" * 1 + "", more=", 'x': 1") + bytes(4)), "a: its header must have the keys"),
        (archive(a=say(shape="(" + "1," * 33 + ")") + bytes(4)), "a: its header has more than 32 axes"),
        (archive(a=say("<U0", "(1000000000000,)")), "a: the type in its header is neither a number nor text: '<U0'"),
        (archive(a=say("<f4,<f4") + bytes(24)), "a: the type in its header is neither a number nor text"),
        (archive(a=say("<f99") + bytes(24)), "a: the type in its header is neither a number nor text"),
        (archive(a=header("(" * 9000)), "a: its header is not a description of an array"),
        (archive(a=say(shape="(2,)") + bytes(12)), "a: its header promises 8 bytes of numbers, not 12"),
        (archive(a=b"\x93NUMPY\x09\0" + bytes(9)), "a: it is of version 9.0 of the format, which is not supported"),
        (archive(a=b"words"), "a: it is not a .npy file"),
        (archive(a=npy(1.0), b=npy(2.0)).replace(b"b.npy", b"a.npy"), "a appears twice"),
    ],
)  # fmt: skip
def test_headers_and_names_of_archives(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(ValueError, match=r"a\.npz: .*" + message):
        read_weights(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("at", "byte", "message"),
    [
        (38, 0x10, "a.npy is marked as a folder"),  # torch would give memory that nobody wrote
        (20, 0x00, "a.npy has two sizes, 0 and 128 bytes"),
        (32, 0x10, "a.npy has a comment|Bad|Truncated|Corrupt"),  # which could hide the record behind it
        (16, 0x00, "a.*: Bad CRC-32 for file 'a.npy'"),
    ],
)
def test_what_readers_of_archives_understand_differently(tmp_path: Path, at: int, byte: int, message: str) -> None:
    raw = bytearray(archive(a=npy(np.zeros(0)), b=npy(np.ones(2))))
    raw[raw.index(b"PK\x01\x02") + at] = byte
    (tmp_path / "a.npz").write_bytes(raw)
    for read in (read_weights, arrayfile.check_records):
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "a.npz")


def test_what_python_2_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(archive(a=say(shape="(3L,)") + bytes(12)))
    assert read_weights(tmp_path / "a.npz").weights["a"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["a config", "an index of shards", "a list of labels", "a tokenizer.json"])
def test_every_kind_of_file_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    names = {"a config": ("config.json", read_config), "an index of shards": (INDEX, read_config),
             "a list of labels": ("labels.txt", read_label_file),
             "a tokenizer.json": ("tokenizer.json", spell)}  # fmt: skip
    name, read = names[kind]
    (tmp_path / name).write_bytes(b"x" * 101)
    monkeypatch.setitem(LIMITS, kind, 100)
    with pytest.raises(ValueError, match=rf"{name}: this file has 101 bytes; {kind} has 100 at most"):
        read(tmp_path / name)
    for place, what in (("/dev/zero", "a device or a pipe, which may never end"), (tmp_path, "a folder, not")):
        with pytest.raises(ValueError, match=f"this is {what}"):
            read(Path(place))


def test_devices_and_pipes_are_not_read(cli: Cli, folder: Path) -> None:
    for option in ("--labels", "--tokenizer", "--reference", "--readout"):
        ran = cli("explain", str(folder), "--tokens", "1,2", option, "/dev/zero")
        refused(ran, "/dev/zero: this is")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file whose reading fails")
def test_a_file_that_cannot_be_read_is_named(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """As on a failing disk: the system refuses the read, and not the opening."""
    for name in ("x.txt", "x.json", "x.npy", "x.npz", "x.safetensors"):
        (tmp_path / name).symlink_to("/proc/self/mem")
    tokens = ["explain", folder, "--tokens", "1,2"]
    for arguments, name in (
        ([*tokens, "--labels", tmp_path / "x.txt"], "x.txt"),
        ([*tokens, "--tokenizer", tmp_path / "x.json"], "x.json"),
        (["explain", folder, "--prompts", tmp_path / "x.txt"], "x.txt"),
        ([*tokens, "--readout", tmp_path / "x.npy"], "x.npy"),
        ([*tokens, "--readout", tmp_path / "x.npz"], "x.npz"),
        (["verify", folder, "--tokens", "1,2", "--reference", tmp_path / "x.npz"], "x.npz"),
        (["verify", folder, "--tokens", "1,2", "--reference", tmp_path / "x.safetensors"], "x.safetensors"),
    ):
        refused(cli(*map(str, arguments)), f"{tmp_path / name}: cannot be read (Input/output error)")


def test_a_formula_from_standard_input_that_is_not_there(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    refused(cli("check", "-", "--heads", "2"), "standard input is closed: give the formula itself instead of -")
    monkeypatch.setattr(sys, "stdin", io.StringIO("x" * 3_000_000))
    refused(cli("check", "-", "--heads", "2"), "characters; at most 2,000,000 are read")


# ---------------------------------------------------------------------------------------------- wrong types
@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_labels_and_prompts_of_wrong_types(tmp_path: Path, odd: Any) -> None:
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(["a", odd]))
    if isinstance(odd, str):
        assert read_label_file(path) == ["a", odd]
    else:
        with pytest.raises(ValueError, match=r"labels.json: label 1 is not a string but"):
            read_label_file(path)
    for item in (odd, {"tokens": odd}, {"tokens": [1, odd]}, {"tokens": [1], "target": odd}, {"text": odd}):
        line(json.dumps(item).encode(), tmp_path)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "complex": lambda a: a.astype(complex), "text": lambda a: a.astype(str), "objects": lambda a: a.astype(object),
    "no axes": lambda a: a.flat[0], "nothing": lambda a: a[:0], "dates": lambda a: np.zeros(a.shape, "M8[s]"),
    "records": lambda a: np.zeros(a.shape, [("a", "<f4")]), "nan": lambda a: np.full(a.shape, np.nan),
    "many axes": lambda a: a.reshape((1,) * 9 + a.shape), "large": lambda a: np.full(a.shape, 2**63, np.uint64),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [*recorded(), "blocks.0.attn.hook_attn_scores"])
def test_a_reference_of_wrong_types_does_not_pass(tmp_path: Path, name: str, change: str) -> None:
    model = sc.random_model(sc.attention_only((1,)), d_vocab=12, seed=1)
    whole = recorded() | {"blocks.0.attn.hook_attn_scores": recorded()["blocks.0.attn.hook_pattern"]}
    arrays = {**whole, name: CHANGES[change](whole[name])}
    np.savez(tmp_path / "reference.npz", **arrays)
    for given in (arrays, tmp_path / "reference.npz"):
        try:
            found = sc.compare_with_reference(model, given)
        except ValueError:
            continue
        assert not found.ok or (name, change) == ("tokens", "objects")
    with pytest.raises(ValueError, match="logits cannot be read as an array"):
        sc.compare_with_reference(model, {"tokens": [1], "logits": [[1], [1, 2]]})
