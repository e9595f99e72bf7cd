"""The whole cluster while everything goes wrong at once, and while a backup is put back in the middle of it.

Nodes crash, a disk breaks down and comes back with what it held, messages are lost, late, doubled and cut in the
middle, and clocks jump. Clients write, extend, flush (and are gone in the middle of it), truncate, move, delete,
take snapshots and restore them, and try what they may not. See `private_directory` for what must hold, and `seeds`
for how to play more.
"""

from __future__ import annotations

from random import Random

import pytest
from simulation.private_directory import PrivateDirectory
from simulation.saboteur import ClockMover, DiskBreaker, Saboteur
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.world import Network

from peacefs.coordinator.metadata_check import check_tables

_DELAY_S_MAX = 12.0
_DOUBT_S = 2 * _DELAY_S_MAX + 10.0


def hostile_network() -> Network:
    return Network(lose=0.003, duplicate=0.03, delay=0.01, delay_s_max=_DELAY_S_MAX, cut=0.01)


def directories(cluster: SimulatedCluster, count: int, random: Random) -> list[PrivateDirectory]:
    """Of clients that are each their own user."""
    names = [f"client-{number}" for number in range(count)]
    made = []
    for name in names:
        others = [other for other in names if other != name]
        directory = PrivateDirectory(name, others, Random(random.random()), _DOUBT_S)
        node = cluster.world.nodes.get(name) or cluster.client(name)
        cluster.world.run_task(cluster.start(node, "set up", directory.set_up("simulated")), limit_s=2000.0)
        made.append(directory)
    return made


def work(cluster: SimulatedCluster, clients: list[PrivateDirectory], operations: int) -> None:
    """All at once, each to its end."""
    tasks = [
        cluster.start(cluster.world.nodes[client.owner], "work", client.work(operations)) for client in clients
    ]
    for task in tasks:
        cluster.world.run_task(task, limit_s=20_000.0)


def let_calm_down(cluster: SimulatedCluster) -> None:
    """Nothing goes wrong any more, and everybody is there."""
    world = cluster.world
    world.network = Network()
    assert world.run(lambda: all(node.up for node in world.nodes.values()), limit_s=60.0)
    world.run(lambda: False, limit_s=_DOUBT_S)
    cluster.until_ready()
    assert world.run(cluster.fully_replicated, limit_s=600.0), "repair does not come to an end"
    world.run(lambda: False, limit_s=5.0)


def check_everything(cluster: SimulatedCluster, clients: list[PrivateDirectory]) -> None:
    reader = cluster.world.nodes.get("client-reader") or cluster.client("client-reader")
    for client in clients:
        for name in sorted(client.files):
            cluster.world.run_task(cluster.start(reader, name, client.check(name, "simulated")), limit_s=100.0)
        for name, snapshot in sorted(client.snapshots.items()):
            for file in sorted(snapshot.shows):
                checking = client.check_snapshot(name, file, "simulated")
                cluster.world.run_task(cluster.start(reader, name, checking), limit_s=100.0)
    # Reading may have shown that a disk is broken.
    cluster.world.run(lambda: False, limit_s=15.0)
    assert cluster.world.run(cluster.fully_replicated, limit_s=600.0)
    assert replicas_that_are_not_there(cluster) == []
    findings = check_tables(cluster.coordinator.metadata._writer, lambda _name, _done, _all: None)
    assert findings.problems == []


def replicas_that_are_not_there(cluster: SimulatedCluster) -> list[tuple[int, str]]:
    """What the coordinator believes in, and no disk holds."""
    coordinator = cluster.coordinator
    return [
        (record.chunk, holder)
        for record in coordinator.metadata.reader().chunks(0, 1_000_000)
        if (state := coordinator.cluster.chunks.get(record.chunk)) is not None
        for holder in state.holders
        if (held := coordinator.datanodes[holder].store.find(record.chunk)) is None
        or held.version != record.version
    ]


@pytest.mark.parametrize("seed", seeds(8))
def test_what_was_acknowledged_survives_everything_at_once(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed)
    random = Random(seed)
    cluster.until_ready()
    clients = directories(cluster, 3, random)
    cluster.world.network = hostile_network()
    saboteur = Saboteur(cluster, random, effects_between=400)
    breaker = DiskBreaker(cluster, random)
    clocks = ClockMover(cluster, random)
    work(cluster, clients, operations=100)
    saboteur.rest()
    breaker.rest()
    clocks.set_right()
    let_calm_down(cluster)
    check_everything(cluster, clients)
    world = cluster.world
    assert saboteur.crashes >= 3 and clocks.jumps >= 3
    assert world.messages_lost and world.messages_duplicated and world.messages_delayed and world.messages_cut
    assert sum(sum(client.acknowledged.values()) for client in clients) > 60
    print(
        f"{[client.acknowledged for client in clients]}, {sum(client.failed for client in clients)} failed, "
        f"{saboteur.crashes} crashes, {breaker.broken} disks, {clocks.jumps} jumps, {world.now_s:.0f} s"
    )


@pytest.mark.parametrize("seed", seeds(4))
def test_a_backup_put_back_shows_what_was_there_and_what_follows_is_as_safe(seed: int) -> None:
    """What was changed after the backup is forgotten; what was not is whole, whatever happened to the nodes."""
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed)
    random = Random(seed)
    cluster.until_ready()
    clients = directories(cluster, 2, random)
    cluster.world.network = hostile_network()
    saboteur = Saboteur(cluster, random, effects_between=400)
    work(cluster, clients, operations=40)
    cluster.world.network = Network()
    cluster.world.run(lambda: False, limit_s=_DOUBT_S)
    backup = cluster.coordinator.back_up()

    cluster.world.network = hostile_network()
    later = PrivateDirectory("client-later", ["client-0"], Random(random.random()), _DOUBT_S)
    cluster.client(later.owner)
    cluster.world.run_task(
        cluster.start(cluster.world.nodes[later.owner], "set up", later.set_up("simulated")), limit_s=2000.0
    )
    work(cluster, [later], operations=40)
    saboteur.rest()
    assert cluster.world.run(lambda: all(node.up for node in cluster.world.nodes.values()), limit_s=60.0)
    cluster.coordinator.crash()
    cluster.coordinator.restore(backup)
    cluster.coordinator.start()
    let_calm_down(cluster)
    check_everything(cluster, clients)

    cluster.world.network = hostile_network()
    saboteur = Saboteur(cluster, random, effects_between=400)
    work(cluster, clients, operations=40)
    saboteur.rest()
    let_calm_down(cluster)
    check_everything(cluster, clients)
    assert cluster.coordinator.metadata.reader().floor_held()
