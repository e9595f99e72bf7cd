"""Balancing of the whole cluster under a seed, with real copies and deletions, and with crashes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from simulation.client_steps import delete, read, write
from simulation.saboteur import Saboteur
from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import CHUNK_BYTES
from simulation.test_cluster_under_a_seed import Model, check
from simulation.world import Task

from peacefs.peace.balance_plan import BalancePhase
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import MIB
from peacefs.runtime import effects as fx

_CAPACITY = 256 * CHUNK_BYTES
_THRESHOLD = 0.02


def grown_cluster(seed: int, lose: float = 0.0) -> tuple[SimulatedCluster, Model]:
    """Return four datanodes with files, and two datanodes that joined later."""
    cluster = SimulatedCluster(seed, lose=lose)
    cluster.until_ready()
    client, model = cluster.client("client"), Model()
    for number in range(16):
        data = Random(number).randbytes((number % 4 + 1) * CHUNK_BYTES + 1000)
        for attempt in range(10):
            writing = cluster.start(client, "write", write(f"/f{number}", data, f"{number}-{attempt}"))
            try:
                cluster.world.run_task(writing, limit_s=100.0)
                break
            except PeacefsError:
                model.failed += 1
        model.settle(f"/f{number}", data)
    cluster.add_datanode()
    cluster.add_datanode()
    for datanode in cluster.datanodes:
        datanode.capacity_bytes = _CAPACITY
    cluster.until_ready()
    cluster.world.run(lambda: False, limit_s=2.0)
    return cluster, model


def balance(cluster: SimulatedCluster, bytes_per_second: float = 100.0 * MIB) -> fx.Steps[BalancePhase]:
    """Run the balancer as `peacefs balance` does; start again if the coordinator has forgotten the run."""
    runs = 0
    while True:
        core, now_s = cluster.coordinator.cluster, cluster.world.now_s
        run = core.balancer.run
        if (run is None or run.phase is BalancePhase.FAILING) and core.ready(now_s):
            runs += 1
            core.balancer.start(now_s, f"run-{runs}", core.members, _THRESHOLD, bytes_per_second)
        elif run is not None:
            core.balancer.renew(now_s, run.name)
            if run.phase not in (BalancePhase.RUNNING, BalancePhase.FAILING):
                return run.phase
        yield from fx.sleep(0.5)


def read_all(cluster: SimulatedCluster, model: Model) -> None:
    reader = cluster.client("client-reader")
    for path in sorted(model.possible):
        cluster.world.run_task(cluster.start(reader, path, check(path, model)), limit_s=200.0)


def is_settled(cluster: SimulatedCluster) -> Callable[[], bool]:
    return lambda: cluster.fully_replicated() and cluster.coordinator.cluster.balancer.under_way == 0


def shares(cluster: SimulatedCluster) -> list[float]:
    return [datanode.usage().live_bytes / _CAPACITY for datanode in cluster.datanodes]


def test_new_datanodes_get_their_share_and_every_file_is_as_it_was() -> None:
    cluster, model = grown_cluster(seed=3)
    assert max(shares(cluster)) - min(shares(cluster)) > 4 * _THRESHOLD
    operator = cluster.client("client-operator")
    assert (
        cluster.world.run_task(cluster.start(operator, "balance", balance(cluster)), limit_s=600.0)
        is BalancePhase.BALANCED
    )
    assert cluster.world.run(is_settled(cluster), limit_s=30.0)
    cluster.world.run(lambda: False, limit_s=3.0)
    mean = sum(shares(cluster)) / len(cluster.datanodes)
    assert max(abs(share - mean) for share in shares(cluster)) <= _THRESHOLD * 1.01
    for record in cluster.coordinator.metadata.reader().chunks(0, 1000):
        holding = [datanode for datanode in cluster.datanodes if datanode.store.find(record.chunk) is not None]
        assert len(holding) == 3
        assert len({datanode.rack for datanode in holding}) == 2
    read_all(cluster, model)


def test_it_keeps_to_the_rate_of_each_datanode() -> None:
    cluster, _model = grown_cluster(seed=3)
    rate = float(CHUNK_BYTES)
    held = [datanode.usage().live_bytes for datanode in cluster.datanodes]
    began_s = cluster.world.now_s
    operator = cluster.client("client-operator")
    cluster.world.run_task(cluster.start(operator, "balance", balance(cluster, rate)), limit_s=3000.0)
    moved = max(
        abs(datanode.usage().live_bytes - before) for datanode, before in zip(cluster.datanodes, held, strict=True)
    )
    assert cluster.world.now_s - began_s >= moved / rate - 2.0
    assert moved > 8 * CHUNK_BYTES


@pytest.mark.parametrize("seed", range(1, 7))
def test_crashes_and_lost_messages_in_the_middle_of_it_cost_nothing(seed: int) -> None:
    print(f"seed {seed}")
    cluster, model = grown_cluster(seed, lose=0.002)
    saboteur = Saboteur(cluster, Random(seed), effects_between=200)
    operator, client = cluster.client("client-operator"), cluster.client("client-deleting")
    balancing = cluster.start(operator, "balance", balance(cluster, 4.0 * CHUNK_BYTES))
    cluster.world.run(lambda: balancing.done, limit_s=20.0)
    for path in ("/f3", "/f7"):
        model.doubt(path, None)
        deleting = cluster.start(client, "delete", delete(path))
        cluster.world.run(partial(_is_done, deleting), limit_s=30.0)
    cluster.world.run(lambda: balancing.done, limit_s=200.0)
    saboteur.rest()
    cluster.world.network.lose = 0.0
    assert cluster.world.run(lambda: all(node.up for node in cluster.world.nodes.values()), limit_s=60.0)
    cluster.until_ready()
    assert cluster.world.run(is_settled(cluster), limit_s=400.0)
    read_all(cluster, model)
    assert cluster.world.run(lambda: balancing.done, limit_s=900.0), "the run does not come to an end"
    assert cluster.world.run(is_settled(cluster), limit_s=400.0)
    read_all(cluster, model)
    reading = cluster.start(client, "read", read("/f1"))
    assert cluster.world.run_task(reading, limit_s=60.0) in model.of("/f1")
    assert saboteur.crashes >= 1


def _is_done(task: Task) -> bool:
    return task.done
