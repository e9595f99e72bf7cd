"""Large chunks written around the page cache: intact, durable, and without pages in memory."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
from pathlib import Path
from typing import Any

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import packet_bytes
from peacefs.runtime import disk_files
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.disk_files import DirectFile, DiskFile, direct_write_bytes, read_from_memory
from peacefs.runtime.thread_driver import ThreadDriver

MIB = 1 << 20
PAGE = 4096


def _driver(*, around: bool) -> ThreadDriver:
    def nobody(message: Any, timeout_s: float) -> Any:
        raise AssertionError("nobody is asked")

    return ThreadDriver(ConnectionPool(Identity("", "client", "test", None)), nobody, write_around_cache=around)


def _write(driver: ThreadDriver, path: Path, pieces: list[bytes]) -> fx.Steps[None]:
    file = yield from fx.open_file(str(path), create=True, written_once=True)
    assert isinstance(file, DirectFile)
    for number, piece in enumerate(pieces):
        yield from fx.append(file, piece[: len(piece) // 2], piece[len(piece) // 2 :])
        if number % 3 == 0:
            yield from fx.start_writeback(file)
        assert file.end == sum(map(len, pieces[: number + 1]))
    yield from fx.sync(file)
    yield from fx.close_file(file)


def _cached_bytes(path: Path) -> int:
    """Return how many of a file's first bytes are in the page cache."""
    file = DiskFile(os.open(path, os.O_RDONLY))
    try:
        return read_from_memory(file, bytearray(MIB), 0)
    finally:
        os.close(file.descriptor)


@pytest.fixture
def has_direct(tmp_path: Path) -> None:
    try:
        os.close(os.open(tmp_path / "probe", os.O_RDWR | os.O_CREAT | os.O_DIRECT))
    except OSError:
        pytest.skip("the file system of temporary files has no O_DIRECT")


@pytest.mark.usefixtures("has_direct")
@pytest.mark.parametrize(
    "lengths",
    [
        [],
        [1],
        [PAGE],
        [PAGE - 1, 2],
        [direct_write_bytes],
        [direct_write_bytes - 1, 1, 1],
        [packet_bytes] * 9 + [20],
        [3 * direct_write_bytes + PAGE + 7, 100_000],
    ],
    ids=str,
)
def test_file_written_around_the_cache_has_what_was_appended(tmp_path: Path, lengths: list[int]) -> None:
    pieces = [random.Random(length).randbytes(length) for length in lengths]
    driver = _driver(around=True)
    driver.run(_write(driver, tmp_path / "chunk", pieces))
    assert (tmp_path / "chunk").read_bytes() == b"".join(pieces)


def _stored(directory: Path, driver: ThreadDriver, data: bytes) -> int:
    """Store a chunk and read it with another store, as after a restart; return how much was cached in between."""

    def seal(store: ChunkStore) -> fx.Steps[None]:
        yield from store.recover()
        staged = store.stage(7, 1)
        for at in range(0, len(data), packet_bytes):
            piece = data[at : at + packet_bytes]
            yield from store.write(staged, block_checksums(piece), piece)
        yield from store.seal(staged)

    def read(store: ChunkStore) -> fx.Steps[bytes]:
        yield from store.recover()
        found = b""
        plan = yield from store.open_read(7, 1, 0, len(data))
        while (blocks := (yield from store.read_blocks(plan))) is not None:
            found += blocks.data
        return found

    directory.mkdir()
    driver.run(seal(ChunkStore(str(directory), 0)))
    (chunk,) = (each for each in (directory / "chunks").rglob("*") if each.is_file())
    cached = _cached_bytes(chunk)
    assert driver.run(read(ChunkStore(str(directory), 0))) == data
    return cached


@pytest.mark.usefixtures("has_direct")
def test_chunk_written_around_the_cache_is_sealed_and_read_as_any_other(tmp_path: Path) -> None:
    data = os.urandom(5 * MIB + 12_345)
    assert _stored(tmp_path / "around", _driver(around=True), data) == 0
    assert _stored(tmp_path / "through", _driver(around=False), data) > 0


def test_file_system_without_direct_writes_is_said_once_and_used_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real_open = os.open

    def refuse(path: Any, flags: int, *rest: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return real_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    driver = _driver(around=True)

    def write(name: str) -> fx.Steps[None]:
        file = yield from fx.open_file(str(tmp_path / name), create=True, written_once=True)
        assert not isinstance(file, DirectFile)
        yield from fx.append(file, b"through the cache")
        yield from fx.sync(file)
        yield from fx.close_file(file)

    with caplog.at_level(logging.WARNING):
        driver.run(write("first"))
        driver.run(write("second"))
    assert (tmp_path / "second").read_bytes() == b"through the cache"
    assert [record.message for record in caplog.records] == [
        f"{tmp_path / 'first'}: this file system has no O_DIRECT; its chunks go through the page cache"
    ]


def _failing(monkeypatch: pytest.MonkeyPatch, number: int, *, only_direct: bool) -> None:
    real_pwrite = os.pwrite

    def fail(descriptor: int, data: Any, offset: int) -> int:
        if not only_direct or fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(number, os.strerror(number))
        return real_pwrite(descriptor, data, offset)

    monkeypatch.setattr(disk_files.os, "pwrite", fail)


@pytest.mark.usefixtures("has_direct")
def test_direct_write_that_a_file_system_refuses_goes_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing(monkeypatch, errno.EINVAL, only_direct=True)
    pieces = [os.urandom(2 * direct_write_bytes + 100)]
    driver = _driver(around=True)
    driver.run(_write(driver, tmp_path / "chunk", pieces))
    assert (tmp_path / "chunk").read_bytes() == pieces[0]


@pytest.mark.usefixtures("has_direct")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EINVAL])
def test_direct_write_that_fails_is_a_fault_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    _failing(monkeypatch, number, only_direct=False)
    driver = _driver(around=True)
    with pytest.raises(OSError, match=os.strerror(number)):
        driver.run(_write(driver, tmp_path / "chunk", [bytes(direct_write_bytes)]))


@pytest.mark.cluster
@pytest.mark.usefixtures("has_direct")
def test_cluster_that_writes_around_the_cache_gives_back_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEACEFS_WRITE_AROUND_CACHE", "1")
    data = os.urandom(3 * MIB + 77)
    with LocalCluster(tmp_path / "cluster", datanodes=3, port=0) as cluster:
        with PeaceFileSystem(cluster.http_address) as files:
            files.write("/large", data, replication=3)
        chunks = [
            each
            for each in (tmp_path / "cluster").glob("datanode-*/**/*")
            if each.is_file() and each.stat().st_size > len(data)
        ]
        assert len(chunks) == 3
        assert [_cached_bytes(chunk) for chunk in chunks] == [0, 0, 0]
        with PeaceFileSystem(cluster.http_address) as files:
            assert files.read("/large") == data
