"""Dispatch the file calls of gateways and our clients over frames: messages to operations, outcomes to replies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from peacefs.coordinator.authentication.token_bearer import check_bearer_of
from peacefs.coordinator.calls.name_row import Row
from peacefs.coordinator.calls.name_table import NAME_TABLE
from peacefs.coordinator.failover.door import Door
from peacefs.coordinator.metadata.group_commit import no_room
from peacefs.coordinator.operations.durability.durable_answers import ReadRows, Watched
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.callers.caller import Caller
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import (
    AbandonLease,
    AllocateChunk,
    CompleteFile,
    Created,
    CreateFile,
    Failure,
    FlushFile,
    GetLayout,
    KeepChunks,
    Message,
    NameCall,
    Opened,
    OpenFile,
    PublishFile,
    RenewLease,
    ReportCorrupt,
    StateReads,
    StateWriteSet,
    StreamEnded,
    StreamsFound,
    TakeLease,
)
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.trace_context import context_of, enter, serving
from peacefs.runtime.tracing import is_tracing, traced
from peacefs.service.outcomes import DONE, of_failure

from .audited_calls import AuditedRpc
from .call_metrics import call_seconds

log = logging.getLogger("peacefs.coordinator")
N = TypeVar("N", NewFile, OpenFile, NameCall)


#: Carries out a message. Takes its sender's host, and the datanode over whose link it came.
CarryOut = Callable[[Files, Any, str | None, NodeId | None], Coroutine[Any, Any, Any]]


class Call(NamedTuple):
    """How one class of messages is served."""

    carry_out: CarryOut
    #: Returns the message with the user on whose behalf it is carried out. Raises AccessDenied.
    name: Callable[[Any, Caller], Message]
    #: True if the call changes nothing. Then only the leading coordinator's answer counts.
    is_read: bool = False
    #: Makes the reply from what `carry_out` returns, if that is not the reply.
    reply: Callable[[Any], Message] | None = None


def _named(message: N, caller: Caller) -> N:
    user = caller.acting_as(message.user)
    return message if message.user == user else replace(message, user=user)


def _of_named_file(message: CreateFile | PublishFile, caller: Caller) -> Message:
    return replace(message, file=_named(message.file, caller))


def _with_own_token(message: Message, caller: Caller) -> Message:
    check_bearer_of(message, caller)
    return message


async def _state_write_set(files: Files, asked: StateWriteSet, host: str | None, link: NodeId | None) -> Message:
    return await files.schedule.state(asked, link, host)


async def _stream_ended(files: Files, asked: StreamEnded, _host: str | None, link: NodeId | None) -> Message:
    assert link is not None
    return files.schedule.ended(link, asked)


async def _streams_found(files: Files, asked: StreamsFound, _host: str | None, link: NodeId | None) -> Message:
    assert link is not None
    return files.schedule.found(link, asked)


async def _create(files: Files, asked: CreateFile, host: str | None, _link: NodeId | None) -> Message:
    if asked.is_empty:
        return await files.writing.create_empty(asked.file)
    ticket = await files.writing.create(
        asked.file, host, failed=frozenset(asked.exclude), abandoned=asked.abandoned
    )
    return Created(ticket.token, ticket.allocated, ticket.block_bytes)


async def _open(files: Files, asked: OpenFile, host: str | None, _link: NodeId | None) -> Message:
    token, layout, _status = await files.reading.open_direct(asked.path, asked.user, host)
    return Opened(token, layout)


def _name_call(row: Row) -> Call:
    run = row.run
    return Call(lambda files, asked, host, _link: run(files, asked, host), _named, row.is_read, row.reply)


#: Every call about a file, by its message.
_FILE_CALLS: Final[Mapping[type[Message], Call]] = {
    CreateFile: Call(_create, _of_named_file),
    PublishFile: Call(lambda files, asked, host, _link: files.writing.publish(asked, host), _of_named_file),
    OpenFile: Call(_open, _named, is_read=True),
    AllocateChunk: Call(lambda files, asked, host, _link: files.writing.allocate(asked, host), _with_own_token),
    CompleteFile: Call(lambda files, asked, host, _link: files.writing.complete(asked, host), _with_own_token),
    FlushFile: Call(lambda files, asked, host, link: files.writing.flush(asked, host, link), _with_own_token),
    KeepChunks: Call(lambda files, asked, _host, _link: files.writing.keep(asked), _with_own_token),
    TakeLease: Call(
        lambda files, asked, host, link: files.appending.take_lease(asked, host, link), _with_own_token
    ),
    RenewLease: Call(lambda files, asked, _host, link: files.appending.renew(asked, link), _with_own_token),
    AbandonLease: Call(lambda files, asked, _host, _link: files.appending.abandon(asked), _with_own_token),
    GetLayout: Call(
        lambda files, asked, host, _link: files.reading.layout(asked, host), _with_own_token, is_read=True
    ),
    ReportCorrupt: Call(lambda files, asked, _host, _link: files.reading.report_corrupt(asked), _with_own_token),
    StateReads: Call(lambda files, asked, _host, _link: files.recovery.state(asked), _with_own_token),
    StateWriteSet: Call(_state_write_set, _with_own_token),
    StreamEnded: Call(_stream_ended, _with_own_token),
    StreamsFound: Call(_streams_found, _with_own_token),
}
_CALLS: Final[Mapping[type[Message], Call]] = {
    **_FILE_CALLS,
    **{row.message: _name_call(row) for row in NAME_TABLE.values()},
}
_OF_DATANODES_ALONE: Final = frozenset({TakeLease, StreamEnded, StreamsFound})
_OF_CLIENTS_ALONE: Final = frozenset({CreateFile, PublishFile, OpenFile, StateReads})
#: Calls by datanodes, as clients that live in them.
CALLS_OF_DATANODES: Final = frozenset(_FILE_CALLS) - _OF_CLIENTS_ALONE
#: Calls by clients, which authenticate as over HTTP.
CALLS_OF_CLIENTS: Final = frozenset(_CALLS) - _OF_DATANODES_ALONE


def is_read(message: Message) -> bool:
    """Return whether a call changes nothing, so that only the leading coordinator's answer counts."""
    return _CALLS[type(message)].is_read


async def carry_out(files: Files, message: Message, host: str | None, link: NodeId | None = None) -> Message:
    """Return the reply to a call from `host`. Raises the errors of the operation."""
    call = _CALLS[type(message)]
    result = await call.carry_out(files, message, host, link)
    return call.reply(result) if call.reply is not None else cast(Message, result)


class Origin(NamedTuple):
    """Where calls come from: a connection of `who` on `host`, or the link of a datanode."""

    files: Files
    #: The rows that calls read.
    rows: ReadRows
    host: str | None
    who: str
    #: The datanode over whose link the calls come.
    link: NodeId | None = None
    #: Authenticates the caller, or raises; without it, the users named in messages are trusted.
    caller: Callable[[], Caller] | None = None
    #: Lets calls through when this coordinator may answer; without one it always may.
    door: Door | None = None
    audited: AuditedRpc | None = None


class OpenCall(Watched):
    """A running call: `begin` it, wait until what it `needed` is durable, send what `finish` returns."""

    __slots__ = ("_began_s", "_context", "_made_ns", "_message", "_origin", "_who_asks")

    def __init__(self, origin: Origin, message: Message) -> None:
        super().__init__(origin.rows)
        self._began_s = time.perf_counter()
        self._origin = origin
        self._message = message
        self._who_asks: Caller | None = None
        self._made_ns = 0
        self._context = context_of(message)

    def begin(self) -> Message | asyncio.Task[Message]:
        """Carry the call out up to its first wait, outside any task. Return the reply that `finish` takes.

        An error is a reply too: Failure. If the call waits, return a task that continues it.
        """
        door = self._origin.door
        if door is not None and not door.may_answer:
            return asyncio.get_running_loop().create_task(self.carry_out())
        begun = self._begin()
        return begun if isinstance(begun, Message) else asyncio.get_running_loop().create_task(begun)

    async def carry_out(self) -> Message:
        """Carry the whole call out. Return the reply that `finish` takes."""
        door = self._origin.door
        if door is not None and not door.may_answer:
            try:
                await door.pass_through()
            except Exception as error:
                return self._failure(error)
        begun = self._begin()
        return begun if isinstance(begun, Message) else await begun

    def _begin(self) -> Message | Coroutine[Any, Any, Message]:
        """Carry the call out up to its first wait. Return the reply, or a coroutine that continues the call."""
        try:
            steps = self._steps()
            waited = self.step(steps.send, None)
        except StopIteration as stop:
            return self._reply_of(stop.value)
        except Exception as error:
            return self._failure(error)
        return self._continue(steps, waited)

    def _steps(self) -> Coroutine[Any, Any, Any]:
        """Return the coroutine that carries the call out. Raises Unauthenticated, AccessDenied."""
        origin, message = self._origin, self._message
        if is_tracing():
            self._context = traced(type(message).__name__, self._context, {})
        enter(self._context)
        call = _CALLS[type(message)]
        if origin.caller is not None:
            self._who_asks = origin.caller()
            message = call.name(message, self._who_asks)
        return call.carry_out(origin.files, message, origin.host, origin.link)

    async def _continue(self, steps: Coroutine[Any, Any, Any], waited: Any) -> Message:
        try:
            result = await self.rest(steps, waited)
        except Exception as error:
            return self._failure(error)
        return self._reply_of(result)

    def _reply_of(self, result: Any) -> Message:
        reply = _CALLS[type(self._message)].reply
        if self._context.recording is not None and self.needed:
            self._made_ns = time.time_ns()
        try:
            return cast(Message, result) if reply is None else reply(result)
        except Exception as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> Failure:
        if self._context.recording is not None and self.needed:
            self._made_ns = time.time_ns()
        if isinstance(error, PeacefsError):
            return Failure(error.code, error.message, error.culprit)
        log.error("a %s of %s failed", type(self._message).__name__, self._origin.who, exc_info=error)
        return Failure(PeacefsError.__name__, "an internal error of the coordinator; its log says more")

    def finish(self, reply: Message, refusal: PeacefsError | None = None) -> Message:
        """Return the message to send now. `refusal` is the reason why an entry that the call needs was undone.

        Records the call: for metrics, for tracing, and in the audit log.
        """
        message = self._message
        kind = type(message)
        if refusal is None and self._undone is not None and self.is_undone:
            refusal = no_room()
        origin = self._origin
        if refusal is None and origin.door is not None:
            # This process may have been stopped, and another coordinator may have led.
            refusal = origin.door.refusal(is_read=is_read(message) or not self.is_fenced)
        if refusal is not None:
            reply = Failure(refusal.code, refusal.message)
        seconds = time.perf_counter() - self._began_s
        failed = reply.code if type(reply) is Failure else ""
        outcome = of_failure(failed) if failed else DONE
        call_seconds.of(kind.__name__, outcome).observe(seconds)
        context = self._context
        if context.recording is not None:
            if self._made_ns:
                context.recording.phase("commit", self._made_ns, time.time_ns(), {})
            context.recording.end(failed)
        if log.isEnabledFor(logging.DEBUG):
            with serving(context):
                log.debug("%s of %s: %s after %.1f ms", kind.__name__, origin.who, outcome, seconds * 1000)
        if origin.audited is not None:
            origin.audited.tell(
                message,
                reply,
                origin.host,
                caller=self._who_asks,
                is_believed=origin.caller is None,
                is_datanode=origin.link is not None,
                seconds=seconds,
                trace=context.id,
            )
        return reply


async def answer(
    files: Files, message: Message, host: str, node: NodeId, *, audited: AuditedRpc | None = None
) -> Message:
    """Return the reply to a call of a datanode on `host`, when all that it depends on is durable."""
    call = OpenCall(Origin(files, files.durable.rows, host, node, node, audited=audited), message)
    reply = await call.carry_out()
    try:
        await files.durable.settle(call)
    except PeacefsError as refusal:
        return call.finish(reply, refusal)
    return call.finish(reply)
