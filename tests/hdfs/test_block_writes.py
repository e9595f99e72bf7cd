"""Writes over HDFS's data transfer protocol, by a client that knows nothing of the product."""

from __future__ import annotations

import random
import time

import pytest
from oracles.hdfs_transfer import (
    CLOSE_RECOVERY,
    CRC32,
    CRC32C,
    ERROR,
    ERROR_CHECKSUM,
    NULL,
    STREAMING_RECOVERY,
    SUCCESS,
    sums,
)
from support.transfer_cluster import TransferCluster

KIB = 1024
MIB = 1024 * KIB


@pytest.mark.parametrize(
    ("kind", "unit", "length"),
    [
        (CRC32C, 512, 1),
        (CRC32C, 512, 64512),
        (CRC32, 4096, 300_000),
        (NULL, 512, 5000),
        (CRC32C, 65536, 2 * MIB + 9),
    ],
)
def test_a_block_is_acknowledged_packet_by_packet_and_is_the_file(
    transfers: TransferCluster, kind: int, unit: int, length: int
) -> None:
    data = random.Random(length).randbytes(length)
    path = f"{transfers.home}/written"
    with transfers.writing(transfers.leased(path)) as (client, block):
        assert client.ask_to_write(block, kind=kind, unit=unit, targets=2)[1] == [SUCCESS]
        packets = -(-length // 64512)
        acks = client.write(data, unit=unit, kind=kind, packet_bytes=64512 // unit * unit or unit)
    assert len(acks) >= packets
    assert acks == [(seqno, [SUCCESS] * 3) for seqno in range(len(acks))]
    assert transfers.files.read(path) == data


def test_flushed_bytes_are_visible_when_they_are_acknowledged(transfers: TransferCluster) -> None:
    path = f"{transfers.home}/log"
    written = b""
    with transfers.writing(transfers.leased(path)) as (client, block):
        client.ask_to_write(block)
        for seqno in range(20):
            # After a flush, Hadoop's client sends the unit that was not full again.
            begin = len(written) - len(written) % 512
            line = f"line {seqno} of a log\n".encode() * (seqno + 1)
            piece = written[begin:] + line
            client.send(piece, begin, seqno, sums(piece, 512), sync=seqno % 2 == 1)
            assert client.ack() == (seqno, [SUCCESS])
            written += line
            assert transfers.files.read(path) == written
        client.send(b"", len(written), 20, b"", last=True)
        assert client.ack() == (20, [SUCCESS])
    assert transfers.files.read(path) == written


def test_a_flush_of_full_packets_is_acknowledged_soon(transfers: TransferCluster) -> None:
    data = random.Random(5).randbytes(64512)
    path = f"{transfers.home}/full"
    with transfers.writing(transfers.leased(path)) as (client, block):
        client.ask_to_write(block)
        began_s = time.monotonic()
        client.send(data, 0, 0, sums(data, 512))
        assert client.ack() == (0, [SUCCESS])
        assert time.monotonic() - began_s < 3
        assert transfers.files.read(path) == data


def test_heartbeats_are_answered(transfers: TransferCluster) -> None:
    with transfers.writing(transfers.leased(f"{transfers.home}/beats")) as (client, block):
        client.ask_to_write(block)
        client.send(b"", 0, -1, b"")
        assert client.ack() == (-1, [SUCCESS])
        client.send(b"abc", 0, 0, sums(b"abc", 512))
        assert client.ack() == (0, [SUCCESS])


def test_a_wrong_checksum_is_refused_and_nothing_of_the_packet_is_kept(transfers: TransferCluster) -> None:
    path = f"{transfers.home}/wrong"
    with transfers.writing(transfers.leased(path)) as (client, block):
        client.ask_to_write(block)
        client.send(b"good" * 100, 0, 0, sums(b"good" * 100, 512))
        assert client.ack() == (0, [SUCCESS])
        client.send(b"evil" * 100, 400, 1, sums(b"good" * 100, 512))
        assert client.ack()[1] == [ERROR_CHECKSUM]
        with pytest.raises(EOFError):
            client.ack()
    assert transfers.files.read(path) == b"good" * 100


def test_a_gap_is_refused(transfers: TransferCluster) -> None:
    path = f"{transfers.home}/gap"
    with transfers.writing(transfers.leased(path)) as (client, block):
        client.ask_to_write(block)
        client.send(b"later", 1024, 0, sums(b"later", 512))
        assert client.ack()[1] == [ERROR]
    assert transfers.files.read(path) == b""


def test_another_datanode_goes_on_after_what_was_published(transfers: TransferCluster) -> None:
    data = random.Random(6).randbytes(40_000)
    path = f"{transfers.home}/recovered"
    with transfers.writing(transfers.leased(path, "DFSClient_a")) as (client, block):
        client.ask_to_write(block)
        client.send(data[:10_000], 0, 0, sums(data[:10_000], 512))
        assert client.ack() == (0, [SUCCESS])
        # The client does not hear the next acknowledgement, and goes to the second datanode.
        client.send(data[9728:20_000], 9728, 1, sums(data[9728:20_000], 512))
        client.ack()
    leased = transfers.leased(path, "DFSClient_a")
    assert leased.length == 20_000
    with transfers.writing(leased, published=20_000, at=1) as (client, block):
        answer = client.ask_to_write(block, stage=STREAMING_RECOVERY, received=10_000)
        assert answer[1] == [SUCCESS]
        client.send(data[9728:20_000], 9728, 1, sums(data[9728:20_000], 512))
        assert client.ack() == (1, [SUCCESS])
        client.send(data[19968:], 19968, 2, sums(data[19968:], 512))
        assert client.ack() == (2, [SUCCESS])
    assert transfers.files.read(path) == data
    with transfers.writing(transfers.leased(path, "DFSClient_a"), published=40_000, at=2) as (client, block):
        assert client.ask_to_write(block, stage=CLOSE_RECOVERY, received=40_000)[1] == [SUCCESS]
    with transfers.writing(transfers.leased(path, "DFSClient_a"), published=30_000) as (client, block):
        assert client.ask_to_write(block, stage=CLOSE_RECOVERY, received=40_000)[1] == [ERROR]


def test_what_came_before_the_client_died_is_in_the_file(transfers: TransferCluster) -> None:
    data = random.Random(7).randbytes(64512)
    path = f"{transfers.home}/died"
    with transfers.writing(transfers.leased(path)) as (client, block):
        client.ask_to_write(block)
        client.send(data, 0, 0, sums(data, 512))
    deadline_s = time.monotonic() + 10
    while transfers.files.read(path) != data and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert transfers.files.read(path) == data


def test_a_full_block_ends_at_its_size_and_takes_no_more(transfers: TransferCluster) -> None:
    data = random.Random(8).randbytes(128 * KIB)
    path = f"{transfers.home}/block"
    leased = transfers.leased(path, block_bytes=128 * KIB)
    with transfers.writing(leased) as (client, block):
        client.ask_to_write(block)
        began_s = time.monotonic()
        assert client.write(data, packet_bytes=32 * KIB)[-1] == (4, [SUCCESS])
        assert time.monotonic() - began_s < 5
    assert transfers.files.read(path) == data
    with transfers.writing(transfers.leased(path), published=128 * KIB) as (client, block):
        client.ask_to_write(block)
        client.send(b"more", 128 * KIB, 0, sums(b"more", 512))
        assert client.ack()[1] == [ERROR]


def test_a_client_with_few_open_packets_is_not_held_up_for_long(transfers: TransferCluster) -> None:
    data = random.Random(9).randbytes(40 * 64512)
    path = f"{transfers.home}/narrow"
    with transfers.writing(transfers.leased(path)) as (client, block):
        client.ask_to_write(block)
        packets = [data[at : at + 64512] for at in range(0, len(data), 64512)]
        for seqno, piece in enumerate(packets):
            client.send(piece, seqno * 64512, seqno, sums(piece, 512))
            if seqno >= 4:
                assert client.ack() == (seqno - 4, [SUCCESS])
        for seqno in range(len(packets) - 4, len(packets)):
            assert client.ack() == (seqno, [SUCCESS])
    assert transfers.files.read(path) == data
