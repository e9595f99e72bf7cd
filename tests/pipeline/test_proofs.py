"""A datanode proves that it holds a replica, which is impossible without reading it after the challenge."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

from peacefs.datanode.control.commands import Orders
from peacefs.datanode.control.prover import Prover
from peacefs.datanode.rate_limiter import CopyBudget
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import ProveReplicas, ReplicaChallenge, ReplicasProven

NONCE = bytes(range(32))


def written(cluster, data):
    cluster.write(data)
    (chunk,) = cluster.coordinator.completed[-1].chunks
    for node in cluster.nodes:
        node.changes.forget()
    return chunk


def proofs_of(node, *challenges):
    answer = node.driver.run(
        Orders(node.store, node.changes, node.replicator, node.prover).obey(ProveReplicas(list(challenges)))
    )
    assert isinstance(answer, ReplicasProven)
    return answer.proofs


@pytest.mark.parametrize("size", [1, 1000, 256 * 1024, 3 * MIB + 7])
def test_holders_of_the_same_give_one_digest_and_another_nonce_another(cluster, size):
    data = os.urandom(size)
    chunk = written(cluster, data)
    challenge = ReplicaChallenge(chunk.chunk, chunk.version, NONCE)
    given = [proofs_of(node, challenge) for node in cluster.nodes]
    assert given[0] == given[1] == given[2]
    (proof,) = given[0]
    head = f"{chunk.chunk}\0{chunk.version}\0".encode()
    expected = hashlib.blake2b(head + data, digest_size=16, key=NONCE, person=b"content").digest()
    assert (proof.chunk, proof.version, proof.content) == (chunk.chunk, chunk.version, expected)
    (other,) = proofs_of(cluster.nodes[0], ReplicaChallenge(chunk.chunk, chunk.version, NONCE[::-1]))
    assert other.content != proof.content and other.sums != proof.sums


@pytest.mark.parametrize("size", [1000, 3 * MIB], ids=["small", "large"])
def test_a_replica_that_rots_shows_no_content_and_is_reported(make_cluster, size):
    cluster = make_cluster()
    data = os.urandom(size)
    chunk = written(cluster, data)
    rotten, good, *_ = cluster.nodes
    rotten.damage(data[size // 2 : size // 2 + 100])
    challenge = ReplicaChallenge(chunk.chunk, chunk.version, NONCE)
    (proof,) = proofs_of(rotten, challenge)
    (other,) = proofs_of(good, challenge)
    assert proof.content == b"" and other.content
    assert proof.sums in (b"", other.sums), "what it should be like may still be told"
    assert [replica.chunk for replica in rotten.changes.take()[2]] == [chunk.chunk]


def test_proof_is_not_given_for_absent_or_other_versions(cluster):
    data = os.urandom(1000)
    chunk = written(cluster, data)
    node = cluster.nodes[0]
    absent = ReplicaChallenge(chunk.chunk + 1000, 1, NONCE)
    older = ReplicaChallenge(chunk.chunk, chunk.version - 1, NONCE)
    newer = ReplicaChallenge(chunk.chunk, chunk.version + 1, NONCE)
    here = ReplicaChallenge(chunk.chunk, chunk.version, NONCE)
    assert [proof.chunk for proof in proofs_of(node, absent, older, newer, here)] == [chunk.chunk]
    assert [replica.chunk for replica in node.changes.take()[1]] == [absent.chunk], "and the coordinator is told"


def test_proving_takes_no_more_of_the_disk_than_its_rate(cluster):
    chunk = written(cluster, os.urandom(2 * MIB))
    node = cluster.nodes[0]
    prover = Prover(node.store, node.changes, budget=CopyBudget(4 * MIB, burst_bytes=1))
    challenge = ReplicaChallenge(chunk.chunk, chunk.version, NONCE)
    begun_s = time.monotonic()
    node.driver.run(prover.prove(ProveReplicas([challenge, challenge])))
    assert time.monotonic() - begun_s >= 0.9
