"""Dispatch requests on a data connection: the permitted ones, and the loop that answers them.

Every request carries a token, so it makes no difference who asks. An answer is the request's own, or Failure;
after one that leaves the two sides out of step the connection is closed.
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
    """Answers requests of all connections of a datanode; knows neither sockets nor threads."""

    def __init__(self, hop: PipelineHop, server: ChunkServer) -> None:
        self._hop = hop
        self._server = server
        self._lock = threading.Lock()
        self._streams = 0

    @property
    def streams(self) -> int:
        """Return how many chunks are being received or sent: the load that heartbeats report."""
        return self._streams

    def serve_connection(self, connection: fx.Connection) -> fx.Steps[None]:
        """Until the peer hangs up, falls silent or breaks the protocol. Raises nothing that a peer can cause."""
        while (yield from self._serve_request(connection)):
            pass
        yield from fx.close(connection)

    def _serve_request(self, connection: fx.Connection) -> fx.Steps[bool]:
        """Serve a request and return whether another may follow."""
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
                # The answer itself broke off, perhaps in the middle of a frame.
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
        """Sends the Failure; False if it cannot be told."""
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
    """Return whether nothing more of a failed request can be on its way."""
    return isinstance(request, ReadChunk | RequestDescriptor) or (isinstance(request, WriteChunk) and request.last)
