"""What writers and readers ask of the coordinator, as frames over the port that serves HTTP too."""

from __future__ import annotations

from typing import TypeVar

from peacefs.protocol.errors import PeerTimeout, PeerUnreachable, ProtocolViolation, from_wire
from peacefs.protocol.handshake import COORDINATOR
from peacefs.protocol.limits import client_answer_timeout_s, client_patience_s, control_call_timeout_s
from peacefs.protocol.messages import Created, CreateFile, Failure, Message, Opened, OpenFile
from peacefs.protocol.runtime.connection_pool import ConnectionPool
from peacefs.protocol.runtime.connections import SocketConnection

from .addresses import CoordinatorAddress, nobody_at
from .retry import NotReached, Patience, Unanswered

M = TypeVar("M", bound=Message)


class ControlCalls:
    """Thread-safe. A connection for each call that is under way, kept by `connections` for the next.

    Every call is safe to repeat, and is repeated by `patience`: it carries a request id or a token that says what
    it is about, or changes nothing. Raises classes of `errors`.
    """

    def __init__(self, address: CoordinatorAddress, connections: ConnectionPool, patience: Patience) -> None:
        self._address = address
        self._connections = connections
        self._patience = patience

    def create(self, file: CreateFile) -> Created:
        """Asks leave to write; the name appears only with completion. Raises FileAlreadyExists, ..."""
        return self._ask(file, Created)

    def open(self, path: str, user: str) -> Opened:
        """Raises FileNotFound, PathIsDirectory, ChunkUnavailable."""
        return self._ask(OpenFile(path, user), Opened)

    def call(self, message: Message, timeout_s: float = control_call_timeout_s) -> Message:
        """For `threads.ThreadDriver`. Done within `timeout_s`; a Failure is raised, not returned."""
        half_s = timeout_s / 2
        return self._patience.ask(lambda: self._attempt(message, half_s), half_s)

    def _ask(self, message: Message, answer: type[M]) -> M:
        reply = self._patience.ask(lambda: self._attempt(message, client_answer_timeout_s), client_patience_s)
        if not isinstance(reply, answer):
            raise ProtocolViolation(f"{answer.__name__} expected, the coordinator sent {type(reply).__name__}")
        return reply

    def _attempt(self, message: Message, timeout_s: float) -> Message:
        connection = self._connected()
        try:
            connection.send(message, b"", timeout_s)
            reply = connection.receive(timeout_s).message
        except (PeerUnreachable, PeerTimeout) as fault:
            self._connections.close(connection)
            raise Unanswered(fault) from None
        except BaseException:
            self._connections.close(connection)
            raise
        self._connections.release(connection)
        if isinstance(reply, Failure):
            raise from_wire(reply.code, reply.message, reply.culprit)
        return reply

    def _connected(self) -> SocketConnection:
        try:
            return self._connections.connect(
                (self._address.host, self._address.port), "the coordinator", COORDINATOR
            )
        except (PeerUnreachable, PeerTimeout):
            raise NotReached(nobody_at(self._address)) from None
