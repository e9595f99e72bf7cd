"""Dispatches the requests on a data connection.

Every request carries a token, so the identity of the sender does not matter. The answer is the request's own, or a
Failure. If an error leaves the two sides out of step, the connection is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import PeacefsError, PeerError, ProtocolViolation
from peacefs.protocol.frames import Frame
from peacefs.protocol.limits import idle_connection_timeout_s, last_word_timeout_s
from peacefs.protocol.messages import Message, ReadChunk, RequestDescriptor, WriteChunk
from peacefs.runtime import effects as fx

from .chunk_server import ChunkServer
from .hop import PipelineHop
from .requester import Requester, failure_of
from .small_requests import SmallRequests

# Number of requests under way at a datanode above which each connection may have only one. This many small chunks
# take 60 MiB.
small_requests_max: Final = 4096


class DataRequests:
    """Answers the requests of all connections of a datanode. Independent of sockets and threads."""

    def __init__(
        self, hop: PipelineHop, server: ChunkServer, *, one_by_one: Callable[[], bool] = lambda: False
    ) -> None:
        """While `one_by_one` returns True, small requests are not served in batches."""
        self._hop = hop
        self._server = server
        self._small = SmallRequests(hop.batches, server, one_by_one)
        self._lock = threading.Lock()
        self._streams = 0

    @property
    def streams(self) -> int:
        """The number of chunks being received or sent, which heartbeats report as the load."""
        return self._streams

    def serve_connection(self, connection: fx.Connection) -> fx.Steps[None]:
        """Serve requests until the peer hangs up, is silent or breaks the protocol. Raises no error of a peer."""
        requester = Requester(connection, self._hop.hop_timeout_s, self._count)
        while (yield from self._serve_requests(requester)):
            pass
        yield from requester.drained(timeout_s=idle_connection_timeout_s)
        yield from fx.close(connection)

    def _serve_requests(self, requester: Requester) -> fx.Steps[bool]:
        """Serve the requests that have arrived; return whether others may follow."""
        try:
            frames = yield from fx.next_requests(
                requester.connection, timeout_s=idle_connection_timeout_s, more_after=self._small.takes
            )
        except ProtocolViolation as fault:
            yield from requester.drained(timeout_s=last_word_timeout_s)
            yield from self._refuse(requester, fault)
            return False
        except PeerError:
            return False
        for frame in frames:
            if not (yield from self._serve_in_turn(requester, frame)):
                return False
        return True

    def _serve_in_turn(self, requester: Requester, frame: Frame) -> fx.Steps[bool]:
        """Add a small request to the next batch, or serve another one alone. Return whether others may follow."""
        has_room = requester.has_room(frame.tag, is_crowded=self._streams >= small_requests_max)
        if not has_room and not (yield from requester.drained(timeout_s=idle_connection_timeout_s)):
            return False
        if not self._small.takes(frame):
            is_drained = yield from requester.drained(timeout_s=idle_connection_timeout_s)
            return is_drained and (yield from self._serve_request(requester, frame))
        if self._small.add(requester, frame):
            yield from fx.spawn(self._small.serve())
        return True

    def _serve_request(self, requester: Requester, frame: Frame) -> fx.Steps[bool]:
        """Serve one request by itself; return whether another may follow."""
        request = frame.message
        self._count(1)
        try:
            yield from self._answer(requester.connection, request, frame.payload)
        except PeacefsError as fault:
            if not _read_in_full(request):
                yield from self._refuse(requester, fault)
                return False
            if isinstance(fault, PeerError) and fault.culprit is None:
                # The answer was cut off, maybe in the middle of a frame.
                return False
            return (yield from self._refuse(requester, fault))
        finally:
            self._count(-1)
        return True

    def _answer(self, connection: fx.Connection, request: Message, data: Bytes) -> fx.Steps[None]:
        match request:
            case WriteChunk():
                return self._hop.receive_chunk(connection, request, data)
            case ReadChunk():
                return self._server.send_chunk(connection, request)
            case RequestDescriptor():
                return self._server.share_chunk(connection, request)
            case _:
                raise ProtocolViolation(f"{type(request).__name__} is not a request to a data server")

    def _refuse(self, requester: Requester, fault: PeacefsError) -> fx.Steps[bool]:
        """Send a Failure; return False if it cannot be sent."""
        try:
            yield from fx.send(requester.connection, failure_of(fault), timeout_s=last_word_timeout_s)
        except PeerError:
            return False
        return True

    def _count(self, change: int) -> None:
        with self._lock:
            self._streams += change


def _read_in_full(request: Message) -> bool:
    """Return whether a failed request has been received completely."""
    return isinstance(request, ReadChunk | RequestDescriptor) or (isinstance(request, WriteChunk) and request.last)
