"""Remains of a broken pipeline or a refused file go as soon as the writer abandons them; published chunks stay."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from simulation.client_requests import Create, Created, Extend
from simulation.client_steps import append, append_from, delete, read, write, write_created, write_from
from simulation.name_changes import Change
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_network import Network
from simulation.terms import CALL_TIMEOUT_S, CHUNK_BYTES, GRANT_CLIENT, HOP_TIMEOUT_S, LOOK_S
from simulation.world import Node

from peacefs.client.checkpoint.pages import Pages, Stop
from peacefs.client.checkpoint.parallel_writer import GrantedParts
from peacefs.client.checkpoint.parts import split
from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.file_appender import append_file
from peacefs.coordinator.limits import freed_chunks_kept_s
from peacefs.protocol.errors import FileAlreadyExists, FileNotFound, LeaseExpired, PeacefsError, PeerUnreachable
from peacefs.protocol.messages import Done, Leased
from peacefs.runtime import effects as fx


class HeadBreaker:
    """Crashes the head of a pipeline after the others have stored the chunk, before the head can report that."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._synced: set[str] = set()
        self.broken = False
        cluster.world.before_effect = self._look

    def _look(self, node: Node, effect: fx.Effect) -> None:
        if self.broken or not isinstance(effect, fx.Sync | fx.Send | fx.SendFrames):
            return
        pipelines = self._cluster.coordinator.cluster.pipelines()
        if not pipelines:
            return
        head, *others = pipelines[-1]
        if isinstance(effect, fx.Sync):
            self._synced.add(node.name)
        elif node.name == head and self._synced.issuperset(others):
            self.broken = True
            datanode = self._cluster.coordinator.datanodes[head]
            datanode.crash()
            self._cluster.world.later(2.0, datanode.start)


def unknown_replicas(cluster: SimulatedCluster) -> list[tuple[str, int]]:
    """Return the replicas on all disks whose chunk belongs to no file."""
    known = {record.chunk for record in cluster.coordinator.metadata.reader().chunks(0, 1_000_000)}
    return [
        (datanode.node.name, replica.chunk)
        for datanode in cluster.datanodes
        for replica in datanode.store.replicas()
        if replica.chunk not in known
    ]


def run(cluster: SimulatedCluster, node: Node, steps: fx.Steps[Any]) -> Any:
    return cluster.world.run_task(cluster.start(node, "a step", steps), limit_s=200.0)


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("size", [5000, 300 * 1024, CHUNK_BYTES + 5], ids=["small", "large", "granted"])
def test_remains_of_a_broken_pipeline_are_gone_soon_and_long_before_the_floor(seed: int, size: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed)
    client = cluster.client("client-1")
    cluster.until_ready()
    run(cluster, client, write("/log", b"first", "r"))
    breaker = HeadBreaker(cluster)
    data = Random(seed).randbytes(size)
    run(cluster, client, append("/log", data, "writer"))
    assert breaker.broken
    assert cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=10.0, look_s=LOOK_S), unknown_replicas(
        cluster
    )
    assert run(cluster, client, read("/log")) == b"first" + data


@pytest.mark.parametrize("seed", seeds(8))
def test_in_a_network_that_loses_and_doubles_nothing_that_was_published_goes_with_what_was_given_up(
    seed: int,
) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed, network=Network(lose=0.01, duplicate=0.2, delay=0.02, delay_s_max=8.0))
    client = cluster.client("client-1")
    cluster.until_ready()
    kept: dict[str, bytes] = {}
    random = Random(seed)

    def work() -> fx.Steps[None]:
        for number in range(30):
            path, data = f"/f{number}", random.randbytes(random.choice((5000, 5000, 100_000, CHUNK_BYTES + 5)))
            try:
                yield from write(path, b"", f"w{number}")
                yield from append(path, data, f"h{number}")
            except PeacefsError:
                continue
            kept[path] = data

    run_for = cluster.start(client, "work", work())
    cluster.world.run_task(run_for, limit_s=20_000.0)
    cluster.world.network = Network()
    cluster.world.run(lambda: False, limit_s=30.0)
    assert len(kept) > 5 and len(cluster.coordinator.cluster.assignments) > 0
    for path, data in kept.items():
        assert run(cluster, client, read(path)) == data


SIZES = pytest.mark.parametrize("size", [5000, 300 * 1024, 2 * CHUNK_BYTES + 5], ids=["small", "large", "granted"])


def nothing_is_left(cluster: SimulatedCluster, limit_s: float = 5.0) -> bool:
    return cluster.world.run(lambda: not unknown_replicas(cluster), limit_s=limit_s, look_s=LOOK_S)


@SIZES
@pytest.mark.evidence("create-fails")
def test_chunks_of_a_file_refused_at_completion_are_gone_soon(size: int) -> None:
    cluster = SimulatedCluster(1)
    client = cluster.client("client-1")
    cluster.until_ready()

    def work() -> fx.Steps[None]:
        created = yield from fx.call(Create("/f", "r"), Created, timeout_s=CALL_TIMEOUT_S)
        yield from fx.call(Change("mkdirs", "/f", "simulated", "", number=0o755), Done, timeout_s=CALL_TIMEOUT_S)
        yield from write_created(created, ByteStream.of(bytes(size)))

    with pytest.raises(FileAlreadyExists, match="as a directory"):
        run(cluster, client, work())
    assert len(cluster.coordinator.cluster.assignments) > 0
    assert nothing_is_left(cluster), unknown_replicas(cluster)


@SIZES
@pytest.mark.evidence("create-fails")
def test_chunks_for_the_end_of_a_file_deleted_meanwhile_are_gone_soon(size: int) -> None:
    cluster = SimulatedCluster(1)
    client = cluster.client("client-1")
    cluster.until_ready()
    run(cluster, client, write("/log", b"first", "r"))

    def work() -> fx.Steps[None]:
        leased = yield from fx.call(Extend("/log", "writer"), Leased, timeout_s=CALL_TIMEOUT_S)
        yield from delete("/log")
        source = ByteStream.of(bytes(size))
        yield from append_file(
            leased, source, chunk_bytes=leased.block_bytes, grant_client=GRANT_CLIENT, hop_timeout_s=HOP_TIMEOUT_S
        )

    with pytest.raises((FileNotFound, LeaseExpired)):
        run(cluster, client, work())
    # The file's earlier chunks stay a little longer for its readers.
    assert nothing_is_left(cluster, freed_chunks_kept_s + 5.0), unknown_replicas(cluster)


@pytest.mark.parametrize("appending", [False, True], ids=["new", "longer"])
@pytest.mark.evidence("create-fails")
def test_chunks_of_a_file_whose_producer_dies_are_gone_soon(appending: bool) -> None:
    cluster = SimulatedCluster(1)
    client = cluster.client("client-1")
    cluster.until_ready()
    run(cluster, client, write("/log", b"first", "r"))
    source = ByteStream()
    source.feed(bytes(5 * CHUNK_BYTES))
    steps = append_from("/log", source, "writer") if appending else write_from("/new", source, "new")
    writing = cluster.start(client, "write", steps)
    assert cluster.world.run(lambda: len(unknown_replicas(cluster)) >= 6, limit_s=60.0, look_s=LOOK_S), (
        "two chunks are written"
    )
    source.abort(PeerUnreachable("the client hung up"))
    with pytest.raises(PeerUnreachable, match="hung up"):
        cluster.world.run_task(writing, limit_s=60.0)
    assert nothing_is_left(cluster), unknown_replicas(cluster)


@pytest.mark.evidence("create-fails")
def test_chunks_of_an_abandoned_checkpoint_are_gone_soon() -> None:
    cluster = SimulatedCluster(1)
    client = cluster.client("client-1")
    cluster.until_ready()
    pages = Pages([bytes(4 * CHUNK_BYTES)])

    def work() -> fx.Steps[None]:
        tokens = []
        for part in range(2):
            created = yield from fx.call(Create(f"/part-{part}", f"p{part}"), Created, timeout_s=CALL_TIMEOUT_S)
            tokens.append(created.token)
        planned = split(pages.length, 2, CHUNK_BYTES)
        parts = GrantedParts(
            GRANT_CLIENT, pages, planned, tokens, workers=2, stop=Stop(), hop_timeout_s=HOP_TIMEOUT_S
        )
        yield from parts.work()
        yield from parts.abandon()

    run(cluster, client, work())
    assert len(cluster.coordinator.cluster.assignments) == 4
    assert nothing_is_left(cluster), unknown_replicas(cluster)
