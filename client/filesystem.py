"""The Python client: a file system whose data goes straight between this process and the datanodes."""

from __future__ import annotations

import os
import socket
import uuid
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from peacefs.protocol.errors import BadRequest, FileNotFound
from peacefs.protocol.handshake import Identity
from peacefs.protocol.ids import NodeId, new_request_id
from peacefs.protocol.limits import chunk_bytes_max
from peacefs.protocol.messages import CreateFile
from peacefs.protocol.new_file import NewFile, block_bytes_notice, possible_block_bytes
from peacefs.protocol.values.balance_status import BalanceStatus
from peacefs.protocol.values.chunk_explanation import ChunkExplanation
from peacefs.protocol.values.copied_tree import CopiedTree
from peacefs.protocol.values.fsck_findings import FsckPage
from peacefs.protocol.values.schedule import Schedule
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tracing import beginning, operation

from .access_control_lists import AccessControlLists
from .channels import Channels, tls_of
from .control.addresses import DEFAULT_ADDRESS, parse_address
from .control.api import CoordinatorApi, user_of
from .control.coordinators import Coordinators
from .control.http import CoordinatorHttp
from .control.names import ListingPage, NameApi
from .control.retry import RetryPolicy
from .control.rpc import ControlRpc
from .control.token_source import TokenSource
from .control.values import (
    ContentSummary,
    FileStatus,
    QuotaUsage,
)
from .directory_snapshots import DirectorySnapshots
from .extended_attributes import ExtendedAttributes
from .file_objects import AppendingSink, FileSink, FileSource
from .parallel_reads import ParallelReads
from .transfer.file_reader import read_whole
from .transfer.small_writes import SmallWrites, is_small
from .transfer.write_grants import GrantClient
from .trash import ClientTrash

# Inside the class, `list` is its method.
_Entries = list[FileStatus]
_Texts = list[str]
_Objects = list[dict[str, Any]]


class PeaceFileSystem(AccessControlLists, ExtendedAttributes, DirectorySnapshots):
    """A cluster's files. Thread-safe; owns its connections until `close`, and, once it has waited for a disk of
    this host, threads that do so.

    `address` is `http://host:port` (or the `webhdfs://host:port` that Spark is given) of the coordinator; among
    several, `http://a:9870,b:9870`, the one that leads is found. `user` owns what is written: by default whose the
    token is, without one HADOOP_USER_NAME, else the operating system's user. Paths are absolute. With `https://`
    (or `swebhdfs://`) all that goes over the network is encrypted. All methods raise `peacefs.protocol.errors`.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS.http,
        user: str | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        local_sockets: bool = True,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """`token` shows the coordinator who we are; one in a `token_file` is read again when it has changed.

        With neither, the environment says: PEACEFS_TOKEN_FILE, else PEACEFS_TOKEN. Without `local_sockets`
        datanodes of this host share no files: all data comes over TCP. Over TLS services have to show certificates
        of the CA in `ca_file`: by default what PEACEFS_CA_FILE names, else the CAs of the system.
        """
        where, retry_policy = parse_address(address), RetryPolicy()
        coordinators = Coordinators(where)
        tls = tls_of(where, Path(ca_file) if ca_file else None)
        source = TokenSource.of(token, token_file)
        http = CoordinatorHttp(coordinators, retry_policy, token=source, tls=tls)
        self._api = CoordinatorApi(http, user_of(http, user))
        name = f"client {socket.gethostname()}/{os.getpid()}"
        me = Identity(cluster="", role="client", name=name, signer=None)
        self._connections = ConnectionPool(me, local_sockets=local_sockets, tls=tls)
        # Datanodes are not shown who we are: requests to them bear a token of the coordinator's.
        to_coordinator = ConnectionPool(me, credential=source.current, tls=tls)
        self._calls = ControlRpc(coordinators, to_coordinator, retry_policy, source)
        self._names = NameApi(self._calls, self._api.user)
        self._driver = ThreadDriver(self._connections, self._calls.call)
        self._reads = ParallelReads(self._driver)
        self._grants = GrantClient(f"{name} {uuid.uuid4().hex[:8]}", pushed=False)
        self._small_writes = SmallWrites(self._grants)

    @property
    def user(self) -> str:
        """In whose name everything is asked."""
        return self._api.user

    @property
    def address(self) -> str:
        """The coordinator's, `http://host:port`."""
        return self._api.address

    @property
    def channels(self) -> Channels:
        """For whatever runs participants of its own, as the I/O service does."""
        return Channels(self._driver, self._calls, self._grants)

    def close(self) -> None:
        """Closes all connections; files that are still open end with an error."""
        self._calls.close()
        self._reads.close()
        self._connections.close_all()
        self._driver.close()
        self._api.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- data --------------------------------------------------------------------------------------

    def open(self, path: str) -> FileSource:
        """Opens a file for reading, as it is now. Raises FileNotFound, PathIsDirectory."""
        with operation("open", {"path": path}):
            return FileSource(self._driver, self._calls.open(path, self.user), self._reads)

    def open_for_writing(
        self,
        path: str,
        *,
        overwrite: bool = False,
        make_parents: bool = True,
        replication: int | None = None,
        block_bytes: int = chunk_bytes_max,
        permission: int = 0o644,
    ) -> FileSink:
        """Begins a file that appears, whole, when it is closed, unless it is flushed by `hflush` before.

        With `overwrite` it may replace one.

        `replication` None means the cluster's default; `block_bytes` is where the file is cut into chunks: a
        multiple of 64 KiB up to 64 MiB, which others become, with a warning.
        Raises FileAlreadyExists, ParentNotDirectory, NoDatanodes, ... now, and again by `close` for what has
        changed in the meantime.
        """
        if block_bytes <= 0:
            raise BadRequest(f"a block size of {block_bytes} bytes is out of range")
        file = self._new_file(
            path,
            overwrite=overwrite,
            replication=replication,
            make_parents=make_parents,
            block_bytes=block_bytes,
            permission=permission,
            request_id=new_request_id(),
        )
        with beginning("write a file", {"path": path}):
            created = self._calls.create(CreateFile(file))
            given = created.block_bytes
            if (notice := block_bytes_notice(block_bytes, given)) is not None:
                warnings.warn(f"{path}: {notice}", stacklevel=2)
            return FileSink(self._driver, created, given, self._names.new_holder(), self._grants)

    def open_for_appending(self, path: str) -> FileSink:
        """Begins to extend a file; what is written is part of it when the sink is closed, or with `hflush` before.

        Until it is closed nobody else can extend, truncate or concatenate it: the lease is kept by what is
        written, and may be taken by somebody else when nothing was for `lease_s`; what is done after that
        raises LeaseExpired.
        Raises FileNotFound, FileAlreadyExists for a directory, AlreadyBeingCreated.
        """
        holder = self._names.new_holder()
        with beginning("append to a file", {"path": path}):
            return AppendingSink(self._driver, self._names.extend(path, holder), holder, self._grants)

    def recover_lease(self, path: str) -> bool:
        """Lets a file be extended whose writer is dead, before its lease has run out. True: it is so at once.

        The file ends where the last append or flush that was acknowledged ended. A writer that lives is refused
        from now on. Raises FileNotFound, FileAlreadyExists for a directory, AccessDenied.
        """
        return self._names.recover_lease(path)

    def truncate(self, path: str, length: int) -> bool:
        """Leaves a file its first `length` bytes. True: it is so at once.

        Raises FileNotFound, PathIsDirectory, IllegalChange for a length it does not have, AlreadyBeingCreated.
        """
        return self._names.truncate(path, length)

    def concat(self, target: str, sources: Sequence[str]) -> None:
        """Moves the contents of `sources`, in order, to the end of `target`; the sources are gone then.

        Raises FileNotFound, PathIsDirectory, IllegalChange for what HDFS does not concatenate either (an empty
        source, one twice, the target itself, one of larger blocks), AlreadyBeingCreated.
        """
        self._names.concat(target, sources)

    def read(self, path: str) -> bytes:
        """A whole file."""
        with operation("read", {"path": path}):
            opened = self._calls.open(path, self.user)
            length, avoided = opened.layout.length, set[NodeId]()
            if self._reads.are_worthwhile(opened, 0, length, avoided):
                return self._reads.read(opened, 0, length, avoided)
            return self._driver.run(read_whole(opened.token, opened.layout))

    def write(
        self,
        path: str,
        data: bytes,
        *,
        overwrite: bool = False,
        replication: int | None = None,
        block_bytes: int = chunk_bytes_max,
    ) -> None:
        """A whole file in one call, on the caller's thread; the rest as with `open_for_writing`.

        An empty one, and each of small files that follow one another, costs the coordinator one call.
        """
        is_at_once = not data or is_small(data)
        if is_at_once and len(data) <= block_bytes == possible_block_bytes(block_bytes):
            file = self._new_file(path, overwrite=overwrite, replication=replication, block_bytes=block_bytes)
            self._write_at_once(data, file)
            return
        with self.open_for_writing(
            path, overwrite=overwrite, replication=replication, block_bytes=block_bytes
        ) as sink:
            sink.write(data)

    def _write_at_once(self, data: bytes, file: NewFile) -> None:
        with operation("write", {"path": file.path}):
            if not data:
                self._calls.create_empty(replace(file, request_id=new_request_id()))
                return
            asked = self._driver.run(self._small_writes.publish_at_once(file, data))
            if asked is not None:
                created = self._calls.create(asked)
                self._driver.run(self._small_writes.publish_created(asked, created, data))

    def _new_file(
        self,
        path: str,
        *,
        overwrite: bool,
        replication: int | None,
        make_parents: bool = True,
        block_bytes: int = chunk_bytes_max,
        permission: int = 0o644,
        request_id: str = "",
    ) -> NewFile:
        return NewFile(
            path=path,
            user=self.user,
            overwrite=overwrite,
            permission=permission,
            replication=replication or 0,
            block_bytes=block_bytes,
            create_parent=make_parents,
            request_id=request_id,
        )

    # -- names -------------------------------------------------------------------------------------

    def status(self, path: str) -> FileStatus:
        """Raises FileNotFound."""
        return self._names.status(path)

    def exists(self, path: str) -> bool:
        """Return whether a path exists. Raises AccessDenied where the way there is closed to the user."""
        try:
            self._names.status(path)
        except FileNotFound:
            return False
        return True

    def list(self, path: str) -> _Entries:
        """List a directory, in byte order of the names; a file lists itself. Raises FileNotFound."""
        return [entry for page in self._names.pages(path) for entry in page.entries]

    def pages(self, path: str) -> Iterator[ListingPage]:
        """The same page by page, for directories of any size. Not a snapshot: entries may come and go."""
        return self._names.pages(path)

    def walk(self, path: str) -> Iterator[tuple[str, _Entries, _Entries]]:
        """For each directory from `path` down: its path, its directories, its files.

        Directories taken out of the list by the caller are not entered; those that vanish meanwhile are passed
        over. Raises FileNotFound when `path` itself is not there.
        """
        pending = [path]
        while pending:
            directory = pending.pop()
            try:
                entries = self.list(directory)
            except FileNotFound:
                if directory == path:
                    raise
                continue
            directories = [entry for entry in entries if entry.is_directory]
            yield directory, directories, [entry for entry in entries if not entry.is_directory]
            pending += [entry.path for entry in reversed(directories)]

    def mkdirs(self, path: str, permission: int = 0o755) -> None:
        """Makes a directory and its parents; that it is there is fine. Raises FileAlreadyExists, ..."""
        self._names.mkdirs(path, permission)

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Moves a file or directory atomically to exactly `target`.

        With `overwrite` a file or empty directory there is replaced.
        Raises FileNotFound, FileAlreadyExists, ParentNotDirectory, RenameRefused, ...
        """
        self._names.rename(source, target, overwrite=overwrite)

    def copy(self, source: str, target: str, *, preserve: bool = False) -> CopiedTree:
        """Copies a file or tree to exactly `target`, without copying data: about a second for 10,000 files.

        Atomic: the copy shows one moment, and is there whole or not at all. `target` must not exist, its parent
        must; the source may lie in a snapshot. The copies belong to the user and are of now; with `preserve` they
        keep their times and, for a superuser, owners and groups. All of the source must be readable.
        Raises FileNotFound, FileAlreadyExists, IllegalChange for a target below the source, AccessDenied,
        SnapshotRefused when the snapshot that is copied is deleted meanwhile.
        """
        return self._names.copy(source, target, preserve=preserve)

    def exchange(self, *pairs: tuple[str, str]) -> None:
        """The two names of each pair, of one directory, trade what they name, files or trees; all in one commit.

        Raises FileNotFound, IllegalChange for names of different directories, SnapshotRefused, AccessDenied.
        """
        self._names.exchange(pairs)

    def delete(self, path: str, *, recursive: bool = False) -> bool:
        """Delete a path; return whether it was there. Raises PathIsNotEmptyDirectory unless `recursive`."""
        return self._names.delete(path, recursive=recursive)

    def trash_minutes(self) -> int:
        """Return how long the cluster keeps what is moved to the trash, at least; 0: it has none."""
        return self._names.trash_minutes()

    def move_to_trash(self, path: str) -> str | None:
        """Moves a file or directory, below its own path, to the user's trash, `/user/<name>/.Trash/Current`.

        Where it lies now; None, and nothing is done, for what lies in the trash already. See `trash_minutes`.
        Raises FileNotFound, RenameRefused for a directory that holds the trash, AccessDenied, ...
        """
        return ClientTrash(self).move(path)

    def expunge(self, *, immediate: bool = False) -> _Texts:
        """Deletes what has been in the user's trash for long enough, or all of it; the checkpoints that it was in.

        What is there otherwise becomes a checkpoint, that is to be deleted when its time has come.
        """
        return ClientTrash(self).expunge(self.trash_minutes(), immediate=immediate)

    def set_permission(self, path: str, permission: int) -> None:
        """Set the bits of owner, group and others, and the sticky bit. Raises FileNotFound, AccessDenied."""
        self._names.set_permission(path, permission)

    def set_owner(self, path: str, owner: str | None = None, group: str | None = None) -> None:
        """None leaves one as it is. Raises FileNotFound, AccessDenied."""
        self._names.set_owner(path, owner, group)

    def set_times(self, path: str, *, modified_ms: int | None = None, accessed_ms: int | None = None) -> None:
        """Set times, in milliseconds since 1970; None leaves one as it is. Raises FileNotFound, AccessDenied."""
        self._names.set_times(path, modified_ms, accessed_ms)

    def set_replication(self, path: str, replication: int) -> bool:
        """Set how many replicas a file needs; copies are made, or dropped, after this returns.

        False, and nothing is done, for a directory. Raises FileNotFound, AccessDenied, BadRequest.
        """
        return self._names.set_replication(path, replication)

    def content_summary(self, path: str) -> ContentSummary:
        """Return how much a tree holds. Raises FileNotFound."""
        return self._names.content_summary(path)

    def set_quota(self, path: str, *, names: int | None = None, space: int | None = None) -> None:
        """Limit the names (itself among them) and bytes (of all replicas) of a directory; for superusers.

        None leaves a limit as it is, -1 takes it away. It may hold more already.
        Raises FileNotFound, AccessDenied, BadRequest.
        """
        self._names.set_quota(path, names, space)

    def quota_usage(self, path: str) -> QuotaUsage:
        """Return a directory's quotas and its use of them: known for one that has some, counted for others."""
        return self._names.quota_usage(path)

    # -- the cluster -------------------------------------------------------------------------------

    def cluster_status(self) -> dict[str, Any]:
        """Datanodes, chunks and repairs, as `GET /v1/status` gives them."""
        return self._api.cluster_status()

    def decide_about_datanode(self, node: str, decision: str, *, hours: float | None = None) -> dict[str, Any]:
        """`decommission`, `recommission`, or for some `hours` `maintenance`; how the datanode stands then.

        Raises BadRequest for an unknown datanode.
        """
        return self._api.decide_about_datanode(node, decision, hours=hours)

    def datanode_credentials(self) -> _Objects:
        """See `CoordinatorApi`."""
        return self._api.datanode_credentials()

    def decide_about_credential(self, node: str, decision: str) -> dict[str, Any]:
        """See `CoordinatorApi`."""
        return self._api.decide_about_credential(node, decision)

    def start_balancing(self, run: str, threshold_percent: float, bytes_per_second: float) -> BalanceStatus:
        """See `CoordinatorApi`."""
        return self._api.start_balancing(run, threshold_percent, bytes_per_second)

    def renew_balancing(self, run: str) -> BalanceStatus:
        """See `CoordinatorApi`."""
        return self._api.renew_balancing(run)

    def cancel_balancing(self, run: str) -> BalanceStatus:
        """See `CoordinatorApi`."""
        return self._api.cancel_balancing(run)

    def schedule(self) -> Schedule:
        """Return what waits to be written, what is being written, and under which policy."""
        return self._api.schedule()

    def change_policy(self, policy: str) -> Schedule:
        """Lets another scheduling policy decide from now on. Raises BadRequest, Unsupported."""
        return self._api.change_policy(policy)

    def explain_chunk(self, chunk: str) -> ChunkExplanation:
        """Return what the coordinator knows of a chunk, by the id that fsck shows, and why. For superusers.

        Raises FileNotFound, BadRequest, AccessDenied.
        """
        return self._api.explain_chunk(chunk)

    def inspect(self, path: str, *, every_file: bool = False) -> Iterator[FsckPage]:
        """Return the health of files page by page: those with findings, or `every_file`. Raises FileNotFound."""
        return self._api.inspect(path, every_file=every_file)
