"""The whole cluster under all faults at once, and with a backup restored in the middle.

Nodes crash. A disk breaks and returns with its old data; another disk fails to sync, fills up or rots. Messages
are lost, late, duplicated and cut, links are cut, and clocks jump. The coordinator's own disk is full at times.
Datanodes are decommissioned, return empty after they were drained, and are balanced, as are their disks. Pairs of
writers write versions of the same chunk.

Clients write, extend, flush, truncate, move, exchange, join and delete. They take and restore snapshots, copy
their directories, and use the trash. Quotas change, flushing writers die or lose their lease, and clients try
forbidden operations. `private_directory` says what must hold, and `seeds` how to play more.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from simulation.disk_mishaps import DiskMishaps
from simulation.hostility import DOUBT_S, check_everything, hostile_network, let_calm_down
from simulation.latecomers import Latecomers
from simulation.operating import Operator
from simulation.private_directory import PrivateDirectory
from simulation.saboteur import ClockMover, DiskBreaker, MetadataFiller, Saboteur, Separator
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_network import Network
from support.long_runs import often

_TRASH_MINUTES = 5
#: The number of requests per client, and the kinds that must have succeeded at least once over all clients.
_OPERATIONS, _KINDS_MIN = often(34, 70), often(15, 18)
_OPERATIONS_AROUND_A_BACKUP = often(11, 32)


def directories(cluster: SimulatedCluster, count: int, random: Random) -> list[PrivateDirectory]:
    """Return the directories of clients, each with its own user."""
    names = [f"client-{number}" for number in range(count)]
    made = []
    for name in names:
        others = [other for other in names if other != name]
        directory = PrivateDirectory(name, others, Random(random.random()), DOUBT_S)
        node = cluster.world.nodes.get(name) or cluster.client(name)
        cluster.world.run_task(cluster.start(node, "set up", directory.set_up()), limit_s=2000.0)
        made.append(directory)
    return made


def work(cluster: SimulatedCluster, clients: list[PrivateDirectory], operations: int) -> None:
    """Run all clients at the same time until each has finished."""
    tasks = [
        cluster.start(cluster.world.nodes[client.owner], "work", client.work(operations)) for client in clients
    ]
    for task in tasks:
        cluster.world.run_task(task, limit_s=20_000.0)


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.evidence(
    "acknowledged-is-durable",
    "names-are-atomic",
    "answers-survive-kill",
    "messages-lost",
    "partition",
    "drained-node-lost",
)
def test_acknowledged_writes_survive_everything_at_once(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed, trash_minutes=_TRASH_MINUTES)
    random = Random(seed)
    cluster.until_ready()
    clients = directories(cluster, 3, random)
    cluster.world.network = hostile_network()
    saboteur = Saboteur(cluster, random, effects_between=400)
    breaker = DiskBreaker(cluster, random)
    clocks = ClockMover(cluster, random)
    mishaps = DiskMishaps(cluster, random)
    operator = Operator(cluster, random)
    separator = Separator(cluster, random)
    latecomers = Latecomers(cluster, random)
    filler = MetadataFiller(cluster, random)
    work(cluster, clients, operations=_OPERATIONS)
    saboteur.rest()
    breaker.rest()
    clocks.set_right()
    mishaps.rest()
    operator.rest()
    latecomers.rest()
    filler.rest()
    let_calm_down(cluster)
    check_everything(cluster, clients)
    world = cluster.world
    assert saboteur.crashes >= 3 and clocks.jumps >= 3 and separator.cuts >= 3 and filler.times >= 3
    assert world.messages_lost and world.messages_duplicated and world.messages_delayed and world.messages_cut
    acknowledged = sum((Counter(client.acknowledged) for client in clients), Counter())
    assert latecomers.acknowledged and latecomers.refused
    assert acknowledged.total() > 0.8 * _OPERATIONS and len(acknowledged) >= _KINDS_MIN
    print(
        f"{[client.acknowledged for client in clients]}, {sum(client.failed for client in clients)} failed, "
        f"{saboteur.crashes} crashes, {filler.times} times full, {breaker.broken} disks, {clocks.jumps} jumps, "
        f"{separator.cuts} cuts, "
        f"{dict(mishaps.happened)}, {dict(operator.done)}, "
        f"{latecomers.acknowledged} versions written, {latecomers.refused} refused, "
        f"{world.files_shared} files lent, {world.now_s:.0f} s"
    )


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.evidence("return-is-harmless", "older-backup")
def test_a_backup_put_back_shows_what_was_there_and_what_follows_is_as_safe(seed: int) -> None:
    """Changes after the backup are forgotten. Everything else is whole, whatever happened to the nodes."""
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed, trash_minutes=_TRASH_MINUTES)
    random = Random(seed)
    cluster.until_ready()
    clients = directories(cluster, 2, random)
    cluster.world.network = hostile_network()
    saboteur = Saboteur(cluster, random, effects_between=400)
    work(cluster, clients, operations=_OPERATIONS_AROUND_A_BACKUP)
    cluster.world.network = Network()
    cluster.world.run(lambda: False, limit_s=DOUBT_S)
    backup = cluster.coordinator.back_up()

    cluster.world.network = hostile_network()
    later = PrivateDirectory("client-later", ["client-0"], Random(random.random()), DOUBT_S)
    cluster.client(later.owner)
    cluster.world.run_task(
        cluster.start(cluster.world.nodes[later.owner], "set up", later.set_up()), limit_s=2000.0
    )
    work(cluster, [later], operations=_OPERATIONS_AROUND_A_BACKUP)
    saboteur.rest()
    assert cluster.world.run(lambda: all(node.up for node in cluster.world.nodes.values()), limit_s=60.0)
    cluster.coordinator.crash()
    cluster.coordinator.restore(backup)
    cluster.coordinator.start()
    let_calm_down(cluster)
    check_everything(cluster, clients)

    cluster.world.network = hostile_network()
    saboteur = Saboteur(cluster, random, effects_between=400)
    work(cluster, clients, operations=_OPERATIONS_AROUND_A_BACKUP)
    saboteur.rest()
    let_calm_down(cluster)
    check_everything(cluster, clients)
    assert cluster.coordinator.metadata.reader().gc_floor_held()
