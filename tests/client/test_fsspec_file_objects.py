"""File objects of `peace://` used by others: dropped, collected, pickled, and passed to other libraries.

The expected result is what Python's own files, or the library on a local disk, leave.
"""

from __future__ import annotations

import gc
import gzip
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.fsspec.files import FsspecSink
from peacefs.client.fsspec.filesystem import PeaceFsspecFileSystem
from peacefs.protocol.errors import PeacefsError

pytestmark = pytest.mark.cluster

#: More than a writer buffers before its thread begins to send.
LARGE = Random(3).randbytes(9_000_000)


# -- dropped without close -------------------------------------------------------------------------


def drop(opened: Any, *parts: bytes | str) -> None:
    """Write to a file, and drop it without closing."""
    for part in parts:
        opened.write(part)


@pytest.mark.parametrize("data", [b"", b"small", LARGE], ids=["empty", "small", "large"])
def test_dropped_file_is_there_as_pythons_own_would_be(fs: Any, home: str, tmp_path: Path, data: bytes) -> None:
    for name, mode in (("new", "wb"), ("exclusive", "xb"), ("new", "ab"), ("begun", "ab")):
        drop(fs.open(f"{home}/{name}", mode), data)
        with (tmp_path / name).open(mode) as own:
            own.write(data)
        assert fs.cat_file(f"{home}/{name}") == (tmp_path / name).read_bytes()
    # Nobody has the lease of the file that was appended to.
    with fs.open(f"{home}/begun", "ab") as again:
        again.write(b"more")


def test_dropped_text_and_compressed_files_are_whole(fs: Any, fsspec: Any, base: str, home: str) -> None:
    drop(fs.open(f"{home}/text", "w", encoding="utf-16"), "ä", "\n")
    assert fs.cat_file(f"{home}/text").decode("utf-16") == "ä\n"
    drop(fs.open(f"{home}/packed", "wb", compression="gzip"), b"packed")
    assert gzip.decompress(fs.cat_file(f"{home}/packed")) == b"packed"
    drop(fsspec.open(f"{base}/by-url", "wt", user="alice").open(), "by URL")
    assert fs.cat_file(f"{home}/by-url") == b"by URL"


def test_file_of_a_failed_with_block_is_discarded_when_it_is_dropped_too(fs: Any, home: str) -> None:
    fs.pipe_file(f"{home}/file", b"before")

    def fail_half_way() -> None:
        with fs.open(f"{home}/file", "wb") as opened:
            opened.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    gc.collect()
    assert fs.cat_file(f"{home}/file") == b"before"


@pytest.mark.parametrize("data", [b"small", LARGE], ids=["small", "large"])
def test_file_in_a_cycle_is_there_when_it_was_collected(fs: Any, home: str, data: bytes) -> None:
    gc.disable()
    try:
        opened = fs.open(f"{home}/file", "wb")
        opened.write(data)
        opened.cycle = opened
        del opened
        assert not fs.exists(f"{home}/file")
        gc.collect()
    finally:
        gc.enable()
    wait_until(lambda: fs.exists(f"{home}/file"), "the collected file is published")
    assert fs.cat_file(f"{home}/file") == data


def test_collected_file_waits_for_no_lock_of_this_thread(fs: Any, home: str) -> None:
    """Garbage collection may begin while the client holds a lock, so finalizers must not need that lock."""
    opened = fs.open(f"{home}/file", "wb")
    opened.write(b"data")
    opened.cycle = opened
    lock = next(each for each in vars(fs.files._connections).values() if isinstance(each, type(threading.Lock())))
    with lock:
        del opened
        gc.collect()
    wait_until(lambda: fs.exists(f"{home}/file"), "the collected file is published")
    assert fs.cat_file(f"{home}/file") == b"data"


def nobody() -> PeaceFsspecFileSystem:
    """Return a file system whose address nobody listens on."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return PeaceFsspecFileSystem("127.0.0.1", unused.getsockname()[1], skip_instance_cache=True)


@pytest.mark.parametrize(
    "fails",
    [
        lambda fs, home: fs.info(f"{home}/none"),
        lambda fs, home: fs.open(f"{home}/none"),
        lambda fs, home: fs.open(f"{home}/there", "xb"),
        lambda fs, home: fs.mv(f"{home}/none", f"{home}/x"),
        lambda fs, home: fs.rmdir(home),
        lambda fs, home: fs.files.xattrs.get(f"{home}/none"),
        lambda fs, home: fs.files.snapshots.diff(home, "none"),
        lambda fs, home: nobody().info("/"),
    ],
    ids=["info", "open", "create", "move", "rmdir", "attributes", "REST", "nobody there"],
)
def test_error_that_was_caught_keeps_no_dropped_file_open(
    fs: Any, home: str, files: PeaceFileSystem, fails: Callable[[Any, str], Any]
) -> None:
    """A reference cycle through the traceback would keep the caller's frame, and its files, until a collection."""
    files.write(f"{home}/there", b"")

    def write() -> None:
        opened = fs.open(f"{home}/file", "wb")
        opened.write(b"data")
        try:
            fails(fs, home)
        except (OSError, PeacefsError):
            return
        raise AssertionError("it has not failed")

    gc.disable()
    try:
        write()
        assert fs.exists(f"{home}/file")
    finally:
        gc.enable()


def test_dropped_file_that_cannot_be_published_is_told_of(
    fs: Any, home: str, files: PeaceFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append((args.exc_type, args.object)))
    opened = fs.open(f"{home}/file", "xb")
    opened.write(b"mine")
    files.write(f"{home}/file", b"theirs")
    del opened
    assert [kind for kind, _ in told] == [FileExistsError]
    assert fs.cat_file(f"{home}/file") == b"theirs"


def test_file_that_no_transaction_will_rename_is_discarded(fs: Any, home: str) -> None:
    drop(fs.open(f"{home}/file", "wb", autocommit=False), b"data")
    assert fs.ls(home) == []
    with fs.transaction:
        drop(fs.open(f"{home}/file", "wb"), b"within")
        assert not fs.exists(f"{home}/file")
    assert fs.cat_file(f"{home}/file") == b"within"


_AT_EXIT = """
import os, sys
from fsspec import filesystem, open as open_url, register_implementation
from peacefs.client.control.addresses import parse_address
from peacefs.client.fsspec.filesystem import PeaceFsspecFileSystem

register_implementation("peace", PeaceFsspecFileSystem, clobber=True)
address = parse_address(sys.argv[1])
fs = filesystem("peace", host=address.host, port=address.port, user="alice")
held = fs.open(sys.argv[2] + "/held", "wb")
held.write(b"x" * int(sys.argv[3]))
in_a_cycle = fs.open(sys.argv[2] + "/in-a-cycle", "wb")
in_a_cycle.write(b"y" * int(sys.argv[3]))
in_a_cycle.cycle = in_a_cycle
del in_a_cycle
text = fs.open(sys.argv[2] + "/text", "w")
text.write("z" * int(sys.argv[3]))
url = f"peace://alice@{address.host}:{address.port}{sys.argv[2]}/packed"
packed = open_url(url, "wt", compression="gzip").open()
packed.write("p" * int(sys.argv[3]))
never = fs.open(sys.argv[2] + "/never", "wb", autocommit=False)
never.write(b"never")
if os.fork() == 0:
    # A process that inherits open files ends in good order, and leaves them to its parent.
    del held, text, packed
    sys.exit(0)
assert os.wait()[1] == 0
assert not fs.exists(sys.argv[2] + "/held")
"""


@pytest.mark.parametrize("count", [5, 9_000_000])
def test_files_that_are_open_at_the_end_of_the_process_are_there(
    fs: Any, home: str, shared_cluster: Any, count: int
) -> None:
    program = [sys.executable, "-W", "error", "-c", _AT_EXIT, shared_cluster.http_address, home, str(count)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = fs.cat([f"{home}/held", f"{home}/in-a-cycle", f"{home}/text", f"{home}/packed"])
    assert [found[f"{home}/{name}"] == letter * count for name, letter in (("held", b"x"), ("in-a-cycle", b"y"))]
    assert found[f"{home}/text"] == b"z" * count, len(found[f"{home}/text"])
    assert gzip.decompress(found[f"{home}/packed"]) == b"p" * count
    names = [path.removeprefix(home) for path in fs.ls(home, detail=False)]
    assert names == ["/held", "/in-a-cycle", "/packed", "/text"]


def test_mode_that_is_not_there_changes_nothing(fs: Any, home: str) -> None:
    fs.pipe_file(f"{home}/file", b"before")
    for mode in ("r+b", "w+b", "zb"):
        with pytest.raises(NotImplementedError, match="mode"):
            fs.open(f"{home}/file", mode)
    gc.collect()
    assert fs.cat_file(f"{home}/file") == b"before" and not fs.unclosed


# -- pickled ---------------------------------------------------------------------------------------


def test_only_files_that_are_read_can_be_pickled(fs: Any, home: str) -> None:
    fs.pipe_file(f"{home}/file", b"0123456789")
    with fs.open(f"{home}/file", "rb") as source:
        source.seek(7)
        with pickle.loads(pickle.dumps(source)) as other:
            assert other.read() == b"789"
    with fs.open(f"{home}/file", "wb") as sink:
        sink.write(b"new")
        with pytest.raises(RuntimeError, match="Pickling a writeable file"):
            pickle.dumps(sink)
    assert fs.cat_file(f"{home}/file") == b"new"


# -- other libraries -------------------------------------------------------------------------------


def test_objects_are_dumped_to_files_that_nobody_closes(fs: Any, home: str) -> None:
    numpy = pytest.importorskip("numpy")
    json = pytest.importorskip("json")
    numbers = numpy.arange(300_000).reshape(3, -1)
    writers: dict[str, Callable[[Any], Any]] = {
        "pickle": lambda file: pickle.dump({"a": [1, 2]}, file),
        "npy": lambda file: numpy.save(file, numbers),
        "npz": lambda file: numpy.savez_compressed(file, numbers=numbers),
        "text": lambda file: numpy.savetxt(file, numbers[:, :3]),
    }
    for name, write in writers.items():
        write(fs.open(f"{home}/{name}", "wb"))
    # `savetxt` keeps the file in a reference cycle.
    gc.collect()
    wait_until(lambda: fs.exists(f"{home}/text"), "the collected file is published")
    json.dump([1, None], fs.open(f"{home}/json", "w"))
    assert pickle.load(fs.open(f"{home}/pickle")) == {"a": [1, 2]}
    assert numpy.array_equal(numpy.load(fs.open(f"{home}/npy")), numbers)
    assert numpy.array_equal(numpy.load(fs.open(f"{home}/npz"))["numbers"], numbers)
    assert numpy.array_equal(numpy.loadtxt(fs.open(f"{home}/text")), numbers[:, :3])
    assert json.load(fs.open(f"{home}/json", "r")) == [1, None]


def test_duckdb_exports_and_imports_a_database(fs: Any, base: str, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as database:
        database.register_filesystem(fs)
        database.execute(
            "CREATE SCHEMA s; CREATE TABLE s.t AS SELECT range AS n, 'é' || range AS w FROM range(50000)"
        )
        database.execute("CREATE VIEW v AS SELECT sum(n) AS total FROM s.t")
        for form in ("CSV", "PARQUET"):
            for target in (f"{base}/{form}", tmp_path / form):
                database.execute(f"EXPORT DATABASE '{target}' (FORMAT {form})")
            names = sorted(path.name for path in (tmp_path / form).iterdir())
            assert [name.rpartition("/")[2] for name in fs.ls(f"{base}/{form}", detail=False)] == names
            # The local copy contains the name of its own directory.
            schema = (tmp_path / form / "schema.sql").read_bytes()
            assert fs.cat_file(f"{base}/{form}/schema.sql") == schema
        database.execute(f"COPY (SELECT * FROM s.t ORDER BY n DESC) TO '{base}/t.parquet' (FORMAT PARQUET)")
        top = database.execute(f"SELECT n, w FROM read_parquet('{base}/t.parquet') LIMIT 2").fetchall()
        assert top == [(49_999, "é49999"), (49_998, "é49998")]
    with duckdb.connect() as other:
        other.register_filesystem(fs)
        other.execute(f"IMPORT DATABASE '{base}/PARQUET'")
        assert other.execute("SELECT total FROM v").fetchall() == [(sum(range(50_000)),)]


def test_polars_writes_and_reads_file_objects(fs: Any, home: str) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"n": range(70_000), "w": [str(number % 7) for number in range(70_000)]})
    for name, write, read in (
        ("parquet", polars.DataFrame.write_parquet, polars.read_parquet),
        ("ipc", polars.DataFrame.write_ipc, polars.read_ipc),
        ("csv", polars.DataFrame.write_csv, lambda file: polars.read_csv(file, schema=frame.schema)),
    ):
        write(frame, fs.open(f"{home}/{name}", "wb"))
        assert read(fs.open(f"{home}/{name}", "rb")).equals(frame), name


def test_pandas_writes_and_reads_file_objects(fs: Any, home: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"n": range(30_000), "w": [str(number % 7) for number in range(30_000)]})
    for name, write, read in (
        (
            "csv",
            lambda file: frame.to_csv(file, index=False),
            lambda file: pandas.read_csv(file, dtype={"w": str}),
        ),
        ("pickle", frame.to_pickle, pandas.read_pickle),
        ("parquet", frame.to_parquet, pandas.read_parquet),
        ("json", frame.to_json, lambda file: pandas.read_json(file, dtype={"w": str})),
    ):
        write(fs.open(f"{home}/{name}", "wb"))
        assert read(fs.open(f"{home}/{name}", "rb")).equals(frame), name


def test_pyarrow_streams_that_are_dropped_are_whole(fs: Any, home: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    arrow_fs = pytest.importorskip("pyarrow.fs")
    wrapped = arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(fs))
    stream = wrapped.open_output_stream(f"{home}/file")
    stream.write(LARGE)
    del stream
    assert fs.cat_file(f"{home}/file") == LARGE
    assert wrapped.open_input_file(f"{home}/file").read_at(10, 70_000) == LARGE[70_000:70_010]
    assert arrow.BufferReader(b"").read() == b""


def test_a_sink_is_no_source_and_a_directory_no_file(fs: Any, home: str) -> None:
    with fs.open(f"{home}/file", "wb") as sink:
        assert isinstance(sink, FsspecSink) and sink.writable() and not sink.readable() and not sink.seekable()
        with pytest.raises(ValueError, match="read mode"):
            sink.read()
