"""Extending, cutting and joining files with the Python client, on a real cluster."""

from __future__ import annotations

import contextlib
import gc
import random
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.limits import stream_buffer_bytes
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import (
    AlreadyBeingCreated,
    FileAlreadyExists,
    FileNotFound,
    IllegalChange,
    PathIsDirectory,
)
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster


def noise(length: int) -> bytes:
    return random.Random(length).randbytes(length)


@pytest.mark.parametrize("length", [0, 1, 300_000, stream_buffer_bytes + 3 * MIB + 7])
def test_appended_bytes_are_added_when_the_sink_is_closed(files: PeaceFileSystem, home: str, length: int) -> None:
    before, added = noise(70_000), noise(length)
    files.write(f"{home}/file", before)
    with files.open_for_appending(f"{home}/file") as sink:
        assert sink.tell() == len(before)
        for at in range(0, length, 1_000_000):
            sink.write(added[at : at + 1_000_000])
        assert sink.tell() == len(before) + length
        assert files.status(f"{home}/file").length == len(before), "nothing is there before the end"
    assert files.read(f"{home}/file") == before + added
    with files.open(f"{home}/file") as source:
        source.seek(len(before) - 2)
        assert source.read(4) == before[-2:] + added[:2]


def test_there_is_one_appender_at_a_time_and_a_discarded_one_has_added_nothing(
    files: PeaceFileSystem, home: str
) -> None:
    files.write(f"{home}/file", b"1")
    first = files.open_for_appending(f"{home}/file")
    first.write(b"2")
    with pytest.raises(AlreadyBeingCreated, match="owned by alice@"):
        files.open_for_appending(f"{home}/file")
    with pytest.raises(AlreadyBeingCreated):
        files.truncate(f"{home}/file", 0)
    first.discard()
    with contextlib.suppress(ZeroDivisionError), files.open_for_appending(f"{home}/file") as second:
        second.write(b"3")
        raise ZeroDivisionError
    with files.open_for_appending(f"{home}/file") as third:
        third.write(b"4")
    assert files.read(f"{home}/file") == b"14"


def test_a_sink_that_was_forgotten_adds_nothing(files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/file", b"1")
    sink = files.open_for_appending(f"{home}/file")
    sink.write(b"2")
    del sink
    gc.collect()
    assert files.read(f"{home}/file") == b"1"


def test_a_file_that_was_deleted_meanwhile_is_not_brought_back(files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/file", b"1")
    sink = files.open_for_appending(f"{home}/file")
    sink.write(b"2")
    files.delete(f"{home}/file")
    files.write(f"{home}/file", b"another")
    with pytest.raises(FileNotFound, match="File does not exist"):
        sink.close()
    assert sink.closed
    assert files.read(f"{home}/file") == b"another"


def test_path_that_is_no_file_cannot_be_extended(files: PeaceFileSystem, home: str) -> None:
    with pytest.raises(FileNotFound):
        files.open_for_appending(f"{home}/none")
    with pytest.raises(FileAlreadyExists, match="Cannot append to directory"):
        files.open_for_appending(home)


def test_a_file_is_cut_and_others_are_joined_to_it(files: PeaceFileSystem, home: str) -> None:
    data = noise(3 * MIB)
    with files.open_for_writing(f"{home}/a", block_bytes=MIB) as sink:
        sink.write(data)
    for name in "bc":
        with files.open_for_writing(f"{home}/{name}", block_bytes=MIB) as sink:
            sink.write(name.encode() * 5)
    assert files.truncate(f"{home}/a", MIB + 5) is True
    files.concat(f"{home}/a", [f"{home}/c", f"{home}/b"])
    assert files.read(f"{home}/a") == data[: MIB + 5] + b"cccccbbbbb"
    assert [entry.name for entry in files.list(home)] == ["a"]
    with pytest.raises(IllegalChange, match="larger file size"):
        files.truncate(f"{home}/a", 4 * MIB)
    with pytest.raises(IllegalChange, match="same with the target"):
        files.concat(f"{home}/a", [f"{home}/a"])
    with pytest.raises(FileNotFound):
        files.concat(f"{home}/a", [f"{home}/b"])
    with pytest.raises(PathIsDirectory):
        files.truncate(home, 0)


def test_a_writer_outlives_the_coordinator_and_keeps_its_lease(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        files.write("/file", b"1")
        sink = files.open_for_appending("/file")
        sink.write(b"2")
        cluster.coordinator.kill()
        cluster.restart(cluster.coordinator)
        with pytest.raises(AlreadyBeingCreated):
            files.open_for_appending("/file")
        sink.close()
        assert files.read("/file") == b"12"
