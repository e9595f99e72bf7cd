"""Remains of dead writers are deleted within minutes despite crashes; chunks of slow live writers stay.

A writer that was silent for too long and then returns is refused: no file may refer to chunks that may be deleted.
"""

from __future__ import annotations

from random import Random

import pytest
from simulation.client_requests import Create, Created
from simulation.client_steps import flusher, read, write, write_from
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.terms import CALL_TIMEOUT_S, CHUNK_BYTES, GRANT_CLIENT, HOP_TIMEOUT_S, LOOK_S
from simulation.test_abandoned_chunks import run, unknown_replicas
from simulation.test_restored_metadata import content, crash_and_start, let_pass
from support.long_runs import often

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.file_writer import Written, write_chunks
from peacefs.coordinator.metadata.epochs import gc_floor_mark_interval_s
from peacefs.coordinator.operations.placement import chunk_begin_s
from peacefs.protocol.errors import AccessDenied, ChunkUnavailable, FileNotFound
from peacefs.protocol.messages import Completed, CompleteFile
from peacefs.runtime import effects as fx

#: Half the default time that chunks without a file are kept. Writers renew their chunks twice within that time.
KEPT_S = 60.0
#: Time until remains are gone in a quiet cluster: a mark, the silence, another mark, and some ticks.
GONE_S = KEPT_S + 2 * gc_floor_mark_interval_s + 20.0
_TURNS = often(9, 24)
SIZES = pytest.mark.parametrize("size", [5000, 300 * 1024, 2 * CHUNK_BYTES + 5], ids=["small", "large", "granted"])


def cluster_of(seed: int) -> SimulatedCluster:
    """Return a cluster that keeps chunks that no writer renews for `KEPT_S`."""
    cluster = SimulatedCluster(seed)
    cluster.coordinator.tokens_live_s = KEPT_S
    crash_and_start(cluster)
    return cluster


def write_and_pause(path: str, data: bytes) -> fx.Steps[tuple[str, Written]]:
    """Write a file's data without completing the file, like a writer that is suspended."""
    created = yield from fx.call(Create(path, path), Created, timeout_s=CALL_TIMEOUT_S)
    written = yield from write_chunks(
        created.token,
        created.allocated,
        ByteStream.of(data),
        chunk_bytes=CHUNK_BYTES,
        grant_client=GRANT_CLIENT,
        hop_timeout_s=HOP_TIMEOUT_S,
    )
    return created.token, written


def complete(token: str, written: Written) -> fx.Steps[Completed]:
    return (yield from fx.call(CompleteFile(token, written.chunks), Completed, timeout_s=20.0))


def assert_no_file_lacks_a_chunk(cluster: SimulatedCluster) -> None:
    on_disks = {replica.chunk for datanode in cluster.datanodes for replica in datanode.store.replicas()}
    assert {record.chunk for record in cluster.coordinator.metadata.reader().chunks(0, 1_000_000)} <= on_disks


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.evidence("writers-killed")
def test_dead_writers_garbage_is_gone_in_minutes_although_coordinators_die_all_the_time(seed: int) -> None:
    print(f"seed {seed}")
    cluster, random = cluster_of(seed), Random(seed)
    cluster.until_ready()
    kept: dict[str, bytes] = {}
    most_left = 0
    for turn in range(_TURNS):
        doomed, living = cluster.client(f"doomed-{turn}"), cluster.client(f"living-{turn}")
        data = random.randbytes(random.choice((5000, 300 * 1024, 2 * CHUNK_BYTES + 5)))
        source = ByteStream()
        source.feed(random.randbytes(2 * CHUNK_BYTES + 5000))
        cluster.start(
            doomed, "a file that is never finished", write_from(f"/never-{turn}", source, f"never-{turn}")
        )
        task = cluster.start(living, "a file", write(f"/file-{turn}", data, f"file-{turn}"))
        let_pass(cluster, random.uniform(5.0, 20.0))
        cluster.world.crash(doomed)
        if task.done and task.error is None:
            kept[f"/file-{turn}"] = data
        # Each coordinator lives for at most half a minute: none observes the whole silence of a writer.
        crash_and_start(cluster)
        let_pass(cluster, random.uniform(2.0, 10.0))
        most_left = max(most_left, len(unknown_replicas(cluster)))
    assert most_left < _TURNS * 2 * 3 * 3 / 4, (
        "what the first of them left went while coordinators were still dying"
    )
    assert len(kept) > _TURNS / 2
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=GONE_S, look_s=LOOK_S), (
        unknown_replicas(cluster)
    )
    for path, data in kept.items():
        assert content(cluster, path) == data
    assert_no_file_lacks_a_chunk(cluster)


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("size", [5000, 2 * CHUNK_BYTES + 5], ids=["in the first chunk", "in the third"])
@pytest.mark.evidence("writers-killed")
def test_slow_writer_keeps_what_it_has_written_over_restarts_of_the_coordinator(seed: int, size: int) -> None:
    print(f"seed {seed}")
    cluster, random = cluster_of(seed), Random(seed)
    client = cluster.client("slow")
    cluster.until_ready()
    data = random.randbytes(size)
    source = ByteStream()
    source.feed(data)
    task = cluster.start(client, "a slow file", write_from("/slow", source, "slow"))
    pieces = [data]
    for _ in range(6):
        let_pass(cluster, random.uniform(KEPT_S / 2, KEPT_S))
        if random.random() < 0.5:
            crash_and_start(cluster)
        pieces.append(random.randbytes(1000))
        source.feed(pieces[-1])
    source.finish()
    cluster.world.run_task(task, limit_s=60.0)
    assert content(cluster, "/slow") == b"".join(pieces)
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=GONE_S, look_s=LOOK_S)
    assert_no_file_lacks_a_chunk(cluster)


@pytest.mark.parametrize("seed", seeds(6))
@SIZES
@pytest.mark.evidence("return-is-harmless", "writers-killed")
def test_paused_writer_completes_soon_or_is_refused_and_never_gets_a_file_without_its_chunks(
    seed: int, size: int
) -> None:
    print(f"seed {seed}")
    cluster, random = cluster_of(seed), Random(seed)
    client = cluster.client("paused")
    cluster.until_ready()
    data = random.randbytes(size)
    token, written = run(cluster, client, write_and_pause("/paused", data))
    pause_s = random.uniform(0.5, 1.5) * KEPT_S
    let_pass(cluster, pause_s)
    if random.random() < 0.5:
        crash_and_start(cluster)
    is_refused = False
    try:
        run(cluster, client, complete(token, written))
    except AccessDenied:
        is_refused = True
    assert not is_refused or pause_s > KEPT_S - 15.0
    if is_refused:
        with pytest.raises(FileNotFound):
            content(cluster, "/paused")
    else:
        assert content(cluster, "/paused") == data
        let_pass(cluster, GONE_S)
        assert content(cluster, "/paused") == data
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=GONE_S, look_s=LOOK_S)
    assert_no_file_lacks_a_chunk(cluster)


@SIZES
def test_writer_that_was_paused_for_too_long_is_refused(size: int) -> None:
    cluster = cluster_of(1)
    client = cluster.client("paused")
    cluster.until_ready()
    token, written = run(cluster, client, write_and_pause("/paused", bytes(size)))
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=GONE_S, look_s=LOOK_S), (
        "nobody says that he holds it"
    )
    crash_and_start(cluster)
    with pytest.raises(AccessDenied, match="was not heard of for too long"):
        run(cluster, client, complete(token, written))


@SIZES
@pytest.mark.evidence("writers-killed")
def test_restored_coordinator_makes_no_file_of_what_was_given_to_garbage_after_the_backup(size: int) -> None:
    cluster = cluster_of(1)
    client = cluster.client("paused")
    cluster.until_ready()
    backup = cluster.coordinator.back_up()
    token, written = run(cluster, client, write_and_pause("/paused", bytes(size)))
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=GONE_S, look_s=LOOK_S)
    crash_and_start(cluster, backup)
    with pytest.raises(ChunkUnavailable, match="write its data again"):
        run(cluster, client, complete(token, written))
    with pytest.raises(FileNotFound):
        content(cluster, "/paused")


@SIZES
def test_restored_coordinator_publishes_what_datanodes_still_have(size: int) -> None:
    cluster, data = cluster_of(1), bytes(size)
    client = cluster.client("writer")
    cluster.until_ready()
    backup = cluster.coordinator.back_up()
    token, written = run(cluster, client, write_and_pause("/f", data))
    crash_and_start(cluster, backup)
    run(cluster, client, complete(token, written))
    assert content(cluster, "/f") == data


def test_chunk_that_was_placed_long_ago_is_not_begun_but_another_is_asked_for() -> None:
    """A client opens a file, and writes its first byte much later."""
    cluster = cluster_of(1)
    client = cluster.client("late")
    cluster.until_ready()

    def work() -> fx.Steps[None]:
        created = yield from fx.call(Create("/late", "late"), Created, timeout_s=CALL_TIMEOUT_S)
        yield from fx.sleep(2 * chunk_begin_s)
        written = yield from write_chunks(
            created.token,
            created.allocated,
            ByteStream.of(b"late"),
            chunk_bytes=CHUNK_BYTES,
            grant_client=GRANT_CLIENT,
            hop_timeout_s=HOP_TIMEOUT_S,
        )
        assert [each.chunk for each in written.chunks] != [created.allocated.chunk]
        yield from complete(created.token, written)

    run(cluster, client, work())
    assert content(cluster, "/late") == b"late"


def test_flushed_pieces_that_were_replaced_stay_for_readers_over_a_restart_of_the_coordinator() -> None:
    cluster = cluster_of(1)
    client = cluster.client("writer")
    cluster.until_ready()

    def work() -> fx.Steps[None]:
        writing = yield from flusher("/log", "log", "writer")
        for _ in range(3):
            yield from writing.flush(b"a line\n")
        yield from writing.complete(b"")

    run(cluster, client, work())
    assert unknown_replicas(cluster), "readers may know the pieces still"
    crash_and_start(cluster)
    before = set(unknown_replicas(cluster))
    let_pass(cluster, 2 * GONE_S)
    assert set(unknown_replicas(cluster)) == before
    assert run(cluster, client, read("/log")) == 3 * b"a line\n"
