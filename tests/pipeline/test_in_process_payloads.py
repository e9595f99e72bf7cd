"""A client in a datanode's process, like its gateway: large payloads are passed in memory, and verified."""

from __future__ import annotations

import os
import random
import socket
import threading
import time

import pytest

from peacefs.datanode.pipeline.listeners import DataListeners
from peacefs.datanode.pipeline.server import DataServer
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import PeerTimeout, PeerUnreachable, ProtocolViolation
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import MIB, frame_ahead_bytes, packet_bytes
from peacefs.protocol.messages import Packet
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.in_process_payloads import InProcessPayloads, ServedHere, in_process_bytes_max
from peacefs.runtime.thread_driver import ThreadDriver

DATA = os.urandom(3 * MIB + 17)


@pytest.fixture
def given(monkeypatch):
    """Return the lengths of all payloads passed in memory."""
    lengths = []
    give = InProcessPayloads.give

    def noted(self, payload, timeout_s):
        lengths.append(len(payload))
        return give(self, payload, timeout_s)

    monkeypatch.setattr(InProcessPayloads, "give", noted)
    return lengths


@pytest.fixture
def living_in_n0(make_cluster):
    """Yield a cluster whose writer runs in the process of n0's data server, and detects that."""
    cluster = make_cluster(nodes=4)
    node, here = cluster.nodes[0], ServedHere()
    me = Identity("test-cluster", "datanode", node.name, cluster.signer)
    server = DataServer(DataListeners("127.0.0.1", 0, me), node.driver, node.requests, served_here=here)
    server.start()
    pool = ConnectionPool(me, served_here=here)
    cluster.driver = ThreadDriver(pool, cluster.coordinator.call)
    node.address = server.address
    yield cluster
    pool.shut_down()
    server.stop()
    pool.close_all()


@pytest.fixture
def pair():
    """Yield both ends of a connection within one process: the connector and the server."""
    here = ServedHere()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = SocketConnection(socket.create_connection(listener.getsockname()), "who serves")
        theirs = SocketConnection(listener.accept()[0], "who connected")
    here.add(theirs)
    here.join(ours)
    for end in (ours, theirs):
        end.greeted()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_in_process_payload_reaches_every_replica_whole(living_in_n0, given):
    living_in_n0.write(DATA)
    assert given == [packet_bytes] * (len(DATA) // packet_bytes), "all but the last 17 bytes"
    for name in ("n0", "n1", "n2"):
        assert living_in_n0.read(layout=living_in_n0.layout_on(name)) == DATA


def test_a_small_file_goes_as_it_goes_to_anybody(living_in_n0, given):
    living_in_n0.write(b"offsets")
    assert living_in_n0.read() == b"offsets"
    assert given == []


def test_payload_is_handed_only_to_the_other_end(living_in_n0, given):
    """A relay is in between, so the other end is not the server's."""
    head = living_in_n0.nodes[0]
    head.address = head.relay.address
    living_in_n0.write(DATA)
    assert head.relay.connections > 0
    assert given == []
    assert living_in_n0.read(layout=living_in_n0.layout_on("n1")) == DATA


def test_a_head_whose_disk_breaks_is_named_and_nothing_is_kept_for_it(living_in_n0, given):
    living_in_n0.nodes[0].break_disk(fx.AppendToFile)
    _, stats = living_in_n0.write(DATA)
    assert given, "it was the head"
    assert stats.failed_nodes == ("n0",)
    assert stats.replicas == (3,)
    assert living_in_n0.read() == DATA


def test_a_writer_that_goes_in_the_middle_leaves_nothing(living_in_n0, given, until):
    node = living_in_n0.nodes[0]
    connection = living_in_n0.connect("n0")
    allocated = living_in_n0.coordinator.allocated(["n0", "n1"])
    living_in_n0.send_first(connection, allocated, DATA[:packet_bytes], last=False)
    until(lambda: not node.is_quiet(), "the chunk is on its way")
    living_in_n0.driver.run(fx.close(connection))
    until(lambda: all(each.is_quiet() for each in living_in_n0.nodes), "the hops have dropped it")
    assert given == [packet_bytes]


def test_payload_changed_in_memory_is_refused_by_the_head(living_in_n0):
    """It verifies payloads passed in memory, too."""
    connection = living_in_n0.connect("n0")
    allocated = living_in_n0.coordinator.allocated(["n0"])
    living_in_n0.send_first(connection, allocated, DATA[:packet_bytes], last=False)
    rotten = bytearray(DATA[:packet_bytes])
    packet = Packet(packet_bytes, block_checksums(rotten), True)
    rotten[1000] ^= 1
    living_in_n0.driver.run(fx.send(connection, packet, rotten, timeout_s=60.0))
    assert living_in_n0.answer(connection).code == "ChecksumMismatch"


@pytest.mark.parametrize("seed", range(3))
def test_large_and_small_arrive_in_the_order_in_which_they_were_sent(pair, seed):
    ours, theirs = pair
    rng = random.Random(seed)
    sizes = [rng.choice([0, 1, frame_ahead_bytes, frame_ahead_bytes + 1, packet_bytes]) for _ in range(60)]
    payloads = [rng.randbytes(size) for size in sizes]
    sender = threading.Thread(
        target=lambda: [
            ours.send(Packet(number, b"sums"), payload, 5.0) for number, payload in enumerate(payloads)
        ]
    )
    sender.start()
    for number, payload in enumerate(payloads):
        message, data, *_ = theirs.receive(5.0)
        assert (message.offset, bytes(data)) == (number, payload)
    sender.join()
    theirs.send(Packet(0, b""), b"x" * packet_bytes, 5.0)
    assert bytes(ours.receive(5.0).payload) == b"x" * packet_bytes, "the way back goes through the socket"


def test_receiver_that_takes_nothing_holds_up_the_writer_for_its_deadline(pair):
    ours, _theirs = pair
    payload = bytes(packet_bytes)
    for number in range(in_process_bytes_max // packet_bytes):
        ours.send(Packet(number, b""), payload, 5.0)
    began_s = time.monotonic()
    with pytest.raises(PeerTimeout, match=r"who serves took nothing for 0\.1 s"):
        ours.send(Packet(0, b""), payload, 0.1)
    assert time.monotonic() - began_s < 60


@pytest.mark.parametrize("end", ["close", "shut_down"])
def test_writer_that_waits_for_room_is_woken_when_the_other_end_is_gone(pair, end, given, until):
    ours, theirs = pair
    faults = []

    def write():
        try:
            for number in range(100):
                ours.send(Packet(number, b""), bytes(packet_bytes), 240.0)
            ours.receive(240.0)
        except PeerUnreachable as fault:
            faults.append(fault)

    writer = threading.Thread(target=write)
    writer.start()
    until(lambda: len(given) > in_process_bytes_max // packet_bytes, "one more than there is room for")
    getattr(theirs, end)()
    writer.join(timeout=60)
    assert faults, "long before its deadline"


def test_a_head_without_what_it_announces_is_a_violation(pair):
    ours, theirs = pair
    ours._gives.end()
    ours.send(Packet(0, b""), bytes(packet_bytes), 5.0)
    with pytest.raises(ProtocolViolation, match="without the payload"):
        theirs.receive(5.0)
