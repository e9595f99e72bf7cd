"""The normal case: data written through a pipeline is on every node and is read back unchanged."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from msgspec.structs import replace

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.file_reader import FileReader, read_whole
from peacefs.protocol.checksums import block_checksums, chunk_checksum
from peacefs.protocol.errors import NoDatanodes, PeerUnreachable
from peacefs.protocol.limits import MIB, checksum_block_bytes, fast_lane_bytes_max, packet_bytes
from peacefs.protocol.messages import Packet, ReadChunk, WriteAck

SIZES = [
    1,
    1000,
    checksum_block_bytes - 1,
    checksum_block_bytes,
    checksum_block_bytes + 1,
    packet_bytes - 1,
    packet_bytes,
    packet_bytes + 1,
    3 * packet_bytes + 12345,
]


@pytest.mark.parametrize("size", SIZES)
def test_a_chunk_of_any_size_comes_back_from_every_node_of_its_pipeline(cluster, size):
    data = os.urandom(size)
    completed, stats = cluster.write(data)
    assert completed.length == size
    assert stats.replicas == (3,)
    assert stats.short_chunks(3) == 0
    for node in cluster.nodes:
        assert cluster.read(layout=cluster.layout_on(node.name)) == data


def test_acknowledged_checksum_is_the_writers_own(cluster):
    data = os.urandom(2 * packet_bytes + 7)
    cluster.write(data)
    (chunk,) = cluster.coordinator.completed[0].chunks
    assert (chunk.length, chunk.checksum) == (len(data), chunk_checksum(block_checksums(data)))
    assert [receipt.node for receipt in chunk.receipts] == ["n0", "n1", "n2"]


def test_a_long_file_is_cut_into_chunks_and_none_is_asked_for_that_would_stay_empty(cluster):
    data = os.urandom(4 * MIB)
    _, stats = cluster.write(data, block_bytes=2 * MIB)
    assert [chunk.length for chunk in cluster.coordinator.completed[0].chunks] == [2 * MIB, 2 * MIB]
    assert len(cluster.coordinator.allocations) == 2
    assert stats.replicas == (3, 3)
    assert cluster.read() == data


def test_no_chunk_is_asked_for_before_the_first_byte_that_it_would_hold(cluster):
    stream = ByteStream()
    stream.feed(os.urandom(2 * MIB))
    finish = threading.Timer(0.1, stream.finish)
    finish.start()
    cluster.write(stream, block_bytes=2 * MIB)
    finish.join()
    assert len(cluster.coordinator.allocations) == 1


def test_an_empty_file_is_completed_without_chunks(cluster):
    completed, stats = cluster.write(b"")
    assert completed.length == 0
    assert stats.replicas == ()
    assert cluster.coordinator.allocations == []
    assert cluster.read() == b""


def test_fewer_replicas_than_asked_for_are_counted(make_cluster):
    cluster = make_cluster(nodes=2)
    _, stats = cluster.write(os.urandom(3 * MIB), block_bytes=2 * MIB)
    assert stats.replicas == (2, 2)
    assert stats.short_chunks(3) == 2


def test_a_small_chunk_is_one_frame_down_and_one_up_on_every_link(cluster, messages_sent):
    cluster.write(b"warm the connections")
    messages_sent.clear()
    cluster.write(b"x" * 1024)
    assert sorted(type(message).__name__ for message in messages_sent) == ["WriteAck"] * 3 + ["WriteChunk"] * 3


def test_connections_are_used_again_along_the_whole_chain(cluster):
    cluster.write(b"the first opens them")
    before = [node.relay.connections for node in cluster.nodes]
    for _ in range(5):
        cluster.write(b"x" * 1024)
        cluster.write(os.urandom(2 * MIB))
        cluster.read()
    assert [node.relay.connections for node in cluster.nodes] == before


def test_bytes_that_trickle_in_are_written_as_well_as_bytes_that_come_at_once(cluster):
    data = random.Random(7).randbytes(packet_bytes + 100_000)
    stream = ByteStream()

    def produce():
        for at in range(0, len(data), 50_001):
            stream.feed(data[at : at + 50_001])
            time.sleep(0.001)
        stream.finish()

    producer = threading.Thread(target=produce)
    producer.start()
    cluster.write(stream)
    producer.join()
    assert cluster.read() == data


def test_a_writer_whose_source_is_slower_than_the_hops_deadline_is_not_taken_for_dead(make_cluster):
    cluster = make_cluster(hop_timeout_s=4.0)
    stream = ByteStream()
    stream.feed(os.urandom(fast_lane_bytes_max + packet_bytes))
    rest = threading.Timer(5.0, lambda: (stream.feed(b"the rest"), stream.finish()))
    rest.start()
    _, stats = cluster.write(stream)
    rest.join()
    assert stats.replicas == (3,)
    assert len(cluster.coordinator.allocations) == 1
    assert cluster.read().endswith(b"the rest")


def test_a_file_whose_source_gives_up_is_not_completed_and_leaves_nothing_staged(cluster, until):
    stream = ByteStream()
    stream.feed(os.urandom(fast_lane_bytes_max + 1))
    failing = threading.Timer(0.05, stream.abort, (PeerUnreachable("the client hung up"),))
    failing.start()
    with pytest.raises(PeerUnreachable, match="the client hung up"):
        cluster.write(stream)
    failing.join()
    assert cluster.coordinator.completed == []
    assert len(cluster.coordinator.allocations) == 1, "no other pipeline mends this"
    until(lambda: all(node.is_quiet() for node in cluster.nodes), "every hop has let go")
    assert all(node.store.replicas() == [] for node in cluster.nodes)


def test_a_producer_is_told_when_the_writer_has_failed(make_cluster):
    cluster = make_cluster()
    for node in cluster.nodes:
        node.relay.die()
    stream = ByteStream()
    stream.feed(bytes(fast_lane_bytes_max + 1))
    with pytest.raises(NoDatanodes, match=r"no datanode is left \(another pipeline was needed because .*n2"):
        cluster.write(stream)
    assert isinstance(stream.error, NoDatanodes)


RANGES = [
    (0, 1),
    (0, checksum_block_bytes),
    (5, 10),
    (checksum_block_bytes - 1, 2),
    (checksum_block_bytes, checksum_block_bytes),
    (2 * MIB - 3, 6),
    (packet_bytes - 5, packet_bytes + 10),
    (3 * MIB, 10 * MIB),
    (5 * MIB - 1, 1),
]


def test_any_range_is_read_exactly_across_blocks_packets_and_chunks(cluster):
    data = os.urandom(5 * MIB)
    cluster.write(data, block_bytes=2 * MIB)
    for offset, length in RANGES:
        assert cluster.read(offset, length) == data[offset : offset + length], (offset, length)


def test_a_range_beyond_the_end_is_empty(cluster):
    cluster.write(b"0123456789")
    assert cluster.read(10, 5) == b""
    assert cluster.read(4, 0) == b""


def test_a_small_read_moves_one_block_and_not_the_chunk(cluster, messages_sent):
    cluster.write(os.urandom(4 * MIB))
    messages_sent.clear()
    cluster.read(3 * MIB + 5, 10)
    assert [type(message) for message in messages_sent] == [ReadChunk, Packet]


def test_a_reader_that_stops_early_leaves_no_stream_behind(cluster, until):
    cluster.write(os.urandom(8 * MIB))
    reader = FileReader("file-token", cluster.layout(), 0, 8 * MIB)
    assert cluster.driver.run(reader.next_piece()) is not None
    cluster.driver.run(reader.close())
    until(lambda: all(node.requests.streams == 0 for node in cluster.nodes), "the datanode has stopped sending")
    assert cluster.driver.run(reader.next_piece()) is None


def test_read_whole_gives_a_small_file_in_one_piece(cluster):
    cluster.write(b"a checkpoint's offsets")
    assert cluster.driver.run(read_whole("file-token", cluster.layout())) == b"a checkpoint's offsets"


def test_many_writers_at_once_keep_their_files_apart(cluster):
    def content(number):
        return random.Random(number).randbytes(1000 + 200_000 * (number % 3))

    def write(number):
        cluster.write(content(number))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(12)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    expected = sorted(content(number) for number in range(12))
    layouts = [cluster.coordinator.layout(done.chunks) for done in cluster.coordinator.completed]
    assert sorted(cluster.read(layout=layout) for layout in layouts) == expected


def test_the_same_chunk_sent_again_gets_the_same_acknowledgement(cluster):
    """The writer may not have received the first answer."""
    allocated = cluster.coordinator.allocated(["n0", "n1", "n2"])
    data = os.urandom(3000)
    answers = []
    for _ in range(2):
        connection = cluster.connect("n0")
        cluster.send_first(connection, allocated, data, last=True)
        answers.append(cluster.answer(connection))
    assert isinstance(answers[0], WriteAck)
    assert replace(answers[0], waited_s=0.0) == replace(answers[1], waited_s=0.0)


def test_an_empty_last_packet_ends_a_chunk_whose_length_nobody_knew(cluster, messages_sent):
    stream = ByteStream()
    fed_bytes = fast_lane_bytes_max + packet_bytes
    stream.feed(os.urandom(fed_bytes))
    finish = threading.Timer(0.1, stream.finish)
    finish.start()
    cluster.write(stream)
    finish.join()
    packets = [message for message in messages_sent if isinstance(message, Packet)]
    assert [packet.offset for packet in packets if packet.last] == [fed_bytes] * 3
    assert len(cluster.read()) == fed_bytes


def test_a_datanode_tells_what_it_has_got_with_its_next_heartbeat(cluster):
    cluster.write(b"x" * 100)
    for node in cluster.nodes:
        added, _, _ = node.changes.take()
        assert [replica.length for replica in added] == [100]
