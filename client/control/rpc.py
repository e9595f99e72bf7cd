"""Requests of writers and readers to the coordinator, as frames over the port that serves HTTP too."""

from __future__ import annotations

import logging
from typing import TypeVar

from peacefs.client.limits import client_answer_timeout_s, client_retry_s
from peacefs.protocol.errors import PeerTimeout, PeerUnreachable, ProtocolViolation, Unauthenticated, from_wire
from peacefs.protocol.handshake import COORDINATOR
from peacefs.protocol.limits import control_call_timeout_s
from peacefs.protocol.messages import (
    Completed,
    CompleteFile,
    Created,
    CreateFile,
    Failure,
    Message,
    Opened,
    OpenFile,
    TracedMessage,
)
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.trace_context import begun, stamped
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.local_sockets import socket_file
from peacefs.runtime.tracing import is_tracing, operation

from .addresses import CoordinatorAddress, nobody_at
from .coordinators import Coordinators
from .retry import NotReached, RetryPolicy, Unanswered, is_not_leading
from .token_source import TokenSource

log = logging.getLogger("peacefs.client")
M = TypeVar("M", bound=Message)
_NAME = "the coordinator"


class ControlRpc:
    """Thread-safe. A connection for each call that is under way, kept by `connections` for the next.

    Every call is safe to repeat, and is repeated by `retry_policy`: it carries a request id or a token that says
    what it is about, or changes nothing. Raises classes of `errors`.
    """

    def __init__(
        self,
        address: CoordinatorAddress | Coordinators,
        connections: ConnectionPool,
        retry_policy: RetryPolicy,
        token: TokenSource | None = None,
    ) -> None:
        """`connections` are to no datanode: their hellos show `token`. Several ways share their `Coordinators`."""
        self._coordinators = Coordinators(address) if isinstance(address, CoordinatorAddress) else address
        self._connections = connections
        self._retry_policy = retry_policy
        self._token = token
        #: The credential that the idle connections have shown.
        self._shown = token.current() if token is not None else ""

    def create(self, request: CreateFile) -> Created:
        """Ask for a token to write; the name appears only with completion. Raises FileAlreadyExists, ..."""
        return self.ask(request, Created)

    def create_empty(self, file: NewFile) -> None:
        """Make a file without data, in one call. Raises FileAlreadyExists, ..."""
        reply = self.ask(CreateFile(file, is_empty=True), Message)
        if isinstance(reply, Created):
            # A coordinator of an earlier version: it has made nothing yet.
            reply = self.ask(CompleteFile(reply.token, []), Message)
        if not isinstance(reply, Completed):
            raise ProtocolViolation(f"Completed expected, the coordinator sent {type(reply).__name__}")

    def open(self, path: str, user: str) -> Opened:
        """Raises FileNotFound, PathIsDirectory, ChunkUnavailable."""
        return self.ask(OpenFile(path, user), Opened)

    def call(self, message: Message, timeout_s: float = control_call_timeout_s) -> Message:
        """For `threads.ThreadDriver`. Done within `timeout_s`; a Failure is raised, not returned."""
        half_s = timeout_s / 2
        return self._retry_policy.ask(lambda: self._attempt(message, half_s), half_s, self._coordinators.count)

    def close(self) -> None:
        self._connections.close_all()

    def ask(self, message: Message, answer: type[M], *, answer_timeout_s: float = client_answer_timeout_s) -> M:
        """One logical request, repeated as `RetryPolicy` has it; no attempt waits longer than the timeout."""
        if is_tracing():
            with operation(type(message).__name__):
                reply = self._asked(message, answer_timeout_s)
        else:
            reply = self._asked(message, answer_timeout_s)
        if not isinstance(reply, answer):
            raise ProtocolViolation(f"{answer.__name__} expected, the coordinator sent {type(reply).__name__}")
        return reply

    def _asked(self, message: Message, answer_timeout_s: float) -> Message:
        """Return the answer to a request, which has one id, however often it is sent."""
        traced = begun(message)
        if log.isEnabledFor(logging.DEBUG) and isinstance(traced, TracedMessage):
            log.debug("%s: %s, request %s", self._coordinators.address.http, type(traced).__name__, traced.trace)
        return self._retry_policy.ask(
            lambda: self._attempt(traced, answer_timeout_s), client_retry_s, self._coordinators.count
        )

    def _attempt(self, message: Message, timeout_s: float) -> Message:
        token = self._token.current() if self._token is not None else ""
        asked = self._coordinators.current
        connection = self._connected(asked, token)
        try:
            connection.send(stamped(message), b"", timeout_s)
            reply = connection.receive(timeout_s).message
        except (PeerUnreachable, PeerTimeout) as fault:
            self._connections.close(connection)
            self._coordinators.leave(asked)
            raise Unanswered(fault) from None
        except BaseException:
            self._connections.close(connection)
            raise
        if self._shown == token:
            self._connections.release(connection)
        else:
            self._connections.close(connection)
        if isinstance(reply, Failure):
            is_unknown = reply.code == Unauthenticated.__name__
            if is_unknown and self._token is not None and self._token.current() != token:
                # The token in the file has been replaced since it was read.
                return self._attempt(message, timeout_s)
            refusal = from_wire(reply.code, reply.message, reply.culprit)
            if is_not_leading(refusal):
                self._coordinators.leave(asked)
            try:
                raise refusal
            finally:
                # Break the cycle of error and frame, which would keep the callers' objects alive.
                del refusal
        return reply

    def _connected(self, asked: CoordinatorAddress, token: str) -> SocketConnection:
        """One whose hello has shown this token; those that showed another are closed."""
        if token != self._shown:
            for one in self._coordinators.address.each:
                while (kept := self._connections.kept(_dialled(one), _NAME)) is not None:
                    self._connections.close(kept)
            self._shown = token
        try:
            return self._connections.connect(_dialled(asked), _NAME, COORDINATOR)
        except (PeerUnreachable, PeerTimeout):
            self._coordinators.leave(asked)
            raise NotReached(nobody_at(self._coordinators.address)) from None


def _dialled(address: CoordinatorAddress) -> fx.Address:
    return (address.host, address.port) if address.socket is None else socket_file(address.socket)
