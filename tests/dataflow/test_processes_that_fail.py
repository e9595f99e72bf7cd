"""Real processes are killed and stopped at random while a query runs; its output does not change."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from support.dataflows import SAMPLES, Row
from support.long_runs import often
from support.waiting import PATIENCE_S, wait_until

from benchmarks.dataflows.seeded import SeededRun
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.window_checkpoints.extent import Targets
from peacefs.protocol.errors import InvalidQuery, StartupError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

#: How long processes fail at random; the environment can set a longer time.
_ORDEAL_S = float(os.environ.get("PEACEFS_DATAFLOW_ORDEAL_S", often(1, 5)))
_ORDEAL_SEED = int(os.environ.get("PEACEFS_DATAFLOW_ORDEAL_SEED", "1"))
_EVERY_S = 0.02
_TESTS = Path(__file__).parent.parent


@cache
def expected_rows(network: OperatorClass, batches: int) -> list[Row]:
    sample = SAMPLES[network]()
    rows = sample.rows(1, batches=batches)
    return SeededRun(sample.network, Amnesia(), rows, seed=1).run(until_s=1e6).rows("out")


class Ordeal:
    """Nodes, datanodes and the coordinator, one of which fails from time to time."""

    def __init__(self, cluster: LocalCluster, host: LocalProcesses, chance: random.Random) -> None:
        self._cluster, self._host, self._chance = cluster, host, chance
        self.happened: list[str] = []

    def run(self, seconds: float) -> None:
        ends_s = time.monotonic() + seconds
        events: list[Callable[[], None]] = [
            self._kill_node,
            self._stop_node,
            self._kill_datanode,
            self._kill_coordinator,
        ]
        # Each kind at least once, in random order.
        waiting = self._chance.sample(events, len(events))
        while waiting or time.monotonic() < ends_s:
            event = waiting.pop() if waiting else self._chance.choice(events)
            event()
            self.happened.append(event.__name__)
            time.sleep(self._chance.uniform(0.2, 1.5))

    def _node(self) -> int:
        return self._chance.choice(sorted(self._host.pids().items()))[1]

    def _kill_node(self) -> None:
        os.kill(self._node(), signal.SIGKILL)

    def _stop_node(self) -> None:
        """Pause a node for longer than its timeout, after which it continues as if nothing had happened."""
        pid = self._node()
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(2.0)
        finally:
            os.kill(pid, signal.SIGCONT)

    def _kill_datanode(self) -> None:
        member = self._chance.choice(self._cluster.datanodes)
        member.kill()
        self._cluster.restart(member)

    def _kill_coordinator(self) -> None:
        self._cluster.coordinator.kill()
        self._cluster.restart(self._cluster.coordinator)


@pytest.mark.parametrize(
    "technique",
    [SGuard(interval_s=0.2), CEC(Targets(extent=1.5, replay_rows=50), period_s=0.05)],
    ids=lambda technique: technique.name,
)
def test_query_survives_whatever_dies_at_random(tmp_path: Path, technique: Technique) -> None:
    """Nodes, datanodes and the coordinator fail. PEACEFS_DATAFLOW_ORDEAL_S sets the duration."""
    batches = int(_ORDEAL_S / _EVERY_S) + 150
    sample = SAMPLES[OperatorClass.CONVERGENT_CAPABLE]()
    observed: list[Row] = []
    over = threading.Event()

    def feed() -> Iterator[pa.RecordBatch]:
        made = sample.rows(1, batches=batches)["in"]
        for rows in made[:-50]:
            time.sleep(_EVERY_S)
            yield rows
        over.wait(PATIENCE_S)
        yield from made[-50:]

    def take(rows: pa.RecordBatch) -> None:
        observed.extend(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    with LocalCluster(tmp_path / "cluster", datanodes=3, port=0) as cluster:
        checkpoints = PeaceCheckpoints(cluster.http_address, "/checkpoints", user="alice")
        host = LocalProcesses(3, checkpoints, node_timeout_s=1.5)
        with host.start(sample.network, technique, {"in": feed()}, {"out": take}) as run:
            if technique.windows is not None:
                wait_until(lambda: checkpoints.segments().streams(), "a first commit")
            else:
                wait_until(lambda: run.checkpoint_of("second"), "a first checkpoint")
            ordeal = Ordeal(cluster, host, random.Random(_ORDEAL_SEED))
            ordeal.run(_ORDEAL_S)
            over.set()
            run.wait(PATIENCE_S)
        checkpoints.close()
    assert observed == expected_rows(OperatorClass.CONVERGENT_CAPABLE, batches), ordeal.happened


def test_recovery_waits_for_a_coordinator_that_is_away(tmp_path: Path) -> None:
    """The node that takes over has never reached the coordinator. It retries until the coordinator is back."""
    sample = SAMPLES[OperatorClass.CONVERGENT_CAPABLE]()
    observed: list[Row] = []
    begun, back = threading.Event(), threading.Event()

    def feed() -> Iterator[pa.RecordBatch]:
        made = sample.rows(1)["in"]
        yield from made[:4]
        begun.set()
        back.wait(PATIENCE_S)
        yield from made[4:]

    def take(rows: pa.RecordBatch) -> None:
        observed.extend(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    with LocalCluster(tmp_path / "cluster", datanodes=3, port=0) as cluster:
        checkpoints = PeaceCheckpoints(cluster.http_address, "/checkpoints", user="alice")
        host = LocalProcesses(3, checkpoints, node_timeout_s=PATIENCE_S)
        with host.start(sample.network, SGuard(interval_s=0.1), {"in": feed()}, {"out": take}) as run:
            begun.wait(PATIENCE_S)
            wait_until(lambda: run.checkpoint_of("second"), "a checkpoint")
            lost = run.place_of("second")
            assert lost is not None
            cluster.coordinator.kill()
            os.kill(host.pids()[lost], signal.SIGKILL)
            wait_until(lambda: run.place_of("second") not in (lost, None), "another node for the unit")
            # Longer than a failing connection attempt takes.
            with pytest.raises(TimeoutError):
                run.wait(1.5)
            cluster.restart(cluster.coordinator)
            back.set()
            run.wait(PATIENCE_S)
        checkpoints.close()
    assert observed == expected_rows(OperatorClass.CONVERGENT_CAPABLE, 8)


def test_query_is_resumed_after_the_death_of_its_driver(tmp_path: Path) -> None:
    """The driver, with its sources, sinks and controller, is killed twice; the sink gets each row once."""
    batches = often(180, 300)
    command = [sys.executable, "-m", "support.resumed_query", str(tmp_path), str(batches)]
    rows = tmp_path / "rows"

    def lines() -> int:
        return rows.read_bytes().count(b"\n") if rows.exists() else 0

    def recorded() -> set[str]:
        return set(json.loads((tmp_path / "checkpoints" / "query.json").read_bytes())["units"])

    for third in (1, 2):
        before = lines()
        # However late the kill, the query has not finished.
        until = third * batches // 3
        driver = subprocess.Popen([*command, str(until)], cwd=_TESTS, stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda before=before: lines() >= before + 40, "forty rows more")  # type: ignore[misc]
            wait_until(lambda: recorded() == {"first", "second"}, "a record of both units")
            assert driver.poll() is None, "the driver has ended by itself"
        finally:
            driver.kill()
            driver.wait()
    subprocess.run([*command, str(batches)], cwd=_TESTS, check=True, timeout=PATIENCE_S)
    observed = [json.loads(line) for line in rows.read_bytes().splitlines()]
    assert observed == [[*map(str, row)] for row in expected_rows(OperatorClass.DETERMINISTIC, batches)]


def test_query_that_left_a_record_is_not_begun_again_by_mistake(tmp_path: Path) -> None:
    sample, other = SAMPLES[OperatorClass.DETERMINISTIC](), SAMPLES[OperatorClass.REPEATABLE]()
    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path))

    given = SGuard(interval_s=1), {"in": []}, {"out": print}
    with host.start(sample.network, *given) as run:
        run.wait(PATIENCE_S)
    with pytest.raises(StartupError, match="resume it with resume=True"):
        host.start(sample.network, *given)
    with pytest.raises(InvalidQuery, match=r"unit 'first' was .*aggregate.* and is .*filter"):
        host.start(other.network, *given, RunOptions(resume=True))
