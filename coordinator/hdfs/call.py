"""One call: carry it out, wait until the data that it read is durable, answer, and record it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from types import CoroutineType
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf.message import Message

from peacefs.coordinator.audit_log import AuditLog, AuditRecord
from peacefs.coordinator.calls.name_table import NAME_TABLE
from peacefs.coordinator.failover.door import Door
from peacefs.coordinator.metadata.group_commit import no_room
from peacefs.coordinator.operations.durability.durable_answers import Watched
from peacefs.protocol.callers.caller import Caller
from peacefs.protocol.errors import (
    AccessDenied,
    NoSuchMethod,
    NoSuchProtocol,
    PeacefsError,
    ProtocolMismatch,
    Unauthenticated,
)
from peacefs.protocol.hadoop.rpc_codec import CallHeader, failure, success
from peacefs.protocol.hadoop.rpc_pb2 import RpcResponseHeaderProto
from peacefs.protocol.trace_context import TraceContext, enter
from peacefs.runtime.counters import QuickHistogram
from peacefs.service.outcomes import DONE, of_failure

from .method import Method, MethodCall, Served

log = logging.getLogger("peacefs.coordinator")

method_seconds = QuickHistogram(
    "peacefs_hdfs_call_seconds",
    "Seconds of calls of clients of HDFS, by method and outcome",
    (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0),
    ["operation", "outcome"],
)

_DETAILS: Final[Mapping[type[PeacefsError], int]] = {
    NoSuchMethod: RpcResponseHeaderProto.ERROR_NO_SUCH_METHOD,
    NoSuchProtocol: RpcResponseHeaderProto.ERROR_NO_SUCH_PROTOCOL,
    ProtocolMismatch: RpcResponseHeaderProto.ERROR_RPC_VERSION_MISMATCH,
}
_AUDITED: Final = "hdfs"
#: What a call ends with; a method may have encoded its answer.
Answer: TypeAlias = Message | bytes | PeacefsError


class Asker(NamedTuple):
    """The user of a connection, and the host from which the user calls."""

    user: str
    host: str | None
    #: The proxy service that acts for the user.
    real_user: str | None = None
    #: Authenticates again, because a token may have expired. Raises Unauthenticated. None without authentication.
    authenticate: Callable[[], Caller] | None = None


def refused(header: CallHeader, error: PeacefsError) -> bytes:
    """Return the answer to a refused call."""
    detail = _DETAILS.get(type(error), RpcResponseHeaderProto.ERROR_APPLICATION)
    return failure(header, error.hadoop_class, error.message, detail)


class OpenMethodCall(Watched):
    """A call being served: `begin` it, wait until what it `needed` is durable, send the result of `finish`."""

    __slots__ = (
        "_asked",
        "_asker",
        "_audit",
        "_began_s",
        "_call",
        "_context",
        "_door",
        "_header",
        "_method",
        "name",
    )

    def __init__(
        self,
        served: Served,
        header: CallHeader,
        name: str,
        method: Method,
        asked: Message,
        asker: Asker,
        door: Door | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        super().__init__(served.files.durable.rows)
        self._began_s = time.perf_counter()
        self._header = header
        self._method = method
        self._asked = asked
        self._asker = asker
        self._door = door
        self._audit = audit
        self._context = TraceContext()
        self.name = name
        self._call = MethodCall(served, asker.user, asker.host, header.client, header.call)

    def begin(self) -> Answer | asyncio.Task[Answer]:
        """Carry out the call up to its first wait. Return the answer for `finish`, or a task that continues.

        Errors are returned, not raised. Runs in the caller's context, and leaves its own trace context there.
        """
        enter(self._context)
        door = self._door
        if door is not None and not door.may_answer and not self._method.is_of_any:
            return asyncio.get_running_loop().create_task(self._wait_to_begin(door))
        begun = self._begin()
        return asyncio.get_running_loop().create_task(begun) if isinstance(begun, CoroutineType) else begun

    async def _wait_to_begin(self, door: Door) -> Answer:
        try:
            await door.pass_through()
        except Exception as error:
            return self._failure(error)
        begun = self._begin()
        return await begun if isinstance(begun, CoroutineType) else begun

    def _begin(self) -> Answer | CoroutineType[Any, Any, Answer]:
        """Return the answer, or a coroutine that continues the call."""
        try:
            if self._asker.authenticate is not None:
                self._call.caller = self._asker.authenticate()
            steps = self._method.run(self._call, self._asked)
            waited = self.step(steps.send, None)
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer
        except Exception as error:
            return self._failure(error)
        return self._continue(steps, waited)

    async def _continue(self, steps: Coroutine[Any, Any, Message | bytes], waited: Any) -> Answer:
        try:
            return await self.rest(steps, waited)
        except Exception as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> PeacefsError:
        if isinstance(error, PeacefsError):
            return error
        log.error("a call of %s over hdfs:// failed", self.name, exc_info=error)
        return PeacefsError("an internal error of the coordinator; its log says more")

    def finish(self, answer: Answer, refusal: PeacefsError | None = None) -> bytes:
        """Return the bytes to send now. `refusal` is the reason if a log entry that the call needs was undone."""
        if refusal is None and self.is_undone:
            refusal = no_room()
        if refusal is None and self._door is not None and not self._method.is_of_any:
            # This process may have been suspended for long, and another coordinator may lead.
            refusal = self._door.refusal(is_read=self._method.is_read or not self.is_fenced)
        if refusal is not None:
            answer = refusal
        seconds = time.perf_counter() - self._began_s
        error = answer if isinstance(answer, PeacefsError) else None
        method_seconds.of(self.name, DONE if error is None else of_failure(error.code)).observe(seconds)
        if self._audit is not None and not self._method.is_silent:
            self._audit.record(self._record(error, seconds))
        return (
            success(self._header, answer)
            if not isinstance(answer, PeacefsError)
            else refused(self._header, answer)
        )

    def _record(self, error: PeacefsError | None, seconds: float) -> AuditRecord:
        asker, message, caller = self._asker, self._call.asked, self._call.caller
        row = None if message is None else NAME_TABLE.get(type(message))
        permission = getattr(message, "permission", None)
        return AuditRecord(
            user=asker.user,
            real_user=asker.real_user,
            auth="simple" if asker.authenticate is None else "none" if caller is None else caller.via.value,
            address=asker.host,
            operation=self.name,
            source=self._method.path(self._asked),
            destination=None if row is None else row.destination(message),
            permission=f"{permission:04o}" if isinstance(permission, int) and permission >= 0 else None,
            protocol=_AUDITED,
            allowed=not isinstance(error, AccessDenied | Unauthenticated),
            error=None if error is None else error.code,
            request_id=self._call.request_id or None,
            seconds=seconds,
            trace=self._context.id,
        )
