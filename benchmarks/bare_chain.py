"""The machine's limit for a write pipeline: a chain of plain sockets and files.

    writer -> head -> middle -> tail, a process each

Every node takes up to 1 MiB from its socket, passes it on, and appends it to a file. At the end of each 64 MiB,
which get a file each, it does what a datanode does to make them last (fdatasync, rename, fsync of the directory),
waits for its successor's answer, and answers. No frames, no checksums, no tokens.

    python benchmarks/bare_chain.py --mebibytes 1024 --replicas 3 --directory /data
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

MIB = 1024 * 1024
CHUNK_BYTES = 64 * MIB
BUFFER_BYTES = 1 * MIB
_ACKNOWLEDGED = b"a"


def run(
    total_bytes: int,
    replicas: int,
    directory: Path,
    *,
    sync: bool = True,
    start: threading.Barrier | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> float:
    """Return the seconds from the first byte sent until every node has acknowledged the last chunk.

    Several chains that should run at once wait for each other at `start` until all are ready.
    """
    piece = memoryview(os.urandom(BUFFER_BYTES))
    with (
        tempfile.TemporaryDirectory(dir=directory) as files,
        _chain(replicas, Path(files), sync) as address,
        socket.create_connection(address) as head,
    ):
        head.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # An empty chunk. When it is acknowledged, every node is up.
        head.sendall((0).to_bytes(8, "big"))
        _expect_acknowledgement(head)
        if start is not None:
            start.wait()
        started = time.monotonic()
        left = total_bytes
        while left:
            chunk_left = chunk = min(left, chunk_bytes)
            head.sendall(chunk.to_bytes(8, "big"))
            while chunk_left:
                count = min(chunk_left, BUFFER_BYTES)
                head.sendall(piece[:count])
                chunk_left -= count
            _expect_acknowledgement(head)
            left -= chunk
        return time.monotonic() - started


@contextlib.contextmanager
def _chain(replicas: int, directory: Path, sync: bool) -> Iterator[tuple[str, int]]:
    """Start the nodes from the tail to the head. Return the head's address."""
    context = multiprocessing.get_context("spawn")
    nodes = []
    onward: tuple[str, int] | None = None
    try:
        for position in reversed(range(replicas)):
            listener = socket.create_server(("127.0.0.1", 0))
            files = directory / str(position)
            files.mkdir()
            node = context.Process(target=_serve, args=(listener, onward, files, sync), daemon=True)
            node.start()
            nodes.append(node)
            onward = listener.getsockname()
            listener.close()
        assert onward is not None
        yield onward
    finally:
        for node in nodes:
            node.join(timeout=10)
            node.kill()
            node.join()


def _serve(listener: socket.socket, onward: tuple[str, int] | None, files: Path, sync: bool) -> None:
    upstream, _address = listener.accept()
    upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    downstream = None
    if onward is not None:
        downstream = socket.create_connection(onward)
        downstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(BUFFER_BYTES))
    number = 0
    try:
        while (head := upstream.recv(8, socket.MSG_WAITALL)) != b"":
            number += 1
            _take_chunk(upstream, downstream, int.from_bytes(head, "big"), buffer, files / str(number), sync)
    finally:
        upstream.close()
        if downstream is not None:
            downstream.close()


def _take_chunk(
    upstream: socket.socket,
    downstream: socket.socket | None,
    length: int,
    buffer: memoryview,
    path: Path,
    sync: bool,
) -> None:
    if downstream is not None:
        downstream.sendall(length.to_bytes(8, "big"))
    staged = path.with_suffix(".staged")
    descriptor = os.open(staged, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    try:
        left = length
        while left:
            count = upstream.recv_into(buffer[: min(left, BUFFER_BYTES)])
            if count == 0:
                raise ConnectionError("the node before this one hung up")
            if downstream is not None:
                downstream.sendall(buffer[:count])
            os.write(descriptor, buffer[:count])
            left -= count
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    staged.rename(path)
    if sync:
        _sync_directory(path.parent)
    if downstream is not None:
        _expect_acknowledgement(downstream)
    upstream.sendall(_ACKNOWLEDGED)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _expect_acknowledgement(node: socket.socket) -> None:
    if node.recv(1) != _ACKNOWLEDGED:
        raise ConnectionError("the chain broke")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the nodes write; by default a temporary directory")
    parser.add_argument("--no-sync", action="store_true", help="leave out every fsync")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = options.directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        seconds = run(options.mebibytes * MIB, options.replicas, directory, sync=not options.no_sync)
    print(f"{options.mebibytes / seconds:.0f} MiB/s ({seconds:.2f} s, {options.replicas} replicas)")


if __name__ == "__main__":
    main()
