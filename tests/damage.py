"""Files as they come from hostile hands or bad disks: bytes flipped, cut, moved; values of JSON replaced."""

import json
import os
from collections.abc import Iterator
from random import Random
from typing import Any

# How many times as many damaged files are tried as in an ordinary run.
TIMES = int(os.environ.get("SYMCIRCUITS_FUZZ", "1"))

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "0", "a\u0000b",
    "\ud800", "../../etc/passwd", "x" * 3000, [], {}, [[]], [None], {"a": 1}, [1, "2"], [[[[1]]]],
)  # fmt: skip


def damaged(raw: bytes, rng: Random) -> bytes:
    """A file with one to three things done to it that disks, networks and hands do."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 8, 64))
        match rng.randrange(8):
            case 0 | 1 | 2 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 3:
                del data[at:]
            case 4:
                data[at : at + size] = rng.randbytes(len(data[at : at + size]))
            case 5:
                data[at : at + size] = bytes(len(data[at : at + size]))
            case 6:
                data[at:at] = data[:size]
            case _:
                del data[at : at + size]
    return bytes(data)


def replaced(value: Any, rng: Random) -> Any:
    """The same JSON with one value, at any depth, exchanged for an odd one, left out, or said twice."""
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.2:
        return rng.choice(ODD)
    if isinstance(value, list):
        at = rng.randrange(len(value))
        return rng.choice((
            [*value[:at], replaced(value[at], rng), *value[at + 1 :]], value[:at] + value[at + 1 :],
            [*value, value[at]],
        ))  # fmt: skip
    key = rng.choice(list(value))
    match rng.randrange(4):
        case 0:
            return {k: v for k, v in value.items() if k != key}
        case 1:
            return {**value, str(rng.choice(ODD)): value[key]}
    return {**value, key: replaced(value[key], rng)}


def files_of(raw: bytes, count: int, seed: int, text: bool = False) -> Iterator[bytes]:
    """So many damaged files; of JSON (``text``) half of them with other values."""
    rng = Random(seed)
    for number in range(count * TIMES):
        if text and number % 2:
            yield json.dumps(replaced(json.loads(raw), rng)).encode()
        else:
            yield damaged(raw, rng)
