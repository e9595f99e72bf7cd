"""Reading files: leave to read, and where the chunks are.

Leave is short: a datanode takes a token for `read_token_lifetime_s`, then its bearer comes here, and the rights of
the user whom it was given to are looked at again (decision 29).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from peacefs.coordinator.cluster.membership import Node, State
from peacefs.coordinator.metadata.model import FileChunk, FileStatus, InodeId, Kind
from peacefs.coordinator.metadata.store import ROOT
from peacefs.coordinator.namespace import access_checks, snapshots
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Access
from peacefs.protocol.errors import AccessDenied, ChunkUnavailable, FileNotFound, PathIsDirectory
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import read_token_renewable_s
from peacefs.protocol.messages import ChunkLayout, Done, GetLayout, Hop, Layout, Replica, ReportCorrupt, Usage
from peacefs.protocol.tokens import ChunkRead, FileRead

from .context import Workplace


@dataclass(frozen=True, slots=True)
class OpenTicket:
    """Where to fetch the data."""

    http_host: str
    http_port: int
    #: With the layout of a file of one chunk; the datanode would have to ask for it.
    token: str
    length: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class BlockLocation:
    """A chunk, its place in its file, and who holds it."""

    chunk: FileChunk
    offset: int
    nodes: list[Node]

    @property
    def length(self) -> int:
        return self.chunk.length


@dataclass(frozen=True, slots=True)
class FileLocations:
    """The chunks of a part of a file, which has `length` bytes in all."""

    length: int
    blocks: list[BlockLocation]


@dataclass(frozen=True, slots=True)
class _ReadableFile:
    """A file that the caller may read, and where it was found: now, or in a snapshot."""

    path: str
    status: FileStatus
    place: snapshots.Place

    @property
    def at_tx(self) -> int | None:
        return self.place.snapshot.at_tx if self.place.snapshot else None

    def chunks(self) -> list[FileChunk]:
        return namespace.layout(self.place.reader, self.status.inode)


class Reading:
    """A reader gets a token for the inode, so that what it opened stays what it reads, whatever is renamed."""

    def __init__(self, workplace: Workplace) -> None:
        self._at = workplace

    async def open(
        self,
        path: str,
        user: str,
        client_host: str | None = None,
        exclude: frozenset[str] = frozenset(),
        offset: int = 0,
    ) -> OpenTicket:
        """A datanode near the reader, and leave to read the file as it is now."""
        file = self._readable_file(path, user)
        await self._at.until_ready()
        chunks = file.chunks()
        node = self._gateway_for(file.path, chunks, client_host, exclude, offset)
        at_tx, http = file.at_tx, node.registration
        places = self._places(chunks, http.data_host, first=node) if len(chunks) == 1 else None
        token = self._read_token(file.path, file.status.inode, user, at_tx, places)
        length, block_bytes = file.status.length, file.status.block_bytes
        return OpenTicket(http.http_host, http.http_port, self._at.signer.sign(token), length, block_bytes)

    async def open_direct(self, path: str, user: str, client_host: str | None) -> tuple[str, Layout, FileStatus]:
        """For our own client, which reads from datanodes itself: the token, the layout, the status."""
        file = self._readable_file(path, user)
        await self._at.until_ready()
        token = self._read_token(file.path, file.status.inode, user, file.at_tx)
        layout = self._layout(token, self._places(file.chunks(), client_host))
        return self._at.signer.sign(token), layout, file.status

    async def layout(self, wanted: GetLayout, reader_host: str | None) -> Layout:
        """Where the chunks of an open file are now, and its token renewed.

        Raises AccessDenied if its user may not read it any more, FileNotFound, TokenExpired.
        """
        token = self._at.signer.verify_reader(wanted.token, self._at.wall_clock())
        await self._at.until_ready()
        chunks = self._chunks_of_open_file(token)
        if wanted.held:
            chunks = [self._held_chunk(token, wanted.held)]
        renewed = self._read_token(token.path, token.inode, token.user, token.at_tx)
        layout = self._layout(renewed, self._places(chunks, reader_host))
        return replace(layout, token=self._at.signer.sign(renewed))

    def _chunks_of_open_file(self, token: FileRead) -> list[FileChunk]:
        caller, reader = self._at.callers.of(token.user), self._at.reader
        with reader.view():
            if token.at_tx is None:
                access_checks.check_open_file(reader, token.inode, caller)
            else:
                # What rights are in a snapshot nobody changes; those on the way to it may be.
                access_checks.check_way_to_snapshots(reader, parse_path(token.path), caller)
                reader = reader.at(token.at_tx, ROOT)
            namespace.status_of_inode(reader, token.inode)
            return namespace.layout(reader, token.inode)

    def _held_chunk(self, token: FileRead, held: str) -> FileChunk:
        """A chunk that belongs to the file, or did when the reader was told of it."""
        leave = self._at.signer.verify_even_late(held, ChunkRead)
        if leave.inode != token.inode:
            raise AccessDenied("the chunk was given to a reader of another file")
        state = self._at.cluster.chunks.get(leave.chunk)
        if state is None:
            raise FileNotFound("the file was replaced while it was being read")
        return FileChunk(state.chunk, state.version, state.length)

    async def report_corrupt(self, report: ReportCorrupt) -> Done:
        """A reader met bad bytes; the datanode is asked to check."""
        replica = Replica(report.chunk, report.version, 0)
        self._at.send(self._at.cluster.suspect_replica(report.node, replica))
        return Done()

    async def block_locations(self, path: str, user: str, offset: int, length: int) -> FileLocations:
        """The chunks that overlap a range of a file."""
        file = self._readable_file(path, user)
        await self._at.until_ready()
        blocks = []
        at = 0
        for chunk in file.chunks():
            if at < offset + length and at + chunk.length > offset:
                blocks.append(BlockLocation(chunk, at, self._at.cluster.locations(chunk.chunk)))
            at += chunk.length
        return FileLocations(at, blocks)

    def space(self) -> Usage:
        """Of the whole cluster, replicas counted one by one."""
        return self._at.cluster.members.space()

    def _readable_file(self, path: str, user: str) -> _ReadableFile:
        parsed, caller = parse_path(path), self._at.callers.of(user)
        with self._at.reader.view():
            access_checks.check_way_to_snapshots(self._at.reader, parsed, caller)
            place = snapshots.locate(self._at.reader, parsed)
            access_checks.check_access(place.reader, place.path, caller, Access.READ)
            status = namespace.status(place.reader, place.path)
        if status.kind is Kind.DIRECTORY:
            raise PathIsDirectory(f"Path is not a file: {path}")
        return _ReadableFile(path, status, place)

    def _read_token(
        self, path: str, inode: InodeId, user: str, at_tx: int | None, chunks: list[ChunkLayout] | None = None
    ) -> FileRead:
        now_s = self._at.wall_clock()
        expires_s, renewable_until_s = now_s + self._at.read_token_lifetime_s, now_s + read_token_renewable_s
        return FileRead(expires_s, path, inode, user, renewable_until_s, at_tx, chunks)

    def _layout(self, token: FileRead, places: Sequence[ChunkLayout]) -> Layout:
        """The chunks, of one look-up, tell the length too: the file may be extended or cut meanwhile."""
        sign = self._at.signer.sign
        chunks = [
            replace(place, token=sign(ChunkRead(token.expires_s, place.chunk, token.inode))) for place in places
        ]
        return Layout(sum(chunk.length for chunk in chunks), chunks)

    def _places(
        self, chunks: Sequence[FileChunk], reader_host: str | None, first: Node | None = None
    ) -> list[ChunkLayout]:
        """Where the chunks are, without leave to read them; the replica on `first` comes first."""
        return [
            ChunkLayout(chunk.chunk, chunk.version, chunk.length, "", self._hops(chunk.chunk, reader_host, first))
            for chunk in chunks
        ]

    def _hops(self, chunk: ChunkId, reader_host: str | None, first: Node | None) -> list[Hop]:
        nodes = self._at.cluster.locations(chunk, reader_host)
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
                holders = self._at.cluster.locations(chunk.chunk, client_host)
                break
        for nodes in (holders, self._at.cluster.members.all()):
            for node in nodes:
                if node.state is State.ALIVE and node.http_name not in exclude:
                    return node
        raise ChunkUnavailable(f"no datanode is alive to read {path} from")
