"""Broken pipelines: another pipeline continues, the faulty hop is named, and nothing false is acknowledged."""

from __future__ import annotations

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from peacefs.client.transfer.chunk_writer import write_attempts_max
from peacefs.datanode.pipeline.active_streams import StreamsUnderWay
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import (
    AccessDenied,
    DiskFull,
    GrantLapsed,
    NoDatanodes,
    PeerError,
    PeerTimeout,
    StaleVersion,
)
from peacefs.protocol.ids import Numbering
from peacefs.protocol.limits import MIB, chunk_bytes_max, grant_clock_slack_s, packet_bytes
from peacefs.protocol.messages import Failure, Hop, Packet, WriteAck, WriteChunk
from peacefs.protocol.tokens import ChunkRead, ChunkWrite, Signer
from peacefs.runtime import effects as fx
from peacefs.runtime.connections import SocketConnection

DATA = os.urandom(3 * MIB + 17)


def kill_at_start(relay):
    relay.die()


def kill_in_the_middle(relay):
    relay.cut_down_after = MIB + MIB // 2


def kill_before_the_acknowledgement(relay):
    # Challenge and Welcome have about 150 bytes, so the acknowledgement does not fit into the rest.
    relay.cut_up_after = 200


KILLS = [kill_at_start, kill_in_the_middle, kill_before_the_acknowledgement]


@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize("victim", ["n0", "n1", "n2"])
def test_a_hop_that_dies_is_named_and_the_chunk_goes_through_another_pipeline(make_cluster, kill, victim):
    cluster = make_cluster(nodes=4)
    kill(cluster.coordinator.nodes[victim].relay)
    completed, stats = cluster.write(DATA)
    assert completed.length == len(DATA)
    assert stats.failed_nodes == (victim,)
    assert stats.replicas == (3,)
    first, second = cluster.coordinator.allocations
    assert (first.exclude, second.exclude) == ([], [victim])
    assert second.abandoned is not None
    for receipt in cluster.coordinator.completed[0].chunks[0].receipts:
        assert cluster.read(layout=cluster.layout_on(receipt.node)) == DATA


@pytest.mark.parametrize("victim", ["n0", "n1", "n2"])
def test_a_small_chunk_too_survives_the_death_of_a_hop(make_cluster, victim):
    cluster = make_cluster(nodes=4)
    kill_before_the_acknowledgement(cluster.coordinator.nodes[victim].relay)
    _, stats = cluster.write(b"offsets")
    assert stats.failed_nodes == (victim,)
    assert cluster.read() == b"offsets"


@pytest.fixture
def fired(monkeypatch):
    """Return the deadlines, in seconds, that passed while somebody waited for a frame."""
    deadlines = []
    receive = SocketConnection.receive

    def noting(self, timeout_s, *more):
        try:
            return receive(self, timeout_s, *more)
        except PeerTimeout:
            deadlines.append(timeout_s)
            raise

    monkeypatch.setattr(SocketConnection, "receive", noting)
    return deadlines


def test_a_hop_that_hangs_is_given_up_at_its_deadline_by_the_one_before_it(make_cluster, fired):
    """The cases run concurrently, since they mostly wait. Deadlines of hops are 1.2 s apart; a longer delay of a
    busy machine would blame the wrong hop.
    """
    deadline_s = 4.8
    hangs = list(itertools.product(["n0", "n1", "n2"], [1000, 2 * MIB]))
    clusters = [make_cluster(nodes=4, hop_timeout_s=deadline_s) for _ in hangs]
    for cluster, (victim, hold_after) in zip(clusters, hangs, strict=True):
        cluster.coordinator.nodes[victim].relay.hold_down_after = hold_after
    with ThreadPoolExecutor(len(clusters)) as threads:
        written = list(threads.map(lambda cluster: cluster.write(DATA), clusters))
    assert [stats.failed_nodes for _, stats in written] == [(victim,) for victim, _ in hangs]
    assert [cluster.read() == DATA for cluster in clusters] == [True] * len(hangs)
    # Compare the deadline, not the elapsed time, which depends on the machine: a default would be several times
    # this.
    assert len(fired) >= len(hangs) and max(fired) <= deadline_s


def test_two_hops_that_die_one_after_the_other_are_both_left_out(make_cluster):
    cluster = make_cluster(nodes=5)
    kill_in_the_middle(cluster.coordinator.nodes["n0"].relay)
    kill_before_the_acknowledgement(cluster.coordinator.nodes["n2"].relay)
    _, stats = cluster.write(DATA)
    assert stats.failed_nodes == ("n0", "n2")
    assert stats.replicas == (3,)
    assert cluster.read() == DATA


def test_a_node_that_failed_one_chunk_is_not_asked_for_the_next(make_cluster):
    cluster = make_cluster(nodes=4)
    kill_in_the_middle(cluster.coordinator.nodes["n1"].relay)
    cluster.write(DATA, block_bytes=2 * MIB)
    assert [request.exclude for request in cluster.coordinator.allocations] == [[], ["n1"], ["n1"]]


@pytest.mark.evidence("everything-is-bounded")
def test_the_number_of_attempts_is_bounded(make_cluster):
    cluster = make_cluster(nodes=write_attempts_max + 3)
    for node in cluster.nodes:
        node.relay.die()
    with pytest.raises(PeerError) as caught:
        cluster.write(b"x")
    assert caught.value.culprit == f"n{write_attempts_max - 1}"
    assert len(cluster.coordinator.allocations) == write_attempts_max
    assert cluster.coordinator.completed == []


def test_staged_replicas_of_a_broken_pipeline_are_dropped(make_cluster, until):
    cluster = make_cluster(nodes=4)
    kill_in_the_middle(cluster.coordinator.nodes["n1"].relay)
    # More than all socket buffers hold, so the head lacks some of it when its successor dies.
    cluster.write(os.urandom(24 * MIB), block_bytes=24 * MIB)
    until(lambda: all(node.is_quiet() for node in cluster.nodes), "every hop has let go")
    assert [len(node.store.replicas()) for node in cluster.nodes] == [1, 0, 1, 1]


@pytest.mark.parametrize("victim", ["n0", "n1", "n2"])
@pytest.mark.evidence("frames-forged")
def test_a_bit_that_flips_on_the_way_is_refused_by_the_hop_that_gets_it(make_cluster, victim):
    cluster = make_cluster(nodes=4)
    cluster.coordinator.nodes[victim].relay.flip_down_at = 500_000
    _, stats = cluster.write(DATA)
    assert stats.failed_nodes == (victim,)
    for receipt in cluster.coordinator.completed[0].chunks[0].receipts:
        assert cluster.read(layout=cluster.layout_on(receipt.node)) == DATA


def test_a_writer_whose_own_sums_are_wrong_gets_no_acknowledgement(cluster):
    allocated = cluster.coordinator.allocated(["n0"])
    connection = cluster.connect("n0")
    opening = WriteChunk(allocated.token, allocated.chunk, allocated.version, b"\0\0\0\0", last=True)
    cluster.driver.run(fx.send(connection, opening, b"data", timeout_s=60.0))
    answer = cluster.answer(connection)
    assert isinstance(answer, Failure) and answer.code == "ChecksumMismatch"
    assert cluster.nodes[0].store.replicas() == []


@pytest.mark.evidence("disk-full")
def test_a_full_disk_is_left_out_and_says_so(make_cluster, monkeypatch):
    cluster = make_cluster(nodes=4)

    def full(chunk, version):
        raise DiskFull("no room")

    monkeypatch.setattr(cluster.nodes[1].store, "stage", full)
    _, stats = cluster.write(DATA)
    assert stats.failed_nodes == ("n1",)
    assert cluster.read() == DATA


STEPS = [
    pytest.param(DATA, fx.OpenLocalFile, id="large, when its file is made"),
    pytest.param(DATA, fx.AppendToFile, id="large, when it is written"),
    pytest.param(DATA, fx.Sync, id="large, when it is synced"),
    pytest.param(DATA, fx.RenameFile, id="large, when it is published"),
    pytest.param(b"small", fx.AppendToFile, id="small, when it is written"),
    pytest.param(b"small", fx.Sync, id="small, when it is synced"),
]


@pytest.mark.parametrize(("data", "effect"), STEPS)
@pytest.mark.evidence("eio")
def test_a_disk_that_fails_anywhere_is_the_fault_of_its_node(make_cluster, data, effect, until):
    cluster = make_cluster(nodes=4)
    cluster.nodes[2].break_disk(effect)
    _, stats = cluster.write(data)
    assert stats.failed_nodes == ("n2",)
    until(lambda: all(node.is_quiet() for node in cluster.nodes), "every hop has let go")
    assert cluster.nodes[2].store.replicas() == []
    assert cluster.read() == data


def test_a_stale_version_is_written_again_with_a_new_one_and_excludes_nobody(cluster, monkeypatch):
    stage = cluster.nodes[1].store.stage
    refused = []

    def once_stale(chunk, version):
        if not refused:
            refused.append(chunk)
            raise StaleVersion("a higher version is here")
        return stage(chunk, version)

    monkeypatch.setattr(cluster.nodes[1].store, "stage", once_stale)
    _, stats = cluster.write(b"data")
    assert stats.failed_nodes == ()
    assert [request.exclude for request in cluster.coordinator.allocations] == [[], []]


@pytest.mark.evidence("acknowledged-is-durable")
def test_a_hop_that_acknowledges_something_else_is_not_believed(make_cluster, monkeypatch):
    cluster = make_cluster(nodes=4)
    seal = cluster.nodes[1].store.seal

    def forgetful(staged, sums, data):
        sealed = yield from seal(staged, sums, data)
        return type(sealed)(sealed.length - 1, sealed.checksum)

    monkeypatch.setattr(cluster.nodes[1].store, "seal", forgetful)
    _, stats = cluster.write(DATA)
    # n1 finds that n2 holds something else; without n2, n0 finds the same about n1.
    assert "n1" in stats.failed_nodes
    assert all(receipt.node != "n1" for receipt in cluster.coordinator.completed[0].chunks[0].receipts)
    assert cluster.read() == DATA


@pytest.mark.evidence("acknowledged-is-durable")
def test_a_hop_that_does_not_account_for_those_after_it_is_not_believed(make_cluster, monkeypatch):
    """Otherwise the writer would accept too few receipts, and the file would count as replicated."""
    cluster = make_cluster(nodes=4)
    compare = cluster.nodes[1].pipeline._compare

    def forgetful(*arguments):
        yield from compare(*arguments)
        return []

    monkeypatch.setattr(cluster.nodes[1].pipeline, "_compare", forgetful)
    _, stats = cluster.write(DATA)
    assert "n1" in stats.failed_nodes
    nodes = [receipt.node for receipt in cluster.coordinator.completed[0].chunks[0].receipts]
    assert len(nodes) == 3 and "n1" not in nodes
    assert cluster.read() == DATA


# -- what a hop refuses ----------------------------------------------------------------------------


def refusal(cluster, allocated, data=b"data"):
    connection = cluster.connect("n0")
    cluster.send_first(connection, allocated, data, last=True)
    answer = cluster.answer(connection)
    assert isinstance(answer, Failure)
    assert cluster.nodes[0].store.replicas() == []
    return answer


def test_an_expired_token_is_refused(cluster):
    answer = refusal(cluster, cluster.coordinator.allocated(["n0"], lifetime_s=-2 * grant_clock_slack_s))
    assert answer.code == "GrantLapsed" and "ask for another" in answer.message


def test_chunk_that_is_begun_too_late_is_replaced_by_another(cluster, monkeypatch):
    allocated, late = cluster.coordinator.allocated, [-2 * grant_clock_slack_s]
    monkeypatch.setattr(
        cluster.coordinator,
        "allocated",
        lambda nodes, grant: allocated(nodes, lifetime_s=late.pop() if late else 60.0),
    )
    cluster.write(b"x")
    assert cluster.read() == b"x"
    first, second = cluster.coordinator.allocations
    assert (first.abandoned, second.abandoned is not None, second.exclude) == (None, True, [])


def test_a_token_that_is_signed_with_another_secret_is_refused(cluster):
    allocated = cluster.coordinator.allocated(["n0"])
    forged = Signer(b"guessed").sign(
        ChunkWrite(time.time() + 60, allocated.chunk, allocated.version, allocated.pipeline)
    )
    assert refusal(cluster, msgspec.structs.replace(allocated, token=forged)).code == "AccessDenied"


def test_a_token_with_a_changed_bit_is_refused(cluster):
    allocated = cluster.coordinator.allocated(["n0"])
    changed = ("A" if allocated.token[0] != "A" else "B") + allocated.token[1:]
    assert refusal(cluster, msgspec.structs.replace(allocated, token=changed)).code == "AccessDenied"


def test_a_token_for_reading_does_not_open_a_chunk_for_writing(cluster):
    allocated = cluster.coordinator.allocated(["n0"])
    token = cluster.signer.sign(ChunkRead(time.time() + 60, allocated.chunk))
    assert refusal(cluster, msgspec.structs.replace(allocated, token=token)).code == "AccessDenied"


@pytest.mark.parametrize("field", ["chunk", "version"])
def test_a_token_for_another_chunk_or_version_is_refused(cluster, field):
    allocated = cluster.coordinator.allocated(["n0"])
    other = msgspec.structs.replace(allocated, **{field: getattr(allocated, field) + 1})
    assert refusal(cluster, other).code == "AccessDenied"


def test_a_token_for_other_nodes_is_refused(cluster):
    allocated = cluster.coordinator.allocated(["n1", "n2"])
    assert "not for datanode n0" in refusal(cluster, allocated).message


def test_a_refused_token_is_not_tried_elsewhere(cluster, monkeypatch):
    allocated = cluster.coordinator.allocated
    monkeypatch.setattr(
        cluster.coordinator,
        "allocated",
        lambda nodes, grant: msgspec.structs.replace(allocated(nodes), token=allocated(nodes).token),
    )
    with pytest.raises(AccessDenied, match="for another chunk"):
        cluster.write(b"x")
    assert len(cluster.coordinator.allocations) == 1


def test_after_a_refusal_the_connection_serves_on_if_nothing_more_is_under_way(cluster):
    connection = cluster.connect("n0")
    cluster.send_first(connection, cluster.coordinator.allocated(["n1"]), b"data", last=True)
    assert isinstance(cluster.answer(connection), Failure)
    cluster.send_first(connection, cluster.coordinator.allocated(["n0"]), b"data", last=True)
    assert isinstance(cluster.answer(connection), WriteAck)


def test_after_a_refusal_the_connection_is_closed_if_packets_may_follow(cluster):
    connection = cluster.connect("n0")
    cluster.send_first(connection, cluster.coordinator.allocated(["n1"]), bytes(packet_bytes), last=False)
    assert isinstance(cluster.answer(connection), Failure)
    with pytest.raises(PeerError):
        cluster.answer(connection)


MISPLACED = {
    "a gap": Packet(2 * packet_bytes, b""),
    "a repetition": Packet(0, b""),
    "another message": Failure("BadRequest", "what?"),
}


@pytest.mark.parametrize("wrong", MISPLACED.values(), ids=MISPLACED.keys())
def test_packets_out_of_order_are_refused(cluster, wrong, until):
    connection = cluster.connect("n0")
    allocated = cluster.coordinator.allocated(["n0", "n1"])
    cluster.send_first(connection, allocated, bytes(packet_bytes), last=False)
    cluster.driver.run(fx.send(connection, wrong, b"", timeout_s=60.0))
    answer = cluster.answer(connection)
    assert isinstance(answer, Failure) and answer.code == "ProtocolViolation"
    until(lambda: all(node.is_quiet() for node in cluster.nodes), "every hop has let go")
    assert all(node.store.replicas() == [] for node in cluster.nodes)


def test_a_chunk_that_never_ends_is_refused_at_the_limit(cluster):
    connection = cluster.connect("n0")
    data = bytes(packet_bytes)
    sums = block_checksums(data)
    cluster.send_first(connection, cluster.coordinator.allocated(["n0"]), data, last=False)
    for offset in range(packet_bytes, chunk_bytes_max + packet_bytes, packet_bytes):
        cluster.driver.run(fx.send(connection, Packet(offset, sums), data, timeout_s=60.0))
    answer = cluster.answer(connection)
    assert isinstance(answer, Failure) and answer.code == "BadRequest"


def test_a_writer_that_falls_silent_in_the_middle_is_given_up(make_cluster, until):
    cluster = make_cluster(hop_timeout_s=0.3)
    connection = cluster.connect("n0")
    cluster.send_first(connection, cluster.coordinator.allocated(["n0", "n1"]), bytes(packet_bytes), last=False)
    answer = cluster.answer(connection)
    assert isinstance(answer, Failure) and answer.code == "PeerTimeout"
    until(lambda: all(node.is_quiet() for node in cluster.nodes), "every hop has let go")


def test_a_hop_that_hears_nothing_names_the_hop_before_it(make_cluster):
    cluster = make_cluster(hop_timeout_s=0.3)
    connection = cluster.connect("n1")
    allocated = cluster.coordinator.allocated(["n0", "n1"])
    opening = WriteChunk(allocated.token, allocated.chunk, allocated.version, block_checksums(b"x"))
    cluster.driver.run(fx.send(connection, opening, b"x", timeout_s=60.0))
    answer = cluster.answer(connection)
    assert isinstance(answer, Failure)
    assert (answer.code, answer.culprit) == ("PeerTimeout", "n0")


def test_a_replica_that_was_acknowledged_survives_a_repetition_that_fails(make_cluster):
    """The writer sends again because it got no answer, and a hop has died meanwhile."""
    cluster = make_cluster(nodes=2)
    allocated = cluster.coordinator.allocated(["n0", "n1"])
    data = b"acknowledged"
    connection = cluster.connect("n0")
    cluster.send_first(connection, allocated, data, last=True)
    assert isinstance(cluster.answer(connection), WriteAck)
    cluster.nodes[1].relay.die()
    cluster.send_first(connection, allocated, data, last=True)
    answer = cluster.answer(connection)
    assert isinstance(answer, Failure) and answer.culprit == "n1"
    assert [replica.chunk for replica in cluster.nodes[0].store.replicas()] == [allocated.chunk]
    assert [replica.chunk for replica in cluster.nodes[1].store.replicas()] == [allocated.chunk]


def test_the_reason_reaches_the_writer_in_plain_words(make_cluster):
    cluster = make_cluster(nodes=1)
    cluster.nodes[0].break_disk(fx.AppendToFile)
    with pytest.raises(NoDatanodes, match=r"no datanode is left \(another .* because cannot store .*Input/output"):
        cluster.write(DATA)


def test_a_writer_that_was_stopped_after_its_grant_asks_for_another(make_cluster, monkeypatch):
    """For instance a migrated virtual machine, or a long garbage collection: its data can still be written."""
    cluster = make_cluster(nodes=3)
    allocated = cluster.coordinator.allocated
    lifetimes = itertools.chain([-60.0], itertools.repeat(60.0))
    monkeypatch.setattr(
        cluster.coordinator, "allocated", lambda nodes, grant: allocated(nodes, next(lifetimes), grant)
    )
    data = os.urandom(MIB + 7)
    _, stats = cluster.write(data, block_bytes=4 * MIB)
    assert (stats.failed_nodes, stats.replicas) == ((), (3,))
    assert cluster.read() == data
    first, second = cluster.coordinator.allocations
    assert (first.abandoned, second.abandoned is not None, second.exclude) == (None, True, [])


def test_grant_of_an_earlier_coordinator_does_not_begin_under_a_later_one():
    streams = StreamsUnderWay("n0")
    earlier, later = Numbering(3), Numbering(4)
    begun, late, head_elsewhere = (
        ChunkWrite(0.0, earlier.next(), 1, [Hop(node, "h", 1) for node in nodes], 1)
        for nodes in (["n0", "n1"], ["n0"], ["n1", "n0"])
    )
    streams.begin(begun, 0.0)
    streams.registered(4)
    assert [stream.chunk for stream in streams.headed_here()] == [begun.chunk], "it goes on"
    with pytest.raises(GrantLapsed, match="ask for it again"):
        streams.begin(late, 0.0)
    streams.begin(head_elsewhere, 0.0)
    streams.begin(ChunkWrite(0.0, later.next(), 1, [Hop("n0", "h", 1)], 1), 0.0)
