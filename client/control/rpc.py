"""Requests of writers and readers to the coordinator, as frames over its HTTP port."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from peacefs.client.limits import client_answer_timeout_s, client_retry_s
from peacefs.protocol.errors import (
    PeacefsError,
    PeerTimeout,
    PeerUnreachable,
    ProtocolViolation,
    Unauthenticated,
    from_wire,
)
from peacefs.protocol.frames import Frame
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


class _Sent(NamedTuple):
    """A request that was sent: the coordinator's address, the token and the connection."""

    asked: CoordinatorAddress
    token: str
    connection: SocketConnection


class ControlRpc:
    """Sends requests to the coordinator, and returns or raises its answers. Thread-safe.

    A file system, its driver and the I/O service call it. Each concurrent call has its own connection, which
    `connections` keeps for later calls. Every call is safe to repeat: it has a request id, or has a token that
    identifies its object, or changes nothing. `retry_policy` repeats it. Raises classes of `errors`.
    """

    def __init__(
        self,
        address: CoordinatorAddress | Coordinators,
        connections: ConnectionPool,
        retry_policy: RetryPolicy,
        token: TokenSource | None = None,
    ) -> None:
        """Use `connections`, which lead only to coordinators and send `token` in their handshake.

        `Coordinators` may be shared.
        """
        self._coordinators = Coordinators(address) if isinstance(address, CoordinatorAddress) else address
        self._connections = connections
        self._retry_policy = retry_policy
        self._token = token
        #: The token that the idle connections have sent.
        self._shown = token.current() if token is not None else ""

    def create(self, request: CreateFile) -> Created:
        """Request a token to write a file; its name appears only on completion. Raises FileAlreadyExists, ..."""
        return self.ask(request, Created)

    def create_empty(self, file: NewFile) -> None:
        """Create an empty file, in one call. Raises FileAlreadyExists, ..."""
        reply = self.ask(CreateFile(file, is_empty=True), Message)
        if isinstance(reply, Created):
            # An older coordinator creates the file only on completion.
            reply = self.ask(CompleteFile(reply.token, []), Message)
        if not isinstance(reply, Completed):
            raise ProtocolViolation(f"Completed expected, the coordinator sent {type(reply).__name__}")

    def open(self, path: str, user: str) -> Opened:
        """Open a file for reading. Raises FileNotFound, PathIsDirectory, ChunkUnavailable."""
        return self.ask(OpenFile(path, user), Opened)

    def call(self, message: Message, timeout_s: float = control_call_timeout_s) -> Message:
        """Send a call for `threads.ThreadDriver` within `timeout_s`. Raises a Failure as an error."""
        half_s = timeout_s / 2
        return self._retry_policy.ask(lambda: self._attempt(message, half_s), half_s, self._coordinators.count)

    def close(self) -> None:
        self._connections.close_all()

    def ask(self, message: Message, answer: type[M], *, answer_timeout_s: float = client_answer_timeout_s) -> M:
        """Send one logical request, retried as `RetryPolicy` says. No attempt waits longer than the timeout."""
        if is_tracing():
            with operation(type(message).__name__):
                reply = self._asked(message, answer_timeout_s)
        else:
            reply = self._asked(message, answer_timeout_s)
        if not isinstance(reply, answer):
            raise ProtocolViolation(f"{answer.__name__} expected, the coordinator sent {type(reply).__name__}")
        return reply

    def _asked(self, message: Message, answer_timeout_s: float) -> Message:
        """Return the answer to a request. All its attempts have the same request id."""
        traced = begun(message)
        if log.isEnabledFor(logging.DEBUG) and isinstance(traced, TracedMessage):
            log.debug("%s: %s, request %s", self._coordinators.address.http, type(traced).__name__, traced.trace)
        return self._retry_policy.ask(
            lambda: self._attempt(traced, answer_timeout_s), client_retry_s, self._coordinators.count
        )

    def call_together(self, messages: Sequence[Message], timeout_s: float) -> list[Message | PeacefsError]:
        """Send calls together over one connection. Return for each its answer or its error.

        A call that is not answered, or fails but may be retried, is repeated alone.
        """
        replies: list[Message] = []
        sent: _Sent | None = None
        with contextlib.suppress(NotReached, Unanswered):
            sent = self._send(messages, timeout_s / 2)
            self._receive(sent, len(messages), timeout_s / 2, replies)
        answers: list[Message | PeacefsError] = []
        for number, message in enumerate(messages):
            reply = replies[number] if number < len(replies) else None
            try:
                answers.append(self._answered(message, sent, reply, timeout_s))
            except PeacefsError as error:
                answers.append(error)
        return answers

    def _answered(self, message: Message, sent: _Sent | None, reply: Message | None, timeout_s: float) -> Message:
        """Return the answer to a call. If it has no reply, or failed but may be retried, send it again."""
        try:
            if sent is not None and reply is not None:
                return self._judged(message, sent, reply, timeout_s / 2)
        except Unanswered:
            pass
        except PeacefsError as refusal:
            if not refusal.retriable:
                raise
        return self.call(message, timeout_s)

    def _attempt(self, message: Message, timeout_s: float) -> Message:
        sent = self._send([message], timeout_s)
        replies: list[Message] = []
        self._receive(sent, 1, timeout_s, replies)
        return self._judged(message, sent, replies[0], timeout_s)

    def _send(self, messages: Sequence[Message], timeout_s: float) -> _Sent:
        """Send requests, whose replies come in the same order."""
        token = self._token.current() if self._token is not None else ""
        asked = self._coordinators.current
        connection = self._connected(asked, token)
        try:
            connection.send_frames([Frame(stamped(message)) for message in messages], timeout_s)
        except (PeerUnreachable, PeerTimeout) as fault:
            self._connections.close(connection)
            self._coordinators.leave(asked)
            raise Unanswered(fault) from None
        except BaseException:
            self._connections.close(connection)
            raise
        return _Sent(asked, token, connection)

    def _receive(self, sent: _Sent, count: int, timeout_s: float, replies: list[Message]) -> None:
        """Append `count` replies to `replies`, and keep the connection. Raises Unanswered, maybe after some."""
        asked, token, connection = sent
        deadline_s = time.monotonic() + timeout_s
        try:
            for _reply in range(count):
                replies.append(connection.receive(max(deadline_s - time.monotonic(), 0.0)).message)
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

    def _judged(self, message: Message, sent: _Sent, reply: Message, timeout_s: float) -> Message:
        """Return the reply to a request, or raise the error that it names."""
        if isinstance(reply, Failure):
            is_unknown = reply.code == Unauthenticated.__name__
            if is_unknown and self._token is not None and self._token.current() != sent.token:
                # The token in the file was replaced after it was read.
                return self._attempt(message, timeout_s)
            refusal = from_wire(reply.code, reply.message, reply.culprit)
            if is_not_leading(refusal):
                self._coordinators.leave(sent.asked)
            try:
                raise refusal
            finally:
                # Break the reference cycle of error and frame, which would keep the callers' objects alive.
                del refusal
        return reply

    def _connected(self, asked: CoordinatorAddress, token: str) -> SocketConnection:
        """Return a connection that was opened with this token; close idle ones opened with another token."""
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
