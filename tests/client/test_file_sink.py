"""A writer whose cluster fails gets the error at its next call, never waits forever, and publishes nothing."""

from __future__ import annotations

import threading
import time

import pytest

from peacefs.client.file_objects import FileSink
from peacefs.client.limits import stream_buffer_bytes
from peacefs.client.transfer.write_grants import GrantClient
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import chunk_bytes_max, packet_bytes
from peacefs.protocol.messages import Allocated, Created, Hop, Message
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

CREATED = Created("file-token", Allocated(1, 2, [Hop("n1", "127.0.0.1", 1)], "chunk-token"))


def sink_on(fault: BaseException) -> FileSink:
    """Return a file of a cluster whose datanode refuses connections, and whose coordinator then raises `fault`."""

    def call(_message: Message, _timeout_s: float) -> Message:
        raise fault

    pool = ConnectionPool(Identity(cluster="", role="client", name="test", signer=None))
    return FileSink(
        ThreadDriver(pool, call), CREATED, chunk_bytes_max, "holder", GrantClient("test", pushed=False)
    )


def write_until_told(sink: FileSink) -> None:
    """Write far more than the buffer holds, until an error is raised."""
    for _ in range(4 * stream_buffer_bytes // packet_bytes):
        sink.write(bytes(packet_bytes))


def test_a_short_file_learns_of_the_fault_when_it_is_closed() -> None:
    sink = sink_on(NoDatanodes("all are gone"))
    sink.write(b"short")
    with pytest.raises(NoDatanodes, match="all are gone"):
        sink.close()
    assert sink.closed


def test_a_long_file_learns_of_the_fault_while_it_is_written_and_its_thread_ends() -> None:
    sink = sink_on(NoDatanodes("all are gone"))
    began = time.monotonic()
    with pytest.raises(NoDatanodes, match="all are gone"):
        write_until_told(sink)
    assert time.monotonic() - began < 60
    sink.discard()
    assert not [each for each in threading.enumerate() if each.name == "peacefs-writer" and each.is_alive()]


@pytest.mark.parametrize("length", [1, stream_buffer_bytes + packet_bytes])
def test_closing_after_a_fault_never_counts_as_success(length: int) -> None:
    sink = sink_on(NoDatanodes("all are gone"))
    sink.write(bytes(length))
    with pytest.raises(NoDatanodes):
        sink.close()


def test_even_a_bug_below_wakes_the_writer() -> None:
    sink = sink_on(ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        write_until_told(sink)
    sink.discard()


def test_a_fault_does_not_hide_the_callers_own_exception() -> None:
    def write_and_fail() -> None:
        with sink_on(NoDatanodes("all are gone")) as sink:
            sink.write(b"short")
            raise KeyError("the caller's")

    with pytest.raises(KeyError):
        write_and_fail()
