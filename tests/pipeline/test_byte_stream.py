"""The stream between a producer and the writer: order, capacity, the end, and cancellation by either side."""

from __future__ import annotations

import threading

import pytest

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.protocol.errors import PeerTimeout, PeerUnreachable


def drained(stream: ByteStream, bytes_max: int = 1 << 20) -> bytes:
    pieces = []
    while len(piece := stream.take(bytes_max)):
        pieces.append(bytes(piece))
    return b"".join(pieces)


def test_bytes_come_out_in_order_in_pieces_no_larger_than_asked_for():
    stream = ByteStream()
    stream.feed(b"abcdef")
    stream.feed(b"ghi")
    assert [bytes(stream.take(4)) for _ in range(4)] == [b"abcd", b"ef", b"ghi", b""]
    assert not stream.ended


def test_a_buffer_that_the_producer_uses_again_is_copied():
    stream = ByteStream()
    buffer = bytearray(b"first")
    stream.feed(buffer)
    buffer[:] = b"later"
    assert drained(stream) == b"first"


def test_it_has_ended_only_when_the_last_byte_is_taken():
    stream = ByteStream.of(b"xy")
    assert not stream.ended
    stream.take(1)
    assert not stream.ended
    stream.take(1)
    assert stream.ended


def test_a_producer_far_ahead_gets_a_ticket_that_fires_when_there_is_room():
    stream = ByteStream(buffer_bytes=10)
    assert stream.feed(b"123456789") is None
    ticket = stream.feed(b"0")
    assert ticket is not None and not ticket.fired
    assert stream.feed(b"more than was agreed") is ticket
    stream.take(5)
    drained(stream)
    assert ticket.fired
    assert stream.feed(b"x") is None


def test_a_producer_that_gives_up_is_met_as_its_error_and_the_rest_is_dropped():
    stream = ByteStream()
    stream.feed(b"half")
    stream.abort(PeerUnreachable("the client hung up"))
    with pytest.raises(PeerUnreachable, match="hung up"):
        stream.take(10)


def test_a_writer_that_gives_up_wakes_the_producer_and_refuses_more():
    stream = ByteStream(buffer_bytes=1)
    ticket = stream.feed(b"much")
    stream.abort(PeerTimeout("no pipeline"))
    assert ticket is not None and ticket.fired
    with pytest.raises(PeerTimeout, match="no pipeline"):
        stream.feed(b"more")


def test_the_first_error_stands():
    stream = ByteStream()
    stream.abort(PeerTimeout("first"))
    stream.abort(PeerTimeout("second"))
    assert stream.error is not None and stream.error.message == "first"


def test_giving_up_after_the_end_changes_nothing():
    stream = ByteStream.of(b"")
    stream.abort(PeerTimeout("too late"))
    assert stream.error is None and stream.ended


def test_a_waiting_writer_is_woken_by_bytes_the_end_and_an_error(cluster):
    for wake in (
        lambda stream: stream.feed(b"x"),
        lambda stream: stream.finish(),
        lambda stream: stream.abort(PeerTimeout("gone")),
    ):
        stream = ByteStream()
        timer = threading.Timer(0.02, wake, (stream,))
        timer.start()
        assert cluster.driver.run(stream.readable(timeout_s=60.0))
        timer.join()


def test_writer_that_waits_hears_of_its_timeout(cluster):
    assert not cluster.driver.run(ByteStream().readable(timeout_s=0.01))
