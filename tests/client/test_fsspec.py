"""`peace://` in fsspec: fsspec's own abstract tests, and use by pandas and pyarrow."""

from __future__ import annotations

import os
import pickle
import socket
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.os_errors import as_os_error
from peacefs.protocol import errors
from peacefs.protocol.limits import MIB

fsspec = pytest.importorskip("fsspec")
abstract = pytest.importorskip("fsspec.tests.abstract")

pytestmark = pytest.mark.cluster


class _OnACluster(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs_path(self, home: str) -> str:
        return home

    @pytest.fixture
    def fs(self, fs: Any) -> Any:
        return fs


class TestCopies(abstract.AbstractCopyTests, _OnACluster):  # type: ignore[misc]
    pass


class TestGets(abstract.AbstractGetTests, _OnACluster):  # type: ignore[misc]
    pass


class TestPuts(abstract.AbstractPutTests, _OnACluster):  # type: ignore[misc]
    pass


class TestOpens(abstract.AbstractOpenTests, _OnACluster):  # type: ignore[misc]
    pass


class TestPipes(abstract.AbstractPipeTests, _OnACluster):  # type: ignore[misc]
    pass


# -- files -----------------------------------------------------------------------------------------


def test_a_url_names_coordinator_user_and_path(base: str, home: str) -> None:
    options = {"user": "alice", "skip_instance_cache": True}
    with fsspec.open(f"{base}/a#1?2 %41", "wb", **options) as opened:
        opened.write(b"literally")
    fs, path = fsspec.url_to_fs(f"{base}/a#1?2 %41", **options)
    assert path == f"{home}/a#1?2 %41"
    assert fs.cat_file(path) == b"literally" and fs.info(path)["owner"] == "alice"
    assert fs.unstrip_protocol(path) == f"{base}/a#1?2 %41"
    named, _ = fsspec.url_to_fs(base.replace("peace://", "peace://bob@"), skip_instance_cache=True)
    assert named.files.user == "bob"
    fs.files.close()
    named.files.close()


def test_ranges_are_read_through_a_cache_and_without(fs: Any, home: str) -> None:
    data = os.urandom(5 * MIB + 3)
    fs.pipe_file(f"{home}/file", data)
    assert fs.cat_file(f"{home}/file", 10, -5) == data[10:-5]
    assert fs.cat_file(f"{home}/file", -7) == data[-7:]
    assert fs.cat_file(f"{home}/file", 9 * MIB, 10 * MIB) == b""
    for cache in ("none", "readahead", "blockcache", "bytes", "all"):
        with fs.open(f"{home}/file", "rb", block_size=100_000, cache_type=cache) as opened:
            assert opened.size == len(data)
            opened.seek(4 * MIB - 5)
            assert opened.read(200_000) == data[4 * MIB - 5 :][:200_000]
            opened.seek(-4, 2)
            assert opened.read() == data[-4:]
    starts = [number * MIB for number in range(5)]
    read = fs.cat_ranges([f"{home}/file"] * 6, [*starts, 0], [*(start + 9 for start in starts), 4])
    assert read == [*(data[start : start + 9] for start in starts), data[:4]]
    found = fs.cat_ranges([f"{home}/file", f"{home}/none"], 0, 2)
    assert found[0] == data[:2] and isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{home}/none"], 0, 2, on_error="raise")


def test_a_file_is_extended_and_one_that_is_not_there_begun(fs: Any, home: str) -> None:
    for part in (b"one", b"two"):
        with fs.open(f"{home}/log", "ab") as opened:
            opened.write(part)
    assert fs.cat_file(f"{home}/log") == b"onetwo"
    with fs.open(f"{home}/log", "ab") as opened:
        assert opened.tell() == 6


def test_an_exception_in_a_with_block_publishes_nothing(fs: Any, home: str) -> None:
    fs.pipe_file(f"{home}/file", b"before")

    def fail_half_way() -> None:
        with fs.open(f"{home}/file", "wb") as opened:
            opened.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert fs.cat_file(f"{home}/file") == b"before"
    assert fs.ls(home, detail=False) == [f"{home}/file"]


def test_a_flush_promises_nothing_and_hflush_everything(fs: Any, home: str) -> None:
    opened = fs.open(f"{home}/log", "wb")
    opened.write(b"first")
    opened.flush()
    assert not fs.exists(f"{home}/log")
    opened.hflush()
    assert fs.cat_file(f"{home}/log") == b"first"
    opened.write(b" last")
    opened.close()
    assert fs.cat_file(f"{home}/log") == b"first last"


def test_a_transaction_shows_its_files_at_its_end_or_never(fs: Any, home: str) -> None:
    fs.pipe_file(f"{home}/a", b"old")

    def fail_half_way() -> None:
        with fs.transaction:
            fs.pipe_file(f"{home}/a", b"never")
            raise ZeroDivisionError

    with fs.transaction:
        for name in ("a", "b"):
            with fs.open(f"{home}/{name}", "wb") as opened:
                opened.write(b"new")
        with pytest.raises(ZeroDivisionError), fs.open(f"{home}/c", "wb") as opened:
            raise ZeroDivisionError
        with pytest.raises(NotImplementedError):
            fs.open(f"{home}/a", "ab")
        assert fs.cat_file(f"{home}/a") == b"old" and not fs.exists(f"{home}/b")
    assert fs.cat(sorted(fs.find(home))) == {f"{home}/a": b"new", f"{home}/b": b"new"}
    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert fs.cat(sorted(fs.find(home))) == {f"{home}/a": b"new", f"{home}/b": b"new"}
    assert not fs._intrans


def test_exclusive_creation_in_a_transaction_is_refused_at_its_end_too(
    fs: Any, home: str, files: PeaceFileSystem
) -> None:
    def write_meanwhile() -> None:
        with fs.transaction:
            fs.pipe_file(f"{home}/a", b"mine", mode="create")
            files.write(f"{home}/a", b"theirs")

    with pytest.raises(FileExistsError):
        write_meanwhile()
    assert fs.cat(sorted(fs.find(home))) == {f"{home}/a": b"theirs"}


# -- names -----------------------------------------------------------------------------------------


def test_a_tree_moves_and_is_copied_in_one_step_without_its_data(
    fs: Any, home: str, superuser: PeaceFileSystem
) -> None:
    for name in ("x", "y/z"):
        fs.makedirs(fs._parent(f"{home}/tree/{name}"), exist_ok=True)
        fs.pipe_file(f"{home}/tree/{name}", b"data")
    chunks = superuser.cluster_status()["chunks"]["total"]
    fs.copy(f"{home}/tree", f"{home}/deep/down/copy", recursive=True)
    fs.cp_file(f"{home}/tree/x", f"{home}/deep/x")
    fs.cp_file(f"{home}/tree/x", f"{home}/deep/x")
    assert superuser.cluster_status()["chunks"]["total"] == chunks
    fs.mv(f"{home}/tree", f"{home}/deep/", recursive=True)
    found = [path.removeprefix(home) for path in fs.find(home)]
    assert found == ["/deep/down/copy/x", "/deep/down/copy/y/z", "/deep/tree/x", "/deep/tree/y/z", "/deep/x"]
    assert fs.du(home) == 20 and fs.du(home, maxdepth=2) == 4
    assert sum(fs.du(home, total=False).values()) == 20
    fs.pipe_file(f"{home}/new", b"newer")
    fs.mv(f"{home}/new", f"{home}/deep/x")
    assert fs.cat_file(f"{home}/deep/x") == b"newer"
    fs.rm([f"{home}/deep/*"], recursive=True)
    assert fs.ls(f"{home}/deep") == []
    fs.rmdir(f"{home}/deep")
    assert not fs.exists(f"{home}/deep")


@pytest.mark.parametrize("cache", [{}, {"cache_type": "readahead"}, {"cache_type": "none"}], ids=str)
def test_reads_lines_and_seeks_are_those_of_pythons_own_file(
    fs: Any, home: str, tmp_path: Path, cache: dict[str, str]
) -> None:
    lines = [b"%d " % number * (number % 4000) for number in range(900)]
    data = b"\n".join(lines)
    (tmp_path / "own").write_bytes(data)
    fs.pipe_file(f"{home}/file", data)
    random = Random(1)
    with fs.open(f"{home}/file", "rb", **cache) as ours, (tmp_path / "own").open("rb") as own:
        for _ in range(200):
            match random.randrange(5):
                case 0:
                    at = random.randrange(len(data) + 10)
                    assert (ours.seek(at), own.seek(at)) == (at, at)
                case 1:
                    assert ours.readline() == own.readline()
                case _:
                    count = random.choice((0, 1, 500, 70_000, 300_000, 2_000_000))
                    assert ours.read(count) == own.read(count)
            assert ours.tell() == own.tell()
        ours.seek(0)
        own.seek(0)
        assert list(ours) == list(own)
        ours.seek(5)
        assert ours.read() == data[5:]
        assert ours.read(1) == b""


def test_trees_are_put_and_got_without_a_call_a_file_that_only_asks(
    fs: Any, shared_cluster: LocalCluster, home: str, tmp_path: Path
) -> None:
    def calls() -> dict[str, float]:
        with httpx.Client(base_url=shared_cluster.http_address) as http:
            families = text_string_to_metric_families(http.get("/metrics").text)
        found: dict[str, float] = {}
        for family in families:
            for sample in family.samples:
                if sample.name == "peacefs_call_seconds_count":
                    operation = sample.labels["operation"]
                    found[operation] = found.get(operation, 0.0) + sample.value
        return found

    (tmp_path / "tree" / "deep").mkdir(parents=True)
    contents = {f"tree/deep/{number:02}": b"%d" % number * number for number in range(30)}
    contents["tree/large"] = os.urandom(3 * MIB)
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    before = calls()
    fs.put(f"{tmp_path}/tree", f"{home}/", recursive=True)
    fs.get(f"{home}/tree", f"{tmp_path}/back/", recursive=True)
    counts = {name: count - before.get(name, 0) for name, count in calls().items()}
    assert {name: (tmp_path / "back" / name).read_bytes() for name in contents} == contents
    assert counts.get("GetFileInfo", 0) < 15 and counts.get("Mkdirs", 0) < 15, counts


def test_put_that_may_only_create_replaces_nothing(fs: Any, home: str, tmp_path: Path) -> None:
    for name, data in (("small", b"new"), ("large", os.urandom(3 * MIB))):
        (tmp_path / name).write_bytes(data)
        fs.pipe_file(f"{home}/{name}", b"old")
        with pytest.raises(FileExistsError):
            fs.put_file(f"{tmp_path}/{name}", f"{home}/{name}", mode="create")
        assert fs.cat_file(f"{home}/{name}") == b"old"
    with pytest.raises(FileNotFoundError):
        fs.get_file(f"{home}/none", f"{tmp_path}/none")
    assert not (tmp_path / "none").exists()


def test_errors_have_pythons_names(fs: Any, home: str, files: PeaceFileSystem) -> None:
    fs.pipe_file(f"{home}/file", b"")
    fs.mkdir(f"{home}/full")
    fs.pipe_file(f"{home}/full/file", b"")
    files.mkdirs(f"{home}/shut")
    files.set_permission(f"{home}/shut", 0o555)
    for fails, kind in (
        (lambda: fs.info(f"{home}/none"), FileNotFoundError),
        (lambda: fs.ls(f"{home}/none"), FileNotFoundError),
        (lambda: fs.rm(f"{home}/none", recursive=True), FileNotFoundError),
        (lambda: fs.mv(f"{home}/none", f"{home}/x"), FileNotFoundError),
        (lambda: fs.mkdir(f"{home}/none/x", create_parents=False), FileNotFoundError),
        (lambda: fs.mkdir(f"{home}/full"), FileExistsError),
        (lambda: fs.open(f"{home}/file", "xb"), FileExistsError),
        (lambda: fs.open(f"{home}/full", "rb"), IsADirectoryError),
        (lambda: fs.rm(f"{home}/full"), IsADirectoryError),
        (lambda: fs.rmdir(f"{home}/file"), NotADirectoryError),
        (lambda: fs.rmdir(f"{home}/full"), OSError),
        (lambda: fs.pipe_file(f"{home}/file/x", b""), NotADirectoryError),
        (lambda: fs.pipe_file(f"{home}/shut/x", b""), PermissionError),
        (lambda: fsspec.filesystem("peace", host="no/host").files, OSError),
    ):
        with pytest.raises(kind):
            fails()
    assert not fs.exists(f"{home}/file/x") and not fs.isdir(f"{home}/none") and fs.isfile(f"{home}/file")
    assert fs.modified(f"{home}/file").timestamp() == fs.info(f"{home}/file")["mtime"]


def test_every_error_of_ours_has_a_number_and_keeps_its_words() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.PeacefsError):
            shown = as_os_error(kind("what is wrong"))
            assert shown.errno and shown.strerror == "what is wrong"
    assert isinstance(as_os_error(errors.PeerTimeout("")), TimeoutError)
    assert isinstance(as_os_error(errors.PeerUnreachable("")), ConnectionError)


def test_unreachable_cluster_is_not_taken_for_a_missing_file() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    away = fsspec.filesystem("peace", host="127.0.0.1", port=port, skip_instance_cache=True)
    with pytest.raises(ConnectionError):
        away.exists("/x")
    away.files.close()


# -- elsewhere -------------------------------------------------------------------------------------


def _read_in_worker(fs: Any, path: str, pipe: Any) -> None:
    pipe.send(fs.cat_file(path))


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_it_goes_to_workers(fs: Any, home: str, way: str) -> None:
    fs.pipe_file(f"{home}/file", b"data")
    context = get_context(way)
    ours, theirs = context.Pipe()
    worker = context.Process(target=_read_in_worker, args=(fs, f"{home}/file", theirs))
    worker.start()
    assert ours.poll(30) and ours.recv() == b"data"
    worker.join(10)
    assert worker.exitcode == 0
    assert fs.cat_file(f"{home}/file") == b"data"


def test_an_open_file_goes_to_workers_with_its_position(fs: Any, home: str) -> None:
    fs.pipe_file(f"{home}/file", b"0123456789")
    with fs.open(f"{home}/file", "rb") as opened:
        opened.read(4)
        other = pickle.loads(pickle.dumps(opened))
        assert other.read(3) == b"456" and opened.read(3) == b"456"
        other.close()


def test_pyarrow_and_pandas_write_and_read_datasets(fs: Any, base: str, home: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    dataset = pytest.importorskip("pyarrow.dataset")
    arrow_fs = pytest.importorskip("pyarrow.fs")
    table = pyarrow.table({"key": [1, 2, 3, 1], "value": ["a", "b", "c", "d"]})
    wrapped = arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(fs))
    for behaviour in ("error", "delete_matching"):
        dataset.write_dataset(
            table,
            f"{home}/by-key",
            filesystem=wrapped,
            format="parquet",
            partitioning=["key"],
            partitioning_flavor="hive",
            existing_data_behavior=behaviour,
        )
    read = dataset.dataset(f"{home}/by-key", filesystem=wrapped, partitioning="hive").to_table()
    assert sorted(read.to_pydict()["value"]) == ["a", "b", "c", "d"]
    assert wrapped.get_file_info(f"{home}/none").type == arrow_fs.FileType.NotFound
    assert wrapped.get_file_info(f"{home}/by-key").type == arrow_fs.FileType.Directory

    options = {"user": "alice"}
    frame = pandas.DataFrame({"n": range(1000)})
    frame.to_parquet(f"{base}/frame.parquet", storage_options=options)
    assert pandas.read_parquet(f"{base}/frame.parquet", storage_options=options).equals(frame)
    frame.to_csv(f"{base}/frame.csv.gz", index=False, storage_options=options)
    assert pandas.read_csv(f"{base}/frame.csv.gz", storage_options=options).equals(frame)
