"""Hadoop's own client writes and reads data over `hdfs://`, in blocks and flushes, beside our own client."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("py4j.protocol")

from oracles.hdfs_transfer import md5_of_crcs
from support.stock_hadoop import Hadoop, running_hadoop

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
#: The size of a block: small, since every byte goes through a pipe to Java.
BLOCK = 1 << 18


@pytest.fixture(scope="module")
def hadoop(shared_cluster: LocalCluster, stock_gateway: Any) -> Iterator[Hadoop]:
    with running_hadoop(stock_gateway, shared_cluster.hdfs_uri, {"dfs.blocksize": str(BLOCK)}) as hadoop:
        yield hadoop


@pytest.mark.parametrize("size", [0, 1, 511, 64512, BLOCK, 3 * BLOCK + 17], ids=str)
def test_files_of_several_blocks_are_what_was_written(
    hadoop: Hadoop, files: PeaceFileSystem, home: str, size: int
) -> None:
    data = random.Random(size).randbytes(size)
    hadoop.write(f"{home}/file", data)
    assert files.read(f"{home}/file") == data
    assert hadoop.read(f"{home}/file") == data
    if size:
        at = size // 2
        assert hadoop.read(f"{home}/file", at) == data[at:]
    files.write(f"{home}/ours", data, block_bytes=BLOCK)
    assert hadoop.read(f"{home}/ours") == data


def test_a_checksum_is_the_one_that_hdfs_computes(hadoop: Hadoop, home: str) -> None:
    data = random.Random(3).randbytes(2 * BLOCK + 4097)
    hadoop.write(f"{home}/summed", data)
    blocks = b"".join(md5_of_crcs(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK))
    # The client hashes a buffer that has grown to 64 bytes, of which three MD5s take 48.
    expected = hashlib.md5(blocks + bytes(64 - len(blocks)), usedforsecurity=False).hexdigest()
    assert hadoop.fs.getFileChecksum(hadoop.path(f"{home}/summed")).toString().endswith(f":{expected}")


def test_what_is_flushed_is_seen_by_every_reader(hadoop: Hadoop, files: PeaceFileSystem, home: str) -> None:
    chance = random.Random(11)
    stream = hadoop.fs.create(hadoop.path(f"{home}/log"), True)
    written = b""
    for step in range(12):
        piece = chance.randbytes(chance.choice([1, 100, 512, 64512, 100_000]))
        stream.write(piece)
        written += piece
        (stream.hflush if step % 2 else stream.hsync)()
        assert files.read(f"{home}/log") == written
        assert hadoop.read(f"{home}/log") == written
    stream.write(b"the end")
    stream.close()
    assert files.read(f"{home}/log") == written + b"the end"


def test_appends_go_on_at_any_byte(hadoop: Hadoop, files: PeaceFileSystem, home: str) -> None:
    chance = random.Random(12)
    written = chance.randbytes(1000)
    hadoop.write(f"{home}/grown", written)
    for _append in range(6):
        piece = chance.randbytes(chance.choice([1, 513, 70_000]))
        stream = hadoop.fs.append(hadoop.path(f"{home}/grown"))
        stream.write(piece)
        stream.close()
        written += piece
        assert files.read(f"{home}/grown") == written
    hadoop.fs.truncate(hadoop.path(f"{home}/grown"), 777)
    assert hadoop.read(f"{home}/grown") == written[:777]


def test_a_reader_goes_on_while_a_writer_writes(hadoop: Hadoop, home: str) -> None:
    data = random.Random(13).randbytes(2 * BLOCK)
    stream = hadoop.fs.create(hadoop.path(f"{home}/growing"), True)
    try:
        for at in range(0, len(data), 100_000):
            stream.write(data[at : at + 100_000])
            stream.hflush()
            seen = hadoop.read(f"{home}/growing")
            assert seen == data[: at + 100_000]
    finally:
        stream.close()


def test_many_files_are_written_at_once(hadoop: Hadoop, files: PeaceFileSystem, home: str) -> None:
    wanted = {f"{home}/{number}": random.Random(number).randbytes(150_000) for number in range(12)}
    failed: list[BaseException] = []

    def write(name: str) -> None:
        try:
            hadoop.write(name, wanted[name])
        except BaseException as fault:
            failed.append(fault)

    threads = [threading.Thread(target=write, args=(name,)) for name in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for name, data in wanted.items():
        assert files.read(name) == data


def test_the_file_of_a_client_that_vanished_ends_with_what_came(
    hadoop: Hadoop, files: PeaceFileSystem, home: str
) -> None:
    stream = hadoop.fs.create(hadoop.path(f"{home}/left"), True)
    stream.write(b"a line\n" * 1000)
    stream.hflush()
    assert hadoop.fs.recoverLease(hadoop.path(f"{home}/left"))
    assert files.read(f"{home}/left") == b"a line\n" * 1000
