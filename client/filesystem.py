"""The Python client: a file system that transfers data directly between this process and the datanodes."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from msgspec.structs import replace

from peacefs.protocol.errors import BadRequest, PeacefsError
from peacefs.protocol.handshake import Identity
from peacefs.protocol.ids import NodeId, new_request_id
from peacefs.protocol.limits import batched_chunk_bytes_max, chunk_bytes_max
from peacefs.protocol.messages import CreateFile, Opened, OpenFile
from peacefs.protocol.new_file import NewFile, block_bytes_notice, possible_block_bytes
from peacefs.protocol.values.balance_status import BalanceStatus
from peacefs.protocol.values.chunk_explanation import ChunkExplanation
from peacefs.protocol.values.fsck_findings import FsckPage
from peacefs.protocol.values.schedule import ProposedPhase, Recurrences, Schedule
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tracing import beginning, operation

from .acls import Acls
from .channels import Channels, tls_of
from .control.addresses import DEFAULT_ADDRESS, parse_address
from .control.api import CoordinatorApi, user_of
from .control.coordinators import Coordinators
from .control.http import CoordinatorHttp
from .control.names import NameApi
from .control.retry import RetryPolicy
from .control.rpc import ControlRpc
from .control.token_source import TokenSource
from .control.values import FileStatus, Space
from .file_objects import AppendingSink, FileSink, FileSource
from .parallel_reads import ParallelReads
from .quotas import Quotas
from .snapshots import Snapshots
from .together import fetch_with_others, run_together, send_with_others
from .transfer.file_reader import read_whole
from .transfer.small_writes import SmallWrites, is_small
from .transfer.write_grants import GrantClient
from .trash import ClientTrash
from .xattrs import ExtendedAttributes

# Inside the class, the name `list` means its method.
_Entries = list[FileStatus]
_Texts = list[str]
_Objects = list[dict[str, Any]]

# Maximum number of small files that `write_many` and `read_many` transfer at once, and of files too large for
# batches.
batched_files_at_once_max: Final = 64
small_files_at_once_max: Final = 16


class PeaceFileSystem(NameApi):
    """The files of a cluster. Thread-safe. `close` ends its connections and threads.

    `address` is the coordinator's `http://host:port`, or the `webhdfs://host:port` given to Spark. If it lists
    several coordinators (`http://a:9870,b:9870`), the client finds the leader. `user` owns the files written; the
    default is the token's user, then HADOOP_USER_NAME, then the operating system's user. Paths are absolute. With
    `https://` or `swebhdfs://`, all network traffic is encrypted. Methods raise classes of
    `peacefs.protocol.errors`.

    The methods for names are inherited from `NameApi`. `snapshots`, `acls`, `xattrs` and `quotas` have further
    methods.
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
        """`token` authenticates the user. A `token_file` is read again whenever it changes.

        If neither is given, PEACEFS_TOKEN_FILE is used, then PEACEFS_TOKEN. Without `local_sockets`, all data
        comes over TCP, even from datanodes on this host. Over TLS, the services must present certificates of the
        CA in `ca_file`; the default is PEACEFS_CA_FILE, then the CAs of the system.
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
        # Datanodes do not get the user's credential: requests to them carry a token signed by the coordinator.
        to_coordinator = ConnectionPool(me, credential=source.current, tls=tls)
        super().__init__(ControlRpc(coordinators, to_coordinator, retry_policy, source), self._api.user)
        self.snapshots = Snapshots(self, self._api.snapshot_diff)
        self.acls = Acls(self)
        self.xattrs = ExtendedAttributes(self)
        self.quotas = Quotas(self)
        self._driver = ThreadDriver(self._connections, self._calls.call)
        self._reads = ParallelReads(self._driver)
        self._grants = GrantClient(f"{name} {uuid.uuid4().hex[:8]}", pushed=False)
        self._small_writes = SmallWrites(self._grants)

    @property
    def address(self) -> str:
        """The address of the coordinator, `http://host:port`."""
        return self._api.address

    @property
    def channels(self) -> Channels:
        """The connections, for callers that run participants themselves, such as the I/O service."""
        return Channels(self._driver, self._calls, self._grants)

    def close(self) -> None:
        """Close all connections. Files that are still open fail."""
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
        """Open the current version of a file for reading. Raises FileNotFound, PathIsDirectory."""
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
        write_class: str = "",
    ) -> FileSink:
        """Create a file. It becomes visible when it is closed, or at its first `hflush`.

        With `overwrite`, it may replace an existing file. `replication` None means the cluster's default. The file
        is cut into chunks of `block_bytes`; other sizes than multiples of 64 KiB up to 64 MiB are adjusted.
        `write_class` is blocking, due or bulk; without it, the coordinator tells the class from the path.

        Raises FileAlreadyExists, ParentNotDirectory, NoDatanodes, ... here and, checked again, from `close`.
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
            write_class=write_class,
        )
        with beginning("write a file", {"path": path}):
            created = self._calls.create(CreateFile(file))
            given = created.block_bytes
            if (notice := block_bytes_notice(block_bytes, given)) is not None:
                warnings.warn(f"{path}: {notice}", stacklevel=2)
            return FileSink(self._driver, created, given, self.new_holder(), self._grants)

    def open_for_appending(self, path: str) -> FileSink:
        """Open a file for appending. New bytes become visible when the sink is closed, or at each `hflush`.

        Until `close`, the sink holds the file's lease: nobody else can append, truncate or concatenate. Writing
        renews the lease. After `lease_s` without a write, another writer may take it; the sink then raises
        LeaseExpired. Raises FileNotFound, FileAlreadyExists for a directory, AlreadyBeingCreated.
        """
        holder = self.new_holder()
        with beginning("append to a file", {"path": path}):
            return AppendingSink(self._driver, self.extend(path, holder), holder, self._grants)

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        with operation("read", {"path": path}):
            return self._read_opened(self._calls.open(path, self.user))

    def _read_opened(self, opened: Opened) -> bytes:
        length, avoided = opened.layout.length, set[NodeId]()
        if self._reads.are_worthwhile(opened, 0, length, avoided):
            return self._reads.read(opened, 0, length, avoided)
        return self._driver.run(read_whole(opened.token, opened.layout))

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes | PeacefsError]:
        """Read whole files, several at a time. Return the data of each file or its error, by path.

        Each file is consistent by itself, but the files may be from different moments. Together they must fit in
        memory.
        """
        outcomes: dict[str, bytes | PeacefsError] = {}
        wanted = list(dict.fromkeys(paths))
        with operation("read_many", {"files": len(wanted)}):
            for part in _parts(wanted, batched_files_at_once_max):
                participants = [self._read_with_others(path) for path in part]
                results = run_together(self._driver, self._calls.call_together, participants)
                for path, result in zip(part, results, strict=True):
                    try:
                        outcomes[path] = self._read_opened(result) if isinstance(result, Opened) else result
                    except PeacefsError as error:
                        outcomes[path] = error
        return outcomes

    def _read_with_others(self, path: str) -> fx.Steps[bytes | Opened]:
        """Open and read a small file. Return the open file if it is not small, or if its first replica failed."""
        opened = yield from fx.call(OpenFile(path, self.user), Opened)
        chunks = opened.layout.chunks
        if len(chunks) == 1 and chunks[0].replicas and 0 < chunks[0].length <= batched_chunk_bytes_max:
            with contextlib.suppress(PeacefsError):
                return (yield from fetch_with_others(chunks[0]))
        return opened

    def write(
        self,
        path: str,
        data: bytes,
        *,
        overwrite: bool = False,
        make_parents: bool = True,
        replication: int | None = None,
        block_bytes: int = chunk_bytes_max,
        permission: int = 0o644,
        write_class: str = "",
    ) -> None:
        """Write a whole file in one call, on the caller's thread. For the arguments see `open_for_writing`.

        An empty file costs one call to the coordinator, and so does each file in a series of small files.
        """
        is_at_once = not data or is_small(data)
        if is_at_once and len(data) <= block_bytes == possible_block_bytes(block_bytes):
            file = self._new_file(
                path,
                overwrite=overwrite,
                make_parents=make_parents,
                replication=replication,
                block_bytes=block_bytes,
                permission=permission,
                write_class=write_class,
            )
            self._write_at_once(data, file)
            return
        with self.open_for_writing(
            path,
            overwrite=overwrite,
            make_parents=make_parents,
            replication=replication,
            block_bytes=block_bytes,
            permission=permission,
            write_class=write_class,
        ) as sink:
            sink.write(data)

    def write_many(
        self, files: Mapping[str, bytes], *, overwrite: bool = False, replication: int | None = None
    ) -> dict[str, PeacefsError]:
        """Write whole files, several small ones at a time. Return the errors of the files that failed, by path.

        Each file becomes visible alone; one that fails does not affect the others. For the arguments see
        `open_for_writing`.
        """
        failed: dict[str, PeacefsError] = {}
        paths = [path for path, data in files.items() if is_small(data)]
        batched = [path for path in paths if len(files[path]) <= batched_chunk_bytes_max]
        others = [path for path in paths if len(files[path]) > batched_chunk_bytes_max]
        parts = [
            *((part, send_with_others) for part in _parts(batched, batched_files_at_once_max)),
            *((part, None) for part in _parts(others, small_files_at_once_max)),
        ]
        with operation("write_many", {"files": len(files)}):
            for part, send in parts:
                new = [self._new_file(path, overwrite=overwrite, replication=replication) for path in part]
                participants = [self._small_writes.publish(each, files[each.path], send) for each in new]
                outcomes = run_together(self._driver, self._calls.call_together, participants)
                for path, outcome in zip(part, outcomes, strict=True):
                    if isinstance(outcome, PeacefsError):
                        failed[path] = outcome
        for path in [path for path, data in files.items() if not is_small(data)]:
            try:
                self.write(path, files[path], overwrite=overwrite, replication=replication)
            except PeacefsError as error:
                failed[path] = error
        return failed

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
        write_class: str = "",
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
            write_class=write_class,
        )

    # -- the trash ---------------------------------------------------------------------------------

    def move_to_trash(self, path: str) -> str | None:
        """Move a file or directory, with its whole path, below the user's trash, `/user/<name>/.Trash/Current`.

        Return its new path, or None if it was in the trash already. See `trash_minutes`. Raises FileNotFound,
        RenameRefused for a directory that contains the trash, AccessDenied, ...
        """
        return ClientTrash(self).move(path)

    def expunge(self, *, immediate: bool = False) -> _Texts:
        """Delete expired checkpoints of the user's trash, or all with `immediate`. Return the deleted checkpoints.

        The remaining contents of the trash become a new checkpoint, which a later call deletes when it expires.
        """
        return ClientTrash(self).expunge(self.trash_minutes(), immediate=immediate)

    # -- the cluster -------------------------------------------------------------------------------

    def cluster_status(self) -> dict[str, Any]:
        """Return datanodes, chunks and repairs, as in `GET /v1/status`."""
        return self._api.cluster_status()

    def check_access(self, path: str, action: str) -> None:
        """Raise AccessDenied unless the user may do all of `action`, such as `r-x` or `-w-`.

        Raises FileNotFound, ... as well.
        """
        self._api.check_access(path, action)

    def space(self) -> Space:
        """Return the total, used and free bytes of all datanodes."""
        return self._api.space()

    def decide_about_datanode(self, node: str, decision: str, *, hours: float | None = None) -> dict[str, Any]:
        """Apply `decommission`, `recommission`, or `maintenance` for some `hours`; return the new state.

        Raises BadRequest for an unknown datanode.
        """
        return self._api.decide_about_datanode(node, decision, hours=hours)

    def datanode_credentials(self) -> _Objects:
        return self._api.datanode_credentials()

    def decide_about_credential(self, node: str, decision: str) -> dict[str, Any]:
        return self._api.decide_about_credential(node, decision)

    def start_balancing(self, run: str, threshold_percent: float, bytes_per_second: float) -> BalanceStatus:
        return self._api.start_balancing(run, threshold_percent, bytes_per_second)

    def renew_balancing(self, run: str) -> BalanceStatus:
        return self._api.renew_balancing(run)

    def cancel_balancing(self, run: str) -> BalanceStatus:
        return self._api.cancel_balancing(run)

    def schedule(self) -> Schedule:
        """Return the writes that wait, the writes under way, and the scheduling policy."""
        return self._api.schedule()

    def recurrences(self) -> Recurrences:
        """Return the recurring writes with their periods, as in `GET /v1/schedule/recurrences`."""
        return self._api.recurrences()

    def propose_phase(self, root: str, period_s: float, size: int = 0, replication: int = 3) -> ProposedPhase:
        """Ask for the phase of a writer that writes about `size` bytes below `root` every `period_s`.

        Raises BadRequest, Overloaded, and AccessDenied for another user's root.
        """
        return self._api.propose_phase(root, period_s, size, replication)

    def change_policy(self, policy: str) -> Schedule:
        """Change the scheduling policy. Raises BadRequest, Unsupported."""
        return self._api.change_policy(policy)

    def explain_chunk(self, chunk: str) -> ChunkExplanation:
        """Explain what the coordinator knows about a chunk. `chunk` is the id that fsck shows. For superusers.

        Raises FileNotFound, BadRequest, AccessDenied.
        """
        return self._api.explain_chunk(chunk)

    def inspect(self, path: str, *, every_file: bool = False) -> Iterator[FsckPage]:
        """Check files page by page; report those with findings, or `every_file`. Raises FileNotFound."""
        return self._api.inspect(path, every_file=every_file)


def _parts(paths: Sequence[str], at_once: int) -> Iterator[Sequence[str]]:
    for at in range(0, len(paths), at_once):
        yield paths[at : at + at_once]
