"""Messages of a ring as bytes, and back: a prefix as in `wire.py`, and MessagePack with rows as Arrow IPC."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from crc32c import crc32c

from peacefs.dataflow.limits import dataflow_rows_bytes_max
from peacefs.dataflow.ring import messages
from peacefs.dataflow.ring.view import RingMember
from peacefs.protocol.errors import ProtocolViolation

_PREFIX = struct.Struct(">2sBBII")
_MAGIC = b"pr"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A node listens, and may be given a place."""

    name: str
    address: str
    #: The process that it runs in.
    process: int


@dataclass(frozen=True, slots=True)
class BeginNode:
    """The members of the ring, with addresses; `begins`: the query begins with them."""

    members: tuple[RingMember, ...]
    begins: bool


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The figures of a node, for those who measure."""

    processor_s: float
    processed_rows: int
    replayed_rows: int
    waiting_rows: int
    backup_bytes: int
    state_keys: int
    checkpoint_bytes: int
    checkpoint_share: float
    #: Fragments that it owns.
    owned: int


@dataclass(frozen=True, slots=True)
class NodeFailed:
    """A function of the query raised an error: the query cannot go on."""

    reason: str


HostMessage = NodeFailed | messages.RingMessage | NodeStarted | BeginNode | NodeFigures

_KINDS: tuple[type[Any], ...] = (
    NodeStarted,
    BeginNode,
    NodeFigures,
    NodeFailed,
    messages.News,
    messages.Beat,
    messages.Tuples,
    messages.TuplesHeld,
    messages.Results,
    messages.ResultsTaken,
    messages.PeerCheckpoint,
    messages.CopyWanted,
    messages.CopyRefused,
    messages.KeptTuples,
    messages.Established,
    messages.Relieve,
    messages.NobodyRelieves,
    messages.Invite,
    messages.MayLeave,
    messages.Leave,
    messages.ProcessEnded,
    messages.StateLost,
    messages.Observed,
)


def _encode_special(value: object) -> Any:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, pa.RecordBatch):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return memoryview(sink.getvalue())
    raise NotImplementedError(f"{type(value).__name__} has no form on the wire")


def _decode_special(kind: type[Any], value: Any) -> Any:
    if kind is pa.RecordBatch:
        return pa.ipc.open_stream(pa.py_buffer(value)).read_next_batch()
    return np.frombuffer(value, np.int64)


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_special)
_decoders = [msgspec.msgpack.Decoder(kind, dec_hook=_decode_special) for kind in _KINDS]


def encode(message: HostMessage) -> list[bytes | memoryview]:
    """Return the buffers of a message, to be sent one after the other."""
    body = _encoder.encode(message)
    start = _PREFIX.pack(_MAGIC, _FORMAT, _KINDS.index(type(message)), len(body), 0)[:-4]
    return [start + crc32c(body, crc32c(start)).to_bytes(4, "big"), body]


class RingMessageReader:
    """Bytes of one connection, in any pieces, to messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[HostMessage]:
        """Yield the messages that are whole now. Raises ProtocolViolation for anything else."""
        self._bytes += data
        while len(self._bytes) >= _PREFIX.size:
            magic, form, kind, body_bytes, checksum = _PREFIX.unpack_from(self._bytes)
            if magic != _MAGIC or form != _FORMAT or kind >= len(_KINDS):
                raise ProtocolViolation("these bytes are no message of a ring")
            if body_bytes > dataflow_rows_bytes_max:
                raise ProtocolViolation(f"a message of {body_bytes} bytes is too long")
            end = _PREFIX.size + body_bytes
            if len(self._bytes) < end:
                return
            start = bytes(self._bytes[: _PREFIX.size - 4])
            with memoryview(self._bytes) as view:
                body = bytes(view[_PREFIX.size : end])
            del self._bytes[:end]
            if crc32c(body, crc32c(start)) != checksum:
                raise ProtocolViolation("a message of a ring does not match its checksum")
            yield _decode(kind, body)


def _decode(kind: int, body: bytes) -> HostMessage:
    try:
        message: HostMessage = _decoders[kind].decode(body)
    except Exception as error:  # of msgspec, Arrow or NumPy; an empty Arrow stream raises StopIteration
        raise ProtocolViolation(f"a message of a ring cannot be read: {error!r}") from error
    return message
