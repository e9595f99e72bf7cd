"""Small files with a replica at the gateway: read locally, or on faults like any other file."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from peacefs.datanode.gateway.local_small_reads import LocalSmallReads, gateway_local_reads_max
from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.protocol.errors import PeerUnreachable
from peacefs.protocol.limits import small_chunk_bytes_max
from peacefs.protocol.messages import ChunkLayout, ReadChunk
from peacefs.protocol.tokens import FileRead
from peacefs.protocol.webhdfs.redirects import ReadFile, parse_redirected
from peacefs.runtime import effects as fx


@pytest.fixture
def path(request):
    """Return a file name for this test."""
    return f"/own/{request.node.name}"


@pytest.fixture
def unconnected(data, monkeypatch):
    """Return a gateway that can connect to no data server, not even its own."""

    def connect(address, name):
        raise PeerUnreachable(f"{name} is out of reach")

    monkeypatch.setattr(data.pool, "connect", connect)
    return data


def rot(data: Any, mark: bytes) -> None:
    """Flip a bit of `mark` on the disk."""
    data.changes.take()
    (segment,) = (file for file in data.directory.rglob("*") if file.is_file() and mark in file.read_bytes())
    at = segment.read_bytes().index(mark)
    with segment.open("r+b") as rotting:
        rotting.seek(at)
        rotting.write(bytes([mark[0] ^ 1]))


def test_a_small_file_that_lies_here_is_read_without_a_data_connection(data, path, request):
    content = os.urandom(small_chunk_bytes_max)
    data.write(path, content)
    data.write(f"{path}-longer", content + b"x")
    unconnected = request.getfixturevalue("unconnected")
    assert unconnected.read(path).body == content
    ranges = [(0, 10), (65_530, 10), (65_536, 70_000), (small_chunk_bytes_max - 1, 1), (3, 1 << 40)]
    for offset, length in ranges:
        assert unconnected.read(path, offset=offset, length=length).body == content[offset : offset + length]
    assert unconnected.read(f"{path}-longer").body == content + b"x", "so is a larger one"


@pytest.mark.evidence("checksums-hold")
def test_one_that_rotted_here_is_reported_and_never_handed_out(data, path):
    mark = os.urandom(24)
    data.write(path, b"before " + mark + b" after")
    rot(data, mark)
    refused = data.read(path)
    assert refused.error[:2] == (403, "org.apache.hadoop.hdfs.BlockMissingException"), (
        "and there is no other replica"
    )
    _added, _removed, corrupt = data.changes.take()
    assert corrupt, "the coordinator hears of it with the next heartbeat"


@contextlib.contextmanager
def local_small_reads(data: Any, **options: float) -> Iterator[LocalSmallReads]:
    server = ChunkServer(data.signer, data.store, data.changes, wall_clock=time.time)
    own = LocalSmallReads(server, data.driver, **options)
    try:
        yield own
    finally:
        own.close()


def wanted_of(data: Any, path: str) -> tuple[ReadFile, list[ChunkLayout]]:
    """Return the request to the gateway, and the chunks that the coordinator has signed for it."""
    redirect = data.names.ask("GET", path, "OPEN")
    target, _, query = data.target(redirect).partition("?")
    scope = {"method": "GET", "raw_path": target.encode(), "query_string": query.encode()}
    wanted = parse_redirected(scope)
    assert isinstance(wanted, ReadFile)
    chunks = data.signer.verify(wanted.token, FileRead, 0.0).chunks
    assert chunks is not None
    return wanted, chunks


@pytest.fixture
def remembering(data, tmp_path):
    """Skip the test if the file system does not support reads with RWF_NOWAIT."""
    (tmp_path / "file").write_bytes(b"x")
    with (tmp_path / "file").open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except OSError as error:
            pytest.skip(f"this file system cannot read without waiting: {error}")


def threads_of(own: LocalSmallReads, data: Any) -> list[bool]:
    """Return a list to which each later turn of a thread of `own` is appended."""
    turns: list[bool] = []
    submit = own._threads.submit

    def noted(*work: Any) -> Any:
        turns.append(True)
        return submit(*work)

    own._threads.submit = noted  # type: ignore[method-assign, assignment]
    return turns


@pytest.mark.usefixtures("remembering")
def test_small_read_from_memory_needs_no_thread_whatever_is_appended_beside_it(data, path):
    contents = {f"{path}-{number}": os.urandom(1000 + number) for number in range(20)}
    for name, content in list(contents.items())[:10]:
        data.write(name, content)

    async def read() -> None:
        with local_small_reads(data) as own:
            turns = threads_of(own, data)
            data.driver.kept_files.close()
            first, *others = contents
            assert await own.read(*wanted_of(data, first)) == contents[first]
            assert len(turns) == 1, "the segment had to be opened"
            for name in others[9:]:
                data.write(name, contents[name])
            for name in others:
                assert await own.read(*wanted_of(data, name)) == contents[name]
            assert len(turns) == 1

    asyncio.run(read())


def fails(number: int) -> Any:
    def preadv(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return preadv


@pytest.mark.parametrize(
    "preadv",
    [fails(errno.EAGAIN), fails(errno.EOPNOTSUPP), fails(errno.EIO), lambda *_: 7],
    ids=["not in memory", "not supported", "broken", "in memory by half"],
)
@pytest.mark.evidence("disk-hangs")
def test_small_read_that_memory_lacks_is_done_by_a_thread(data, path, preadv, monkeypatch):
    content = os.urandom(5000)
    data.write(path, content)

    async def read() -> None:
        with local_small_reads(data) as own:
            turns = threads_of(own, data)
            monkeypatch.setattr(os, "preadv", preadv)
            for number in range(3):
                assert await own.read(*wanted_of(data, path)) == content
                assert len(turns) == number + 1

    asyncio.run(read())


@pytest.mark.usefixtures("remembering")
@pytest.mark.evidence("checksums-hold")
def test_kept_file_that_rots_is_reported_and_never_handed_out(data, path):
    mark = os.urandom(24)
    data.write(path, b"before " + mark + b" after")

    async def read() -> None:
        with local_small_reads(data) as own:
            turns = threads_of(own, data)
            data.driver.kept_files.close()
            assert await own.read(*wanted_of(data, path)) == b"before " + mark + b" after"
            (segment,) = (
                each for each in data.directory.rglob("*") if each.is_file() and mark in each.read_bytes()
            )
            at = segment.read_bytes().index(mark)
            with segment.open("r+b") as rotting:
                rotting.seek(at)
                rotting.write(bytes([mark[0] ^ 1]))
            data.changes.take()
            assert await own.read(*wanted_of(data, path)) is None
            assert len(turns) == 1, "it was looked at in memory"

    asyncio.run(read())
    _added, _removed, corrupt = data.changes.take()
    assert corrupt


def kept_open(data: Any) -> int:
    """Return the number of this process's open descriptors for files in the store."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += str(data.directory) in str(descriptor.readlink())
    return count


def test_a_segment_stays_open_for_the_next_read_by_whichever_way(data, path):
    data.driver.kept_files.close()
    data.write(path, b"x")
    written = kept_open(data)

    async def read(own: LocalSmallReads) -> None:
        for _ in range(3):
            assert await own.read(*wanted_of(data, path)) == b"x"
        assert kept_open(data) == written + 1

    with local_small_reads(data) as own:
        asyncio.run(read(own))
    assert data.read(path).body == b"x"
    assert kept_open(data) == written + 1
    data.driver.kept_files.close()
    assert kept_open(data) == written


class HungDisk:
    """A chunk server whose disk hangs until it is released."""

    def __init__(self) -> None:
        self.asked = 0
        self.released = fx.Ticket()

    def read_small(self, request: ReadChunk) -> fx.Steps[bytes]:
        self.asked += threading.current_thread() is not threading.main_thread()
        yield from fx.wait(self.released, timeout_s=60.0)
        return bytes(request.length)


@pytest.mark.evidence("disk-hangs")
def test_a_disk_that_hangs_keeps_a_few_readers_for_a_moment_and_others_not_at_all(data):
    disk = HungDisk()
    chunk = ChunkLayout(7, 1, 100, "token", [])
    wanted = ReadFile("/own/hung", "token", 0, None)

    async def read() -> None:
        own = LocalSmallReads(cast(ChunkServer, disk), data.driver, timeout_s=0.05)
        try:
            first = await asyncio.gather(*(own.read(wanted, [chunk]) for _ in range(gateway_local_reads_max)))
            assert first == [None] * gateway_local_reads_max, "they are read elsewhere"
            with pytest.raises(StopIteration) as at_once:
                own.read(wanted, [chunk]).send(None)
            assert at_once.value.value is None
            assert disk.asked == gateway_local_reads_max, "nobody else waits for the disk"
            disk.released.fire()
            until_s = time.monotonic() + 60.0
            given = None
            while given is None and time.monotonic() < until_s:
                await asyncio.sleep(0.01)
                given = await own.read(wanted, [chunk])
            assert given == bytes(100), "once it answers, it is asked again"
        finally:
            disk.released.fire()
            own.close()

    asyncio.run(read())
