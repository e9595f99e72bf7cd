"""hflush: every reader sees what it has published, whatever happens to the writer; a fenced writer is told so."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.limits import stream_buffer_bytes
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AlreadyBeingCreated, FileNotFound, LeaseExpired
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster

_WRITER = """
import sys
from peacefs.client.filesystem import PeaceFileSystem
files = PeaceFileSystem(sys.argv[1], "alice")
sink = files.open_for_writing(sys.argv[2], replication=2)
for number in range(1000):
    sink.write(b"%06d" % number)
    sink.hflush()
    sink.write(b"never flushed")
    print(sink.tell() - 13, flush=True)
    sys.stdin.readline()
"""


def test_flushed_bytes_are_seen_by_readers_and_the_rest_is_not(files: PeaceFileSystem, home: str) -> None:
    path, random_bytes = f"{home}/f", random.Random(1)
    data = b""
    with files.open_for_writing(path) as sink:
        with pytest.raises(FileNotFound):
            files.status(path)
        for length in (0, 5, 70_000, 1, 3 * MIB, 100, stream_buffer_bytes + 2 * MIB, 7):
            part = random_bytes.randbytes(length)
            sink.write(part)
            sink.hflush()
            data += part
            sink.write(b"x")
            assert files.status(path).length == len(data)
            assert files.read(path) == data
            data += b"x"
        sink.hsync()
        sink.hflush()
        sink.flush()
    assert files.read(path) == data
    with files.open_for_appending(path) as sink:
        assert sink.tell() == len(data)
        sink.write(b"more")
        sink.hflush()
        assert files.read(path) == data + b"more"
        sink.write(b"most")
    assert files.read(path) == data + b"moremost"


def test_a_file_flushed_often_has_few_chunks_and_readers_of_before_read_on(
    files: PeaceFileSystem, home: str
) -> None:
    path, lines = f"{home}/log", [b"%05d\n" % number for number in range(60)]
    with files.open_for_writing(path, replication=1) as sink:
        sources = []
        for number, line in enumerate(lines):
            sink.write(line)
            sink.hflush()
            if number % 10 == 3:
                sources.append((number, files.open(path)))
    for number, source in sources:
        with source:
            assert source.read() == b"".join(lines[: number + 1]), "as it was when it was opened"
    assert files.read(path) == b"".join(lines)
    findings = [file for page in files.inspect(path, every_file=True) for file in page.files]
    assert findings[0].chunks <= 6


def test_flushed_bytes_survive_the_writers_kill_9_and_another_goes_on(
    shared_cluster: LocalCluster, files: PeaceFileSystem, home: str
) -> None:
    path = f"{home}/log"
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, shared_cluster.http_address, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        flushed = 0
        for _ in range(5):
            flushed = int(writer.stdout.readline())
            if _ < 4:
                writer.stdin.write("go on\n")
                writer.stdin.flush()
        writer.send_signal(signal.SIGKILL)
    kept = files.read(path)
    assert len(kept) == files.status(path).length == flushed
    assert kept.startswith(b"000000never flushed000001") and kept.endswith(b"000004")
    with pytest.raises(AlreadyBeingCreated):
        files.open_for_appending(path)
    assert files.recover_lease(path)
    with files.open_for_appending(path) as sink:
        sink.write(b" and on")
    assert files.read(path) == kept + b" and on"


def test_a_writer_that_was_taken_for_dead_is_refused_and_adds_nothing(files: PeaceFileSystem, home: str) -> None:
    path = f"{home}/log"
    older = files.open_for_writing(path, replication=1)
    older.write(b"older")
    older.hflush()
    files.recover_lease(path)
    with files.open_for_appending(path) as newer:
        newer.write(b", newer")
        newer.hflush()
        older.write(b"lost")
        with pytest.raises(LeaseExpired, match="is not the lease owner any more"):
            older.hflush()
        with pytest.raises(LeaseExpired):
            older.write(b"lost")
        with pytest.raises(LeaseExpired):
            older.close()
        newer.write(b", newest")
    assert files.read(path) == b"older, newer, newest"


def test_a_file_that_was_deleted_under_its_writer_is_not_brought_back(files: PeaceFileSystem, home: str) -> None:
    sink = files.open_for_writing(f"{home}/log", replication=1)
    sink.write(b"1")
    sink.hflush()
    files.delete(f"{home}/log")
    sink.write(b"2")
    with pytest.raises((FileNotFound, LeaseExpired)):
        sink.hflush()
    sink.discard()
    assert not files.exists(f"{home}/log")


def test_flushed_bytes_stay_when_the_rest_is_discarded(files: PeaceFileSystem, home: str) -> None:
    path = f"{home}/log"
    with contextlib.suppress(ZeroDivisionError), files.open_for_writing(path, replication=1) as sink:
        sink.write(b"kept")
        sink.hflush()
        sink.write(b"given up")
        raise ZeroDivisionError
    assert files.read(path) == b"kept"
    with files.open_for_appending(path) as sink:
        sink.write(b" on")
    assert files.read(path) == b"kept on"


def test_flushes_go_on_over_a_coordinator_that_is_killed(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address, user="alice") as files,
    ):
        with files.open_for_writing("/log", replication=1) as sink:
            for number in range(4):
                sink.write(b"%d" % number)
                sink.hflush()
                if number == 1:
                    cluster.coordinator.kill()
                    cluster.restart(cluster.coordinator)
                    assert files.read("/log") == b"01", "what the killed one had answered"
        assert files.read("/log") == b"0123"
