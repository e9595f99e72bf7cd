"""Both sides of WebHDFS in this process: real namespace, chunk store and HTTP servers, on free ports."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import math
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import uvloop
from support.new_core import new_core
from support.no_links import NoLinks
from support.open_root import open_root
from support.waiting import PATIENCE_S

from peacefs.client.transfer.write_grants import GrantClient
from peacefs.coordinator.api.durable_responses import DurableResponses
from peacefs.coordinator.api.webhdfs import WebHdfs
from peacefs.coordinator.metadata.group_commit import GroupCommit, run_now
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import MetadataFault
from peacefs.coordinator.metadata.writer import Writer
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.coordinator.operations.durability.durable_answers import DurableAnswers
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.rpc.client_session import ClientLinks
from peacefs.datanode.gateway.app import Gateway, GatewayLimits
from peacefs.datanode.gateway.local_large_reads import LocalLargeReads
from peacefs.datanode.gateway.local_small_reads import LocalSmallReads
from peacefs.datanode.gateway.one_time_chunks import OneTimeChunks
from peacefs.datanode.gateway.url_tokens import UrlTokens
from peacefs.datanode.pipeline.active_streams import StreamsUnderWay
from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.datanode.pipeline.dispatch import DataRequests
from peacefs.datanode.pipeline.hop import PipelineHop
from peacefs.datanode.pipeline.listeners import DataListeners
from peacefs.datanode.pipeline.server import DataServer
from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.datanode.store.replica_changes import ReplicaChanges
from peacefs.protocol.asgi import App, Receive, Scope, Send
from peacefs.protocol.handshake import Identity
from peacefs.protocol.ids import Numbering
from peacefs.protocol.limits import read_token_lifetime_s
from peacefs.protocol.messages import (
    AbandonLease,
    AllocateChunk,
    CompleteFile,
    Done,
    FlushFile,
    FlushUploads,
    GetLayout,
    KeepChunks,
    Message,
    Register,
    RenewLease,
    ReportChunks,
    ReportCorrupt,
    StateWriteSet,
    StreamEnded,
    TakeLease,
    Usage,
)
from peacefs.protocol.tokens import Signer
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tls import TlsIdentity
from peacefs.service.http_server import build_server, listen

GIB = 1 << 30


@dataclass
class Reply:
    """An HTTP answer as received from the socket."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str, str]:
        """The status, Java class and message of a RemoteException."""
        remote = self.json["RemoteException"]
        assert remote["exception"] == remote["javaClassName"].rsplit(".", 1)[-1].rsplit("$", 1)[-1]
        return self.status, remote["javaClassName"], remote["message"]


class Served:
    """An application behind a real server, on a thread with its own event loop."""

    def __init__(
        self,
        build: Callable[[], App],
        tls: TlsIdentity | None = None,
        framed: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        """Create a server, not running yet. With `framed`, it also accepts connections of our own client."""
        self._tls = tls
        self._framed = framed
        self._socket = listen("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self._build = build
        self._started = threading.Event()
        self.loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()))

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.app = self._build()
        self._server = build_server(self.app, self._framed, tls=self._tls)
        self._started.set()
        await self._server.serve(sockets=[self._socket])

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._started.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def request(self, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        """Send one request on a new connection as given: no encoding, no redirects."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=180)
        try:
            connection.request(method, target, body=body, headers=headers or {})
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=180)

    def connections(self) -> int:
        """Return the number of open connections at the server."""
        return len(self._server.server_state.connections)

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the server's loop, from the test's thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_S)


def _fail(fault: MetadataFault) -> None:
    raise AssertionError(f"the metadata of a test failed: {fault}")


async def elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond to a request that is not for WebHDFS."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"REST"})


class GatewayLinks(NoLinks):
    """Links that ask gateways of this process to flush their uploads; all other messages are lost."""

    def __init__(self) -> None:
        self.gateways: dict[str, Served] = {}
        #: All flush requests.
        self.asked: list[FlushUploads] = []

    def ask(self, node: str, message: Message, answered: Callable[[Message], None]) -> None:
        there = self.gateways.get(node)
        if there is None or not isinstance(message, FlushUploads):
            super().ask(node, message, answered)
            return
        self.asked.append(message)
        loop = asyncio.get_running_loop()
        gateway: Gateway = there.app  # type: ignore[assignment]
        flushed = asyncio.run_coroutine_threadsafe(gateway.flush_uploads(message), there.loop)
        flushed.add_done_callback(lambda done: loop.call_soon_threadsafe(answered, done.result()))


class NameSide:
    """A coordinator's namespace and cluster behind WebHDFS."""

    def __init__(
        self,
        directory: Path,
        signer: Signer,
        callers: Callers | None = None,
        trash_minutes: int = 0,
        read_token_lifetime_s: float = read_token_lifetime_s,
        links: NoLinks | None = None,
        access_time_precision_s: float = 0.0,
        *,
        open_to_all: bool = True,
    ) -> None:
        """Create a namespace. With `open_to_all`, every user may create names in the root."""
        self.links = links or NoLinks()
        self._access_time_precision_s = access_time_precision_s
        self._read_token_lifetime_s = read_token_lifetime_s
        self._callers = callers or Callers()
        self._trash_minutes = trash_minutes
        self._metadata = open_store(directory / "metadata.sqlite", owner="hdfs")
        self._commits: GroupCommit
        self._reader = self._metadata.reader()
        if open_to_all:
            run_now(self._metadata, open_root)
        self._core = new_core(time.monotonic(), numbering=Numbering(self._metadata.begin_epoch()))
        self.cluster = self._core.cluster
        self.cluster.loaded()
        self._signer = signer
        #: The datanode that sends the control calls, as far as the coordinator can tell.
        self.gateway = "dn-1"
        self.context: OperationContext
        self.files: Files
        self._clients: ClientLinks
        self.served = Served(self._build, framed=lambda: self._clients.link())

    def _build(self) -> App:
        loop = asyncio.get_running_loop()
        self._commits = GroupCommit(
            self._metadata, _fail, run=Writer(loop.call_soon_threadsafe), soon=loop.call_soon
        )
        commits = Commits(self._commits)
        durable = DurableAnswers(self._metadata.rows, commits)
        self.context = OperationContext(
            self._reader,
            commits,
            self._core,
            self._signer,
            self.links,
            durable,
            callers=self._callers,
            read_token_lifetime_s=self._read_token_lifetime_s,
            access_time_precision_s=self._access_time_precision_s,
        )
        self.files = Files(self.context, self._trash_minutes)
        self._clients = ClientLinks(Identity("c", "coordinator", "coordinator", self._signer), self.files)
        return DurableResponses(WebHdfs(self.files, elsewhere), durable)

    def commit_now(self, change: Callable[[Any], Any]) -> Any:
        """Commit a change of the namespace, from any thread. Return its result."""

        async def commit() -> Any:
            return run_now(self._metadata, change)

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.served.run(commit())
        return run_now(self._metadata, change)

    @property
    def port(self) -> int:
        return self.served.port

    def register(self, node: str, data_port: int, http_port: int, process: str = "") -> None:
        usage = Usage(100 * GIB, 0, 100 * GIB)
        now = time.monotonic()
        registration = Register(
            node, "127.0.0.1", data_port, "127.0.0.1", http_port, f"/rack-{node}", usage, process=process
        )
        self.cluster.register(now, registration)
        self.cluster.report(now, node, ReportChunks([], True))

    def call(self, message: Message, timeout_s: float) -> Message:
        """Carry a control call of a writer or reader, as a datanode's link does. Return the answer."""
        answers: dict[type[Message], Callable[[Any], Any]] = {
            AllocateChunk: lambda m: self.files.writing.allocate(m, None),
            CompleteFile: lambda m: self.files.writing.complete(m, None),
            TakeLease: lambda m: self.files.appending.take_lease(m, None, self.gateway),
            FlushFile: lambda m: self.files.writing.flush(m, None, self.gateway),
            KeepChunks: lambda m: self.files.writing.keep(m),
            RenewLease: lambda m: self.files.appending.renew(m),
            AbandonLease: lambda m: self.files.appending.abandon(m),
            GetLayout: lambda m: self.files.reading.layout(m, None),
            ReportCorrupt: self.files.reading.report_corrupt,
            StateWriteSet: lambda m: self.files.schedule.state(m, None, None),
            StreamEnded: self._ended,
        }
        answer: Message = self.served.run(answers[type(message)](message))
        return answer

    async def _ended(self, message: StreamEnded) -> Done:
        return self.files.schedule.ended("", message)

    def ask(
        self, method: str, path: str, op: str, headers: dict[str, str] | None = None, **query: object
    ) -> Reply:
        """Request an operation on a path. The path is percent-encoded here."""
        named = "".join(f"&{name.replace('_', '.')}={quote(str(value))}" for name, value in query.items())
        return self.served.request(method, f"/webhdfs/v1{quote(path)}?op={op}{named}", headers=headers)

    def drop_freed(self) -> None:
        """Expire the freed chunks: from now on nobody finds their replicas."""

        async def drop() -> None:
            self.cluster.transient.take_due(math.inf)

        self.served.run(drop())

    def gives_up(self, chunk: int) -> bool:
        """Return whether the coordinator has told the holders of the chunk to delete their replicas."""
        return chunk in self.cluster.assignments

    def close(self) -> None:
        self._commits.close()
        self._reader.close()
        self._metadata.close()


@dataclass
class DataSide:
    """A datanode's store and data server, and its gateway."""

    node: str
    directory: Path
    names: NameSide
    signer: Signer
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    process: str = "a process"

    def __post_init__(self) -> None:
        me = Identity("test", "datanode", self.node, self.signer)
        self.pool = ConnectionPool(me)
        self.driver = ThreadDriver(self.pool, self.names.call, sync_to_disk=False, files_kept_max=4)
        self.store = ChunkStore(
            str(self.directory), reserved_bytes=0, available_bytes=lambda: 100 * GIB, rng=random.Random(1)
        )
        self.driver.run(self.store.recover())
        self.changes = ReplicaChanges()
        hop = PipelineHop(
            self.signer,
            self.store,
            self.changes,
            StreamsUnderWay(self.node),
            clock=time.monotonic,
            wall_clock=time.time,
        )
        chunks = ChunkServer(self.signer, self.store, self.changes, wall_clock=time.time)
        requests = DataRequests(hop, chunks)
        self.server = DataServer(DataListeners("127.0.0.1", 0, me), self.driver, requests)
        self.server.start()
        grant_client = GrantClient(self.node, pushed=False)
        own = LocalSmallReads(chunks, self.driver)
        self.local_large_reads = LocalLargeReads(chunks, self.driver)
        one_time_chunks = OneTimeChunks(self.signer, self.process)
        self.served = Served(
            lambda: Gateway(
                UrlTokens(self.signer),
                self.driver,
                self.server.begin,
                grant_client,
                own,
                self.local_large_reads,
                one_time_chunks,
                self.limits,
            )
        )

    @property
    def port(self) -> int:
        return self.served.port

    def write(self, path: str, data: bytes, **query: object) -> Reply:
        """Send a CREATE in two steps."""
        redirect = self.names.ask("PUT", path, "CREATE", **query)
        assert redirect.status == 307, redirect
        return self.follow("PUT", redirect, data)

    def append(self, path: str, data: bytes) -> None:
        """Send an APPEND in two steps."""
        redirect = self.names.ask("POST", path, "APPEND")
        assert redirect.status == 307, redirect
        assert self.follow("POST", redirect, data).status == 200

    def read(self, path: str, **query: object) -> Reply:
        """Send an OPEN in two steps."""
        redirect = self.names.ask("GET", path, "OPEN", **query)
        assert redirect.status == 307, redirect
        return self.follow("GET", redirect)

    def follow(self, method: str, redirect: Reply, body: bytes | None = None) -> Reply:
        return self.served.request(method, self.target(redirect), body)

    def target(self, redirect: Reply) -> str:
        """Return the second step's request target."""
        prefix = f"http://127.0.0.1:{self.port}/"
        assert redirect.headers["location"].startswith(prefix)
        return redirect.headers["location"].removeprefix(prefix[:-1])

    def staged(self) -> list[Path]:
        """Return the files of chunks that are being written."""
        return [entry for entry in self.directory.rglob("*") if entry.is_file() and "staging" in entry.parts]

    def close(self) -> None:
        self.pool.shut_down()
        self.served.app.close()  # type: ignore[attr-defined]
        self.server.stop()
        self.pool.close_all()


@pytest.fixture(scope="session")
def signer() -> Signer:
    return Signer(b"a secret of the tests")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory, signer: Signer) -> Iterator[NameSide]:
    """Yield a name side with one datanode, which is never asked for data."""
    side = NameSide(tmp_path_factory.mktemp("names"), signer)
    with contextlib.closing(side), side.served:
        side.register("dn-1", 9866, 9864)
        yield side


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, signer: Signer) -> Iterator[DataSide]:
    """Yield a datanode with little memory and short timeouts, registered at its own name side `data.names`."""
    names = NameSide(tmp_path_factory.mktemp("names"), signer)
    with contextlib.closing(names), names.served:
        limits = GatewayLimits(
            body_idle_timeout_s=1.0,
            # test_under_construction covers the visibility of unfinished files.
            upload_pause_s=math.inf,
            queue_timeout_s=1.0,
            threads=1,
            downloads_max=2,
            buffer_bytes_max=16 << 20,
        )
        side = DataSide("dn-1", tmp_path_factory.mktemp("data"), names, signer, limits)
        with side.served:
            names.register("dn-1", side.server.address[1], side.port, side.process)
            yield side
        side.close()


@pytest.fixture(scope="session")
def serve() -> Callable[[Callable[[], App]], Served]:
    """Return the class that runs an application behind a real server: `with serve(build) as served`."""
    return Served


@pytest.fixture(scope="session")
def stock_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield one JVM for all tests of Hadoop's own client; each module creates its own clusters and clients."""
    from support.stock_hadoop import running_gateway

    with running_gateway(tmp_path_factory.mktemp("java")) as gateway:
        yield gateway
