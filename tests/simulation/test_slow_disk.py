"""A datanode whose disk has become slow, in the simulated cluster: clients' writes reveal it."""

from __future__ import annotations

from random import Random

from simulation.client_steps import write
from simulation.simulated_cluster import SimulatedCluster

from peacefs.coordinator.cluster.slow_peers import SlowPart


def test_a_slow_disk_is_found_out_and_new_chunks_avoid_it() -> None:
    cluster = SimulatedCluster(seed=8, datanodes=6)
    cluster.until_ready()
    client = cluster.client("client")
    victim = cluster.datanodes[2]
    victim.node.disk_lag_s = 0.3

    def write_files(first: int, count: int) -> None:
        for number in range(first, first + count):
            data = Random(number).randbytes(400_000)
            cluster.world.run_task(
                cluster.start(client, "write", write(f"/{number}", data, f"{number}")), limit_s=60.0
            )

    write_files(0, 60)
    cluster.world.run(lambda: False, limit_s=12.0)
    slow_peers = cluster.coordinator.cluster.slow_peers
    assert slow_peers.slow() == [victim.node.name]
    assert SlowPart.DISK in slow_peers.slow_parts(victim.node.name)
    held = len(victim.store.replicas())
    write_files(100, 20)
    assert len(victim.store.replicas()) == held
    victim.node.disk_lag_s = 0.0
    cluster.world.run(lambda: False, limit_s=200.0)
    assert slow_peers.slow() == []
    write_files(200, 20)
    assert len(victim.store.replicas()) > held
