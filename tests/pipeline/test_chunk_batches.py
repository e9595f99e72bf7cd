"""Several small chunks of one client in one send: each succeeds or fails alone."""

from __future__ import annotations

import os
from random import Random

import pytest
from msgspec.structs import replace

from peacefs.client.transfer.chunk_batches import send_chunks
from peacefs.protocol.checksums import block_checksums, chunk_checksum
from peacefs.protocol.errors import AccessDenied, PeerError
from peacefs.protocol.limits import batched_chunk_bytes_max
from peacefs.protocol.messages import WriteChunk, WrittenChunk

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
