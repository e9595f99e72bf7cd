"""Dispatch the file calls of gateways and our clients over frames: messages to operations, outcomes to replies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from peacefs.coordinator.authentication.token_bearer import check_bearer_of
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
    NameChange,
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
from peacefs.protocol.trace_context import context_of, enter
from peacefs.runtime.tracing import is_tracing, traced
from peacefs.service.outcomes import DONE, of_failure

from .audited_calls import AuditedRpc
from .call_metrics import call_seconds
from .name_calls import carry_out_name_call

log = logging.getLogger("peacefs.coordinator")
N = TypeVar("N", NewFile, OpenFile, NameCall)

_WITH_A_TOKEN = (
    *(AllocateChunk, CompleteFile, KeepChunks, RenewLease, AbandonLease, GetLayout, ReportCorrupt, StateWriteSet),
)
#: Calls by datanodes, as clients that live in them.
CALLS_OF_DATANODES = (*_WITH_A_TOKEN, TakeLease, FlushFile, StreamEnded, StreamsFound)
#: Calls by clients, which authenticate as over HTTP.
CALLS_OF_CLIENTS = (NameCall, *_WITH_A_TOKEN, CreateFile, PublishFile, OpenFile, FlushFile, StateReads)


def is_read(message: Message) -> bool:
    """Return whether a call only looks: its answer is worth something from a coordinator that leads alone."""
    return isinstance(message, OpenFile | GetLayout) or (
        isinstance(message, NameCall) and not isinstance(message, NameChange)
    )


def believed() -> Caller | None:
    """Return nobody: the names in messages count."""
    return None


async def answer(
    files: Files,
    message: Message,
    host: str | None,
    who: str,
    *,
    link: NodeId | None = None,
    caller: Callable[[], Caller | None] = believed,
    audited: AuditedRpc | None = None,
) -> Message:
    """The reply to a call of `who`, on `host`; raises nothing, for a Failure is a reply too.

    `link` is the datanode over whose link the call came, if it is one: what grants can be pushed over. `caller`
    authenticates who calls, or raises.
    """
    began_s = time.perf_counter()
    context = context_of(message)
    if is_tracing():
        context = traced(type(message).__name__, context, {})
    enter(context)
    who_asks: Caller | None = None
    try:
        who_asks = caller()
        watched = files.durable.watched()
        reply = await watched.run(_reply(files, _in_the_name_of(message, who_asks), host, who, link))
        await files.durable.settle(watched)
    except PeacefsError as refusal:
        reply = Failure(refusal.code, refusal.message)
    seconds = time.perf_counter() - began_s
    outcome = of_failure(reply.code) if isinstance(reply, Failure) else DONE
    call_seconds.labels(type(message).__name__, outcome).observe(seconds)
    if context.recording is not None:
        context.recording.end(reply.code if isinstance(reply, Failure) else "")
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s of %s: %s after %.1f ms", type(message).__name__, who, outcome, seconds * 1000)
    if audited is not None:
        audited.tell(message, reply, host, caller=who_asks, is_datanode=link is not None, seconds=seconds)
    return reply


async def _reply(files: Files, message: Message, host: str | None, who: str, link: NodeId | None) -> Message:
    try:
        return await carry_out(files, message, host, link)
    except PeacefsError as error:
        return Failure(error.code, error.message, error.culprit)
    except Exception:
        log.exception("a %s of %s failed", type(message).__name__, who)
        return Failure("PeacefsError", "an internal error of the coordinator; its log says more")


def _in_the_name_of(message: Message, caller: Caller | None) -> Message:
    """The message with the user that it is carried out for. Raises AccessDenied where that is another."""
    if caller is None:
        return message
    match message:
        case NameCall():
            return _named(message, caller)
        case OpenFile():
            return _named(message, caller)
        case CreateFile() | PublishFile():
            return replace(message, file=_named(message.file, caller))
        case _:
            check_bearer_of(message, caller)
            return message


def _named(message: N, caller: Caller) -> N:
    user = caller.acting_as(message.user)
    return message if message.user == user else replace(message, user=user)


async def carry_out(files: Files, message: Message, host: str | None, link: NodeId | None = None) -> Message:
    """The reply to a call of someone on `host`, as in `answer`; raises what it is refused with."""
    match message:
        case NameCall():
            return await carry_out_name_call(files, message, host)
        case StateWriteSet():
            return await files.schedule.state(message, link, host)
        case StreamEnded() if link is not None:
            return files.schedule.ended(link, message)
        case StreamsFound() if link is not None:
            return files.schedule.found(link, message)
        case CreateFile(is_empty=True):
            return await files.writing.create_empty(message.file)
        case CreateFile():
            return await create(files, message, host)
        case PublishFile():
            return await files.writing.publish(message, host)
        case OpenFile():
            token, layout, _status = await files.reading.open_direct(message.path, message.user, host)
            return Opened(token, layout)
        case AllocateChunk():
            return await files.writing.allocate(message, host)
        case CompleteFile():
            return await files.writing.complete(message, host)
        case FlushFile():
            return await files.writing.flush(message, host, link)
        case TakeLease():
            return await files.appending.take_lease(message, host, link)
        case KeepChunks():
            return await files.writing.keep(message)
        case RenewLease():
            return await files.appending.renew(message, link)
        case AbandonLease():
            return await files.appending.abandon(message)
        case GetLayout():
            return await files.reading.layout(message, host)
        case ReportCorrupt():
            return await files.reading.report_corrupt(message)
        case StateReads():
            return await files.recovery.state(message)
        case _:
            raise AssertionError(f"{type(message).__name__} is not dispatched here")


async def create(files: Files, message: CreateFile, host: str | None) -> Created:
    """Carry out a message of a client on `host`."""
    ticket = await files.writing.create(
        message.file, host, failed=frozenset(message.exclude), abandoned=message.abandoned
    )
    return Created(ticket.token, ticket.allocated, ticket.block_bytes)
