"""Several small chunks of one client in one send: each succeeds or fails alone."""

from __future__ import annotations

import os
from random import Random

import pytest
from msgspec.structs import replace

from peacefs.client.transfer.chunk_batches import read_chunks, send_chunks
from peacefs.protocol.checksums import block_checksums, chunk_checksum
from peacefs.protocol.errors import AccessDenied, ChecksumMismatch, PeacefsError, PeerError
from peacefs.protocol.limits import batched_chunk_bytes_max
from peacefs.protocol.messages import ChunkLayout, WriteChunk, WrittenChunk
from peacefs.protocol.tokens import ChunkRead

ROUTES = [["n0", "n1", "n2"], ["n1", "n2", "n0"], ["n2", "n0"], ["n1"]]


@pytest.mark.evidence("acknowledged-is-durable", "checksums-hold")
def test_chunks_are_on_the_datanodes_of_their_pipelines(cluster, messages_sent):
    random = Random(1)
    sizes = [0, 1, 1024, batched_chunk_bytes_max, *(random.randrange(3000) for _ in range(60))]
    data = [random.randbytes(size) for size in sizes]
    routes = [random.choice(ROUTES) for _ in sizes]
    allocated = [cluster.coordinator.allocated(route) for route in routes]
    written = cluster.driver.run(send_chunks(list(zip(allocated, data, strict=True))))
    for one, wanted, content, route in zip(written, allocated, data, routes, strict=True):
        assert isinstance(one, WrittenChunk), one
        assert (one.chunk, one.version, one.length) == (wanted.chunk, wanted.version, len(content))
        assert one.checksum == chunk_checksum(block_checksums(content))
        assert [receipt.node for receipt in one.receipts] == route
        cluster.coordinator.verify(one)
        for name in ("n0", "n1", "n2"):
            assert (cluster.coordinator.nodes[name].store.find(one.chunk) is not None) is (name in route)
    assert sum(isinstance(message, WriteChunk) for message in messages_sent) == sum(map(len, routes))


@pytest.mark.evidence("acknowledged-is-durable")
def test_a_dead_head_and_a_refused_chunk_fail_alone(make_cluster):
    cluster = make_cluster()
    cluster.write(b"warm the connections")
    cluster.coordinator.nodes["n1"].relay.die()
    allocated = [cluster.coordinator.allocated(route) for route in (["n0"], ["n1", "n0"], ["n0", "n2"], ["n0"])]
    allocated[3] = replace(allocated[3], token=cluster.coordinator.allocated(["n0"]).token)
    written = cluster.driver.run(send_chunks([(each, os.urandom(100)) for each in allocated]))
    assert [type(one) for one in written[::2]] == [WrittenChunk] * 2
    assert isinstance(written[1], PeerError) and written[1].culprit == "n1"
    assert isinstance(written[3], AccessDenied)


@pytest.mark.evidence("everything-is-bounded")
def test_a_head_that_does_not_answer_fails_its_chunks_after_a_deadline(make_cluster):
    cluster = make_cluster(hop_timeout_s=2.0)
    cluster.coordinator.nodes["n1"].relay.hold_down_after = 2000
    allocated = [cluster.coordinator.allocated(route) for route in (["n1"], ["n0"], ["n1"])]
    chunks = [(each, os.urandom(2000)) for each in allocated]
    written = cluster.driver.run(send_chunks(chunks, hop_timeout_s=2.0))
    assert isinstance(written[1], WrittenChunk)
    assert {(type(one).__name__, one.culprit) for one in written[::2]} == {("PeerTimeout", "n1")}


def layout_of(cluster, written, *names):
    reading = cluster.signer.sign(ChunkRead(4e9, written.chunk))
    hops = [cluster.coordinator.nodes[name].hop for name in names]
    return ChunkLayout(written.chunk, written.version, written.length, reading, hops)


@pytest.mark.evidence("checksums-hold")
def test_reads_are_verified_and_a_replica_that_cannot_be_read_fails_alone(make_cluster):
    cluster = make_cluster()
    data = [os.urandom(size) for size in (1, 900, 1024, batched_chunk_bytes_max, 700, 800, 600)]
    chunks = [(cluster.coordinator.allocated(ROUTES[0]), content) for content in data]
    written = cluster.driver.run(send_chunks(chunks))
    cluster.coordinator.nodes["n0"].damage(data[1][100:400])
    wanted = [layout_of(cluster, one, "n0" if index < 4 else "n2", "n1") for index, one in enumerate(written)]
    wanted[4] = replace(wanted[4], token=wanted[5].token)
    wanted[6] = replace(wanted[6], length=500)
    for _turn in range(2):
        read = cluster.driver.run(read_chunks(wanted))
        assert [read[index] for index in (0, 2, 3, 5)] == [data[index] for index in (0, 2, 3, 5)]
        assert [type(read[index]) for index in (1, 4, 6)] == [ChecksumMismatch, AccessDenied, ChecksumMismatch]
    cluster.coordinator.nodes["n2"].relay.die()
    read = cluster.driver.run(read_chunks(wanted))
    assert [read[index] for index in (0, 2, 3)] == [data[index] for index in (0, 2, 3)]
    assert isinstance(read[5], PeerError)


@pytest.mark.parametrize("flip", [50, 400, 1300, 2000])
@pytest.mark.evidence("checksums-hold")
def test_a_byte_that_changes_on_the_way_is_never_returned(make_cluster, flip):
    cluster = make_cluster()
    data = [os.urandom(700) for _ in range(4)]
    written = cluster.driver.run(send_chunks([(cluster.coordinator.allocated(["n0"]), each) for each in data]))
    # A connection begins with a few hundred bytes of handshake.
    cluster.pool.close_all()
    cluster.coordinator.nodes["n0"].relay.flip_up_at = 300 + flip
    read = cluster.driver.run(read_chunks([layout_of(cluster, one, "n0") for one in written]))
    assert any(isinstance(one, PeacefsError) for one in read)
    assert all(one == content for one, content in zip(read, data, strict=True) if isinstance(one, bytes))


@pytest.mark.evidence("everything-is-bounded", "slow-peer")
def test_a_datanode_that_does_not_answer_a_read_fails_it_after_a_deadline(make_cluster):
    cluster = make_cluster()
    written = cluster.driver.run(send_chunks([(cluster.coordinator.allocated(ROUTES[0]), b"x") for _ in range(4)]))
    cluster.coordinator.nodes["n1"].relay.hold_down_after = 0
    cluster.pool.close_all()
    wanted = [layout_of(cluster, one, "n0" if index % 2 else "n1") for index, one in enumerate(written)]
    read = cluster.driver.run(read_chunks(wanted, hop_timeout_s=1.0))
    assert read[1::2] == [b"x"] * 2
    assert {type(one).__name__ for one in read[::2]} <= {"PeerTimeout", "PeerUnreachable"}


def test_ctrl_c_closes_the_connections(cluster, monkeypatch):
    allocated = [cluster.coordinator.allocated(["n0"]) for _ in range(3)]
    steps = send_chunks([(each, b"x") for each in allocated])
    connections = []
    effect = next(steps)
    while type(effect).__name__ != "ReceiveFrames":
        result = cluster.driver.perform(effect)
        if type(effect).__name__ == "Connect":
            connections.append(result)
        effect = steps.send(result)
    effect = steps.throw(KeyboardInterrupt())

    def rest():
        nonlocal effect
        while True:
            effect = steps.send(cluster.driver.perform(effect))

    with pytest.raises(KeyboardInterrupt):
        rest()
    assert [connection.is_closed for connection in connections] == [True]
