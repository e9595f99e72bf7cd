"""A replica that is lost before it was reported: the datanode reports the loss, last or when asked."""

from __future__ import annotations

import os

from peacefs.datanode.control.commands import Orders
from peacefs.protocol.messages import Done, Replica, VerifyChunks


def test_a_replica_that_is_lost_just_after_it_was_sealed_is_said_to_be_gone_last(make_cluster, monkeypatch):
    cluster = make_cluster()
    cluster.coordinator.replication = 1
    node = cluster.nodes[0]
    added = node.changes.added

    def lost_meanwhile(replica):
        """Let its disk fail now, and report the replicas before the pipeline reports them as held."""
        node.driver.run(node.store.delete(replica.chunk, replica.version))
        node.changes.removed(replica)
        node.changes.take()
        added(replica)

    monkeypatch.setattr(node.changes, "added", lost_meanwhile)
    cluster.write(os.urandom(3000))
    (chunk,) = cluster.coordinator.completed[0].chunks
    assert node.changes.take() == ([], [Replica(chunk.chunk, chunk.version, 3000)], [])


def test_datanode_without_the_replica_says_so(make_cluster):
    node = make_cluster().nodes[0]
    missing = Replica(77, 1, 10)
    orders = Orders(node.store, node.changes, node.replicator, node.prover)
    assert node.driver.run(orders.obey(VerifyChunks([missing]))) == Done()
    assert node.changes.take() == ([], [missing], [])
