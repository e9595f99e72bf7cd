"""One run: a query with a technique on a host, with the same schedule of failures for all."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.checkpoint_store import UnitCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.interface import Sink, Source
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.ring_run import RingRun
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique

from .queries import SINK, SOURCE, UNIT, Feed, Row, SideQuery
from .timeline import Timeline, arrivals
from .usage import Reading, Usage, descendants, memory_bytes
from .verdict import Verdict, judge_by_key

#: Number of nodes for every technique.
NODES = 3
_PATIENT_S = 120.0
#: A long timeout for busy machines. A killed process is noticed at once nevertheless.
NODE_TIMEOUT_S = 30.0
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Schedule:
    """Phases of a run in seconds: first a warm-up, then counting of costs, then kills."""

    warm_s: float = 2.0
    before_s: float = 4.0
    kills: int = 2
    #: Seconds from one kill to the next, and from the last one to the end.
    gap_s: float = 5.0


@dataclass
class Played:
    """The measurements of one run."""

    timeline: Timeline
    verdict: Verdict
    usage: Usage
    #: For each kill, the seconds until its host noticed it.
    noticed_s: list[float] = field(default_factory=list)


@dataclass
class Output:
    """Rows at the sink with their times of arrival."""

    rows: list[Row] = field(default_factory=list)
    arrived_s: list[float] = field(default_factory=list)

    def add(self, now_s: float, rows: Sequence[Row]) -> None:
        self.rows += rows
        self.arrived_s += [now_s] * len(rows)

    def first_s(self, query: SideQuery) -> dict[Hashable, float]:
        found: dict[Hashable, float] = {}
        for row, arrived in zip(self.rows, self.arrived_s, strict=True):
            found.setdefault(query.subject(row), arrived)
        return found


class Contestant(Protocol):
    """Runs a query, and can lose the process with the query's state."""

    def start(self, query: SideQuery, feed: Feed, output: Output) -> None:
        """Start the query. It gets rows once `feed.begin` is set, as soon as it can accept them."""
        ...

    def kill(self) -> None:
        """Kill the process with the state by SIGKILL."""
        ...

    def noticed_s(self) -> Sequence[float]:
        """Return when it noticed each failure so far, if it reports that."""
        ...

    def repair(self) -> None:
        """Wait until another failure may be injected."""
        ...

    def finish(self) -> None:
        """Wait until all given rows are processed, after `feed.over` was set. Raises the error that stopped the
        query.
        """
        ...

    def close(self) -> None: ...


def play(query: SideQuery, contestant: Contestant, schedule: Schedule, beside: Sequence[int] = ()) -> Played:
    """Run the query by the schedule. `beside` are processes whose memory does not count, such as the file
    system's.
    """
    feed, output, kills = Feed(), Output(), list[float]()
    try:
        contestant.start(query, feed, output)
        feed.begin.set()
        time.sleep(schedule.warm_s)
        from_s, first = time.monotonic(), Reading.now(feed.rows)
        time.sleep(schedule.before_s)
        last = Reading.now(feed.rows)
        memory = memory_bytes(descendants(os.getpid(), beside))
        for number in range(schedule.kills):
            if number:
                contestant.repair()
            kills.append(time.monotonic())
            contestant.kill()
            time.sleep(schedule.gap_s)
        feed.over.set()
        contestant.finish()
    finally:
        feed.over.set()
        feed.begin.set()
        contestant.close()
    latest = isinstance(contestant, ShowsLatest)
    expected = query.expected(feed.given)
    offered, arrived = arrivals(query, expected, output.first_s(query), feed.given_s, latest=latest)
    return Played(
        Timeline(offered, arrived, from_s, kills, feed.given_s[-1]),
        judge_by_key(query, expected, output.rows, latest=latest),
        Usage.between(first, last, memory),
        _after(kills, contestant.noticed_s()),
    )


def _after(kills: Sequence[float], noticed_s: Sequence[float]) -> list[float]:
    """Return the seconds from each kill until it was noticed, for kills that were noticed."""
    found = ((kill, min((at for at in noticed_s if at > kill), default=None)) for kill in kills)
    return [at - kill for kill, at in found if at is not None]


class ShowsLatest:
    """A mixin for contestants that output, of rows made together, only the last of each key."""


# -- nodes ---------------------------------------------------------------------------------------------


class _QueryHost(Protocol):
    """A host of dataflows."""

    def start(
        self,
        network: Network,
        technique: Technique,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        options: RunOptions,
    ) -> EdgeRun | RingRun: ...


class NodeHost(ABC):
    """A host of dataflows with killable nodes."""

    def __init__(self, host: _QueryHost) -> None:
        #: Starts queries.
        self.host = host

    @abstractmethod
    def process_of(self, run: EdgeRun | RingRun, unit: str, node: str) -> int:
        """Return the process to kill in order to end the node that runs the unit."""


class Processes(NodeHost):
    """Nodes as processes of this machine."""

    def __init__(self, checkpoints: UnitCheckpoints) -> None:
        self._processes = LocalProcesses(NODES, checkpoints, node_timeout_s=NODE_TIMEOUT_S)
        super().__init__(self._processes)

    def process_of(self, run: EdgeRun | RingRun, unit: str, node: str) -> int:
        return self._processes.pids()[node]


class Nodes:
    """A technique on a host of nodes."""

    def __init__(self, host: NodeHost, technique: Technique) -> None:
        self._host = host
        self._technique = technique
        self._units: list[str] = []
        self._noticed_s: list[float] = []
        self._dead: str | None = None
        self._run: EdgeRun | RingRun | None = None

    def start(self, query: SideQuery, feed: Feed, output: Output) -> None:
        def take(rows: pa.RecordBatch) -> None:
            output.add(time.monotonic(), query.rows_of(rows))

        network = query.network()
        self._units = [plan.name for plan in network.units]
        options = RunOptions(observer=self._observe)
        self._run = self._host.host.start(network, self._technique, {SOURCE: feed}, {SINK: take}, options)
        self.repair()

    def kill(self) -> None:
        run = self._run
        assert run is not None
        if isinstance(run, RingRun):
            self._dead = run.ring()[1]
        else:
            self._dead = self._until(lambda: run.place_of(UNIT))
        os.kill(self._host.process_of(run, UNIT, self._dead), signal.SIGKILL)

    def noticed_s(self) -> Sequence[float]:
        return self._noticed_s

    def repair(self) -> None:
        run = self._run
        assert run is not None
        if isinstance(run, RingRun):
            self._repair_ring(run)
            return
        for unit in self._units:
            self._until(partial(run.place_of, unit))
        if self._technique.replicas.paired:
            self._until(lambda: all(map(run.survives_loss_of, self._units)) or None)

    def finish(self) -> None:
        assert self._run is not None
        self._run.wait(_PATIENT_S)

    def close(self) -> None:
        if self._run is not None:
            self._run.close()

    def _repair_ring(self, run: RingRun) -> None:
        """Let the restarted node join the ring, which otherwise continues without it."""
        run.wait_begun(_PATIENT_S)
        self._until(lambda: self._dead not in run.ring() or None)
        if len(run.ring()) < NODES:
            known = {*run.ring(), self._dead}
            spare = self._until(
                lambda: next((each.name for each in run.members().values() if each.name not in known), None)
            )
            run.join(run.ring()[0])
            self._until(lambda: spare in run.ring() or None)

    def _observe(self, at_s: float, event: run_events.RunEvent) -> None:
        if self._dead is None:
            return
        match event:
            case run_events.NodeLost() if isinstance(self._run, EdgeRun) and event.node == self._dead:
                self._noticed_s.append(at_s)
            case run_events.RingChanged() if self._dead not in event.ring:
                self._noticed_s.append(at_s)

    def _until(self, look: Callable[[], _Found | None]) -> _Found:
        assert self._run is not None
        deadline_s = time.monotonic() + _PATIENT_S
        while (found := look()) is None:
            if time.monotonic() > deadline_s:
                raise TimeoutError("it is not ready for the next step")
            # Raises the error that stopped the query, if it has stopped.
            with contextlib.suppress(TimeoutError):
                self._run.wait(0.01)
        return found
