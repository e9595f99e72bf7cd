"""Readers on a datanode's host get open files of large chunks, with the same guarantees as over TCP."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from peacefs.client.limits import read_piece_bytes
from peacefs.client.transfer.file_reader import FileReader, read_range, read_rest_into
from peacefs.client.transfer.short_circuit import SharedDescriptors
from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    ChunkNotFound,
    ChunkUnavailable,
    TokenExpired,
    from_wire,
)
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import MIB, checksum_block_bytes, packet_bytes
from peacefs.protocol.messages import DescriptorShared, Failure, Layout, Packet, ReadChunk, RequestDescriptor
from peacefs.protocol.tokens import ChunkRead
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

DATA = os.urandom(4 * MIB + 5)


@pytest.fixture
def written(make_cluster):
    cluster = make_cluster(shares_descriptors=True)
    cluster.write(DATA)
    for node in cluster.nodes:
        node.changes.forget()
    return cluster


def kinds(messages, *wanted):
    return [type(message) for message in messages if isinstance(message, wanted)]


def asked_in_turn(messages):
    """Return the nodes that were asked for data, in order, and how."""
    return kinds(messages, RequestDescriptor, ReadChunk)


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def shared_descriptor(cluster, name="n0", *, token=None):
    """Return a replica's open file as a reader gets it, and the answer."""
    layout = cluster.layout().chunks[0]
    tcp = cluster.connect(name)
    lender = cluster.driver.run(fx.connect(tcp.local_address, name))
    cluster.by_hand.append(lender)
    request = RequestDescriptor(token or layout.token, layout.chunk, layout.version)
    cluster.driver.run(fx.send(lender, request, timeout_s=60.0))
    return cluster.driver.run(fx.receive_descriptor(lender, timeout_s=60.0))


def test_a_large_chunk_comes_from_its_file_and_not_through_a_socket(written, messages_sent):
    assert written.read() == DATA
    assert kinds(messages_sent, RequestDescriptor, DescriptorShared, ReadChunk, Packet) == [
        RequestDescriptor,
        DescriptorShared,
    ]


def test_every_range_is_exact_wherever_there_is_room_for_it(written):
    seed = int(os.environ.get("PEACEFS_SEED", random.randrange(1 << 32)))
    print(f"PEACEFS_SEED={seed}")
    rng = random.Random(seed)
    edges = [0, 1, checksum_block_bytes - 1, checksum_block_bytes, read_piece_bytes, len(DATA) - 1]
    for _ in range(60):
        offset = min(rng.choice([*edges, rng.randrange(len(DATA))]), len(DATA) - 1)
        length = rng.choice([1, packet_bytes, packet_bytes + 1, rng.randrange(1, len(DATA)), len(DATA)])
        room = memoryview(bytearray(rng.choice([1, checksum_block_bytes, 100_000, MIB, 3 * MIB])))
        reader = FileReader("file-token", written.layout(), offset, length)
        read = bytearray()
        while (piece := written.driver.run(reader.next_piece(room))) is not None:
            assert len(piece) > 0
            read += piece
        assert read == DATA[offset : offset + length]


def cut_to(layout, length):
    """Return the layout of a file that was truncated within its only chunk."""
    (chunk,) = layout.chunks
    return Layout(length, [replace(chunk, length=length)])


@pytest.mark.parametrize(
    "length", [1, checksum_block_bytes, 5 * checksum_block_bytes + 1, 3 * MIB - 1, 4 * MIB + 4]
)
def test_file_that_shows_less_than_its_replica_is_read_from_the_shared_file(written, messages_sent, length):
    layout = cut_to(written.layout(), length)
    for offset in (0, length // 2, length - 1):
        assert written.driver.run(read_range("file-token", layout, offset, length)) == DATA[offset:length]
        room = memoryview(bytearray(b"." * (length + 100_000)))
        reader = FileReader("file-token", layout, offset, len(room))
        assert written.driver.run(read_rest_into(reader, room)) == length - offset
        assert room[length - offset :].tobytes().strip(b".") == b"", "what was cut off stays on the disk"
    assert not written.coordinator.corrupt
    # Files of 256 KiB or less are taken for small ones.
    wanted = RequestDescriptor if length > 256 * 1024 else ReadChunk
    assert asked_in_turn(messages_sent) == [wanted] * 6


@pytest.mark.parametrize("length", [None, 4 * MIB])
def test_datanode_that_does_not_know_the_replicas_length_is_asked_for_the_bytes(
    written, messages_sent, monkeypatch, length
):
    """Datanodes of release 0.1.0 do not send the length; a length below what the file uses cannot be right."""
    monkeypatch.setattr(
        "peacefs.datanode.pipeline.chunk_server.DescriptorShared", lambda sums, _: DescriptorShared(sums, length)
    )
    before = open_descriptors()
    assert written.read() == DATA
    assert (
        written.driver.run(read_range("file-token", cut_to(written.layout(), 4 * MIB + 1), 0, 5 * MIB))
        == DATA[:-4]
    )
    assert asked_in_turn(messages_sent) == [RequestDescriptor, ReadChunk] * 2
    assert not written.coordinator.corrupt
    assert open_descriptors() <= before + 8


def test_reader_of_an_open_file_asks_for_the_descriptor_of_each_chunk_once(written, messages_sent, until):
    before, descriptors = open_descriptors(), SharedDescriptors(kept_max=1)
    for offset in (3 * MIB, 0, 5, 3 * MIB + 1):
        reading = read_range("file-token", written.layout(), offset, 100_000, descriptors=descriptors)
        assert written.driver.run(reading) == DATA[offset : offset + 100_000]
    assert asked_in_turn(messages_sent) == [RequestDescriptor]
    written.driver.run(descriptors.close())
    until(lambda: open_descriptors() <= before + 8, "the file is given back")
    assert (
        written.driver.run(read_range("file-token", written.layout(), 0, 10, descriptors=descriptors)) == DATA[:10]
    )
    assert asked_in_turn(messages_sent) == [RequestDescriptor, RequestDescriptor]


def test_shared_descriptors_of_many_chunks_are_few(make_cluster, messages_sent):
    cluster = make_cluster(shares_descriptors=True)
    cluster.write(DATA, block_bytes=MIB)
    messages_sent.clear()
    before, descriptors = open_descriptors(), SharedDescriptors(kept_max=2)
    for _ in range(2):
        for chunk in range(4):
            reading = read_range("file-token", cluster.layout(), chunk * MIB, 10, descriptors=descriptors)
            assert cluster.driver.run(reading) == DATA[chunk * MIB :][:10]
    assert asked_in_turn(messages_sent) == 8 * [RequestDescriptor], "each had gone when it was wanted again"
    cluster.driver.run(descriptors.close())
    assert open_descriptors() <= before + 8


def test_readers_of_one_chunk_at_once_have_a_shared_descriptor_each(written, messages_sent):
    descriptors = SharedDescriptors(kept_max=4)
    readers = [FileReader("file-token", written.layout(), 0, len(DATA), descriptors=descriptors) for _ in range(2)]
    pieces = [[bytes(written.driver.run(reader.next_piece()))] for reader in readers]
    for reader, mine in zip(readers, pieces, strict=True):
        while (piece := written.driver.run(reader.next_piece())) is not None:
            mine.append(bytes(piece))
        assert b"".join(mine) == DATA
    written.driver.run(descriptors.close())
    assert asked_in_turn(messages_sent) == [RequestDescriptor, RequestDescriptor]


def test_a_file_that_failed_is_not_kept(written, messages_sent):
    written.nodes[0].damage(DATA[:64])
    descriptors = SharedDescriptors(kept_max=4)
    for _ in range(2):
        reading = read_range("file-token", written.layout_on("n0", "n1"), 0, 100, descriptors=descriptors)
        assert written.driver.run(reading) == DATA[:100]
    written.driver.run(descriptors.close())
    assert asked_in_turn(messages_sent) == [RequestDescriptor, RequestDescriptor, RequestDescriptor], (
        "of n0 twice, of n1 once"
    )


def test_bytes_are_read_where_they_are_wanted(written):
    target = memoryview(bytearray(len(DATA)))
    reader = FileReader("file-token", written.layout(), 0, len(DATA))
    room = target
    while (piece := written.driver.run(reader.next_piece(room))) is not None:
        assert piece.obj is target.obj
        room = room[len(piece) :]
    assert target == DATA


@pytest.mark.parametrize("at", [0, packet_bytes + 100, 4 * MIB])
@pytest.mark.evidence("checksums-hold")
def test_shared_descriptor_with_a_flipped_bit_is_never_read_and_its_replica_is_reported(written, at):
    written.nodes[0].damage(DATA[at : at + 64])
    assert written.read() == DATA
    (chunk,) = written.coordinator.completed[0].chunks
    assert [(report.chunk, report.node) for report in written.coordinator.corrupt] == [(chunk.chunk, "n0")]


def test_damaged_checksums_are_found_by_who_lends(written, messages_sent):
    (file,) = (path for path in written.nodes[0].directory.rglob("*") if path.stat().st_size > len(DATA))
    with file.open("r+b") as damaged:
        damaged.seek(-1, os.SEEK_END)
        last = damaged.read(1)
        damaged.seek(-1, os.SEEK_END)
        damaged.write(bytes([last[0] ^ 1]))
    assert written.read() == DATA
    assert asked_in_turn(messages_sent) == [RequestDescriptor, RequestDescriptor], (
        "the next datanode shared its file"
    )
    _, _, corrupt = written.nodes[0].changes.take()
    assert len(corrupt) == 1, "and the next heartbeat says which is damaged"


@pytest.mark.evidence("shared-file-fails")
def test_a_replica_that_is_deleted_in_mid_read_is_read_to_its_end(written, messages_sent):
    reader = FileReader("file-token", written.layout(), 0, len(DATA))
    pieces = [bytes(written.driver.run(reader.next_piece()))]
    for node in written.nodes:
        node.forget()
    while (piece := written.driver.run(reader.next_piece())) is not None:
        pieces.append(bytes(piece))
    assert b"".join(pieces) == DATA
    assert asked_in_turn(messages_sent) == [RequestDescriptor]


@pytest.mark.evidence("shared-file-fails")
def test_a_datanode_that_stops_in_mid_read_is_not_missed(written):
    reader = FileReader("file-token", written.layout(), 0, len(DATA))
    pieces = [bytes(written.driver.run(reader.next_piece()))]
    written.nodes[0].server.stop()
    while (piece := written.driver.run(reader.next_piece())) is not None:
        pieces.append(bytes(piece))
    assert b"".join(pieces) == DATA


@pytest.mark.evidence("shared-file-fails")
def test_shared_descriptor_cannot_be_written_to(written):
    answer, file = shared_descriptor(written)
    assert isinstance(answer, DescriptorShared)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(file.descriptor, b"x", 0)
    assert not os.get_inheritable(file.descriptor)
    written.driver.run(fx.close_file(file))
    assert written.read() == DATA


@pytest.mark.evidence("shared-file-fails")
def test_descriptor_is_not_shared_without_the_chunks_own_token(written):
    for token, refusal in (
        ("nonsense", AccessDenied),
        (written.signer.sign(ChunkRead(4e9, 999)), AccessDenied),
        (written.signer.sign(ChunkRead(1.0, written.layout().chunks[0].chunk)), TokenExpired),
    ):
        answer, file = shared_descriptor(written, token=token)
        assert isinstance(answer, Failure)
        assert type(from_wire(answer.code, answer.message)) is refusal
        assert file is None


def test_a_small_chunk_has_no_file_to_lend_and_is_read_as_ever(make_cluster, messages_sent):
    cluster = make_cluster(shares_descriptors=True)
    cluster.write(b"small")
    answer, file = shared_descriptor(cluster)
    assert (type(from_wire(answer.code, answer.message)), file) == (BadRequest, None)
    messages_sent.clear()
    assert cluster.read() == b"small"
    assert asked_in_turn(messages_sent) == [ReadChunk]


def test_a_chunk_that_is_not_there_is_read_elsewhere(written, messages_sent):
    written.nodes[0].forget()
    answer, file = shared_descriptor(written)
    assert (type(from_wire(answer.code, answer.message)), file) == (ChunkNotFound, None)
    messages_sent.clear()
    assert written.read() == DATA
    assert asked_in_turn(messages_sent) == [RequestDescriptor, RequestDescriptor]


def test_descriptors_are_shared_over_local_sockets_alone(written):
    layout = written.layout().chunks[0]
    connection = written.connect("n0")
    request = RequestDescriptor(layout.token, layout.chunk, layout.version)
    written.driver.run(fx.send(connection, request, timeout_s=60.0))
    answer = written.answer(connection)
    assert isinstance(answer, Failure)
    assert type(from_wire(answer.code, answer.message)) is BadRequest


@pytest.mark.evidence("shared-file-fails")
def test_a_file_that_cannot_be_read_is_asked_of_its_datanode_which_then_knows(written, messages_sent):
    def fail(effect):
        raise OSError(errno.EIO, "Input/output error")

    written.driver._perform[fx.ReadInto] = fail
    assert written.read() == DATA
    assert asked_in_turn(messages_sent) == [RequestDescriptor, ReadChunk]


@pytest.mark.evidence("shared-file-fails")
def test_a_file_that_has_become_shorter_costs_nobody_a_byte(written):
    reader = FileReader("file-token", written.layout(), 0, len(DATA))
    pieces = [bytes(written.driver.run(reader.next_piece()))]
    (file,) = (path for path in written.nodes[0].directory.rglob("*") if path.stat().st_size > len(DATA))
    os.truncate(file, 2 * MIB)
    while (piece := written.driver.run(reader.next_piece())) is not None:
        pieces.append(bytes(piece))
    assert b"".join(pieces) == DATA


@pytest.mark.evidence("disk-hangs")
def test_shared_descriptor_whose_disk_hangs_is_left_and_late_bytes_go_nowhere(make_cluster, monkeypatch, until):
    """Files are opened in advance, so that a busy machine delays nothing but the tested disk read."""
    cluster = make_cluster(shares_descriptors=True)
    cluster.write(DATA)
    descriptors = SharedDescriptors(kept_max=len(cluster.nodes))
    for node in cluster.nodes:
        reader = FileReader("file-token", cluster.layout_on(node.name), 0, len(DATA), descriptors=descriptors)
        assert cluster.driver.run(reader.next_piece())
        cluster.driver.run(reader.close())
    comes_back, late = threading.Event(), []
    monkeypatch.setattr("peacefs.runtime.bounded_reads.read_from_memory", lambda file, target, offset: 0)

    def hang(descriptor, room, offset):
        comes_back.wait(600)
        room[:] = b"x" * len(room)
        late.append(offset)
        return len(room)

    monkeypatch.setattr("peacefs.runtime.bounded_reads._read", hang)
    target = memoryview(bytearray(len(DATA)))
    reader = FileReader("file-token", cluster.layout(), 0, len(DATA), hop_timeout_s=0.2, descriptors=descriptors)
    with pytest.raises(ChunkUnavailable) as refusal:
        cluster.driver.run(reader.next_piece(target))
    assert refusal.value.message.count("the disk gave nothing for 0.2 s") == len(cluster.nodes)
    comes_back.set()
    until(lambda: late, "the disk comes back")
    assert not any(target)


@pytest.mark.parametrize("why", ["the client wants none", "the datanode has none", "it is on another host"])
def test_reader_without_a_shared_descriptor_reads_over_tcp(make_cluster, messages_sent, why):
    cluster = make_cluster(shares_descriptors=why != "the datanode has none")
    cluster.write(DATA)
    if why == "it is on another host":
        # Nobody has this name there.
        for node in cluster.nodes:
            node.server._me = dataclasses.replace(node.server._me, local_socket="peacefs-elsewhere")
    # The client does not know a local socket yet.
    cluster.pool.close_all()
    wants_none = why == "the client wants none"
    cluster.pool = ConnectionPool(Identity("test-cluster", "client", "test", None), local_sockets=not wants_none)
    cluster.driver = ThreadDriver(cluster.pool, cluster.coordinator.call)
    assert cluster.read() == DATA
    assert asked_in_turn(messages_sent) == [ReadChunk]


def test_short_circuit_read_of_a_datanode_from_another_on_its_host_goes_over_a_sealed_connection(
    written, messages_sent
):
    """The local socket has keys of its own. Its address counts as the lender's, like the port."""
    node = written.nodes[1]
    reader = FileReader("file-token", written.layout_on("n0"), 0, len(DATA))
    read = bytearray()
    while (piece := node.driver.run(reader.next_piece())) is not None:
        read += piece
    node.driver.run(reader.close())
    assert read == DATA
    assert kinds(messages_sent, RequestDescriptor, DescriptorShared, ReadChunk) == [
        RequestDescriptor,
        DescriptorShared,
    ]


def test_no_descriptor_is_left_open(written, until):
    before = open_descriptors()
    for _ in range(12):
        assert written.read() == DATA
        reader = FileReader("file-token", written.layout(), 0, len(DATA))
        written.driver.run(reader.next_piece())
        written.driver.run(reader.close())
    # One connection to the data server and one to its local socket remain, with their other ends and the relay's.
    until(lambda: open_descriptors() <= before + 8, "files are closed at both ends")
