"""The machine's limit for a reader: `sendfile` at one end of a connection, `recv_into` at the other.

A process serves one file per connection, each in a thread. There are no frames, checksums or tokens: a request is
a number.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from peacefs.protocol.checksums import block_checksums

BUFFER_BYTES = 1024 * 1024


@contextlib.contextmanager
def serving(paths: Sequence[Path]) -> Iterator[tuple[str, int]]:
    """Run a process that sends the requested one of these files to each client. Return its address."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(listener, paths), daemon=True)
    server.start()
    try:
        yield listener.getsockname()
    finally:
        listener.close()
        server.kill()
        server.join()


def read(address: tuple[str, int], number: int, *, verify: bool = False) -> int:
    """Receive a file by its number below 256, in pieces of `BUFFER_BYTES`. Return its size in bytes."""
    buffer, total = bytearray(BUFFER_BYTES), 0
    with socket.create_connection(address) as server:
        server.send(bytes([number]))
        while count := server.recv_into(buffer, 0, socket.MSG_WAITALL):
            total += count
            if verify:
                block_checksums(memoryview(buffer)[:count])
    return total


def _serve(listener: socket.socket, paths: Sequence[Path]) -> None:
    while True:
        reader, _address = listener.accept()
        threading.Thread(target=_send, args=(reader, paths), daemon=True).start()


def _send(reader: socket.socket, paths: Sequence[Path]) -> None:
    [number] = reader.recv(1)
    descriptor = os.open(paths[number], os.O_RDONLY)
    try:
        offset = 0
        while count := os.sendfile(reader.fileno(), descriptor, offset, 1 << 30):
            offset += count
    finally:
        os.close(descriptor)
        reader.close()
