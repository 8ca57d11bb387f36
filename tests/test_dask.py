"""A real Dask cluster on loopback: the same to the last bit, also where a worker is killed, and faults in words."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from test_cli import Cli, cli
from test_workers import MODEL, PROMPTS, _command, _environment, alone, lines

import symcircuits as sc
from symcircuits.work import workers

__all__ = ["alone", "cli", "lines"]  # fixtures
pytestmark = pytest.mark.usefixtures("limited")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and two workers, as on three machines, on loopback."""
    pytest.importorskip("distributed", reason="a Dask cluster needs the extra distributed")
    folder = tmp_path_factory.mktemp("dask")
    found = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    common = {"cwd": folder, "env": _environment(), **quiet}
    run = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    started = [subprocess.Popen([*run, "--no-dashboard", "--scheduler-file", str(found)], **common)]  # type: ignore[call-overload]
    work = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(found), "--nthreads", "1"]
    try:
        until, address = time.monotonic() + 60, ""
        while not address and time.monotonic() < until:
            time.sleep(0.05)
            with suppress(OSError, ValueError):  # it is not there, or not whole yet
                address = json.loads(found.read_text())["address"]
        started += [subprocess.Popen([*work, "--no-dashboard", "--host", "127.0.0.1"], **common) for _ in range(2)]  # type: ignore[call-overload]
        from distributed import Client

        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield address
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and the workers that it looks after
        for process in started:
            process.wait(10)


class Killer:
    """Kills a worker of a cluster once, when a result is there; told as progress."""

    def __init__(self, address: str) -> None:
        self.address, self.killed = address, 0

    def __call__(self, what: str, done: int, total: int) -> None:
        if self.killed or what not in ("prompts", "terms", "writing terms"):
            return
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=30) as client:
            self.killed = min(client.run(os.getpid).values())
        os.kill(self.killed, signal.SIGKILL)


def test_a_dask_cluster_gives_the_same_bits(cluster: str, alone: dict[str, Any]) -> None:
    with workers.dask(cluster) as pool:
        assert sc.explain_many(MODEL, PROMPTS, workers=pool).json() == alone
        model = sc.load(MODEL)
        values = sc.evaluate(sc.scores(model.architecture, "L2H0"), model.run([1, 2, 3]))
        sizes = values.summary(workers=pool)
    assert (sizes.largest, sizes.sums) == ((here := values.summary()).largest, here.sums)


@pytest.mark.filterwarnings("default")
def test_a_worker_that_is_killed_leaves_the_averages_as_they_are(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "UNKNOWN", 2)  # few are sent ahead, so that some are sent when one is dead
    many, kill = PROMPTS * 3, Killer(cluster)
    with workers.dask(cluster) as pool:
        found = sc.explain_many(MODEL, many, workers=pool, progress=kill).json()
    assert kill.killed
    assert found == sc.explain_many(MODEL, many).json()


@pytest.mark.filterwarnings("default")
def test_a_worker_that_is_killed_leaves_an_export_as_it_is(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("symcircuits.tables.export"), "BLOCK", 100)
    e, kill = sc.scores(sc.attention_only((4, 4, 4, 4)), "L3H0"), Killer(cluster)
    with workers.dask(cluster) as pool:
        found = e.export(tmp_path / "split.csv", workers=pool, progress=kill)
    assert kill.killed
    assert (found.complete, found.rows) == (True, 125**2)
    assert found.path.read_bytes() == e.export(tmp_path / "alone.csv").path.read_bytes()


@pytest.mark.filterwarnings("default")
def test_joblib_leads_to_a_cluster_too(cluster: str, alone: dict[str, Any]) -> None:
    joblib = pytest.importorskip("joblib", reason="joblib is not installed: its back ends are not tested")
    from distributed import Client

    with Client(cluster, timeout=30), joblib.parallel_config(backend="dask"):
        assert sc.explain_many(MODEL, PROMPTS, workers=joblib.Parallel(2)).json() == alone


def test_the_command_takes_a_scheduler(cluster: str, lines: Path, alone: dict[str, Any]) -> None:
    command = _command("explain", MODEL, "--prompts", lines, "--json", "--scheduler", cluster)
    ran = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert {**json.loads(ran.stdout), "source": "", "model": 0} == {**alone, "source": "", "model": 0}
    command = _command("explain", MODEL, "--tokens", "1,2,3", "--json", "--scheduler", cluster)
    ran = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == sc.explain(MODEL, [1, 2, 3], workers=1).json()


def test_the_export_command_takes_a_scheduler(cluster: str, tmp_path: Path, cli: Cli) -> None:
    for name, more in (("a", []), ("b", ["--scheduler", cluster])):
        assert cli("terms", "--heads", "4,4,4", "-o", str(tmp_path / f"{name}.csv"), *more).code == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_a_scheduler_that_is_not_there_is_said_so(lines: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    pytest.importorskip("distributed", reason="a Dask cluster needs the extra distributed")
    monkeypatch.setattr(workers, "CONNECT", 1)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        ran = cli("explain", str(MODEL), "--prompts", str(lines), "--scheduler", address)
        assert (ran.code, ran.out) == (2, "")
        assert f"no Dask scheduler answers at {address}" in ran.err


def test_a_bad_address_is_said_once_and_at_once(lines: Path) -> None:
    pytest.importorskip("distributed", reason="a Dask cluster needs the extra distributed")
    command = [sys.executable, "-m", "symcircuits", "explain", str(MODEL), "--prompts", str(lines), "--scheduler", "no"]
    ran = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines() == [  # a client that is left half-made waits 20 s when Python ends, and complains
        "symcircuits explain: error: no Dask scheduler answers at no (an address is tcp://HOST:PORT): missing port "
        "number in address 'no'"
    ]


def test_a_scheduler_that_goes_away_is_said_so_and_not_waited_for() -> None:
    class Gone:
        status = "running"

        def submit(self, work: Any, task: Any, pure: bool) -> Any:
            self.status = "closed"
            return Future[Any]()  # never done

    client = Gone()
    with pytest.raises(OSError, match="the Dask scheduler at tcp://there:1 is gone"):
        sc.explain_many(MODEL, PROMPTS, workers=workers._Dask(client, "tcp://there:1"))
    assert client.status == "closed"


def test_a_cluster_that_has_lost_all_its_workers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "EMPTY", 2)

    class Empty:
        status = "running"
        asked = 0

        def submit(self, work: Any, task: Any, pure: bool) -> Any:
            return Future[Any]()  # never done

        def scheduler_info(self) -> Any:
            self.asked += 1
            return {"workers": {"tcp://there:2": {}} if self.asked < 3 else {}}

    client = Empty()
    with pytest.raises(OSError, match="the Dask scheduler at tcp://there:1 has had no workers for 2 seconds"):
        sc.explain_many(MODEL, PROMPTS, workers=workers._Dask(client, "tcp://there:1"))
    assert client.asked > 3


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"pip install 'symcircuits\[distributed\]'"), workers.dask("tcp://x:1"):
        pass
