"""The encoding of a dataflow's messages. No I/O.

0   2  magic "df"
2   1  format, 1
3   1  kind of message
4   4  length of the head
8   4  length of the rows; 0 if the message has none
12     head (MessagePack), then rows (an Arrow IPC message without its schema, which both ends have) or other bytes

The seals of the connection, or TLS, protect messages against changes.

Rows of a ring are part of the head, with their schema, since ring nodes do not know the schemas of mappers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

import msgspec
import numpy as np
import pyarrow as pa

from peacefs.dataflow.core.messages import CopyPiece, Data, HistoryPart, Message, RestartPointReached, Subscription
from peacefs.dataflow.limits import dataflow_rows_bytes_max
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.ring.messages import HostedMessage
from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import ProtocolViolation
from peacefs.protocol.limits import MIB

# Limits of one message between nodes: its head, and its rows.
dataflow_head_bytes_max: Final = 1 * MIB


_PREFIX = struct.Struct(">2sBBII")
_MAGIC = b"df"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class _DataHead:
    stream: str
    subscription: Subscription
    first: int
    sent_bytes: int


_OF_RINGS: Final = get_args(HostedMessage)
#: All processes of a query run the same version, so they agree on this order.
_KINDS: Final[tuple[type[Any], ...]] = (
    _DataHead,
    *(kind for kind in get_args(Message) if kind is not Data),
    *_OF_RINGS,
)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
#: Messages that carry bytes in place of rows.
_WITH_DATA = (CopyPiece, RestartPointReached, HistoryPart)


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


def encode(message: Message | HostedMessage) -> list[bytes | memoryview]:
    """Return the buffers of a message, to be sent one after the other."""
    rows: memoryview | bytes = b""
    head: object = message
    if isinstance(message, Data):
        head = _DataHead(message.stream, message.subscription, message.batch.first, message.sent_bytes)
        # Arrow gives signed bytes, which the seals of a connection do not take.
        rows = memoryview(message.batch.rows.serialize()).cast("B")
    elif isinstance(message, _WITH_DATA):
        head, rows = replace(message, data=b""), message.data
    body = _encoder.encode(head)
    first = _PREFIX.pack(_MAGIC, _FORMAT, _NUMBERS[type(head)], len(body), len(rows)) + body
    return [first, rows] if len(rows) else [first]


class MessageReader:
    """Parses the bytes of one connection, in pieces of any size, into messages."""

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._schemas = schemas
        self._bytes = bytearray()

    def feed(self, data: Bytes) -> Iterator[Message | HostedMessage]:
        """Yield the messages that are complete now. Raises ProtocolViolation for anything else."""
        self._bytes += data
        while len(self._bytes) >= _PREFIX.size:
            magic, form, kind, head_bytes, rows_bytes = _PREFIX.unpack_from(self._bytes)
            if magic != _MAGIC or form != _FORMAT or kind >= len(_KINDS):
                raise ProtocolViolation("these bytes are no message of a dataflow")
            head_bytes_max = dataflow_rows_bytes_max if _KINDS[kind] in _OF_RINGS else dataflow_head_bytes_max
            if head_bytes > head_bytes_max or rows_bytes > dataflow_rows_bytes_max:
                raise ProtocolViolation(f"a message of {head_bytes} and {rows_bytes} bytes is too long")
            end = _PREFIX.size + head_bytes + rows_bytes
            if len(self._bytes) < end:
                return
            with memoryview(self._bytes) as view:
                head = bytes(view[_PREFIX.size : _PREFIX.size + head_bytes])
                # Rows begin at an aligned address, since Arrow computes faster with aligned memory.
                rows = bytes(view[_PREFIX.size + head_bytes : end])
            del self._bytes[:end]
            yield self._message(kind, head, rows)

    def _message(self, kind: int, head_bytes: bytes, rows_bytes: bytes) -> Message | HostedMessage:
        try:
            head = _decoders[kind].decode(head_bytes)
            if isinstance(head, _WITH_DATA):
                return replace(head, data=rows_bytes)
            if not isinstance(head, _DataHead):
                return head  # type: ignore[no-any-return]
            rows = pa.ipc.read_record_batch(pa.py_buffer(rows_bytes), self._schemas[head.stream])
        except Exception as error:  # msgspec, Arrow and NumPy raise many kinds of errors
            raise ProtocolViolation(f"a message of a dataflow cannot be read: {error!r}") from error
        return Data(head.stream, head.subscription, Batch(head.first, rows), head.sent_bytes)
