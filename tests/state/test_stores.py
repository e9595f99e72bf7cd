"""One contract for all stores of checkpoints; and directories whose writer dies or whose data rots."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.long_runs import often

from peacefs.protocol.errors import CheckpointDamaged, FileAlreadyExists, FileNotFound
from peacefs.state import Checkpointer, DirectoryStore, MemoryStore, PageManager, PeaceStore, UnorderedMap
from peacefs.state.checkpoints.store import CheckpointStore, WriteRequest

PAGE = 8192
COUNTS = pa.schema([("key", pa.int64()), ("count", pa.int64())])


@pytest.fixture(params=["memory", "directory", pytest.param("peacefs", marks=pytest.mark.cluster)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "directory":
        return DirectoryStore(tmp_path / "checkpoints")
    return PeaceStore(request.getfixturevalue("files"), root=f"/{os.urandom(4).hex()}", chunk_bytes=1 << 20)


def request(
    sequence: int, *runs: bytes, referred: tuple[int, ...] = (), source: int | None = None
) -> WriteRequest:
    views = [memoryview(run) for run in runs]
    return WriteRequest("unit", sequence, views, b"index %d" % sequence, referred, source, lambda begin, end: None)


def pages_of(store: CheckpointStore, sequence: int, stored_in: int, length: int) -> bytes:
    target = bytearray(length)
    store.read_pages("unit", sequence, stored_in, memoryview(target))
    return bytes(target)


def test_store_gives_back_what_was_written(store: CheckpointStore) -> None:
    assert store.sequences("unit") == []
    store.submit(request(3, b"aaaa", b"bb")).wait(60)
    store.submit(request(10, b"cccc", referred=(3,), source=3)).wait(60)
    store.submit(request(11, referred=(3, 10), source=10)).wait(60)
    assert store.sequences("unit") == [3, 10, 11]
    assert store.sequences("uni") == store.sequences("unit-3") == []
    assert store.index("unit", 10) == b"index 10"
    assert pages_of(store, 3, 3, 6) == pages_of(store, 11, 3, 6) == b"aaaabb"
    assert pages_of(store, 10, 10, 4) == pages_of(store, 11, 10, 4) == b"cccc"
    assert pages_of(store, 11, 11, 0) == b""
    # Pages that others refer to outlive their original checkpoint.
    store.remove("unit", 3)
    store.remove("unit", 10)
    store.remove("unit", 10)
    assert store.sequences("unit") == [11]
    assert pages_of(store, 11, 3, 6) == b"aaaabb"


def test_store_says_of_all_bytes_that_they_were_written(store: CheckpointStore) -> None:
    written: list[tuple[int, int]] = []
    runs = [os.urandom(9 << 20), os.urandom(1 << 20)]
    views = [memoryview(run) for run in runs]
    store.submit(
        WriteRequest("unit", 1, views, b"", (), None, lambda begin, end: written.append((begin, end)))
    ).wait(60)
    at = 0
    for begin, end in sorted(written):
        assert begin == at
        at = end
    assert at == 10 << 20
    assert pages_of(store, 1, 1, at) == b"".join(runs)


def test_store_never_writes_a_checkpoint_over_another(store: CheckpointStore) -> None:
    store.submit(request(1, b"aaaa")).wait(60)
    with pytest.raises(FileAlreadyExists):
        store.submit(request(1, b"bbbb")).wait(60)
    assert pages_of(store, 1, 1, 4) == b"aaaa"


def test_store_says_what_is_not_there(store: CheckpointStore) -> None:
    with pytest.raises(FileNotFound):
        store.index("unit", 1)
    store.submit(request(1, b"aaaa")).wait(60)
    with pytest.raises(CheckpointDamaged):
        pages_of(store, 1, 1, 5)
    with pytest.raises(CheckpointDamaged):
        pages_of(store, 1, 7, 4)


# -- a directory ------------------------------------------------------------------------------------


def test_directory_is_tidied_by_two_at_the_same_time(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    for number in range(300):
        left_over = tmp_path / f".unit-{number}.{number:012}.writing"
        left_over.mkdir()
        (left_over / "index").touch()
    together = threading.Barrier(4)

    def tidy(_: int) -> None:
        together.wait(60)
        store.remove_left_over("unit")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(tidy, range(4)))
    assert list(tmp_path.iterdir()) == []


def count_map(pages: PageManager) -> UnorderedMap:
    return UnorderedMap.create(pages.page_set("counts"), COUNTS, "key")


def manager() -> PageManager:
    return PageManager(page_bytes=PAGE, memory_bytes_max=3000 * PAGE)


def two_checkpoints(root: Path) -> tuple[Checkpointer, UnorderedMap]:
    """Make two checkpoints. The second has its own pages and pages of the first."""
    pages = manager()
    counts = count_map(pages)
    counts.add_at(np.arange(50_000), 1)
    checkpointer = Checkpointer(pages, DirectoryStore(root), "unit", keep=5)
    checkpointer.checkpoint()
    counts.add_at(np.arange(10), 1)
    checkpointer.checkpoint()
    return checkpointer, counts


@pytest.mark.parametrize("damage", ["bit", "torn", "gone", "swapped", "index bit", "index torn", "index gone"])
def test_directory_whose_latest_checkpoint_is_damaged_gives_the_one_before(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    two_checkpoints(tmp_path)
    pages_file, index_file = tmp_path / "unit-2" / "pages-2", tmp_path / "unit-2" / "index"
    path = index_file if damage.startswith("index") else pages_file
    data = bytearray(path.read_bytes())
    if damage.endswith("bit"):
        data[len(data) // 2] ^= 1
    elif damage.endswith("torn"):
        del data[len(data) // 2 :]
    elif damage == "swapped":
        data = data[PAGE:] + data[:PAGE]
    path.write_bytes(data)
    if damage.endswith("gone"):
        path.unlink()
    pages = manager()
    loaded = Checkpointer(pages, DirectoryStore(tmp_path), "unit").load()
    assert loaded is not None and loaded.sequence == 1
    assert count_map(pages)[5] == 1
    (said,) = [record.message for record in caplog.records]
    assert said.startswith("checkpoint 2 of unit could not be loaded: ") and "\n" not in said
    # If a checkpoint is requested by number, no other one is loaded.
    with pytest.raises(CheckpointDamaged):
        Checkpointer(manager(), DirectoryStore(tmp_path), "unit").load(2)


def test_directory_in_which_nothing_is_sound_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    two_checkpoints(tmp_path)
    shared = tmp_path / "unit-1" / "pages-1"
    data = bytearray(shared.read_bytes())
    data[-1] ^= 1
    shared.write_bytes(data)
    pages = manager()
    with pytest.raises(CheckpointDamaged, match=r"no checkpoint of unit is sound; the latest: page .* checksum"):
        Checkpointer(pages, DirectoryStore(tmp_path), "unit").load()
    assert pages.memory_bytes == 0


def test_directory_goes_on_after_a_damaged_checkpoint_with_a_new_number(tmp_path: Path) -> None:
    two_checkpoints(tmp_path)
    (tmp_path / "unit-2" / "index").write_bytes(b"")
    pages = manager()
    checkpointer = Checkpointer(pages, DirectoryStore(tmp_path), "unit")
    checkpointer.load()
    count_map(pages).add_at([7], 10)
    assert checkpointer.checkpoint().sequence == 3
    again = manager()
    Checkpointer(again, DirectoryStore(tmp_path), "unit").load()
    assert count_map(again)[7] == 11


def test_directory_shares_the_data_of_pages_that_did_not_change(tmp_path: Path) -> None:
    two_checkpoints(tmp_path)
    first, second = tmp_path / "unit-1" / "pages-1", tmp_path / "unit-2" / "pages-1"
    assert first.samefile(second)
    assert (tmp_path / "unit-2" / "pages-2").stat().st_size < first.stat().st_size / 5


_WRITER = """
import sys
import numpy as np, pyarrow as pa
from peacefs.state import Checkpointer, DirectoryStore, PageManager, UnorderedMap

pages = PageManager(memory_bytes_max=1 << 30)
checkpointer = Checkpointer(pages, DirectoryStore(sys.argv[1]), "unit")
loaded = checkpointer.load()
schema = pa.schema([("key", pa.int64()), ("count", pa.int64())])
counts = UnorderedMap.create(pages.page_set("counts"), schema, "key")
# Each round adds one to every key, so that all counts of a checkpoint are alike.
keys = np.arange(200_000)
assert not loaded or len({int(each) for row in counts.scan_numpy() for each in np.unique(row["count"])}) == 1
while True:
    counts.add_at(keys, 1)
    if checkpointer.idle:
        running = checkpointer.begin()
        print(running.sequence, counts[0], flush=True)
"""


def test_directory_of_a_process_that_is_killed_while_it_writes_holds_whole_checkpoints(tmp_path: Path) -> None:
    """It is killed repeatedly at any moment; each successor continues from a whole checkpoint."""
    began: dict[int, int] = {}
    for round_ in range(often(2, 4)):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(2 + round_):
                sequence, count = map(int, writer.stdout.readline().split())
                began[sequence] = count
            writer.kill()
            for line in writer.stdout:
                sequence, count = map(int, line.split())
                began[sequence] = count
        assert writer.returncode == -9
        pages = PageManager(memory_bytes_max=1 << 30)
        loaded = Checkpointer(pages, DirectoryStore(tmp_path), "unit").load()
        assert loaded is not None and loaded.damage == ()
        counts = count_map(pages)
        assert len(counts) == 200_000
        for items in counts.scan_numpy():
            assert set(np.unique(items["count"])) == {began[loaded.sequence]}
        # Nothing of a dead writer remains.
        assert not [entry.name for entry in os.scandir(tmp_path) if entry.name.startswith(".")]
