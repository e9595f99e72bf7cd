"""The bytes of Hadoop's RPC: what a stranger may send, in whatever pieces, ends in requests or in one refusal."""

from __future__ import annotations

import os
import random

import pytest
from google.protobuf.message import DecodeError
from support.hadoop_rpc import GREETING, call_header, context, frame, method_header, text_field

from peacefs.protocol.errors import ProtocolViolation
from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.rpc_codec import (
    ConnectionHeader,
    HttpRequest,
    Request,
    RequestReader,
    cut_message,
    decode,
    method_of,
)
from peacefs.protocol.hadoop.rpc_pb2 import RpcRequestHeaderProto

_CLIENT = bytes(range(16))
#: A connection with two calls, put together byte by byte from the description of the wire.
STREAM = (
    GREETING
    + context("ann")
    + frame(call_header(0, _CLIENT), method_header("getFileInfo"), text_field(1, "/a"))
    + frame(call_header(1, _CLIENT), method_header("getFileInfo"), text_field(1, "/ä"))
)


def read_all(pieces: list[bytes], frame_bytes_max: int = 1 << 20) -> list[object]:
    reader = RequestReader(frame_bytes_max)
    found: list[object] = []
    for piece in pieces:
        reader.take(piece)
        while (one := reader.next()) is not None:
            found.append(one)
            if isinstance(one, HttpRequest):
                return found
    return found


def asked(one: object) -> tuple[int, str, str]:
    """Return the call's number, its method and its path."""
    assert isinstance(one, Request)
    raw, rest = cut_message(one.body)
    request = decode(pb.GetFileInfoRequestProto, cut_message(rest)[0])
    return one.header.call, method_of(raw).methodName, request.src


def test_requests_are_the_same_in_whatever_pieces_they_come() -> None:
    seed = int(os.environ.get("PEACEFS_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(50):
        cuts = sorted(rng.choices(range(len(STREAM)), k=rng.randrange(12)))
        pieces = [STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]
        header, said, *calls = read_all(pieces)
        assert isinstance(header, ConnectionHeader)
        assert isinstance(said, Request)
        assert [asked(call) for call in calls] == [(0, "getFileInfo", "/a"), (1, "getFileInfo", "/ä")]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"HTTP/1.1", "begins with 'hrpc'"),
        (b"hrpc\x08\x00\x00", "version 8"),
        (b"hrpc\x09\x00\x42", "authentication protocol 66"),
        (GREETING + b"\xff\xff\xff\xff", "over the limit"),
        (GREETING + b"\x00\x00\x00\x01\xff", "ends beyond its frame|cannot be read"),
        (GREETING + b"\x00\x00\x00\x06" + b"\xff" * 6, "cannot be read"),
        (GREETING + frame(b"\x1a\x01a"), "lacks callId"),
        (GREETING + frame(call_header(0, b"short")), "16 bytes, not 5"),
    ],
)
def test_bytes_that_mean_nothing_are_refused_in_one_line(sent: bytes, words: str) -> None:
    with pytest.raises(ProtocolViolation, match=words) as refused:
        read_all([sent])
    assert "\n" not in refused.value.message


def test_request_that_lacks_a_field_or_holds_no_text_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="lacks src"):
        decode(pb.GetFileInfoRequestProto, b"")
    with pytest.raises(ProtocolViolation, match="is not UTF-8"):
        decode(pb.GetFileInfoRequestProto, b"\x0a\x02\xff\xfe")
    inner = b"\x0a\x02\xff\xfe"
    with pytest.raises(ProtocolViolation, match="is not UTF-8"):
        decode(pb.ConcatRequestProto, text_field(1, "/t") + b"\x12\x02\xff\xfe" + b"\x12\x01a")
    with pytest.raises(ProtocolViolation):
        decode(pb.AddBlockRequestProto, text_field(1, "/t") + text_field(2, "c") + b"\x1a\x04" + inner)


def test_browser_is_recognised() -> None:
    assert isinstance(read_all([b"GE", b"T / HTTP/1.1\r\n"])[0], HttpRequest)


def test_noise_never_does_more_than_be_refused() -> None:
    seed = int(os.environ.get("PEACEFS_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(3000):
        raw = bytearray(STREAM)
        for _ in range(rng.randrange(1, 6)):
            raw[rng.randrange(7, len(raw))] = rng.randrange(256)
        if rng.random() < 0.3:
            del raw[rng.randrange(len(raw)) :]
        try:
            for one in read_all([bytes(raw)], 4096)[1:]:
                assert isinstance(one, Request)
                if one.header.call >= 0:
                    asked(one)
        except ProtocolViolation:
            pass


def test_header_is_read_as_protobuf_reads_it_whatever_is_in_it() -> None:
    """Protobuf itself is the oracle, for headers of all forms and for damaged ones."""
    seed = int(os.environ.get("PEACEFS_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(3000):
        call = rng.choice((0, 1, 63, 64, 8191, 8192, (1 << 27) - 1, 1 << 27, (1 << 31) - 1, -3, -33))
        raw = bytearray(call_header(call, rng.randbytes(16), rng.choice((0, -1, 5, 63, 64, 300))))
        if rng.random() < 0.3:
            raw += b"\x3a\x03\x0a\x01c"  # the caller's context
        if rng.random() < 0.3:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            wanted = RpcRequestHeaderProto.FromString(bytes(raw))
            is_good = wanted.IsInitialized() and len(wanted.clientId) in (0, 16)
        except DecodeError:
            is_good = False
        try:
            (found,) = read_all([GREETING + frame(bytes(raw), b"")])[1:]
        except ProtocolViolation:
            assert not is_good, raw.hex()
        else:
            assert is_good
            assert isinstance(found, Request)
            assert found.header == (wanted.callId, wanted.clientId, wanted.retryCount)
