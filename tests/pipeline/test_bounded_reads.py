"""Reads of files on a hanging disk: cached data comes at once, the rest in time or not at all."""

from __future__ import annotations

import os
import threading

import pytest
from support.waiting import wait_until

from peacefs.protocol.errors import PeerTimeout
from peacefs.protocol.limits import MIB
from peacefs.runtime import bounded_reads as bounded_reads
from peacefs.runtime.bounded_reads import BoundedReads
from peacefs.runtime.disk_files import DiskFile, read_from_memory

DATA = os.urandom(3 * MIB + 17)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(DATA)
    made = DiskFile(os.open(path, os.O_RDONLY))
    # Pages under writeback are not returned without waiting.
    os.fsync(made.descriptor)
    wait_until(lambda: read_from_memory(made, bytearray(len(DATA)), 0) == len(DATA), "the file is in memory")
    yield made
    os.close(made.descriptor)


@pytest.fixture
def reads():
    made = BoundedReads(threads_max=1)
    yield made
    made.close()


@pytest.fixture
def nothing_in_memory(monkeypatch):
    monkeypatch.setattr(bounded_reads, "read_from_memory", lambda file, target, offset: 0)


def threads():
    return sum(thread.name.startswith("bounded-reads") for thread in threading.enumerate())


def test_read_from_memory_needs_no_thread(reads, file):
    target = memoryview(bytearray(MIB))
    assert reads.read_into(file, target, 5, 0.0) == MIB
    assert target == DATA[5 : 5 + MIB]
    assert threads() == 0


def test_read_from_the_disk_comes_too(reads, file):
    os.fsync(file.descriptor)
    os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    target = memoryview(bytearray(len(DATA)))
    assert reads.read_into(file, target, 0, 30.0) == len(DATA)
    assert target == DATA


def test_read_that_is_half_in_memory_is_completed(reads, file, monkeypatch):
    def half(file, target, offset):
        count = len(target) // 2
        target[:count] = DATA[offset : offset + count]
        return count

    monkeypatch.setattr(bounded_reads, "read_from_memory", half)
    target = memoryview(bytearray(1001))
    assert reads.read_into(file, target, 7, 30.0) == 1001
    assert target == DATA[7:1008]


@pytest.mark.parametrize("offset", [len(DATA) - 10, len(DATA), len(DATA) + 10])
def test_a_file_ends_where_it_ends(reads, file, offset):
    target = memoryview(bytearray(100))
    given = reads.read_into(file, target, offset, 30.0)
    assert bytes(target[:given]) == DATA[offset:]


def test_a_fault_of_the_disk_is_told(reads, file, nothing_in_memory, monkeypatch):
    def fail(descriptor, room, offset):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(bounded_reads, "_read", fail)
    with pytest.raises(OSError, match="Input/output error"):
        reads.read_into(file, memoryview(bytearray(10)), 0, 30.0)


def test_reader_behind_a_hanging_disk_waits_no_longer_than_stated(reads, file, nothing_in_memory, monkeypatch):
    comes_back = threading.Event()

    def hang(descriptor, room, offset):
        comes_back.wait(30)
        room[:] = b"x" * len(room)
        return len(room)

    monkeypatch.setattr(bounded_reads, "_read", hang)
    target = memoryview(bytearray(10))
    for _ in range(3):
        with pytest.raises(PeerTimeout, match="the disk gave nothing"):
            reads.read_into(file, target, 0, 0.01)
    assert threads() == 1, "however many wait"
    comes_back.set()
    assert reads.read_into(file, target, 0, 30.0) == 10
    assert bytes(target) == b"x" * 10, "it serves again when the disk does"


def test_reading_ahead_what_is_in_memory_needs_no_thread(reads, file):
    reads.read_ahead(file, 0, len(DATA))
    assert threads() == 0


def test_the_disk_is_asked_ahead_for_what_is_not_in_memory_and_nobody_waits(
    reads, file, nothing_in_memory, monkeypatch
):
    asked, comes_back = [], threading.Event()

    def ask_for(descriptor, offset, length):
        comes_back.wait(30)
        asked.append((offset, length))

    monkeypatch.setattr(bounded_reads, "_ask_for", ask_for)
    reads.read_ahead(file, 5, 2 * MIB)
    assert not asked
    comes_back.set()
    wait_until(lambda: asked, "the disk is asked")
    assert asked == [(5, 2 * MIB)]
