"""All ways to read a file of a cluster, with one interface: the whole file, or a part."""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import fsspec
import httpx

from peacefs.client.async_filesystem import AsyncPeaceFileSystem
from peacefs.client.control.addresses import parse_address
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.parallel_reads import ParallelReads

#: Content of a buffer beyond the bytes read, which must not change.
_UNTOUCHED = b"\xa5"


class Way(Protocol):
    """One way to read. `part` returns fewer bytes than `length` at the end of the file."""

    def whole(self, path: str) -> bytes: ...

    def part(self, path: str, offset: int, length: int) -> bytes: ...


class _Calls:
    """`read`, and `read_at` of an open file."""

    def __init__(self, files: PeaceFileSystem) -> None:
        self._files = files

    def whole(self, path: str) -> bytes:
        return self._files.read(path)

    def part(self, path: str, offset: int, length: int) -> bytes:
        with self._files.open(path) as source:
            return source.read_at(offset, length)


class _FileObject:
    """An open file that is read sequentially, and into a buffer that is larger than the request."""

    def __init__(self, files: PeaceFileSystem) -> None:
        self._files = files

    def whole(self, path: str) -> bytes:
        with self._files.open(path) as source:
            begin = source.read(10)
            return begin + source.read()

    def part(self, path: str, offset: int, length: int) -> bytes:
        with self._files.open(path) as source:
            source.seek(offset)
            read = source.read(length)
            room = bytearray(_UNTOUCHED * (length + 70_000))
            for target in (memoryview(room)[:length], memoryview(room)):
                count = source.read_into_at(offset, target)
                assert count == min(len(target), source.length - offset) and room[:count].startswith(read)
                assert not room[count:].strip(_UNTOUCHED), "bytes beyond the end of the range were written"
            return read


class _Awaited:
    """The asyncio client."""

    def __init__(self, files: AsyncPeaceFileSystem, runner: asyncio.Runner) -> None:
        self._files = files
        self._runner = runner

    def whole(self, path: str) -> bytes:
        return self._runner.run(self._files.read(path))

    def part(self, path: str, offset: int, length: int) -> bytes:
        (read,) = self._runner.run(self._files.read_ranges(path, [(offset, length)]))
        return read


class _Fsspec:
    """`peace://`: `cat_file`, and file objects without a cache and with one."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def whole(self, path: str) -> bytes:
        with self._fs.open(path, "rb") as source:
            read: bytes = source.read()
        assert self._fs.cat_file(path) == read
        return read

    def part(self, path: str, offset: int, length: int) -> bytes:
        read: bytes = self._fs.cat_file(path, offset, offset + length)
        with self._fs.open(path, "rb", cache_type="readahead", block_size=50_000) as source:
            source.seek(offset)
            assert source.read(length) == read
        return read


class _WebHdfs:
    """OPEN over HTTP, like `curl -L`."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def whole(self, path: str) -> bytes:
        return self._open(path)

    def part(self, path: str, offset: int, length: int) -> bytes:
        return self._open(path, offset=offset, length=length)

    def _open(self, path: str, **query: int) -> bytes:
        url = f"/webhdfs/v1{urllib.parse.quote(path)}"
        answer = self._http.get(url, params={"op": "OPEN", "user.name": "alice", **query})
        assert answer.status_code == 200, answer.text
        return answer.content


class HadoopWay:
    """Hadoop's client (`support.stock_hadoop.Hadoop`)."""

    def __init__(self, hadoop: Any) -> None:
        self._hadoop = hadoop

    def whole(self, path: str) -> bytes:
        read: bytes = self._hadoop.read(path)
        return read

    def part(self, path: str, offset: int, length: int) -> bytes:
        read: bytes = self._hadoop.read(path, offset)
        return read[:length]


def _reading_in_parallel(files: PeaceFileSystem) -> PeaceFileSystem:
    """Make a client read small files as it reads large ones: in parallel parts."""
    files._reads.close()
    files._reads = ParallelReads(files._driver, range_bytes=65_536, read_bytes_min=1)
    return files


@contextmanager
def ways_to_read(http_address: str) -> Iterator[dict[str, Way]]:
    """Yield all ways except Hadoop's client, by name, for the user alice."""
    with ExitStack() as stack:
        local, tcp, parallel = (
            stack.enter_context(PeaceFileSystem(http_address, "alice", local_sockets=sockets))
            for sockets in (True, False, False)
        )
        runner = stack.enter_context(asyncio.Runner())
        awaited = AsyncPeaceFileSystem(http_address, "alice")
        stack.callback(lambda: runner.run(awaited.close()))
        address = parse_address(http_address)
        fs = fsspec.filesystem(
            "peace", host=address.host, port=address.port, user="alice", skip_instance_cache=True
        )
        stack.callback(lambda: fs.files.close())
        http = stack.enter_context(httpx.Client(base_url=http_address, follow_redirects=True, timeout=30))
        yield {
            "local sockets": _Calls(local),
            "file object over local sockets": _FileObject(local),
            "TCP": _Calls(tcp),
            "file object over TCP": _FileObject(tcp),
            "TCP, in parallel": _Calls(_reading_in_parallel(parallel)),
            "asyncio": _Awaited(awaited, runner),
            "fsspec": _Fsspec(fs),
            "WebHDFS": _WebHdfs(http),
        }
