"""Read files: issue tokens, and tell where the chunks are.

An open looks the file up once. Its chunks and length are those of one moment, and the token is bound to them. A
later request with the token never gets another file or another version.

Tokens are short-lived. A datanode accepts a token for `read_token_lifetime_s`. Then its holder must renew it here,
and the rights of its user are checked again (decision 29).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from peacefs.coordinator.cluster.membership import Node, State
from peacefs.coordinator.metadata.model import ROOT, FileChunk, InodeId, InodeKind, InodeStatus
from peacefs.coordinator.namespace import access_checks, snapshots
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import NamespacePath, parse_path
from peacefs.coordinator.namespace.permissions import Access
from peacefs.protocol.errors import (
    AccessDenied,
    ChunkUnavailable,
    FileChanged,
    FileNotFound,
    PathError,
    PathIsDirectory,
)
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import read_token_renewable_s
from peacefs.protocol.messages import ChunkLayout, Done, GetLayout, Hop, Layout, Replica, ReportCorrupt, Usage
from peacefs.protocol.tokens import ChunkRead, FileRead, FileVersion

from .context import OperationContext

# A read token lists the chunks of its file, or has their digest if there are more: it is part of a URL.
read_token_chunks_max: Final = 64


@dataclass(frozen=True, slots=True)
class OpenTicket:
    """The address to fetch the data from."""

    http_host: str
    http_port: int
    #: The token, with the layout of a file of one chunk, for which the datanode would otherwise have to ask.
    token: str
    length: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class BlockLocation:
    """A chunk, its place in its file, and its holders."""

    chunk: FileChunk
    offset: int
    nodes: list[Node]

    @property
    def length(self) -> int:
        return self.chunk.length


@dataclass(frozen=True, slots=True)
class FileLocations:
    """The chunks of a part of a file. `length` is the length of the whole file in bytes."""

    length: int
    blocks: list[BlockLocation]


class LocatedFile(NamedTuple):
    """A part of a file for a client of HDFS: where its chunks are, with tokens to read them."""

    status: InodeStatus
    #: The chunks that overlap the wanted range, each with its place in the file.
    chunks: list[tuple[int, ChunkLayout]]
    #: The file's last chunk and its place; None for an empty file.
    last: tuple[int, ChunkLayout] | None
    #: True while somebody writes the file.
    is_written: bool


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file that the caller may read, and its chunks, now or at the time of a snapshot."""

    path: str
    status: InodeStatus
    chunks: list[FileChunk]
    at_tx: int | None


class ReadOperations:
    """Issues tokens for opened files. A token's file stays the same whatever is renamed or replaced."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context

    async def open(
        self,
        path: str,
        user: str,
        client_host: str | None = None,
        exclude: frozenset[str] = frozenset(),
        offset: int = 0,
    ) -> OpenTicket:
        """Return a datanode near the reader, with a token to read the file as it is now."""
        file = await self._opened(path, user)
        chunks = file.chunks
        node = self._gateway_for(file.path, chunks, client_host, exclude, offset)
        at_tx, http = file.at_tx, node.registration
        places = self._places(chunks, http.data_host, first=node) if len(chunks) == 1 else None
        token = self._read_token(file.path, file.status.inode, user, _version(chunks), at_tx, places)
        length, block_bytes = file.status.length, file.status.block_bytes
        return OpenTicket(http.http_host, http.http_port, self._ctx.signer.sign(token), length, block_bytes)

    async def open_direct(self, path: str, user: str, client_host: str | None) -> tuple[str, Layout, InodeStatus]:
        """Open a file for our own client, which reads from datanodes itself. Return token, layout and status."""
        file = await self._opened(path, user)
        token = self._read_token(file.path, file.status.inode, user, _version(file.chunks), file.at_tx)
        layout = self._layout(token, self._places(file.chunks, client_host))
        return self._ctx.signer.sign(token), layout, file.status

    async def layout(self, wanted: GetLayout, reader_host: str | None) -> Layout:
        """Return where the chunks of the opened version are now, with a renewed token.

        With `wanted.held`, return this chunk only. Raises AccessDenied if the token's user may not read the file
        any more, TokenExpired, FileNotFound if the file was deleted, FileChanged if it was replaced or changed and
        the opened version is gone.
        """
        token = self._ctx.signer.verify_reader(wanted.token, self._ctx.wall_clock())
        await self._ctx.until_ready()
        renewed = self._renewed(token)
        if wanted.held:
            chunks = [self._held_chunk(token, wanted.held)]
        elif len(token.opened.chunks) == token.opened.count:
            chunks = [FileChunk(*each) for each in token.opened.chunks]
        else:
            chunks = self._chunks_opened(token)
        places = self._places(chunks, reader_host)
        if not all(place.replicas for place in places):
            self._check_unchanged(token, chunks)
        return replace(self._layout(renewed, places), token=self._ctx.signer.sign(renewed))

    def _renewed(self, token: FileRead) -> FileRead:
        """Check the rights of the token's user, and return the token with a new lifetime.

        A deleted or replaced file has no rights to check. A reader that has it open may read on until the token
        expires.
        """
        caller, reader = self._ctx.caller(token.user), self._ctx.reader
        try:
            if token.at_tx is None:
                access_checks.check_open_file(reader, token.inode, caller)
            else:
                # Rights inside a snapshot never change. Rights on the path to it may.
                access_checks.check_way_to_snapshots(reader, parse_path(token.path), caller)
                reader = reader.at(token.at_tx, ROOT)
            namespace.status_of_inode(reader, token.inode)
        except FileNotFound:
            if token.expires_s < self._ctx.wall_clock():
                self._check_not_replaced(token)
                raise
            return token
        return self._read_token(token.path, token.inode, token.user, token.opened, token.at_tx)

    def _held_chunk(self, token: FileRead, held: str) -> FileChunk:
        """Return a chunk that was opened, or that was part of the file when the reader got its layout."""
        chunk_token = self._ctx.signer.verify_even_late(held, ChunkRead)
        if chunk_token.inode != token.inode:
            raise AccessDenied("the chunk was given to a reader of another file")
        for each in token.opened.chunks:
            if each[0] == chunk_token.chunk:
                return FileChunk(*each)
        state = self._ctx.cluster.chunks.get(chunk_token.chunk)
        if state is None:
            raise self._changed(token)
        return FileChunk(state.chunk, state.version, state.length)

    async def report_corrupt(self, report: ReportCorrupt) -> Done:
        """Ask a datanode to check a chunk in which a reader found bad bytes."""
        replica = Replica(report.chunk, report.version, 0)
        self._ctx.perform(self._ctx.cluster.suspect_replica(report.node, replica))
        return Done()

    async def block_locations(self, path: str, user: str, offset: int, length: int) -> FileLocations:
        """Return the chunks that overlap a range of a file."""
        file = await self._opened(path, user)
        blocks = []
        at = 0
        for chunk in file.chunks:
            if at < offset + length and at + chunk.length > offset:
                blocks.append(BlockLocation(chunk, at, self._ctx.cluster.locations(chunk.chunk)))
            at += chunk.length
        return FileLocations(at, blocks)

    async def located(
        self, path: str, user: str, reader_host: str | None, offset: int, length: int
    ) -> LocatedFile:
        """Return the chunks that overlap a range of a file, nearest replicas first, with tokens to read them."""
        file = await self._opened(path, user)
        expires_s = self._ctx.wall_clock() + self._ctx.read_token_lifetime_s
        places: list[tuple[int, ChunkLayout]] = []
        at = 0
        for number, chunk in enumerate(file.chunks, 1):
            is_last = number == len(file.chunks)
            is_wanted = at < offset + length and at + chunk.length > offset
            if is_wanted or is_last:
                token = self._ctx.signer.sign(ChunkRead(expires_s, chunk.chunk, file.status.inode))
                places.append((at, replace(self._places([chunk], reader_host)[0], token=token)))
            at += chunk.length
        last = places[-1] if places else None
        if last is not None and not (last[0] < offset + length and at > offset):
            places.pop()
        is_written = file.at_tx is None and self._ctx.reader.lease(file.status.inode) is not None
        return LocatedFile(file.status, places, last, is_written)

    def chunk_token(self, chunk: ChunkId) -> str:
        """Return a token that names a chunk of no file, for a datanode that is asked to copy it and need not."""
        return self._ctx.signer.sign(ChunkRead(self._ctx.wall_clock() + self._ctx.read_token_lifetime_s, chunk))

    def space(self) -> Usage:
        """Return the space of the whole cluster. Each replica counts."""
        return self._ctx.cluster.members.space()

    async def _opened(self, path: str, user: str) -> OpenedFile:
        """Look up a file and its chunks. The caller must not await anything before it looks up the replicas."""
        parsed = parse_path(path)
        await self._ctx.under_construction.settle(parsed)
        if not self._ctx.is_ready:
            # Refuse a file that cannot be opened at once.
            look_up(self._ctx, path, parsed, user)
            await self._ctx.until_ready()
        opened = look_up(self._ctx, path, parsed, user)
        if await self._ctx.under_construction.flush(opened.status.inode):
            opened = look_up(self._ctx, path, parsed, user)
        if opened.at_tx is None:
            self._ctx.access_times.note(opened.status)
        return opened

    def _read_token(
        self,
        path: str,
        inode: InodeId,
        user: str,
        opened: FileVersion,
        at_tx: int | None,
        chunks: list[ChunkLayout] | None = None,
    ) -> FileRead:
        now_s = self._ctx.wall_clock()
        return FileRead(
            expires_s=now_s + self._ctx.read_token_lifetime_s,
            path=path,
            inode=inode,
            user=user,
            opened=opened,
            renewable_until_s=now_s + read_token_renewable_s,
            at_tx=at_tx,
            chunks=chunks,
        )

    def _layout(self, token: FileRead, places: Sequence[ChunkLayout]) -> Layout:
        """Make a layout. The chunks of this one look-up tell the length, because the file may change meanwhile."""
        sign = self._ctx.signer.sign
        chunks = [
            replace(place, token=sign(ChunkRead(token.expires_s, place.chunk, token.inode))) for place in places
        ]
        return Layout(sum(chunk.length for chunk in chunks), chunks)

    def _chunks_opened(self, token: FileRead) -> list[FileChunk]:
        """Return the chunks of a file that has too many for its token. If the file was extended since, leave out
        the new ones.
        """
        chunks = self._references(token)[: token.opened.count]
        if _version(chunks) != token.opened:
            raise self._changed(token)
        return chunks

    def _check_unchanged(self, token: FileRead, chunks: Sequence[FileChunk]) -> None:
        """Raise FileChanged if the file has changed since it was opened, rather than lost its replicas."""
        known = {reference.chunk for reference in self._references(token)}
        if not known.issuperset(chunk.chunk for chunk in chunks):
            raise self._changed(token)

    def _references(self, token: FileRead) -> list[FileChunk]:
        """Return the present chunks of a token's file. Raises FileNotFound, FileChanged."""
        reader = self._ctx.reader if token.at_tx is None else self._ctx.reader.at(token.at_tx, ROOT)
        try:
            namespace.status_of_inode(reader, token.inode)
        except FileNotFound:
            self._check_not_replaced(token)
            raise
        return namespace.layout(reader, token.inode)

    def _check_not_replaced(self, token: FileRead) -> None:
        """Raise FileChanged if another file has replaced the deleted one."""
        try:
            place = snapshots.locate(self._ctx.reader, parse_path(token.path))
            namespace.status(place.reader, place.path)
        except PathError:
            return
        raise self._changed(token)

    @staticmethod
    def _changed(token: FileRead) -> FileChanged:
        return FileChanged(f"{token.path} was changed or replaced since it was opened; open it again")

    def _places(
        self, chunks: Sequence[FileChunk], reader_host: str | None, first: Node | None = None
    ) -> list[ChunkLayout]:
        """Return where the chunks are, without read tokens. The replica on `first` comes first."""
        return [
            ChunkLayout(chunk.chunk, chunk.version, chunk.length, "", self._hops(chunk.chunk, reader_host, first))
            for chunk in chunks
        ]

    def _hops(self, chunk: ChunkId, reader_host: str | None, first: Node | None) -> list[Hop]:
        nodes = self._ctx.cluster.locations(chunk, reader_host)
        return [node.hop for node in sorted(nodes, key=lambda node: node is not first)]

    def _gateway_for(
        self,
        path: str,
        chunks: Sequence[FileChunk],
        client_host: str | None,
        exclude: frozenset[str],
        offset: int,
    ) -> Node:
        holders: list[Node] = []
        at = 0
        for chunk in chunks:
            at += chunk.length
            if offset < at:
                holders = self._ctx.cluster.locations(chunk.chunk, client_host)
                break
        for nodes in (holders, self._ctx.cluster.members.all()):
            for node in nodes:
                if node.state is State.ALIVE and node.http_name not in exclude:
                    return node
        raise ChunkUnavailable(f"no datanode is alive to read {path} from")


def look_up(ctx: OperationContext, path: str, parsed: NamespacePath, user: str) -> OpenedFile:
    """Return a file that the user may read, now or in a snapshot.

    Raises FileNotFound, AccessDenied, PathIsDirectory.
    """
    caller = ctx.caller(user)
    access_checks.check_way_to_snapshots(ctx.reader, parsed, caller)
    place = snapshots.locate(ctx.reader, parsed)
    access_checks.check_file(place.reader, place.path, caller, Access.READ)
    status = namespace.status(place.reader, place.path)
    chunks = namespace.layout(place.reader, status.inode)
    if status.kind is InodeKind.DIRECTORY:
        raise PathIsDirectory(f"Path is not a file: {path}")
    assert sum(chunk.length for chunk in chunks) == status.length, f"{path} is not as long as its chunks"
    return OpenedFile(path, status, chunks, place.snapshot.at_tx if place.snapshot else None)


def _version(chunks: Sequence[FileChunk]) -> FileVersion:
    """Return the chunks in the form of a token."""
    told = [(chunk.chunk, chunk.version, chunk.length) for chunk in chunks]
    if len(told) <= read_token_chunks_max:
        return FileVersion(told, len(told))
    digest = hashlib.blake2b(msgspec.msgpack.encode(told), digest_size=16).digest()
    return FileVersion([], len(told), digest)
