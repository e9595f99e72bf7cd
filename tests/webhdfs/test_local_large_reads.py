"""Large chunks with a replica at the gateway: read locally, and on faults from another datanode."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from support.waiting import wait_until

from peacefs.datanode.gateway.download import Pieces, send_pieces
from peacefs.datanode.gateway.local_large_reads import (
    LocalLargeReads,
    gateway_local_piece_bytes,
    gateway_local_pieces_max,
)
from peacefs.datanode.limits import gateway_downloads_max
from peacefs.datanode.pipeline.chunk_server import ChunkServer
from peacefs.datanode.store.chunk_store import ReadPlan
from peacefs.protocol.errors import ChunkNotFound, PeerUnreachable
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.messages import ChunkLayout, ReadChunk
from peacefs.protocol.webhdfs.redirects import ReadFile
from peacefs.runtime import effects as fx
from peacefs.service.body_socket import Turn

from .conftest import DataSide, NameSide

MIB = 1 << 20
#: A small buffer, so that the response does not fit between the gateway and a client that does not read.
LARGE = 16 * MIB
CLIENT_HOLDS = 64 * 1024


@pytest.fixture
def path(request):
    """Return a file name for this test."""
    return f"/large/{request.node.name}"


@pytest.fixture(scope="module")
def pair(tmp_path_factory, signer) -> Iterator[dict[int, DataSide]]:
    """Yield two datanodes of one name side, by the ports of their gateways. Each file has a replica on both."""
    names = NameSide(tmp_path_factory.mktemp("names"), signer)
    with contextlib.closing(names), names.served, contextlib.ExitStack() as stack:
        sides = [DataSide(f"dn-{n}", tmp_path_factory.mktemp(f"dn-{n}"), names, signer) for n in (1, 2)]
        for side in sides:
            stack.enter_context(side.served)
            names.register(side.node, side.server.address[1], side.port)
        yield {side.port: side for side in sides}
        for side in sides:
            side.close()


class Opened:
    """A large file on both datanodes of `pair`, opened at one of them."""

    def __init__(self, pair: dict[int, DataSide], path: str) -> None:
        names = next(iter(pair.values())).names
        self.content = os.urandom(LARGE)
        upload = names.ask("PUT", path, "CREATE", replication=2)
        assert pair[_port(upload)].follow("PUT", upload, self.content).status == 201
        redirect = names.ask("GET", path, "OPEN")
        self.here = pair[_port(redirect)]
        self.target = self.here.target(redirect)
        self.here.changes.take()

    @property
    def replica(self) -> Path:
        """The file of its replica on the datanode whose gateway is asked."""
        (chunk,) = (
            file
            for file in self.here.directory.rglob("*")
            if file.is_file() and file.stat().st_size > LARGE and file.read_bytes()[:LARGE] == self.content
        )
        return chunk

    @contextlib.contextmanager
    def begun(self) -> Iterator[Any]:
        """Yield the response stream of a client that has read the head but not the body."""
        with self.here.served.connect() as wire, wire.makefile("rb") as answer:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CLIENT_HOLDS)
            wire.sendall(f"GET {self.target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
            assert answer.readline().startswith(b"HTTP/1.1 200 ")
            while answer.readline().strip():
                pass
            yield answer

    def read(self) -> bytes:
        return self.here.served.request("GET", self.target).body


def _port(redirect) -> int:
    return int(redirect.headers["location"].split("/")[2].split(":")[1])


@pytest.fixture
def opened(pair, path):
    return Opened(pair, path)


@pytest.fixture
def own_pieces(opened, monkeypatch):
    """Return the offsets of the pieces that the gateway read from its own disk."""
    store, begins = opened.here.store, []
    read_blocks = store.read_blocks

    def counted(plan, bytes_max):
        assert bytes_max == gateway_local_piece_bytes, "all others are sent by the data server"
        begins.append(plan.at)
        return read_blocks(plan, bytes_max)

    monkeypatch.setattr(store, "read_blocks", counted)
    return begins


# -- local reads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_bytes", [2 * MIB, 64 * MIB], ids=["chunks", "chunk"])
def test_a_large_file_that_lies_here_is_read_without_a_data_connection(data, path, block_bytes, monkeypatch):
    content = os.urandom(5 * MIB + 17)
    data.write(path, content, blocksize=block_bytes)

    def connect(address, name):
        raise PeerUnreachable(f"{name} is out of reach")

    monkeypatch.setattr(data.pool, "connect", connect)
    assert data.read(path).body == content
    ranges = [
        (0, 65_537),
        (65_535, 2),
        (gateway_local_piece_bytes - 1, 2 * MIB + 2),
        (65_536, gateway_local_piece_bytes),
    ]
    ranges += [(2 * MIB - 1, 2), (2 * MIB, 2 * MIB), (3 * MIB + 5, 1 << 40), (5 * MIB + 16, 1)]
    for offset, length in ranges:
        assert data.read(path, offset=offset, length=length).body == content[offset : offset + length]


@pytest.mark.evidence("client-stops-reading")
def test_a_client_that_stops_reading_over_tls_holds_three_pieces_at_most():
    """The transport holds one piece, one waits for the transport, and one is being read."""
    given, taken = [], []
    room = asyncio.Semaphore(0)

    class Endless:
        unread = 1 << 40

        async def next(self) -> bytes:
            given.append(1)
            return b"x" * 10

    async def send(message) -> None:
        """Send as uvicorn does: wait until earlier data has left, then pass this to the transport."""
        if message["type"] == "http.response.body":
            await room.acquire()
            taken.append(message)

    async def receive() -> None:
        await asyncio.Event().wait()

    async def settled() -> tuple[int, int]:
        for _ in range(1000):
            await asyncio.sleep(0)
        return len(given), len(taken)

    async def stalled() -> None:
        wanted, pieces = ReadFile("/large/endless", "token", 0, None), cast(Pieces, Endless())
        sending = asyncio.ensure_future(send_pieces(wanted, pieces, cast(Any, None), receive, send, None))
        assert await settled() == (2, 0)
        for _ in range(10):
            room.release()
        assert await settled() == (12, 10)
        sending.cancel()
        await asyncio.wait([sending])

    asyncio.run(stalled())


# -- local faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, LARGE // 2 + 70_000, LARGE - 1], ids=["first", "middle", "last"])
@pytest.mark.evidence("checksums-hold")
def test_a_block_that_rotted_is_read_from_another_replica_and_reported(opened, own_pieces, at):
    with opened.replica.open("r+b") as rotting:
        rotting.seek(at)
        rotting.write(bytes([opened.content[at] ^ 1]))
    assert opened.read() == opened.content
    assert own_pieces == list(range(0, at + 1, gateway_local_piece_bytes)), "from there on it is read elsewhere"
    _added, _removed, corrupt = opened.here.changes.take()
    assert corrupt, "the coordinator hears of it with the next heartbeat"


def test_a_replica_that_is_cut_off_while_it_is_read_is_read_elsewhere_from_there_on(opened, own_pieces):
    replica = opened.replica
    with opened.begun() as answer:
        begin = answer.read(MIB)
        os.truncate(replica, LARGE - 100_000)
        assert begin + answer.read() == opened.content
    assert own_pieces[-1] == LARGE - gateway_local_piece_bytes


def test_a_replica_whose_file_is_gone_is_read_elsewhere(opened, own_pieces):
    opened.replica.unlink()
    assert opened.read() == opened.content
    assert not own_pieces


@pytest.fixture
def hung_from(opened, monkeypatch):
    """Return a function that lets the disk hang from an offset on. It returns the event that ends the hang."""
    store, released = opened.here.store, threading.Event()
    read_blocks = store.read_blocks
    monkeypatch.setattr(opened.here.local_large_reads, "_timeout_s", 0.1)

    def hang_from(offset):
        def read(plan, bytes_max):
            if plan.at >= offset:
                assert released.wait(60)
            return (yield from read_blocks(plan, bytes_max))

        monkeypatch.setattr(store, "read_blocks", read)
        return released

    yield hang_from
    released.set()


@pytest.mark.evidence("disk-hangs")
def test_a_disk_that_hangs_while_it_is_read_is_waited_for_a_moment(opened, hung_from):
    replica, released = opened.replica, hung_from(LARGE // 2)
    for _ in range(gateway_local_pieces_max + 1):
        assert opened.read() == opened.content, "and so do those who find no thread that is free"
    assert _is_open(replica), "a thread is still at it"
    released.set()
    wait_until(lambda: not _is_open(replica), "what was given up is let go of")


def test_a_client_that_hangs_up_lets_go_of_the_replica(opened, own_pieces):
    replica = opened.replica
    with opened.begun() as answer:
        assert answer.read(MIB) == opened.content[:MIB]
        assert _is_open(replica)
    wait_until(lambda: not _is_open(replica), "the replica is closed")
    assert own_pieces[-1] < LARGE - gateway_local_piece_bytes, "it was not read to the end"


def _is_open(path: Path) -> bool:
    """Return whether this process has the file open."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if descriptor.readlink() == path:
                return True
    return False


class HungDisk:
    """A chunk server whose disk hangs until it is released, and then has no replica."""

    def __init__(self) -> None:
        self.asked = 0
        self.released = fx.Ticket()

    def has(self, chunk: ChunkId) -> bool:
        return True

    def open(self, request: ReadChunk) -> fx.Steps[ReadPlan]:
        self.asked += 1
        yield from fx.wait(self.released, timeout_s=60.0)
        raise ChunkNotFound("it hung, and gives nothing")


class LateDisk:
    """A chunk server whose disk returns one piece at once, and the next ones when it is released."""

    def __init__(self) -> None:
        self.released = fx.Ticket()
        self.given: list[bytes] = []

    def has(self, chunk: ChunkId) -> bool:
        return True

    def open(self, request: ReadChunk) -> fx.Steps[ReadPlan]:
        yield from fx.now()
        return ReadPlan(request.chunk, request.version, request.length, b"", 0, 0, b"", None)

    def read_piece(self, plan: ReadPlan, request: ReadChunk, bytes_max: int) -> fx.Steps[memoryview]:
        if self.given:
            yield from fx.wait(self.released, timeout_s=60.0)
        self.given.append(b"early" if not self.given else b"late")
        return memoryview(self.given[-1])


@pytest.mark.evidence("disk-hangs")
def test_a_piece_that_comes_too_late_is_not_sent(data):
    disk, threads_before = LateDisk(), set(threading.enumerate())

    async def read() -> None:
        own = LocalLargeReads(cast(ChunkServer, disk), data.driver, timeout_s=0.05)
        near, far = socket.socketpair()
        try:
            chunk = own.open(ChunkLayout(7, 1, 1 << 20, "token", []), 0, 1 << 20)
            assert chunk is not None
            turn = Turn(near)
            assert not await chunk.send(turn), "the rest is to be read elsewhere"
            assert (turn.sent, turn.rest) == (5, None)
        finally:
            disk.released.fire()
            own.close()
        late = [each for each in set(threading.enumerate()) - threads_before if each.name.startswith("gateway")]
        for thread in late:
            await asyncio.to_thread(thread.join)
        assert disk.given == [b"early", b"late"], "the disk has answered"
        near.close()
        assert far.makefile("rb").read() == b"early"
        far.close()

    asyncio.run(read())


@pytest.mark.evidence("disk-hangs")
def test_a_disk_that_hangs_keeps_as_many_readers_of_large_files_as_there_may_be(data):
    disk = HungDisk()
    chunk = ChunkLayout(7, 1, 1 << 20, "token", [])

    async def read() -> None:
        own = LocalLargeReads(cast(ChunkServer, disk), data.driver, timeout_s=0.05)
        try:
            waiting = [own.open(chunk, 0, 1 << 20) for _ in range(gateway_downloads_max)]
            assert None not in waiting
            given = await asyncio.gather(*(one.next_piece() for one in waiting if one is not None))
            assert set(given) == {None}, "they are read elsewhere"
            for one in waiting:
                assert one is not None
                one.close()
            assert own.open(chunk, 0, 1 << 20) is None, "nobody else waits for the disk"
            disk.released.fire()
            until_s = time.monotonic() + 60.0
            again = None
            while again is None and time.monotonic() < until_s:
                await asyncio.sleep(0.01)
                again = own.open(chunk, 0, 1 << 20)
            assert again is not None, "once it answers, it is asked again"
            assert disk.asked == gateway_local_pieces_max, "and not for what nobody waits for any more"
        finally:
            disk.released.fire()
            own.close()

    asyncio.run(read())
