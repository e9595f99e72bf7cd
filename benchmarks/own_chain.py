"""The write pipeline alone, to compare with `bare_chain`: data servers with stores, one process each.

This process signs the tokens itself. Large chunks go through one pipeline, one after the other. Small chunks go
through many connections at once, from a separate process.

    python benchmarks/own_chain.py --mebibytes 1024 --small-chunks 20000 --connections 16
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.chunk_buffer import ChunkBuffer
from peacefs.client.transfer.chunk_writer import send_chunk
from peacefs.datanode.pipeline.active_streams import StreamsUnderWay
from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.datanode.pipeline.dispatch import DataRequests
from peacefs.datanode.pipeline.hop import PipelineHop
from peacefs.datanode.pipeline.listeners import DataListeners
from peacefs.datanode.pipeline.server import DataServer
from peacefs.datanode.service import kept_files_max
from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.datanode.store.replica_changes import ReplicaChanges
from peacefs.protocol.errors import Unsupported
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import MIB, chunk_bytes_max, packet_bytes, thread_switch_interval_s
from peacefs.protocol.messages import Allocated, Hop, Message
from peacefs.protocol.tokens import ChunkWrite, Signer
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

_SIGNER = Signer(b"benchmark")
_CLUSTER = "benchmark"


def run(
    total_bytes: int, replicas: int, directory: Path, *, sync: bool = True, around_cache: bool | None = False
) -> float:
    """Return the seconds from the first byte until every node has acknowledged the last chunk, as
    `bare_chain.run`.
    """
    piece = os.urandom(packet_bytes)
    with _pipeline(replicas, directory, sync, around_cache) as pipeline, _client() as (driver, allocations):
        started = time.monotonic()
        left = total_bytes
        while left:
            length = min(left, chunk_bytes_max)
            stream = ByteStream()
            for at in range(0, length, packet_bytes):
                stream.feed(piece[: length - at])
            stream.finish()
            allocated = allocations(pipeline)
            driver.run(send_chunk(allocated, ChunkBuffer(stream, length)))
            left -= length
        return time.monotonic() - started


def run_small(
    chunks: int, chunk_bytes: int, connections: int, replicas: int, directory: Path, *, sync: bool = True
) -> float:
    """Return the seconds for `chunks` chunks, written by one thread per connection."""
    data = os.urandom(chunk_bytes)
    turns = iter(range(chunks))
    with _pipeline(replicas, directory, sync) as pipeline, _client() as (driver, allocations):

        def write() -> None:
            for _ in turns:
                buffer = ChunkBuffer(ByteStream.of(data), chunk_bytes_max)
                driver.run(send_chunk(allocations(pipeline), buffer))

        writers = [threading.Thread(target=write) for _ in range(connections)]
        started = time.monotonic()
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        return time.monotonic() - started


class _Allocations:
    """Allocates one chunk after another in the same pipeline."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, pipeline: list[Hop]) -> Allocated:
        number = next(self._numbers)
        token = _SIGNER.sign(ChunkWrite(time.time() + 600, number, number, pipeline))
        return Allocated(number, number, pipeline, token)


@contextlib.contextmanager
def _client() -> Iterator[tuple[ThreadDriver, _Allocations]]:
    pool = ConnectionPool(Identity(_CLUSTER, "client", "benchmark", None))
    yield ThreadDriver(pool, _no_coordinator), _Allocations()
    pool.close_all()


def _no_coordinator(message: Message, timeout_s: float) -> Message:
    raise Unsupported(f"{type(message).__name__}: there is no coordinator here")


@contextlib.contextmanager
def _pipeline(
    replicas: int, directory: Path, sync: bool, around_cache: bool | None = False
) -> Iterator[list[Hop]]:
    """Run the datanodes, and yield them as a pipeline."""
    context = multiprocessing.get_context("spawn")
    root = Path(tempfile.mkdtemp(dir=directory))
    ends: list[Connection] = []
    nodes = []
    try:
        for number in range(replicas):
            ours, theirs = context.Pipe()
            name = f"n{number}"
            node = context.Process(
                target=_serve, args=(name, root / name, sync, around_cache, theirs), daemon=True
            )
            node.start()
            nodes.append(node)
            ends.append(ours)
        yield [Hop(f"n{number}", *end.recv()) for number, end in enumerate(ends)]
    finally:
        for end in ends:
            end.close()
        for node in nodes:
            node.join(timeout=10)
            node.kill()
            node.join()
        shutil.rmtree(root)


def serve_beside(name: str, directory: Path) -> None:
    """Serve as one hop for `hops`: write the port to standard output, and end when standard input ends."""
    with _serving(name, directory) as port:
        print(port, flush=True)
        sys.stdin.read()


def _serve(name: str, directory: Path, sync: bool, around_cache: bool | None, end: Connection) -> None:
    """Run a datanode's data path until the other end of the pipe closes."""
    with _serving(name, directory, sync=sync, around_cache=around_cache) as port:
        end.send(("127.0.0.1", port))
        with contextlib.suppress(EOFError):
            end.recv()


@contextlib.contextmanager
def _serving(name: str, directory: Path, *, sync: bool = True, around_cache: bool | None = False) -> Iterator[int]:
    """Run a datanode's data path; yield its port."""
    sys.setswitchinterval(thread_switch_interval_s)
    directory.mkdir()
    me = Identity(_CLUSTER, "datanode", name, _SIGNER)
    pool = ConnectionPool(me)
    driver = ThreadDriver(
        pool, _no_coordinator, sync_to_disk=sync, write_around_cache=around_cache, files_kept_max=kept_files_max
    )
    store = ChunkStore(str(directory), 0, available_bytes=lambda: 1 << 50, rng=random.Random(name))
    driver.run(store.recover())
    changes = ReplicaChanges()
    streams = StreamsUnderWay(name)
    hop = PipelineHop(_SIGNER, store, changes, streams, clock=time.monotonic, wall_clock=time.time)
    requests = DataRequests(hop, ChunkServer(_SIGNER, store, changes, wall_clock=time.time))
    server = DataServer(DataListeners("127.0.0.1", 0, me), driver, requests)
    server.start()
    yield server.address[1]
    pool.shut_down()
    server.stop()
    driver.run(store.close())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--small-chunks", type=int, default=20_000)
    parser.add_argument("--small-chunk-bytes", type=int, default=1024)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--directory", type=Path, help="where the nodes write; by default a temporary directory")
    parser.add_argument("--around-cache", action="store_true", help="write large chunks around the page cache")
    parser.add_argument("--choose", action="store_true", help="have each hop choose the way of large chunks")
    parser.add_argument("--no-sync", action="store_true", help="leave out fdatasync")
    parser.add_argument("--serve", metavar="NAME", help="be one hop, in the directory given, for `hops`")
    options = parser.parse_args()
    if options.serve:
        serve_beside(options.serve, options.directory)
        return
    directory, sync = options.directory or Path(tempfile.gettempdir()), not options.no_sync
    if options.mebibytes:
        around_cache = None if options.choose else options.around_cache
        seconds = run(options.mebibytes * MIB, options.replicas, directory, sync=sync, around_cache=around_cache)
        print(f"{options.mebibytes / seconds:.0f} MiB/s ({seconds:.2f} s, {options.replicas} replicas)")
    if options.small_chunks:
        seconds = run_small(
            options.small_chunks,
            options.small_chunk_bytes,
            options.connections,
            options.replicas,
            directory,
            sync=sync,
        )
        rate = options.small_chunks / seconds
        print(f"{rate:.0f} chunks/s of {options.small_chunk_bytes} bytes over {options.connections} connections")


if __name__ == "__main__":
    main()
