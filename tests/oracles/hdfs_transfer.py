"""A client of HDFS's data transfer protocol, written from the protocol alone: bytes, varints and field numbers.

It encodes and decodes protobuf by hand and knows nothing of the product. CRC32C is that of a public library, which
a test compares with the published check values.
"""

from __future__ import annotations

import hashlib
import socket
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

WRITE, READ, CHECKSUM, TRANSFER, SHORT_CIRCUIT = 80, 81, 85, 86, 87
SUCCESS, ERROR, ERROR_CHECKSUM, ACCESS_TOKEN, CHECKSUM_OK, UNSUPPORTED = 0, 1, 2, 5, 6, 7
NULL, CRC32, CRC32C = 0, 1, 2
SETUP_APPEND, STREAMING_RECOVERY, CLOSE_RECOVERY, SETUP_CREATE = 0, 3, 5, 6


def sums(data: bytes, unit: int, kind: int = CRC32C) -> bytes:
    """Return the packed checksums of each `unit` bytes."""
    if kind == NULL:
        return b""
    crc = crc32c if kind == CRC32C else zlib.crc32
    return b"".join(struct.pack(">I", crc(data[at : at + unit])) for at in range(0, len(data), unit))


def md5_of_crcs(data: bytes) -> bytes:
    """Return what HDFS compares a block by."""
    return hashlib.md5(sums(data, 512), usedforsecurity=False).digest()


# -- protobuf --------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    number &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Return a message: numbers as varints, everything else with its length."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def fields_of(raw: bytes) -> dict[int, list[Any]]:
    """Return the values of each field of a message, in order."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(raw):
        key, at = _varint_at(raw, at)
        value: Any
        match key & 7:
            case 0:
                value, at = _varint_at(raw, at)
            case 1:
                value, at = int.from_bytes(raw[at : at + 8], "little", signed=True), at + 8
            case 2:
                length, at = _varint_at(raw, at)
                value, at = raw[at : at + length], at + length
            case 5:
                value, at = int.from_bytes(raw[at : at + 4], "little", signed=True), at + 4
            case kind:
                raise AssertionError(f"field {key >> 3} has the type {kind}")
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint_at(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = raw[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


# -- the client ------------------------------------------------------------------------------------


class Block:
    """What a client knows of a block."""

    def __init__(self, chunk: int, version: int, token: str, length: int = 0) -> None:
        self.raw = message((1, "BP-1"), (2, chunk), (3, version), (4, length))
        self.header = message((1, self.raw), (2, message((1, token), (2, b""), (3, "HDFS_BLOCK_TOKEN"), (4, ""))))


class TransferClient:
    """One connection to a datanode."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=20)

    def __enter__(self) -> TransferClient:
        return self

    def __exit__(self, *fault: object) -> None:
        self.socket.close()

    def exactly(self, count: int) -> bytes:
        out = b""
        while len(out) < count:
            piece = self.socket.recv(count - len(out))
            if not piece:
                raise EOFError(f"the datanode closed the connection after {len(out)} of {count} bytes")
            out += piece
        return out

    def ask(self, operation: int, request: bytes, version: int = 28) -> None:
        self.socket.sendall(struct.pack(">HB", version, operation) + varint(len(request)) + request)

    def message(self) -> dict[int, list[Any]]:
        length = shift = 0
        while True:
            byte = self.exactly(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return fields_of(self.exactly(length))

    # -- reading -------------------------------------------------------------------------------------

    def ask_to_read(
        self, block: Block, offset: int, length: int, *, checksums: bool = True
    ) -> dict[int, list[Any]]:
        header = message((1, block.header), (2, "a test"))
        self.ask(READ, message((1, header), (2, offset), (3, length), (4, int(checksums))))
        return self.message()

    def read(self, block: Block, offset: int, length: int, *, checksums: bool = True) -> bytes:
        """Read a range, verify every checksum, and say so; the connection can be used again."""
        answer = self.ask_to_read(block, offset, length, checksums=checksums)
        assert answer[1] == [SUCCESS], answer
        info = fields_of(answer[4][0])
        kind, unit = (fields_of(info[1][0])[number][0] for number in (1, 2))
        first = at = info[2][0]
        assert first <= offset < first + unit, "the datanode aligns to a unit of its checksums"
        assert kind == (CRC32C if checksums else NULL)
        data, seqno = b"", 0
        while True:
            header, packed, piece = self.packet()
            assert (header[1], header[2]) == ([at], [seqno]), header
            assert packed == sums(piece, unit, kind)
            data, at, seqno = data + piece, at + len(piece), seqno + 1
            if header[3] == [1]:
                assert not piece, "the last packet is empty"
                break
        status = message((1, CHECKSUM_OK if checksums else SUCCESS))
        self.socket.sendall(varint(len(status)) + status)
        return data[offset - first : offset - first + length]

    def packet(self) -> tuple[dict[int, list[Any]], bytes, bytes]:
        """Return the header, the checksums and the data of the next packet."""
        length, header_bytes = struct.unpack(">IH", self.exactly(6))
        header = fields_of(self.exactly(header_bytes))
        body = self.exactly(length - 4)
        split = len(body) - header[4][0]
        return header, body[:split], body[split:]

    def checksum(self, block: Block, *, composite: bool = False) -> dict[int, list[Any]]:
        self.ask(CHECKSUM, message((1, block.header), (2, message((1, 2 if composite else 1)))))
        answer = self.message()
        assert answer[1] == [SUCCESS], answer
        return fields_of(answer[3][0])

    # -- writing -------------------------------------------------------------------------------------

    def ask_to_write(
        self,
        block: Block,
        *,
        stage: int = SETUP_CREATE,
        received: int = 0,
        kind: int = CRC32C,
        unit: int = 512,
        targets: int = 0,
    ) -> dict[int, list[Any]]:
        header = message((1, block.header), (2, "a test"))
        node = message((1, message((1, "127.0.0.1"), (2, "x"), (3, "u"), (4, 1), (5, 1), (6, 1))))
        numbers = [(4, stage), (5, targets + 1), (6, received), (7, received), (8, 1)]
        checksum = message((1, kind), (2, unit))
        self.ask(WRITE, message((1, header), *[(2, node)] * targets, *numbers, (9, checksum)))
        return self.message()

    def send(
        self, data: bytes, offset: int, seqno: int, packed: bytes, *, last: bool = False, sync: bool = False
    ) -> None:
        header = struct.pack("<BqBqBBBi", 0x09, offset, 0x11, seqno, 0x18, last, 0x25, len(data))
        header += bytes((0x28, sync))
        self.socket.sendall(struct.pack(">IH", 4 + len(packed) + len(data), len(header)) + header + packed + data)

    def ack(self) -> tuple[int, list[int]]:
        """Return the number of the acknowledged packet, and what each datanode says."""
        fields = self.message()
        seqno = fields[1][0]
        return seqno >> 1 ^ -(seqno & 1), fields[2]

    def write(
        self, data: bytes, *, offset: int = 0, packet_bytes: int = 64512, unit: int = 512, kind: int = CRC32C
    ) -> Sequence[tuple[int, list[int]]]:
        """Send a block to its end as Hadoop's client does: the last packet after all acknowledgements."""
        acks, seqno = [], 0
        for at in range(0, len(data), packet_bytes):
            piece = data[at : at + packet_bytes]
            self.send(piece, offset + at, seqno, sums(piece, unit, kind))
            seqno += 1
        acks += [self.ack() for _packet in range(seqno)]
        self.send(b"", offset + len(data), seqno, b"", last=True)
        acks.append(self.ack())
        return acks
