"""Readers of files that are made, replaced and removed meanwhile, on a real cluster, by our client and WebHDFS.

A reader can read every name that it sees, and an opened file is one version.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.long_runs import often
from support.prometheus import scraped
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.limits import KIB

pytestmark = pytest.mark.cluster

#: How long, or at least how often, something is replaced while it is read.
_WRITTEN_FOR_S, _WRITTEN_MIN = 0.1 * often(4, 60), 20
_CHUNK_BYTES = 64 * KIB
Read = Callable[[str], bytes]


class WebHdfsReader:
    """Reads as a stock client does: one request to the coordinator, one to the datanode in the redirect."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._http = httpx.Client(follow_redirects=True, trust_env=False, verify=False, timeout=60.0)

    def read(self, path: str) -> bytes:
        answer = self._http.get(f"{self._address}/webhdfs/v1{path}", params={"op": "OPEN", "user.name": "alice"})
        if answer.status_code == 404:
            raise FileNotFound(answer.text)
        assert answer.status_code == 200, f"{answer.status_code}: {answer.text}"
        return answer.content

    def close(self) -> None:
        self._http.close()


@pytest.fixture(params=["client", "webhdfs"])
def read(request: pytest.FixtureRequest, shared_cluster: LocalCluster) -> Iterator[Read]:
    """Yield a reader with connections of its own."""
    if request.param == "client":
        with PeaceFileSystem(shared_cluster.http_address, user="alice") as files:
            yield files.read
    else:
        reader = WebHdfsReader(shared_cluster.http_address)
        yield reader.read
        reader.close()


@contextmanager
def running(work: Callable[[], None]) -> Iterator[None]:
    """Repeat `work` on a thread; at the end, raise here what it raised."""
    stop, faults = threading.Event(), []

    def loop() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if faults:
        raise faults[0]


class Versions:
    """The successive contents of one path. The time determines which of them a reader may get."""

    def __init__(self) -> None:
        self.begun = 0
        self.done = 0

    def content(self, number: int, length: int) -> bytes:
        line = f"version {number}\n".encode()
        return line * (length // len(line) + 1)

    def write(self, publish: Callable[[bytes], None], length: int) -> None:
        self.begun += 1
        publish(self.content(self.begun, length))
        self.done = self.begun

    def judge(self, content: bytes, oldest: int, length: int) -> str:
        """Judge the content that a reader got if it began when version `oldest` was acknowledged."""
        newest = self.begun
        line, _newline, _rest = content.partition(b"\n")
        number = int(line.removeprefix(b"version ") or 0)
        if content != self.content(number, length):
            return f"no version: {content[:20]!r}, {len(content)} bytes"
        return "good" if oldest <= number <= newest else "of another time"


def outcome(read: Callable[[], str]) -> str:
    try:
        return read()
    except Exception as fault:
        return f"{type(fault).__name__}: {str(fault)[:160]}"


def ways_to_replace(files: PeaceFileSystem, home: str, length: int) -> dict[str, Callable[[bytes], None]]:
    path, beside = f"{home}/file", f"{home}/beside"

    def write(content: bytes) -> None:
        with files.open_for_writing(path, overwrite=True, block_bytes=_CHUNK_BYTES) as sink:
            sink.write(content)

    def rename(content: bytes) -> None:
        with files.open_for_writing(beside, overwrite=True, block_bytes=_CHUNK_BYTES) as sink:
            sink.write(content)
        files.rename(beside, path, overwrite=True)

    def flush(content: bytes) -> None:
        with files.open_for_writing(beside, overwrite=True, block_bytes=_CHUNK_BYTES) as sink:
            sink.write(content[: length // 2])
            sink.hflush()
            sink.write(content[length // 2 :])
        files.rename(beside, path, overwrite=True)

    return {
        "small write": lambda content: files.write(path, content, overwrite=True),
        "write": write,
        "rename": rename,
        "flush": flush,
    }


@pytest.mark.parametrize(
    ("way", "length"), [("small write", 300), ("write", 3 * _CHUNK_BYTES), ("rename", 300), ("flush", 3000)]
)
@pytest.mark.evidence("visible-is-readable")
def test_reader_of_a_file_that_is_replaced_in_a_loop_gets_one_version_each_time(
    files: PeaceFileSystem, home: str, read: Read, way: str, length: int
) -> None:
    replace, versions = ways_to_replace(files, home, length)[way], Versions()
    versions.write(replace, length)
    outcomes: Counter[str] = Counter()
    ends_s = time.monotonic() + _WRITTEN_FOR_S

    def read_once() -> str:
        oldest = versions.done
        return versions.judge(read(f"{home}/file"), oldest, length)

    with running(lambda: versions.write(replace, length)):
        while time.monotonic() < ends_s or versions.done < _WRITTEN_MIN:
            outcomes[outcome(read_once)] += 1
    assert set(outcomes) == {"good"}, outcomes


@pytest.mark.evidence("visible-is-readable")
def test_reader_finds_the_data_of_a_name_as_soon_as_it_sees_it(
    files: PeaceFileSystem, home: str, read: Read
) -> None:
    written: list[int] = [0]
    outcomes: Counter[str] = Counter()
    ends_s = time.monotonic() + _WRITTEN_FOR_S

    def write_next() -> None:
        written[0] += 1
        files.write(f"{home}/{written[0]}", f"file {written[0]}".encode())

    def read_when_there(number: int) -> str:
        while True:
            try:
                content = read(f"{home}/{number}")
            except FileNotFound:
                continue
            return "good" if content == f"file {number}".encode() else repr(content)

    with running(write_next):
        for number in itertools.count(1):
            if time.monotonic() >= ends_s and number > _WRITTEN_MIN:
                break
            # The reader waits for a name that will appear soon.
            number = max(number, written[0])
            outcomes[outcome(lambda number=number: read_when_there(number))] += 1
    assert set(outcomes) == {"good"}, outcomes


@pytest.mark.parametrize("length", [300, 3 * _CHUNK_BYTES])
@pytest.mark.evidence("open-file-replaced")
def test_reader_that_has_opened_a_file_reads_it_after_it_was_deleted(
    files: PeaceFileSystem, shared_cluster: LocalCluster, home: str, length: int
) -> None:
    content = Versions().content(1, length)
    ways_to_replace(files, home, length)["write"](content)
    asked = {"op": "OPEN", "user.name": "alice"}
    with httpx.Client(trust_env=False, verify=False, timeout=60.0) as http, files.open(f"{home}/file") as opened:
        redirect = http.get(f"{shared_cluster.http_address}/webhdfs/v1{home}/file", params=asked)
        files.delete(f"{home}/file")
        assert opened.read() == content
        assert http.get(redirect.headers["location"]).content == content
    with pytest.raises(FileNotFound):
        files.read(f"{home}/file")


@pytest.mark.parametrize("kind", ["client", "webhdfs"])
@pytest.mark.evidence("open-file-replaced")
def test_reader_that_waits_for_a_coordinator_that_starts_gets_one_version(tmp_path: Path, kind: str) -> None:
    """The file is replaced while the reader waits, because a rename does not wait for datanodes."""
    with LocalCluster(tmp_path, datanodes=2, port=0) as cluster:
        with PeaceFileSystem(cluster.http_address, user="alice") as files:
            files.write("/old", b"the old one")
            files.write("/new", b"the new one")
        for member in cluster.members:
            member.kill()
        cluster.restart(cluster.coordinator)
        got: list[str] = []
        with PeaceFileSystem(cluster.http_address, user="alice") as files:
            webhdfs = WebHdfsReader(cluster.http_address)
            read = files.read if kind == "client" else webhdfs.read
            reader = threading.Thread(target=lambda: got.append(outcome(lambda: read("/old").decode())))
            reader.start()
            wait_until(lambda: held_requests(cluster) >= 1, "the reader is being held")
            files.rename("/new", "/old", overwrite=True)
            assert got == []
            for member in cluster.datanodes:
                cluster.restart(member)
            reader.join()
            webhdfs.close()
        assert got in (["the old one"], ["the new one"])


def held_requests(cluster: LocalCluster) -> float:
    return scraped(cluster.http_address.removeprefix("http://"))["peacefs_requests_held", ""]
