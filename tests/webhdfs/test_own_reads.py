"""Small files that lie where they are asked for: read there, or, if that does not give them, as any others."""

from __future__ import annotations

import asyncio
import os
import time
from typing import cast

import pytest

from peacefs.datanode.chunk_server import ChunkServer
from peacefs.datanode.own_reads import OwnReads
from peacefs.protocol import effects as fx
from peacefs.protocol.errors import PeerUnreachable
from peacefs.protocol.limits import gateway_own_reads_max, small_chunk_bytes_max
from peacefs.protocol.messages import ChunkLayout, Layout, ReadChunk
from peacefs.protocol.webhdfs_redirects import ReadFile


@pytest.fixture
def path(request):
    """A file name of the test's own."""
    return f"/own/{request.node.name}"


@pytest.fixture
def unconnected(data, monkeypatch):
    """A gateway that reaches no data server, its own included."""

    def connect(address, name):
        raise PeerUnreachable(f"{name} is out of reach")

    monkeypatch.setattr(data.pool, "connect", connect)
    return data


def test_a_small_file_that_lies_here_is_read_without_a_data_connection(data, path, request):
    content = os.urandom(small_chunk_bytes_max)
    data.write(path, content)
    data.write(f"{path}-longer", content + b"x")
    unconnected = request.getfixturevalue("unconnected")
    assert unconnected.read(path).body == content
    ranges = [(0, 10), (65_530, 10), (65_536, 70_000), (small_chunk_bytes_max - 1, 1), (3, 1 << 40)]
    for offset, length in ranges:
        assert unconnected.read(path, offset=offset, length=length).body == content[offset : offset + length]
    assert unconnected.read(f"{path}-longer").error[0] == 403, "a larger one is sent by the data server"


def test_one_that_rotted_here_is_reported_and_never_handed_out(data, path):
    mark = os.urandom(24)
    data.write(path, b"before " + mark + b" after")
    data.changes.take()
    (segment,) = (file for file in data.directory.rglob("*") if file.is_file() and mark in file.read_bytes())
    at = segment.read_bytes().index(mark)
    with segment.open("r+b") as rotting:
        rotting.seek(at)
        rotting.write(bytes([mark[0] ^ 1]))
    refused = data.read(path)
    assert refused.error[:2] == (403, "org.apache.hadoop.hdfs.BlockMissingException"), (
        "and there is no other replica"
    )
    _added, _removed, corrupt = data.changes.take()
    assert corrupt, "the coordinator hears of it with the next heartbeat"


class HungDisk:
    """A chunk server whose disk gives nothing until it is released."""

    def __init__(self) -> None:
        self.asked = 0
        self.released = fx.Ticket()

    def read_small(self, request: ReadChunk) -> fx.Steps[bytes]:
        self.asked += 1
        yield from fx.wait(self.released, timeout_s=60.0)
        return bytes(request.length)


def test_a_disk_that_hangs_keeps_a_few_readers_for_a_moment_and_others_not_at_all(data):
    disk = HungDisk()
    chunk = ChunkLayout(7, 1, 100, "token", [])
    wanted = ReadFile("/own/hung", "token", 0, None, Layout(100, [chunk]))

    async def read() -> None:
        own = OwnReads(cast(ChunkServer, disk), data.driver, timeout_s=0.05)
        try:
            first = await asyncio.gather(*(own.read(wanted) for _ in range(gateway_own_reads_max)))
            assert first == [None] * gateway_own_reads_max, "they are read elsewhere"
            with pytest.raises(StopIteration) as at_once:
                own.read(wanted).send(None)
            assert at_once.value.value is None
            assert disk.asked == gateway_own_reads_max, "nobody else waits for the disk"
            disk.released.fire()
            until_s = time.monotonic() + 60.0
            given = None
            while given is None and time.monotonic() < until_s:
                await asyncio.sleep(0.01)
                given = await own.read(wanted)
            assert given == bytes(100), "once it answers, it is asked again"
        finally:
            disk.released.fire()
            own.close()

    asyncio.run(read())
