"""The benchmarks: that one command gives whole tables and says what is absent, and that what they check can fail."""

import doctest
import importlib
import itertools
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "benchmarks"
SCRIPTS = ("terms", "values", "reductions", "circuits", "deep", "workers", "tensors", "gpt2", "growth", "accuracy")
THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """The modules of the benchmarks by name; what they set of the environment is put back."""
    with pytest.MonkeyPatch.context() as patch:
        for name in THREADS:
            patch.setenv(name, "1")
        patch.syspath_prepend(str(FOLDER))
        names = ("results", "measuring", "peers", "plain_terms", *(f"bench_{name}" for name in SCRIPTS))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python tests/benchmarks`` with these arguments."""
    command = [sys.executable, str(FOLDER), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", env={**os.environ, **environment}, check=False
    )


# ------------------------------------------------------------------------------------------ the one command
@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All of it at tiny sizes: what it printed, and its two files."""
    folder = tmp_path_factory.mktemp("benchmarks")
    done = run("--quick", "--readme", "--json", str(folder / "t.json"), "--markdown", str(folder / "t.md"))
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "t.json").read_text("utf-8"))
    return SimpleNamespace(done=done, found=found, markdown=(folder / "t.md").read_text("utf-8"))


def test_the_table_is_whole(bench: Any, quick: Any) -> None:
    rows = [row for row in quick.found["rows"] if row["kind"] == "Row"]
    peers = {row["peer"] for row in rows}
    assert peers >= {
        "FORM, commuting", "FORM, noncommuting", "FORM, commuting, text", "FORM, noncommuting, text",
        "plain NumPy, products", "plain NumPy, types", "plain loop, labels", "plain loop, text",
        "plain loop, five columns", "SymPy's lambdify, as it is", "Python -c pass",
        "python-flint, commuting", "SymPy, noncommuting", "einsum over all paths, NumPy",
        "einsum over all paths, torch", "one lambdify of the list, built, called",
        "one lambdify a term, built, called", "dgemm", "sgemm",
        "stack_head_results, unembedded, NumPy", "stack_head_results, unembedded, torch",
        "each pair of paths by itself, cached", "einsum of all pairs, parts of the stream cached",
        "full logits, einsum over all paths, NumPy", "a forward pass, model.run", "a forward pass, bare NumPy",
        "brute force, head-space tree", "25 lines of NumPy", "plain loop, d x d", "TransformerLens's formula, NumPy",
    }  # fmt: skip
    installed = {"torch": "torch", "python-flint": "python-flint", "FORM": "FORM"}
    for row in rows:
        missing = [name for name, word in installed.items() if word in row["peer"] and name in quick.found["absent"]]
        assert (row["theirs"] is None) == bool(missing) or row["peer"] in ("", "dgemm", "sgemm")
        assert row["ours"] is None or row["ours"] > 0
        if row["unit"] == "x" and row["figure"] is not None:
            assert row["figure"] == row["theirs"] / row["ours"]
    arrays = {row["what"]: row for row in rows if " in arrays of " in row["what"]}
    assert len(arrays) == 9
    assert (arrays["values in arrays of JAX"]["figure"] is None) == ("JAX" in quick.found["absent"])
    assert sum(row["memory"] is not None for row in rows) > len(rows) / 3


def test_every_kind_of_line_is_there_and_printed(quick: Any) -> None:
    rows, printed = quick.found["rows"], quick.done.stderr.splitlines()
    assert {row["kind"] for row in rows} == {"Row", "Growth", "Accuracy", "Summing"}
    assert sum(line.startswith("|") for line in quick.markdown.splitlines()) == len(rows) + 2 * 4
    assert len(printed) >= len(rows)
    for name in SCRIPTS:
        assert any(line.startswith(f"({name}: ") for line in printed)
    absent = quick.found["absent"]
    assert printed[0].endswith(f"not installed: {', '.join(absent) or 'no peer'}")
    assert ("not installed" in quick.markdown.partition("\n\n")[2]) == any(name != "SymPy" for name in absent)


def test_growth_has_the_spread_and_what_is_predicted(quick: Any) -> None:
    found = [row for row in quick.found["rows"] if row["kind"] == "Growth"]
    assert {row["what"] for row in found} == {
        "values of all terms", "all sums by order", "norms of all terms", "terms as integers, with types",
    }  # fmt: skip
    for of in ("values of all terms", "all sums by order", "norms of all terms"):
        over = " ".join(row["over"] for row in found if row["what"] == of)
        assert all(axis in over for axis in ("layers", "heads", "n, ", "d_model", "V, "))
    assert all(row["low"] <= row["exponent"] <= row["high"] for row in found)


def test_what_the_page_shows_is_in_short(quick: Any) -> None:
    shown = quick.done.stdout
    assert "Ways to add" not in shown
    assert "| size | of | error, float64 |" in shown
    assert shown.splitlines()[0] == quick.markdown.splitlines()[0]


def test_the_page_has_the_tables(bench: Any) -> None:
    text = (ROOT / "docs" / "speed.md").read_text("utf-8")
    for kind in (bench.results.Row, bench.results.Growth, bench.results.Digest):
        assert f"| {' | '.join(kind.columns)} |" in text


def test_a_peer_that_is_absent_is_said_to_be(tmp_path: Path) -> None:
    done = run("--quick", "--only", "terms", "--markdown", str(tmp_path / "t.md"), PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "FORM" in done.stdout.splitlines()[0].partition("not installed: ")[2]
    rows = [line.split(" | ") for line in (tmp_path / "t.md").read_text("utf-8").splitlines() if "FORM," in line]
    assert len(rows) == 4
    assert all(cells[5] == "not installed" and not cells[3] for cells in rows)


def test_a_script_that_fails_is_said_to_and_the_others_still_run(tmp_path: Path) -> None:
    form = tmp_path / "form"
    form.write_text("#!/bin/sh\necho terms=1\n", "utf-8")
    form.chmod(0o755)
    done = run("--quick", "--only", "terms,accuracy", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 1
    assert "bench_terms.py failed" in done.stderr
    assert "Ways to add" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "speed"], "there is no benchmark 'speed'"),
        (["--rounds", "0"], "--rounds is 1 or more"),
        (["--json", "no/such/folder/t.json"], "does not exist"),
        (["--model", "no/such/model"], "--model no/such/model: there is no such folder"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(arguments: list[str], said: str) -> None:
    done = run("--quick", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("why", ["reader", "key"])
def test_it_ends_in_a_word_where_nobody_waits_for_it(why: str) -> None:
    command = [sys.executable, str(FOLDER), "--quick", "--only", "values,reductions"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()  # the machine: from now on a script is under way
    process.stdout.close() if why == "reader" else process.send_signal(signal.SIGINT)
    errors = process.stderr.read()
    if why == "key":
        process.stdout.close()
    process.stderr.close()
    assert (process.wait(60), "Traceback" in errors) == (141 if why == "reader" else 130, False)
    assert why == "reader" or errors == "interrupted\n"


# ------------------------------------------------------------------------------------------------- lines
def test_examples_of_the_benchmarks(bench: Any) -> None:
    for module in (bench.results, bench.measuring, bench.bench_accuracy):
        failed, tried = doctest.testmod(module)
        assert tried
        assert not failed


def test_verdicts(bench: Any) -> None:
    Row = bench.results.Row
    at_least = [Row("w", "s", "p", figure=figure, limit=4.5).verdict for figure in (4.5, 4.4, None)]
    at_most = [Row("w", "s", "p", figure=figure, limit=8, most=True).verdict for figure in (8, 8.1)]
    assert at_least == ["ok", "below", "no peer"]
    assert at_most == ["ok", "above"]
    assert Row("w", "s", "p", figure=1).verdict == ""
    assert Row("w", "s", "p").cells()[5] == "not installed"
    assert Row("w", "s").cells()[5] == ""


def test_lines_come_back_from_json(bench: Any) -> None:
    r = bench.results
    lines = [
        r.beside("w", "s", "p|q", 2.0, 0.5, limit=3), r.beside("w", "s", "r", None, 0.5),
        r.Growth("w", "n", 1.0, 2.0, 1.5, 1.4, 1.6, 1.5), r.Summing("s", "float64", 1.0, "plain", 0.0, 0.0, 1.0, 1.0),
        r.Accuracy("s", "logits", "float64", 1.0, 2, 1e-16, 2e-16, 12.0, 9.0, 100.0, 1),
    ]  # fmt: skip
    assert [r.from_json(r.as_json(line)) for line in lines] == lines
    table = r.markdown(lines)
    assert r"| w | s | p\|q | 2 | 0.5 | 4x | >= 3: ok |" in table
    assert "|  |  | r |  | 0.5 | not installed |" in table  # what the line before is about too
    assert "| < 100: ok 1 refused: out of range |" in table


def test_accuracy_in_short(bench: Any) -> None:
    r = bench.results
    lines = [
        r.Accuracy("s", "logits", dtype, scale, 2, error, 1.0, ratio, least)
        for dtype, scale, error, ratio, least in (
            ("float64", 1.0, 1e-16, 12.0, 9.0), ("float64", 100.0, 3e-16, 10.0, 4.0),
            ("float32", 1.0, 1e-7, 11.0, 8.0), ("float32", 100.0, None, None, None),
        )
    ]  # fmt: skip
    assert r.digest(lines) == [r.Digest("s", "logits", (1e-16, 12.0, 4.0), (1e-7, 11.0, 8.0))]
    above = r.Accuracy("s", "logits", "float64", 1.0, 2, 1e-16, 1e-16, 130.0, 90.0, 100.0)
    assert above.cells()[-1] == "< 100: above"


# --------------------------------------------------------------------------------------- what is measured
@given(st.floats(-2, 3), st.floats(1e-6, 1e3), st.lists(st.integers(1, 10**6), min_size=4, max_size=8, unique=True))
def test_exponents_are_found(bench: Any, exponent: float, factor: float, sizes: list[int]) -> None:
    assert math.isclose(bench.measuring.fit(sizes, [factor * s**exponent for s in sizes]), exponent, abs_tol=1e-9)


def test_steps_are_those_of_every_path(bench: Any) -> None:
    size = bench.peers.Size("", (2, 3, 1), 7, 5, 3, 4)
    n, d, h, v = size.n, size.d_model, size.d_head, size.d_vocab
    found = {"steps": 0, "logits": 0, "first": set(), "links": set()}
    for path in itertools.product(*([None, *range(k)] for k in size.heads)):
        heads = [(layer, k) for layer, k in enumerate(path) if k is not None]
        if heads:
            found["first"].add(heads[0])
            found["logits"] += 2 * n * h * v
            found["links"] |= set(itertools.pairwise(heads))
            if len(heads) > 1:  # what stands before its last head is shared with another path
                found["steps"] += 2 * n * h * h + 2 * n * n * h
    assert size.steps() == {
        "direct": 2 * n * d * v, "reads": 6 * 2 * v * d * h, "steps": found["steps"], "logits": found["logits"],
        "first": len(found["first"]) * (2 * n * d * h + 2 * n * n * h), "links": len(found["links"]) * 2 * d * h * h,
    }  # fmt: skip


def test_peers_that_compute_something_else_are_seen(bench: Any) -> None:
    size = bench.peers.SIZES["tiny"]
    made = size.run()
    right = bench.peers.einsum_paths(made, "NumPy")().sum(0)
    bench.bench_values.sums_to_logits(made, right)
    wrong = right.copy()
    wrong[-1, 0] *= 1 + 1e-6
    with pytest.raises(AssertionError):
        bench.bench_values.sums_to_logits(made, wrong)


@pytest.mark.parametrize("size", ["tiny", "record"])
def test_both_peers_give_the_same(bench: Any, size: str) -> None:
    made = bench.peers.SIZES[size].run()
    logits = bench.peers.einsum_paths(made, "NumPy")()
    apart = bench.peers.einsum_paths(made, "NumPy", "difference")()
    assert np.allclose(logits[:, -1, 3] - logits[:, -1, 5], apart)
    other = bench.peers.einsum_paths(made, "torch")
    if other is None:
        assert bench.peers.torch is None
    else:
        assert np.allclose(other().numpy().sum(0), logits.sum(0))


def test_ways_to_add_differ_as_they_say(bench: Any) -> None:
    hard = [np.array([x]) for x in [1.0, 1e16, *[1.0] * 6, -1e16] * 3]
    ways, exact = bench.bench_accuracy.WAYS, math.fsum(float(x[0]) for x in hard)
    error = {name: abs(float(ways[name](hard)[0]) - exact) for name in ("plain", "pairwise", "compensated")}
    assert error["compensated"] == 0 < error["plain"]
    many = [np.full(1, 0.1, np.float32)] * 4096
    error = {name: abs(float(way(many)[0]) - 4096 * float(np.float32(0.1))) for name, way in ways.items()}
    assert error["in float64"] <= error["compensated"] <= error["pairwise"] < error["plain"] / 10


def test_a_sum_that_misses_its_bound_is_no_row(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = bench.bench_accuracy
    true = module.closure

    def loose(*given: Any, **more: Any) -> Any:
        found = true(*given, **more)
        return type(found)(found.target, 2 * found.bound, found.bound, False, found.summands, found.listed)

    monkeypatch.setattr(module, "closure", loose)
    with pytest.raises(AssertionError, match="float64 weights x 1"):
        list(module.accuracy(bench.peers.SIZES["tiny"], "float64", 1.0, 1))
