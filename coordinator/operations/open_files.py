"""Files that HDFS clients write: created under a lease, and extended block by block.

A file is visible, and empty, as soon as it is created. A datanode publishes what the client sends (decision 82).
So the metadata always has the file's length, and the end of a block or file adds nothing. The lease on record says
who writes a file. This module keeps only soft state: who asked for which block, and under which lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from peacefs.coordinator.metadata.model import Inode, InodeId, InodeKind, InodeStatus, Lease, status_as
from peacefs.coordinator.namespace import access_checks
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.append import check_chunk_count
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Access
from peacefs.coordinator.namespace.resolution import follow
from peacefs.protocol.errors import AlreadyBeingCreated, FileNotFound, LeaseExpired, NoDatanodes
from peacefs.protocol.ids import ChunkId, NodeId, new_request_id
from peacefs.protocol.limits import write_token_lifetime_s
from peacefs.protocol.messages import Allocated, Hop
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import BlockWrite

from .append import AppendOperations, writer_under
from .context import OperationContext
from .placement import ChunkPlacer
from .write import WriteOperations

# How many open files are remembered. Blocks of older ones cannot be recovered.
open_files_max: Final = 50_000
# How many of the last blocks of a file can be recovered.
open_blocks_max: Final = 16
# Maximum number of chunks in which a datanode looks for bytes that a dead datanode had acknowledged.
begun_chunks_max: Final = 16


class NewBlock(NamedTuple):
    """A block to write: its pipeline, and the token that permits writing."""

    allocated: Allocated
    #: The offset of the block in its file.
    offset: int
    token: str
    replication: int


@dataclass(slots=True)
class _Open:
    """A file that is open for writing, as this coordinator knows it."""

    path: str
    user: str
    lease: Lease
    #: The id of the call that opened the file, to recognize a retry.
    request_id: str
    #: The offsets of the last blocks.
    blocks: dict[ChunkId, int] = field(default_factory=dict)
    #: The file's length when a datanode failed, and the unpublished chunks that were begun at that length.
    begun_at: int = 0
    begun: list[ChunkId] = field(default_factory=list)


class OpenFiles:
    """The open files of all HDFS clients. Used from one event loop only.

    `holder` is the name of a client, which may write several files.
    """

    def __init__(
        self, context: OperationContext, placer: ChunkPlacer, appending: AppendOperations, writing: WriteOperations
    ) -> None:
        self._ctx = context
        self._placer = placer
        self._appending = appending
        self._writing = writing
        #: Longest open first.
        self._open: dict[InodeId, _Open] = {}
        self._of_holder: dict[str, set[InodeId]] = {}
        self._of_block: dict[ChunkId, InodeId] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def create(self, file: NewFile, holder: str) -> InodeStatus:
        """Create an empty file, or replace one, and open it for writing. Raises what `create_leased` does."""
        inode, lease = await self._writing.create_leased(file, holder)
        self._begin(inode, _Open(file.path, file.user, lease, file.request_id))
        return namespace.status_of_inode(self._ctx.reader, inode)

    async def append(self, path: str, user: str, holder: str, request_id: str) -> InodeStatus:
        """Open a file to extend it. Raises what `AppendOperations.extend` does."""
        way = follow(self._ctx.reader, parse_path(path))
        known = self._open.get(way.last) if way.is_whole else None
        is_written = known is not None and self._ctx.reader.lease(way.last) == known.lease
        if known is not None and is_written and known.lease.holder == holder and known.request_id != request_id:
            # As in HDFS, a client cannot open a file for writing twice.
            raise AlreadyBeingCreated(
                f"Failed to APPEND_FILE {path} for {holder} because it is already the current lease holder"
            )
        file, lease = await self._appending.lease_file(path, user, holder)
        self._begin(file.inode, _Open(path, user, lease, request_id))
        return status_as("", file)

    async def add_block(
        self,
        path: str,
        inode: InodeId,
        user: str,
        holder: str,
        host: str | None,
        exclude: frozenset[NodeId] = frozenset(),
    ) -> NewBlock:
        """Place the next block of a file, for a writer on `host`. `inode` is 0 if the client does not tell it.

        Raises FileNotFound, LeaseExpired, QuotaExceeded, NoDatanodes.
        """
        file, opened = self._leased(path, inode, user, holder)
        await self._ctx.until_ready()
        self._renew(file.inode, opened.lease)
        namespace.check_extension(self._ctx.reader, file.inode, 0)
        check_chunk_count(path, len(namespace.layout(self._ctx.reader, file.inode)) + 1)
        lease_token = self._lease_token(opened, file)
        allocated, _head = self._placer.place(file.replication, host, exclude, writer_under(opened.lease))
        self._note_block(file.inode, opened, allocated.chunk, file.length)
        return self._block(file, allocated, lease_token, file.length, published=0)

    async def recover_block(self, block: ChunkId, user: str, holder: str, host: str | None) -> NewBlock:
        """Place a block again after the datanode that the client writes through has failed.

        From now on, the former datanode cannot publish anything. Raises LeaseExpired, NoDatanodes.
        """
        inode = self._of_block.get(block)
        opened = None if inode is None else self._open.get(inode)
        if inode is None or opened is None or opened.lease.holder != holder:
            raise LeaseExpired(f"No block {block} is being written by {holder}: its file must be written again")
        self._check_user(opened, user)
        await self._ctx.until_ready()
        begun = self._ctx.cluster.assignments.chunks_of(writer_under(opened.lease))
        opened.lease = await self._appending.renumber(inode, opened.lease)
        file = self._file(inode, opened.path)
        earlier = opened.begun if opened.begun_at == file.length else []
        opened.begun_at, opened.begun = file.length, [*earlier, *begun][-begun_chunks_max:]
        start = opened.blocks.get(block, file.length)
        lease_token = self._lease_token(opened, file)
        allocated, _head = self._placer.place(file.replication, host, frozenset(), writer_under(opened.lease))
        return self._block(
            file,
            allocated,
            lease_token,
            start,
            published=max(0, file.length - start),
            block=block,
            unpublished=opened.begun,
        )

    def more_datanodes(self, exclude: frozenset[NodeId], count: int) -> list[Hop]:
        """Return live datanodes besides those of a pipeline. Raises NoDatanodes."""
        found = [node.hop for node in self._ctx.cluster.members.in_service() if node.id not in exclude]
        if not found:
            raise NoDatanodes("no further datanode is alive")
        return found[:count]

    async def abandon_block(self, block: ChunkId, user: str, holder: str) -> None:
        """Give back a block to which nothing was written. Does nothing if the holder has no such block.

        Raises LeaseExpired if another user writes the file.
        """
        inode = self._of_block.get(block)
        opened = None if inode is None else self._open.get(inode)
        if inode is None or opened is None or opened.lease.holder != holder:
            return
        self._check_user(opened, user)
        self._of_block.pop(block)
        opened.blocks.pop(block, None)
        self._ctx.perform(self._ctx.core.abandon([block], writer_under(opened.lease)))

    async def complete(self, path: str, inode: InodeId, user: str, holder: str, request_id: str) -> bool:
        """End the lease of a file. Return True, because all acknowledged bytes are published.

        Raises FileNotFound, LeaseExpired.
        """
        reader = self._ctx.reader
        if request_id and reader.answer(request_id) is not None:
            return True
        file, opened = self._leased(path, inode, user, holder)
        token = self._appending.permit(path, file.inode, opened.lease, file.replication, request_id)
        await self._appending.complete(token, [], [])
        writer, core = writer_under(opened.lease), self._ctx.core
        self._ctx.perform(core.abandon(core.cluster.assignments.chunks_of(writer), writer))
        self._end(file.inode)
        return True

    async def sync(self, path: str, inode: InodeId, user: str, holder: str) -> None:
        """Renew the lease of a writer that has flushed. Flushed bytes are durable already.

        Raises FileNotFound, LeaseExpired.
        """
        file, opened = self._leased(path, inode, user, holder)
        self._renew(file.inode, opened.lease)

    async def renew(self, holder: str) -> None:
        """Renew the leases of all files that a client writes. Lapsed ones are forgotten."""
        for inode in list(self._of_holder.get(holder) or self._ctx.reader.leases_of(holder)):
            opened = self._open.get(inode)
            lease = self._ctx.reader.lease(inode) if opened is None else opened.lease
            if lease is None or lease.holder != holder:
                self._forget(holder, inode)
                continue
            try:
                self._renew(inode, lease)
            except LeaseExpired:
                self._end(inode)

    def is_closed(self, inode: InodeId) -> bool:
        """Return whether nobody has the lease of the file."""
        return self._ctx.reader.lease(inode) is None

    # -- what is open ----------------------------------------------------------------------------------

    def _leased(self, path: str, inode: InodeId, user: str, holder: str) -> tuple[Inode, _Open]:
        """Return a file whose lease `holder` has, and its state. Raises FileNotFound, LeaseExpired."""
        if not inode:
            way = follow(self._ctx.reader, parse_path(path))
            if not way.is_whole:
                raise FileNotFound(f"File does not exist: {path}")
            inode = way.last
        file = self._file(inode, path)
        recorded = self._ctx.reader.lease(inode)
        if recorded is None:
            self._end(inode)
            raise LeaseExpired(f"No lease on {path} (inode {inode}). {holder} does not have any open files.")
        if recorded.holder != holder:
            raise LeaseExpired(f"{path} (inode {inode}): the lease belongs to {recorded.holder}, not to {holder}")
        opened = self._open.get(inode)
        if opened is None or opened.lease != recorded:
            # Another coordinator led when the file was opened.
            access_checks.check_access(self._ctx.reader, parse_path(path), self._ctx.caller(user), Access.WRITE)
            opened = _Open(path, user, recorded, "")
            self._begin(inode, opened)
        self._check_user(opened, user)
        return file, opened

    @staticmethod
    def _check_user(opened: _Open, user: str) -> None:
        if opened.user != user:
            raise LeaseExpired(f"{opened.path} is being written by {opened.user}, not by {user}")

    def _file(self, inode: InodeId, path: str) -> Inode:
        file = self._ctx.reader.inode(inode)
        if file is None or not self._ctx.reader.is_in_tree(inode):
            raise FileNotFound(f"File does not exist: {path} (inode {inode})")
        if file.kind is InodeKind.DIRECTORY:
            raise FileNotFound(f"Path is not a file: {path}")
        return file

    def _renew(self, inode: InodeId, lease: Lease) -> None:
        recorded = self._ctx.reader.lease(inode)
        self._ctx.leases.renew(self._ctx.monotonic(), inode, lease, recorded)

    def _begin(self, inode: InodeId, opened: _Open) -> None:
        self._end(inode)
        self._open[inode] = opened
        self._known_of(opened.lease.holder).add(inode)
        if len(self._open) > open_files_max:
            self._end(next(iter(self._open)))

    def _end(self, inode: InodeId) -> None:
        opened = self._open.pop(inode, None)
        if opened is None:
            return
        for block in opened.blocks:
            self._of_block.pop(block, None)
        self._forget(opened.lease.holder, inode)

    def _known_of(self, holder: str) -> set[InodeId]:
        """Return the files that a client writes, including files that it opened at another coordinator."""
        known = self._of_holder.get(holder)
        if known is None:
            is_new = self._ctx.leases.respects_record(self._ctx.monotonic())
            known = set(self._ctx.reader.leases_of(holder)) if is_new else set()
            self._of_holder[holder] = known
        return known

    def _forget(self, holder: str, inode: InodeId) -> None:
        known = self._of_holder.get(holder, set())
        known.discard(inode)
        if not known:
            self._of_holder.pop(holder, None)

    def _note_block(self, inode: InodeId, opened: _Open, block: ChunkId, start: int) -> None:
        opened.blocks[block] = start
        self._of_block[block] = inode
        if len(opened.blocks) > open_blocks_max:
            first = next(iter(opened.blocks))
            del opened.blocks[first]
            self._of_block.pop(first, None)

    # -- tokens ----------------------------------------------------------------------------------------

    def _lease_token(self, opened: _Open, file: Inode) -> str:
        return self._appending.lease_token(
            opened.path, file.inode, opened.lease, file.replication, new_request_id()
        )

    def _block(
        self,
        file: Inode,
        allocated: Allocated,
        lease_token: str,
        offset: int,
        *,
        published: int,
        block: ChunkId | None = None,
        unpublished: Sequence[ChunkId] = (),
    ) -> NewBlock:
        token = BlockWrite(
            expires_s=self._ctx.wall_clock() + write_token_lifetime_s,
            lease=lease_token,
            block=allocated.chunk if block is None else block,
            version=allocated.version,
            file_block_bytes=file.block_bytes,
            allocated=allocated,
            published=published,
            unpublished=list(unpublished),
        )
        return NewBlock(allocated, offset, self._ctx.signer.sign(token), file.replication)
