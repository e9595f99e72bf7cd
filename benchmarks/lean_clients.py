"""Clients that cost little: one thread, an epoll, and requests that are made before they are sent.

They load a coordinator with closed loops, one call at a time on each connection, without taking the processor from
it as clients in Python do.
"""

from __future__ import annotations

import getpass
import os
import select
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Final

from peacefs.protocol.frames import PREFIX_BYTES, FrameReader, encode
from peacefs.protocol.handshake import Identity, connecting, welcomed
from peacefs.protocol.messages import Message, Target

from .plain_hdfs import greeting

_LENGTH_AT: Final = 8
_LENGTH: Final = struct.Struct(">I")
_TIMEOUT_S: Final = 60.0
#: Returns the size of the first complete answer in some bytes, 0 if there is none. Raises on a refusal.
Take = Callable[[bytes], int]


def framed_connection(host: str, port: int) -> socket.socket:
    """Return a connection on which frames may be sent."""
    sock = _connected(host, port)
    me = Identity("", "client", f"client-{os.getpid()}", None)
    reader = FrameReader()
    handshake = connecting(me, os.urandom(16), target=Target("coordinator", "coordinator", f"{host}:{port}"))
    said: Message = next(handshake)
    while True:
        sock.sendall(encode(said))
        try:
            said = handshake.send(_received(sock, reader))
        except StopIteration as stop:
            sock.sendall(encode(stop.value.last_word))
            welcomed(_received(sock, reader))
            return sock


def http_connection(host: str, port: int) -> socket.socket:
    """Return a connection on which HTTP requests may be sent."""
    return _connected(host, port)


def hdfs_connection(host: str, port: int) -> socket.socket:
    """Return a connection on which requests of HDFS's clients may be sent."""
    sock = _connected(host, port)
    sock.sendall(greeting(getpass.getuser()))
    return sock


def _connected(host: str, port: int) -> socket.socket:
    sock = socket.create_connection((host, port), _TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _received(sock: socket.socket, reader: FrameReader) -> Message:
    while True:
        data = sock.recv(1 << 16)
        assert data, "the coordinator closed the connection"
        for frame in reader.feed(data):
            return frame.message


def take_frame(data: bytes) -> int:
    """Return the size of the first complete frame, 0 if there is none."""
    if len(data) < PREFIX_BYTES:
        return 0
    size = PREFIX_BYTES + int(_LENGTH.unpack_from(data, _LENGTH_AT)[0])
    if len(data) < size:
        return 0
    assert b"Failure" not in data[PREFIX_BYTES : PREFIX_BYTES + 20], data[PREFIX_BYTES:size]
    return size


def take_http(data: bytes) -> int:
    """Return the size of the first complete answer, 0 if there is none."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return 0
    head = data[:end].lower()
    assert head.startswith(b"http/1.1 200"), data
    begin = head.index(b"content-length:") + len(b"content-length:")
    size = end + 4 + int(head[begin:].split(b"\r\n", 1)[0])
    return size if len(data) >= size else 0


def take_hdfs(data: bytes) -> int:
    """Return the size of the first complete answer, 0 if there is none."""
    size = 4 + int.from_bytes(data[:4])
    if len(data) < max(size, 4):
        return 0
    # The header of a successful answer is shorter than 128 bytes, so its length takes one byte.
    assert data[4] < 0x80, data[:size]
    assert b"Exception" not in data[:size], data[:size]
    return size


def http_request(method: str, path: str, query: str) -> bytes:
    user = getpass.getuser()
    return f"{method} /webhdfs/v1{path}?user.name={user}&{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def run(sockets: Sequence[socket.socket], requests: Sequence[list[bytes]], take: Take) -> None:
    """Send each connection's requests, one at a time. Raises AssertionError on a refusal."""
    waiting = select.epoll()
    turns = {sock.fileno(): (sock, iter(each)) for sock, each in zip(sockets, requests, strict=True)}
    left = len(turns)
    for sock, mine in turns.values():
        waiting.register(sock, select.EPOLLIN)
        sock.sendall(next(mine))
    unread = dict.fromkeys(turns, b"")
    while left:
        ready = waiting.poll(_TIMEOUT_S)
        assert ready, "the coordinator does not answer"
        for descriptor, _ in ready:
            sock, mine = turns[descriptor]
            data = sock.recv(1 << 16)
            assert data, "the coordinator closed a connection"
            data = unread[descriptor] + data
            size = take(data)
            unread[descriptor] = data[size:]
            if size:
                following = next(mine, None)
                if following is None:
                    left -= 1
                else:
                    sock.sendall(following)
    waiting.close()
