"""One connection of an HDFS client: its bytes, its user, and its unanswered calls.

The calls of a connection run concurrently. Each is answered when it is done, in any order. The answers are sent
when the calls that have arrived on all connections are carried out: one write per connection.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, cast

from peacefs.coordinator.limits import link_backlog_bytes_max
from peacefs.protocol.errors import Overloaded, PeacefsError, PeerTimeout, ProtocolViolation, ServiceUnready
from peacefs.protocol.hadoop.rpc_codec import (
    CONTEXT_CALL,
    HTTP_ANSWER,
    PING_CALL,
    SASL_CALL,
    ConnectionHeader,
    HttpRequest,
    Request,
    RequestReader,
    connection_failure,
    cut_message,
    decode,
    decode_sasl,
    method_of,
    sasl_answer,
)
from peacefs.protocol.hadoop.rpc_pb2 import IpcConnectionContextProto, RpcResponseHeaderProto
from peacefs.protocol.limits import (
    MIB,
    begun_frame_timeout_s,
    handshake_frame_bytes_max,
    handshake_timeout_s,
    idle_connection_timeout_s,
)
from peacefs.protocol.trace_context import switch_to

from .call import Answer, Asker, OpenMethodCall, refused
from .connections import Connections
from .identification import Identification, Negotiation
from .method import Method
from .method_table import find_method

# The maximum size of a request. The largest requests concatenate many files.
request_bytes_max: Final = 2 * MIB
# The maximum number of concurrent calls per connection. Further calls are not read until one ends.
calls_per_connection_max: Final = 256
# The number of calls to begin before other connections get a turn.
calls_per_turn_max: Final = 64

_UNAUTHORIZED: Final = RpcResponseHeaderProto.FATAL_UNAUTHORIZED
_BAD_HEADER: Final = RpcResponseHeaderProto.FATAL_INVALID_RPC_HEADER
_RPC_SERVER_EXCEPTION: Final = "org.apache.hadoop.ipc.RpcServerException"
log = logging.getLogger("peacefs.coordinator")


class HdfsConnection(asyncio.Protocol):
    """Receives calls and sends answers. Until the user is known, stricter limits and deadlines apply."""

    def __init__(self, shared: Connections) -> None:
        self._shared = shared
        self._reader = RequestReader(handshake_frame_bytes_max)
        self._transport: asyncio.Transport
        self._host: str | None = None
        self._identification: Identification | None = None
        self._negotiation: Negotiation | None = None
        self._asker: Asker | None = None
        self._calls = 0
        self._has_turn = True
        self._is_paused = False
        self._is_counted = False
        self._heard_s = 0.0
        self._held_bytes = 0
        #: The calls that are done, with their answers and the reason why an answer may not be sent.
        self._unsent: list[tuple[OpenMethodCall, Answer, PeacefsError | None]] = []
        self._deadline: asyncio.TimerHandle
        self._frame_deadline: asyncio.TimerHandle | None = None

    # -- asyncio ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        self._host = address[0] if isinstance(address, tuple) else None
        self._deadline = asyncio.get_running_loop().call_later(handshake_timeout_s, self._close_if_silent)
        self._shared.opened(self)
        try:
            self._shared.crowd.enter(self._host or "")
            self._is_counted = True
        except Overloaded as error:
            self.refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._expect_rest(0)
        if self._is_counted:
            self._shared.crowd.leave(self._host or "")
        self._shared.closed(self)

    def data_received(self, data: bytes) -> None:
        self._reader.take(data)
        self._work()

    @property
    def is_idle(self) -> bool:
        return not self._calls

    def close(self) -> None:
        self.send_answers()
        self._transport.close()

    def abort(self) -> None:
        self._shared.closed(self)
        self._transport.abort()

    def refuse(self, error: PeacefsError, *, is_told: bool = True) -> None:
        """Close the connection. Log the reason and, with `is_told`, send it to the client."""
        log.warning("the connection of a client of HDFS on %s closed: %s", self._host, error.message)
        self.send_answers()
        if is_told:
            kind = _UNAUTHORIZED if not isinstance(error, ProtocolViolation) else _BAD_HEADER
            name = error.hadoop_class if kind is _UNAUTHORIZED else _RPC_SERVER_EXCEPTION
            self._write(connection_failure(name, error.message, kind))
        self._expect_rest(0)
        self._transport.close()

    # -- requests --------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Begin the calls that have arrived, within the limits and without starving other connections."""
        begun = 0
        try:
            while self._has_turn and self._calls < calls_per_connection_max and not self._transport.is_closing():
                found = self._reader.next()
                if found is None:
                    break
                if self._held_bytes:
                    self._expect_rest(0)
                self._take(found)
                begun += 1
                if begun >= calls_per_turn_max:
                    self._has_turn = False
                    asyncio.get_running_loop().call_soon(self._take_turn)
        except PeacefsError as error:
            self.refuse(error, is_told=self._identification is not None)
        finally:
            # What the event loop runs next belongs to no request.
            switch_to(None)
        if begun:
            self._heard()
        if (self._reader.buffered_bytes or self._held_bytes) and not self._transport.is_closing():
            self._expect_rest(self._reader.buffered_bytes)
        self._read_while_there_is_room()

    def _take_turn(self) -> None:
        self._has_turn = True
        self._work()

    def _heard(self) -> None:
        self._heard_s = self._shared.clock()
        self._shared.heard(self)

    def _take(self, found: ConnectionHeader | HttpRequest | Request) -> None:
        if isinstance(found, Request):
            self._take_request(found)
        elif isinstance(found, ConnectionHeader):
            self._identification = self._shared.identification(self._host)
            self._negotiation = self._identification.begin(found.auth)
        else:
            log.warning("the connection of a client of HDFS on %s closed: it speaks HTTP", self._host)
            self._transport.write(HTTP_ANSWER)
            self._transport.close()

    def _take_request(self, request: Request) -> None:
        call = request.header.call
        if call >= 0:
            if self._asker is None:
                raise ProtocolViolation("a call came before the context of its connection")
            self._begin_call(request, self._asker)
        elif call == SASL_CALL:
            if self._negotiation is None or self._asker is not None:
                raise ProtocolViolation("a message of SASL came on a connection without SASL")
            self._write(sasl_answer(self._negotiation.answer(decode_sasl(request.body))))
        elif call == CONTEXT_CALL:
            self._introduce(decode(IpcConnectionContextProto, cut_message(request.body)[0]))
        elif call != PING_CALL:
            raise ProtocolViolation(f"call id {call} is not valid")

    def _introduce(self, context: IpcConnectionContextProto) -> None:
        if self._asker is not None or self._identification is None:
            raise ProtocolViolation("a second context came on a connection")
        self._asker = self._identification.introduce(context, self._negotiation)
        self._reader.frame_bytes_max = request_bytes_max
        self._shared.known(self)

    def _begin_call(self, request: Request, asker: Asker) -> None:
        raw, rest = cut_message(request.body)
        header = request.header
        try:
            name, method = self._shared.method(raw) or self._found(raw)
            self._shared.refuse_overload()
        except ProtocolViolation:
            raise
        except PeacefsError as error:
            self._write(refused(header, error))
            return
        asked = decode(method.request, cut_message(rest)[0])
        shared = self._shared
        call = OpenMethodCall(shared.served, header, name, method, asked, asker, shared.door, shared.audit)
        self._calls += 1
        answered = call.begin()
        if isinstance(answered, asyncio.Task):
            shared.waits(answered)
            answered.add_done_callback(partial(self._answer_late, call))
        else:
            self._answer(call, answered)

    def _found(self, raw: bytes) -> tuple[str, Method]:
        """Find the method for a header seen for the first time. Raises the errors of `find_method`."""
        named = method_of(raw)
        method = find_method(named.declaringClassProtocolName, named.clientProtocolVersion, named.methodName)
        self._shared.remember_method(raw, named.methodName, method)
        return named.methodName, method

    def _answer_late(self, call: OpenMethodCall, answered: asyncio.Task[Answer]) -> None:
        if answered.cancelled():
            self._calls -= 1
            return
        self._answer(call, answered.result())

    def _answer(self, call: OpenMethodCall, answer: Answer, refusal: ServiceUnready | None = None) -> None:
        """Answer a call soon, or once the changes that it depends on are durable."""
        if refusal is None and (needed := call.needed):
            self._shared.served.files.durable.when_durable(needed, partial(self._answer, call, answer))
            return
        if not self._unsent:
            self._shared.answer_soon(self)
        self._unsent.append((call, answer, refusal))

    def answer(self) -> None:
        """Send the answers of the calls that are done, and begin the calls that waited for room."""
        self.send_answers()
        if self._is_paused or self._reader.buffered_bytes:
            self._work()

    def send_answers(self) -> None:
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            self._calls -= len(unsent)
            self._write(*(call.finish(answer, refusal) for call, answer, refusal in unsent))

    # -- limits ----------------------------------------------------------------------------------------

    def _close_if_silent(self) -> None:
        idle_s = self._shared.clock() - self._heard_s
        if self._asker is None or (idle_s >= idle_connection_timeout_s and self.is_idle):
            self._transport.abort()
            return
        wait_s = max(idle_connection_timeout_s - idle_s, handshake_timeout_s)
        self._deadline = asyncio.get_running_loop().call_later(wait_s, self._close_if_silent)

    def _expect_rest(self, begun_bytes: int) -> None:
        """Record the buffered bytes of an unfinished frame, and set a deadline for the rest."""
        if not begun_bytes and not self._held_bytes:
            return
        is_awaited = begun_bytes > 0 and not self._is_full
        if not is_awaited and self._frame_deadline is not None:
            self._frame_deadline.cancel()
            self._frame_deadline = None
        elif is_awaited and self._frame_deadline is None:
            loop = asyncio.get_running_loop()
            self._frame_deadline = loop.call_later(begun_frame_timeout_s, self._give_up)
        self._held_bytes = begun_bytes
        longest = self._shared.frames.hold(self, begun_bytes)
        if longest is not None:
            longest.refuse(self._shared.frames.overloaded())

    def _give_up(self) -> None:
        self.refuse(PeerTimeout(f"a frame has not ended {begun_frame_timeout_s:g} s after it began"))

    @property
    def _is_full(self) -> bool:
        """Whether no further call may begin for now."""
        return not self._has_turn or self._calls >= calls_per_connection_max

    def _read_while_there_is_room(self) -> None:
        is_full = self._is_full
        if is_full == self._is_paused or self._transport.is_closing():
            return
        self._is_paused = is_full
        if is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _write(self, *answers: bytes) -> None:
        """Send answers. Disconnect a client that does not read them."""
        if not answers or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > link_backlog_bytes_max:
            log.warning(
                "closing the connection of an HDFS client on %s, which does not read its answers", self._host
            )
            self._transport.abort()
            return
        self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
