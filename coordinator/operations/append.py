"""Extend files: take leases, and add chunks under them.

The lease is soft state (`leases`), but its number is committed. So a file has one writer at a time, and a writer
that lost its lease without knowing can add nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from peacefs.coordinator.metadata.model import Inode, InodeId, Lease
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import access_checks
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import NamespacePath
from peacefs.coordinator.namespace.permissions import Access
from peacefs.coordinator.namespace.resolution import check_writer
from peacefs.coordinator.namespace.snapshots import changeable_path
from peacefs.protocol.errors import LeaseExpired, NoDatanodes, PeacefsError
from peacefs.protocol.ids import ChunkId, NodeId, new_request_id
from peacefs.protocol.limits import read_token_renewable_s, write_token_lifetime_s
from peacefs.protocol.messages import AbandonLease, Done, FlushFile, Leased, RenewLease, TakeLease, WrittenChunk
from peacefs.protocol.tokens import FileAppend, FileLease, FileWrite

from .context import OperationContext
from .leases import Leases
from .placement import ChunkPlacer

log = logging.getLogger("peacefs.coordinator")


@dataclass(frozen=True, slots=True)
class AppendFile:
    """A stock client's request. `exclude` lists datanodes, as host:port, that the client could not reach."""

    path: str
    user: str
    client_host: str | None = None
    exclude: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AppendTicket:
    """The address to send the data to, with a token to take the lease there."""

    http_host: str
    http_port: int
    token: str


class AppendOperations:
    """Appends to files. The lease is taken when the data arrives, so a client that only asks blocks nobody."""

    def __init__(self, context: OperationContext, placer: ChunkPlacer, leases: Leases) -> None:
        self._ctx = context
        self._placer = placer
        self._leases = leases

    async def append(self, wanted: AppendFile) -> AppendTicket:
        """Return a datanode near the writer. Raises FileNotFound, FileAlreadyExists, NoDatanodes."""
        path = changeable_path(wanted.path)
        await self._ctx.under_construction.settle(path)
        file = self._file_to_extend(path, wanted.user)
        # Refuse a second writer at once. The datanode that receives the data takes the lease.
        self._check_free(path, file.inode, wanted.user)
        await self._ctx.until_ready()
        token = FileAppend(
            expires_s=self._ctx.wall_clock() + write_token_lifetime_s,
            path=str(path),
            user=wanted.user,
            block_bytes=file.block_bytes,
            replication=file.replication,
        )
        alive = [node for node in self._ctx.cluster.members.alive() if node.http_name not in wanted.exclude]
        if not alive:
            raise NoDatanodes(f"no datanode is alive to append to {path} through")
        near = [node for node in alive if node.registration.data_host == wanted.client_host]
        gateway = (near or alive)[self._ctx.numbering.next() % len(near or alive)]
        return AppendTicket(
            gateway.registration.http_host, gateway.registration.http_port, self._ctx.signer.sign(token)
        )

    async def take_lease(self, wanted: TakeLease, writer_host: str | None, link: NodeId | None = None) -> Leased:
        """Take the lease for the holder of a token of `append`: a gateway of `link`. Raises as `extend` does."""
        token = self._ctx.signer.verify(wanted.token, FileAppend, self._ctx.wall_clock())
        return await self.extend(token.path, token.user, wanted.holder, writer_host, link)

    async def extend(
        self, path: str, user: str, holder: str, writer_host: str | None, link: NodeId | None = None
    ) -> Leased:
        """Give `holder` the lease of a file that `user` may write, and a first chunk.

        Raises FileNotFound, FileAlreadyExists for a directory, AccessDenied, AlreadyBeingCreated, NoDatanodes.
        """
        parsed, file, recorded = await self._free_to_extend(path, user, holder)
        lease = Lease(self._ctx.numbering.next(), holder)
        writer = writer_under(lease)
        allocated, _head = self._placer.place(file.replication, writer_host, frozenset(), writer)
        leased = await self._take(parsed, file.inode, lease, recorded, link)
        token = self.lease_token(str(parsed), leased.inode, lease, leased.replication, new_request_id())
        return Leased(token, allocated, leased.length, leased.block_bytes, leased.replication)

    async def lease_file(self, path: str, user: str, holder: str) -> tuple[Inode, Lease]:
        """Give `holder` the lease of a file as `extend` does, without a chunk. Return the file and the lease."""
        parsed, file, recorded = await self._free_to_extend(path, user, holder)
        lease = Lease(self._ctx.numbering.next(), holder)
        return await self._take(parsed, file.inode, lease, recorded), lease

    async def renumber(self, inode: InodeId, lease: Lease) -> Lease:
        """Give the holder of a lease another number, so that nobody publishes anything with the first one.

        Raises LeaseExpired.
        """
        renumbered = Lease(self._ctx.numbering.next(), lease.holder)

        def change(tx: Transaction) -> None:
            if tx.lease(inode) != lease:
                raise LeaseExpired(f"Client (={lease.holder}) is not the lease owner any more (inode {inode})")
            tx.set_lease(inode, renumbered)

        await self._ctx.commit(change)
        self._leases.hold(self._ctx.monotonic(), inode, renumbered)
        return renumbered

    async def _free_to_extend(
        self, path: str, user: str, holder: str
    ) -> tuple[NamespacePath, Inode, Lease | None]:
        """Return the path of a file that `user` may extend, the file, and the lease that is on record."""
        parsed = changeable_path(path)
        await self._ctx.under_construction.settle(parsed)
        await self._ctx.until_ready()
        file = self._file_to_extend(parsed, user)
        return parsed, file, self._check_free(parsed, file.inode, holder)

    async def _take(
        self,
        path: NamespacePath,
        inode: InodeId,
        lease: Lease,
        recorded: Lease | None,
        link: NodeId | None = None,
    ) -> Inode:
        """Commit a lease, and return the file."""
        # Hold the lease from here on, so that nobody else takes it during the commit.
        self._leases.hold(self._ctx.monotonic(), inode, lease, link)
        try:
            leased = await self._ctx.commit(lambda tx: namespace.take_lease(tx, path, inode, lease))
        except PeacefsError:
            self._leases.release(inode, lease)
            raise
        if recorded is not None and recorded.holder != lease.holder:
            log.warning(
                "%s has taken over the lease of %s from %s, which stopped renewing it",
                lease.holder,
                path,
                recorded.holder,
            )
        return leased

    def _check_free(self, path: NamespacePath, inode: InodeId, holder: str) -> Lease | None:
        """Raise AlreadyBeingCreated if another holder has the lease. Return the lease on record."""
        recorded = self._ctx.reader.lease(inode)
        what = f"APPEND_FILE {path} for {holder}"
        self._leases.check_free(self._ctx.monotonic(), inode, recorded, holder, what)
        return recorded

    def lease_token(self, path: str, inode: InodeId, lease: Lease, replication: int, request_id: str) -> str:
        return self._ctx.signer.sign(self.permit(path, inode, lease, replication, request_id))

    def permit(self, path: str, inode: InodeId, lease: Lease, replication: int, request_id: str) -> FileLease:
        """Return the token of a lease, not signed."""
        return FileLease(
            expires_s=self._ctx.wall_clock() + write_token_lifetime_s,
            path=path,
            inode=inode,
            number=lease.number,
            holder=lease.holder,
            replication=replication,
            request_id=request_id,
        )

    def _file_to_extend(self, path: NamespacePath, user: str) -> Inode:
        access_checks.check_file(self._ctx.reader, path, self._ctx.caller(user), Access.WRITE)
        check_writer(self._ctx.reader, path)
        inode = namespace.check_append(self._ctx.reader, path)
        namespace.check_extension(self._ctx.reader, inode.inode, 0)
        return inode

    async def renew(self, wanted: RenewLease, link: NodeId | None = None) -> Done:
        """Renew the lease of a token. Raises LeaseExpired."""
        self.renew_lease(self._ctx.signer.verify(wanted.token, FileLease, self._ctx.wall_clock()), link)
        return Done()

    async def abandon(self, wanted: AbandonLease) -> Done:
        """End the lease and leave the file as it is."""
        token = self._ctx.signer.verify(wanted.token, FileLease, self._ctx.wall_clock())
        lease = _lease(token)
        await self._ctx.commit(lambda tx: namespace.abandon_lease(tx, token.inode, lease))
        self._leases.release(token.inode, lease)
        writer, core = writer_of(token), self._ctx.core
        self._ctx.perform(core.abandon(core.cluster.assignments.chunks_of(writer), writer))
        return Done()

    def renew_lease(self, token: FileLease, link: NodeId | None = None) -> None:
        """Note a sign of life of the lease's holder, over `link` if it is a gateway. Raises LeaseExpired."""
        recorded = self._ctx.reader.lease(token.inode)
        self._leases.renew(self._ctx.monotonic(), token.inode, _lease(token), recorded, link)

    async def recover_lease(self, path: str, user: str) -> bool:
        """End the lease of a file whose writer is dead; a writer that still lives can write no more.

        Return True, because recovery is immediate. The file ends where the last completed append or flush ended.
        Raises FileNotFound, AccessDenied and other errors of `namespace`.
        """
        parsed, caller = changeable_path(path), self._ctx.caller(user)
        await self._ctx.under_construction.settle(parsed)

        def change(tx: Transaction) -> InodeId:
            access_checks.check_file(tx, parsed, caller, Access.WRITE)
            inode = namespace.existing_file(tx, parsed).inode
            tx.drop_lease(inode)
            return inode

        self._leases.forget(await self._ctx.commit(change))
        return True

    async def complete(
        self, token: FileLease, chunks: Sequence[WrittenChunk], replaced: Sequence[ChunkId]
    ) -> namespace.Publication:
        """Add the chunks to the file and end the lease, in one commit. Raises LeaseExpired."""
        lease = _lease(token)
        publication = await self._add(
            namespace.AppendToComplete(token.path, token.inode, lease, token.request_id, chunks, replaced)
        )
        self._leases.release(token.inode, lease)
        return publication

    async def flush(
        self, token: FileLease, wanted: FlushFile, link: NodeId | None = None
    ) -> tuple[str, namespace.Publication]:
        """Add the chunks to the file. The writer keeps its lease and gets a token with a new lifetime."""
        lease = _lease(token)
        publication = await self._add(
            namespace.AppendToComplete(
                token.path, token.inode, lease, wanted.request_id, wanted.chunks, wanted.replaced, keeps_lease=True
            )
        )
        self.renew_lease(token, link)
        return self.lease_token(token.path, token.inode, lease, token.replication, token.request_id), publication

    async def _add(self, wanted: namespace.AppendToComplete) -> namespace.Publication:
        """Commit the chunks. Replaced chunks are deleted when the layouts of present readers have expired."""

        def change(tx: Transaction) -> namespace.Publication:
            publication = namespace.complete_append(tx, wanted, self._ctx.now_ms())
            for record in publication.freed:
                tx.keep_chunk(record.chunk, int(read_token_renewable_s * 1000))
            return publication

        publication = await self._ctx.commit(change)
        self._ctx.perform(self._ctx.core.replaced(self._ctx.monotonic(), publication.freed))
        return replace(publication, freed=[])

    def beginning(self, lease: Lease) -> AbstractContextManager[None]:
        """Reserve the lease of a file that is published while it is written, until `hold` is called."""
        return self._leases.beginning(lease)

    def hold(self, inode: InodeId, lease: Lease, link: NodeId | None = None) -> None:
        """Record the lease of a file that was published while it is being written."""
        self._leases.hold(self._ctx.monotonic(), inode, lease, link)


def writer_of(token: FileWrite | FileLease) -> str:
    """Return the name of the writer that owns a token. Chunks are assigned to this name."""
    return writer_under(_lease(token)) if isinstance(token, FileLease) else writer_with(token.request_id)


def writer_with(request_id: str) -> str:
    """Return the name of the writer that writes a new file under this request id."""
    return f"request {request_id}"


def writer_under(lease: Lease) -> str:
    """Return the name of the writer under a lease. Chunks are assigned to this name."""
    return f"lease {lease.number}"


def _lease(token: FileLease) -> Lease:
    return Lease(token.number, token.holder)
