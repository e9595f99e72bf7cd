"""Small files through preallocated chunks, on a real cluster: one call each, otherwise as before."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import fsspec
import pytest
from support.prometheus import scraped
from support.waiting import wait_until

from peacefs.client.control.rpc import ControlRpc
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.limits import stream_buffer_bytes
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import (
    AccessDenied,
    AlreadyBeingCreated,
    BadRequest,
    FileAlreadyExists,
    FileNotFound,
    ParentNotDirectory,
    PathIsDirectory,
    PathThroughFile,
    QuotaExceeded,
    ServiceUnready,
)
from peacefs.protocol.frames import Frame
from peacefs.protocol.limits import fast_lane_bytes_max, packet_bytes, unreferenced_chunk_kept_s
from peacefs.protocol.messages import Message
from peacefs.runtime.sending_end import SendingEnd

pytestmark = pytest.mark.cluster

#: The calls of a writer without, and with, a preallocated chunk.
TWO_CALLS, ONE_CALL = ["CreateFile", "CompleteFile"], ["PublishFile"]
#: The call of a writer of an empty file.
EMPTY_CALL = ["CreateFile"]

#: Long before unreported chunks become garbage.
SOON_S = unreferenced_chunk_kept_s / 2


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the requests of this process's clients to the coordinator."""
    names: list[str] = []
    send = ControlRpc._send

    def heard(self: ControlRpc, messages: Sequence[Message], timeout_s: float) -> Any:
        names.extend(type(message).__name__ for message in messages)
        return send(self, messages, timeout_s)

    monkeypatch.setattr(ControlRpc, "_send", heard)
    return names


def put_one_in_hand(files: PeaceFileSystem, home: str, replication: int | None = None) -> None:
    for _ in range(2):
        files.write(f"{home}/before", b"before", overwrite=True, replication=replication)


def test_small_write_makes_the_file_that_create_would_have_made(
    files: PeaceFileSystem, home: str, asked: list[str]
) -> None:
    for name in ("first", "second", "third", "fourth"):
        files.write(f"{home}/{name}", name.encode(), replication=2)
    assert asked == 2 * TWO_CALLS + 2 * ONE_CALL
    with files.open_for_writing(f"{home}/of a sink", replication=2) as sink:
        sink.write(b"third")
    shown = [files.status(f"{home}/{name}") for name in ("first", "third", "of a sink")]
    assert len({(one.permission, one.owner, one.group, one.replication, one.length) for one in shown}) == 1
    assert files.read(f"{home}/third") == b"third"


@pytest.mark.parametrize("length", [1, packet_bytes, packet_bytes + 1, fast_lane_bytes_max])
def test_a_file_of_any_length_reads_back_as_it_was_written(
    files: PeaceFileSystem, home: str, asked: list[str], length: int
) -> None:
    put_one_in_hand(files, home)
    asked.clear()
    data = os.urandom(length)
    files.write(f"{home}/file", data)
    assert asked == ONE_CALL
    assert files.read(f"{home}/file") == data


def test_large_file_goes_the_ordinary_way(files: PeaceFileSystem, home: str, asked: list[str]) -> None:
    put_one_in_hand(files, home)
    asked.clear()
    data = bytes(fast_lane_bytes_max + 1)
    files.write(f"{home}/file", data, overwrite=True)
    assert files.read(f"{home}/file") == data
    assert "PublishFile" not in asked


def test_empty_file_is_one_call_and_what_a_sink_would_have_made(
    files: PeaceFileSystem, home: str, asked: list[str]
) -> None:
    files.write(f"{home}/empty", b"", replication=2)
    assert asked == EMPTY_CALL
    with files.open_for_writing(f"{home}/of a sink", replication=2):
        pass
    shown = [files.status(f"{home}/{name}") for name in ("empty", "of a sink")]
    assert len({(one.permission, one.owner, one.group, one.replication, one.length) for one in shown}) == 1
    assert files.read(f"{home}/empty") == b""
    with files.open_for_appending(f"{home}/empty") as sink:
        sink.write(b"more")
    assert files.read(f"{home}/empty") == b"more"
    files.write(f"{home}/empty", b"", overwrite=True)
    assert files.read(f"{home}/empty") == b""


def test_empty_file_is_refused_with_the_words_of_a_sink(
    files: PeaceFileSystem, superuser: PeaceFileSystem, home: str
) -> None:
    files.write(f"{home}/file", b"first")
    files.mkdirs(f"{home}/directory")
    superuser.mkdirs(f"{home}-closed")
    files.mkdirs(f"{home}/full")
    superuser.quotas.set(f"{home}/full", names=1)
    with files.open_for_appending(f"{home}/file"):
        for path, refusal in (
            (f"{home}/file", AlreadyBeingCreated),
            (f"{home}/directory", FileAlreadyExists),
            (f"{home}/file/below", ParentNotDirectory),
            (f"{home}-closed/mine", AccessDenied),
            (f"{home}/full/file", QuotaExceeded),
            ("not absolute", BadRequest),
        ):
            with pytest.raises(refusal) as at_once:
                files.write(path, b"")
            with pytest.raises(refusal) as by_create:
                files.open_for_writing(path)
            assert at_once.value.message == by_create.value.message
    with pytest.raises(FileAlreadyExists):
        files.write(f"{home}/file", b"")
    assert files.read(f"{home}/file") == b"first"
    assert not files.exists(f"{home}/full/file")


def test_a_replication_of_its_own_needs_a_chunk_of_its_own(
    files: PeaceFileSystem, home: str, asked: list[str]
) -> None:
    put_one_in_hand(files, home, replication=1)
    asked.clear()
    files.write(f"{home}/two", b"data", replication=2)
    files.write(f"{home}/one", b"data", replication=1)
    assert asked == TWO_CALLS + ONE_CALL
    assert [files.status(f"{home}/{name}").replication for name in ("one", "two")] == [1, 2]


def test_small_write_is_refused_with_the_same_words_and_changes_nothing(
    files: PeaceFileSystem, superuser: PeaceFileSystem, home: str
) -> None:
    files.write(f"{home}/file", b"first")
    files.mkdirs(f"{home}/directory")
    superuser.mkdirs(f"{home}-closed")
    files.mkdirs(f"{home}/small")
    superuser.quotas.set(f"{home}/small", space=1)
    for path, refusal in (
        (f"{home}/file", FileAlreadyExists),
        (f"{home}/directory", FileAlreadyExists),
        (f"{home}/file/below", ParentNotDirectory),
        (f"{home}-closed/mine", AccessDenied),
        (f"{home}/small/file", QuotaExceeded),
        ("not absolute", BadRequest),
    ):
        put_one_in_hand(files, home)
        with pytest.raises(refusal) as at_once:
            files.write(path, b"2")
        with pytest.raises(refusal) as by_create:
            files.open_for_writing(path)
        assert at_once.value.message == by_create.value.message
    assert files.read(f"{home}/file") == b"first"
    assert not files.exists(f"{home}/small/file")
    files.write(f"{home}/file", b"second", overwrite=True)
    assert files.read(f"{home}/file") == b"second"


def test_threads_that_share_a_client_share_what_it_has_in_hand(
    files: PeaceFileSystem, home: str, asked: list[str]
) -> None:
    def work(thread: int) -> None:
        for number in range(20):
            files.write(f"{home}/{thread}-{number}", f"{thread} {number}".encode())

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert asked.count("PublishFile") > 100
    for thread in range(8):
        for number in range(20):
            assert files.read(f"{home}/{thread}-{number}") == f"{thread} {number}".encode()


def test_a_file_of_fsspec_is_piped_at_once(
    shared_cluster: LocalCluster, files: PeaceFileSystem, home: str, asked: list[str]
) -> None:
    base = shared_cluster.http_address.replace("http://", "peace://")
    fs: Any = fsspec.filesystem("peace", skip_instance_cache=True, **address(base))
    for number in range(3):
        fs.pipe_file(f"{base}{home}/{number}", b"piped")
    assert asked == 2 * TWO_CALLS + ONE_CALL
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{home}/2", b"another", mode="create")
    fs.pipe_file(f"{home}/2", b"again")
    assert fs.cat_file(f"{home}/2") == files.read(f"{home}/2") == b"again"
    with fs.transaction:
        fs.pipe_file(f"{home}/later", b"later")
        assert not fs.exists(f"{home}/later")
    assert fs.cat_file(f"{home}/later") == b"later"


def address(base: str) -> dict[str, Any]:
    host, _, port = base.removeprefix("peace://").partition(":")
    return {"host": host, "port": int(port), "user": "alice"}


def test_files_that_are_written_together_are_there_and_one_that_is_refused_is_refused_alone(
    files: PeaceFileSystem, home: str
) -> None:
    random = Random(1)
    sizes = [0, 1, 1024, 5000, 20_000, 300_000, fast_lane_bytes_max, fast_lane_bytes_max + 1, *[1024] * 40]
    wanted = {f"{home}/{number}": random.randbytes(size) for number, size in enumerate(sizes)}
    files.write(f"{home}/taken", b"first")
    refused = {f"{home}/taken": b"second", f"{home}/taken/below": b"x", "not absolute": b"x", f"{home}/ ": b""}
    files.mkdirs(f"{home}/ ")
    for turn in range(2):  # first without preallocated chunks, then with some
        failed = files.write_many({**wanted, **refused}, replication=2)
        assert {path: type(error) for path, error in failed.items()} == {
            **(dict.fromkeys(wanted, FileAlreadyExists) if turn else {}),
            f"{home}/taken": FileAlreadyExists,
            f"{home}/taken/below": ParentNotDirectory,
            "not absolute": BadRequest,
            f"{home}/ ": FileAlreadyExists,
        }
        assert {path: files.read(path) for path in wanted} == wanted
    assert files.read(f"{home}/taken") == b"first"
    again = {path: data[::-1] + b"again" for path, data in wanted.items()}
    assert files.write_many(again, overwrite=True) == {}
    assert {path: files.read(path) for path in wanted} == again


def test_each_of_a_series_that_is_written_together_is_one_call(
    files: PeaceFileSystem, home: str, asked: list[str]
) -> None:
    files.write_many({f"{home}/first {number}": b"x" for number in range(20)})
    files.write_many({f"{home}/second {number}": b"x" for number in range(16)})
    asked.clear()
    files.write_many({f"{home}/third {number}": b"x" for number in range(16)})
    assert asked == ["PublishFile"] * 16


def test_files_that_are_written_together_are_sent_and_committed_together(
    four: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends: list[tuple[int, str]] = []
    send = SendingEnd.send_frames_now

    def recorded(self: SendingEnd, frames: Sequence[Frame]) -> memoryview:
        sends.append((len(frames), type(frames[0].message).__name__))
        return send(self, frames)

    def commits() -> float:
        return scraped(four.http_address.removeprefix("http://"))["peacefs_commits_made_total", ""]

    with PeaceFileSystem(four.http_address, user="alice") as files:
        # The first files have no preallocated chunks, so that they are created and completed.
        files.mkdirs("/warm")
        before = commits()
        files.write_many({f"/first {number}": b"x" for number in range(64)})
        assert commits() - before <= 8
        files.write_many({f"/second {number}": b"x" for number in range(64)})
        monkeypatch.setattr(SendingEnd, "send_frames_now", recorded)
        before = commits()
        wanted = {f"/after {number}": os.urandom(1024) for number in range(60)}
        assert files.write_many(wanted) == {}
        # One send for each of the four head datanodes, and one for all publications. The coordinator may begin to
        # commit before it has read all of them; other commits may happen meanwhile.
        assert sorted(name for _count, name in sends) == ["PublishFile", *["WriteChunk"] * 4]
        assert sum(count for count, name in sends if name == "WriteChunk") == len(wanted)
        assert (len(wanted), "PublishFile") in sends
        assert commits() - before <= 8
        assert {path: files.read(path) for path in wanted} == wanted


def test_files_that_are_written_together_survive_the_death_of_a_datanode(four: LocalCluster) -> None:
    with PeaceFileSystem(four.http_address, user="alice") as files:
        files.write_many({f"/before-{number}": b"x" for number in range(16)})
        four.datanodes[0].kill()
        wanted = {f"/after-{number}": os.urandom(1024) for number in range(32)}
        assert files.write_many(wanted) == {}
        assert {path: files.read(path) for path in wanted} == wanted


def test_files_that_are_read_together_are_those_of_a_model_and_each_fails_alone(
    files: PeaceFileSystem, home: str
) -> None:
    random = Random(2)
    sizes = [0, 1, 1024, 15 * 1024, 15 * 1024 + 1, 300_000, fast_lane_bytes_max + 1, *[700] * 100]
    model = {f"{home}/{number}": random.randbytes(size) for number, size in enumerate(sizes)}
    assert files.write_many(model) == {}
    files.write(f"{home}/blocks", model[f"{home}/6"], block_bytes=1 << 20)
    files.mkdirs(f"{home}/directory")
    with files.open_for_appending(f"{home}/2") as sink:
        sink.write(b"more")
    model |= {f"{home}/blocks": model[f"{home}/6"], f"{home}/2": model[f"{home}/2"] + b"more"}
    refused = [f"{home}/directory", f"{home}/missing", "not absolute", f"{home}/1/below"]
    paths = [*model, *refused, f"{home}/1"]
    random.shuffle(paths)
    read = files.read_many(paths)
    assert {path: data for path, data in read.items() if isinstance(data, bytes)} == model
    assert {path: type(read[path]) for path in refused} == {
        f"{home}/directory": PathIsDirectory,
        f"{home}/missing": FileNotFound,
        "not absolute": BadRequest,
        f"{home}/1/below": PathThroughFile,
    }


def test_files_that_are_read_together_survive_the_death_of_a_datanode(four: LocalCluster) -> None:
    with PeaceFileSystem(four.http_address, user="alice") as files:
        wanted = {f"/{number}": os.urandom(1024) for number in range(80)}
        assert files.write_many(wanted) == {}
        assert files.read_many(wanted) == wanted
        four.datanodes[0].kill()
        assert files.read_many(wanted) == wanted


@pytest.fixture
def four(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, datanodes=4, port=0) as cluster:
        yield cluster


def test_a_datanode_that_dies_while_it_is_in_hand_costs_no_file(four: LocalCluster, asked: list[str]) -> None:
    with PeaceFileSystem(four.http_address, user="alice") as files:
        put_one_in_hand(files, "")
        four.datanodes[0].kill()
        for number in range(20):
            files.write(f"/{number}", f"{number}".encode(), replication=3)
        assert "PublishFile" in asked
        assert [files.read(f"/{number}") for number in range(20)] == [f"{n}".encode() for n in range(20)]
        four.coordinator.kill()
        four.restart(four.coordinator)
        files.write("/after", b"after", replication=3)
        assert files.read("/after") == b"after"


@pytest.mark.parametrize("ended_by", [KeyboardInterrupt(), ServiceUnready("no room on the coordinator's disk")])
@pytest.mark.evidence("create-fails")
def test_chunk_not_published_for_ctrl_c_or_want_of_an_answer_is_gone_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_by: BaseException
) -> None:
    ends: set[str] = set()
    call = ControlRpc.call

    def broken_off(self: ControlRpc, message: Message, timeout_s: float) -> Message:
        if type(message).__name__ in ends:
            ends.clear()
            raise ended_by
        return call(self, message, timeout_s)

    monkeypatch.setattr(ControlRpc, "call", broken_off)
    with (
        LocalCluster(tmp_path, datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address, user="alice") as files,
    ):

        def replicas() -> float:
            return scraped(f"127.0.0.1:{cluster.datanodes[0].readiness.http_port}")["peacefs_store_replicas", ""]

        for publication in (TWO_CALLS[-1], *ONE_CALL):
            if publication in ONE_CALL:
                # The files are new: replacing a file would delete replicas in the middle of the test.
                for name in ("first", "second"):
                    files.write(f"/{publication}-{name}", b"before")
            before = replicas()
            ends.add(publication)
            with pytest.raises(type(ended_by)):
                files.write("/file", b"of which nothing is to stay")
            assert not ends, f"{publication} was never sent"
            assert not files.exists("/file")
            wait_until(lambda before=before: replicas() == before, "what was written is gone", SOON_S)

        # The same holds for a file that is written in pieces, whether a thread sends it meanwhile or not.
        for length in (1000, fast_lane_bytes_max + 1, stream_buffer_bytes + 1):
            sink = files.open_for_writing("/file")
            sink.write(bytes(length))
            before = replicas()
            ends.add(TWO_CALLS[-1])
            with pytest.raises(type(ended_by)):
                sink.close()
            assert not ends and not files.exists("/file")
            wait_until(lambda before=before: replicas() <= before, "what was written is gone", SOON_S)
