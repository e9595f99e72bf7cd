"""Writers that ask for grants over HTTP: the coordinator holds each request until a grant or a timeout."""

from __future__ import annotations

from random import Random

import pytest
from simulation.client_steps import read, stated
from simulation.saboteur import Saboteur
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import CHUNK_BYTES, HTTP_CLIENT

from peacefs.client.transfer.write_grants import GrantClient
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.messages import Message, Scheduled, StateWriteSet
from peacefs.runtime import effects as fx

_WRITERS = 10
_CHUNKS = 5
#: The minimum number of held requests that a grant must answer for the test to be meaningful.
_HELD_MIN = 6
#: An answer within this time was not held. An answer this much before the timeout was caused by a grant.
_HELD_S = 0.001


def write_until_done(path: str, data: bytes, grant_client: GrantClient, random: Random) -> fx.Steps[None]:
    while True:
        try:
            yield from stated(path, data, f"{path}-{random.random()}", grant_client=grant_client)
            return
        except PeacefsError:
            yield from fx.sleep(1.0)


@pytest.mark.parametrize("seed", seeds(4))
def test_held_question_is_answered_by_the_grant_that_it_waits_for(seed: int) -> None:
    print(f"seed {seed}")
    cluster, random = SimulatedCluster(seed, streams_per_node=1, lose=0.002), Random(seed)
    world = cluster.world
    cluster.until_ready()
    answered, held = cluster.coordinator.answer, 0

    async def overhear(caller: str, message: Message) -> Message:
        nonlocal held
        began_s = world.now_s
        reply = await answered(caller, message)
        if isinstance(message, StateWriteSet) and isinstance(reply, Scheduled) and reply.grants:
            held += _HELD_S < world.now_s - began_s < message.wait_s - _HELD_S
        return reply

    cluster.coordinator.answer = overhear  # type: ignore[method-assign]
    world.coordinator = overhear
    saboteur = Saboteur(cluster, random, effects_between=2000)
    written = {f"/{number}": random.randbytes(_CHUNKS * CHUNK_BYTES) for number in range(_WRITERS)}
    writing = [
        cluster.start(
            cluster.client(f"{HTTP_CLIENT}-{path[1:]}"),
            path,
            write_until_done(path, data, GrantClient(f"writer-{path[1:]}", pushed=False), random),
        )
        for path, data in written.items()
    ]
    for task in writing:
        world.run_task(task, limit_s=3000.0)
    saboteur.rest()
    world.network.lose = 0.0
    assert world.run(lambda: all(node.up for node in world.nodes.values()), limit_s=60.0)
    cluster.until_ready()
    reader = cluster.client("client-reader")
    for path, data in written.items():
        assert world.run_task(cluster.start(reader, path, read(path)), limit_s=60.0) == data
    assert held >= _HELD_MIN, "hardly anybody waited and was woken"
    print(f"{held} questions were held, {saboteur.crashes} crashes, {world.now_s:.0f} s")
