"""The framing of HDFS's data transfer protocol: operations, packets and their limits. Pure.

A client sends a version, an operation and a message with its length; data then comes in packets:

    0  4  length of checksums and data, plus 4
    4  2  length of the header
    6  .  header (PacketHeaderProto), checksums, data

Numbers are big-endian. Messages that stand alone have their length before them, as a varint.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import KIB, MIB

from .datatransfer_pb2 import SUCCESS, PacketHeaderProto, PipelineAckProto, Status

#: The version that Hadoop 2 and 3 speak.
DATA_TRANSFER_VERSION: Final = 28
#: The number of packets that only say that their sender is alive.
HEARTBEAT_SEQNO: Final = -1
#: Acknowledges no packet: the status says what went wrong.
UNKNOWN_SEQNO: Final = -2

# HDFS accepts packets up to this size (dfs.data.transfer.max.packet.size).
transfer_packet_bytes_max: Final = 16 * MIB
transfer_header_bytes_max: Final = 1 * KIB
# A request with its token and the names of a whole pipeline.
transfer_message_bytes_max: Final = 64 * KIB

OPERATION: Final = struct.Struct(">HB")
PACKET_LENGTHS: Final = struct.Struct(">IH")
_LENGTH_BYTES: Final = 4
_VARINT_BYTES_MAX: Final = 5

M = TypeVar("M", bound=Message)


class Operation(IntEnum):
    WRITE_BLOCK = 80
    READ_BLOCK = 81
    READ_METADATA = 82
    REPLACE_BLOCK = 83
    COPY_BLOCK = 84
    BLOCK_CHECKSUM = 85
    TRANSFER_BLOCK = 86
    REQUEST_SHORT_CIRCUIT_FDS = 87
    RELEASE_SHORT_CIRCUIT_FDS = 88
    REQUEST_SHORT_CIRCUIT_SHM = 89
    BLOCK_GROUP_CHECKSUM = 90
    CUSTOM = 127


def decode_operation(raw: Bytes) -> Operation:
    """Return the operation of a request's first three bytes. Raises BadRequest."""
    version, code = OPERATION.unpack(raw)
    if version != DATA_TRANSFER_VERSION:
        raise BadRequest(f"version {version} of the data transfer protocol is not spoken here, only 28")
    try:
        return Operation(code)
    except ValueError:
        raise BadRequest(f"there is no operation {code} in the data transfer protocol") from None


def decode_length(raw: Bytes, bytes_max: int = transfer_message_bytes_max) -> tuple[int, int] | None:
    """Return the length of a message and the size of the varint before it; None if more bytes are needed.

    Raises BadRequest if the message would be longer than `bytes_max`.
    """
    length = 0
    for at, byte in enumerate(raw[:_VARINT_BYTES_MAX]):
        length |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            if length > bytes_max:
                raise BadRequest(f"a message of {length} bytes, where at most {bytes_max} are allowed")
            return length, at + 1
    if len(raw) >= _VARINT_BYTES_MAX:
        raise BadRequest("a message begins with no length")
    return None


def decode_message(kind: type[M], raw: Bytes) -> M:
    """Return a message. Raises BadRequest if it is damaged or lacks a required field."""
    message: M = kind()
    try:
        message.ParseFromString(bytes(raw))
        is_whole = message.IsInitialized()
    except DecodeError:
        is_whole = False
    if not is_whole:
        raise BadRequest(f"a {kind.DESCRIPTOR.name} is damaged or lacks a required field")
    return message


def delimited(message: Message) -> bytes:
    """Return a message with its length before it."""
    body: bytes = message.SerializeToString()
    length, head = len(body), bytearray()
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + body


class PacketLengths(NamedTuple):
    """The sizes of a packet's parts."""

    header: int
    #: The checksums and the data together.
    body: int


def decode_packet_lengths(raw: Bytes) -> PacketLengths:
    """Return the sizes of a packet that begins with these six bytes. Raises BadRequest if it is too large."""
    length, header = PACKET_LENGTHS.unpack(raw)
    if not _LENGTH_BYTES <= length <= transfer_packet_bytes_max:
        raise BadRequest(f"a packet of {length} bytes; at most {transfer_packet_bytes_max} are allowed")
    if header > transfer_header_bytes_max:
        raise BadRequest(f"a packet has a header of {header} bytes")
    return PacketLengths(header, length - _LENGTH_BYTES)


def decode_packet_header(raw: Bytes, body_bytes: int) -> PacketHeaderProto:
    """Return the header of a packet with `body_bytes` of checksums and data. Raises BadRequest."""
    header = decode_message(PacketHeaderProto, raw)
    if not 0 <= header.dataLen <= body_bytes:
        raise BadRequest(f"a packet of {body_bytes} bytes says that {header.dataLen} of them are data")
    if header.offsetInBlock < 0:
        raise BadRequest(f"a packet begins at byte {header.offsetInBlock}")
    return header


def pack_packet(offset: int, seqno: int, sums: Bytes, data_bytes: int, *, last: bool = False) -> bytes:
    """Return everything of a packet that comes before its data."""
    header = PacketHeaderProto(
        offsetInBlock=offset, seqno=seqno, lastPacketInBlock=last, dataLen=data_bytes
    ).SerializeToString()
    length = _LENGTH_BYTES + len(sums) + data_bytes
    return b"".join((PACKET_LENGTHS.pack(length, len(header)), header, sums))


def pack_acks(seqnos: Sequence[int], nodes: int, status: Status = SUCCESS) -> bytes:
    """Return the acknowledgements of packets, in order, each in the name of all `nodes` of the pipeline.

    A status other than SUCCESS is the first node's alone.
    """
    replies = [SUCCESS] * nodes if status == SUCCESS else [status]
    return b"".join(delimited(PipelineAckProto(seqno=seqno, reply=replies)) for seqno in seqnos)
