"""A replica is copied to other nodes on the coordinator's order: same version and bytes, verified on the way."""

from __future__ import annotations

import os
import time

import pytest

from peacefs.protocol.errors import BrokenSeal, ChecksumMismatch, ChunkNotFound, PeerError, StaleVersion
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import ReplicateChunk
from peacefs.protocol.tokens import ChunkWrite
from peacefs.runtime import effects as fx

DATA = os.urandom(3 * MIB + 1)


def order(cluster, chunk, nodes, version=None, bytes_per_second=0.0):
    version = version or chunk.version
    hops = [cluster.coordinator.nodes[node].hop for node in nodes]
    token = cluster.signer.sign(ChunkWrite(1e12, chunk.chunk, version, hops))
    return ReplicateChunk(chunk.chunk, version, hops, token, bytes_per_second)


def written_to_first_node(cluster, data=DATA):
    cluster.coordinator.replication = 1
    cluster.write(data)
    (chunk,) = cluster.coordinator.completed[0].chunks
    cluster.nodes[0].changes.forget()
    return chunk


@pytest.mark.parametrize("data", [DATA, b"small"], ids=["large", "small"])
def test_a_replica_is_copied_through_a_pipeline_and_read_from_each_copy(make_cluster, data):
    cluster = make_cluster()
    chunk = written_to_first_node(cluster, data)
    source = cluster.nodes[0]
    copied = source.driver.run(source.replicator.replicate(order(cluster, chunk, ["n1", "n2"])))
    assert (copied.version, copied.length, copied.checksum) == (chunk.version, chunk.length, chunk.checksum)
    cluster.coordinator.verify(copied)
    assert [receipt.node for receipt in copied.receipts] == ["n1", "n2"]
    for name in ("n1", "n2"):
        assert cluster.read(layout=cluster.layout_on(name)) == data


def test_copying_where_a_replica_is_already_does_no_harm(make_cluster):
    cluster = make_cluster()
    chunk = written_to_first_node(cluster)
    source = cluster.nodes[0]
    for _ in range(2):
        source.driver.run(source.replicator.replicate(order(cluster, chunk, ["n1"])))
    assert cluster.read(layout=cluster.layout_on("n1")) == DATA
    assert len(cluster.nodes[1].store.replicas()) == 1


def test_a_corrupt_replica_is_not_copied_but_reported(make_cluster, until):
    cluster = make_cluster()
    chunk = written_to_first_node(cluster)
    source = cluster.nodes[0]
    source.damage(DATA[2 * MIB : 2 * MIB + 100])
    with pytest.raises(ChecksumMismatch):
        source.driver.run(source.replicator.replicate(order(cluster, chunk, ["n1"])))
    _, _, corrupt = source.changes.take()
    assert [replica.chunk for replica in corrupt] == [chunk.chunk]
    until(cluster.nodes[1].is_quiet, "the target has let go")
    assert cluster.nodes[1].store.replicas() == []


def test_a_bit_that_flips_on_the_way_is_not_held_against_the_source(make_cluster):
    cluster = make_cluster()
    chunk = written_to_first_node(cluster)
    source = cluster.nodes[0]
    cluster.nodes[1].relay.flip_down_at = 300_000
    with pytest.raises(BrokenSeal) as caught:
        source.driver.run(source.replicator.replicate(order(cluster, chunk, ["n1"])))
    assert caught.value.culprit == "n1"
    assert source.changes.take() == ([], [], [])


def test_a_target_that_dies_is_named_and_nothing_is_retried(make_cluster):
    cluster = make_cluster()
    chunk = written_to_first_node(cluster)
    source = cluster.nodes[0]
    cluster.nodes[2].relay.cut_down_after = MIB
    with pytest.raises(PeerError) as caught:
        source.driver.run(source.replicator.replicate(order(cluster, chunk, ["n1", "n2"])))
    assert caught.value.culprit == "n2"
    assert len(cluster.coordinator.allocations) == 1


def test_a_chunk_that_is_not_here_or_not_in_that_version_is_not_copied(make_cluster):
    cluster = make_cluster()
    chunk = written_to_first_node(cluster)
    nowhere = cluster.nodes[1]
    with pytest.raises(ChunkNotFound):
        nowhere.driver.run(nowhere.replicator.replicate(order(cluster, chunk, ["n2"])))
    source = cluster.nodes[0]
    for version in (chunk.version + 1, chunk.version - 1):
        with pytest.raises(StaleVersion):
            source.driver.run(source.replicator.replicate(order(cluster, chunk, ["n1"], version)))


def test_a_source_disk_that_cannot_be_read_says_so(make_cluster):
    cluster = make_cluster()
    chunk = written_to_first_node(cluster)
    source = cluster.nodes[0]
    source.break_disk(fx.ReadAt)
    with pytest.raises(Exception, match="Input/output error"):
        source.driver.run(source.replicator.replicate(order(cluster, chunk, ["n1"])))


def test_copies_for_balancing_keep_to_their_own_rate_and_those_for_repair_do_not(make_cluster):
    cluster = make_cluster()
    chunk = written_to_first_node(cluster)
    source = cluster.nodes[0]
    took_s = {}
    for rate in (0.0, 1.0 * MIB):
        started_s = time.monotonic()
        source.driver.run(source.replicator.replicate(order(cluster, chunk, ["n1"], bytes_per_second=rate)))
        took_s[rate] = time.monotonic() - started_s
    # The first packet goes at once; the remaining two MiB take two seconds.
    assert took_s[1.0 * MIB] > 1.5 and took_s[1.0 * MIB] - took_s[0.0] > 0.5
    assert cluster.read(layout=cluster.layout_on("n1")) == DATA
