"""The end of a world with all kinds of faults, and the checks that must hold afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from simulation.metadata_watch import check_sound
from simulation.private_directory import PrivateDirectory
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_network import Network

_DELAY_S_MAX = 12.0
#: Maximum time until a failed request takes effect.
DOUBT_S = 2 * _DELAY_S_MAX + 10.0


def hostile_network() -> Network:
    return Network(lose=0.003, duplicate=0.03, delay=0.01, delay_s_max=_DELAY_S_MAX, cut=0.01, one_host=0.7)


def let_calm_down(cluster: SimulatedCluster) -> None:
    """End all faults, and wait until all nodes are up and all chunks fully replicated."""
    world = cluster.world
    world.network = Network()
    assert world.run(lambda: all(node.up for node in world.nodes.values()), limit_s=60.0)
    world.run(lambda: False, limit_s=DOUBT_S)
    for datanode in cluster.datanodes:
        if not datanode.store.writable:
            # A datanode without a disk is useless; an administrator would restart it.
            datanode.crash()
            datanode.start()
    cluster.until_ready()
    assert world.run(cluster.fully_replicated, limit_s=600.0), "repair does not come to an end"
    world.run(lambda: False, limit_s=5.0)


def check_everything(cluster: SimulatedCluster, clients: Sequence[PrivateDirectory]) -> None:
    reader = cluster.world.nodes.get("client-reader") or cluster.client("client-reader")
    for client in clients:
        for name in sorted(client.files):
            cluster.world.run_task(cluster.start(reader, name, client.check(name, "simulated")), limit_s=100.0)
        for name, snapshot in sorted(client.snapshots.items()):
            for file in sorted(snapshot.shows):
                checking = client.check_snapshot(name, file, "simulated")
                cluster.world.run_task(cluster.start(reader, name, checking), limit_s=100.0)
        for name in sorted(client.copies):
            checking = client.check_copy(name, "simulated")
            cluster.world.run_task(cluster.start(reader, name, checking), limit_s=200.0)
    # The reads may have discovered a broken disk.
    cluster.world.run(lambda: False, limit_s=15.0)
    assert cluster.world.run(cluster.fully_replicated, limit_s=600.0)
    assert replicas_that_are_not_there(cluster) == []
    check_sound(cluster.coordinator.metadata)


def replicas_that_are_not_there(cluster: SimulatedCluster) -> list[tuple[int, str]]:
    """Return the replicas that the coordinator knows but that are on no disk."""
    coordinator = cluster.coordinator
    return [
        (record.chunk, holder)
        for record in coordinator.metadata.reader().chunks(0, 1_000_000)
        if (state := coordinator.cluster.chunks.get(record.chunk)) is not None
        for holder in state.holders
        if (held := coordinator.datanodes[holder].store.find(record.chunk)) is None
        or held.version != record.version
    ]
