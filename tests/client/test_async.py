"""The asynchronous interfaces: the client for asyncio, and fsspec's coroutines."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from peacefs.client.async_filesystem import AsyncPeaceFileSystem
from peacefs.client.control.addresses import parse_address
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import FileAlreadyExists, FileNotFound
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster


def test_async_client_reads_writes_and_changes_names(shared_cluster: LocalCluster, home: str) -> None:
    async def story() -> None:
        async with AsyncPeaceFileSystem(shared_cluster.http_address, "alice") as fs:
            names = [f"{home}/{number:03}" for number in range(50)]
            await asyncio.gather(*(fs.write(name, name.encode()) for name in names))
            assert [entry.path for entry in await fs.list(home)] == names
            assert await asyncio.gather(*map(fs.read, names)) == [name.encode() for name in names]
            assert [len(page.entries) async for page in fs.pages(home)] == [50]
            with pytest.raises(FileAlreadyExists):
                await fs.write(names[0], b"again")
            await fs.mkdirs(f"{home}/d")
            await fs.rename(names[0], f"{home}/d/moved")
            assert not await fs.exists(names[0])
            assert (await fs.status(f"{home}/d/moved")).length == len(names[0])
            assert (await fs.content_summary(f"{home}/d")).files == 1
            assert await fs.delete(f"{home}/d", recursive=True)
            with pytest.raises(FileNotFound):
                await fs.read(f"{home}/d/moved")
            assert await fs.call(fs.files.trash_minutes) == 0

    asyncio.run(story())


def test_async_client_reads_ranges_of_one_version_at_once(
    shared_cluster: LocalCluster, files: PeaceFileSystem, home: str
) -> None:
    data = os.urandom(3 * MIB + 17)
    files.write(f"{home}/large", data)
    ranges = [(0, 10), (MIB - 5, 10), (2 * MIB, MIB), (3 * MIB, 100), (4 * MIB, 1)]

    async def story() -> None:
        async with AsyncPeaceFileSystem(shared_cluster.http_address, "alice") as fs:
            wanted = [data[offset : offset + length] for offset, length in ranges]
            assert await fs.read_ranges(f"{home}/large", ranges) == wanted
            async with await fs.open(f"{home}/large") as source:
                await fs.write(f"{home}/large", b"replaced", overwrite=True)
                assert source.length == len(data)
                assert await asyncio.gather(*(source.read_at(*each) for each in ranges)) == wanted

    asyncio.run(story())


def test_async_client_leaves_the_loop_free_while_a_call_waits(shared_cluster: LocalCluster) -> None:
    async def story() -> None:
        async with AsyncPeaceFileSystem(shared_cluster.http_address, "alice", calls_at_once=2) as fs:
            gate = threading.Event()
            held = asyncio.create_task(fs.call(gate.wait))
            assert await fs.exists("/"), "another thread answers, on this loop"
            assert not held.done()
            gate.set()
            assert await held

    asyncio.run(story())


@pytest.fixture
def fs(shared_cluster: LocalCluster) -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec")
    from peacefs.client.fsspec.filesystem import PeaceFsspecFileSystem

    fsspec.register_implementation("peace", PeaceFsspecFileSystem, clobber=True)
    address = parse_address(shared_cluster.http_address)
    opened = PeaceFsspecFileSystem(
        host=address.host, port=address.port, user="alice", skip_instance_cache=True, asynchronous=True
    )
    yield opened
    opened.files.close()


def test_fsspec_is_awaited_by_programs_of_asyncio(fs: Any, home: str) -> None:
    async def story() -> None:
        await fs._pipe({f"{home}/d/{number}": b"x" * number for number in range(20)})
        assert sorted(await fs._find(f"{home}/d")) == sorted(f"{home}/d/{number}" for number in range(20))
        assert await fs._cat(await fs._find(f"{home}/d")) == {
            f"{home}/d/{number}": b"x" * number for number in range(20)
        }
        paths, starts, ends = [f"{home}/d/9", f"{home}/d/none", f"{home}/d/7"], [1, 0, 2], [4, 1, 4]
        first, missing, last = await fs._cat_ranges(paths, starts, ends)
        assert (first, last) == (b"xxx", b"xx") and isinstance(missing, FileNotFoundError)
        assert (await fs._info(f"{home}/d/5"))["size"] == 5
        await fs._rm(f"{home}/d", recursive=True)
        assert not await fs._exists(f"{home}/d")

    asyncio.run(story())


def test_fsspec_reads_many_files_at_once(shared_cluster: LocalCluster, files: PeaceFileSystem, home: str) -> None:
    """Each read waits for the others, so sequential reads would never end."""
    fsspec = pytest.importorskip("fsspec")
    from peacefs.client.fsspec.filesystem import PeaceFsspecFileSystem

    fsspec.register_implementation("peace", PeaceFsspecFileSystem, clobber=True)
    together = threading.Barrier(8)

    class Watched(PeaceFsspecFileSystem):
        cachable = False

        def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
            together.wait(60)
            return super().cat_file(path, start, end, **kwargs)

    for number in range(8):
        files.write(f"{home}/{number}", str(number).encode())
    address = parse_address(shared_cluster.http_address)
    opened = Watched(host=address.host, port=address.port, user="alice")
    assert opened.cat([f"{home}/{number}" for number in range(8)]) == {
        f"{home}/{number}": str(number).encode() for number in range(8)
    }
    opened.files.close()
