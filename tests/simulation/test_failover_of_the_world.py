"""Several coordinators with datanodes and clients, under a seed: no failover loses anything acknowledged.

A failing seed replays exactly: PEACEFS_SEED=n. PEACEFS_SEEDS=n plays more seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from simulation.client_steps import write
from simulation.failover_coordinator import JOURNAL, FailoverCoordinator
from simulation.failover_world import FailoverSaboteur, FailoverWorld
from simulation.seeds import seeds
from simulation.simulated_coordinator import sleep
from simulation.simulated_datanode import ROOM_BYTES, SimulatedDatanode
from simulation.simulated_network import Network
from simulation.terms import CHUNK_BYTES
from simulation.test_cluster_under_a_seed import Model, busy_client, check

from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.coordinator.rpc.datanode_links import DatanodeLinks
from peacefs.datanode.control.obedience import Obedience
from peacefs.protocol.messages import DeleteChunks, Message, Replica


def play(cluster: FailoverWorld, seed: int, operations: int = 40) -> Model:
    """Let clients write, append, rename, delete and read under all faults of the coordinators."""
    random = Random(seed)
    world = cluster.world
    cluster.until_ready()
    saboteur = FailoverSaboteur(cluster, random)
    model = Model()
    clients = [
        cluster.start(
            cluster.client(f"client-{number}"),
            f"client-{number}",
            busy_client(f"client-{number}", model, Random(random.random()), operations),
        )
        for number in range(3)
    ]
    for client in clients:
        world.run_task(client, limit_s=4000.0)
    saboteur.rest()
    assert world.run(lambda: all(node.up for node in world.nodes.values()), limit_s=60.0)
    assert world.run(lambda: cluster.leader is not None, limit_s=60.0), "nobody leads"
    cluster.until_ready()
    assert world.run(cluster.fully_replicated, limit_s=400.0), "repair does not come to an end"
    reader = cluster.client("client-reader")
    for path in sorted(model.possible):
        world.run_task(cluster.start(reader, path, check(path, model)), limit_s=100.0)
    assert world.run(cluster.is_settled, limit_s=60.0), "the stores differ"
    print(f"{model.acknowledged} acknowledged, {model.failed} failed, {saboteur.done}, led {cluster.led}")
    return model


@pytest.mark.evidence("leader-dies")
@pytest.mark.evidence("leader-frozen")
@pytest.mark.evidence("all-die-at-once")
@pytest.mark.evidence("journal-partition")
@pytest.mark.parametrize("coordinators", [2, 3])
@pytest.mark.parametrize("seed", seeds(2))
def test_failover_of_the_world_keeps_what_was_acknowledged(seed: int, coordinators: int) -> None:
    cluster = FailoverWorld(seed, coordinators=coordinators, network=Network(lose=0.002))
    model = play(cluster, seed)
    assert model.acknowledged > 30
    assert len({name for name, _epoch in cluster.led}) > 1


# -- single mechanisms, and what happens without each --------------------------------------------------


class CredulousObedience(Obedience):
    """Obeys every coordinator."""

    def may_order(self, epoch: int) -> bool:
        return True


class HastyObedience(Obedience):
    """Reports a new epoch while it still carries out deletions of an earlier one."""

    @property
    def settled(self) -> int:
        return self.epoch


def with_a_file(obedience: type[Obedience], datanodes: int) -> tuple[FailoverWorld, ChunkRecord]:
    """Return a world without faults, and the chunk of its only file."""
    cluster = FailoverWorld(7, datanodes=datanodes, obedience=obedience)
    cluster.until_ready()
    client = cluster.client("client")
    data = Random(7).randbytes(CHUNK_BYTES)
    cluster.world.run_task(cluster.start(client, "write", write("/f", data, "w")), limit_s=60.0)
    (record,) = cluster.coordinator.metadata.reader().chunks(0, 10)
    return cluster, record


def holders_of(cluster: FailoverWorld, record: ChunkRecord) -> list[SimulatedDatanode]:
    return [each for each in cluster.datanodes if each.store.find(record.chunk) is not None]


def leader_of(cluster: FailoverWorld) -> FailoverCoordinator:
    assert cluster.leader is not None
    return cluster.leader


async def keep_ordering(old: FailoverCoordinator, holder: str, record: ChunkRecord) -> None:
    """Let a replaced leader continue to send orders."""
    for _ in range(20):
        order = DeleteChunks([Replica(record.chunk, record.version, record.length)])
        DatanodeLinks.send(old.links, holder, order)
        await sleep(0.01)


def is_ordered_by_a_leader_that_was_replaced(
    obedience: type[Obedience], befalls: Callable[[FailoverWorld, SimulatedDatanode], None]
) -> None:
    cluster, record = with_a_file(obedience, datanodes=3)
    world, old, holder = cluster.world, leader_of(cluster), holders_of(cluster, record)[0]
    # Keep the old leader from learning that it was replaced.
    world.network.separated.add(frozenset((old.name, JOURNAL)))
    assert world.run(lambda: cluster.leader not in (None, old), limit_s=10.0)
    epoch = leader_of(cluster).epochs.numbering.epoch
    assert world.run(lambda: all(each.epoch_told == epoch for each in cluster.datanodes), limit_s=10.0)
    befalls(cluster, holder)
    world.run(lambda: False, limit_s=3.0)
    world.spawn(old.node, "going on", keep_ordering(old, holder.node.name, record))
    world.run(lambda: False, limit_s=5.0)
    assert holder in holders_of(cluster, record)


def nothing(cluster: FailoverWorld, holder: SimulatedDatanode) -> None:
    """Do nothing to the datanode."""


def restart_apart_from_the_leader(cluster: FailoverWorld, holder: SimulatedDatanode) -> None:
    """Restart the datanode without a connection to the new leader."""
    name = leader_of(cluster).name
    cluster.world.network.separated.add(frozenset((name, holder.node.name)))
    holder.crash()
    holder.start()


def lose_its_memory(cluster: FailoverWorld, holder: SimulatedDatanode) -> None:
    """Restart the datanode without its record of epochs."""
    holder.epoch_seen = 0
    restart_apart_from_the_leader(cluster, holder)


@pytest.mark.parametrize("befalls", [nothing, restart_apart_from_the_leader])
def test_order_of_a_leader_that_was_replaced_is_refused(
    befalls: Callable[[FailoverWorld, SimulatedDatanode], None],
) -> None:
    is_ordered_by_a_leader_that_was_replaced(Obedience, befalls)


def test_order_of_a_leader_that_was_replaced_would_be_obeyed_without_comparing_epochs() -> None:
    with pytest.raises(AssertionError, match="was obeyed after epoch"):
        is_ordered_by_a_leader_that_was_replaced(CredulousObedience, nothing)


def test_order_of_a_leader_that_was_replaced_would_be_obeyed_without_remembering_epochs() -> None:
    with pytest.raises(AssertionError, match="was obeyed after epoch"):
        is_ordered_by_a_leader_that_was_replaced(Obedience, lose_its_memory)


def has_a_surplus_that_two_leaders_drop(obedience: type[Obedience]) -> None:
    """Stop the leader after a datanode received the order to drop a replica, but before it has dropped it."""
    cluster, record = with_a_file(obedience, datanodes=4)
    world, old = cluster.world, leader_of(cluster)
    ordered: list[str] = []

    def queue_s(order: Message) -> float:
        if not isinstance(order, DeleteChunks):
            return 0.0
        ordered.append(old.name)
        return 20.0 if len(ordered) == 1 else 0.0

    for each in cluster.datanodes:
        each.queue_s = queue_s
    away = holders_of(cluster, record)[0]
    away.crash()
    assert world.run(lambda: len(holders_of(cluster, record)) == 4, limit_s=60.0), "it is copied to the fourth"
    away.start()
    assert world.run(lambda: bool(ordered), limit_s=60.0), "one too many is ordered to go"
    old.node.paused_until_s = world.now_s + 30.0
    # The next leader would drop another replica.
    for each in holders_of(cluster, record):
        each.capacity_bytes = ROOM_BYTES if each is away else ROOM_BYTES // 2
    world.run(lambda: False, limit_s=45.0)
    assert len(holders_of(cluster, record)) == record.replication


def test_surplus_replicas_are_dropped_by_one_of_two_leaders() -> None:
    has_a_surplus_that_two_leaders_drop(Obedience)


def test_surplus_replicas_would_be_dropped_by_both_leaders_without_waiting_for_what_is_under_way() -> None:
    with pytest.raises(AssertionError, match="dropped a replica of"):
        has_a_surplus_that_two_leaders_drop(HastyObedience)
