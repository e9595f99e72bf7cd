"""Bytes for the port of HDFS's clients: noise, connections that begin well, and calls with broken messages."""

from __future__ import annotations

import random

from support.hadoop_rpc import (
    GREETING,
    SASL_GREETING,
    call_header,
    context,
    frame,
    method_header,
    text_field,
    varint,
)

_METHODS = (
    "getFileInfo",
    "getListing",
    "create",
    "addBlock",
    "setXAttr",
    "setAcl",
    "concat",
    "renewLease",
    "rename2",
)
_LENGTHS = (0, 1, 4096, 4097, 1 << 21, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


def before_a_call(rng: random.Random) -> bytes:
    """Return what a stranger sends before it has said who it is."""
    match rng.randrange(6):
        case 0:
            return rng.randbytes(rng.randrange(200))
        case 1:
            return b"hrpc" + rng.randbytes(3)
        case 2:
            return (
                rng.choice((GREETING, SASL_GREETING)) + rng.choice(_LENGTHS).to_bytes(4, "big") + rng.randbytes(50)
            )
        case 3:
            return SASL_GREETING + frame(call_header(-33, b""), rng.randbytes(rng.randrange(60)))
        case 4:
            return _bent(GREETING + context("ann"), rng)
        case _:
            return GREETING + frame(rng.randbytes(rng.randrange(40)), rng.randbytes(rng.randrange(40)))


def calls(rng: random.Random) -> bytes:
    """Return the calls of somebody who has said who it is."""
    sent = GREETING + context(rng.choice(("ann", "root", "bob")))
    for number in range(rng.randrange(1, 6)):
        header = call_header(number, rng.randbytes(16))
        sent += frame(header, method_header(rng.choice(_METHODS)), _message(rng))
    return sent if rng.random() < 0.5 else _bent(sent, rng, len(GREETING))


def _message(rng: random.Random) -> bytes:
    """Return fields of any number, type and content, nested now and then."""
    made = b""
    for _ in range(rng.randrange(7)):
        number = rng.randrange(1, 12)
        match rng.randrange(4):
            case 0:
                made += varint(number << 3) + varint(rng.choice((0, 1, 511, 1 << 31, (1 << 64) - 1)))
            case 1:
                text = rng.choice(
                    ("/", "/a", "/a/../b", "//", "a", "/" + "x" * 9000, "/.reserved/.inodes/1", "/\0")
                )
                made += text_field(number, text)
            case 2:
                raw = _message(rng) if rng.random() < 0.5 else rng.randbytes(rng.randrange(30))
                made += varint(number << 3 | 2) + varint(len(raw)) + raw
            case _:
                made += rng.randbytes(rng.randrange(5))
    return made


def _bent(sent: bytes, rng: random.Random, begin: int = 0) -> bytes:
    bent = bytearray(sent)
    for _ in range(rng.randrange(1, 5)):
        bent[rng.randrange(begin, len(bent))] = rng.randrange(256)
    return bytes(bent[: rng.randrange(len(bent))] if rng.random() < 0.2 else bent)
