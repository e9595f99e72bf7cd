"""Two live drivers of one query: the newer one continues, the older one stops, and each row comes once."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from oracles.count_windows import sums_and_minima
from support.dataflows import input_rows
from support.long_runs import IS_LONG, often
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow.hosts import driver_fence
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints, MemoryCheckpoints, UnitCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.query.query import Query
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.protocol.errors import InvalidQuery, RunSuperseded, StartupError

pytestmark = [pytest.mark.timeout(300)]

_TESTS = Path(__file__).parent.parent
_BATCHES = often(90, 300)
#: Each driver is a process with its own nodes.


class Drivers:
    """Drivers of one query: processes that write to the same file."""

    def __init__(self, directory: Path, technique: str, store: Sequence[str], host: str = "processes") -> None:
        self._directory = directory
        self._output = directory / "rows"
        self._command = [sys.executable, "-m", "support.fenced_driver", str(self._output), str(_BATCHES)]
        self._given = [technique, host, *store]
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, until: int) -> subprocess.Popen[bytes]:
        """Start a driver that receives at most `until` batches."""
        command = [*self._command, str(until), *self._given]
        with (self._directory / f"errors-{len(self._running)}").open("wb") as errors:
            environment = {**os.environ, "TMPDIR": str(self._directory)}
            driver = subprocess.Popen(command, cwd=_TESTS, env=environment, stdout=errors, stderr=errors)
        self._running.append(driver)
        return driver

    def errors_of(self, driver: subprocess.Popen[bytes]) -> str:
        return (self._directory / f"errors-{self._running.index(driver)}").read_text()

    def rows(self) -> list[list[str | int]]:
        """Return the key, the sum and the minimum of each row, and the process that delivered it."""
        lines = self._output.read_bytes().splitlines() if self._output.exists() else []
        made = [json.loads(line) for line in lines]
        return [[row[0], int(row[-3]), int(row[-2]), row[-1]] for row in made]

    def wait_rows_of(self, driver: subprocess.Popen[bytes], count: int) -> None:
        def there() -> bool:
            assert driver.poll() in (None, 0), self.errors_of(driver)
            return sum(row[-1] == driver.pid for row in self.rows()) >= count

        wait_until(there, f"{count} rows of driver {driver.pid}")

    def close(self) -> None:
        for driver in self._running:
            driver.kill()
            driver.wait()


def expected_rows() -> list[list[str | int]]:
    """Return the output of a model in plain Python for the same input."""
    rows = [row for batch in input_rows(1, batches=_BATCHES, size=4) for row in batch.to_pylist()]
    made = sums_and_minima(((row["key"], row["value"]) for row in rows), size=3, every=2)
    return [list(row) for row in made]


@pytest.fixture(params=["directory", "peacefs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if request.param == "directory":
        return [str(tmp_path / "checkpoints")]
    cluster: LocalCluster = request.getfixturevalue("shared_cluster")
    return [cluster.http_address, request.getfixturevalue("home")]


def _is_on_peacefs(store: list[str]) -> bool:
    return len(store) == 2


def _check_taken_over(drivers: Drivers, older: subprocess.Popen[bytes], younger: subprocess.Popen[bytes]) -> None:
    assert older.wait(PATIENCE_S) == 1, drivers.errors_of(older)
    # Spark prints its own lines after it.
    named = f"process {younger.pid} on {socket.gethostname()}, since "
    assert any("has taken over (" in line and named in line for line in drivers.errors_of(older).splitlines())
    # No row of the older driver comes after the first row of the newer one.
    assert younger.wait(PATIENCE_S) == 0, drivers.errors_of(younger)
    rows = drivers.rows()
    of_whom = [row[3] for row in rows]
    first = of_whom.index(younger.pid)
    assert set(of_whom[:first]) == {older.pid}
    late = [row for row in rows[first:] if row[3] != younger.pid]
    assert not late, f"the older driver delivered {late} after row {first} of {len(rows)}"
    assert [row[:3] for row in rows] == expected_rows()


@pytest.mark.cluster
@pytest.mark.parametrize("technique", ["sguard", "cec"])
def test_younger_driver_takes_over_and_older_one_stops(tmp_path: Path, technique: str, store: list[str]) -> None:
    if (technique == "cec" or _is_on_peacefs(store)) and not IS_LONG:
        pytest.skip("PEACEFS_LONG=1 has it")
    with contextlib.closing(Drivers(tmp_path, technique, store)) as drivers:
        older = drivers.start(2 * _BATCHES // 3)
        drivers.wait_rows_of(older, 10)
        younger = drivers.start(_BATCHES)
        _check_taken_over(drivers, older, younger)


def _is_delivering(directory: Path) -> bool:
    """Return whether a driver holds the lock for delivering rows."""
    (path,) = [*directory.glob("checkpoints/.driver.lock"), *directory.glob("peacefs-drivers-*/*")]
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _stop(pid: int) -> None:
    """Stop a process, and wait until all its threads have stopped."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    wait_until(
        lambda: all((each / "stat").read_text().rpartition(")")[2].split()[0] == "T" for each in tasks.iterdir()),
        f"a stop of process {pid}",
    )


@pytest.mark.cluster
def test_driver_that_was_stopped_meanwhile_delivers_nothing_more(tmp_path: Path, store: list[str]) -> None:
    if not _is_on_peacefs(store) and not IS_LONG:
        pytest.skip("PEACEFS_LONG=1 has it")
    with contextlib.closing(Drivers(tmp_path, "sguard", store)) as drivers:
        older = drivers.start(2 * _BATCHES // 3)
        drivers.wait_rows_of(older, 10)
        _stop(older.pid)
        while _is_delivering(tmp_path):
            os.kill(older.pid, signal.SIGCONT)
            _stop(older.pid)
        younger = drivers.start(_BATCHES)
        drivers.wait_rows_of(younger, 1)
        os.kill(older.pid, signal.SIGCONT)
        _check_taken_over(drivers, older, younger)


@pytest.mark.spark
@pytest.mark.long("two Sparks")
def test_younger_driver_takes_over_on_executors_of_spark(tmp_path: Path, store: list[str]) -> None:
    with contextlib.closing(Drivers(tmp_path, "sguard", store, "executors")) as drivers:
        older = drivers.start(2 * _BATCHES // 3)
        drivers.wait_rows_of(older, 10)
        younger = drivers.start(_BATCHES)
        _check_taken_over(drivers, older, younger)


# -- the contract of fences ------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "directory", pytest.param("peacefs", marks=pytest.mark.cluster)])
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[UnitCheckpoints]:
    match request.param:
        case "memory":
            yield MemoryCheckpoints()
        case "directory":
            yield DirectoryCheckpoints(tmp_path / "deep" / "checkpoints")
        case _:
            cluster: LocalCluster = request.getfixturevalue("shared_cluster")
            stored = PeaceCheckpoints(cluster.http_address, request.getfixturevalue("home"), user="alice")
            yield stored
            stored.close()


def test_older_driver_neither_records_nor_delivers(checkpoints: UnitCheckpoints) -> None:
    first, fence_of_first = checkpoints.begin_run()
    first.record(b"first")
    with fence_of_first.delivery():
        pass
    second, fence_of_second = checkpoints.begin_run()
    assert second.recorded() == b"first"
    with pytest.raises(RunSuperseded, match="has taken over"):
        first.record(b"lost")
    with pytest.raises(RunSuperseded, match="has taken over"):
        fence_of_first.check()
    with pytest.raises(RunSuperseded, match="has taken over"), fence_of_first.delivery():
        pytest.fail("it delivers")
    second.record(b"second")
    with fence_of_second.delivery():
        pass
    fence_of_second.check()
    assert checkpoints.recorded() == b"second"


def test_driver_whose_directory_was_deleted_writes_no_more(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    fenced, fence = DirectoryCheckpoints(root).begin_run()
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(RunSuperseded, match="the directory was deleted or renamed"):
        fence.check()
    with pytest.raises(RunSuperseded, match="the directory was deleted or renamed"):
        fenced.record(b"lost")
    assert not root.exists()


def test_driver_does_not_take_over_in_the_middle_of_a_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_fence, "dataflow_delivery_s_max", 0.05)
    _, fence = DirectoryCheckpoints(tmp_path).begin_run()
    with (
        fence.delivery(),
        pytest.raises(StartupError, match=rf"process {os.getpid()} on .* has been delivering rows to a sink"),
    ):
        DirectoryCheckpoints(tmp_path).begin_run()


@pytest.mark.parametrize("damaged", [b"", b'{"run": "0', b"\xff", b"[]"])
def test_damaged_name_of_the_driver_stops_it_and_lets_the_next_one_begin(damaged: bytes, tmp_path: Path) -> None:
    """The file that names the driver may be empty or torn after the machine has crashed."""
    checkpoints, fence = DirectoryCheckpoints(tmp_path).begin_run()
    (tmp_path / ".driver").write_bytes(damaged)
    with pytest.raises(RunSuperseded, match=r"\.driver was deleted or damaged"):
        fence.check()
    with pytest.raises(RunSuperseded, match=r"\.driver was deleted or damaged"):
        checkpoints.record(b"late")
    _, following = DirectoryCheckpoints(tmp_path).begin_run()
    following.check()


def test_driver_that_is_refused_does_not_take_over(tmp_path: Path) -> None:
    """Started by mistake, or with another query, it does not disturb the running driver."""

    def network(column: str) -> Query:
        query = Query("rows")
        query.source("in", input_rows(1, batches=1, size=1)[0].schema, time="at").select(column, "at").sink("out")
        return query

    checkpoints = DirectoryCheckpoints(tmp_path)
    host = LocalProcesses(1, checkpoints)
    given = SGuard(interval_s=1), {"in": []}, {"out": print}
    host.start(network("key").network(), *given).close()
    running, fence = checkpoints.begin_run()
    with pytest.raises(StartupError, match="resume it with resume=True"):
        host.start(network("key").network(), *given)
    with pytest.raises(InvalidQuery, match="has changed"):
        host.start(network("value").network(), *given, RunOptions(resume=True))
    fence.check()
    running.record(b"still")
