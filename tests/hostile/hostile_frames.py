"""Frames that no real service sends: damaged, cut, out of order, or valid with hostile values."""

from __future__ import annotations

import random
import struct
import typing
from collections.abc import Sequence
from typing import Any

import msgspec
from crc32c import crc32c

from peacefs.protocol.frames import encode
from peacefs.protocol.messages import AnyMessage, Hello, Message

KINDS: Sequence[type[Message]] = typing.get_args(AnyMessage)
_INTEGERS = (0, 1, -1, 2, 255, 65536, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 2**64 - 1)
_TEXTS = (
    "", "/", "//", "/a", "/../..", "/" + "a" * 300, "/" + "a/" * 1200, "\0", "/\n{}", "/\x1b[2J", "root", "hdfs",
    "eve", "x" * 9000, "日本", "\u202e", "127.0.0.1", "%00", "-", ".snapshot", "/a/.snapshot/x", "/.run-1/x",
)  # fmt: skip
_FLOATS = (0.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan"), 1e-308)


def hostile_message(rng: random.Random) -> Message:
    """Return a valid message of a random kind with hostile values."""
    value: Message = _value(msgspec.inspect.type_info(rng.choice(KINDS)), rng, 0)
    return value


def _value(kind: Any, rng: random.Random, depth: int) -> Any:
    inspect = msgspec.inspect
    match kind:
        case inspect.StructType():
            fields = [field for field in kind.fields if field.required or rng.random() < 0.7]
            return kind.cls(**{field.name: _value(field.type, rng, depth + 1) for field in fields})
        case inspect.UnionType():
            return _value(rng.choice(kind.types), rng, depth)
        case inspect.ListType() | inspect.VarTupleType():
            count = rng.choice((0, 1, 1, 2, 300 if depth < 2 else 3))
            return [_value(kind.item_type, rng, depth + 1) for _ in range(count)]
        case inspect.TupleType():
            return tuple(_value(each, rng, depth + 1) for each in kind.item_types)
        case inspect.IntType():
            return rng.choice(_INTEGERS)
        case inspect.StrType():
            return rng.choice(_TEXTS)
        case inspect.BytesType():
            return rng.choice((b"", b"\0" * 16, rng.randbytes(4), rng.randbytes(16), rng.randbytes(5000)))
        case inspect.BoolType():
            return rng.random() < 0.5
        case inspect.FloatType():
            return rng.choice(_FLOATS)
        case inspect.NoneType():
            return None
        case inspect.LiteralType():
            return rng.choice(kind.values)
        case inspect.EnumType():
            return rng.choice(list(kind.cls))
        case inspect.DictType():
            return {}
        case _:
            raise AssertionError(f"nobody thought of {kind}")


def whole(rng: random.Random) -> bytes:
    """Return a valid frame, sometimes with a payload."""
    payload = rng.randbytes(rng.choice((0, 0, 1, 100, 70_000)))
    return encode(hostile_message(rng), len(payload), tag=rng.choice((0, 1, 2**32 - 1))) + payload


def announced(rng: random.Random) -> bytes:
    """Return a prefix that announces lengths that never come, or is invalid."""
    lengths = (0, 1, 4096, 4097, 2**20, 2**24, 2**24 + 1, 2**31, 2**32 - 1)
    prefix = struct.pack(
        ">2sBBIII", b"pf", rng.choice((0, 1, 1, 1, 2, 255)), 0, 0, rng.choice(lengths), rng.choice(lengths)
    )
    crc = crc32c(prefix) if rng.random() < 0.5 else rng.getrandbits(32)
    return prefix + struct.pack(">I", crc) + rng.randbytes(rng.choice((0, 10, 5000)))


def nonsense(rng: random.Random) -> bytes:
    """Return a message that is not MessagePack, or of no known kind, with a right checksum."""
    body = rng.choice(
        (
            b"",
            b"\xc1",
            b"\x81\xa4type\xa7NoSuch\0",
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            b"\x91" * 3000,
            b"\x81" * 3000,
            msgspec.msgpack.encode({"type": "Hello"}),
            msgspec.msgpack.encode({"type": "Hello", "version": "x", "cluster": 1}),
            rng.randbytes(200),
        )
    )
    prefix = struct.pack(">2sBBIII", b"pf", 1, 0, 0, len(body), 0)
    return prefix + struct.pack(">I", crc32c(body, crc32c(prefix))) + body


def damaged(rng: random.Random) -> bytes:
    """Return a frame with flipped bits, cut, or with inserted bytes."""
    data = bytearray(whole(rng))
    match rng.randrange(3):
        case 0:
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(min(len(data), 400))] ^= 1 << rng.randrange(8)
        case 1:
            del data[rng.randrange(len(data)) :]
        case _:
            place = rng.randrange(len(data))
            data[place:place] = rng.randbytes(rng.randint(1, 30))
    return bytes(data)


def before_the_handshake(rng: random.Random) -> bytes:
    """Return frames to send in place of a Hello, or after half of one."""
    made = rng.choice((whole, announced, nonsense, damaged, lambda rng: rng.randbytes(300)))(rng)
    if rng.random() < 0.3:
        return encode(Hello(rng.choice(_INTEGERS[:12]), "", rng.choice(_TEXTS), "x", b"n" * 16)) + made
    return made


def after_the_handshake(rng: random.Random) -> bytes:
    """Return several frames in a senseless order."""
    return b"".join(rng.choice((whole, whole, whole, announced, nonsense, damaged))(rng) for _ in range(3))
