"""Replicas that fail during a read: another one continues, corruption is reported, and no bad byte is returned."""

from __future__ import annotations

import errno
import os
import threading
import time
from itertools import pairwise

import msgspec
import pytest

from peacefs.client.file_objects import FileSource
from peacefs.client.transfer.chunk_reader import read_rounds_max
from peacefs.client.transfer.file_reader import FileReader
from peacefs.datanode.control.commands import Orders
from peacefs.protocol.errors import ChunkUnavailable, FileChanged, PeerUnreachable
from peacefs.protocol.frames import encode
from peacefs.protocol.limits import MIB, checksum_block_bytes, hop_timeout_s, packet_bytes, read_packet_bytes
from peacefs.protocol.messages import (
    Done,
    Failure,
    Opened,
    Packet,
    ReadChunk,
    Replica,
    ReportCorrupt,
    VerifyChunks,
)
from peacefs.protocol.tokens import ChunkRead, ChunkWrite, Signer
from peacefs.runtime import effects as fx

DATA = os.urandom(4 * MIB + 5)
#: The reader's deadline under test. Preparations use the usual ones.
_READER_S = 4.0


@pytest.fixture
def written(make_cluster):
    cluster = make_cluster()
    cluster.write(DATA)
    for node in cluster.nodes:
        node.changes.forget()
    return cluster


def reported(cluster):
    return [(report.chunk, report.node) for report in cluster.coordinator.corrupt]


@pytest.mark.parametrize("at", [0, packet_bytes + 100, 4 * MIB])
@pytest.mark.evidence("files-swapped")
def test_a_bit_that_flipped_on_a_disk_is_never_read_and_its_replica_is_reported(written, at):
    written.nodes[0].damage(DATA[at : at + 64])
    assert written.read() == DATA
    (chunk,) = written.coordinator.completed[0].chunks
    assert reported(written) == [(chunk.chunk, "n0")]
    for node in written.nodes:
        order = VerifyChunks([Replica(chunk.chunk, chunk.version, chunk.length)])
        orders = Orders(node.store, node.changes, node.replicator, node.prover)
        assert isinstance(node.driver.run(orders.obey(order)), Done)
    corrupt = [[replica.chunk for replica in node.changes.take()[2]] for node in written.nodes]
    assert corrupt == [[chunk.chunk], [], []], "who is told to look finds it where it is"


def test_a_small_replica_is_verified_as_well(make_cluster):
    cluster = make_cluster()
    data = os.urandom(2000)
    cluster.write(data)
    cluster.nodes[0].damage(data[500:600])
    assert cluster.read() == data
    assert [node for _, node in reported(cluster)] == ["n0"]
    _, _, corrupt = cluster.nodes[0].changes.take()
    assert len(corrupt) == 1, "the datanode, which has it in memory, reports it too"


def send_as_far_as(node, stop, then):
    """Send a node's answers up to a byte of the chunk, within a frame; then do something."""
    perform = node.driver._perform[fx.SendFile]

    def send(effect):
        if effect.offset + effect.length <= stop:
            return perform(effect)
        begun = encode(effect.message, effect.length) + DATA[effect.offset : stop]
        effect.connection._socket.sendall(begun)
        return then()

    node.driver._perform[fx.SendFile] = send


def offsets_asked_for(messages):
    return [message.offset for message in messages if isinstance(message, ReadChunk)]


@pytest.mark.parametrize("stop", [0, 100, packet_bytes - 1, 2 * MIB + 100, read_packet_bytes, len(DATA) - 1])
@pytest.mark.evidence("datanode-fails-in-a-read")
def test_a_disk_that_fails_while_it_is_read_costs_nobody_a_byte(written, messages_sent, stop):
    """However much of the answer was sent, the datanode hangs up, and the next one continues."""

    def fail():
        raise OSError(errno.EIO, "Input/output error")

    send_as_far_as(written.nodes[0], stop, fail)
    assert written.read() == DATA
    come = stop // packet_bytes * packet_bytes
    assert offsets_asked_for(messages_sent)[:2] == [0, come], "it goes on at the first byte that is missing"
    assert written.read() == DATA, "and again"


@pytest.mark.evidence("datanode-fails-in-a-read")
def test_frame_is_given_out_as_it_comes_and_a_server_that_hangs_in_it_is_left(make_cluster):
    cluster = make_cluster()
    cluster.write(DATA)
    released = threading.Event()
    send_as_far_as(cluster.nodes[0], 2 * MIB + 100, released.wait)
    target = memoryview(bytearray(len(DATA)))
    reader = FileReader("file-token", cluster.layout(), 0, len(DATA), hop_timeout_s=_READER_S)
    began_s, at = time.monotonic(), 0
    try:
        while at < 2 * MIB:
            at += len(cluster.driver.run(reader.next_piece(target[at:])))
        assert time.monotonic() - began_s < _READER_S, "the rest is not waited for"
        while (piece := cluster.driver.run(reader.next_piece())) is not None:
            target[at : at + len(piece)] = piece
            at += len(piece)
        assert target == DATA
        assert time.monotonic() - began_s >= _READER_S
    finally:
        released.set()


@pytest.mark.evidence("shared-file-fails")
def test_a_file_that_has_become_shorter_costs_nobody_a_byte(written):
    (file,) = (path for path in written.nodes[0].directory.rglob("*") if path.stat().st_size > len(DATA))
    perform = written.nodes[0].driver._perform[fx.SendFile]

    def cut_and_send(effect):
        os.truncate(file, packet_bytes + packet_bytes // 2)
        return perform(effect)

    written.nodes[0].driver._perform[fx.SendFile] = cut_and_send
    assert written.read() == DATA


@pytest.mark.evidence("checksums-hold")
def test_a_bit_that_flips_on_the_way_is_found_by_the_reader(written):
    written.nodes[0].relay.flip_up_at = packet_bytes + 4000
    assert written.read() == DATA
    assert [node for _, node in reported(written)] == ["n0"]


def read_by_a_datanode(cluster, name="n1"):
    """Read like a gateway from another datanode: over sealed connections."""
    reader, read = FileReader("file-token", cluster.layout(), 0, len(DATA)), bytearray()
    room = memoryview(bytearray(MIB))
    while (piece := cluster.coordinator.nodes[name].driver.run(reader.next_piece(room))) is not None:
        read += piece
    cluster.coordinator.nodes[name].driver.run(reader.close())
    return read


def test_a_datanode_reads_what_lies_on_another_whole_and_leaves_one_whose_file_became_shorter(written):
    assert read_by_a_datanode(written) == DATA
    (file,) = (path for path in written.nodes[0].directory.rglob("*") if path.stat().st_size > len(DATA))
    os.truncate(file, packet_bytes + packet_bytes // 2)
    assert read_by_a_datanode(written) == DATA


@pytest.mark.parametrize("at", [packet_bytes + 4000, 3 * MIB])
def test_a_bit_that_flips_between_datanodes_costs_the_connection_and_blames_no_replica(written, at):
    """Whoever changed the data may have changed its checksum, too, but not the seal."""
    written.nodes[0].relay.flip_up_at = at
    assert read_by_a_datanode(written) == DATA
    assert reported(written) == []


@pytest.mark.parametrize("offset", [0, 100, checksum_block_bytes])
def test_bytes_are_received_where_they_are_wanted_over_what_a_bad_replica_left_there(written, offset):
    written.nodes[0].relay.flip_up_at = packet_bytes + 4000
    target = memoryview(bytearray(len(DATA) - offset))
    reader = FileReader("file-token", written.layout(), offset, len(target))
    room, laid_there = target, 0
    while (piece := written.driver.run(reader.next_piece(room))) is not None:
        if piece.obj is target.obj:
            laid_there += len(piece)
        else:
            room[: len(piece)] = piece
        room = room[len(piece) :]
    assert target == DATA[offset:]
    # A partly wanted first block is received into another buffer.
    assert laid_there >= len(target) - packet_bytes - len(DATA) % MIB
    assert [node for _, node in reported(written)] == ["n0"]


def test_damage_outside_the_range_disturbs_nobody(written):
    written.nodes[0].damage(DATA[:64])
    assert written.read(2 * MIB, MIB) == DATA[2 * MIB : 3 * MIB]
    assert reported(written) == []


def test_a_server_that_dies_in_the_middle_is_replaced_at_the_byte_where_it_stopped(written, messages_sent):
    written.nodes[0].relay.cut_up_after = 2 * MIB
    assert written.read() == DATA
    asked = offsets_asked_for(messages_sent)
    assert asked[0] == 0
    assert asked[1] >= packet_bytes, "what was read is not read again"
    assert reported(written) == []


def test_a_server_that_is_not_there_is_passed_over(written):
    written.nodes[0].relay.die()
    written.nodes[1].relay.die()
    assert written.read() == DATA


def test_a_server_that_hangs_is_left_at_the_deadline(make_cluster):
    cluster = make_cluster()
    cluster.write(DATA)
    cluster.nodes[0].relay.hold_down_after = 0
    cluster.hop_timeout_s = 1.0
    started = time.monotonic()
    assert cluster.read() == DATA
    assert 1.0 <= time.monotonic() - started < hop_timeout_s, "not the deadline of all others"


@pytest.mark.evidence("client-stops-reading")
def test_a_server_that_hangs_up_on_a_consumer_in_its_pauses_is_asked_again_each_time(make_cluster, messages_sent):
    cluster = make_cluster()
    data = os.urandom(16 * MIB)
    cluster.write(data, block_bytes=len(data))
    cluster.pool.close_all()
    cluster.nodes[0].relay.hang_up_after = 2 * MIB + MIB // 2
    others = [node.relay.connections for node in cluster.nodes[1:]]
    assert cluster.read() == data
    requests = offsets_asked_for(messages_sent)
    assert requests[0] == 0
    assert all(2 * MIB <= after - before < 3 * MIB for before, after in pairwise(requests))
    assert len(requests) > read_rounds_max * 3, "more often than it may fail at one byte"
    assert [node.relay.connections for node in cluster.nodes[1:]] == others, "it is still the nearest"


def test_two_replicas_with_damage_in_different_places_still_make_one_file(make_cluster):
    cluster = make_cluster(nodes=2)
    cluster.write(DATA)
    cluster.nodes[0].damage(DATA[3 * MIB : 3 * MIB + 64])
    cluster.nodes[1].damage(DATA[100:164])
    assert cluster.read() == DATA


def test_a_node_that_failed_is_asked_last_for_the_chunks_after(make_cluster, messages_sent):
    cluster = make_cluster()
    cluster.write(DATA, block_bytes=MIB)
    cluster.nodes[0].damage(DATA[100:164])
    messages_sent.clear()
    assert cluster.read() == DATA
    requests = [message for message in messages_sent if isinstance(message, ReadChunk)]
    assert len(requests) == 5 + 1, "one replica failed once, and none of the other four chunks met it"


def test_when_no_replica_is_good_the_error_names_each_ones_fault(written):
    for node in written.nodes[:2]:
        node.damage(DATA[2 * MIB : 2 * MIB + 64])
    written.nodes[2].relay.die()
    reader = FileReader("file-token", written.layout(), 0, len(DATA))
    before = [bytes(written.driver.run(reader.next_piece())) for _ in range(2 * MIB // packet_bytes)]
    assert b"".join(before) == DATA[: 2 * MIB]
    with pytest.raises(ChunkUnavailable) as caught:
        written.driver.run(reader.next_piece())
    message = caught.value.message
    assert f"cannot be read at byte {2 * MIB}" in message
    for part in ("n0: ", "n1: ", "n2: ", "checksum mismatch"):
        assert part in message


def test_a_chunk_without_replicas_is_unavailable_and_says_so(written):
    for chunk in written.coordinator.completed[-1].chunks:
        chunk.receipts.clear()
    with pytest.raises(ChunkUnavailable, match="no datanode holds a replica"):
        written.read()


def test_file_that_has_gone_is_told_from_one_whose_replicas_are_lost(written, monkeypatch):
    def replaced(message, timeout_s):
        raise FileChanged("/f was changed or replaced since it was opened; open it again")

    layout = written.layout()
    for node in written.nodes:
        node.relay.die()
    monkeypatch.setattr(written, "driver", type(written.driver)(written.pool, replaced))
    with pytest.raises(FileChanged, match="open it again"):
        written.read(layout=layout)


def test_a_replica_that_was_moved_since_the_file_was_opened_is_found(written):
    opened = written.layout_on("n0")
    written.nodes[0].relay.die()
    assert written.read(layout=opened) == DATA


def test_a_report_that_cannot_be_made_does_not_stop_the_read(written, monkeypatch):
    def away(message, timeout_s):
        raise PeerUnreachable("the coordinator is away")

    layout = written.layout()
    written.nodes[0].damage(DATA[:64])
    monkeypatch.setattr(written, "driver", type(written.driver)(written.pool, away))
    assert written.read(layout=layout) == DATA


def test_a_replica_that_is_shorter_than_the_file_knows_is_reported(written):
    known = written.coordinator.completed[-1].chunks
    known[:] = [msgspec.structs.replace(chunk, length=chunk.length + 1000) for chunk in known]
    with pytest.raises(ChunkUnavailable, match=f"n0: .*the replica ends at byte {len(DATA)}"):
        written.read(layout=written.layout_on("n0", "n1"))
    assert [node for _, node in reported(written)] == ["n0"]


# -- what a server refuses -------------------------------------------------------------------------


def ask(cluster, **changed):
    (chunk,) = cluster.layout().chunks
    request = ReadChunk(chunk.token, chunk.chunk, chunk.version, 0, 10)
    connection = cluster.connect("n0")
    cluster.driver.run(fx.send(connection, msgspec.structs.replace(request, **changed), timeout_s=60.0))
    return cluster.answer(connection)


def test_a_good_request_is_answered_with_one_block(cluster):
    cluster.write(DATA)
    answer = ask(cluster)
    assert isinstance(answer, Packet) and answer.last


def test_tokens_that_are_forged_expired_foreign_or_of_another_kind_open_nothing(cluster):
    cluster.write(DATA)
    (chunk,) = cluster.layout().chunks
    later = time.time() + 60
    tokens = {
        "forged": Signer(b"guessed").sign(ChunkRead(later, chunk.chunk)),
        "expired": cluster.signer.sign(ChunkRead(time.time() - 1, chunk.chunk)),
        "foreign": cluster.signer.sign(ChunkRead(later, chunk.chunk + 1)),
        "of another kind": cluster.signer.sign(ChunkWrite(later, chunk.chunk, chunk.version, chunk.replicas)),
        "no token": "",
        "garbage": "%%%",
    }
    for what, token in tokens.items():
        answer = ask(cluster, token=token)
        code = "TokenExpired" if what == "expired" else "AccessDenied"
        assert isinstance(answer, Failure) and answer.code == code, what


@pytest.mark.parametrize("range_", [(-1, 10), (0, -1), (0, 0), (len(DATA), 1), (1 << 62, 1 << 62)])
def test_a_range_without_a_byte_is_a_bad_request(cluster, range_):
    cluster.write(DATA)
    answer = ask(cluster, offset=range_[0], length=range_[1])
    assert isinstance(answer, Failure) and answer.code == "BadRequest"


def test_a_chunk_that_is_not_here_is_not_found_and_the_connection_serves_on(cluster):
    cluster.write(DATA)
    (chunk,) = cluster.layout().chunks
    token = cluster.signer.sign(ChunkRead(time.time() + 60, 12345))
    connection = cluster.connect("n0")
    for request, expected in (
        (ReadChunk(token, 12345, chunk.version, 0, 10), "ChunkNotFound"),
        (ReadChunk(chunk.token, chunk.chunk, chunk.version + 1, 0, 10), "StaleVersion"),
    ):
        cluster.driver.run(fx.send(connection, request, timeout_s=60.0))
        answer = cluster.answer(connection)
        assert isinstance(answer, Failure) and answer.code == expected
    cluster.driver.run(
        fx.send(connection, ReadChunk(chunk.token, chunk.chunk, chunk.version, 0, 1), timeout_s=60.0)
    )
    assert isinstance(cluster.answer(connection), Packet)


def test_a_report_names_the_version_that_was_read(written):
    written.nodes[0].damage(DATA[:64])
    written.read()
    (chunk,) = written.coordinator.completed[0].chunks
    assert written.coordinator.corrupt == [ReportCorrupt(chunk.chunk, chunk.version, "n0")]


def test_a_node_that_failed_one_range_of_an_open_file_is_asked_last_for_all_that_follow(written):
    """Ranges double as a file is read, and each would wait for a hanging node's deadline."""
    layout = written.layout()
    written.nodes[0].relay.stop()
    connect, asked = written.driver._perform[fx.Connect], []

    def noted(effect):
        asked.append(effect.name)
        return connect(effect)

    written.driver._perform[fx.Connect] = noted
    written.pool.close_all()
    with FileSource(written.driver, Opened("file-token", layout)) as source:
        assert source.read() == DATA
    assert asked.count("n0") == 1 < asked.count("n1")
