"""Reads over HDFS's data transfer protocol, by a client that knows nothing of the product."""

from __future__ import annotations

import random
import struct

import pytest
from oracles.hdfs_transfer import (
    ACCESS_TOKEN,
    CHECKSUM,
    ERROR,
    SHORT_CIRCUIT,
    SUCCESS,
    UNSUPPORTED,
    Block,
    crc32c,
    fields_of,
    md5_of_crcs,
    message,
)
from support.transfer_cluster import TransferCluster

KIB = 1024


@pytest.mark.parametrize("length", [1, 511, 20_000, 64 * KIB, 256 * KIB + 1, 3 * 1024 * KIB + 777])
def test_ranges_are_those_of_the_file(transfers: TransferCluster, length: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    data = chance.randbytes(length)
    path = f"{transfers.home}/file"
    transfers.files.write(path, data)
    with transfers.reading(path) as (client, block, known):
        assert known == length
        assert client.read(block, 0, length) == data
        for _range in range(4):  # on the same connection
            offset = chance.randrange(length)
            count = chance.randint(1, length - offset)
            assert client.read(block, offset, count) == data[offset : offset + count]
        assert client.read(block, 0, length, checksums=False) == data


def test_the_rest_of_a_truncated_chunk_is_not_asked_for_and_does_not_disturb(transfers: TransferCluster) -> None:
    data = random.Random(1).randbytes(200_000)
    path = f"{transfers.home}/cut"
    transfers.files.write(path, data)
    transfers.files.truncate(path, 70_001)
    with transfers.reading(path) as (client, block, known):
        assert known == 70_001
        assert client.read(block, 0, known) == data[:known]
        assert client.checksum(block)[3] == [md5_of_crcs(data[:known])]


def test_the_library_computes_the_published_check_value() -> None:
    # RFC 3720, appendix B.4: 32 bytes of zeros, and the bytes from 0 to 31.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("length", [1, 512, 100_001, 700_000])
def test_checksums_are_those_that_hdfs_compares(transfers: TransferCluster, length: int) -> None:
    data = random.Random(length).randbytes(length)
    path = f"{transfers.home}/summed"
    transfers.files.write(path, data)
    with transfers.reading(path) as (client, block, _length):
        answer = client.checksum(block)
        assert (answer[1], answer[2], answer[4]) == ([512], [-(-length // 512)], [2])
        assert answer[3] == [md5_of_crcs(data)]
        assert client.checksum(block, composite=True)[3] == [struct.pack(">I", crc32c(data))]


def test_what_is_refused_is_refused_by_name(transfers: TransferCluster) -> None:
    path = f"{transfers.home}/refused"
    transfers.files.write(path, b"x" * 1000)
    with transfers.reading(path) as (client, block, _length):
        client.ask(SHORT_CIRCUIT, message((1, block.header), (2, 1)))
        assert client.message()[1] == [UNSUPPORTED]
        assert client.read(block, 0, 1000) == b"x" * 1000, "the connection is still good"
        client.ask(CHECKSUM, message((1, Block(1, 1, "no token").header)))
        answer = client.message()
        assert answer[1] == [ACCESS_TOKEN]
        assert b"token" in answer[5][0]
    chunk = transfers.files._calls.open(path, transfers.files.user).layout.chunks[0]
    for wanted in (
        Block(chunk.chunk + 1, chunk.version, chunk.token),
        Block(chunk.chunk, chunk.version, chunk.token[:-2] + "aa"),
        Block(chunk.chunk, chunk.version, ""),
        Block(chunk.chunk, chunk.version, "\xe9\x00"),
    ):
        with transfers.reading(path) as (client, _block, _length):
            assert client.ask_to_read(wanted, 0, 10)[1] == [ACCESS_TOKEN]
    with transfers.reading(path) as (client, _block, _length):
        newer = Block(chunk.chunk, chunk.version + 1, chunk.token)
        assert client.ask_to_read(newer, 0, 10)[1] == [ERROR]
    with transfers.reading(path) as (client, block, _length):
        assert client.ask_to_read(block, 5000, 10)[1] == [ERROR]
    with transfers.reading(path) as (client, block, _length):
        assert fields_of(client.ask_to_read(block, 999, 2**62)[4][0])[2] == [0]
        assert SUCCESS == 0
