"""Packets that are damaged, drip in or come from a crowd: each harms its own connection, and no file."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from pathlib import Path

import pytest
from oracles.hdfs_transfer import READ, SETUP_CREATE, SUCCESS, WRITE, TransferClient, message, sums, varint
from support.hadoop_rpc import GREETING, address_of, context
from support.long_runs import IS_LONG, often
from support.transfer_cluster import TransferCluster
from support.waiting import wait_until

from peacefs.datanode.hdfs.transfer_server import transfer_connections_per_address_max
from peacefs.datanode.hdfs.transfer_socket import begun_message_timeout_s

_MIB = 1 << 20
_PIECE = 2000
_END_TIMEOUT_S = 20.0


def _packet(data: bytes, offset: int, seqno: int, *, last: bool = False) -> bytes:
    header = struct.pack("<BqBqBBBi", 0x09, offset, 0x11, seqno, 0x18, last, 0x25, len(data))
    packed = sums(data, 512)
    return struct.pack(">IH", 4 + len(packed) + len(data), len(header)) + header + packed + data


def _packets(data: bytes) -> list[bytes]:
    made = [_packet(data[at : at + _PIECE], at, at // _PIECE) for at in range(0, len(data), _PIECE)]
    return [*made, _packet(b"", len(data), len(made), last=True)]


def _damaged(chance: random.Random, packets: list[bytes]) -> bytes:
    """Return packets in another order, or with one missing, doubled, cut short, replaced or with a bit flipped."""
    at = chance.randrange(len(packets))
    made = list(packets)
    match chance.randrange(7):
        case 0:
            del made[at]
        case 1:
            made.insert(at, made[at])
        case 2:
            chance.shuffle(made)
        case 3:
            made[at] = made[at][: chance.randrange(len(made[at]))]
        case 4:
            made[at] = chance.randbytes(chance.randrange(1, 500))
        case _:
            raw = bytearray(made[at])
            # Mostly in the lengths and the header, which decide what the rest means.
            begin = chance.choice((0, 6, 0, 6, len(raw) - 1))
            raw[min(len(raw) - 1, begin + chance.randrange(25))] ^= 1 << chance.randrange(8)
            made[at] = bytes(raw)
    return b"".join(made)


def _is_ended(sock: socket.socket) -> bool:
    """Return whether the peer has closed the connection; drop what it has sent."""
    sock.settimeout(0.001)
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_damaged_packets_leave_a_prefix_of_their_file_and_other_writers_alone(transfers: TransferCluster) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    rounds = often(40, 400)
    honest = chance.randbytes(_PIECE * (rounds - 1))
    logs = [each.log for each in transfers.cluster.datanodes]
    before = [log.read_text() for log in logs if log is not None]
    memory = [_memory(each.pid) for each in transfers.cluster.datanodes]
    good = transfers.leased(f"{transfers.home}/honest")
    with transfers.writing(good) as (writer, written):
        assert writer.ask_to_write(written)[1] == [SUCCESS]
        for number, packet in enumerate(_packets(honest)):
            path = f"{transfers.home}/{number}"
            data = chance.randbytes(chance.randrange(1, 5 * _PIECE))
            sent = _damaged(chance, _packets(data))
            with transfers.writing(transfers.leased(path)) as (client, block):
                assert client.ask_to_write(block)[1] == [SUCCESS]
                with contextlib.suppress(OSError):
                    client.socket.sendall(sent)
                    client.socket.shutdown(socket.SHUT_WR)
                began_s = time.monotonic()
                with contextlib.suppress(ConnectionError):
                    while client.socket.recv(65536):
                        pass
                assert time.monotonic() - began_s < _END_TIMEOUT_S
            found = transfers.files.read(path)
            assert data.startswith(found), f"round {number}: {len(found)} bytes that are none of {len(data)}"
            writer.socket.sendall(packet)
            assert writer.ack() == (number, [SUCCESS])
    assert transfers.files.read(f"{transfers.home}/honest") == honest
    for log, earlier in zip(logs, before, strict=True):
        assert log is not None
        new = log.read_text()[len(earlier) :]
        assert "Traceback" not in new
        assert new.count("\n") <= rounds
    for each, bytes_before in zip(transfers.cluster.datanodes, memory, strict=True):
        assert _memory(each.pid) - bytes_before < 64 * _MIB


def test_crowd_of_one_address_leaves_a_datanode_to_others(transfers: TransferCluster) -> None:
    path = f"{transfers.home}/open"
    transfers.files.write(path, b"open")
    with transfers.reading(path) as (client, block, length):
        port = client.socket.getpeername()[1]
    over = 40
    with contextlib.ExitStack() as crowd:
        strangers = []
        for _ in range(transfer_connections_per_address_max + over):
            sock = crowd.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            # Enough to be a request that has begun, which is not closed to make room.
            sock.sendall(b"\x00")
            strangers.append(sock)
        with TransferClient(port) as other:
            other.socket.close()
            other.socket = socket.create_connection(("127.0.0.1", port), 20, ("127.0.0.2", 0))
            assert other.read(block, 0, length) == b"open"
        wait_until(lambda: sum(map(_is_ended, strangers)) >= over, "the connections over the limit are closed")
    wait_until(lambda: _is_served(transfers, path), "the address is served again")


def _is_served(transfers: TransferCluster, path: str) -> bool:
    with contextlib.suppress(OSError, EOFError), transfers.reading(path) as (client, block, length):
        return client.read(block, 0, length) == b"open"
    return False


@pytest.mark.skipif(not IS_LONG, reason="it waits for the deadline of a message: PEACEFS_LONG=1")
def test_messages_that_drip_in_are_ended_by_the_deadline_of_their_first_byte(transfers: TransferCluster) -> None:
    leased = transfers.leased(f"{transfers.home}/dripping")
    coordinator = address_of(transfers.cluster.hdfs_uri)
    with transfers.writing(leased) as (writer, block), contextlib.ExitStack() as stack:
        assert writer.ask_to_write(block)[1] == [SUCCESS]
        dripping = [(writer.socket, iter(_packet(bytes(600), 0, 0)))]
        for operation, body in ((READ, bytes(200)), (WRITE, message((4, SETUP_CREATE), (2, "x" * 200)))):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", transfers.any_port), timeout=20))
            dripping.append((sock, iter(struct.pack(">HB", 28, operation) + varint(len(body)) + body)))
        for begun in (GREETING[:3], GREETING + context("ann") + (1000).to_bytes(4, "big")):
            sock = stack.enter_context(socket.create_connection(coordinator, timeout=20))
            sock.sendall(begun)
            dripping.append((sock, iter(bytes(1000) if len(begun) > 3 else b"c\x09\x00")))
        began_s = time.monotonic()
        while dripping:
            waited_s = time.monotonic() - began_s
            assert waited_s < begun_message_timeout_s + _END_TIMEOUT_S, f"{len(dripping)} connections are open"
            for sock, drops in dripping:
                with contextlib.suppress(OSError, StopIteration):
                    sock.send(bytes((next(drops),)) if waited_s < begun_message_timeout_s else b"")
            dripping = [(sock, drops) for sock, drops in dripping if not _is_ended(sock)]
            time.sleep(0.5)


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
