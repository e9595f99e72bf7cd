"""Stream logs: what was committed can be read, however the writer died."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.dataflows import SCHEMA, input_rows

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.dataflow.logs.directory_segments import DirectorySegments
from peacefs.dataflow.logs.log_reader import LogPlace, LogReader, LogTail, stream_log_read_bytes
from peacefs.dataflow.logs.peace_segments import PeaceSegments
from peacefs.dataflow.logs.records import whole_records
from peacefs.dataflow.logs.segments import MemorySegments, SegmentAppend, SegmentStore
from peacefs.dataflow.logs.stream_log import StreamLogs, stream_log_writers_max, trim
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.protocol.errors import FileNotFound, InvalidQuery, LeaseError, LogDamaged

_KIND = StreamType(SCHEMA, "at")


@pytest.fixture(params=["memory", "directory", pytest.param("peacefs", marks=pytest.mark.cluster)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SegmentStore]:
    match request.param:
        case "memory":
            yield MemorySegments()
        case "directory":
            yield DirectorySegments(tmp_path)
        case _:
            files = request.getfixturevalue("files")
            with PeaceSegments(files, request.getfixturevalue("home")) as segments:
                yield segments


def batches(count: int, *, seed: int = 1, size: int = 5) -> list[Batch]:
    return [Batch(1 + at * size, rows) for at, rows in enumerate(input_rows(seed, batches=count, size=size))]


def rows_of(read: object) -> list[tuple[object, ...]]:
    return [
        (batch.first + place, *row)
        for batch in read  # type: ignore[attr-defined]
        for place, row in enumerate(zip(*(column.to_pylist() for column in batch.rows.columns), strict=True))
    ]


def write(
    store: SegmentStore, written: list[Batch], stream: str = "s", *, segment_bytes: int = 3000
) -> StreamLogs:
    logs = StreamLogs(store, segment_bytes=segment_bytes)
    log = logs.open(stream, _KIND)
    for batch in written:
        log.append(batch)
        logs.commit()
    return logs


# -- the interface, in both implementations --------------------------------------------------------------


def test_store_appends_reads_and_deletes(store: SegmentStore) -> None:
    store.append_all(
        [SegmentAppend("a/b", 1, b"one"), SegmentAppend("c", 7, b"two"), SegmentAppend("a/b", 1, b"more")]
    )
    store.append_all([SegmentAppend("a/b", 20, b"next")])
    assert list(store.segments("a/b")) == [(1, 7), (20, 4)]
    assert list(store.streams()) == ["a/b", "c"]
    assert store.read("a/b", 1, 2, 3) == b"emo"
    source = store.open("a/b", 1)
    for offset, count, found in ((2, 3, b"emo"), (0, 4, b"onem"), (4, 100, b"ore"), (7, 1, b"")):
        target = memoryview(bytearray(b"." * count))
        assert source.read_into(offset, target) == len(found)
        assert target[: len(found)] == found
    source.close()
    store.truncate("a/b", 1, 4)
    assert store.read("a/b", 1, 0, 100) == b"onem"
    store.delete("a/b", 1)
    store.delete("a/b", 1)
    assert list(store.segments("a/b")) == [(20, 4)]
    with pytest.raises(FileNotFound, match="gone"):
        store.read("a/b", 1, 0, 1)
    with pytest.raises(FileNotFound, match="gone"):
        store.open("a/b", 1)
    assert list(store.segments("nothing")) == []


# -- reading ---------------------------------------------------------------------------------------------


def test_log_is_replayed_from_any_row(store: SegmentStore) -> None:
    written = batches(30)
    write(store, written)
    assert len(store.segments("s")) > 3
    everything = rows_of(written)
    assert LogReader(store, "s").extent() == (1, 150)
    for after in (0, 1, 4, 5, 73, 149, 150, 200):
        assert rows_of(LogReader(store, "s").read(after)) == everything[after:]


def test_log_is_read_backwards(store: SegmentStore) -> None:
    written = batches(30)
    write(store, written)
    assert rows_of(LogReader(store, "s").backwards()) == rows_of(reversed(written))


def test_log_is_replayed_from_a_time(store: SegmentStore) -> None:
    written = batches(30)
    write(store, written)
    everything = rows_of(written)
    for place in (0, 1, 30, 77, 149):
        time = everything[place][2]
        begin = min(at for at, row in enumerate(everything) if row[2] >= time)  # type: ignore[operator]
        time_us = pa.scalar(time, pa.timestamp("us")).cast(pa.int64()).as_py()
        assert rows_of(LogReader(store, "s").since(time_us)) == everything[begin:]
    assert rows_of(LogReader(store, "s").since(time_us + 1)) == []


def test_large_log_is_read_in_pieces(store: SegmentStore) -> None:
    """Some records are larger than a piece, and pieces end anywhere in a record."""
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([os.urandom(500_000).hex() for _ in range(4)]),
            pa.array(range(4), TIME),
            pa.array(range(4), pa.int64()),
        ],
        schema=SCHEMA,
    )
    written = [Batch(1 + 4 * at, rows) for at in range(6)]
    joined = Batch(25, pa.Table.from_batches([rows] * 6).combine_chunks().to_batches()[0])
    logs = write(store, written, segment_bytes=1 << 30)
    logs = StreamLogs(store, segment_bytes=1 << 30)
    logs.open("s", _KIND).append(joined)
    logs.commit()
    ((_, length),) = store.segments("s")
    assert joined.bytes > stream_log_read_bytes < length
    for after in (0, 3, 17, 30):
        assert rows_of(LogReader(store, "s").read(after)) == rows_of([*written, joined])[after:]


def test_large_log_is_read_in_memory_that_is_used_again(store: SegmentStore) -> None:
    """A reader reuses the memory of batches that its caller dropped; batches that are kept do not change."""
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([os.urandom(200_000).hex()]),
            pa.array(range(1), TIME),
            pa.array(range(1), pa.int64()),
        ],
        schema=SCHEMA,
    )
    other = rows.set_column(0, "key", pa.array([os.urandom(150_000).hex()]))
    written = [Batch(1 + at, other if at % 3 else rows) for at in range(60)]
    write(store, written, segment_bytes=1 << 30)
    kept = []
    for batch in LogReader(store, "s").read():
        if batch.first % 17 == 5:
            kept.append(batch)
    assert rows_of(kept) == rows_of(batch for batch in written if batch.first % 17 == 5)


def test_part_of_a_log_is_read(store: SegmentStore) -> None:
    """From any place that a reader has reached, up to any number."""
    written = batches(30)
    write(store, written)
    places = [LogPlace(0), *(place for _, place in LogReader(store, "s").read_places(LogPlace(0)))]
    assert places[-1] == LogReader(store, "s").end().place
    for begin in places[::3]:
        for upto in (begin.number, begin.number + 7, 1000):
            read = [batch for batch, _ in LogReader(store, "s").read_places(begin, upto=upto)]
            assert rows_of(read) == rows_of(written)[begin.number : upto]


def test_tail_goes_along_with_the_writer(store: SegmentStore) -> None:
    """The reader gets the old records and then the new ones, without a gap or a repetition."""
    written = batches(20)
    logs = write(store, written[:10])
    tail = LogTail(store, "s", after=12)
    seen = tail.next()
    assert tail.next() == []
    del logs
    again = StreamLogs(store, segment_bytes=3000)
    log = again.open("s", _KIND)
    for batch in written[10:]:
        log.append(batch)
        seen += tail.next()
        again.commit()
        seen += tail.next()
    assert rows_of(seen) == rows_of(written)[12:]


# -- trimming --------------------------------------------------------------------------------------------


def test_trimming_drops_whole_segments_from_the_head(store: SegmentStore) -> None:
    written = batches(30)
    logs = StreamLogs(store, segment_bytes=3000)
    log = logs.open("s", _KIND)
    for batch in written:
        log.append(batch)
        logs.commit()
    before = store.segments("s")
    log.trim(60)
    after = store.segments("s")
    assert len(after) < len(before)
    first, last = LogReader(store, "s").extent()
    assert first <= 61
    assert last == 150
    assert rows_of(LogReader(store, "s").read(60)) == rows_of(written)[60:]
    with pytest.raises(FileNotFound, match=r"rows 1 to .* were trimmed"):
        list(LogReader(store, "s").read(0))
    log.trim(10_000)
    assert len(store.segments("s")) == 1, "the segment that is appended to stays"


# -- failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(60))
def test_torn_tail_is_cut_at_the_last_whole_record(seed: int) -> None:
    """A commit of three streams is cut anywhere. Earlier commits remain, and writers can continue."""
    chance = random.Random(seed)
    store = MemorySegments()
    written = {name: batches(12, seed=at) for at, name in enumerate("abc")}
    begun = chance.randint(0, 8)
    logs = StreamLogs(store, segment_bytes=1500)
    open_logs = {name: logs.open(name, _KIND) for name in written}
    for name, log in open_logs.items():
        for batch in written[name][:begun]:
            log.append(batch)
    logs.commit()
    for name, log in open_logs.items():
        for batch in written[name][begun : begun + 3]:
            log.append(batch)
    store.cut_short(chance)
    with pytest.raises(OSError, match="cut short"):
        logs.commit()
    for name in written:
        seen = rows_of(LogReader(store, name).read())
        assert seen == rows_of(written[name])[: len(seen)], "readers see no part of a record"
    again = StreamLogs(store, segment_bytes=1500)
    for name, each in written.items():
        log = again.open(name, _KIND)
        assert log.durable >= begun * 5, "what was committed is lost"
        # A restarted writer may send rows again.
        for batch in each:
            log.append(batch)
    again.commit()
    for name, each in written.items():
        assert rows_of(LogReader(store, name).read()) == rows_of(each)
        assert rows_of(LogReader(store, name).backwards()) == rows_of(
            reversed(list(LogReader(store, name).read()))
        )


def test_log_whose_torn_tail_was_cut_within_a_large_chunk_is_read_and_goes_on(store: SegmentStore) -> None:
    """The writer died while it appended many records: the torn tail is more than 256 KiB in one chunk."""
    written = batches(4, size=5000)
    whole = MemorySegments()
    write(whole, written, segment_bytes=1 << 24)
    ((segment, length),) = whole.segments("s")
    torn = whole.read("s", segment, 0, length - 1000)
    assert len(torn) > 400_000
    store.append_all([SegmentAppend("s", segment, torn)])
    logs = StreamLogs(store, segment_bytes=1 << 24)
    log = logs.open("s", _KIND)
    assert log.durable == 15_000 and store.segments("s")[0][1] > 300_000
    assert rows_of(LogReader(store, "s").read()) == rows_of(written[:3])
    log.append(written[3])
    logs.commit()
    assert rows_of(LogReader(store, "s").read()) == rows_of(written)
    assert rows_of(LogReader(store, "s").read(14_990)) == rows_of(written)[14_990:]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("its payload", r"the record at byte \d+ does not match its checksum"),
        ("its magic", r"bytes \d+ to \d+ are no record, and whole ones follow"),
        ("the last payload", r"the record at byte \d+ does not match its checksum"),
    ],
)
def test_rotten_record_is_refused_and_not_cut(place: str, said: str, tmp_path: Path) -> None:
    """Rows committed after or in the corrupt record must not be lost silently. Earlier rows can be read."""
    store = DirectorySegments(tmp_path)
    written = batches(4)
    write(store, written, segment_bytes=1 << 20)
    (path,) = (tmp_path / "s").glob("*.log")
    data = bytearray(path.read_bytes())
    begins = [head.offset for head in whole_records(memoryview(bytes(data)))]
    rotten, sound = (4, 3) if place == "the last payload" else (3, 2)
    data[begins[rotten] + (0 if place == "its magic" else 60)] ^= 1
    path.write_bytes(data)
    seen: list[Batch] = []
    with pytest.raises(LogDamaged, match=f"segment 1 of stream 's' is rotten: {said}"):
        seen.extend(iter(LogReader(store, "s").read()))
    assert rows_of(seen) == rows_of(written[:sound])
    with pytest.raises(LogDamaged, match=said):
        StreamLogs(store).open("s", _KIND)
    with pytest.raises(LogDamaged, match=said):
        StreamLogs(store, verify=False).open("s", _KIND)
    assert path.read_bytes() == bytes(data)


def test_torn_tail_is_measured(tmp_path: Path) -> None:
    store = DirectorySegments(tmp_path)
    written = batches(4)
    write(store, written, segment_bytes=1 << 20)
    (path,) = (tmp_path / "s").glob("*.log")
    data = path.read_bytes()
    begins = [head.offset for head in whole_records(memoryview(data))]
    path.write_bytes(data[:-7])
    end = LogReader(store, "s").end()
    assert (end.place.number, end.first, end.torn_bytes) == (15, 1, len(data) - 7 - begins[-1])
    assert rows_of(LogReader(store, "s").read()) == rows_of(written[:3])


# -- epochs: for writers that cannot reproduce the numbers of their rows -----------------------------------


def append_epoch(store: SegmentStore, epoch: int, rows: list[pa.RecordBatch], writer: str = "query") -> bool:
    logs = StreamLogs(store, segment_bytes=3000, verify=False)
    fresh = logs.open("s", _KIND).append_epoch(writer, epoch, rows)
    logs.commit()
    return fresh


def test_epoch_is_taken_once(store: SegmentStore) -> None:
    """The second attempt has other rows, as after a shuffle. Each writer has its own epochs."""
    parts = input_rows(1, batches=6, size=5)
    assert append_epoch(store, 0, parts[:2])
    assert not append_epoch(store, 0, parts[2:3])
    assert append_epoch(store, 1, parts[2:3])
    assert append_epoch(store, 0, parts[3:4], writer="other")
    assert not append_epoch(store, 1, parts[4:])
    assert not append_epoch(store, 0, parts[4:])
    written = [Batch(1 + 5 * at, rows) for at, rows in enumerate(parts[:4])]
    assert rows_of(LogReader(store, "s").read()) == rows_of(written)
    assert rows_of(LogReader(store, "s").backwards()) == rows_of(reversed(written))


def test_epoch_is_remembered_when_its_segment_is_gone(store: SegmentStore) -> None:
    parts = input_rows(1, batches=40, size=5)
    append_epoch(store, 7, parts[:1], writer="early")
    for at, rows in enumerate(parts[1:]):
        append_epoch(store, at, [rows])
    assert trim(store, "s", 10_000) > 3
    assert not append_epoch(store, 7, parts[:1], writer="early")
    assert append_epoch(store, 8, parts[:1], writer="early")
    # A full scan finds the same.
    logs = StreamLogs(store)
    assert logs.open("s", _KIND).epoch_of("query") == 38
    assert LogReader(store, "s").extent()[1] == 41 * 5


def test_writer_without_a_word_for_long_is_forgotten() -> None:
    store = MemorySegments()
    parts = input_rows(1, batches=1, size=1)
    for number in range(stream_log_writers_max + 1):
        append_epoch(store, 0, parts, writer=f"writer {number}")
    assert append_epoch(store, 0, parts, writer="writer 0")
    assert not append_epoch(store, 0, parts, writer=f"writer {number}")


@pytest.mark.parametrize("seed", seeds(60))
def test_epoch_is_there_whole_or_not_at_all(seed: int) -> None:
    """A commit is cut anywhere: readers see all rows of the epoch or none, and the writer commits it again."""
    chance = random.Random(seed)
    store = MemorySegments()
    parts = input_rows(seed, batches=12, size=5)
    epochs = [parts[at : at + 3] for at in (0, 3, 6, 9)]
    for at, rows in enumerate(epochs):
        logs = StreamLogs(store, segment_bytes=chance.choice([1500, 100_000]), verify=chance.random() < 0.5)
        log = logs.open("s", _KIND)
        assert log.append_epoch("query", at, rows)
        if chance.random() < 0.7:
            store.cut_short(chance)
            with pytest.raises(OSError, match="cut short"):
                logs.commit()
            assert len(rows_of(LogReader(store, "s").read())) in (15 * at, 15 * (at + 1))
            assert LogReader(store, "s").extent()[1] in (15 * at, 15 * (at + 1))
            # The repeated commit has other rows for the same epoch; exactly one version counts.
            append_epoch(store, at, rows)
        else:
            logs.commit()
        assert len(rows_of(LogReader(store, "s").read())) == 15 * (at + 1)
    assert rows_of(LogReader(store, "s").read()) == rows_of(
        Batch(1 + 5 * at, rows) for at, rows in enumerate(parts)
    )
    for place in (0, 20, 59):
        time = parts[place // 5].column("at").cast(pa.int64())[place % 5].as_py()
        assert LogReader(store, "s").number_at(time) == min(
            1 + at for at in range(60) if parts[at // 5].column("at").cast(pa.int64())[at % 5].as_py() >= time
        )


# -- gaps and other schemas --------------------------------------------------------------------------------


def test_rows_that_leave_a_gap_are_refused(store: SegmentStore) -> None:
    written = batches(5)
    logs = StreamLogs(store)
    log = logs.open("s", _KIND)
    log.append(written[0])
    with pytest.raises(LogDamaged, match="ends with row 5, and row 11 comes next"):
        log.append(written[2])


def test_log_of_another_schema_is_refused(store: SegmentStore) -> None:
    write(store, batches(2))
    other = StreamType(pa.schema([("at", SCHEMA.field("at").type)]), "at")
    with pytest.raises(InvalidQuery, match="write to another stream"):
        StreamLogs(store).open("s", other)


@pytest.mark.cluster
def test_log_in_peacefs_is_taken_over_from_a_writer_that_is_still_there(files: PeaceFileSystem, home: str) -> None:
    """The previous writer is refused from then on; its committed rows remain."""
    written = batches(6)
    with PeaceSegments(files, home) as before, PeaceSegments(files, home) as after:
        old_logs = StreamLogs(before)
        old = old_logs.open("s", _KIND)
        for batch in written[:3]:
            old.append(batch)
        old_logs.commit()
        write(after, written[:5])
        assert rows_of(LogReader(after, "s").read()) == rows_of(written[:5])
        old.append(written[3])
        with pytest.raises(LeaseError):
            old_logs.commit()
        assert rows_of(LogReader(after, "s").read()) == rows_of(written[:5])


def test_log_is_read_and_written_without_operators_and_kernels() -> None:
    """Spark starts a Python process per step of a source or sink; these imports would double its time."""
    modules = ("log_place", "log_reader", "stream_log")
    code = (
        f"import sys, {', '.join(f'peacefs.dataflow.logs.{each}' for each in modules)};"
        "print({'numba', 'pyarrow.acero', 'peacefs.dataflow.query', 'peacefs.state'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    assert done.stdout == "set()\n"
