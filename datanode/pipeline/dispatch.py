"""Dispatches the requests on a data connection.

Every request carries a token, so the identity of the sender does not matter. The answer is the request's own, or a
Failure. If an error leaves the two sides out of step, the connection is closed.
"""

from __future__ import annotations

import threading

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import PeacefsError, PeerError, ProtocolViolation
from peacefs.protocol.limits import idle_connection_timeout_s, last_word_timeout_s
from peacefs.protocol.messages import Failure, Message, ReadChunk, RequestDescriptor, WriteChunk
from peacefs.runtime import effects as fx

from .chunk_server import ChunkServer
from .hop import PipelineHop


class DataRequests:
    """Answers the requests of all connections of a datanode. Knows neither sockets nor threads."""

    def __init__(self, hop: PipelineHop, server: ChunkServer) -> None:
        self._hop = hop
        self._server = server
        self._lock = threading.Lock()
        self._streams = 0

    @property
    def streams(self) -> int:
        """The number of chunks being received or sent, which heartbeats report as the load."""
        return self._streams

    def serve_connection(self, connection: fx.Connection) -> fx.Steps[None]:
        """Serve requests until the peer hangs up, is silent or breaks the protocol. Raises no error of a peer."""
        while (yield from self._serve_request(connection)):
            pass
        yield from fx.close(connection)

    def _serve_request(self, connection: fx.Connection) -> fx.Steps[bool]:
        """Serve one request; return whether another may follow."""
        try:
            request, data, *_ = yield from fx.next_request(connection, timeout_s=idle_connection_timeout_s)
        except ProtocolViolation as fault:
            yield from self._refuse(connection, fault)
            return False
        except PeerError:
            return False
        self._count(1)
        try:
            yield from self._answer(connection, request, data)
        except PeacefsError as fault:
            if not _read_in_full(request):
                yield from self._refuse(connection, fault)
                return False
            if isinstance(fault, PeerError) and fault.culprit is None:
                # The answer was cut off, maybe in the middle of a frame.
                return False
            return (yield from self._refuse(connection, fault))
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
                raise ProtocolViolation(f"{type(request).__name__} is nothing to ask a data server")

    def _refuse(self, connection: fx.Connection, fault: PeacefsError) -> fx.Steps[bool]:
        """Send a Failure; return False if it cannot be sent."""
        try:
            failure = Failure(fault.code, fault.message, fault.culprit)
            yield from fx.send(connection, failure, timeout_s=last_word_timeout_s)
        except PeerError:
            return False
        return True

    def _count(self, change: int) -> None:
        with self._lock:
            self._streams += change


def _read_in_full(request: Message) -> bool:
    """Return whether no further part of a failed request can arrive."""
    return isinstance(request, ReadChunk | RequestDescriptor) or (isinstance(request, WriteChunk) and request.last)
