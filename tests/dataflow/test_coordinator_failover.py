"""The coordinator dies several times during a dataflow, and a node once: rows match a Python model."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from oracles.count_windows import sums_and_minima
from support.dataflows import SAMPLES
from support.failover_cluster import FailoverCluster, failover_cluster
from support.long_runs import often
from support.waiting import PATIENCE_S, wait_until

from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.window_checkpoints.extent import Targets

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

KILLS = often(2, 6)
_AFTER_THE_LAST_KILL = 50
_EVERY_S = 0.02
_TECHNIQUES = (SGuard(interval_s=0.2), CEC(Targets(extent=1.5, replay_rows=50), period_s=0.05))


@pytest.mark.evidence("leader-dies")
@pytest.mark.parametrize(
    "technique",
    _TECHNIQUES[: often(1, 2)],
    ids=lambda technique: technique.name,
)
def test_dataflow_goes_on_exactly_over_several_failovers(tmp_path: Path, technique: Technique) -> None:
    seed = int(os.environ.get("PEACEFS_SEED") or Random().randrange(2**32))
    print(f"seed {seed}")
    random = Random(seed)
    sample = SAMPLES[OperatorClass.DETERMINISTIC]()
    fed: list[tuple[str, int]] = []
    observed: list[tuple[str, int, int]] = []
    is_over = threading.Event()

    def feed() -> Iterator[pa.RecordBatch]:
        left = _AFTER_THE_LAST_KILL
        batches = iter(sample.rows(seed, batches=20_000)["in"])
        while left:
            rows = next(batches)
            fed.extend((row["key"], row["value"]) for row in rows.to_pylist())
            yield rows
            time.sleep(_EVERY_S)
            left -= is_over.is_set()

    def take(rows: pa.RecordBatch) -> None:
        observed.extend((row[0], row[-2], row[-1]) for row in zip(*rows.to_pydict().values(), strict=True))

    with failover_cluster(tmp_path) as cluster:
        checkpoints = PeaceCheckpoints(",".join(cluster.http), "/checkpoints", user="alice")
        host = LocalProcesses(3, checkpoints, node_timeout_s=5.0)
        with host.start(sample.network, technique, {"in": feed()}, {"out": take}) as run:
            for kill in range(KILLS):
                leader = kill % 2
                _wait_for_more(observed)
                cluster.coordinators[leader].kill()
                if random.random() < 0.5:
                    os.kill(random.choice(sorted(host.pids().values())), signal.SIGKILL)
                # Rows come out without the coordinator, too; started before the takeover, it would lead again.
                wait_until(partial(cluster.leads, 1 - leader), "the other one leads")
                _wait_for_more(observed)
                cluster.coordinators[leader].start()
                wait_until(partial(_is_whole, cluster, leader), "the pair is whole again")
            is_over.set()
            run.wait(PATIENCE_S)
        checkpoints.close()
        assert cluster.leads(KILLS % 2)
    assert observed == sums_and_minima(fed, size=3, every=2)


def _wait_for_more(observed: list[tuple[str, int, int]]) -> None:
    wanted = len(observed) + 20
    wait_until(lambda: len(observed) >= wanted, "rows come out")


def _is_whole(cluster: FailoverCluster, standby: int) -> bool:
    return cluster.stands_by(standby) and all(cluster.datanodes_at(at) == 3 for at in (0, 1))
