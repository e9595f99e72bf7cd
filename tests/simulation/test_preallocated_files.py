"""Files of one preallocated chunk, published in one call, keep all guarantees of ordinary files.

A client that writes small files one after another has a preallocated chunk for the next. These tests cover unused
chunks, refused files, and a coordinator that did not place the chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from simulation.client_requests import Create, Created
from simulation.client_steps import begin_run, change, delete, read, small_writes, write, write_small
from simulation.name_changes import Change
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_network import Network
from simulation.terms import CALL_TIMEOUT_S, CHUNK_BYTES, HOP_TIMEOUT_S, LOOK_S
from simulation.test_abandoned_chunks import HeadBreaker, nothing_is_left, run, unknown_replicas
from simulation.test_restored_metadata import (
    cluster_with_short_lived_tokens,
    content,
    crash_and_start,
    held,
    let_pass,
)
from simulation.world import Node

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.chunk_buffer import ChunkBuffer
from peacefs.client.transfer.chunk_writer import send_chunk
from peacefs.client.transfer.small_writes import SmallWrites, preallocated_chunk_kept_s
from peacefs.coordinator.cluster.health import judge_cluster
from peacefs.coordinator.cluster.pending_load import pending_load_s
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.protocol import messages
from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    FileAlreadyExists,
    FileNotFound,
    ParentNotDirectory,
    PeacefsError,
    QuotaExceeded,
    RunSuperseded,
)
from peacefs.protocol.messages import (
    Allocated,
    Completed,
    CompleteFile,
    CreateFile,
    Message,
    PublishFile,
    WrittenChunk,
)
from peacefs.protocol.new_file import NewFile
from peacefs.runtime import effects as fx

_TOKENS_LIVE_S = 40.0


class Asked:
    """Records the names of the messages that clients send to the coordinator."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.names: list[str] = []
        coordinator = cluster.coordinator

        async def answer(caller: str, message: Message) -> Message:
            if caller.startswith("client"):
                self.names.append(type(message).__name__)
            return await coordinator.answer(caller, message)

        cluster.world.coordinator = answer


def with_one_in_hand(cluster: SimulatedCluster, client: Node) -> SmallWrites:
    small = small_writes("mine")
    for number in range(2):
        run(cluster, client, write_small(small, f"/before-{number}", b"before"))
    return small


def started(seed: int = 1) -> tuple[SimulatedCluster, Node]:
    cluster = SimulatedCluster(seed)
    cluster.until_ready()
    return cluster, cluster.client("client-1")


def change_by(user: str, what: str, path: str, number: int = 0, other: str = "") -> fx.Steps[None]:
    return change(Change(what, path, user, f"{what} {path}", other, number))


@pytest.mark.parametrize("size", [1, 5000, 300 * 1024, CHUNK_BYTES])
def test_the_third_file_that_follows_at_once_and_all_after_it_are_one_call_each(size: int) -> None:
    cluster, client = started()
    asked = Asked(cluster)
    small, contents = small_writes("mine"), {f"/f{n}": Random(n).randbytes(size) for n in range(5)}
    for path, data in contents.items():
        run(cluster, client, write_small(small, path, data))
    assert asked.names == 2 * ["CreateFile", "CompleteFile"] + 3 * ["PublishFile"]
    for path, data in contents.items():
        assert run(cluster, client, read(path)) == data
    assert not unknown_replicas(cluster)
    assert cluster.fully_replicated()


@pytest.mark.evidence("unused-chunk")
def test_preallocated_chunk_unused_in_time_is_no_longer_load_and_not_used_late() -> None:
    cluster, client = started()
    small = with_one_in_hand(cluster, client)
    assert len(cluster.coordinator.cluster.pipelines()) == 1
    assert judge_cluster(cluster.coordinator.cluster).chunks_being_written == 0, "nobody writes it"
    let_pass(cluster, pending_load_s + 1.0)
    assert not cluster.coordinator.cluster.pipelines()
    let_pass(cluster, preallocated_chunk_kept_s)
    asked = Asked(cluster)
    run(cluster, client, write_small(small, "/late", b"late"))
    assert asked.names == ["CreateFile", "CompleteFile"]
    let_pass(cluster, 2.0)
    assert not unknown_replicas(cluster)


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("size", [5000, 300 * 1024])
@pytest.mark.evidence("unused-chunk")
def test_preallocated_chunk_whose_pipeline_breaks_is_gone_soon(seed: int, size: int) -> None:
    print(f"seed {seed}")
    cluster, client = started(seed)
    small = with_one_in_hand(cluster, client)
    breaker, asked = HeadBreaker(cluster), Asked(cluster)
    data = Random(seed).randbytes(size)
    run(cluster, client, write_small(small, "/f", data))
    assert breaker.broken and asked.names[0] == "CreateFile" and asked.names[-1] == "CompleteFile"
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=10.0, look_s=LOOK_S), unknown_replicas(
        cluster
    )
    assert run(cluster, client, read("/f")) == data


def test_a_name_that_is_refused_after_its_pipeline_broke_leaves_nothing_either() -> None:
    cluster, client = started()
    run(cluster, client, change_by("simulated", "mkdirs", "/taken", 0o755))
    small = with_one_in_hand(cluster, client)
    breaker = HeadBreaker(cluster)
    with pytest.raises(FileAlreadyExists):
        run(cluster, client, write_small(small, "/taken", bytes(5000)))
    assert breaker.broken
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=10.0, look_s=LOOK_S), unknown_replicas(
        cluster
    )


def taken_by_a_directory() -> fx.Steps[str]:
    yield from change_by("simulated", "mkdirs", "/taken", 0o755)
    return "/taken"


def below_a_file() -> fx.Steps[str]:
    yield from write("/file", b"", "file")
    return "/file/f"


def closed_to_others() -> fx.Steps[str]:
    yield from change_by("simulated", "mkdirs", "/closed", 0o755)
    return "/closed/f"


def in_a_snapshot() -> fx.Steps[str]:
    yield from ()
    return "/d/.snapshot/s/f"


def without_room() -> fx.Steps[str]:
    yield from change_by("simulated", "mkdirs", "/full", 0o777)
    yield from change_by("simulated", "limit", "/full", -1, "2")
    return "/full/f"


def fenced_off() -> fx.Steps[str]:
    location = yield from begin_run("/root", "simulated", "first")
    yield from begin_run("/root", "simulated", "second")
    return f"{location}/f"


@pytest.mark.parametrize(
    ("prepare", "refusal"),
    [
        (taken_by_a_directory, FileAlreadyExists),
        (below_a_file, ParentNotDirectory),
        (closed_to_others, AccessDenied),
        (without_room, QuotaExceeded),
        (fenced_off, RunSuperseded),
        (in_a_snapshot, PeacefsError),
    ],
    ids=lambda value: value.__name__,
)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "by CREATE"])
@pytest.mark.evidence("create-fails")
def test_publication_is_refused_as_by_create_and_its_chunk_is_gone_soon(
    prepare: Callable[[], fx.Steps[str]], refusal: type[PeacefsError], at_once: bool
) -> None:
    cluster, client = started()
    path = run(cluster, client, prepare())
    user = "other" if refusal is AccessDenied else "simulated"
    small = with_one_in_hand(cluster, client) if at_once else small_writes("mine")
    asked = Asked(cluster)
    with pytest.raises(refusal):
        run(cluster, client, write_small(small, path, bytes(5000), user))
    assert asked.names == ["PublishFile" if at_once else "CreateFile"]
    assert nothing_is_left(cluster), unknown_replicas(cluster)
    run(cluster, client, write_small(small, "/after", b"after"))
    assert run(cluster, client, read("/after")) == b"after"


# -- single steps -----------------------------------------------------------------------------------


def placed_ahead(request_id: str) -> fx.Steps[Allocated]:
    """Preallocate a chunk for a later request."""
    created = yield from fx.call(Create(f"/for {request_id}", f"before {request_id}"), Created)
    completed = yield from fx.call(CompleteFile(created.token, [], ahead=request_id), Completed)
    assert completed.ahead is not None
    return completed.ahead


def written(allocated: Allocated, data: bytes) -> fx.Steps[WrittenChunk]:
    buffer = ChunkBuffer(ByteStream.of(data), CHUNK_BYTES)
    return (yield from send_chunk(allocated, buffer, hop_timeout_s=HOP_TIMEOUT_S))


def publish(
    path: str, request_id: str, chunk: WrittenChunk, token: str, user: str = "simulated"
) -> fx.Steps[Completed]:
    file = NewFile(path=path, user=user, block_bytes=CHUNK_BYTES, request_id=request_id)
    return (yield from fx.call(PublishFile(file, chunk, token), Completed, timeout_s=CALL_TIMEOUT_S))


def in_hand(cluster: SimulatedCluster, client: Node, request_id: str, data: bytes) -> tuple[str, WrittenChunk]:
    """Write a preallocated chunk. Return its token and the written chunk."""
    allocated = run(cluster, client, placed_ahead(request_id))
    return allocated.token, run(cluster, client, written(allocated, data))


def test_one_that_is_published_again_is_published_once_after_a_restart_too() -> None:
    cluster, client = started()
    token, chunk = in_hand(cluster, client, "r", b"data")

    def again() -> int:
        completed: Completed = run(cluster, client, publish("/f", "r", chunk, token))
        return completed.length

    assert again() == again() == 4
    crash_and_start(cluster)
    assert again() == 4
    run(cluster, client, delete("/f"))
    assert again() == 4, "the first answer"
    with pytest.raises(FileNotFound):
        run(cluster, client, read("/f"))


@pytest.mark.evidence("unused-chunk")
def test_a_chunk_becomes_part_of_one_file_whoever_publishes_it() -> None:
    cluster, client = started()
    run(cluster, client, change_by("simulated", "mkdirs", "/shared", 0o777))
    token, chunk = in_hand(cluster, client, "r", b"data")
    run(cluster, client, publish("/f", "r", chunk, token))
    for request_id, user in (("another", "simulated"), ("theirs", "other")):
        with pytest.raises(BadRequest, match="already belongs to a file"):
            run(cluster, client, publish("/shared/stolen", request_id, chunk, token, user))
    with pytest.raises(BadRequest, match="used for another request"):
        run(cluster, client, publish("/stolen", "r", chunk, token))
    let_pass(cluster, 5.0)
    assert run(cluster, client, read("/f")) == b"data"
    assert cluster.fully_replicated()


@pytest.mark.evidence("unused-chunk")
def test_preallocated_chunk_is_abandoned_by_nobody_else() -> None:
    """A refused publication abandons only its own chunk. A CREATE abandons only a chunk placed for its request."""
    cluster, client = started()
    run(cluster, client, change_by("simulated", "mkdirs", "/taken", 0o755))
    run(cluster, client, change_by("simulated", "mkdirs", "/shared", 0o777))
    token, chunk = in_hand(cluster, client, "r", b"data")
    with pytest.raises(FileAlreadyExists):
        run(cluster, client, publish("/taken", "another", chunk, token))
    for request_id in ("another", ""):
        request = CreateFile(NewFile(path="/shared/g", user="other", request_id=request_id), chunk.chunk)
        run(cluster, client, fx.call(request, messages.Created, timeout_s=CALL_TIMEOUT_S))
    let_pass(cluster, 3.0)
    run(cluster, client, publish("/f", "r", chunk, token))
    assert run(cluster, client, read("/f")) == b"data"


@pytest.mark.evidence("acknowledged-is-durable")
def test_publication_needs_receipts_of_datanodes_and_the_chunks_own_token() -> None:
    cluster, client = started()
    token, chunk = in_hand(cluster, client, "r", b"data")
    other_token, _other = in_hand(cluster, client, "r2", b"other")
    created = run(cluster, client, fx.call(Create("/h", "h"), Created, timeout_s=CALL_TIMEOUT_S))
    unattested = WrittenChunk(chunk.chunk, chunk.version, chunk.length, chunk.checksum, [])
    longer = WrittenChunk(chunk.chunk, chunk.version, 5, chunk.checksum, chunk.receipts)
    attempts: list[tuple[type[PeacefsError], str, WrittenChunk, str]] = [
        (AccessDenied, other_token, chunk, "r"),
        (AccessDenied, created.token, chunk, "r"),
        (AccessDenied, "", chunk, "r"),
        (BadRequest, token, unattested, "r"),
        (AccessDenied, token, longer, "r"),
        (BadRequest, token, chunk, ""),
    ]
    for refusal, permit, claimed, request_id in attempts:
        with pytest.raises(refusal):
            run(cluster, client, publish("/f", request_id, claimed, permit))
    run(cluster, client, publish("/f", "r", chunk, token))
    assert run(cluster, client, read("/f")) == b"data"


@pytest.mark.evidence("unused-chunk")
def test_token_ends_and_what_was_written_with_it_is_garbage_then() -> None:
    cluster = cluster_with_short_lived_tokens(1)
    client = cluster.client("client-1")
    token, chunk = in_hand(cluster, client, "r", b"data")
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=5 * _TOKENS_LIVE_S, look_s=LOOK_S)
    let_pass(cluster, preallocated_chunk_kept_s)
    with pytest.raises(AccessDenied, match="expired"):
        run(cluster, client, publish("/f", "r", chunk, token))


# -- another coordinator ------------------------------------------------------------------------------


@pytest.mark.evidence("unused-chunk")
def test_preallocated_chunk_is_as_good_after_a_restart() -> None:
    cluster, client = started()
    small = with_one_in_hand(cluster, client)
    cluster.coordinator.crash()
    cluster.coordinator.start()
    asked = Asked(cluster)
    run(cluster, client, write_small(small, "/f", b"data"))
    assert asked.names == ["PublishFile"]
    cluster.until_ready()
    let_pass(cluster, 3.0)
    assert run(cluster, client, read("/f")) == b"data"
    assert cluster.fully_replicated()


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.evidence("unused-chunk")
def test_preallocated_chunk_is_published_over_a_restored_backup_and_what_was_is_kept(seed: int) -> None:
    print(f"seed {seed}")
    cluster = cluster_with_short_lived_tokens(seed)
    client = cluster.client("client-1")
    backup = cluster.coordinator.back_up()
    token, chunk = in_hand(cluster, client, "r", b"data")
    forgotten_token, forgotten = in_hand(cluster, client, "r2", b"forgotten")
    run(cluster, client, publish("/forgotten", "r2", forgotten, forgotten_token))
    let_pass(cluster, 3.0)
    before = held(cluster)
    crash_and_start(cluster, backup)
    run(cluster, client, publish("/f", "r", chunk, token))
    run(cluster, client, change_by("simulated", "mkdirs", "/forgotten", 0o755))
    with pytest.raises(FileAlreadyExists):
        run(cluster, client, publish("/forgotten", "r2", forgotten, forgotten_token))
    let_pass(cluster, 3 * _TOKENS_LIVE_S)
    assert before <= held(cluster), "it gives up nothing that another coordinator placed"
    assert run_now(cluster.coordinator.metadata, lambda tx: tx.release_gc_floor())
    let_pass(cluster, 3 * _TOKENS_LIVE_S)
    assert content(cluster, "/f") == b"data"
    assert not unknown_replicas(cluster)


@pytest.mark.parametrize("seed", seeds(8))
def test_in_a_network_that_loses_and_doubles_all_that_was_acknowledged_is_there_and_once(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed, network=Network(lose=0.01, duplicate=0.2, delay=0.02, delay_s_max=8.0))
    cluster.until_ready()
    asked = Asked(cluster)
    kept: dict[str, bytes] = {}

    def work(name: str, random: Random) -> fx.Steps[Any]:
        small = small_writes(name)
        for number in range(30):
            path, data = f"/{name}-{number}", random.randbytes(random.choice((1, 5000, 100_000)))
            try:
                yield from write_small(small, path, data)
            except PeacefsError:
                continue
            kept[path] = data

    tasks = [
        cluster.start(cluster.client(f"client-{n}"), f"{n}", work(f"client-{n}", Random(seed + n)))
        for n in range(2)
    ]
    for task in tasks:
        cluster.world.run_task(task, limit_s=20_000.0)
    cluster.world.network = Network()
    let_pass(cluster, 30.0)
    assert len(kept) > 30 and asked.names.count("PublishFile") > 10
    client = cluster.client("client-reader")
    for path, data in kept.items():
        assert run(cluster, client, read(path)) == data
