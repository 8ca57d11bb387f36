"""What reading a file takes: never more than a stated multiple of it, measured in a process of its own."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from test_tokenizing import byte_level

from symcircuits.explanation.tokenizer_growth import EACH, MOST, Growth, growth_of

if not Path("/proc/self/clear_refs").exists():
    pytest.skip("this system does not say how much memory a process has taken", allow_module_level=True)
SPARE = 48e6  # bytes: modules, buffers
JSON = 40  # times the file

# Reads what it is told; says how many bytes more than before it took at most, and what came of it.
CHILD = """
import resource, sys
from pathlib import Path
import numpy, symcircuits, symcircuits.explanation.tokenizers, symcircuits.cli.attachments
import symcircuits.explanation.tokenizer_growth as growth
from symcircuits.explanation.labels import read_label_file
from symcircuits.loaders.files import read_config, read_weights
resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
def peak():  # of this process alone: getrusage() knows that of the one that started it, too
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024
def spell(path):
    growth.MOST = 2**26
    model = symcircuits.random_model(symcircuits.attention_only((1,)), d_vocab=12)
    encode = symcircuits.explanation.tokenizers.encoder(path, model)
    most = growth.MOST // (symcircuits.explanation.tokenizers._read(path)[1].encoding * growth.EACH * 2)
    encode("a" * most)
    try:
        encode("a" * (most * 4))
        sys.exit("a text beyond the limit was read")
    except ValueError:
        pass
read = {"config": read_config, "labels": read_label_file, "weights": read_weights, "tokenizer": spell,
        "tables": symcircuits.explanation.tokenizers.read_tokenizer,
        "array": lambda p: symcircuits.cli.attachments.read_array(str(p))}[sys.argv[1]]
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = peak()
try:
    said = type(read(Path(sys.argv[2]))).__name__
except ValueError as fault:
    said = f"refused: {str(fault)[-300:]}"
print(peak() - before, said)
"""


def measured(kind: str, path: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", CHILD, kind, str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    taken, _, said = done.stdout.strip().partition(" ")
    return int(taken), said


FULL = {
    "objects": "config", "pairs": "config", "letters": "config", "lists": "config", "lines": "labels",
    "names": "labels", "wide": "labels", "header": "weights",
}  # fmt: skip


def content(what: str, size: int) -> bytes:
    """A file of about that many bytes that becomes as many of Python's objects as can be."""

    def repeated(piece: str, between: str = ",", around: str = "[]") -> bytes:
        many = between.join([piece] * (size // len((piece + between).encode())))
        return (around[:1] + many + around[1:]).encode()

    if what == "header":
        entry = '":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
        text = "{" + ",".join(f'"{i}{entry}' for i in range(size // 58)) + "}"
        return len(text).to_bytes(8, "little") + text.encode()
    return {
        "objects": repeated("{}"), "pairs": repeated('{"a":0}'), "letters": repeated('"\u0100"'),
        "lists": repeated("[[]]"), "lines": repeated("\n", "", ""), "names": repeated("ab\n", "", ""),
        "wide": repeated("\U0001f600a\n", "", ""),
    }[what]  # fmt: skip


@pytest.mark.parametrize("what", FULL)
@pytest.mark.sampled(2)
def test_json_and_lines_take_a_stated_multiple(tmp_path: Path, what: str) -> None:
    path = tmp_path / ("a.safetensors" if what == "header" else "config.json" if FULL[what] == "config" else "a.txt")
    raw = content(what, 2**22)
    path.write_bytes(raw)
    taken, _ = measured(FULL[what], path)
    assert taken < JSON * len(raw) + SPARE, taken / len(raw)


def bomb(path: Path, size: int) -> None:
    """An array of so many zero bytes, compressed to a thousandth."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("a.npy", "w") as file:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (size,)})
        file.write(header.getvalue())
        for _ in range(size // 2**20):
            file.write(bytes(2**20))


def test_an_archive_that_unpacks_to_a_thousand_times_its_size(tmp_path: Path) -> None:
    bomb(tmp_path / "a.npz", 400 * 2**20)
    for kind in ("weights", "array"):
        taken, said = measured(kind, tmp_path / "a.npz")
        assert "which is more than 32 times its size" in said
        assert taken < SPARE


@pytest.mark.parametrize(
    ("kind", "name"),
    [("labels", "a.txt"), ("labels", "a.json"), ("config", "config.json"), ("weights", "a.npz"), ("array", "a.npy"),
     ("weights", "a.safetensors"), ("tokenizer", "tokenizer.json"), ("weights", "a.pt")],
)  # fmt: skip
@pytest.mark.sampled(4)
def test_a_file_of_20_gigabytes_of_nothing(tmp_path: Path, kind: str, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        if name == "a.npy":
            shape = (20 * 2**30,)
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        file.truncate(20 * 2**30 + file.tell())
    taken, said = measured(kind, tmp_path / name)
    assert said.startswith("refused"), said
    assert taken < SPARE


# ------------------------------------------------------------------------------------------------ tokenizers
def replace(text: str, content: str, regex: bool = False) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": text}, "content": content}


def steps(*given: Any, of: str = "normalizers") -> dict[str, Any]:
    return {"type": "Sequence", of: list(given)}


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        (None, 1), (replace("a", "aaa"), 3), (replace("aa", "a"), 1), (replace("ab", "a" * 5), 3),
        (replace("", "abc"), 4), (replace("a", "abc", regex=True), 4), (replace(" ", "\u2581"), 3),
        (steps(replace("a", "a" * 10), replace("a", "a" * 10), replace("a", "a" * 10)), 1000),
        (steps(steps(replace("a", "aa")), {"type": "Prepend", "prepend": "\u2581"}), 8), ({"type": "NFKC"}, 11),
        ({"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABhYmMAYgA="}, 3), (steps(), 1),
        ({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}, 4),
    ],
)  # fmt: skip
def test_what_steps_make_of_a_byte(step: Any, factor: int) -> None:
    assert growth_of({"normalizer": step}).encoding == factor
    assert growth_of({"pre_tokenizer": step}).encoding == factor
    assert growth_of({"decoder": step}).decoding == factor


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([], "it is not a JSON object"),
        ({"normalizer": {"type": "Novel"}}, "its step 'Novel' is unknown"),
        ({"normalizer": {"pattern": {"String": "a"}, "content": "aa"}}, "its step 'None' is unknown"),
        ({"decoder": steps({"type": []}, of="decoders")}, r"its step '\[\]' is unknown"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}}, "is not base64"),
        ({"normalizer": steps(*[replace("a", "a" * 1000)] * 3), "added_tokens": [{"content": "aaa"}]},
         "it may make 1,000,000,000 bytes of each byte of its added tokens, which is too much"),
        ({"decoder": steps(*[replace("a", "a" * 1000)] * 3, of="decoders"), "model": {"vocab": {"aa": 0}}},
         "it may make 1,000,000,000 bytes of each byte of its tokens, which is too much"),
        ({"normalizer": replace("(?i)" + r"[^\p{L}]" * 200_000, "", regex=True)},
         "the tables of its tokens and patterns could take 3,200,008,000 bytes; 2,147,483,648 are allowed"),
        ({"model": {"vocab": [["a" * 1000 + str(i), 0.0] for i in range(6000)]}}, "the tables of its tokens"),
        ({"added_tokens": [{"content": "a" * 22_000_000}]}, "the tables of its tokens"),
    ],
)  # fmt: skip
def test_tokenizers_that_are_not_run(said: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        growth_of(said)


def test_the_text_that_a_tokenizer_is_given() -> None:
    Growth(4, 1, 100).check_text(MOST // (4 * (EACH + 100)))
    with pytest.raises(ValueError, match=r"this text has 447,393 bytes, and this tokenizer is given 447,392 at most"):
        Growth(4, 1, 100).check_text(MOST // (4 * (EACH + 100)) + 1)


SPLIT = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize("change", [{}, {"pre_tokenizer": SPLIT}, {"normalizer": steps(replace("a", "a" * 20))},
                                    {"pre_tokenizer": SPLIT, "normalizer": replace("a", "\u0100")}])  # fmt: skip
@pytest.mark.sampled(2)
def test_tokenizing_takes_what_is_stated(tmp_path: Path, change: dict[str, Any]) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(json.dumps(byte_level() | change))
    taken, said = measured("tokenizer", tmp_path / "tokenizer.json")
    assert said == "NoneType", said
    assert taken < 2**26 + SPARE, taken / 2**26


def letters(count: int) -> list[str]:
    """So many tokens of 1000 letters that share nothing."""
    rng = Random(0)
    return ["".join(rng.choices("abcdefgh", k=1000)) for _ in range(count)]


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"normalizer": replace("(?i)" + r"[^\p{L}]" * 6000, "", regex=True)}, 2000 * 48_000),
        ({"model": {"type": "Unigram", "unk_id": 0, "vocab": [[t, -1.0] for t in letters(300)]}}, 400 * 300_000),
        ({"added_tokens": [{"id": 9 + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                            "normalized": True, "special": False} for i, t in enumerate(letters(300))]}, 100 * 300_000),
    ],
    ids=["patterns", "tokens", "added"],
)  # fmt: skip
@pytest.mark.sampled(1)
def test_tables_take_what_is_stated(tmp_path: Path, change: dict[str, Any], allowed: int) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(json.dumps(byte_level(added_tokens=[]) | change))
    taken, said = measured("tables", tmp_path / "tokenizer.json")
    assert said == "Tokenizer"
    assert allowed / 10 < taken < allowed + SPARE, taken / allowed


def test_three_replacements_that_make_gigabytes_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    from symcircuits import attention_only, random_model
    from symcircuits.explanation.tokenizers import encoder

    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(byte_level(added_tokens=[]) | {"normalizer": steps(*[replace("a", "a" * 1000)] * 3)}))
    encode = encoder(file, random_model(attention_only((1,)), d_vocab=12))
    with pytest.raises(ValueError, match=r"this text has 1 bytes, and this tokenizer is given 0 at most"):
        encode("a")
