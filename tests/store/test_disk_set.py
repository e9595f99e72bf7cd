"""Several disks in one datanode: one fills up, fails, or comes back, and the others go on."""

from __future__ import annotations

import errno

import pytest
from store.machine import write_chunk
from store.rack import CHUNK, CONTENTS, LARGE, SMALL, Rack, by_chunk

from peacefs.datanode.disks.disk import DiskState
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import ChunkNotFound, DiskFault, DiskFull, StaleVersion, StartupError
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx


@pytest.fixture
def rack() -> Rack:
    return Rack()


@pytest.mark.evidence("disk-fails-at-start")
def test_a_disk_that_failed_before_it_could_be_claimed_is_out_and_never_touched(rack: Rack) -> None:
    rack.fill(20)
    held = [replica for disk in rack.disks[1:] for replica in disk.store.replicas()]
    rack.broken = {0: "cannot read /disk-0/identity.json: Input/output error"}
    recovery = rack.start()
    assert rack.failed == [("/disk-0", 0)] and recovery.replicas == len(held)
    assert by_chunk(rack.set.replicas()) == by_chunk(held)
    assert [report.state for report in rack.set.reports()] == ["failed", "working", "working"]
    assert rack.set.reports()[0].fault == rack.broken[0]
    rack.put(CHUNK + 100)
    assert rack.holders(CHUNK + 100) != [0]
    rack.broken = dict.fromkeys(range(3), "Input/output error")
    with pytest.raises(StartupError, match=r"no disk .* can be written to: /disk-0: Input/output error, "):
        rack.start()


@pytest.mark.evidence("disk-full")
def test_a_disk_that_becomes_full_is_told_of_once_and_so_is_room_for_a_whole_chunk(rack: Rack) -> None:
    assert rack.set.look_for_room() == []
    rack.rooms[1] = 1000
    assert rack.set.look_for_room() == [rack.disks[1]]
    assert [report.state for report in rack.set.reports()] == ["working", "full", "working"]
    assert rack.set.reports()[1].fault == "0 bytes are left beside the reserve"
    assert rack.set.look_for_room() == []
    rack.rooms[1] = 10 * MIB
    assert rack.set.look_for_room() == [], "what is deleted now and then is not worth a word"
    rack.rooms[1] = 100 * MIB
    assert rack.set.look_for_room() == [rack.disks[1]]
    assert [report.state for report in rack.set.reports()] == ["working"] * 3


# -- where chunks go -----------------------------------------------------------------------------------


@CONTENTS
def test_chunks_are_spread_and_found_wherever_they_are(rack: Rack, content: bytes) -> None:
    rack.fill(30, content)
    for number in range(30):
        assert len(rack.holders(CHUNK + number)) == 1
        assert rack.get(CHUNK + number) == content
    assert min(len(disk.store.replicas()) for disk in rack.disks) >= 3
    assert by_chunk(rack.set.replicas()) == [Replica(CHUNK + n, 5, len(content)) for n in range(30)]
    assert rack.set.find(CHUNK) == Replica(CHUNK, 5, len(content))
    assert rack.driver.run(rack.set.delete(CHUNK, 5)) is True
    assert rack.set.find(CHUNK) is None and rack.driver.run(rack.set.delete(CHUNK, 5)) is False
    with pytest.raises(ChunkNotFound):
        rack.get(CHUNK)


def test_the_fuller_a_disk_the_less_it_gets(rack: Rack) -> None:
    rack.rooms = [1 * MIB, 9 * MIB, 90 * MIB]
    rack.fill(200)
    counts = [len(disk.store.replicas()) for disk in rack.disks]
    assert counts[0] < counts[1] < counts[2]
    assert counts[2] > 150


@CONTENTS
def test_a_full_disk_gets_nothing_and_the_others_go_on(rack: Rack, content: bytes) -> None:
    rack.rooms[1] = 0
    rack.fill(20, content)
    assert not rack.disks[1].store.replicas()
    rack.rooms = [0, 0, 0]
    with pytest.raises(DiskFull):
        rack.put(CHUNK + 100)
    rack.rooms = [0, 50 * MIB, 0]
    rack.put(CHUNK + 100)
    assert rack.holders(CHUNK + 100) == [1]
    assert rack.get(CHUNK) == content and rack.failed == []


def test_chunks_are_gone_through_in_order_whichever_disks_they_are_on(rack: Rack) -> None:
    rack.fill(20)
    found: list[int] = []
    while batch := rack.set.chunks_after(found[-1] if found else 0, 3):
        assert len(batch) <= 3
        found += batch
    assert found == [CHUNK + number for number in range(20)]


def test_room_and_use_are_those_of_all(rack: Rack) -> None:
    rack.rooms = [10 * MIB, 20 * MIB, 500]
    usage = rack.set.usage()
    assert (usage.used_bytes, usage.available_bytes) == (0, 30 * MIB - 2000)
    rack.put(CHUNK, data=LARGE)
    usage = rack.set.usage()
    assert usage.used_bytes >= MIB
    assert usage.capacity_bytes == usage.used_bytes + usage.available_bytes


@CONTENTS
def test_versions_of_a_chunk_meet_on_one_disk_and_the_older_is_fenced(rack: Rack, content: bytes) -> None:
    for attempt in range(10):
        chunk = CHUNK + attempt
        older = rack.set.stage(chunk, 5)
        rack.driver.run(rack.set.write(older, block_checksums(content), content))
        rack.put(chunk, 6, content[::-1])
        with pytest.raises(StaleVersion):
            rack.driver.run(rack.set.seal(older))
        with pytest.raises(StaleVersion):
            rack.put(chunk, 4, content)
        rack.put(chunk, 7, content)
        assert len(rack.holders(chunk)) == 1
        assert rack.set.find(chunk) == Replica(chunk, 7, len(content))
        assert rack.get(chunk) == content


def test_a_chunk_whose_disk_is_full_is_refused_and_stays_as_it_is(rack: Rack) -> None:
    rack.put(CHUNK, 5)
    (holder,) = rack.holders(CHUNK)
    rack.rooms[holder] = 0
    with pytest.raises(DiskFull):
        rack.put(CHUNK, 6, LARGE)
    assert rack.get(CHUNK) == SMALL
    rack.put(CHUNK + 1)
    assert rack.holders(CHUNK + 1) != [holder]


# -- disks that are read-only ---------------------------------------------------------------------------


@CONTENTS
@pytest.mark.parametrize("doing", ["write", "delete", "fsync"])
@pytest.mark.evidence("disk-read-only")
def test_a_read_only_disk_is_read_and_nothing_more(rack: Rack, content: bytes, doing: str) -> None:
    rack.fill(30, content)
    before = by_chunk(rack.set.replicas())
    victim = rack.chunk_on(1)
    held = len(rack.disks[1].store.replicas())
    if doing == "fsync":
        staged = rack.set.stage(victim, 6)
        rack.driver.run(rack.set.write(staged, block_checksums(content), content))
    rack.medium.make_read_only("/disk-1")
    if doing == "write":
        with pytest.raises(DiskFault):
            rack.put(victim, 6, content[::-1])
    elif doing == "fsync":
        with pytest.raises(DiskFault):
            rack.driver.run(rack.set.seal(staged))
    elif content is LARGE:
        assert rack.driver.run(rack.set.delete(victim, 5)) is True
        assert rack.set.find(victim) is None
        before = [replica for replica in before if replica.chunk != victim]
        held -= 1
    else:
        with pytest.raises(DiskFault):
            rack.put(victim, 6, content[::-1])
    assert rack.lost == [] and rack.failed == []
    assert [(report.state, report.replicas) for report in rack.set.reports()][1] == ("read-only", held)
    assert rack.set.reports()[1].fault == "Read-only file system"
    assert by_chunk(rack.set.replicas()) == before
    for replica in before:
        assert rack.get(replica.chunk) == content
    # New chunks go to other disks. A chunk that it holds is refused, so that another datanode takes it.
    for number in range(100, 130):
        rack.put(CHUNK + number, data=content)
        assert 1 not in rack.holders(CHUNK + number)
    assert rack.set.usage().available_bytes == 2 * (100 * MIB - 1000)
    if doing != "delete":
        with pytest.raises(DiskFault, match="cannot be written to"):
            rack.put(victim, 7, content)
    # When it accepts writes again, it gets chunks.
    rack.driver.run(rack.set.compact())
    assert rack.disks[1].state is DiskState.READ_ONLY
    rack.medium.heal()
    rack.driver.run(rack.set.compact())
    assert [report.state for report in rack.set.reports()] == ["working"] * 3
    rack.put(victim, 8, content[::-1])
    assert rack.get(victim) == content[::-1]


def test_a_read_only_disk_that_cannot_be_read_either_has_failed(rack: Rack) -> None:
    rack.fill(30)
    gone = rack.disks[1].store.replicas()
    rack.medium.make_read_only("/disk-1")
    with pytest.raises(DiskFault):
        rack.put(rack.chunk_on(1), 6)
    rack.medium.break_down("/disk-1")
    rack.driver.run(rack.set.compact())
    assert rack.failed == [("/disk-1", len(gone))] and by_chunk(rack.lost) == by_chunk(gone)
    rack.medium.heal()
    rack.driver.run(rack.set.compact())
    assert rack.set.reports()[1].state == "failed", "until the next start"


def test_with_read_only_disks_alone_nothing_is_taken_in_and_there_is_no_room(rack: Rack) -> None:
    rack.fill(10)
    for number in range(3):
        rack.medium.make_read_only(f"/disk-{number}")
    for number in range(100, 140):
        with pytest.raises(DiskFault):
            rack.put(CHUNK + number)
    assert rack.set.usage().available_bytes == 0 < rack.set.usage().used_bytes
    assert all(rack.get(CHUNK + number) == SMALL for number in range(10))


# -- disks that fail -----------------------------------------------------------------------------------


@CONTENTS
@pytest.mark.parametrize("doing", ["write", "read"])
@pytest.mark.evidence("eio")
def test_a_disk_that_breaks_down_loses_its_replicas_at_once_and_no_others(
    rack: Rack, content: bytes, doing: str
) -> None:
    rack.fill(30, content)
    gone = rack.disks[1].store.replicas()
    victim = rack.chunk_on(1)
    rack.medium.break_down("/disk-1")
    use = rack.get if doing == "read" else lambda chunk: rack.put(chunk, 6, content[::-1])
    with pytest.raises(DiskFault):
        use(victim)
    assert [name for name, _count in rack.failed] == ["/disk-1"]
    assert by_chunk(rack.lost) == by_chunk(gone) and rack.failed[0][1] == len(gone)
    assert not {replica.chunk for replica in rack.set.replicas()} & {replica.chunk for replica in gone}
    with pytest.raises(ChunkNotFound):
        rack.get(victim)
    for replica in rack.set.replicas():
        assert rack.get(replica.chunk) == content
    rack.put(victim, 6, content)
    assert rack.get(victim) == content, "a chunk that was lost comes back on another disk"
    for number in range(100, 120):
        rack.put(CHUNK + number, data=content)
    assert len(rack.failed) == 1
    assert rack.set.usage().available_bytes == 2 * (100 * MIB - 1000)


def test_a_disk_that_fails_while_it_is_compacted_does_not_keep_the_others_from_it(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.fill(20)
    compacted: list[int] = []

    def compact(number: int) -> fx.Steps[None]:
        compacted.append(number)
        yield from ()
        if number == 0:
            raise DiskFault("cannot compact segments")

    for number, disk in enumerate(rack.disks):
        monkeypatch.setattr(disk.store, "compact", lambda number=number: compact(number))
    rack.medium.break_down("/disk-0")
    with pytest.raises(DiskFault, match="cannot compact"):
        rack.driver.run(rack.set.compact())
    assert [name for name, _count in rack.failed] == ["/disk-0"]
    rack.driver.run(rack.set.compact())
    assert compacted == [0, 1, 2, 1, 2]


def test_a_writer_in_the_middle_when_its_disk_breaks_down_is_told(rack: Rack) -> None:
    rack.rooms = [100 * MIB, 0, 0]
    staged = rack.set.stage(CHUNK, 5)
    rack.driver.run(rack.set.write(staged, block_checksums(LARGE), LARGE))
    rack.medium.break_down("/disk-0")
    with pytest.raises(DiskFault):
        rack.driver.run(rack.set.seal(staged))
    rack.driver.run(rack.set.discard(staged))
    assert rack.failed == [("/disk-0", 0)] and rack.lost == []
    rack.rooms = [100 * MIB] * 3
    rack.put(CHUNK, 6, LARGE)
    assert rack.get(CHUNK) == LARGE


@pytest.mark.parametrize("effect", [fx.Sync, fx.AppendToFile], ids=lambda effect: effect.__name__)
def test_a_fault_that_passes_costs_one_chunk_and_no_disk(rack: Rack, effect: type[fx.Effect]) -> None:
    rack.fill(20, LARGE)
    before = rack.set.replicas()
    rack.medium.fail(effect, errno.EIO)
    with pytest.raises(DiskFault):
        rack.put(CHUNK + 100, data=LARGE)
    assert rack.failed == [] and rack.lost == []
    assert by_chunk(rack.set.replicas()) == by_chunk(before)
    rack.put(CHUNK + 100, data=LARGE)
    assert not [path for path, _content in rack.medium.files() if "probe" in path]


def test_a_file_that_vanished_has_its_disk_looked_at(rack: Rack) -> None:
    rack.fill(20, LARGE)
    victim, other = rack.chunk_on(1), rack.chunk_on(2)
    for path in [path for path, _content in rack.medium.files() if path.startswith(("/disk-1", "/disk-2"))]:
        rack.medium.perform(fx.Remove(path))
    with pytest.raises(ChunkNotFound):
        rack.get(other)
    assert rack.failed == [], "the disk works: one file was gone"
    rack.medium.fail(fx.OpenLocalFile, errno.ENOENT, path="/disk-1/probe")
    with pytest.raises(ChunkNotFound):
        rack.get(victim)
    assert [name for name, _count in rack.failed] == ["/disk-1"]


def test_a_disk_with_no_room_for_the_probe_has_not_failed(rack: Rack) -> None:
    rack.put(CHUNK)
    rack.medium.fail(fx.ReadAt, errno.EIO, path="segments")
    rack.medium.fail(fx.AppendToFile, errno.ENOSPC, path="probe")
    with pytest.raises(DiskFault):
        rack.get(CHUNK)
    assert rack.failed == []


def test_a_disk_that_gives_back_other_bytes_than_it_took_has_failed(rack: Rack) -> None:
    rack.put(CHUNK)
    (holder,) = rack.holders(CHUNK)
    perform = rack.medium.perform
    rack.medium.fail(fx.ReadAt, errno.EIO, path="segments")

    def rotten(effect: fx.Effect) -> object:
        result = perform(effect)
        is_probe = isinstance(effect, fx.ReadAt) and "probe" in getattr(effect.file, "path", "")
        return bytes(len(result)) if is_probe else result

    rack.medium.perform = rotten  # type: ignore[method-assign]
    with pytest.raises(DiskFault):
        rack.get(CHUNK)
    assert rack.failed == [(f"/disk-{holder}", 1)]


def test_when_all_disks_have_failed_nothing_is_taken_in_and_nothing_offered(rack: Rack) -> None:
    rack.fill(20)
    for number in range(3):
        rack.medium.break_down(f"/disk-{number}")
        with pytest.raises(DiskFault):
            rack.get(rack.chunk_on(number))
    with pytest.raises(DiskFault, match="no disk of this datanode can be written to"):
        rack.put(CHUNK + 100)
    assert rack.set.replicas() == [] and rack.set.usage().available_bytes == 0
    rack.driver.run(rack.set.close())


def test_readers_and_writers_leave_nothing_behind(rack: Rack) -> None:
    for number in range(10):
        rack.put(CHUNK + number, data=LARGE)
        rack.get(CHUNK + number)
        plan = rack.driver.run(rack.set.open_read(CHUNK + number, 0, 0, 10))
        rack.driver.run(rack.set.close_read(plan))
        staged = rack.set.stage(CHUNK + 100, 5)
        rack.driver.run(rack.set.discard(staged))
    assert not rack.set._staged and not rack.set._plans and not rack.set._writers


# -- starts --------------------------------------------------------------------------------------------


@CONTENTS
def test_sealed_replica_survives_a_crash_on_every_disk(rack: Rack, content: bytes) -> None:
    rack.fill(20, content)
    rack.medium.crash()
    recovery = rack.start()
    assert recovery.replicas == 20
    for number in range(20):
        assert rack.get(CHUNK + number) == content


@pytest.mark.parametrize(("first", "second"), [(0, 2), (2, 0)])
@pytest.mark.parametrize("newer", [5, 6])
@pytest.mark.evidence("return-is-harmless")
def test_a_disk_that_was_away_brings_back_nothing_that_is_older(
    rack: Rack, first: int, second: int, newer: int
) -> None:
    rack.driver.run(write_chunk(rack.disks[first].store, CHUNK, 5, SMALL))
    rack.driver.run(write_chunk(rack.disks[second].store, CHUNK, newer, SMALL if newer == 5 else LARGE))
    recovery = rack.start()
    assert (recovery.replicas, recovery.stale) == (1, 1)
    assert rack.set.replicas() == [Replica(CHUNK, newer, len(SMALL if newer == 5 else LARGE))]
    assert rack.get(CHUNK) == (SMALL if newer == 5 else LARGE)
    assert len(rack.holders(CHUNK)) == 1


@pytest.mark.evidence("disk-fails-at-start")
def test_a_disk_that_is_broken_at_the_start_is_out_and_the_others_go_on(rack: Rack) -> None:
    rack.fill(30)
    lost = rack.disks[1].store.count()
    rack.medium.break_down("/disk-1")
    assert rack.start().replicas == 30 - lost
    assert [disk.state for disk in rack.disks] == [DiskState.WORKING, DiskState.FAILED, DiskState.WORKING]
    assert rack.failed == [("/disk-1", 0)]
    assert "Input/output error" in rack.set.reports()[1].fault
    rack.fill(60)
    assert all(rack.get(CHUNK + number) == SMALL for number in range(60))


@pytest.mark.parametrize("skip", range(0, 12, 3))
@pytest.mark.evidence("disk-fails-at-start")
def test_a_disk_that_fails_while_it_is_read_at_the_start_is_out_too(rack: Rack, skip: int) -> None:
    rack.fill(30, LARGE)
    others = {replica.chunk for disk in (0, 2) for replica in rack.disks[disk].store.replicas()}
    rack.medium.fail(fx.SyncDirectory, errno.EIO, path="/disk-1", skip=skip)
    rack.start()
    assert rack.disks[1].state is DiskState.FAILED
    assert {replica.chunk for replica in rack.set.replicas()} == others


@CONTENTS
@pytest.mark.evidence("disk-read-only")
def test_a_disk_that_is_read_only_at_the_start_is_read_and_left_as_it_is(rack: Rack, content: bytes) -> None:
    """This holds even if a crash has left half a chunk and a torn tail, which a start would remove."""
    rack.fill(30, content)
    held = rack.disks[1].store.count()
    for path, whole in list(rack.medium.files()):
        if path.startswith("/disk-1/segments/"):
            rack.medium.overwrite(path, whole + bytes(100))
    rack.medium.overwrite("/disk-1/staging/half", b"half")
    rack.medium.make_read_only("/disk-1")
    before = dict(rack.medium.files())
    assert rack.start().replicas == 30
    assert (rack.disks[1].state, rack.disks[1].store.count()) == (DiskState.READ_ONLY, held)
    assert rack.set.usage().used_bytes > 0 and rack.disks[1].usage().available_bytes == 0
    assert all(rack.get(CHUNK + number) == content for number in range(30))
    after = dict(rack.medium.files())
    assert {path: after[path] for path in after if path.startswith("/disk-1")} == {
        path: before[path] for path in before if path.startswith("/disk-1")
    }
    # It is writable again, so it gets chunks, and its data is intact.
    rack.medium.heal()
    rack.driver.run(rack.set.compact())
    assert rack.disks[1].state is DiskState.WORKING
    rack.fill(60, content)
    assert rack.disks[1].store.count() > held
    rack.start()
    assert all(rack.get(CHUNK + number) == content for number in range(60))


@pytest.mark.evidence("disk-fails-at-start")
def test_without_a_disk_to_write_to_there_is_no_start(rack: Rack) -> None:
    rack.medium.break_down("/disk-0")
    for number in (1, 2):
        rack.medium.make_read_only(f"/disk-{number}")
    with pytest.raises(StartupError, match=r"no disk .* /disk-0: Input/output error, /disk-1: Read-only"):
        rack.start()
