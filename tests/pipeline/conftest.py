"""Data servers on loopback with real stores, and faults to inject between and in them."""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pipeline.relay import Relay
from support.waiting import wait_until

from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.file_reader import FileReader
from peacefs.client.transfer.file_writer import WriteStats, write_file
from peacefs.client.transfer.write_grants import GrantClient
from peacefs.datanode.control.prover import Prover
from peacefs.datanode.control.replicator import Replicator
from peacefs.datanode.pipeline.active_streams import StreamsUnderWay
from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.datanode.pipeline.dispatch import DataRequests
from peacefs.datanode.pipeline.hop import PipelineHop
from peacefs.datanode.pipeline.latency_samples import LatencySamples
from peacefs.datanode.pipeline.listeners import DataListeners
from peacefs.datanode.pipeline.server import DataServer
from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.datanode.store.replica_changes import ReplicaChanges
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import NoDatanodes, Unsupported
from peacefs.protocol.frames import Frame
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import (
    AllocateChunk,
    Allocated,
    ChunkLayout,
    Completed,
    CompleteFile,
    Done,
    GetLayout,
    GrantedChunk,
    Hop,
    Layout,
    Message,
    ReportCorrupt,
    Scheduled,
    StateWriteSet,
    StreamEnded,
    WriteChunk,
    WrittenChunk,
)
from peacefs.protocol.tokens import ChunkRead, ChunkWrite, Signer
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.effects import Connection, Effect, close, connect, receive, send
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tls import TlsFiles, TlsIdentity

CLUSTER = "test-cluster"
BLOCK_BYTES = 8 * 1024 * 1024


class Node:
    """A datanode's data path with its own store and connection pool, behind a relay."""

    def __init__(self, name: str, directory: Path, cluster: Cluster) -> None:
        signer, hop_timeout_s = cluster.signer, cluster.hop_timeout_s
        self.name = name
        self.directory = directory
        me = Identity(CLUSTER, "datanode", name, signer)
        self.pool = ConnectionPool(me, tls=cluster.tls)
        self.driver = ThreadDriver(self.pool, cluster.coordinator.call, sync_to_disk=False)
        self.changes = ReplicaChanges()
        directory.mkdir(parents=True)
        self.available_bytes = 1 << 40
        self.store = ChunkStore(
            str(directory), 0, available_bytes=lambda: self.available_bytes, rng=random.Random(name)
        )
        self.driver.run(self.store.recover())
        self.samples = LatencySamples()
        self.pipeline = PipelineHop(
            signer,
            self.store,
            self.changes,
            StreamsUnderWay(name),
            self.samples,
            clock=time.monotonic,
            wall_clock=time.time,
            hop_timeout_s=hop_timeout_s,
        )
        server = ChunkServer(
            signer, self.store, self.changes, wall_clock=time.time, reader_timeout_s=hop_timeout_s
        )
        self.replicator = Replicator(self.store, self.changes, hop_timeout_s=hop_timeout_s)
        self.prover = Prover(self.store, self.changes)
        self.requests = DataRequests(self.pipeline, server)
        self.relay = Relay()
        #: The address for others.
        self.address = self.relay.address
        listeners = DataListeners(
            "127.0.0.1", 0, me, shares_descriptors=cluster.shares_descriptors, advertised=self.address
        )
        self.server = DataServer(listeners, self.driver, self.requests, tls=cluster.tls)
        self.relay.target = self.server.address
        self.server.start()

    @property
    def hop(self) -> Hop:
        return Hop(self.name, *self.address)

    def is_quiet(self) -> bool:
        """Return whether it receives and sends nothing, and holds no partial chunk."""
        return self.requests.streams == 0 and not list((self.directory / "staging").iterdir())

    def break_disk(self, kind: type[Effect]) -> None:
        """Let the disk fail at each of these effects from now on."""

        def fail(effect: Effect) -> None:
            raise OSError(errno.EIO, "Input/output error")

        self.driver._perform[kind] = fail

    def damage(self, fragment: bytes) -> None:
        """Flip a bit in the middle of these bytes, wherever they are on the disk."""
        for path in self.directory.rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            at = content.find(fragment)
            if at >= 0:
                changed = content[at + len(fragment) // 2] ^ 1
                with path.open("r+b") as file:
                    file.seek(at + len(fragment) // 2)
                    file.write(bytes([changed]))
                return
        raise AssertionError(f"{self.name} has no such bytes")

    def forget(self) -> None:
        self.changes.forget()
        for replica in self.store.replicas():
            self.driver.run(self.store.delete(replica.chunk, replica.version))

    def stop(self) -> None:
        self.relay.stop()
        self.pool.shut_down()
        self.server.stop()
        self.pool.close_all()
        self.driver.run(self.store.close())
        self.driver.close()


class Coordinator:
    """Answers control calls like a coordinator: with nodes in a fixed order, and without checks."""

    def __init__(self, signer: Signer) -> None:
        self.signer = signer
        self.nodes: dict[str, Node] = {}
        self.replication = 3
        self.completed: list[CompleteFile] = []
        self.corrupt: list[ReportCorrupt] = []
        self.allocations: list[AllocateChunk] = []
        self.ended: list[StreamEnded] = []
        self._drawn = 0
        self._lock = threading.Lock()

    def call(self, message: Message, timeout_s: float) -> Message:
        with self._lock:
            match message:
                case AllocateChunk():
                    self.allocations.append(message)
                    return self._allocate(message)
                case StateWriteSet():
                    return Scheduled([self._grant(message, index) for index, _bytes in message.chunks], 0)
                case StreamEnded():
                    self.ended.append(message)
                    return Done()
                case CompleteFile():
                    self.completed.append(message)
                    for chunk in message.chunks:
                        self.verify(chunk)
                    return Completed(sum(chunk.length for chunk in message.chunks))
                case GetLayout():
                    return self._renewed(message)
                case ReportCorrupt():
                    self.corrupt.append(message)
                    return Done()
        raise Unsupported(type(message).__name__)

    def _grant(self, stated: StateWriteSet, index: int) -> GrantedChunk:
        """Grant at once, and record the chunk as allocated."""
        request = AllocateChunk(stated.token, stated.exclude, stated.abandoned[-1] if stated.abandoned else None)
        self.allocations.append(request)
        return GrantedChunk(index, 1, len(self.allocations), self._allocate(request, grant=len(self.allocations)))

    def forget(self) -> None:
        for record in (self.completed, self.corrupt, self.allocations, self.ended):
            record.clear()

    def verify(self, chunk: WrittenChunk) -> None:
        """Raise AccessDenied unless every receipt is good."""
        for receipt in chunk.receipts:
            self.signer.verify_receipt(receipt, chunk.chunk, chunk.version, chunk.length, chunk.checksum)

    def _allocate(self, request: AllocateChunk, grant: int = 0) -> Allocated:
        chosen = [node for node in self.nodes if node not in request.exclude][: self.replication]
        if not chosen:
            raise NoDatanodes("no datanode is left")
        return self.allocated(chosen, grant=grant)

    def allocated(self, nodes: list[str], lifetime_s: float = 60.0, grant: int = 0) -> Allocated:
        self._drawn += 2
        chunk, version = self._drawn, self._drawn + 1
        hops = [self.nodes[node].hop for node in nodes]
        token = self.signer.sign(ChunkWrite(time.time() + lifetime_s, chunk, version, hops, grant))
        return Allocated(chunk, version, hops, token)

    def _renewed(self, asked: GetLayout) -> Layout:
        """Renew the token of the last written file; if only a chunk is requested, its token, valid or not."""
        layout = self.layout(self.completed[-1].chunks)
        if not asked.held:
            return layout
        held = self.signer.verify_even_late(asked.held, ChunkRead).chunk
        return Layout(layout.length, [chunk for chunk in layout.chunks if chunk.chunk == held], asked.token)

    def layout(self, chunks: list[WrittenChunk]) -> Layout:
        layouts = [
            ChunkLayout(
                chunk.chunk,
                chunk.version,
                chunk.length,
                self.signer.sign(ChunkRead(time.time() + 60, chunk.chunk)),
                [self.nodes[receipt.node].hop for receipt in chunk.receipts],
            )
            for chunk in chunks
        ]
        return Layout(sum(chunk.length for chunk in chunks), layouts)


class Cluster:
    """Three datanodes and a client."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        hop_timeout_s: float = 10.0,
        shares_descriptors: bool = False,
        authority: TrialAuthority | None = None,
    ) -> None:
        """With `shares_descriptors`, readers are on the datanodes' host, and get open files of large chunks.

        With an `authority`, all connections use TLS.
        """
        self.tls = None if authority is None else TlsIdentity(authority.issue(["127.0.0.1"]), "127.0.0.1")
        trusting = None if authority is None else TlsIdentity(TlsFiles(ca=authority.ca))
        self.shares_descriptors = shares_descriptors
        signer = Signer(b"a secret of the tests")
        self.signer = signer
        self.hop_timeout_s = hop_timeout_s
        self.coordinator = Coordinator(signer)
        for number in range(nodes):
            name = f"n{number}"
            self.coordinator.nodes[name] = Node(name, directory / name, self)
        self.pool = ConnectionPool(Identity(CLUSTER, "client", "test", None), tls=trusting)
        self.driver = ThreadDriver(self.pool, self.coordinator.call)
        self.grant_client = GrantClient("test", pushed=True)
        self.by_hand: list[Connection] = []

    @property
    def nodes(self) -> list[Node]:
        return list(self.coordinator.nodes.values())

    def write(self, source: ByteStream | bytes, block_bytes: int = BLOCK_BYTES) -> tuple[Completed, WriteStats]:
        if isinstance(source, bytes):
            source = ByteStream.of(source)
        return self.driver.run(
            write_file(
                "file-token",
                None,
                source,
                chunk_bytes=block_bytes,
                grant_client=self.grant_client,
                hop_timeout_s=self.hop_timeout_s,
            )
        )

    def layout(self) -> Layout:
        """Return the layout of the last written file."""
        return self.coordinator.layout(self.coordinator.completed[-1].chunks)

    def read(self, offset: int = 0, length: int | None = None, layout: Layout | None = None) -> bytes:
        """Read the last written file, through the participant of clients and gateways."""
        layout = layout or self.layout()
        wanted = layout.length - offset if length is None else length
        reader = FileReader("file-token", layout, offset, wanted, hop_timeout_s=self.hop_timeout_s)
        pieces = []
        while (piece := self.driver.run(reader.next_piece())) is not None:
            pieces.append(bytes(piece))
        return b"".join(pieces)

    def layout_on(self, *names: str) -> Layout:
        """Return the layout of the last written file, with replicas only on these nodes, in this order."""
        layout = self.layout()
        for chunk in layout.chunks:
            chunk.replicas[:] = [self.coordinator.nodes[name].hop for name in names]
        return layout

    def send_first(self, connection: Connection, allocated: Allocated, data: bytes, *, last: bool) -> None:
        """Start a chunk by hand, for tests that then do what a real writer would not."""
        opening = WriteChunk(
            allocated.token,
            allocated.chunk,
            allocated.version,
            block_checksums(data),
            last,
        )
        self.driver.run(send(connection, opening, data, timeout_s=60.0))

    def connect(self, name: str) -> Connection:
        """Connect to a node's data server as a client without the secret."""
        connection = self.driver.run(connect(self.coordinator.nodes[name].address, name))
        self.by_hand.append(connection)
        return connection

    def answer(self, connection: Connection) -> Message:
        return self.driver.run(receive(connection, timeout_s=60.0)).message

    def forget(self) -> None:
        for connection in self.by_hand:
            self.driver.run(close(connection))
        for node in self.nodes:
            node.forget()
        self.coordinator.forget()

    def stop(self) -> None:
        self.pool.shut_down()
        for node in self.nodes:
            node.stop()
        for connection in self.by_hand:
            self.driver.run(close(connection))
        self.pool.close_all()
        self.driver.close()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(**options: float) -> Cluster:
        made.append(Cluster(tmp_path / str(len(made)), **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop()


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("shared"))
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """Return a shared cluster, emptied, for tests that break nothing permanently."""
    shared_cluster.forget()
    return shared_cluster


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for an effect of another thread."""
    return wait_until


@pytest.fixture
def messages_sent(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Record every message that any participant of the test sends from now on."""
    sent: list[Message] = []

    def record(name: str) -> None:
        send = getattr(SocketConnection, name)

        def recorded(self: SocketConnection, message: Message, *rest: object) -> object:
            sent.append(message)
            return send(self, message, *rest)

        monkeypatch.setattr(SocketConnection, name, recorded)

    for name in ("send", "send_now", "send_file", "send_descriptor"):
        record(name)
    send_frames_now = SocketConnection.send_frames_now

    def recorded(self: SocketConnection, frames: Sequence[Frame]) -> memoryview:
        sent.extend(frame.message for frame in frames)
        return send_frames_now(self, frames)

    monkeypatch.setattr(SocketConnection, "send_frames_now", recorded)
    return sent
