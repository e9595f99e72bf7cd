"""Write files: place chunks, and publish what was written in one commit."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec.structs import replace

from peacefs.coordinator.limits import unconfirmed_replica_kept_s
from peacefs.coordinator.metadata.model import InodeId, InodeKind, Lease
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import access_checks
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.create import checked_replication
from peacefs.coordinator.namespace.paths import NamespacePath, parse_path
from peacefs.coordinator.namespace.resolution import check_writer, follow
from peacefs.coordinator.namespace.retry_cache import check_request_id
from peacefs.coordinator.namespace.snapshots import changeable_path
from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    ChunkUnavailable,
    FileAlreadyExists,
    NoDatanodes,
    PeacefsError,
    ServiceUnready,
)
from peacefs.protocol.ids import ChunkId, NodeId, epoch_of, new_request_id, show
from peacefs.protocol.limits import (
    heartbeat_interval_s,
    kept_chunks_per_call,
    unreferenced_chunk_kept_s,
    write_token_lifetime_s,
)
from peacefs.protocol.messages import (
    AllocateChunk,
    Allocated,
    Completed,
    CompleteFile,
    Done,
    Flushed,
    FlushFile,
    KeepChunks,
    PublishFile,
    WrittenChunk,
)
from peacefs.protocol.new_file import NewFile, possible_block_bytes
from peacefs.protocol.tokens import ChunkWrite, FileLease, FileWrite
from peacefs.protocol.values.write_classes import parse_write_class

from .append import AppendOperations, writer_of, writer_with
from .context import OperationContext
from .placement import ChunkPlacer, check_room
from .write_grants import WriteGrantService

# Seconds for which a completion waits until a datanode with a receipt registers with a coordinator that has
# restarted.
receipt_holder_timeout_s: Final = 20.0

log = logging.getLogger("peacefs.coordinator")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CreateTicket:
    """The address to send the data to: for HTTP, the first chunk's head and all that it needs."""

    http_host: str
    http_port: int
    token: str
    allocated: Allocated
    #: The block size of the file.
    block_bytes: int


class WriteOperations:
    """Writes files. Commits nothing before the completion; until then a file exists only as its writer's token."""

    def __init__(
        self,
        context: OperationContext,
        placer: ChunkPlacer,
        appending: AppendOperations,
        schedule: WriteGrantService,
    ) -> None:
        self._ctx = context
        self._placer = placer
        self._append = appending
        self._schedule = schedule

    async def create(
        self,
        file: NewFile,
        client_host: str | None,
        *,
        exclude: frozenset[str] = frozenset(),
        failed: frozenset[NodeId] = frozenset(),
        abandoned: ChunkId | None = None,
        is_shown: bool = False,
        is_whole: bool = False,
    ) -> CreateTicket:
        """Place the first chunk and sign all that the completion needs. Commit nothing.

        `exclude` lists failed datanodes by the names that clients of WebHDFS use, `failed` by our own ids.
        `abandoned` is a chunk that was placed for the same request and will not be written. With `is_shown`,
        others than the writer may get the first chunk, because it becomes part of a URL;
        then the file may appear while it is being written, unless `is_whole`.
        """
        if abandoned is not None:
            self._ctx.perform(self._ctx.core.abandon([abandoned], writer_with(file.request_id)))
        path = changeable_path(file.path)
        check_request_id(file.request_id)
        if file.write_class:
            parse_write_class(file.write_class)
        file = _with_defaults(file, path)
        under_construction, excluded = self._ctx.under_construction, self._placer.nodes_by_http_name(exclude)
        under_construction.give_up(path, excluded)
        await under_construction.settle(path)
        access_checks.check_create(self._ctx.reader, path, self._ctx.caller(file.user), file.overwrite)
        check_writer(self._ctx.reader, path)
        if not file.overwrite:
            self._check_not_under_construction(path, file.user)
        replaces = namespace.check_create(self._ctx.reader, path, file)
        await self._ctx.until_ready()
        # A stock client sends no request id, but the datanode may have to repeat the completion.
        file = file if file.request_id else replace(file, request_id=new_request_id())
        # A file that replaces another does so when it is completed. Until then the other file stays.
        may_appear = is_shown and not (is_whole or replaces)
        token = FileWrite(self._ctx.wall_clock() + write_token_lifetime_s, file, client_host or "", may_appear)
        allocated, head = self._placer.place(
            file.replication, client_host, failed | excluded, writer_of(token), is_shown=is_shown
        )
        if may_appear:
            under_construction.begin(path, file.request_id, head.id)
        return CreateTicket(
            head.registration.http_host,
            head.registration.http_port,
            self._ctx.signer.sign(token),
            allocated,
            file.block_bytes,
        )

    def _check_not_under_construction(self, path: NamespacePath, user: str) -> None:
        """Raise AlreadyBeingCreated, as HDFS does, if somebody is writing a file of this name."""
        way = follow(self._ctx.reader, path)
        if way.is_whole and way.deepest.kind is InodeKind.FILE:
            recorded = self._ctx.reader.lease(way.last)
            what = f"CREATE_FILE {path} for {user}"
            self._ctx.leases.check_free(self._ctx.monotonic(), way.last, recorded, "", what)

    async def allocate(self, wanted: AllocateChunk, writer_host: str | None) -> Allocated:
        """Place the next chunk of a file, or a substitute for a chunk whose pipeline failed."""
        token = self._ctx.signer.verify_for_writing(wanted.token, self._ctx.wall_clock())
        if isinstance(token, FileLease):
            self._append.renew_lease(token)
        check_room(self._ctx.reader, token, wanted.written_bytes)
        writer = writer_of(token)
        if wanted.abandoned is not None:
            self._ctx.perform(self._ctx.core.abandon([wanted.abandoned], writer))
        await self._ctx.until_ready()
        allocated, _head = self._placer.place(token.replication, writer_host, frozenset(wanted.exclude), writer)
        return allocated

    async def keep(self, wanted: KeepChunks) -> Done:
        """Keep chunks of a writer that belong to no file yet. Raises AccessDenied, BadRequest."""
        token = self._ctx.signer.verify_for_writing(wanted.token, self._ctx.wall_clock())
        if len(wanted.chunks) > kept_chunks_per_call:
            raise BadRequest(f"one call keeps {kept_chunks_per_call} chunks at most, not {len(wanted.chunks)}")
        for_ms = int(unreferenced_chunk_kept_s * 1000)
        await self._ctx.commit(lambda tx: namespace.keep_chunks(tx, token.path, wanted.chunks, for_ms))
        return Done()

    async def complete(self, wanted: CompleteFile, writer_host: str | None) -> Completed:
        """Create the name and publish the file, or extend the existing file, in one commit."""
        token = self._ctx.signer.verify_for_writing(wanted.token, self._ctx.wall_clock())
        check_request_id(wanted.ahead)
        await self._verify(wanted.chunks)
        writer = writer_of(token)
        if isinstance(token, FileLease):
            with self._publishing(writer, wanted.chunks):
                publication = await self._append.complete(token, wanted.chunks, wanted.replaced)
                self._take_in(token.path, token.replication, wanted.chunks, publication)
                self._schedule.completed(token, sum(record.length for record in publication.added))
            return Completed(publication.length)

        with self._abandoning_refused(writer, wanted.chunks):
            publication = await self._make_public(
                token.file,
                wanted.chunks,
                writer,
                lambda: self._publish_body(
                    token, wanted.chunks, lambda file: self._publish_now(file, wanted.chunks)
                ),
            )
        return self._preallocated(publication, writer_host, wanted.ahead, token.replication)

    async def create_empty(self, file: NewFile) -> Completed:
        """Create and complete a file without data in one call."""
        if not file.request_id:
            raise BadRequest("an empty file is published at once, and this request has no id for that")
        path = changeable_path(file.path)
        made = _with_defaults(file, path)
        await self._ctx.under_construction.settle(path)
        await self._ctx.until_ready()
        try:
            publication = self._ctx.commit.now(lambda tx: self._publish(tx, made, []))
        except FileAlreadyExists:
            self._check_not_under_construction(path, file.user)
            raise
        self._take_in(made.path, made.replication, [], publication)
        self._schedule.created(made, 0)
        return Completed(publication.length)

    async def create_leased(self, file: NewFile, holder: str) -> tuple[InodeId, Lease]:
        """Create an empty file at once, and give `holder` its lease, as HDFS does.

        Raises what `create` does, and AlreadyBeingCreated if somebody writes a file of this name.
        """
        path = changeable_path(file.path)
        check_request_id(file.request_id)
        made, drawn = _with_defaults(file, path), Lease(self._ctx.numbering.next(), holder)
        await self._ctx.under_construction.settle(path)
        await self._ctx.until_ready()

        def change(tx: Transaction) -> tuple[namespace.Publication, InodeId, Lease]:
            before = tx.answer(made.request_id) is not None
            publication = self._publish(tx, made, [])
            return publication, *namespace.lease_published(tx, path, drawn, before=before)

        try:
            publication, inode, lease = self._ctx.commit.now(change)
        except FileAlreadyExists:
            self._check_not_under_construction(path, file.user)
            raise
        self._append.hold(inode, lease)
        self._take_in(made.path, made.replication, [], publication)
        return inode, lease

    async def publish(self, wanted: PublishFile, writer_host: str | None) -> Completed:
        """Create and complete a file of one chunk that was preallocated for this request, in one call."""
        file, chunks = wanted.file, [wanted.chunk]
        if not file.request_id:
            raise BadRequest("a file is published at once under the request id that its chunk was placed for")
        check_request_id(wanted.ahead)
        chunk_token = self._ctx.signer.verify(wanted.token, ChunkWrite, self._ctx.wall_clock())
        if (chunk_token.chunk, chunk_token.version) != (wanted.chunk.chunk, wanted.chunk.version):
            raise AccessDenied("the token is for another chunk than the one that is to be published")
        await self._verify(chunks)
        writer = writer_with(file.request_id)
        with self._abandoning_refused(writer, chunks):
            made = _with_defaults(file, changeable_path(file.path))
            publication = await self._make_public(made, chunks, writer, lambda: self._publish_now(made, chunks))
        return self._preallocated(publication, writer_host, wanted.ahead, made.replication)

    async def _make_public(
        self,
        file: NewFile,
        chunks: Sequence[WrittenChunk],
        writer: str,
        change: Callable[[], Awaitable[namespace.Publication]],
    ) -> namespace.Publication:
        """Make a change that publishes a new file, and take its chunks in when the change is durable.

        The call does not wait for that, so that further publications of its connection can share the commit.
        """
        with ExitStack() as stack:
            stack.enter_context(self._announcing(chunks))
            publication = await change()
            until_settled = stack.pop_all()

        def settled(refusal: ServiceUnready | None) -> None:
            with until_settled:
                if refusal is not None:
                    return
                self._ctx.under_construction.end(file.request_id)
                self._take_in(file.path, file.replication, chunks, publication)
                self._schedule.created(file, publication.length)
            if not publication.added:
                self._give_up_repetition(writer, chunks)

        self._ctx.commit.when_settled(settled)
        return publication

    async def _publish_now(self, file: NewFile, chunks: Sequence[WrittenChunk]) -> namespace.Publication:
        return self._ctx.commit.now(lambda tx: self._publish(tx, file, chunks))

    def _preallocated(
        self, publication: namespace.Publication, writer_host: str | None, ahead: str, replication: int
    ) -> Completed:
        """Return the answer to a writer, with a chunk for its next file if it names a request `ahead`."""
        if not ahead:
            return Completed(publication.length)
        placed = self._placer.preallocate(replication, writer_host, writer_with(ahead))
        return Completed(publication.length, placed)

    async def flush(self, wanted: FlushFile, writer_host: str | None, link: NodeId | None = None) -> Flushed:
        """Publish as `complete` does; the writer, a gateway of `link`, keeps the lease and continues."""
        token = self._ctx.signer.verify_for_writing(wanted.token, self._ctx.wall_clock())
        await self._verify(wanted.chunks)
        with self._publishing(writer_of(token), wanted.chunks):
            if isinstance(token, FileLease):
                renewed, publication = await self._append.flush(token, wanted, link)
            else:
                renewed, publication = await self._publish_body(
                    token, wanted.chunks, lambda file: self._publish_open(token, file, wanted, link)
                )
            self._take_in(token.path, token.replication, wanted.chunks, publication)
            self._schedule.completed(token, sum(record.length for record in publication.added))
        lease = self._ctx.signer.verify(renewed, FileLease, self._ctx.wall_clock())
        try:
            allocated, _head = self._placer.place(token.replication, writer_host, frozenset(), writer_of(lease))
        except NoDatanodes:
            # The flushed bytes are safe anyhow. The writer asks for a chunk when it has more data.
            return Flushed(renewed, publication.length)
        return Flushed(renewed, publication.length, allocated)

    async def _publish_body(
        self, token: FileWrite, chunks: Sequence[WrittenChunk], publish: Callable[[NewFile], Awaitable[T]]
    ) -> T:
        """Publish the file of a token.

        If that is refused because the client sent the body again, publish `_file_of_resent_body`.
        """
        try:
            return await publish(token.file)
        except BadRequest:
            file = self._file_of_resent_body(token, chunks)
            if file is None:
                raise
            return await publish(file)

    def _file_of_resent_body(self, token: FileWrite, chunks: Sequence[WrittenChunk]) -> NewFile | None:
        """Return the file of a body that was sent to a URL whose first body has arrived already, in part or whole.

        As in HDFS, it counts as another creator's file and may replace the first only with `overwrite`. Return
        None for other bodies. Raises AlreadyBeingCreated, FileAlreadyExists.
        """
        if not token.may_appear:
            return None
        file, path = token.file, parse_path(token.path)
        if not namespace.is_another_body(self._ctx.reader, file, chunks):
            return None
        if not file.overwrite:
            self._check_not_under_construction(path, file.user)
            if follow(self._ctx.reader, path).is_whole:
                raise FileAlreadyExists(f"{path} already exists")
        # The same for its gateway, which may ask again, and another for the body of any other.
        which = show(chunks[0].chunk) if chunks else "empty"
        return replace(file, request_id=f"{file.request_id}-{which}")

    async def _publish_open(
        self, token: FileWrite, described: NewFile, wanted: FlushFile, link: NodeId | None
    ) -> tuple[str, namespace.Publication]:
        path, drawn = parse_path(token.path), Lease(self._ctx.numbering.next(), wanted.holder)
        file = replace(described, overwrite=False) if wanted.unless_there else described

        def change(tx: Transaction) -> tuple[namespace.Publication, InodeId, Lease]:
            before = tx.answer(file.request_id) is not None
            publication = self._publish(tx, file, wanted.chunks)
            return publication, *namespace.lease_published(tx, path, drawn, before=before)

        with self._append.beginning(drawn):
            publication, inode, lease = await self._ctx.commit(change)
            self._append.hold(inode, lease, link)
        self._ctx.under_construction.end(token.request_id)
        completion = new_request_id()
        return (
            self._append.lease_token(token.path, inode, lease, token.replication, completion),
            publication,
        )

    @contextmanager
    def _publishing(self, writer: str, written: Sequence[WrittenChunk]) -> Iterator[None]:
        """Announce verified chunks, and abandon them if their publication is refused for good."""
        with self._abandoning_refused(writer, written), self._announcing(written):
            yield

    @contextmanager
    def _abandoning_refused(self, writer: str, written: Sequence[WrittenChunk]) -> Iterator[None]:
        """If the publication is refused for good, abandon the chunks, because no file will ever use them."""
        try:
            yield
        except PeacefsError as refusal:
            if not refusal.retriable:
                self._ctx.perform(self._ctx.core.abandon([chunk.chunk for chunk in written], writer))
            raise

    @contextmanager
    def _announcing(self, written: Sequence[WrittenChunk]) -> Iterator[None]:
        """Announce verified chunks to readers, who may see their commit before it is taken in."""
        chunks, cluster = [chunk.chunk for chunk in written], self._ctx.cluster
        with cluster.assignments.publishing(chunks), cluster.transient.publishing(written):
            yield

    def _give_up_repetition(self, writer: str, written: Sequence[WrittenChunk]) -> None:
        """Give up the chunks of a repeated body, because an earlier body has published the file."""
        spare = [each.chunk for each in written if self._ctx.reader.chunk(each.chunk) is None]
        if spare:
            self._ctx.perform(self._ctx.core.abandon(spare, writer))

    async def _verify(self, chunks: Sequence[WrittenChunk]) -> None:
        for chunk in chunks:
            if not chunk.receipts:
                raise BadRequest("a chunk without receipts is on no datanode; write it again")
            for receipt in chunk.receipts:
                self._ctx.signer.verify_receipt(receipt, chunk.chunk, chunk.version, chunk.length, chunk.checksum)
            if all(self._ctx.cluster.members.is_revoked(receipt.node) for receipt in chunk.receipts):
                raise AccessDenied("only datanodes that were revoked have a chunk of this file; write it again")
        await self._until_known(chunks)
        of_earlier_epochs = [each.chunk for each in chunks if epoch_of(each.chunk) != self._ctx.numbering.epoch]
        if of_earlier_epochs and self._ctx.reader.gc_floor_held():
            await self._find_again(of_earlier_epochs)

    async def _until_known(self, chunks: Sequence[WrittenChunk]) -> None:
        """Wait until a datanode with a receipt for each chunk has registered with this coordinator.

        After a restart a writer may arrive before its datanodes, and a file must not be visible before it can be
        read. Raises ServiceUnready.
        """
        members, deadline_s = self._ctx.cluster.members, self._ctx.monotonic() + receipt_holder_timeout_s
        for chunk in chunks:
            while all(members.get(receipt.node) is None for receipt in chunk.receipts):
                if self._ctx.monotonic() >= deadline_s:
                    nodes = ", ".join(receipt.node for receipt in chunk.receipts)
                    raise ServiceUnready(f"no datanode that holds chunk {show(chunk.chunk)} ({nodes}) is here yet")
                await self._ctx.sleep(heartbeat_interval_s / 4)

    async def _find_again(self, chunks: Sequence[ChunkId]) -> None:
        """Wait until datanodes report these chunks. A coordinator that was restored may not know that it deleted
        them.

        Raises ChunkUnavailable.
        """
        deadline_s = self._ctx.monotonic() + unconfirmed_replica_kept_s
        while missing := [chunk for chunk in chunks if not self._ctx.cluster.is_held(chunk)]:
            if self._ctx.monotonic() >= deadline_s:
                raise ChunkUnavailable(f"no datanode has chunk {show(missing[0])}; write its data again")
            await self._ctx.sleep(heartbeat_interval_s / 4)

    def _take_in(
        self, path: str, replication: int, chunks: Sequence[WrittenChunk], publication: namespace.Publication
    ) -> None:
        self._ctx.perform(self._ctx.core.published(self._ctx.monotonic(), publication.added, chunks))
        self._schedule.fast_lane.published(record.length for record in publication.added)
        self._ctx.free(publication.freed)
        fewest = min((len(chunk.receipts) for chunk in chunks), default=replication)
        if fewest < replication:
            log.warning("%s was written to %d of %d replicas; repair follows", path, fewest, replication)

    def _publish(self, tx: Transaction, file: NewFile, chunks: Sequence[WrittenChunk]) -> namespace.Publication:
        """Publish a file. Check the caller's rights again, because directories on the path may have changed."""
        caller = self._ctx.caller(file.user)
        if not caller.is_superuser and tx.answer(file.request_id) is None:
            access_checks.check_create(tx, parse_path(file.path), caller, file.overwrite)
        return namespace.complete_file(tx, file, chunks, self._ctx.now_ms())


def _with_defaults(file: NewFile, path: NamespacePath) -> NewFile:
    """Return the file with its normalised path and the cluster's defaults."""
    replication, block_bytes = checked_replication(file.replication, path), possible_block_bytes(file.block_bytes)
    return replace(file, path=str(path), replication=replication, block_bytes=block_bytes)
