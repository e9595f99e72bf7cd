"""Large reads by several threads: from several datanodes, exact despite faults, limited, and not on one host."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from peacefs.client.file_objects import FileSource
from peacefs.client.parallel_reads import (
    ParallelReads,
    parallel_range_bytes,
    parallel_ranges_max,
    read_ahead_bytes_max,
)
from peacefs.client.transfer.read_ranges import ReadRange, cut_ranges, turned
from peacefs.protocol.errors import ChunkUnavailable, PeerUnreachable
from peacefs.protocol.limits import KIB, MIB
from peacefs.protocol.messages import ChunkLayout, Hop, Layout, Opened

DATA = os.urandom(24 * MIB + 5)


@pytest.fixture
def written(make_cluster):
    return written_on(make_cluster())


def written_on(cluster):
    """Write a file of two chunks, and close the writer's connections."""
    cluster.write(DATA, 16 * MIB)
    cluster.pool.close_all()
    for node in cluster.nodes:
        node.relay.connections = 0
    return cluster


@pytest.fixture
def reads(written):
    made = ParallelReads(written.driver)
    yield made
    made.close()


def opened(cluster):
    return Opened("file-token", cluster.layout())


def connections(cluster):
    return [node.relay.connections for node in cluster.nodes]


def test_ranges_are_cut_at_ends_of_chunks_and_multiples_within_them():
    chunks = [ChunkLayout(number, 1, length, "", []) for number, length in enumerate((10, 4, 10))]
    found = list(cut_ranges(Layout(24, chunks), 3, 22, 4))
    assert found == [
        ReadRange(0, 3, 1, 3),
        ReadRange(0, 4, 4, 4),
        ReadRange(0, 8, 2, 8),
        ReadRange(1, 0, 4, 10),
        ReadRange(2, 0, 4, 14),
        ReadRange(2, 4, 4, 18),
    ]
    assert list(cut_ranges(Layout(24, chunks), 5, 5, 4)) == []


def test_ranges_of_one_chunk_ask_its_replicas_in_turn():
    hops = [Hop(name, "127.0.0.1", 1) for name in "abc"]
    chunk = ChunkLayout(1, 1, 10, "", hops)
    assert ["".join(hop.node for hop in turned(chunk, turn).replicas) for turn in range(4)] == [
        "abc",
        "bca",
        "cab",
        "abc",
    ]
    assert turned(ChunkLayout(1, 1, 10, "", []), 3).replicas == []


@pytest.mark.parametrize("how", ["whole", "rest", "on and on", "a range"])
def test_large_read_asks_several_datanodes_at_once(written, reads, how):
    with FileSource(written.driver, opened(written), reads) as source:
        if how == "whole":
            assert source.read() == DATA
        elif how == "rest":
            assert source.read(7 * MIB) + source.read() == DATA
        elif how == "on and on":
            assert b"".join(iter(lambda: source.read(700 * KIB), b"")) == DATA
        else:
            assert source.read_at(3, 20 * MIB) == DATA[3 : 20 * MIB + 3]
    assert min(connections(written)) >= 1, connections(written)


def test_small_read_asks_one_datanode(written, reads):
    with FileSource(written.driver, opened(written), reads) as source:
        assert source.read_at(5, MIB) == DATA[5 : MIB + 5]
        assert source.read(MIB) == DATA[:MIB]
        source.seek(9 * MIB)
        assert source.read(MIB) == DATA[9 * MIB : 10 * MIB]
    assert connections(written)[1:] == [0, 0]


@pytest.mark.parametrize("read", [lambda source: source.read(), lambda source: b"".join(source)])
def test_large_read_goes_on_from_other_replicas_when_one_is_damaged_and_a_node_dies(written, reads, read):
    written.nodes[0].damage(DATA[5 * MIB : 5 * MIB + 64])
    written.nodes[1].relay.hang_up_after = 2 * MIB
    with FileSource(written.driver, opened(written), reads) as source:
        assert read(source) == DATA
    assert {report.node for report in written.coordinator.corrupt} <= {"n0"}
    assert reads.ahead_bytes_free == read_ahead_bytes_max


def test_datanode_that_cannot_be_reached_is_tried_once_before_a_large_read(written, reads):
    address = written.nodes[0].address
    written.nodes[0].relay.stop()
    avoided: set[str] = set()
    assert reads.are_worthwhile(opened(written), 0, len(DATA), avoided)
    assert avoided == {"n0"}
    # Nobody connects there any more, since another server may have the address.
    with socket.create_server(address) as listener:
        listener.setblocking(False)
        assert reads.read(opened(written), 0, len(DATA), avoided) == DATA
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_large_read_tells_that_no_replica_is_good_and_leaves_nothing_behind(written, reads):
    for node in written.nodes:
        node.damage(DATA[17 * MIB : 17 * MIB + 64])
    for call in (
        lambda source: source.read(),
        lambda source: list(source),
        lambda source: source.read_at(0, 20 * MIB),
    ):
        with FileSource(written.driver, opened(written), reads) as source, pytest.raises(ChunkUnavailable):
            call(source)
    with FileSource(written.driver, opened(written), reads) as source:
        # The bytes before and after the damage are readable.
        assert source.read_at(0, 12 * MIB) == DATA[: 12 * MIB]
        assert source.read_at(18 * MIB, MIB) == DATA[18 * MIB : 19 * MIB]


def test_seeks_leave_what_was_read_ahead_and_go_on_exactly(written, reads, until):
    with FileSource(written.driver, opened(written), reads) as source:
        for at in (0, 10 * MIB + 1, 2 * MIB, 12 * MIB):
            source.seek(at)
            assert source.read(5 * MIB) == DATA[at : at + 5 * MIB]
            assert source.tell() == at + 5 * MIB
    until(lambda: reads.ahead_bytes_free == read_ahead_bytes_max, "what was read ahead is given back")


def test_read_ahead_is_bounded_for_all_files_of_a_client_and_the_rest_is_read_without(written, until):
    room = parallel_ranges_max * parallel_range_bytes
    reads = ParallelReads(written.driver, ahead_bytes_max=2 * room)
    sources = [FileSource(written.driver, opened(written), reads) for _ in range(4)]
    read = [source.read(5 * MIB) for source in sources]
    assert reads.ahead_bytes_free == 0
    assert read == [DATA[: 5 * MIB]] * 4
    rests: list[bytes] = [b""] * 4

    def rest(number: int) -> None:
        rests[number] = b"".join(iter(lambda: sources[number].read(MIB), b""))

    threads = [threading.Thread(target=rest, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rests == [DATA[5 * MIB :]] * 4
    for source in sources:
        source.close()
    until(lambda: reads.ahead_bytes_free == 2 * room, "what was read ahead is given back")
    reads.close()


def test_host_of_the_datanodes_is_read_short_circuit_by_one_thread(make_cluster):
    cluster = written_on(make_cluster(shares_descriptors=True))
    reads = ParallelReads(cluster.driver)
    with FileSource(cluster.driver, opened(cluster), reads) as source:
        assert b"".join(iter(lambda: source.read(MIB), b"")) == DATA
        source.seek(0)
        assert source.read() == DATA
    assert connections(cluster)[1:] == [0, 0]
    assert reads.ahead_bytes_free == read_ahead_bytes_max
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("peacefs-reads")]
    reads.close()


def test_file_that_is_read_on_after_its_client_was_closed_ends_with_an_error(written, reads):
    source = FileSource(written.driver, opened(written), reads)
    assert source.read(5 * MIB) == DATA[: 5 * MIB]
    reads.close()
    written.pool.shut_down()
    with pytest.raises((PeerUnreachable, ChunkUnavailable)):
        list(source)
    source.close()
