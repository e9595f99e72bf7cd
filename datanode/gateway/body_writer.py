"""Writes the file of one request body: whole if the body ends quickly, otherwise in parts that become visible.

Belongs to the event loop; threads do the writing. A part larger than the first buffer is written while it arrives,
by its own thread. One lock orders all operations on the file: parts, flushes, and its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from peacefs.client.transfer.file_flusher import FileFlusher
from peacefs.protocol.errors import FileAlreadyExists, PeacefsError, PeerTimeout, PeerUnreachable
from peacefs.protocol.limits import MIB, frame_ahead_bytes, lease_renewal_s
from peacefs.runtime import effects as fx

from .flush_times import FlushStep, FlushTimes
from .upload import BodyPart, Upload

# An upload of this age is shown at once to a client that looks up its name. A younger upload may end first.
upload_grace_s: Final = 0.03
upload_tails_bytes_max: Final = 64 * MIB
# A body up to this size is sent with one call, on the thread shared by all small chunks. At most as many such
# bodies run at once as there are quick threads.
gateway_threadless_bytes_max: Final = frame_ahead_bytes


log = logging.getLogger("peacefs.gateway")
#: Runs a participant on a thread.
Run = Callable[[fx.Steps[None]], asyncio.Future[None]]


class Tails:
    """The number of flushed bytes that all uploads keep, to be rewritten together with what follows."""

    def __init__(self, bytes_max: int = upload_tails_bytes_max) -> None:
        self._bytes_max = bytes_max
        self._held_bytes = 0

    def changed(self, before: int, after: int) -> bool:
        """Record a change of what one upload keeps; return whether the total is within the limit."""
        self._held_bytes += after - before
        return self._held_bytes <= self._bytes_max


@dataclass(frozen=True, slots=True)
class Threads:
    """The places where the participants of an upload run."""

    quick: Run
    long: Run
    #: The shared thread, for participants that do little work.
    shared: Run
    #: A slot that is held while a long part is written.
    slot: Callable[[], AbstractAsyncContextManager[None]]


class _LongPart(NamedTuple):
    part: BodyPart
    writing: asyncio.Future[None]
    held: AsyncExitStack


class BodyWriter:
    """Writes the body of one upload, as a whole file or in parts that become visible. The gateway makes it.

    Whatever happens to the request, the flusher does one thing at a time, and `carry` ends with the file published
    or given up.
    """

    def __init__(
        self,
        upload: Upload,
        flusher: FileFlusher,
        threads: Threads,
        times: FlushTimes,
        tails: Tails,
        *,
        path: str,
        replaces: bool,
        on_flushed: Callable[[], None],
    ) -> None:
        """Begin a body. `replaces` says whether the file may replace an existing one."""
        self._upload = upload
        self._flusher = flusher
        self._threads = threads
        self._times = times
        self._tails = tails
        self._path = path
        self._replaces = replaces
        self._on_flushed = on_flushed
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._long: _LongPart | None = None
        #: The flusher's last operation on a thread, finished or not.
        self._doing: asyncio.Future[None] | None = None
        self._fault: PeacefsError | None = None
        self._ended = False
        self._tail_bytes = 0
        #: True once other clients may have seen the file.
        self.is_shown = False
        self._timer: asyncio.TimerHandle | None = None
        self._stepping: asyncio.Task[None] | None = None

    # -- the request ---------------------------------------------------------------------------------

    async def carry(self) -> None:
        """Write the body. Return when the file is published. Raises any error; published parts remain."""
        self._set_timer()
        try:
            async for piece in self._upload.pieces:
                await self._take_in(piece)
            await self._finish()
        except BaseException as end:
            self._ended = True
            # The request does not wait for this, and cancelling the request must not cancel it.
            broken_off = self._loop.create_task(self._break_off(end))
            broken_off.add_done_callback(_log_bug)
            if self.is_shown and isinstance(end, PeerUnreachable | PeerTimeout):
                raise type(end)(
                    f"the client of {self._path} disconnected; the part of the file that arrived is kept"
                ) from None
            raise
        self._close()

    async def _take_in(self, piece: bytes) -> None:
        self._raise_fault()
        at_end = self._upload.stream.room_in_chunk
        if self._long is not None and len(piece) >= at_end and self._times.is_old(self._loop.time()):
            # Flush a long part at the end of a chunk, where flushing adds no chunk.
            await self._feed(piece[:at_end])
            await self._take_step(FlushStep.FLUSH)
            piece = piece[at_end:]
        await self._feed(piece)

    async def _feed(self, piece: bytes) -> None:
        room = await self._upload.take_in(piece)
        self._times.received(self._loop.time())
        if self._long is None and self._upload.is_long:
            await self._begin_long_part()
        if room is not None:
            await self._upload.until_fired(room)

    async def _begin_long_part(self) -> None:
        async with self._lock:
            self._raise_fault()
            if self._long is not None or not self._upload.is_long:
                return
            part = self._upload.stream
            held = AsyncExitStack()
            await held.enter_async_context(self._threads.slot())
            self._long = _LongPart(part, _heard(self._threads.long(self._flusher.write(part))), held)

    async def _finish(self) -> None:
        self._ended = True
        async with self._lock:
            self._raise_fault()
            if self._long is None and not self._flusher.has_lease:
                body = self._upload.stream
                body.finish()
                is_small = body.waiting_bytes <= gateway_threadless_bytes_max
                run = self._threads.shared if is_small else self._threads.quick
                await self._do(self._flusher.write_whole(body), run)
            else:
                await self._complete()

    async def _complete(self) -> None:
        """Publish the unpublished rest, and close the file."""
        rest = b""
        if self._long is not None:
            await self._end_long_part()
        else:
            rest = self._upload.next_part().take_all()
        await self._do(self._flusher.complete(rest))

    async def _break_off(self, end: BaseException) -> None:
        """Clean up after an error: remove an invisible file, keep what a visible file has received."""
        try:
            async with self._lock:
                if not (self.is_shown and isinstance(end, PeerUnreachable | PeerTimeout)):
                    called_off = PeerUnreachable(f"the write of {self._path} was called off")
                    self._upload.abort(end if isinstance(end, PeacefsError) else called_off)
                    await self._abandon()
                    return
                try:
                    self._raise_fault()
                    await self._complete()
                except PeacefsError as fault:
                    log.warning("%s ends at its last flush: %s", self._path, fault.message)
                    await self._abandon()
        finally:
            self._close()

    async def _abandon(self) -> None:
        under_way = [self._doing] if self._doing is not None else []
        if self._long is not None:
            long, self._long = self._long, None
            under_way.append(long.writing)
            await asyncio.wait(under_way)
            await long.held.aclose()
        elif under_way:
            await asyncio.wait(under_way)
        with contextlib.suppress(PeerUnreachable):
            await self._do(self._flusher.abandon())

    def _close(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._tails.changed(self._tail_bytes, 0)
        self._tail_bytes = 0
        self._upload.close()

    async def _do(self, steps: fx.Steps[None], run: Run | None = None) -> None:
        """Run one of the flusher's steps on a thread. The step completes even if the request is cancelled."""
        try:
            self._doing = _heard((run or self._threads.quick)(steps))
        except RuntimeError:
            raise PeerUnreachable("the gateway is closed") from None
        await asyncio.shield(self._doing)

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    # -- visibility -----------------------------------------------------------------------------------

    async def show(self) -> bool:
        """Publish what has arrived. Return whether the file is visible."""
        grace_s = upload_grace_s - self._times.age_s(self._loop.time())
        if grace_s > 0:
            await asyncio.sleep(grace_s)
        async with self._lock:
            if self._ended:
                return self._fault is None
            if not self._flusher.has_lease:
                await self._attempt(self._show_name())
            if self._flusher.has_lease and self._long is None and self._upload.stream.waiting_bytes:
                await self._attempt(self._flush())
        return self.is_shown

    def _set_timer(self) -> None:
        at_s = self._times.next_s(is_long=self._long is not None)
        now_s = self._loop.time()
        self._timer = self._loop.call_at(min(max(at_s, now_s + 0.05), now_s + lease_renewal_s), self._look)

    def _look(self) -> None:
        if self._ended:
            return
        step = self._times.due(self._loop.time(), is_long=self._long is not None)
        if step is not None and not self._lock.locked():
            self._stepping = self._loop.create_task(self._take_step(step))
            self._stepping.add_done_callback(_log_bug)
        self._set_timer()

    async def _take_step(self, step: FlushStep) -> None:
        async with self._lock:
            if self._ended or self._fault is not None:
                return
            match step:
                case FlushStep.SHOW:
                    await self._attempt(self._show_name())
                case FlushStep.FLUSH:
                    await self._attempt(self._flush())
                case FlushStep.RENEW:
                    await self._attempt(self._renew())

    async def _attempt(self, steps: Coroutine[Any, Any, None]) -> None:
        """Try a step. A temporary error is retried later; any other is raised at the writer's next call."""
        try:
            await steps
        except PeacefsError as fault:
            if fault.retriable:
                self._times.failed(self._loop.time())
            else:
                self._fault = fault

    async def _show_name(self) -> None:
        if not self._times.may_appear:
            return
        try:
            await self._do(self._flusher.publish_name())
        except FileAlreadyExists:
            if not self._replaces:
                raise
            # Another file was created first; this one will replace it at its end.
            self._times.hidden()
            return
        self.is_shown = True
        self._times.shown(self._loop.time())
        self._on_flushed()

    async def _flush(self) -> None:
        self._times.taken()
        try:
            if self._long is not None:
                await self._end_long_part()
                await self._do(self._flusher.flush(b""))
            else:
                part = self._upload.next_part()
                try:
                    await self._do(self._flusher.flush(part.take_all()))
                finally:
                    part.settle_rest()
        except PeacefsError as fault:
            if not self._flusher.is_unanswered:
                # The flushed bytes of that file are lost.
                self._fault = fault
            raise
        self.is_shown = True
        self._times.flushed(self._loop.time())
        self._on_flushed()
        self._keep_tail()

    def _keep_tail(self) -> None:
        held_bytes = self._flusher.tail_bytes
        if not self._tails.changed(self._tail_bytes, held_bytes):
            self._flusher.forget_tail()
            self._tails.changed(held_bytes, 0)
            held_bytes = 0
        self._tail_bytes = held_bytes

    async def _renew(self) -> None:
        await self._do(self._flusher.renew(lease_renewal_s))
        self._times.renewed(self._loop.time())

    async def _end_long_part(self) -> None:
        assert self._long is not None
        long, self._long = self._long, None
        part = self._upload.next_part()
        assert part is long.part, "a long part is the one that comes"
        try:
            await asyncio.shield(long.writing)
        finally:
            await long.held.aclose()
            part.settle_rest()


def _heard(future: asyncio.Future[None]) -> asyncio.Future[None]:
    """Mark the future's error as retrieved, because it is reported elsewhere."""
    future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return future


def _log_bug(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        log.error("writing an upload failed because of a bug in this datanode", exc_info=fault)
