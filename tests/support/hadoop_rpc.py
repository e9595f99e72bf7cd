"""A client of Hadoop's RPC, written from its wire format: one connection, one call at a time."""

from __future__ import annotations

import os
import socket
from typing import TypeVar

from google.protobuf.message import Message
from oracles.digest_md5 import respond

from peacefs.protocol.hadoop.rpc_pb2 import (
    RpcKindProto,
    RpcRequestHeaderProto,
    RpcResponseHeaderProto,
    RpcSaslProto,
)

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
    if not user:
        return frame(call_header(-3, b""), text_field(3, CLIENT_PROTOCOL))
    said = text_field(1, user) + (text_field(2, real_user) if real_user else b"")
    return frame(
        call_header(-3, b""), varint(2 << 3 | 2) + varint(len(said)) + said + text_field(3, CLIENT_PROTOCOL)
    )


def method_header(method: str, protocol: str = CLIENT_PROTOCOL, version: int = 1) -> bytes:
    return text_field(1, method) + text_field(2, protocol) + varint(3 << 3) + varint(version)


GREETING = b"hrpc\x09\x00\x00"
SASL_GREETING = b"hrpc\x09\x00\xdf"


class HadoopRpc:
    """Calls methods as `user`."""

    def __init__(
        self, host: str, port: int, user: str, *, real_user: str = "", token: tuple[bytes, bytes] | None = None
    ) -> None:
        """`token` is the identifier and the password of a delegation token; then `user` may be empty."""
        self._token = token
        self.client = os.urandom(16)
        self._address = (host, port)
        self._context = context(user, real_user)
        self.calls = 0
        self._socket = socket.socket()
        try:
            self.connect()
        except BaseException:
            self._socket.close()
            raise

    @classmethod
    def bare(cls, host: str, port: int) -> HadoopRpc:
        """Return a connection on which nothing has been sent."""
        made = cls.__new__(cls)
        made.client, made.calls = os.urandom(16), 0
        made._socket = socket.create_connection((host, port), timeout=_PATIENCE_S)
        return made

    def connect(self) -> None:
        """Connect, or connect again: the client and its calls stay the same."""
        self._socket.close()
        self._socket = socket.create_connection(self._address, timeout=_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._token is None:
            self._socket.sendall(GREETING + self._context)
        else:
            self._socket.sendall(SASL_GREETING)
            self._prove(*self._token)
            self._socket.sendall(self._context)

    def _prove(self, identifier: bytes, password: bytes) -> None:
        offered = self._sasl(RpcSaslProto(state=RpcSaslProto.NEGOTIATE))
        [way] = offered.auths
        assert (way.method, way.mechanism) == ("TOKEN", "DIGEST-MD5")
        nonce = way.challenge.decode().partition('nonce="')[2].partition('"')[0]
        response, proof = respond(nonce, identifier, password)
        begun = RpcSaslProto(state=RpcSaslProto.INITIATE, token=response)
        begun.auths.add(method="TOKEN", mechanism="DIGEST-MD5", protocol="", serverId="default")
        answer = self._sasl(begun)
        assert (answer.state, answer.token) == (RpcSaslProto.SUCCESS, proof)

    def _sasl(self, message: RpcSaslProto) -> RpcSaslProto:
        self._socket.sendall(frame(call_header(-33, b""), message.SerializeToString()))
        found: RpcSaslProto = RpcSaslProto.FromString(self.heard()[1])
        return found

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
            self.calls += 1
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        header = call_header(self.calls, self.client, int(again))
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
