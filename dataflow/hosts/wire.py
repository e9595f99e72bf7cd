"""Messages of dataflows as bytes, and back. No I/O.

0   2  magic "df"
2   1  format, 1
3   1  kind of message
4   4  length of the head
8   4  length of the rows; 0 if the message has none
12  4  CRC32C of the 12 bytes before it, the head and the rows
16     head (MessagePack), then rows (an Arrow IPC message without its schema, which both ends have) or other bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pyarrow as pa
from crc32c import crc32c

from peacefs.dataflow.core.messages import (
    Ack,
    CheckpointRecorded,
    CheckpointStored,
    CopyHeld,
    CopyPiece,
    Credit,
    Data,
    Determinants,
    DeterminantsHeld,
    Ended,
    EventsHappened,
    EventsKept,
    HistoryPart,
    HistoryWanted,
    Message,
    NodeAlive,
    NodeHeartbeat,
    Pause,
    Paused,
    Placement,
    RestartPointReached,
    RestartPointRecorded,
    RowsLate,
    StandbyInStep,
    StandbyReady,
    Subscribe,
    Subscribed,
    Subscription,
    TrimOutput,
    UnitRecovered,
    UnitStopped,
)
from peacefs.dataflow.limits import dataflow_rows_bytes_max
from peacefs.dataflow.model.batches import Batch
from peacefs.protocol.errors import ProtocolViolation
from peacefs.protocol.limits import MIB

# The limits of one message between nodes: its head, and its rows.
dataflow_head_bytes_max: Final = 1 * MIB


_PREFIX = struct.Struct(">2sBBIII")
_MAGIC = b"df"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class _DataHead:
    stream: str
    subscription: Subscription
    first: int
    sent_bytes: int


_KINDS: tuple[type[Any], ...] = (
    _DataHead,
    Subscribe,
    Subscribed,
    Ended,
    Credit,
    Ack,
    Placement,
    NodeHeartbeat,
    CheckpointStored,
    CheckpointRecorded,
    UnitStopped,
    UnitRecovered,
    CopyPiece,
    CopyHeld,
    Determinants,
    DeterminantsHeld,
    TrimOutput,
    StandbyInStep,
    RestartPointReached,
    RestartPointRecorded,
    Pause,
    Paused,
    EventsHappened,
    EventsKept,
    HistoryWanted,
    HistoryPart,
    StandbyReady,
    NodeAlive,
    RowsLate,
)
#: Messages with bytes that stand where others have rows.
_WITH_DATA = (CopyPiece, RestartPointReached, HistoryPart)
_encoder = msgspec.msgpack.Encoder()
_decoders = [msgspec.msgpack.Decoder(kind) for kind in _KINDS]


def encode(message: Message) -> list[bytes | memoryview]:
    """Return the buffers of a message, to be sent one after the other."""
    rows: memoryview | bytes = b""
    head: object = message
    if isinstance(message, Data):
        head = _DataHead(message.stream, message.subscription, message.batch.first, message.sent_bytes)
        rows = memoryview(message.batch.rows.serialize())
    elif isinstance(message, _WITH_DATA):
        head, rows = replace(message, data=b""), message.data
    body = _encoder.encode(head)
    start = _PREFIX.pack(_MAGIC, _FORMAT, _KINDS.index(type(head)), len(body), len(rows), 0)[:-4]
    checksum = crc32c(rows, crc32c(body, crc32c(start)))
    first = start + checksum.to_bytes(4, "big") + body
    return [first, rows] if len(rows) else [first]


class MessageReader:
    """Bytes of one connection, in any pieces, to messages."""

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._schemas = schemas
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are whole now. Raises ProtocolViolation for anything else."""
        self._bytes += data
        while len(self._bytes) >= _PREFIX.size:
            magic, form, kind, head_bytes, rows_bytes, checksum = _PREFIX.unpack_from(self._bytes)
            if magic != _MAGIC or form != _FORMAT or kind >= len(_KINDS):
                raise ProtocolViolation("these bytes are no message of a dataflow")
            if head_bytes > dataflow_head_bytes_max or rows_bytes > dataflow_rows_bytes_max:
                raise ProtocolViolation(f"a message of {head_bytes} and {rows_bytes} bytes is too long")
            end = _PREFIX.size + head_bytes + rows_bytes
            if len(self._bytes) < end:
                return
            start = bytes(self._bytes[: _PREFIX.size - 4])
            with memoryview(self._bytes) as view:
                head = bytes(view[_PREFIX.size : _PREFIX.size + head_bytes])
                # Rows begin where memory does: Arrow computes faster with what is aligned.
                rows = bytes(view[_PREFIX.size + head_bytes : end])
            del self._bytes[:end]
            if crc32c(rows, crc32c(head, crc32c(start))) != checksum:
                raise ProtocolViolation("a message of a dataflow does not match its checksum")
            yield self._message(kind, head, rows)

    def _message(self, kind: int, head_bytes: bytes, rows_bytes: bytes) -> Message:
        try:
            head = _decoders[kind].decode(head_bytes)
            if isinstance(head, _WITH_DATA):
                return replace(head, data=rows_bytes)
            if not isinstance(head, _DataHead):
                return head  # type: ignore[no-any-return]
            rows = pa.ipc.read_record_batch(pa.py_buffer(rows_bytes), self._schemas[head.stream])
        except Exception as error:  # of msgspec or Arrow, which raise many kinds for bytes that make no sense
            raise ProtocolViolation(f"a message of a dataflow cannot be read: {error!r}") from error
        return Data(head.stream, head.subscription, Batch(head.first, rows), head.sent_bytes)
