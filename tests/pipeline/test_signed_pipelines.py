"""A hop connects only to addresses in its token, whatever a writer says."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often
from support.stranger import listening

from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.messages import Failure, WriteAck, WriteChunk
from peacefs.protocol.tokens import ChunkWrite
from peacefs.runtime import effects as fx


@pytest.fixture
def stranger():
    with listening() as somebody:
        yield somebody


def permit_through(cluster, *hops):
    """Return a token of the coordinator for a pipeline of these nodes, and its chunk."""
    allocated = cluster.coordinator.allocated(["n0"])
    permit = ChunkWrite(1e12, allocated.chunk, allocated.version, list(hops))
    return cluster.signer.sign(permit), permit


def answer_to(cluster, token, permit):
    connection = cluster.connect("n0")
    opening = WriteChunk(token, permit.chunk, permit.version, block_checksums(b"x"), last=True)
    cluster.driver.run(fx.send(connection, opening, b"x", timeout_s=5.0))
    answer = cluster.answer(connection)
    cluster.driver.run(fx.close(connection))
    cluster.by_hand.remove(connection)
    return answer


def test_a_hop_connects_to_the_address_in_its_token(cluster, stranger):
    """This shows that the other tests here could fail."""
    answer = answer_to(cluster, *permit_through(cluster, cluster.nodes[0].hop, stranger.hop("n1")))
    assert isinstance(answer, Failure) and answer.culprit == "n1"
    assert stranger.connections > 0


@pytest.mark.evidence("no-strange-address")
def test_no_bit_of_a_pipeline_may_be_another(cluster, stranger):
    token, permit = permit_through(cluster, cluster.nodes[0].hop, stranger.hop("n1"))
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))

    @settings(max_examples=often(60, 150), deadline=None)
    @given(bit=st.integers(0, 8 * len(raw) - 1))
    def refused(bit):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        answer = answer_to(cluster, base64.urlsafe_b64encode(bytes(changed)).rstrip(b"=").decode(), permit)
        assert isinstance(answer, Failure) and answer.code == "AccessDenied" and "\n" not in answer.message

    refused()
    assert stranger.connections == 0
    assert not cluster.nodes[0].store.replicas()


@pytest.mark.parametrize("change", ["node", "order", "address", "chunk", "version"])
def test_token_of_a_pipeline_cannot_be_changed(cluster, stranger, change):
    first, second = cluster.nodes[0].hop, cluster.nodes[1].hop
    token, permit = permit_through(cluster, first, second)
    changed = {
        "node": {"pipeline": [first, msgspec.structs.replace(second, node="n2")]},
        "order": {"pipeline": [first, stranger.hop("n9"), second]},
        "address": {"pipeline": [first, stranger.hop("n1")]},
        "chunk": {"chunk": permit.chunk + 1},
        "version": {"version": permit.version + 1},
    }[change]
    forged = msgspec.structs.replace(permit, **changed)
    mac = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))[-16:]
    text = base64.urlsafe_b64encode(msgspec.msgpack.encode(forged) + mac).rstrip(b"=").decode()
    answer = answer_to(cluster, text, forged)
    assert isinstance(answer, Failure) and answer.code == "AccessDenied"
    assert stranger.connections == 0
    assert isinstance(answer_to(cluster, token, permit), WriteAck), "as it was signed it is good"
