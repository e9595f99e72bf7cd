"""The file source and the file sink. Judges are DuckDB and pyarrow, and the rows that the test has written."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet
import pytest
from support.connector_rows import KIND, MemoryJournal, as_json, batch, given_by, opening, rows
from support.waiting import PATIENCE_S

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow.connectors import FileSink, FileSource
from peacefs.dataflow.connectors.file_formats import format_of
from peacefs.dataflow.connectors.file_sink import FileCommitter
from peacefs.dataflow.connectors.file_source import FileRead
from peacefs.dataflow.connectors.file_tree import FileTree, FoundFile
from peacefs.dataflow.connectors.interface import PartPlace, SinkContext
from peacefs.protocol.errors import InvalidQuery, PeerUnreachable, QueryFailed, StartupError

_SCHEMA = {"user": "string", "at": "timestamp", "n": "long"}
_NAMES = itertools.count()


def _source(url: object, format: Any = "jsonl", **read: Any) -> FileSource:
    given = FileRead(**{"follow": False, "poll_s": 0.01, **read})
    return FileSource(str(url), _SCHEMA, time="at", format=format, read=given)


def _write(directory: Path, name: str, first: int, last: int) -> None:
    """Write a file of JSON lines under another name, and rename it."""
    directory.mkdir(parents=True, exist_ok=True)
    staged = directory / f"_{name}"
    staged.write_bytes(b"".join(as_json(each) + b"\n" for each in rows(first, last)))
    staged.rename(directory / name)


def _committer(url: object, *partition_by: str, format: str = "parquet") -> FileCommitter:
    return FileCommitter(FileTree(str(url), None), format_of(format), partition_by)


def _table(url: object) -> list[int]:
    """Return the values of `n` in all Parquet files, as pyarrow reads a directory."""
    files, root = fsspec.core.url_to_fs(str(url))
    names = [name for name in files.find(root) if name.endswith(".parquet")]
    return sorted(
        n
        for name in names
        for n in pyarrow.parquet.read_table(files.open(name), partitioning=None)["n"].to_pylist()
    )


@pytest.fixture(params=["file", "memory", "peace"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a directory in a file system of each kind."""
    if request.param == "file":
        return tmp_path.as_uri()
    if request.param == "memory":
        return f"memory://connectors-{next(_NAMES)}"
    cluster: LocalCluster = request.getfixturevalue("shared_cluster")
    return f"peace://{cluster.http_address.removeprefix('http://')}{request.getfixturevalue('home')}/files"


@pytest.mark.cluster
def test_file_sink_publishes_whole_files_once(place: str) -> None:
    """What was not committed is not seen, and a sink that begins again knows its number."""
    first = _committer(place, "user")
    assert first.open(opening(fresh=True)) == 0
    first.append(1, batch(1, 10))
    first.commit(10)
    first.append(11, batch(11, 20))
    again = _committer(place, "user")
    assert again.open(opening(fresh=False)) == 10
    assert _table(place) == list(range(1, 11))
    again.append(11, batch(11, 30))
    again.commit(30)
    assert _table(place) == list(range(1, 31))
    files = fsspec.core.url_to_fs(place)[0]
    left = [name for name in files.find(fsspec.core.url_to_fs(place)[1]) if name.endswith(".staged")]
    assert left == []


class _Killed(BaseException):
    """The program is killed."""


@pytest.mark.parametrize("survives", range(40))
def test_file_sink_killed_at_any_step_leaves_no_half_commit(tmp_path: Path, survives: int) -> None:
    """The program dies after each possible number of changes in the file system; its successor makes it whole."""
    changes = itertools.count()

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def either(*arguments: Any) -> Any:
            if next(changes) >= survives:
                raise _Killed
            return change(*arguments)

        return either

    tree = FileTree(str(tmp_path), None)
    sink = FileCommitter(tree, format_of("parquet"), ("user",))
    sink.open(opening(fresh=True))
    sink.append(1, batch(1, 10))
    sink.commit(10)
    for name in ("write", "publish", "remove"):
        setattr(tree, name, dying(getattr(tree, name)))
    sink.append(11, batch(11, 20))
    try:
        sink.commit(20)
        killed = False
    except _Killed:
        killed = True
    assert killed == (survives < 17), "seven files are written and renamed, the manifest too, and one is removed"
    # Readers see rows of a commit that took place, each at most once, whatever happens.
    seen = _table(tmp_path)
    assert len(seen) == len(set(seen)) and set(range(1, 11)) <= set(seen) <= set(range(1, 21))
    again = _committer(tmp_path, "user")
    number = again.open(opening(fresh=False))
    assert _table(tmp_path) == list(range(1, number + 1))
    again.append(number + 1, batch(number + 1, 25))
    again.commit(25)
    assert _table(tmp_path) == list(range(1, 26))


def test_file_sink_is_read_by_duckdb_and_pyarrow_while_it_writes(tmp_path: Path) -> None:
    """Each reader sees whole commits' files only, and never fewer rows than before."""
    sink = _committer(tmp_path, "user")
    sink.open(opening(fresh=True))
    done = threading.Event()

    def write() -> None:
        for first in range(1, 2001, 50):
            sink.append(first, batch(first, first + 49))
            sink.commit(first + 49)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    before = 0
    while not done.is_set():
        if not list(tmp_path.glob("user=*/*.parquet")):
            continue
        found = duckdb.sql(
            f"select n from read_parquet('{tmp_path}/**/*.parquet', hive_partitioning = true)"
        ).fetchall()
        arrow = pyarrow.dataset.dataset(tmp_path, partitioning="hive").to_table()
        assert len(found) == len(set(found))
        assert before <= len(found) <= arrow.num_rows
        before = len(found)
    writer.join()
    expected = [(row["user"], row["n"]) for row in rows(1, 2000)]
    query = f"select user, n from read_parquet('{tmp_path}/**/*.parquet', hive_partitioning = true) order by n"
    assert duckdb.sql(query).fetchall() == expected


def test_file_sink_that_cannot_write_stops_when_patience_is_over(tmp_path: Path) -> None:
    """The directory can be read, so the sink begins again each time, and no commit succeeds."""
    sink = FileSink(str(tmp_path), interval_s=0, patience_s=0.5)
    failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    context = SinkContext(
        opening(fresh=True), fenced=lambda action: action(), committed=lambda _: None, failed=failures.put
    )
    try:
        assert sink.begin(context) == 0
        (tmp_path / "_peacefs" / "sink-one" / "commit.staged").mkdir()
        sink.put(1, batch(1, 3))
        failure = failures.get(timeout=PATIENCE_S)
    finally:
        sink.close()
    with pytest.raises(QueryFailed, match=r"has taken no rows for .*commit.staged.*; rows up to 0 are there"):
        raise failure
    assert _table(tmp_path) == []


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
def test_file_formats_are_those_of_duckdb(tmp_path: Path, format: str) -> None:
    """Texts with commas, quotes and line breaks, empty texts and nulls come back from DuckDB and the source."""
    texts = ["a,b", 'say "x"', "two\nlines", "", None, "ü"]
    given = [{**row, "user": text} for row, text in zip(rows(1, 6), texts, strict=True)]
    sink = _committer(tmp_path, format=format)
    sink.open(opening(fresh=True))
    sink.append(1, pa.RecordBatch.from_pylist(given, schema=KIND.schema))
    sink.commit(6)
    read = {"parquet": "read_parquet", "jsonl": "read_json_auto", "csv": "read_csv"}[format]
    options = ", header = true, allow_quoted_nulls = false" if format == "csv" else ""
    found = duckdb.sql(f"select user, n from {read}('{tmp_path}/*.{format}'{options}) order by n").fetchall()
    assert found == [(row["user"], row["n"]) for row in given]
    assert given_by(_source(tmp_path, format)) == given


@pytest.mark.cluster
def test_file_source_reads_each_file_once_in_order(place: str) -> None:
    """A second source with the journal repeats the order, and reads files that came since."""
    files, root = fsspec.core.url_to_fs(place)
    files.makedirs(root, exist_ok=True)
    for name, first in (("b", 1), ("a", 11)):
        with files.open(f"{root}/{name}.jsonl", "wb") as file:
            file.write(b"".join(as_json(each) + b"\n" for each in rows(first, first + 9)))
    files.pipe_file(f"{root}/_hidden.jsonl", b"no row")
    journal = MemoryJournal()
    first_source = _source(place)
    assert first_source.begin(journal) == 0
    given = given_by(first_source)
    assert sorted(row["n"] for row in given) == list(range(1, 21))
    with files.open(f"{root}/c.jsonl", "wb") as file:
        file.write(as_json(rows(21, 21)[0]))
    second = _source(place)
    second.begin(journal)
    assert given_by(second) == given + rows(21, 21)


def test_file_source_lists_the_directory_once_for_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog of files does not cost a listing for each. A file that is deleted unread is left out."""
    for number in range(20):
        _write(tmp_path, f"{number:02d}.jsonl", number + 1, number + 1)
    listed: list[str] = []
    files = FileTree.files

    def counted(tree: FileTree, below: str = "") -> list[FoundFile]:
        listed.append(below)
        return files(tree, below)

    monkeypatch.setattr(FileTree, "files", counted)
    source = _source(tmp_path, poll_s=3600.0)
    source.begin(None)
    given = iter(source)
    taken = [next(given).to_pylist()[0]["n"] for _ in range(10)]
    assert taken == list(range(1, 11))
    assert len(listed) == 2, "one to see that the directory is there, and one for the files"
    (tmp_path / "10.jsonl").unlink()
    assert next(given).num_rows == 0
    source._reader._due_s = 0.0  # type: ignore[attr-defined]
    assert next(given).to_pylist() == rows(12, 12)
    given.close()  # type: ignore[attr-defined]


def test_file_source_forgets_files_that_were_deleted(tmp_path: Path) -> None:
    """The journal does not grow with files that are gone, and a new file of an old name is read."""
    directory, journal = tmp_path / "in", MemoryJournal()
    for number in range(30):
        source = _source(directory)
        _write(directory, "again.jsonl", number + 1, number + 1)
        before = source.begin(journal)
        assert before == number
        source.released(number)
        assert [row["n"] for row in given_by(source)] == [number + 1]
        source.released(number + 1)
        source._note(source._history, source._reader.take(source._history.places))  # type: ignore[arg-type, union-attr]
        (directory / "again.jsonl").unlink()
        cleared = _source(directory)
        cleared.begin(MemoryJournal())
        source._reader._due_s = 0.0  # type: ignore[attr-defined]
        source._note(source._history, source._reader.take(source._history.places))  # type: ignore[arg-type, union-attr]
        assert source._history is not None and not source._history.places
    assert journal.data is not None and len(journal.data) < 300


def test_file_source_does_not_forget_files_that_it_cannot_list(tmp_path: Path) -> None:
    """Files of a file system that is away are not deleted: they would be read twice when it is back."""
    directory, kept, journal = tmp_path / "in", tmp_path / "kept", MemoryJournal()
    _write(directory, "one.jsonl", 1, 5)
    source = _source(directory)
    source.begin(journal)
    assert len(given_by(source)) == 5
    directory.rename(kept)
    directory.symlink_to(directory)
    with pytest.raises(OSError, match="symbolic links"):
        list(directory.iterdir())
    away = _source(directory)
    away._reader._due_s = 0.0  # type: ignore[attr-defined]
    taken = away._reader.take({"one.jsonl": PartPlace(5, "", True)})
    assert (taken.gone, taken.ended) == ((), False)
    directory.unlink()
    kept.rename(directory)
    again = _source(directory)
    again.begin(journal)
    assert given_by(again) == rows(1, 5)


def test_file_sink_goes_on_though_its_readers_delete_files(tmp_path: Path) -> None:
    """The files of the last commit may be moved away, and a file system that does not answer is no absence."""
    sink = _committer(tmp_path)
    sink.open(opening(fresh=True))
    sink.append(1, batch(1, 10))
    sink.commit(10)
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    assert _committer(tmp_path).open(opening(fresh=False)) == 10
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    tree = FileTree(str(tmp_path), None)
    assert not tree.exists("absent")
    with pytest.raises(PeerUnreachable, match="symbolic links"):
        tree.exists("loop")


def test_file_source_takes_columns_from_directories(tmp_path: Path) -> None:
    """What a partitioned sink has written is read back."""
    sink = _committer(tmp_path, "user")
    sink.open(opening(fresh=True))
    sink.append(1, batch(1, 20))
    sink.commit(20)
    assert sorted(given_by(_source(tmp_path, "parquet")), key=lambda row: row["n"]) == rows(1, 20)


@pytest.mark.parametrize(
    ("format", "text", "says"),
    [
        (
            "csv",
            "user,at,n\na,2026-01-01,1\nb,2026-01-01,many\n",
            r"bad.csv in .* does not parse as CSV: .*'many'",
        ),
        ("csv", "user,at,n\na,2026-01-01\n", "bad.csv .* does not parse as CSV: .*Expected 3 columns, got 2"),
        ("csv", "user,at\na,2026-01-01\n", "bad.csv .* column 'n' is missing"),
        ("csv", "user,at,n,more\na,2026-01-01,1,2\n", "bad.csv .* column 'more' is too much"),
        ("jsonl", '{"user": "a"\n', "bad.jsonl .* row 1 does not fit"),
        ("jsonl", '{"user": "a", "at": "2026-01-01", "n": 1, "x": 2}\n', "bad.jsonl .* row 1 does not fit: .*x"),
        ("parquet", "no Parquet", "bad.parquet .* is no whole Parquet file"),
    ],
)
def test_file_that_cannot_be_read_is_named(tmp_path: Path, format: str, text: str, says: str) -> None:
    (tmp_path / f"bad.{format}").write_text(text)
    with pytest.raises(QueryFailed, match=says) as failed:
        given_by(_source(tmp_path, format))
    assert "\n" not in str(failed.value)


def test_file_whose_name_is_not_utf_8_is_named(tmp_path: Path) -> None:
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff.jsonl")).write_bytes(as_json(rows(1, 1)[0]))
    source = _source(tmp_path)
    source.begin(MemoryJournal())
    with pytest.raises(QueryFailed, match=r"'\\udcff.jsonl' in .* is no name in UTF-8: rename the file"):
        given_by(source)


def test_file_source_refuses_changed_lost_and_too_many_files(tmp_path: Path) -> None:
    journal = MemoryJournal()
    _write(tmp_path, "one.jsonl", 1, 5)
    source = _source(tmp_path)
    source.begin(journal)
    assert len(given_by(source)) == 5
    (tmp_path / "one.jsonl").write_bytes(as_json(rows(9, 9)[0]))
    changed = _source(tmp_path)
    changed.begin(journal)
    with pytest.raises(QueryFailed, match=r"one.jsonl in .* has changed since it was read"):
        given_by(changed)
    (tmp_path / "one.jsonl").unlink()
    lost = _source(tmp_path)
    lost.begin(journal)
    with pytest.raises(QueryFailed, match=r"one.jsonl in .* is gone, and the query needs its rows again"):
        given_by(lost)
    for number in range(4):
        _write(tmp_path, f"{number}.jsonl", number, number)
    with pytest.raises(QueryFailed, match="has 4 files, and the source remembers 3"):
        given_by(_source(tmp_path, files_max=3))


def test_file_places_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidQuery, match="'odd://x' has a scheme that fsspec does not know"):
        _source("odd://x")
    with pytest.raises(InvalidQuery, match="format='xml'"):
        FileSink(str(tmp_path), format="xml")  # type: ignore[arg-type]
    with pytest.raises(InvalidQuery, match="partition_by names 'absent'"):
        _committer(tmp_path, "absent").open(opening(fresh=True))
    with pytest.raises(InvalidQuery, match="partition_by names 'at' of type"):
        _committer(tmp_path, "at").open(opening(fresh=True))
    with pytest.raises(StartupError, match="which says what the query has written: restore it"):
        _committer(tmp_path).open(opening(fresh=False))
    (tmp_path / "file").write_text("")
    with pytest.raises(PeerUnreachable, match=r"files at .*file"):
        _committer(tmp_path / "file").open(opening(fresh=True))
