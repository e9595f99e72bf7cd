"""The data side of WebHDFS: a client of the cluster that lives in a datanode and serves those who speak HTTP.

A bare ASGI application. It writes and reads with the participants of `peacefs.client`, on threads; the event
loop only moves bytes. A file whose body is at its end within the first buffer is written at once by a pool of
its own, so that long uploads by slow clients are in nobody's way.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from peacefs.client.transfer.file_appender import append_file
from peacefs.client.transfer.file_reader import FileReader
from peacefs.client.transfer.file_writer import WriteStats, write_file
from peacefs.client.transfer.write_grants import GrantClient
from peacefs.protocol import limits
from peacefs.protocol.asgi import Receive, Scope, Send, client_host, client_watch
from peacefs.protocol.errors import (
    AccessDenied,
    FileNotFound,
    PeacefsError,
    PeerUnreachable,
)
from peacefs.protocol.messages import ChunkLayout, GetLayout, Layout, Leased, TakeLease
from peacefs.protocol.runtime import effects as fx
from peacefs.protocol.runtime.thread_driver import ThreadDriver
from peacefs.protocol.service.client_shares import client_of
from peacefs.protocol.service.metrics import CONTENT_TYPE, exposition
from peacefs.protocol.tokens import ChunkRead, FileAppend, FileRead, FileWrite, Signer
from peacefs.protocol.webhdfs.answers import Answer, empty_answer, fault_answer, json_answer, send_answer
from peacefs.protocol.webhdfs.query import is_webhdfs
from peacefs.protocol.webhdfs.redirects import ExtendFile, ReadFile, SumFile, WriteFile, parse_redirected

from .buffer_budget import BufferBudget
from .client_slots import ClientSlots
from .download import begin, send_pieces, send_whole
from .hdfs_checksum import FileChecksum
from .local_large_reads import LocalLargeReads
from .local_small_reads import LocalSmallReads
from .one_time_chunks import OneTimeChunks
from .upload import Upload, body_pieces

log = logging.getLogger("peacefs.gateway")
T = TypeVar("T")
#: Raises AccessDenied if a request is not of the user whom its read token was given to.
CheckBearer = Callable[[Scope, str], None]
#: Takes an upload's bytes from its stream, on a thread.
Writer = Callable[[Upload], fx.Steps[WriteStats]]

_HELLO = b"A datanode of peacefs. Files are read and written through the coordinator's address.\n"


@dataclass(frozen=True)
class GatewayLimits:
    """See `protocol.limits` for each."""

    first_buffer_bytes: int = limits.gateway_first_buffer_bytes
    buffer_bytes_max: int = limits.gateway_buffer_bytes_max
    threads: int = limits.gateway_threads
    quick_threads: int = limits.gateway_quick_threads
    downloads_max: int = limits.gateway_downloads_max
    transfers_per_client_max: int = limits.gateway_transfers_per_client_max
    buffer_per_client_bytes_max: int = limits.gateway_buffer_per_client_bytes_max
    body_idle_timeout_s: float = limits.http_body_idle_timeout_s
    queue_timeout_s: float = limits.gateway_queue_timeout_s


def believe_bearer(scope: Scope, user: str) -> None:
    """With simple authentication a token is good for whoever has it."""


class Gateway:
    """One a datanode. To be made on the event loop that serves it, and closed after the server has ended."""

    def __init__(
        self,
        signer: Signer,
        driver: ThreadDriver,
        grants: GrantClient,
        own: LocalSmallReads,
        local_large_reads: LocalLargeReads,
        one_time_chunks: OneTimeChunks,
        *,
        wall_clock: Callable[[], float] = time.time,
        bounds: GatewayLimits | None = None,
        check_bearer: CheckBearer = believe_bearer,
    ) -> None:
        """`check_bearer` raises for a caller to whom the token in the URL was not given."""
        self._check_bearer = check_bearer
        self._signer = signer
        self._driver = driver
        self._grants = grants
        self._own = own
        self._local_large_reads = local_large_reads
        self._one_time_chunks = one_time_chunks
        self._wall_clock = wall_clock
        self._bounds = bounds = bounds or GatewayLimits()
        self._budget = BufferBudget(
            bounds.buffer_bytes_max, bounds.queue_timeout_s, per_client_max=bounds.buffer_per_client_bytes_max
        )
        each_max = bounds.transfers_per_client_max
        self._long_uploads = ClientSlots(bounds.threads, each_max, bounds.queue_timeout_s)
        self._downloads = ClientSlots(bounds.downloads_max, each_max, bounds.queue_timeout_s)
        self._long = ThreadPoolExecutor(bounds.threads, thread_name_prefix="gateway-long")
        self._quick = ThreadPoolExecutor(bounds.quick_threads, thread_name_prefix="gateway-quick")

    def close(self) -> None:
        """Takes no more work; what is under way ends by its own deadlines."""
        self._own.close()
        self._local_large_reads.close()
        self._long.shutdown(wait=False, cancel_futures=True)
        self._quick.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server runs without lifespan and websockets"
        try:
            answer = await self._answer(scope, receive, send)
        except Exception as fault:
            answer = fault_answer(fault, scope)
        if answer is not None:
            await send_answer(scope, send, answer)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        """None where the answer has been sent already."""
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
        token = self._signer.verify(wanted.token, FileWrite, self._wall_clock())
        self._check_bearer(scope, token.user)
        stats = await self._received(
            token, receive, client, lambda upload: self._new_file(wanted, upload, token.block_bytes)
        )
        headers = {"location": f"webhdfs://{wanted.namenode}{quote(token.path)}"}
        return empty_answer(201, **headers, **_shortage(stats, token))

    async def _append(self, wanted: ExtendFile, scope: Scope, receive: Receive, client: str) -> Answer:
        token = self._signer.verify(wanted.token, FileAppend, self._wall_clock())
        self._check_bearer(scope, token.user)
        holder = f"{token.user} {uuid.uuid4().hex}"
        take_lease = TakeLease(wanted.token, holder)
        stats = await self._received(
            token, receive, client, lambda upload: self._longer_file(take_lease, upload, token.block_bytes)
        )
        return empty_answer(200, **_shortage(stats, token))

    async def _received(
        self, token: FileWrite | FileAppend, receive: Receive, client: str, writer: Writer
    ) -> WriteStats:
        """Takes the body in and has it written by `writer`."""
        pieces = body_pieces(receive, self._bounds.body_idle_timeout_s)
        upload = Upload(pieces, self._budget, token.block_bytes, client)
        try:
            async with asyncio.timeout(token.expires_s - self._wall_clock()):
                return await self._carry(upload, token.path, client, writer)
        except TimeoutError:
            raise AccessDenied(f"the token to write {token.path} expired before its last byte came") from None

    async def _carry(self, upload: Upload, path: str, client: str, writer: Writer) -> WriteStats:
        """Until the file is published, or is certain not to be. Whatever ends this early ends the writer too."""
        writing: asyncio.Future[WriteStats] | None = None
        try:
            if await upload.receive_up_to(self._bounds.first_buffer_bytes):
                writing = self._start(self._quick, upload, writer)
                return await asyncio.shield(writing)
            async with self._long_uploads.slot(client, "too many long files are being written here"):
                writing = self._start(self._long, upload, writer)
                await upload.receive_rest()
                return await asyncio.shield(writing)
        except BaseException as end:
            called_off = PeerUnreachable(f"the write of {path} was called off")
            upload.abort(end if isinstance(end, PeacefsError) else called_off)
            raise
        finally:
            if writing is None:
                upload.close()

    def _start(self, pool: ThreadPoolExecutor, upload: Upload, writer: Writer) -> asyncio.Future[WriteStats]:
        writing = self._run(pool, writer(upload))
        writing.add_done_callback(lambda ended: _closed(upload, ended))
        return writing

    def _new_file(self, wanted: WriteFile, upload: Upload, block_bytes: int) -> fx.Steps[WriteStats]:
        try:
            first = self._one_time_chunks.take(wanted.first)
        except AccessDenied as refusal:
            upload.abort(refusal)
            raise
        _completed, stats = yield from write_file(
            wanted.token, first, upload.stream, chunk_bytes=block_bytes, grant_client=self._grants
        )
        return stats

    def _longer_file(self, take_lease: TakeLease, upload: Upload, block_bytes: int) -> fx.Steps[WriteStats]:
        try:
            leased = yield from fx.call(take_lease, Leased)
        except PeacefsError as refusal:
            upload.abort(refusal)
            raise
        _completed, stats = yield from append_file(
            leased, upload.stream, chunk_bytes=block_bytes, grant_client=self._grants
        )
        return stats

    # -- reading -----------------------------------------------------------------------------------

    async def _read(self, wanted: ReadFile, scope: Scope, receive: Receive, send: Send) -> None:
        read_token = self._reader(wanted.token, scope)
        # For a token that is too old, the coordinator locates the file anew, if it still may be read.
        chunks = read_token.chunks if read_token.chunks and read_token.expires_s >= self._wall_clock() else []
        own = await self._own.read(wanted, chunks)
        if own is not None:
            await send_whole(send, own)
            return
        run = partial(self._run, self._quick)
        known = self._layout(read_token, chunks) if chunks else None
        pieces = await begin(wanted, known, self._local_large_reads, run, self._signer, self._wall_clock)
        try:
            await send_pieces(wanted, pieces, run, receive, send)
        finally:
            await pieces.close()

    def _reader(self, token: str, scope: Scope) -> FileRead:
        """Return the token of a request, which may be old. Raises AccessDenied."""
        read_token = self._signer.verify_even_late(token, FileRead)
        self._check_bearer(scope, read_token.user)
        return read_token

    def _layout(self, read_token: FileRead, chunks: Sequence[ChunkLayout]) -> Layout:
        """Return the layout that the coordinator has signed, with a token to read each chunk."""
        tokens = [
            self._signer.sign(ChunkRead(read_token.expires_s, chunk.chunk, read_token.inode)) for chunk in chunks
        ]
        named = [replace(chunk, token=token) for chunk, token in zip(chunks, tokens, strict=True)]
        return Layout(sum(chunk.length for chunk in chunks), named)

    async def _checksum(self, wanted: SumFile, scope: Scope, receive: Receive) -> Answer:
        """Piece by piece, so that others get their turn; for as long as the client waits."""
        self._reader(wanted.token, scope)
        checksum = FileChecksum(wanted.block_bytes)
        reader = await self._run(self._quick, _whole_file(wanted.token))
        try:
            async with client_watch(receive) as hung_up:
                while await self._run(self._quick, _sum_next(reader, checksum)):
                    if hung_up.done():
                        raise PeerUnreachable(f"nobody waits for the checksum of {wanted.path} any more")
        finally:
            await self._run(self._quick, reader.close())
        algorithm, told = checksum.told()
        return json_answer({"FileChecksum": {"algorithm": algorithm, "bytes": told.hex(), "length": len(told)}})

    # ----------------------------------------------------------------------------------------------

    def _run(self, pool: ThreadPoolExecutor, steps: fx.Steps[T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(pool, self._driver.run, steps)


def _closed(upload: Upload, writing: asyncio.Future[WriteStats]) -> None:
    """The thread is done with the upload. Its error, where the request did not wait for it, is known already."""
    upload.close()
    if not writing.cancelled():
        writing.exception()


def _shortage(stats: WriteStats, token: FileWrite | FileAppend) -> dict[str, str]:
    """The header that says so when there are fewer replicas than there should be."""
    if not stats.short_chunks(token.replication):
        return {}
    fewest = min(stats.replicas)
    log.warning("%r has %d of %d replicas until it is repaired", token.path, fewest, token.replication)
    return {"x_peacefs_replicas": f"{fewest}/{token.replication}"}


def _whole_file(token: str) -> fx.Steps[FileReader]:
    layout = yield from fx.call(GetLayout(token), Layout)
    return FileReader(token, layout, 0, layout.length)


def _sum_next(reader: FileReader, checksum: FileChecksum) -> fx.Steps[bool]:
    """False at the end."""
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
