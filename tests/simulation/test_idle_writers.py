"""A writer whose source stalls, in the simulated cluster: its pipeline survives, and no other writer waits."""

from __future__ import annotations

import pytest
from simulation.client_requests import Create, Created
from simulation.client_steps import read
from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import CALL_TIMEOUT_S, GRANT_CLIENT, HOP_TIMEOUT_S

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.file_writer import write_file
from peacefs.coordinator.scheduling.grant_monitor import idle_grant_look_s
from peacefs.protocol.limits import MIB
from peacefs.runtime import effects as fx

_BLOCK = 4 * MIB


def write(path: str, source: ByteStream) -> fx.Steps[None]:
    """Write a file in chunks that are larger than the writer's buffer when it asks for a grant."""
    created = yield from fx.call(Create(path, path), Created, timeout_s=CALL_TIMEOUT_S)
    yield from write_file(
        created.token,
        created.allocated,
        source,
        chunk_bytes=_BLOCK,
        grant_client=GRANT_CLIENT,
        hop_timeout_s=HOP_TIMEOUT_S,
    )


@pytest.mark.parametrize("policy", ["express", "paper"])
@pytest.mark.evidence("idle-writer")
def test_idle_source_holds_nobody_up_and_is_written_whole(policy: str) -> None:
    cluster = SimulatedCluster(5, datanodes=3, streams_per_node=1, policy=policy)
    cluster.until_ready()
    world = cluster.world
    scheduling = cluster.coordinator.files.schedule.scheduling
    source = ByteStream()
    begun = bytes(range(256)) * (2 * MIB // 256)
    source.feed(begun)
    slow = cluster.start(cluster.client("slow"), "write", write("/slow", source))
    assert world.run(lambda: any(grant.begun for grant in scheduling.grants), limit_s=4 * idle_grant_look_s)
    (held,) = scheduling.grants
    others = {f"/{number}": bytes([number]) * (_BLOCK + number) for number in range(3)}
    began_s = world.now_s
    writing = [
        cluster.start(cluster.client(path), "write", write(path, ByteStream.of(data)))
        for path, data in others.items()
    ]
    for task in writing:
        world.run_task(task, limit_s=60.0)
    assert held.is_idle and held in scheduling.grants and not slow.done
    assert world.now_s - began_s < 5 * idle_grant_look_s
    # Single bytes change nothing; then the rest arrives at once.
    source.feed(b"x")
    assert not world.run(lambda: not held.is_idle, limit_s=3 * idle_grant_look_s)
    source.feed(bytes(MIB))
    source.finish()
    world.run_task(slow, limit_s=60.0)
    assert world.run(lambda: not scheduling.grants, limit_s=10.0)
    reader = cluster.client("reader")
    for path, data in {**others, "/slow": begun + b"x" + bytes(MIB)}.items():
        assert world.run_task(cluster.start(reader, "read", read(path)), limit_s=60.0) == data
