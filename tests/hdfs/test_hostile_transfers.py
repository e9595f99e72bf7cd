"""Bytes that make no sense at a datanode's HDFS port: each ends one connection, with one line in the log."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from pathlib import Path

import pytest
from oracles.hdfs_transfer import (
    CHECKSUM,
    READ,
    SETUP_CREATE,
    SUCCESS,
    TRANSFER,
    WRITE,
    Block,
    TransferClient,
    message,
    sums,
    varint,
)
from support.hadoop_rpc import call_header, context, frame, text_field
from support.long_runs import often
from support.transfer_cluster import TransferCluster

MIB = 1024 * 1024


def _requests(block: Block) -> list[bytes]:
    header = message((1, block.header), (2, "a test"))
    write = message((1, header), (4, SETUP_CREATE), (5, 1), (6, 0), (7, 0), (8, 1), (9, message((1, 2), (2, 512))))
    bodies = [
        (READ, message((1, header), (2, 0), (3, 100))),
        (WRITE, write),
        (CHECKSUM, message((1, block.header))),
        (TRANSFER, message((1, header))),
        (87, message((1, block.header), (2, 1))),
        (88, message((1, message((1, message((1, 1), (2, 2))), (2, 3))))),
        (89, message((1, "a test"))),
        (90, message((1, block.header))),
        (127, b""),
    ]
    made = [struct.pack(">HB", 28, operation) + varint(len(body)) + body for operation, body in bodies]
    packet = struct.pack("<BqBqBBBi", 0x09, 0, 0x11, 0, 0x18, 0, 0x25, 3)
    made[1] += struct.pack(">IH", 4 + 4 + 3, len(packet)) + packet + sums(b"abc", 512) + b"abc"
    made.append(b"hrpc\x09\x00\x00" + context("alice") + frame(call_header(1, bytes(16)), text_field(1, "x")))
    return made


def _damaged(chance: random.Random, raw: bytes) -> bytes:
    match chance.randrange(5):
        case 0:
            return chance.randbytes(chance.randrange(1, 300))
        case 1:
            return raw[: chance.randrange(len(raw))]
        case 2:
            at = chance.randrange(len(raw))
            return raw[:at] + chance.randbytes(chance.randint(1, 8)) + raw[at + 1 :]
        case 3:
            return raw + chance.randbytes(200)
        case _:
            at = chance.randrange(len(raw))
            return raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)]) + raw[at + 1 :]


def test_damaged_requests_end_their_connection_and_nothing_else(transfers: TransferCluster) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    path = f"{transfers.home}/sound"
    transfers.files.write(path, b"sound" * 100)
    with transfers.reading(path) as (client, block, length):
        requests, port = _requests(block), client.socket.getpeername()[1]
        member = next(each for each in transfers.cluster.members if each.readiness.hdfs_port == port)
        assert member.log is not None
        lines_before, memory_before = member.log.read_text().count("\n"), _memory(member.readiness.pid)
        thrown = often(150, 3000)
        for _connection in range(thrown):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
                with contextlib.suppress(OSError):
                    sock.sendall(_damaged(chance, chance.choice(requests)))
                    sock.shutdown(socket.SHUT_WR)
                began_s = time.monotonic()
                with contextlib.suppress(ConnectionError):
                    while sock.recv(65536):
                        pass
                assert time.monotonic() - began_s < 10
    with transfers.reading(path) as (client, block, length):
        assert client.read(block, 0, length) == b"sound" * 100
    assert member.log.read_text().count("\n") - lines_before <= thrown
    assert "Traceback" not in member.log.read_text()
    assert _memory(member.readiness.pid) - memory_before < 64 * MIB


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">HB", 27, READ) + b"\x00",
        struct.pack(">HB", 28, 1) + b"\x00",
        struct.pack(">HB", 28, READ) + varint(2**31),
        struct.pack(">HB", 28, READ) + b"\xff" * 10,
        struct.pack(">HB", 28, READ) + b"\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"hrpc\x08\x00\x00",
        b"hrpc\x09\x00\x00\x7f\xff\xff\xff",
    ],
)
def test_a_request_that_no_client_sends_is_answered_by_the_end(transfers: TransferCluster, raw: bytes) -> None:
    with TransferClient(transfers.any_port) as client:
        client.socket.sendall(raw)
        began_s = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while client.socket.recv(65536):
                pass
        assert time.monotonic() - began_s < 4


def test_half_a_request_is_one_line_in_the_log(transfers: TransferCluster) -> None:
    port = transfers.any_port
    member = next(each for each in transfers.cluster.members if each.readiness.hdfs_port == port)
    assert member.log is not None
    with TransferClient(port) as client:
        here = ":".join(map(str, client.socket.getsockname()))
        client.socket.sendall(struct.pack(">HB", 28, READ) + varint(100) + b"half of it")
        client.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while client.socket.recv(65536):
                pass
    deadline_s = time.monotonic() + 5
    while not (lines := [line for line in member.log.read_text().splitlines() if here in line]):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    assert len(lines) == 1
    assert "in the middle of a request" in lines[0]


def test_packets_that_are_too_large_or_contradict_themselves_are_refused(transfers: TransferCluster) -> None:
    header = struct.pack("<BqBqBBBi", 0x09, 0, 0x11, 0, 0x18, 0, 0x25, 100)
    for number, raw in enumerate(
        (
            struct.pack(">IH", 2**31, 25),
            struct.pack(">IH", 3, 25),
            struct.pack(">IH", 100, 65535),
            struct.pack(">IH", 14, len(header)) + header + b"0123456789",
            struct.pack(">IH", 104, len(header)) + header + b"x" * 100,
        )
    ):
        with transfers.writing(transfers.leased(f"{transfers.home}/{number}")) as (client, block):
            assert client.ask_to_write(block)[1] == [SUCCESS]
            client.socket.sendall(raw)
            assert client.ack()[1] != [SUCCESS]
            with pytest.raises((EOFError, ConnectionError)):
                client.ack()


def test_silent_strangers_do_not_keep_others_out(transfers: TransferCluster) -> None:
    path = f"{transfers.home}/open"
    transfers.files.write(path, b"open")
    with contextlib.ExitStack() as silent:
        for _stranger in range(100):
            silent.enter_context(TransferClient(transfers.any_port))
        with transfers.reading(path) as (client, block, length):
            assert client.read(block, 0, length) == b"open"


def _memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096
