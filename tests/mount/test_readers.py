"""Readers of a mount when another machine appends, when memory is short, and when other threads replace them."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.mount import readers
from peacefs.client.mount.blocks import Block
from peacefs.client.mount.handles import Caller
from peacefs.client.mount.readers import ReadAhead, VersionReader, readers_ahead_max
from peacefs.client.mount.stage import StagingRoom
from peacefs.client.mount.tree import MountedTree

pytestmark = pytest.mark.cluster
_ME = Caller(threading.get_native_id(), os.getuid(), os.getgid())
_MIB = 1 << 20


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadAhead]:
    """Yield the threads that trees of this test read ahead with; all their places must be free at the end."""
    used = ReadAhead()
    monkeypatch.setattr("peacefs.client.mount.tree.ReadAhead", lambda: used)
    yield used
    assert [used.take_place() for _ in range(readers_ahead_max + 1)] == [True] * readers_ahead_max + [False]
    used.threads.shutdown()


def test_reader_of_a_growing_file_keeps_no_place_of_older_versions(
    files: PeaceFileSystem, home: str, tmp_path: Path, ahead: ReadAhead
) -> None:
    content = random.Random(1).randbytes(20_000)
    files.write(f"{home}/log", content[:5000])
    tree = MountedTree(files, StagingRoom(tmp_path, _MIB), os.getuid())
    handle = tree.open(f"{home}/log", os.O_RDONLY, _ME)
    read = b""
    for end in (5000, 10_000, 15_000, 20_000):
        if end > 5000:
            with files.open_for_appending(f"{home}/log") as log:
                log.write(content[end - 5000 : end])
        while len(read) < end:
            # The mount shows a status that is up to a second old.
            block = tree.read_block(handle, len(read), 1000)
            read += bytes(block.view)
    assert read == content
    assert tree.read_block(handle, 20_000, 1000).length == 0
    tree.release(handle)


def test_read_ahead_without_memory_fails_and_the_next_read_goes_on(
    files: PeaceFileSystem, home: str, ahead: ReadAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = random.Random(2).randbytes(4 * _MIB)
    files.write(f"{home}/file", content)
    reader = VersionReader(files.open(f"{home}/file"), ahead)
    room = memoryview(bytearray(_MIB))

    def refused(size: int) -> Block:
        raise MemoryError

    monkeypatch.setattr(readers, "Block", refused)
    outcomes: list[object] = []

    def read() -> None:
        for _ in range(4):
            try:
                outcomes.append(reader.read_into(sum(each for each in outcomes if isinstance(each, int)), room))
            except MemoryError as error:
                outcomes.append(error)
                monkeypatch.setattr(readers, "Block", Block)

    # A daemon, because a read that hangs must not keep the test from failing.
    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(60)
    assert [each if isinstance(each, int) else type(each) for each in outcomes] == [_MIB, _MIB, MemoryError, _MIB]
    assert room == content[2 * _MIB : 3 * _MIB]
    reader.close()


def test_reader_that_another_thread_has_replaced_still_reads_its_version(
    files: PeaceFileSystem, home: str, ahead: ReadAhead
) -> None:
    content = random.Random(3).randbytes(4 * _MIB)
    files.write(f"{home}/file", content)
    reader = VersionReader(files.open(f"{home}/file"), ahead)
    room = memoryview(bytearray(_MIB))
    for at in range(2):
        assert reader.read_into(at * _MIB, room) == _MIB
    reader.close()
    assert reader.take_block(2 * _MIB, _MIB) is None
    for at in (2, 3, 0):
        assert reader.read_into(at * _MIB, room) == _MIB
        assert room == content[at * _MIB : (at + 1) * _MIB]


def test_reader_with_blocks_ahead_gets_the_error_of_a_failed_write(
    files: PeaceFileSystem, home: str, tmp_path: Path, ahead: ReadAhead
) -> None:
    content = random.Random(4).randbytes(4 * _MIB)
    files.write(f"{home}/file", content)
    tree = MountedTree(files, StagingRoom(tmp_path, 8 * _MIB), os.getuid())
    writing = tree.open(f"{home}/file", os.O_RDWR, _ME)
    tree.truncate(f"{home}/file", 4 * _MIB - 1, writing, _ME)
    reading = tree.open(f"{home}/file", os.O_RDONLY, _ME)
    for at in range(2):
        assert tree.read_block(reading, at * _MIB, _MIB).view == content[at * _MIB : (at + 1) * _MIB]
    # Another machine replaces the file, so its content cannot be staged for a write in its middle.
    files.write(f"{home}/file", b"short", overwrite=True)
    with pytest.raises(OSError, match="changed by another machine"):
        tree.write(writing, 5, b"middle", _ME)
    with pytest.raises(OSError, match="changed by another machine"):
        tree.read_block(reading, 2 * _MIB, _MIB)
    tree.release(reading)
    tree.release(writing)
