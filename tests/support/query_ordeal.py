"""Streaming queries on a cluster whose drivers, datanodes and coordinator are killed according to a seed.

The seed decides what is done and when. The progress of the queries by then varies, because they are real. `told`
records what happened, to explain a failed round.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import LocalMember
from peacefs.spark_connector.checkpoints.batches import Checkpoint
from peacefs.spark_connector.demo.query_plan import STOPPED
from peacefs.spark_connector.demo.query_process import QueryProcess
from peacefs.spark_connector.demo.scratch import scratch_environment
from peacefs.spark_connector.java import find_java, java_environment

from .log_events import Event, disorder_s, stage
from .query_driver import DriverPlan, Outcome

_TESTS = Path(__file__).parents[1]
_POLL_S = 0.2
#: On a busy machine a driver needs over a minute to start, and it is killed several times.
_SILENCE_S = 300.0
_STOPS_MAX = 3
_LINES_SHOWN = 30
#: The JVM may log further errors after the driver has reported why it stopped.
_LINES_SEARCHED = 1000
_HORIZON_AFTER_S = 3600
_INPUT = "/input"
CHECKPOINTS = "/checkpoints"


@dataclass(frozen=True, slots=True)
class Strike:
    """A failure to cause. `at` is the share of batches done, 0 to 1. It lasts, or delays a restart by, `for_s`."""

    at: float
    what: str
    for_s: float


def strikes(rng: random.Random, drivers: int, others: int) -> list[Strike]:
    """Kills of the driver, each in its own part of the run, and as many other strikes, anywhere."""
    planned = [
        Strike((turn + rng.random()) * 0.9 / drivers, "driver", rng.uniform(0, 2.5)) for turn in range(drivers)
    ]
    kinds = ["coordinator killed", "datanode killed", "datanode paused"]
    rng.shuffle(kinds)
    for turn in range(others):
        longest_s = 3.0 if kinds[turn % 3] == "coordinator killed" else 15.0
        planned.append(Strike(rng.uniform(0.02, 0.9), kinds[turn % 3], rng.uniform(0.2, longest_s)))
    return sorted(planned, key=lambda strike: strike.at)


class Ordeal:
    """One round. At most one datanode is out at any time."""

    def __init__(
        self,
        cluster: LocalCluster,
        files: PeaceFileSystem,
        directory: Path,
        worker_python: Path,
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._worker_python = worker_python
        self._files = files
        self._directory = directory
        self._rng = rng
        self._began = time.monotonic()
        self._undo: tuple[float, Callable[[], None]] | None = None
        self._driver: QueryProcess | None = None
        self.told: list[str] = []
        #: Unplanned reasons for which Spark stopped a query.
        self.stops: list[str] = []
        self.drivers_killed = 0

    def run(
        self, events: list[Event], parts: int, queries: list[str], planned: list[Strike]
    ) -> dict[str, Outcome]:
        """Return the queries' outcomes. Raise AssertionError with the event log if they do not finish."""
        plan = self._prepare(events, parts, queries)
        path = self._directory / "plan.json"
        path.write_bytes(msgspec.json.encode(plan))
        try:
            self._suffer(path, parts, queries, planned)
        finally:
            if self._driver is not None:
                self._driver.kill()
            self._restore()
        return msgspec.json.decode(Path(plan.result).read_bytes(), type=dict[str, Outcome])

    def _prepare(self, events: list[Event], parts: int, queries: list[str]) -> DriverPlan:
        for name, data in stage(events, parts).items():
            self._files.write(f"{_INPUT}/{name}", data)
        uri = self._cluster.webhdfs_uri
        return DriverPlan(
            coordinator=self._cluster.address.netloc,
            queries=queries,
            input_uri=uri + _INPUT,
            output_uri=f"{uri}/output",
            checkpoint_uri=uri + CHECKPOINTS,
            delay_s=disorder_s(events) + 1,
            horizon_s=max(event.at for event in events) + _HORIZON_AFTER_S,
            result=str(self._directory / "result.json"),
        )

    def _suffer(self, plan: Path, parts: int, queries: list[str], planned: list[Strike]) -> None:
        waiting = list(planned)
        self._driver = self._start(plan)
        last, last_news = -1.0, time.monotonic()
        while (status := self._driver.status) != 0:
            time.sleep(_POLL_S)
            if self._undo is not None and time.monotonic() >= self._undo[0]:
                self._restore()
            if status is not None:
                self._stopped(status)
                self._driver = self._start(plan)
            progress = self._progress(parts, queries)
            if progress != last:
                last, last_news = progress, time.monotonic()
            assert time.monotonic() - last_news < _SILENCE_S, self._complaint("the queries do nothing")
            if waiting and progress > waiting[0].at:
                self._strike(waiting.pop(0), plan)
                last_news = time.monotonic()
        self._tell(f"done; not struck any more: {len(waiting)}")

    def _start(self, plan: Path) -> QueryProcess:
        variables = {
            **java_environment(find_java(), self._directory / "java"),
            **scratch_environment(self._directory / "scratch"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self._worker_python),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")])),
        }
        return QueryProcess("support.query_driver", plan, self._directory / "driver.log", variables)

    def _progress(self, parts: int, queries: list[str]) -> float:
        """Return about which share of all batches has begun."""
        begun = 0.0
        for query in queries:
            batch = Checkpoint(self._files, f"{CHECKPOINTS}/{query}").begun()
            begun += 0 if batch is None else min(1.0, (batch + 1) / (parts + 2))
        return begun / len(queries)

    # -- what is done to them --------------------------------------------------------------------------

    def _strike(self, strike: Strike, plan: Path) -> None:
        if strike.what == "driver":
            self._kill_driver(strike.for_s, plan)
        elif strike.what == "coordinator killed":
            self._tell(f"coordinator killed for {strike.for_s:.1f} s")
            self._cluster.coordinator.kill()
            time.sleep(strike.for_s)
            self._cluster.restart(self._cluster.coordinator)
        else:
            self._restore()
            self._hit_datanode(self._rng.choice(self._cluster.datanodes), strike)

    def _kill_driver(self, after_s: float, plan: Path) -> None:
        assert self._driver is not None
        time.sleep(after_s)
        if self._driver.status is not None:
            self._tell("the driver ended before it could be killed")
            return
        self._driver.kill()
        self.drivers_killed += 1
        self._tell("driver killed")
        self._driver = self._start(plan)

    def _hit_datanode(self, datanode: LocalMember, strike: Strike) -> None:
        self._tell(f"{strike.what}: {datanode.name} for {strike.for_s:.1f} s")
        if strike.what == "datanode paused":
            os.kill(datanode.pid, signal.SIGSTOP)
            undo: Callable[[], None] = lambda: os.kill(datanode.pid, signal.SIGCONT)  # noqa: E731
        else:
            datanode.kill()
            undo = lambda: self._cluster.restart(datanode)  # noqa: E731
        self._undo = (time.monotonic() + strike.for_s, undo)

    def _restore(self) -> None:
        if self._undo is not None:
            undo = self._undo[1]
            self._undo = None
            undo()

    # -- what becomes known ----------------------------------------------------------------------------

    def _stopped(self, status: int) -> None:
        assert self._driver is not None
        self._driver.kill()
        said = [line for line in self._driver.last_words(_LINES_SEARCHED) if line.startswith(STOPPED)]
        reason = said[-1] if said else f"status {status}"
        self.stops.append(reason)
        self._tell(reason)
        assert len(self.stops) <= _STOPS_MAX, self._complaint("the queries stop again and again")

    def _tell(self, what: str) -> None:
        self.told.append(f"{time.monotonic() - self._began:6.1f} s  {what}")

    def _complaint(self, what: str) -> str:
        words = self._driver.last_words(_LINES_SHOWN) if self._driver is not None else []
        return "\n".join([what, *self.told, *words])
