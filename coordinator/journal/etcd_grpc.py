"""The one call that every commit waits for, in etcd's own protocol in place of its JSON gateway.

The gateway reads JSON, and calls etcd over another connection with what it has read: that is nearly half of what
etcd's leader computes for an entry. So an entry is put by gRPC. Everything else goes by way of the gateway, and so
does an entry of which gRPC does not tell at once that it is there.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from typing import Final

from .grpc_connection import GrpcConnection

# An entry goes by way of etcd's gateway for so long after gRPC was of no use.
journal_grpc_rest_s: Final = 5.0


_TXN = "/etcdserverpb.KV/Txn"
_VARINT, _BYTES = 0, 2
#: Numbers of fields in etcd's messages.
_COMPARE, _SUCCESS, _SUCCEEDED = 1, 2, 2
_TARGET, _KEY, _VERSION, _VALUE, _TARGET_VALUE = 2, 3, 4, 7, 3
_REQUEST_PUT, _PUT_KEY, _PUT_VALUE = 2, 1, 2


class EtcdGrpc:
    """Thread-safe. It rests for a while after it was of no use: a member is away, refuses, or has no gRPC here."""

    def __init__(self, context: ssl.SSLContext | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`context` is for TLS."""
        self._context = context
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: tuple[str, GrpcConnection] | None = None
        self._rests_until_s = float("-inf")

    def put_if(self, endpoint: str, token: str, given: tuple[str, bytes], key: str, value: bytes) -> bool:
        """Put a value where there is none, while another key has the value that is given, in one step.

        Return whether that was done. False is for all else: ask etcd's gateway then. Raises OSError.
        """
        with self._lock:
            if self._clock() < self._rests_until_s:
                return False
            answer = None
            try:
                answer = self._connection(endpoint).call(_TXN, _put_if(given, key, value), token)
            finally:
                if answer is None:
                    self._rests_until_s = self._clock() + journal_grpc_rest_s
                    self._drop()
            return answer is not None and _has_succeeded(answer)

    def _connection(self, endpoint: str) -> GrpcConnection:
        if self._kept is not None and (self._kept[0] != endpoint or not self._kept[1].is_open):
            self._drop()
        if self._kept is None:
            self._kept = endpoint, GrpcConnection(endpoint, self._context)
        return self._kept[1]

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept[1].close()
            self._kept = None

    def close(self) -> None:
        with self._lock:
            self._drop()


def _put_if(given: tuple[str, bytes], key: str, value: bytes) -> bytes:
    name, its_value = given
    has_value = _number(_TARGET, _TARGET_VALUE) + _bytes(_KEY, name.encode()) + _bytes(_VALUE, its_value)
    is_absent = _bytes(_KEY, key.encode()) + _number(_VERSION, 0)
    put = _bytes(_REQUEST_PUT, _bytes(_PUT_KEY, key.encode()) + _bytes(_PUT_VALUE, value))
    return _bytes(_COMPARE, has_value) + _bytes(_COMPARE, is_absent) + _bytes(_SUCCESS, put)


def _has_succeeded(answer: bytes) -> bool:
    """Return what a transaction's answer says. It is False, and left out by etcd, unless it is there."""
    at = 0
    while at < len(answer):
        tag, at = _take_varint(answer, at)
        if tag & 7 not in (_VARINT, _BYTES):
            return False
        value, at = _take_varint(answer, at)
        if tag == _SUCCEEDED << 3 | _VARINT:
            return value == 1
        if tag & 7 == _BYTES:
            at += value
    return False


def _take_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends; one that is cut off ends with the data."""
    number = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return number, at


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)
