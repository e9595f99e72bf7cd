"""The simulated disk keeps what a real one must keep, and sometimes loses what a real one may lose."""

from __future__ import annotations

import errno
from random import Random

import pytest
from store.simulated_disk import SimulatedDisk, SimulatedFile

from peacefs.runtime import effects as fx

SEEDS = 60
DATA = bytes(range(256)) * 20


def made(seed: int) -> tuple[SimulatedDisk, SimulatedFile]:
    """Return a disk with an empty durable file /d/f."""
    disk = SimulatedDisk(Random(seed))
    disk.perform(fx.MakeDirectory("/d"))
    file = disk.perform(fx.OpenLocalFile("/d/f", create=True))
    disk.perform(fx.SyncDirectory("/d"))
    disk.perform(fx.SyncDirectory("/"))
    return disk, file


def read(disk: SimulatedDisk, path: str = "/d/f") -> bytes:
    return dict(disk.files())[path]


def test_synced_bytes_survive_every_crash() -> None:
    for seed in range(SEEDS):
        disk, file = made(seed)
        disk.perform(fx.AppendToFile(file, [DATA[:100], DATA[100:]]))
        disk.perform(fx.Sync(file))
        disk.crash()
        assert read(disk) == DATA


def test_unsynced_bytes_survive_wholly_in_part_or_not_at_all() -> None:
    kinds = set()
    for seed in range(SEEDS):
        disk, file = made(seed)
        disk.perform(fx.AppendToFile(file, [b"synced"]))
        disk.perform(fx.Sync(file))
        disk.perform(fx.AppendToFile(file, [DATA]))
        disk.crash()
        content = read(disk)
        assert content.startswith(b"synced")
        rest = content[6:]
        if not rest:
            kinds.add("lost")
        elif rest == DATA:
            kinds.add("kept")
        else:
            kinds.add("prefix" if DATA.startswith(rest) else "holes")
    assert kinds == {"lost", "kept", "prefix", "holes"}


@pytest.mark.parametrize(
    "change", [fx.OpenLocalFile("/d/new", True), fx.RenameFile("/d/f", "/d/new"), fx.Remove("/d/f")], ids=repr
)
def test_a_name_is_certain_only_after_its_directory_was_synced(change: fx.Effect) -> None:
    outcomes = set()
    for seed in range(SEEDS):
        disk, _file = made(seed)
        disk.perform(change)
        disk.crash()
        outcomes.add(tuple(path for path, _content in disk.files()))
        disk, _file = made(seed)
        disk.perform(change)
        after = [path for path, _content in disk.files()]
        disk.perform(fx.SyncDirectory("/d"))
        disk.crash()
        assert [path for path, _content in disk.files()] == after
    assert len(outcomes) > 1


def test_after_a_failed_sync_memory_still_shows_what_no_later_sync_writes() -> None:
    lost = 0
    for seed in range(SEEDS):
        disk, file = made(seed)
        disk.perform(fx.AppendToFile(file, [DATA]))
        disk.fail(fx.Sync, errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            disk.perform(fx.Sync(file))
        assert read(disk) == DATA
        disk.perform(fx.Sync(file))
        disk.perform(fx.DropCached(file))
        lost += disk.perform(fx.ReadAt(file, 0, len(DATA))) != DATA
    assert lost > SEEDS / 3


def test_an_open_file_outlives_its_name_but_not_a_crash() -> None:
    disk, file = made(0)
    disk.perform(fx.AppendToFile(file, [b"still here"]))
    disk.perform(fx.Remove("/d/f"))
    assert disk.perform(fx.ReadAt(file, 0, 100)) == b"still here"
    disk.crash()
    with pytest.raises(AssertionError, match="before the crash"):
        disk.perform(fx.ReadAt(file, 0, 100))


def test_a_full_disk_takes_what_fits() -> None:
    disk, file = made(0)
    disk.capacity_bytes = 10
    with pytest.raises(OSError, match="No space left") as raised:
        disk.perform(fx.AppendToFile(file, [DATA]))
    assert raised.value.errno == errno.ENOSPC and read(disk) == DATA[:10]
    assert disk.available_bytes() == 0


def test_a_fault_hits_the_effect_it_was_meant_for() -> None:
    disk, file = made(0)
    disk.fail(fx.AppendToFile, errno.EIO, path="/d/f", skip=1)
    other = disk.perform(fx.OpenLocalFile("/d/g", create=True))
    disk.perform(fx.AppendToFile(other, [b"a"]))
    disk.perform(fx.AppendToFile(file, [b"a"]))
    with pytest.raises(OSError, match="Input/output error"):
        disk.perform(fx.AppendToFile(file, [b"b"]))
    disk.perform(fx.AppendToFile(file, [b"c"]))


def test_a_seed_replays_exactly() -> None:
    def history(seed: int) -> list[tuple[str, bytes]]:
        disk, file = made(seed)
        for _crash in range(5):
            disk.perform(fx.AppendToFile(file, [DATA]))
            disk.crash()
            file = disk.perform(fx.OpenLocalFile("/d/f", create=False))
        return list(disk.files())

    assert history(7) == history(7) != history(8)
