"""The Python client on a real cluster: what was written can be read, either whole or not at all."""

from __future__ import annotations

import gc
import io
import os
import random
import re
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.limits import stream_buffer_bytes
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import (
    BadRequest,
    FileAlreadyExists,
    FileNotFound,
    ParentNotDirectory,
    PathIsDirectory,
    PathIsNotEmptyDirectory,
)
from peacefs.protocol.limits import KIB, MIB, checksum_block_bytes, packet_bytes

pytestmark = pytest.mark.cluster

LENGTHS = [
    0,
    1,
    checksum_block_bytes - 1,
    checksum_block_bytes,
    checksum_block_bytes + 1,
    packet_bytes,
    packet_bytes + 1,
    stream_buffer_bytes + 3 * packet_bytes + 7,
]


def noise(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_file_of_any_length_reads_back_as_it_was_written(files: PeaceFileSystem, home: str, length: int) -> None:
    data = noise(length)
    files.write(f"{home}/file", data)
    assert files.read(f"{home}/file") == data
    status = files.status(f"{home}/file")
    assert (status.length, status.is_directory, status.owner, status.replication) == (length, False, "alice", 3)


@pytest.mark.parametrize("piece", [1000, packet_bytes, packet_bytes * 3 + 1])
def test_a_file_written_in_pieces_spans_chunks_without_a_seam(
    files: PeaceFileSystem, home: str, piece: int
) -> None:
    data = noise(7 * MIB + 11)
    with files.open_for_writing(f"{home}/file", block_bytes=MIB) as sink:
        for start in range(0, len(data), piece):
            assert sink.write(data[start : start + piece]) == len(data[start : start + piece])
        assert sink.tell() == len(data)
    assert files.read(f"{home}/file") == data


def test_a_buffer_that_the_writer_uses_again_is_not_mixed_up(files: PeaceFileSystem, home: str) -> None:
    buffer = bytearray(packet_bytes)
    with files.open_for_writing(f"{home}/file") as sink:
        for value in range(8):
            buffer[:] = bytes([value]) * packet_bytes
            sink.write(buffer)
    assert files.read(f"{home}/file") == b"".join(bytes([value]) * packet_bytes for value in range(8))


def test_reading_seeks_anywhere_and_goes_on_from_there(files: PeaceFileSystem, home: str) -> None:
    data = noise(6 * MIB + 5)
    with files.open_for_writing(f"{home}/file", block_bytes=2 * MIB) as sink:
        sink.write(data)
    rng = random.Random(2)
    with files.open(f"{home}/file") as source:
        assert source.length == len(data)
        for _ in range(30):
            offset, count = rng.randrange(len(data) + 10), rng.choice([1, 100, 70_000, 3 * MIB])
            assert source.seek(offset) == offset
            assert source.read(count) == data[offset : offset + count]
        source.seek(-7, io.SEEK_END)
        assert source.read() == data[-7:]
        assert source.read(1) == b""
        source.seek(3)
        assert source.read() == data[3:]
        with pytest.raises(ValueError, match="before the beginning"):
            source.seek(-1)


def test_ranges_are_read_to_where_they_are_wanted_by_several_threads(files: PeaceFileSystem, home: str) -> None:
    data = noise(3 * MIB + 17)
    files.write(f"{home}/large", data)
    ranges = [(0, 10), (MIB - 5, 10), (5, MIB), (2 * MIB, MIB), (3 * MIB, 100), (len(data), 10), (4 * MIB, 1)]
    with files.open(f"{home}/large") as source, ThreadPoolExecutor(4) as threads:
        targets = [bytearray(b"." * length) for _, length in ranges]
        offsets = [offset for offset, _ in ranges]
        counts = list(threads.map(source.read_into_at, offsets, targets))
        for (offset, length), target, count in zip(ranges, targets, counts, strict=True):
            wanted = data[offset : offset + length]
            assert count == len(wanted)
            assert target == wanted + b"." * (length - count)
        assert source.read(10) == data[:10]


def test_lines_are_iterated(files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/log", b"first\nsecond\nno newline")
    with files.open(f"{home}/log") as source:
        assert list(source) == [b"first\n", b"second\n", b"no newline"]
    with files.open(f"{home}/log") as source:
        assert [line.strip() for line in io.TextIOWrapper(source, "utf-8")] == ["first", "second", "no newline"]


@pytest.mark.parametrize("length", [10, stream_buffer_bytes + 2 * packet_bytes])
def test_nothing_is_seen_of_a_file_until_it_is_closed(files: PeaceFileSystem, home: str, length: int) -> None:
    sink = files.open_for_writing(f"{home}/file")
    sink.write(noise(length))
    sink.flush()
    assert not files.exists(f"{home}/file")
    sink.close()
    assert files.status(f"{home}/file").length == length
    sink.close()
    with pytest.raises(ValueError, match="closed"):
        sink.write(b"more")


@pytest.mark.parametrize("length", [10, stream_buffer_bytes + 2 * packet_bytes])
def test_an_exception_discards_the_file_and_leaves_what_was_there(
    files: PeaceFileSystem, home: str, length: int
) -> None:
    files.write(f"{home}/file", b"before")

    def change_my_mind() -> None:
        with files.open_for_writing(f"{home}/file", overwrite=True) as sink:
            sink.write(noise(length))
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        change_my_mind()
    assert files.read(f"{home}/file") == b"before"
    assert not [each for each in threading.enumerate() if each.name == "peacefs-writer" and each.is_alive()]


def test_a_file_that_its_writer_forgets_is_never_published(files: PeaceFileSystem, home: str) -> None:
    files.open_for_writing(f"{home}/file").write(b"half of it")
    gc.collect()
    assert not files.exists(f"{home}/file")


def test_a_name_that_is_taken_is_refused_before_any_data_is_sent(files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/file", b"first")
    with pytest.raises(FileAlreadyExists):
        files.open_for_writing(f"{home}/file")
    files.write(f"{home}/file", b"second", overwrite=True)
    assert files.read(f"{home}/file") == b"second"


def test_first_writer_to_close_wins_a_name(files: PeaceFileSystem, home: str) -> None:
    first, second = files.open_for_writing(f"{home}/file"), files.open_for_writing(f"{home}/file")
    first.write(b"first")
    second.write(b"second")
    second.close()
    with pytest.raises(FileAlreadyExists):
        first.close()
    assert first.closed
    assert files.read(f"{home}/file") == b"second"


def test_parents_are_made_unless_that_is_not_wanted(files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/a/b/file", b"")
    assert files.status(f"{home}/a/b").is_directory
    with pytest.raises(FileNotFound):
        files.open_for_writing(f"{home}/no/file", make_parents=False)


def test_open_that_fails_says_why(files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/file", b"")
    with pytest.raises(FileNotFound):
        files.open(f"{home}/nothing")
    with pytest.raises(PathIsDirectory):
        files.open(home)
    with pytest.raises(ParentNotDirectory):
        files.open_for_writing(f"{home}/file/below")
    with pytest.raises(BadRequest, match="block size"):
        files.open_for_writing(f"{home}/other", block_bytes=0)


@pytest.mark.parametrize(
    ("wanted", "given"), [(128 * MIB, 64 * MIB), (1000, 64 * KIB), (200 * KIB, 192 * KIB), (MIB, MIB)]
)
def test_block_size_that_is_not_possible_is_said_and_becomes_one_that_is(
    files: PeaceFileSystem, home: str, wanted: int, given: int
) -> None:
    data = os.urandom(300 * KIB)
    for name, write in (
        ("opened", lambda path: files.open_for_writing(path, block_bytes=wanted)),
        ("written", lambda path: files.write(path, data, block_bytes=wanted)),
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            sink = write(f"{home}/{name}")
            if sink is not None:
                with sink:
                    sink.write(data)
        expected = [] if wanted == given else [f"{given} bytes in place of {wanted}"]
        assert re.findall(r"\d+ bytes in place of \d+", " ".join(str(each.message) for each in told)) == expected
        assert files.status(f"{home}/{name}").block_bytes == given
        assert files.read(f"{home}/{name}") == data


def test_names_of_any_kind_survive_the_way_through_url_and_json(files: PeaceFileSystem, home: str) -> None:
    names = ["50% off?", "a#b", "x&y=z+1", "ä ö ☃", "semi;colon", "a%2Fb", ".hidden", "~", "new\nline", "\\"]
    for name in names:
        files.write(f"{home}/{name}", name.encode())
    assert [entry.name for entry in files.list(home)] == sorted(names, key=str.encode)
    for name in names:
        assert files.read(f"{home}/{name}") == name.encode()
        files.rename(f"{home}/{name}", f"{home}/{name}+")
    assert [entry.name for entry in files.list(home)] == sorted((f"{name}+" for name in names), key=str.encode)


def test_a_rename_is_exact_and_replaces_only_when_told_to(files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/a", b"a")
    files.write(f"{home}/b", b"b")
    with pytest.raises(FileAlreadyExists):
        files.rename(f"{home}/a", f"{home}/b")
    files.rename(f"{home}/a", f"{home}/b", overwrite=True)
    assert files.read(f"{home}/b") == b"a"
    with pytest.raises(FileNotFound):
        files.rename(f"{home}/a", f"{home}/c")


def test_a_tree_is_walked_summed_up_and_deleted(files: PeaceFileSystem, home: str) -> None:
    for path in ("x/1", "x/2", "y/z/3", "4"):
        files.write(f"{home}/{path}", b"12345")
    walked = [
        (directory.removeprefix(home), [entry.name for entry in directories], [entry.name for entry in found])
        for directory, directories, found in files.walk(home)
    ]
    assert walked == [("", ["x", "y"], ["4"]), ("/x", [], ["1", "2"]), ("/y", ["z"], []), ("/y/z", [], ["3"])]
    summary = files.content_summary(home)
    assert (summary.files, summary.directories, summary.length, summary.space_consumed) == (4, 4, 20, 60)
    with pytest.raises(PathIsNotEmptyDirectory):
        files.delete(f"{home}/y")
    assert files.delete(f"{home}/y", recursive=True)
    assert not files.delete(f"{home}/y", recursive=True)
    assert [entry.name for entry in files.list(home)] == ["4", "x"]


def test_a_directory_of_more_than_a_page_is_listed_in_full(files: PeaceFileSystem, home: str) -> None:
    names = sorted(f"{number:x}" for number in range(2100))
    # Use many threads, whose changes share commits.
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda name: files.mkdirs(f"{home}/{name}"), names))
    assert [entry.name for entry in files.list(home)] == names
    assert len(list(files.pages(home))) == 3


def test_many_threads_share_one_client(files: PeaceFileSystem, home: str) -> None:
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for index in range(5):
                data = noise(30_000 * (index + 1), seed=number * 10 + index)
                files.write(f"{home}/{number}/{index}", data)
                assert files.read(f"{home}/{number}/{index}") == data
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert files.content_summary(home).files == 40


def test_the_status_of_the_cluster_names_its_datanodes(
    shared_cluster: LocalCluster, files: PeaceFileSystem
) -> None:
    datanodes = files.cluster_status()["datanodes"]
    assert {node["node"] for node in datanodes} == {member.node for member in shared_cluster.datanodes}
    assert {node["rack"] for node in datanodes} == {"/rack-1", "/rack-2"}
