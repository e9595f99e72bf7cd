"""What a stranger may send to a port of a dataflow, made without the code that reads it."""

from __future__ import annotations

import io
import random
import struct

import msgspec
import pyarrow as pa
from crc32c import crc32c

_KINDS = 40


def _units_frame(kind: int, head: bytes, rows: bytes = b"") -> bytes:
    """Return a valid message between nodes of units, with its checksum."""
    start = struct.pack(">2sBBII", b"df", 1, kind, len(head), len(rows))
    return start + crc32c(rows, crc32c(head, crc32c(start))).to_bytes(4, "big") + head + rows


def _ring_frame(kind: int, body: bytes) -> bytes:
    """Return a valid message between nodes of a ring, with its checksum."""
    start = struct.pack(">2sBBI", b"pr", 1, kind, len(body))
    return start + crc32c(body, crc32c(start)).to_bytes(4, "big") + body


def _empty_stream() -> bytes:
    """Return an Arrow stream with a schema and no batch."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("key", pa.string())])):
        pass
    return sink.getvalue()


def foreign_token(rng: random.Random) -> bytes:
    """Return messages that name a node and a token, sometimes not ASCII."""
    token = rng.choice(("", "x" * 32, "\u00e9" * 32, "\u65e5\u672c", "\U0001f511", "\0"))
    hello = msgspec.msgpack.encode({"node": "node-1", "token": token, "beats": rng.random() < 0.5})
    return rng.choice((_units_frame, _ring_frame))(0, hello)


def empty_streams(rng: random.Random) -> bytes:
    """Return messages of a ring with results or rows that contain no batch."""
    empty = _empty_stream()
    result = {"mapper": "in", "after": 0, "number": 1, "interval": [0, 1], "rows": [empty]}
    values: tuple[object, ...] = (
        {"serial": 1, "result": result},
        {"mapper": "in", "serial": 1, "after": 0, "number": 1, "stamp_us": 0, "spans": [], "rows": empty},
        {"members": [], "begins": True, "rows": empty},
    )
    return _ring_frame(rng.randrange(_KINDS), msgspec.msgpack.encode(rng.choice(values)))


def announced(rng: random.Random) -> bytes:
    """Return the beginning of a long message."""
    length = rng.choice((0, 1, 1 << 20, (1 << 20) + 1, 256 << 20, (256 << 20) + 1, 2**32 - 1))
    start = rng.choice(
        (
            struct.pack(">2sBBIII", b"df", 1, rng.randrange(_KINDS), rng.choice((0, 100, 1 << 20)), length, 0),
            struct.pack(">2sBBII", b"pr", 1, rng.randrange(_KINDS), length, 0),
        )
    )
    return start + rng.randbytes(rng.choice((0, 10, 100_000)))


def greeting_alike(rng: random.Random) -> bytes:
    """Return a message in the form of a greeting, whose code was made without the token; whole, or cut."""
    name = rng.choice((b"node-1", b"edge", b"", b"\xff\xfe" * 20, "\u65e5".encode(), rng.randbytes(255)))
    head = struct.pack(">2sBBB", b"dg", rng.choice((1, 1, 1, 0, 2)), rng.choice((0, 1, 2, 255)), len(name))
    made = head + rng.randbytes(32) + name + rng.randbytes(rng.choice((0, 0, 5000)))
    return made[: rng.randrange(1, len(made))] if rng.random() < 0.3 else made


def before_the_greeting(rng: random.Random) -> bytes:
    """Return any of the above, or random bytes."""
    make = rng.choice(
        (foreign_token, foreign_token, empty_streams, announced, greeting_alike, lambda rng: rng.randbytes(300))
    )
    return make(rng)
