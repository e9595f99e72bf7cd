"""A client of Hadoop's RPC, written from its wire format: one connection, one call at a time."""

from __future__ import annotations

import os
import socket
from typing import TypeVar

from google.protobuf.message import Message

from peacefs.protocol.hadoop.rpc_pb2 import RpcKindProto, RpcRequestHeaderProto, RpcResponseHeaderProto

CLIENT_PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
_PATIENCE_S = 60.0
M = TypeVar("M", bound=Message)


class RemoteError(Exception):
    """The server's exception: the name of its Java class, and its message."""

    def __init__(self, class_name: str, message: str) -> None:
        super().__init__(f"{class_name}: {message}")
        self.class_name = class_name
        self.message = message


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*made, number))


def text_field(number: int, value: str) -> bytes:
    """Return a text as a field of a message."""
    raw = value.encode()
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def delimited(raw: bytes) -> bytes:
    return varint(len(raw)) + raw


def frame(*messages: bytes) -> bytes:
    body = b"".join(map(delimited, messages))
    return len(body).to_bytes(4, "big") + body


def call_header(call: int, client: bytes, retry: int = 0) -> bytes:
    header = RpcRequestHeaderProto(callId=call, clientId=client, retryCount=retry)
    header.rpcKind = RpcKindProto.RPC_PROTOCOL_BUFFER
    header.rpcOp = RpcRequestHeaderProto.RPC_FINAL_PACKET
    raw: bytes = header.SerializeToString()
    return raw


def context(user: str, real_user: str = "") -> bytes:
    """Return the frame that says who calls."""
    said = text_field(1, user) + (text_field(2, real_user) if real_user else b"")
    return frame(
        call_header(-3, b""), varint(2 << 3 | 2) + varint(len(said)) + said + text_field(3, CLIENT_PROTOCOL)
    )


def method_header(method: str, protocol: str = CLIENT_PROTOCOL, version: int = 1) -> bytes:
    return text_field(1, method) + text_field(2, protocol) + varint(3 << 3) + varint(version)


GREETING = b"hrpc\x09\x00\x00"


class HadoopRpc:
    """Calls methods as `user`."""

    def __init__(self, host: str, port: int, user: str, *, real_user: str = "") -> None:
        self.client = os.urandom(16)
        self._address = (host, port)
        self._context = context(user, real_user)
        self._calls = 0
        self._socket = socket.socket()
        self.connect()

    def connect(self) -> None:
        """Connect, or connect again: the client and its calls stay the same."""
        self._socket.close()
        self._socket = socket.create_connection(self._address, timeout=_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(GREETING + self._context)

    def __enter__(self) -> HadoopRpc:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(
        self,
        method: str,
        request: Message | bytes,
        answer: type[M],
        *,
        again: bool = False,
        protocol: str = CLIENT_PROTOCOL,
        version: int = 1,
    ) -> M:
        """Call a method; `again` repeats the last call's id. Raises RemoteError, OSError."""
        if not again:
            self._calls += 1
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        header = call_header(self._calls, self.client, int(again))
        self._socket.sendall(frame(header, method_header(method, protocol, version), raw))
        found: M = answer.FromString(self.heard()[1])
        return found

    def heard(self) -> tuple[RpcResponseHeaderProto, bytes]:
        """Return the next answer. Raises RemoteError, ConnectionError."""
        body = self._exactly(int.from_bytes(self._exactly(4), "big"))
        length, at = _read_varint(body, 0)
        header = RpcResponseHeaderProto.FromString(body[at : at + length])
        if header.status != RpcResponseHeaderProto.SUCCESS:
            raise RemoteError(header.exceptionClassName, header.errorMsg)
        begin = at + length
        length, at = _read_varint(body, begin)
        return header, body[at : at + length]

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _exactly(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            piece = self._socket.recv(count - len(received))
            if not piece:
                raise ConnectionError("the server has closed the connection")
            received += piece
        return received


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def address_of(uri: str) -> tuple[str, int]:
    """Return host and port of an `hdfs://` URI."""
    host, _, port = uri.removeprefix("hdfs://").partition(":")
    return host, int(port)
