"""The file system's operations as the fronts (WebHDFS, REST, datanodes' links) call them.

Brings together the namespace (committed state), the cluster (soft state) and tokens. Runs on the event loop:
reads look things up at once, changes wait for their commit, CREATE and OPEN are held while a coordinator that
has just started still waits for its datanodes. Knows no wire format.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from peacefs.protocol.errors import BadRequest, ChunkUnavailable, PathIsDirectory, SafeMode
from peacefs.protocol.ids import ChunkId, NodeId, Numbering
from peacefs.protocol.limits import (
    checksum_block_bytes,
    chunk_bytes_max,
    read_token_lifetime_s,
    reclaim_entries_per_commit,
    replication_default,
    replication_max,
    startup_hold_s,
    write_token_lifetime_s,
)
from peacefs.protocol.messages import (
    AllocateChunk,
    Allocated,
    ChunkLayout,
    Completed,
    CompleteFile,
    Done,
    GetLayout,
    Hop,
    Layout,
    Replica,
    ReportCorrupt,
)
from peacefs.protocol.tokens import ChunkRead, ChunkWrite, FileRead, FileWrite, Seal

from . import namespace
from .cluster import Cluster, Order
from .membership import Node
from .metadata import Reader, Transaction
from .paths import parse_path
from .reclaim import forget_answers_step, reclaim_step
from .records import (
    ChunkRecord,
    ContentSummary,
    FileStatus,
    Kind,
    ListPage,
    RenameMode,
)

log = logging.getLogger("peacefs.coordinator")
T = TypeVar("T")

_READY_POLL_S = 0.05


class Commit(Protocol):
    """Runs a change of the namespace in a transaction; gives its result once that is on the disk."""

    def __call__(self, change: Callable[[Transaction], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class CreateFile:
    """What a writer asks for. Zero for `replication` or `block_bytes` means the default."""

    path: str
    user: str
    overwrite: bool = False
    permission: int = 0o644
    replication: int = 0
    block_bytes: int = 0
    create_parent: bool = True
    client_host: str | None = None
    exclude: frozenset[str] = frozenset()
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class CreateTicket:
    """Where to send the data: the HTTP address of the first chunk's head, with all that it needs."""

    http_host: str
    http_port: int
    token: str
    allocated: Allocated


@dataclass(frozen=True, slots=True)
class OpenTicket:
    """Where to fetch the data."""

    http_host: str
    http_port: int
    token: str
    length: int


@dataclass(frozen=True, slots=True)
class BlockLocation:
    """A chunk's place in its file, and who holds it: (host:port, host, rack) for each replica."""

    offset: int
    length: int
    nodes: list[tuple[str, str, str]]


class Files:
    """One instance a coordinator, used from its event loop only."""

    def __init__(
        self,
        reader: Reader,
        commit: Commit,
        cluster: Cluster,
        seal: Seal,
        numbering: Numbering,
        send: Callable[[Sequence[Order]], None],
        monotonic: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._reader = reader
        self._commit = commit
        self._cluster = cluster
        self._seal = seal
        self._numbering = numbering
        self._send = send
        self._monotonic = monotonic
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._to_reclaim = True

    # -- names -------------------------------------------------------------------------------------

    async def status(self, path: str, user: str) -> FileStatus:
        return namespace.status(self._reader, parse_path(path))

    async def list_page(self, path: str, user: str, start_after: str | None, limit: int) -> ListPage:
        return namespace.list_page(self._reader, parse_path(path), start_after, limit)

    async def content_summary(self, path: str, user: str) -> ContentSummary:
        return namespace.content_summary(self._reader, parse_path(path))

    async def mkdirs(self, path: str, user: str, permission: int) -> bool:
        parsed = parse_path(path)
        return await self._commit(lambda tx: namespace.mkdirs(tx, parsed, user, permission, self._now_ms()))

    async def rename(self, source: str, target: str, user: str, mode: RenameMode) -> bool:
        source_path, target_path = parse_path(source), parse_path(target)
        result = await self._commit(
            lambda tx: namespace.rename(tx, source_path, target_path, mode, self._now_ms())
        )
        self._free(result.freed)
        return result.done

    async def delete(self, path: str, recursive: bool, user: str) -> bool:
        parsed = parse_path(path)
        result = await self._commit(lambda tx: namespace.delete(tx, parsed, recursive, self._now_ms()))
        self._free(result.freed)
        self._to_reclaim = True
        return result.done

    async def set_times(self, path: str, user: str, modified_ms: int | None, accessed_ms: int | None) -> None:
        parsed = parse_path(path)
        await self._commit(lambda tx: namespace.set_times(tx, parsed, modified_ms, accessed_ms))

    async def set_permission(self, path: str, user: str, permission: int) -> None:
        parsed = parse_path(path)
        await self._commit(lambda tx: namespace.set_permission(tx, parsed, permission))

    async def set_owner(self, path: str, user: str, owner: str | None, group: str | None) -> None:
        parsed = parse_path(path)
        await self._commit(lambda tx: namespace.set_owner(tx, parsed, owner, group))

    async def set_replication(self, path: str, user: str, replication: int) -> bool:
        parsed = parse_path(path)
        wanted = _replication(replication)
        result = await self._commit(lambda tx: namespace.set_replication(tx, parsed, wanted))
        self._cluster.load(result.changed)
        return result.done

    # -- writing -----------------------------------------------------------------------------------

    async def create(self, wanted: CreateFile) -> CreateTicket:
        """Places the first chunk and seals all that the completion needs. Commits nothing."""
        parsed = parse_path(wanted.path)
        namespace.check_create(self._reader, parsed, wanted.overwrite, wanted.create_parent)
        await self._until_ready()
        token = FileWrite(
            expires_s=self._wall_clock() + write_token_lifetime_s,
            path=str(parsed),
            user=wanted.user,
            overwrite=wanted.overwrite,
            permission=wanted.permission,
            replication=_replication(wanted.replication),
            block_bytes=_block_bytes(wanted.block_bytes),
            create_parent=wanted.create_parent,
            # A stock client sends none; the datanode may still have to repeat the completion.
            request_id=wanted.request_id or uuid.uuid4().hex,
        )
        allocated, head = self._allocate(token, wanted.client_host, self._nodes_by_http_name(wanted.exclude))
        return CreateTicket(
            head.registration.http_host, head.registration.http_port, self._seal.seal(token), allocated
        )

    async def allocate(self, wanted: AllocateChunk, writer_host: str | None) -> Allocated:
        """A further chunk for a file being written, or one in place of a chunk whose pipeline failed."""
        token = self._seal.open(wanted.token, FileWrite, self._wall_clock())
        if wanted.abandoned is not None:
            self._cluster.abandoned(wanted.abandoned)
        await self._until_ready()
        allocated, _head = self._allocate(token, writer_host, frozenset(wanted.exclude))
        return allocated

    async def complete(self, wanted: CompleteFile) -> Completed:
        """Creates the name and publishes the file, in one commit."""
        token = self._seal.open(wanted.token, FileWrite, self._wall_clock())
        for chunk in wanted.chunks:
            if not chunk.receipts:
                raise BadRequest("a chunk without receipts is on no datanode; write it again")
            for receipt in chunk.receipts:
                self._seal.verify_receipt(receipt, chunk.chunk, chunk.version, chunk.length, chunk.checksum)
        wanted_file = namespace.FileToComplete(
            path=parse_path(token.path),
            user=token.user,
            overwrite=token.overwrite,
            permission=token.permission,
            replication=token.replication,
            block_bytes=token.block_bytes,
            create_parent=token.create_parent,
            request_id=token.request_id,
            chunks=wanted.chunks,
        )
        publication = await self._commit(lambda tx: namespace.complete_file(tx, wanted_file, self._now_ms()))
        self._cluster.published(publication.added)
        self._free(publication.freed)
        fewest = min((len(chunk.receipts) for chunk in wanted.chunks), default=token.replication)
        if fewest < token.replication:
            log.warning(
                "%s was written to %d of %d replicas; repair follows", token.path, fewest, token.replication
            )
        return Completed(publication.length)

    def _allocate(
        self, token: FileWrite, writer_host: str | None, exclude: frozenset[NodeId]
    ) -> tuple[Allocated, Node]:
        chunk, version = self._numbering.next(), self._numbering.next()
        nodes = self._cluster.place(
            self._monotonic(), chunk, writer_host, token.replication, exclude, write_token_lifetime_s
        )
        return Allocated(
            chunk=chunk,
            version=version,
            pipeline=[node.hop for node in nodes],
            token=self.write_token(chunk, version, [node.id for node in nodes]),
        ), nodes[0]

    def write_token(self, chunk: ChunkId, version: int, nodes: list[NodeId]) -> str:
        """Leave to write a version of a chunk through these nodes."""
        expires_s = self._wall_clock() + write_token_lifetime_s
        return self._seal.seal(ChunkWrite(expires_s=expires_s, chunk=chunk, version=version, nodes=nodes))

    def _nodes_by_http_name(self, names: frozenset[str]) -> frozenset[NodeId]:
        return frozenset(node.id for node in self._cluster.members.all() if node.http_name in names)

    # -- reading -----------------------------------------------------------------------------------

    async def open(
        self,
        path: str,
        user: str,
        client_host: str | None = None,
        exclude: frozenset[str] = frozenset(),
        offset: int = 0,
    ) -> OpenTicket:
        """A datanode near the reader, and leave to read the file as it is now."""
        status = await self._file_status(path)
        await self._until_ready()
        node = self._gateway_for(path, status, client_host, exclude, offset)
        token = self._seal.seal(self._read_token(path, status, user))
        return OpenTicket(node.registration.http_host, node.registration.http_port, token, status.length)

    async def open_direct(self, path: str, user: str, client_host: str | None) -> tuple[str, Layout, FileStatus]:
        """For our own client, which reads from datanodes itself: the token, the layout, the status."""
        status = await self._file_status(path)
        await self._until_ready()
        layout = self._layout(status.inode, status.length, client_host)
        return self._seal.seal(self._read_token(path, status, user)), layout, status

    async def layout(self, wanted: GetLayout, reader_host: str | None) -> Layout:
        """Where the chunks of an open file are now."""
        token = self._seal.open(wanted.token, FileRead, self._wall_clock())
        await self._until_ready()
        status = namespace.status_of_inode(self._reader, token.inode)
        return self._layout(token.inode, status.length, reader_host)

    async def report_corrupt(self, report: ReportCorrupt) -> Done:
        """A reader met bad bytes; the datanode is asked to check."""
        replica = Replica(report.chunk, report.version, 0)
        self._send(self._cluster.suspect_replica(report.node, replica))
        return Done()

    async def block_locations(self, path: str, user: str, offset: int, length: int) -> list[BlockLocation]:
        """The chunks that overlap a range of a file."""
        status = await self._file_status(path)
        locations = []
        at = 0
        for chunk in namespace.layout(self._reader, status.inode):
            if at < offset + length and at + chunk.length > offset:
                nodes = self._cluster.locations(chunk.chunk)
                named = [
                    (
                        f"{node.registration.data_host}:{node.registration.data_port}",
                        node.registration.data_host,
                        node.rack,
                    )
                    for node in nodes
                ]
                locations.append(BlockLocation(at, chunk.length, named))
            at += chunk.length
        return locations

    async def _file_status(self, path: str) -> FileStatus:
        status = namespace.status(self._reader, parse_path(path))
        if status.kind is Kind.DIRECTORY:
            raise PathIsDirectory(f"Path is not a file: {path}")
        return status

    def _read_token(self, path: str, status: FileStatus, user: str) -> FileRead:
        return FileRead(
            expires_s=self._wall_clock() + read_token_lifetime_s, path=path, inode=status.inode, user=user
        )

    def _layout(self, inode: int, length: int, reader_host: str | None) -> Layout:
        expires_s = self._wall_clock() + read_token_lifetime_s
        return Layout(
            length,
            [
                ChunkLayout(
                    chunk.chunk,
                    chunk.version,
                    chunk.length,
                    self._seal.seal(ChunkRead(expires_s=expires_s, chunk=chunk.chunk)),
                    self._hops(chunk.chunk, reader_host),
                )
                for chunk in namespace.layout(self._reader, inode)
            ],
        )

    def _hops(self, chunk: ChunkId, reader_host: str | None) -> list[Hop]:
        return [node.hop for node in self._cluster.locations(chunk, reader_host)]

    def _gateway_for(
        self, path: str, status: FileStatus, client_host: str | None, exclude: frozenset[str], offset: int
    ) -> Node:
        holders: list[Node] = []
        at = 0
        for chunk in namespace.layout(self._reader, status.inode):
            at += chunk.length
            if offset < at:
                holders = self._cluster.locations(chunk.chunk, client_host)
                break
        for node in [*holders, *self._cluster.members.alive()]:
            if node.http_name not in exclude:
                return node
        raise ChunkUnavailable(f"no datanode is alive to read {path} from")

    # -- in the background -------------------------------------------------------------------------

    async def reclaim(self) -> None:
        """Takes deleted trees apart in small commits, until none is left."""
        while self._to_reclaim:
            self._to_reclaim = False
            freed, more = await self._commit(lambda tx: reclaim_step(tx, reclaim_entries_per_commit))
            self._free(freed)
            self._to_reclaim = self._to_reclaim or more

    async def forget_answers(self) -> None:
        """Drops the answers that nobody can ask for again."""
        while await self._commit(lambda tx: forget_answers_step(tx, self._now_ms())):
            pass

    # ----------------------------------------------------------------------------------------------

    def _free(self, records: Sequence[ChunkRecord]) -> None:
        if records:
            self._send(self._cluster.freed(records))

    async def _until_ready(self) -> None:
        deadline_s = self._monotonic() + startup_hold_s
        while not self._cluster.ready(self._monotonic()):
            if self._monotonic() >= deadline_s:
                raise SafeMode("the coordinator has just started and still waits for its datanodes; try again")
            await self._sleep(_READY_POLL_S)

    def _now_ms(self) -> int:
        return int(self._wall_clock() * 1000)


def _replication(wanted: int) -> int:
    if not 0 <= wanted <= replication_max:
        raise BadRequest(f"replication {wanted} is out of range: 1 to {replication_max}")
    return wanted or replication_default


def _block_bytes(wanted: int) -> int:
    """Our chunk size for what the client calls block size: whole checksum blocks, within the limit."""
    if wanted < 0:
        raise BadRequest(f"block size {wanted} is negative")
    wanted = min(wanted or chunk_bytes_max, chunk_bytes_max)
    return max(checksum_block_bytes, wanted // checksum_block_bytes * checksum_block_bytes)
