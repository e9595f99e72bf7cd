"""Hadoop's RPC as cheap as Python has it, so that clients leave the cores to what is measured."""

from __future__ import annotations

import os
import socket
from typing import TypeVar

from google.protobuf.message import Message

from peacefs.protocol.hadoop.rpc_pb2 import (
    IpcConnectionContextProto,
    RequestHeaderProto,
    RpcKindProto,
    RpcRequestHeaderProto,
    RpcResponseHeaderProto,
    UserInformationProto,
)

_GREETING = b"hrpc\x09\x00\x00"
_PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
_CONTEXT_CALL = -3
M = TypeVar("M", bound=Message)


class PlainHdfs:
    """One connection, with one call at a time."""

    def __init__(self, host: str, port: int, user: str) -> None:
        self._client = os.urandom(16)
        self._calls = 0
        self._methods: dict[str, bytes] = {}
        self._socket = socket.create_connection((host, port), timeout=60.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(greeting(user))

    def ask(self, method: str, request: Message, answer: type[M]) -> M:
        """Call a method and return its answer. Raises RuntimeError if it is refused."""
        self._calls += 1
        named = self._methods.get(method)
        if named is None:
            named = self._methods[method] = _method_header(method)
        self._socket.sendall(_frame(_header(self._calls, self._client), named, _delimited(request)))
        received = self._socket.recv(1 << 20)
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4]):
            received += self._socket.recv(1 << 20)
        # The header has less than 128 bytes, unless it has an exception.
        end = 5 + received[4]
        header_of_answer = RpcResponseHeaderProto.FromString(received[5:end])
        if header_of_answer.status != RpcResponseHeaderProto.SUCCESS:
            raise RuntimeError(f"{method} was refused: {header_of_answer.errorMsg}")
        while received[end] > 0x7F:
            end += 1
        found: M = answer.FromString(received[end + 1 :])
        return found


def greeting(user: str) -> bytes:
    """Return the bytes that begin a connection of a user."""
    said = IpcConnectionContextProto(userInfo=UserInformationProto(effectiveUser=user), protocol=_PROTOCOL)
    return _GREETING + _frame(_header(_CONTEXT_CALL, b""), _delimited(said))


def request(call: int, client: bytes, method: str, message: Message) -> bytes:
    """Return the frame of a call."""
    return _frame(_header(call, client), _method_header(method), _delimited(message))


def _method_header(method: str) -> bytes:
    return _delimited(
        RequestHeaderProto(methodName=method, declaringClassProtocolName=_PROTOCOL, clientProtocolVersion=1)
    )


def _header(call: int, client: bytes) -> bytes:
    return _delimited(
        RpcRequestHeaderProto(
            rpcKind=RpcKindProto.RPC_PROTOCOL_BUFFER,
            rpcOp=RpcRequestHeaderProto.RPC_FINAL_PACKET,
            callId=call,
            clientId=client,
            retryCount=0,
        )
    )


def _frame(*messages: bytes) -> bytes:
    body = b"".join(messages)
    return len(body).to_bytes(4) + body


def _delimited(message: Message) -> bytes:
    raw: bytes = message.SerializeToString()
    assert len(raw) < 1 << 14
    length = bytes([len(raw)]) if len(raw) < 0x80 else bytes([len(raw) & 0x7F | 0x80, len(raw) >> 7])
    return length + raw
