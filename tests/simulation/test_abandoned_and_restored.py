"""Abandoned chunks, when the coordinator is replaced by one from an older backup.

The restored coordinator has forgotten which chunks were abandoned and which were published. It never assigns a
chunk id twice. So it ignores a writer that abandons a chunk from an earlier coordinator, and drops nothing from
that time until the floor is released.
"""

from __future__ import annotations

from random import Random

import pytest
from simulation.client_requests import Extend
from simulation.client_steps import append, write
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import CALL_TIMEOUT_S, CHUNK_BYTES, GRANT_CLIENT, HOP_TIMEOUT_S, LOOK_S
from simulation.test_abandoned_chunks import HeadBreaker, run, unknown_replicas
from simulation.test_restored_metadata import (
    cluster_with_short_lived_tokens,
    content,
    crash_and_start,
    held,
    let_pass,
)

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.file_appender import append_file
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.protocol.errors import LeaseExpired, PeacefsError
from peacefs.protocol.messages import AllocateChunk, Allocated, Leased
from peacefs.runtime import effects as fx

_TOKENS_LIVE_S = 40.0
SIZES = pytest.mark.parametrize("size", [5000, 300 * 1024, CHUNK_BYTES + 5], ids=["small", "large", "granted"])


def lease(path: str, holder: str) -> fx.Steps[Leased]:
    return (yield from fx.call(Extend(path, holder, "simulated"), Leased, timeout_s=CALL_TIMEOUT_S))


def finish(leased: Leased, data: bytes) -> fx.Steps[None]:
    yield from append_file(
        leased,
        ByteStream.of(data),
        chunk_bytes=leased.block_bytes,
        grant_client=GRANT_CLIENT,
        hop_timeout_s=HOP_TIMEOUT_S,
    )


def release_gc_floor(cluster: SimulatedCluster) -> None:
    assert run_now(cluster.coordinator.metadata, lambda tx: tx.release_gc_floor())
    let_pass(cluster, 3 * _TOKENS_LIVE_S)
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=3 * _TOKENS_LIVE_S, look_s=LOOK_S)


def assert_nothing_is_missing(cluster: SimulatedCluster) -> None:
    assert not cluster.coordinator.cluster.chunks.missing
    chunks = {record.chunk for record in cluster.coordinator.metadata.reader().chunks(0, 1_000_000)}
    assert chunks <= {chunk for _node, chunk, _version in held(cluster)}


@pytest.mark.parametrize("seed", seeds(3))
@SIZES
def test_a_file_that_was_completed_without_what_its_writer_gave_up(seed: int, size: int) -> None:
    print(f"seed {seed}")
    cluster, random = cluster_with_short_lived_tokens(seed), Random(seed)
    client = cluster.client("client-1")
    run(cluster, client, write("/log", b"first", "r"))
    backup = cluster.coordinator.back_up()
    breaker = HeadBreaker(cluster)
    data, more = random.randbytes(size), random.randbytes(size)
    run(cluster, client, append("/log", data, "writer"))
    assert breaker.broken
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=10.0, look_s=LOOK_S), (
        "what was given up is gone"
    )
    cluster.until_ready()
    before = held(cluster)

    crash_and_start(cluster, backup)
    assert content(cluster, "/log") == b"first"
    run(cluster, client, append("/log", more, "writer"))
    let_pass(cluster, 3 * _TOKENS_LIVE_S)
    assert before <= held(cluster), "what was published and is forgotten stays"
    assert unknown_replicas(cluster)
    assert content(cluster, "/log") == b"first" + more
    release_gc_floor(cluster)
    assert content(cluster, "/log") == b"first" + more
    assert_nothing_is_missing(cluster)


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("taken_before", [True, False], ids=["the older's lease in the backup", "neither's"])
@SIZES
@pytest.mark.evidence("older-backup")
def test_a_writer_that_a_newer_lease_had_fenced_off(seed: int, size: int, taken_before: bool) -> None:
    """The restored coordinator forgets all earlier answers and abandoned chunks; a file completed now is whole."""
    print(f"seed {seed}")
    cluster, random = cluster_with_short_lived_tokens(seed), Random(seed)
    client = cluster.client("client-1")
    older, newer, late = (random.randbytes(size) for _ in range(3))
    run(cluster, client, write("/log", b"first", "r"))
    backup = None if taken_before else cluster.coordinator.back_up()
    fenced = run(cluster, client, lease("/log", "writer"))
    backup = backup or cluster.coordinator.back_up()
    winner = run(cluster, client, lease("/log", "writer"))
    with pytest.raises(LeaseExpired):
        run(cluster, client, finish(fenced, older))
    run(cluster, client, finish(winner, newer))
    assert content(cluster, "/log") == b"first" + newer
    let_pass(cluster, 5.0)
    before = held(cluster)

    crash_and_start(cluster, backup)
    completed = b""
    for leased, data in ((winner, newer), (fenced, late)):
        try:
            run(cluster, client, finish(leased, data))
        except PeacefsError:
            continue
        completed += data
    assert completed == (late if taken_before else b""), "of whose lease nothing is known completes nothing"
    assert content(cluster, "/log") == b"first" + completed
    let_pass(cluster, 3 * _TOKENS_LIVE_S)
    assert before <= held(cluster), "the word of a writer of the time before is not taken"
    assert content(cluster, "/log") == b"first" + completed
    run(cluster, client, append("/log", b"last", "somebody else"))
    release_gc_floor(cluster)
    assert content(cluster, "/log") == b"first" + completed + b"last"
    assert_nothing_is_missing(cluster)


@pytest.mark.parametrize("seed", seeds(3))
@SIZES
@pytest.mark.evidence("older-backup")
def test_abandoned_chunk_that_the_coordinator_before_had_published(seed: int, size: int) -> None:
    """The backup has the writer's lease but not its published chunks; now the writer abandons them."""
    print(f"seed {seed}")
    cluster, random = cluster_with_short_lived_tokens(seed), Random(seed)
    client = cluster.client("client-1")
    run(cluster, client, write("/log", b"first", "r"))
    leased = run(cluster, client, lease("/log", "writer"))
    backup = cluster.coordinator.back_up()
    run(cluster, client, finish(leased, random.randbytes(size)))
    let_pass(cluster, 5.0)
    published = {record.chunk for record in cluster.coordinator.metadata.reader().chunks(0, 1_000_000)}
    before = held(cluster)

    crash_and_start(cluster, backup)
    for chunk in sorted(published):
        wanted = AllocateChunk(leased.token, [], chunk)
        run(cluster, client, fx.call(wanted, Allocated, timeout_s=CALL_TIMEOUT_S))
    let_pass(cluster, 3 * _TOKENS_LIVE_S)
    assert before <= held(cluster)
    assert content(cluster, "/log") == b"first"
