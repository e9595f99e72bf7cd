"""The data side of WebHDFS: a client of the cluster inside a datanode, which serves HTTP clients.

A bare ASGI application. It reads and writes with the participants of `peacefs.client`, on threads; the event loop
only moves bytes. A file whose body fits in the first buffer is written at once, by its own pool of threads, so
that long uploads of slow clients do not delay it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from peacefs.client.transfer.file_flusher import FileFlusher
from peacefs.client.transfer.file_reader import FileReader
from peacefs.client.transfer.hdfs_checksum import FileChecksum
from peacefs.client.transfer.write_grants import GrantClient
from peacefs.datanode.limits import gateway_downloads_max
from peacefs.datanode.limits import upload_pause_s as default_upload_pause_s
from peacefs.protocol import limits
from peacefs.protocol.asgi import Receive, Scope, Send, client_host, client_watch
from peacefs.protocol.errors import (
    AccessDenied,
    FileNotFound,
    PeerUnreachable,
)
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import (
    FlushUploads,
    GetLayout,
    Layout,
    Leased,
    TakeLease,
    UploadsFlushed,
)
from peacefs.protocol.tokens import FileAppend, FileWrite
from peacefs.protocol.webhdfs.answers import Answer, empty_answer, fault_answer, json_answer, send_answer
from peacefs.protocol.webhdfs.query import is_webhdfs
from peacefs.protocol.webhdfs.redirects import ExtendFile, ReadFile, SumFile, WriteFile, parse_redirected
from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tracing import spanning
from peacefs.service.body_socket import body_socket
from peacefs.service.client_shares import client_of
from peacefs.service.metrics import CONTENT_TYPE, exposition

from .body_writer import BodyWriter, Tails, Threads
from .buffer_budget import BufferBudget
from .client_slots import ClientSlots
from .download import begin, send_pieces, send_whole
from .flush_times import FlushTimes
from .local_large_reads import LocalLargeReads
from .local_small_reads import LocalSmallReads
from .one_time_chunks import OneTimeChunks
from .open_uploads import OpenUploads
from .participant_threads import Begin, ParticipantThreads
from .upload import Upload, body_pieces, gateway_first_buffer_bytes
from .url_tokens import UrlTokens

# Maximum number of flushed bytes per upload that are kept, to be rewritten together with what follows.
upload_tail_bytes_max: Final = 2 * MIB
gateway_buffer_bytes_max: Final = 512 * MIB
# Threads for files longer than the first buffer. Each is held while its client sends, maybe for minutes; most of
# them sleep, and the budget limits their memory. The quick threads serve small files and reads of pieces, and are
# soon free again.
gateway_threads: Final = 256
gateway_quick_threads: Final = 32
# Time that a request waits for a thread or for memory before it is told to retry.
gateway_queue_timeout_s: Final = 60.0
# A Spark task may send nothing until its first row group is full. A vanished client is noticed sooner, by TCP's
# keep-alive.
http_body_idle_timeout_s: Final = 600.0
gateway_transfers_per_client_max: Final = 192
gateway_buffer_per_client_bytes_max: Final = 384 * MIB


log = logging.getLogger("peacefs.gateway")

_HELLO = b"A datanode of peacefs. Files are read and written through the coordinator's address.\n"


@dataclass(frozen=True)
class GatewayLimits:
    """The limits of one gateway; tests set smaller ones."""

    first_buffer_bytes: int = gateway_first_buffer_bytes
    buffer_bytes_max: int = gateway_buffer_bytes_max
    threads: int = gateway_threads
    quick_threads: int = gateway_quick_threads
    downloads_max: int = gateway_downloads_max
    transfers_per_client_max: int = gateway_transfers_per_client_max
    buffer_per_client_bytes_max: int = gateway_buffer_per_client_bytes_max
    body_idle_timeout_s: float = http_body_idle_timeout_s
    upload_pause_s: float = default_upload_pause_s
    queue_timeout_s: float = gateway_queue_timeout_s


@dataclass(frozen=True, slots=True)
class _Body:
    """A request body, and the flusher that writes it."""

    token: FileWrite | FileAppend
    flusher: FileFlusher
    receive: Receive
    client: str
    may_appear: bool = False


class Gateway:
    """Serves WebHDFS for one datanode: writes, appends, reads and checksums of files named in valid tokens.

    The service makes it on the event loop that serves it, and closes it after the server has ended.
    """

    def __init__(
        self,
        tokens: UrlTokens,
        driver: ThreadDriver,
        begin: Begin,
        grants: GrantClient,
        own: LocalSmallReads,
        local_large_reads: LocalLargeReads,
        one_time_chunks: OneTimeChunks,
        bounds: GatewayLimits | None = None,
    ) -> None:
        """`begin` starts a participant that does little work, on a shared thread."""
        self._tokens = tokens
        self._grants = grants
        self._own = own
        self._local_large_reads = local_large_reads
        self._one_time_chunks = one_time_chunks
        self._bounds = bounds = bounds or GatewayLimits()
        self._budget = BufferBudget(
            bounds.buffer_bytes_max, bounds.queue_timeout_s, per_client_max=bounds.buffer_per_client_bytes_max
        )
        each_max = bounds.transfers_per_client_max
        self._long_uploads = ClientSlots(bounds.threads, each_max, bounds.queue_timeout_s)
        self._tails = Tails()
        self._uploads = OpenUploads()
        self._downloads = ClientSlots(bounds.downloads_max, each_max, bounds.queue_timeout_s)
        self._threads = ParticipantThreads(driver, begin, long_max=bounds.threads, quick_max=bounds.quick_threads)

    def close(self) -> None:
        """Accept no more work. What is under way ends by its own deadlines."""
        self._own.close()
        self._local_large_reads.close()
        self._threads.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server runs without lifespan and websockets"
        began_s = time.perf_counter()
        try:
            with spanning(f"{scope['method']} at the gateway"):
                answer = await self._answer(scope, receive, send)
        except Exception as fault:
            answer = fault_answer(fault, scope)
        if answer is not None:
            await send_answer(scope, send, answer)
        if log.isEnabledFor(logging.DEBUG):
            status = "sent" if answer is None else answer.status
            duration_ms = (time.perf_counter() - began_s) * 1000
            log.debug("%s %r: %s after %.1f ms", scope["method"], scope["path"], status, duration_ms)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        """Answer a request; return None if the answer was sent already."""
        if not is_webhdfs(scope):
            return _greeting(scope)
        wanted = parse_redirected(scope)
        client = client_of(client_host(scope))
        if isinstance(wanted, WriteFile):
            return await self._write(wanted, scope, receive, client)
        if isinstance(wanted, ExtendFile):
            return await self._append(wanted, scope, receive, client)
        async with self._downloads.slot(client, "too many files are being read here"):
            if isinstance(wanted, SumFile):
                return await self._checksum(wanted, scope, receive)
            await self._read(wanted, scope, receive, send)
            return None

    # -- writing -----------------------------------------------------------------------------------

    async def _write(self, wanted: WriteFile, scope: Scope, receive: Receive, client: str) -> Answer:
        token = self._tokens.writing(wanted.token, FileWrite, scope)
        flusher = FileFlusher(
            wanted.token,
            self._one_time_chunks.take(wanted.first),
            token.block_bytes,
            _holder(token.user),
            self._grants,
            merge_bytes=upload_tail_bytes_max // 2,
        )
        await self._carry(_Body(token, flusher, receive, client, may_appear=token.may_appear))
        headers = {"location": f"webhdfs://{wanted.namenode}{quote(token.path)}"}
        return empty_answer(201, **headers, **_shortage(flusher.fewest_replicas, token))

    async def _append(self, wanted: ExtendFile, scope: Scope, receive: Receive, client: str) -> Answer:
        token = self._tokens.writing(wanted.token, FileAppend, scope)
        holder = _holder(token.user)
        # Take the lease before the first byte, so that a second writer is refused at once.
        leased = await asyncio.shield(self._threads.run_quick(fx.call(TakeLease(wanted.token, holder), Leased)))
        flusher = FileFlusher(
            leased.token,
            leased.allocated,
            leased.block_bytes,
            holder,
            self._grants,
            has_lease=True,
            merge_bytes=upload_tail_bytes_max // 2,
        )
        await self._carry(_Body(token, flusher, receive, client))
        return empty_answer(200, **_shortage(flusher.fewest_replicas, token))

    async def _carry(self, body: _Body) -> None:
        """Write the body. Return when the file is published; raise if it certainly will not be."""
        token, flusher, bounds = body.token, body.flusher, self._bounds
        loop = asyncio.get_running_loop()
        writer: BodyWriter

        def idle_timeout_s() -> float:
            # A log file may grow rarely. TCP keep-alive detects a host that has vanished.
            return limits.source_silence_s if writer.is_shown else bounds.body_idle_timeout_s

        def extended() -> None:
            cap.reschedule(loop.time() + limits.write_token_lifetime_s)

        upload = Upload(
            body_pieces(body.receive, idle_timeout_s),
            self._budget,
            token.block_bytes,
            body.client,
            first_buffer_bytes=bounds.first_buffer_bytes,
        )
        writer = BodyWriter(
            upload,
            flusher,
            Threads(
                self._threads.run_quick,
                self._threads.run_long,
                self._threads.run_shared,
                lambda: self._long_uploads.slot(body.client, "too many long files are being written here"),
            ),
            FlushTimes(
                loop.time(),
                may_appear=body.may_appear,
                has_lease=flusher.has_lease,
                pause_s=bounds.upload_pause_s,
            ),
            self._tails,
            path=token.path,
            replaces=isinstance(token, FileWrite) and token.file.overwrite,
            on_flushed=extended,
        )
        names = [flusher.holder, token.request_id] if isinstance(token, FileWrite) else [flusher.holder]
        try:
            async with asyncio.timeout(self._tokens.seconds_left(token)) as cap:
                with self._uploads.entered(writer, *names):
                    await writer.carry()
        except TimeoutError:
            raise AccessDenied(f"the token to write {token.path} expired before its last byte came") from None

    async def flush_uploads(self, wanted: FlushUploads) -> UploadsFlushed:
        """Publish what uploads have received, for the coordinator."""
        return await self._uploads.flush(wanted)

    # -- reading -----------------------------------------------------------------------------------

    async def _read(self, wanted: ReadFile, scope: Scope, receive: Receive, send: Send) -> None:
        read_token = self._tokens.reading(wanted.token, scope)
        # If the token is too old, the coordinator locates the file again, if it may still be read.
        chunks = self._tokens.chunks(read_token)
        own = await self._own.read(wanted, chunks)
        if own is not None:
            await send_whole(send, own)
            return
        run = self._threads.run_quick
        known = self._tokens.layout(read_token, chunks) if chunks else None
        pieces = await begin(wanted, known, self._local_large_reads, run, self._tokens)
        try:
            await send_pieces(wanted, pieces, run, receive, send, body_socket(scope))
        finally:
            await pieces.close()

    async def _checksum(self, wanted: SumFile, scope: Scope, receive: Receive) -> Answer:
        """Compute a checksum piece by piece while the client waits. Other requests run between the pieces."""
        self._tokens.reading(wanted.token, scope)
        checksum = FileChecksum(wanted.block_bytes)
        reader = await self._threads.run_quick(_whole_file(wanted.token))
        try:
            async with client_watch(receive) as hung_up:
                while await self._threads.run_quick(_sum_next(reader, checksum)):
                    if hung_up.done():
                        raise PeerUnreachable(f"nobody waits for the checksum of {wanted.path} any more")
        finally:
            await self._threads.run_quick(reader.close())
        algorithm, told = checksum.told()
        return json_answer({"FileChecksum": {"algorithm": algorithm, "bytes": told.hex(), "length": len(told)}})


def _holder(user: str) -> str:
    """Return a unique lease holder name for one upload."""
    return f"{user} {uuid.uuid4().hex}"


def _shortage(fewest: int | None, token: FileWrite | FileAppend) -> dict[str, str]:
    """Return a header that reports missing replicas; empty if no replicas are missing."""
    if fewest is None or fewest >= token.replication:
        return {}
    log.warning("%r has only %d of %d replicas until it is repaired", token.path, fewest, token.replication)
    return {"x_peacefs_replicas": f"{fewest}/{token.replication}"}


def _whole_file(token: str) -> fx.Steps[FileReader]:
    layout = yield from fx.call(GetLayout(token), Layout)
    return FileReader(token, layout, 0, layout.length)


def _sum_next(reader: FileReader, checksum: FileChecksum) -> fx.Steps[bool]:
    """Add the next piece to the checksum; return False at the end."""
    piece = yield from reader.next_piece()
    if piece is None:
        return False
    checksum.take_in(piece)
    return True


def _greeting(scope: Scope) -> Answer:
    """Return the page for a browser, or the metrics for Prometheus."""
    if scope["raw_path"] == b"/metrics":
        return Answer(200, exposition(), (), CONTENT_TYPE.encode())
    if scope["raw_path"] != b"/" or scope["method"] not in ("GET", "HEAD"):
        raise FileNotFound("there is nothing here; the file system is under /webhdfs/v1 of the coordinator")
    return Answer(200, _HELLO, (), b"text/plain")
