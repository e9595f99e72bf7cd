"""A checkpoint of several files, written by several participants at once, under crashes of all kinds of nodes."""

from __future__ import annotations

from random import Random

import pytest
from simulation.client_requests import Create, Created
from simulation.client_steps import read
from simulation.saboteur import Saboteur
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import CALL_TIMEOUT_S, CHUNK_BYTES, GRANT_CLIENT, HOP_TIMEOUT_S
from simulation.test_flushing_under_a_seed import patiently

from peacefs.client.checkpoint.pages import Pages, Stop
from peacefs.client.checkpoint.parallel_writer import GrantedParts
from peacefs.client.checkpoint.parts import part_lengths, split
from peacefs.client.transfer.write_grants import EarlierTry
from peacefs.protocol.errors import CheckpointCancelled, FileNotFound, PeacefsError
from peacefs.runtime import effects as fx

_PARTS = 3


def begin(pages: Pages, workers: int) -> fx.Steps[GrantedParts]:
    created = []
    for part in range(_PARTS):
        wanted = Create(f"/part-{part}", f"part-{part}")
        created.append((yield from fx.call(wanted, Created, timeout_s=CALL_TIMEOUT_S)))
    return GrantedParts(
        GRANT_CLIENT,
        pages,
        split(pages.length, _PARTS, CHUNK_BYTES),
        [each.token for each in created],
        workers=workers,
        stop=Stop(),
        earlier=EarlierTry(abandoned=[each.allocated.chunk for each in created]),
        hop_timeout_s=HOP_TIMEOUT_S,
    )


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.evidence("io-service-faults")
def test_many_writers_of_one_checkpoint_write_every_chunk_once_or_say_why_not(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    cluster = SimulatedCluster(seed, lose=0.003, streams_per_node=random.choice((1, 2, 8)))
    cluster.until_ready()
    data = random.randbytes(17 * CHUNK_BYTES + 5)
    pages = Pages([data[at : at + 50_001] for at in range(0, len(data), 50_001)])
    world, client = cluster.world, cluster.client("client-1")
    parts = world.run_task(cluster.start(client, "begin", patiently(begin(pages, 5))), limit_s=400.0)
    saboteur = Saboteur(cluster, Random(seed), effects_between=150)
    workers = [cluster.start(client, f"worker-{number}", patiently(parts.work())) for number in range(5)]
    fault = None
    for worker in workers:
        try:
            world.run_task(worker, limit_s=4000.0)
        except PeacefsError as raised:
            print(f"a worker gave up: {raised}")
            fault = fault or raised
    finish = parts.grants.give_back() if fault else parts.complete()
    world.run_task(cluster.start(client, "finish", patiently(finish)), limit_s=400.0)
    saboteur.rest()
    world.network.lose = 0.0
    assert world.run(lambda: all(node.up for node in world.nodes.values()), limit_s=60.0)
    cluster.until_ready()
    at = 0
    for part, length in enumerate(part_lengths(split(pages.length, _PARTS, CHUNK_BYTES))):
        reading = cluster.start(client, "read", read(f"/part-{part}"))
        if fault is None:
            assert world.run_task(reading, limit_s=100.0) == data[at : at + length]
        else:
            with pytest.raises(FileNotFound):
                world.run_task(reading, limit_s=100.0)
        at += length
    assert world.run(lambda: not cluster.coordinator.files.schedule.scheduling.grants, limit_s=200.0), (
        "capacity did not come back"
    )
    print(f"{saboteur.crashes} crashes")


@pytest.mark.evidence("io-service-faults")
def test_given_up_in_the_middle_it_holds_nothing_and_publishes_nothing() -> None:
    cluster = SimulatedCluster(1, streams_per_node=1)
    cluster.until_ready()
    pages = Pages([bytes(9 * CHUNK_BYTES)])
    world, client = cluster.world, cluster.client("client-1")
    parts = world.run_task(cluster.start(client, "begin", begin(pages, 3)), limit_s=10.0)
    workers = [cluster.start(client, f"worker-{number}", parts.work()) for number in range(3)]
    scheduling = cluster.coordinator.files.schedule.scheduling
    assert world.run(lambda: scheduling.times.granted_total >= 2, limit_s=60.0)
    parts.give_up(CheckpointCancelled("enough"))
    for worker in workers:
        with pytest.raises(CheckpointCancelled, match="enough"):
            world.run_task(worker, limit_s=60.0)
    world.run_task(cluster.start(client, "give back", parts.grants.give_back()), limit_s=60.0)
    assert world.run(lambda: not scheduling.grants and not scheduling.chunks_waiting, limit_s=60.0)
    with pytest.raises(FileNotFound):
        world.run_task(cluster.start(client, "read", read("/part-0")), limit_s=60.0)
