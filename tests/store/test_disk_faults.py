"""Writers and readers on a disk that is full, failing, or unable to fsync."""

from __future__ import annotations

import errno
from random import Random

import pytest
from store.machine import SimulatedMachine, read_chunk, write_chunk
from store.simulated_disk import DISK_EFFECTS

from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import DiskFault, DiskFull, StaleVersion, StartupError
from peacefs.protocol.limits import MIB
from peacefs.runtime import effects as fx

CHUNK = 0x10000000001
SMALL = Random(1).randbytes(3000)
LARGE = Random(2).randbytes(MIB)


def clean(machine: SimulatedMachine) -> bool:
    """Check that nothing staged is left, and that only the active segment is open."""
    return machine.open_files() <= 1 and not [name for name in machine.files() if name.startswith("staging")]


# -- a full disk -------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("room", [0, 100, 2000])
@pytest.mark.evidence("disk-full")
def test_a_chunk_for_which_there_is_no_room_leaves_nothing_and_harms_nobody(
    simulated: SimulatedMachine, content: bytes, room: int
) -> None:
    simulated.put(CHUNK, 5, SMALL)
    files = simulated.files()
    simulated.disk.capacity_bytes = sum(files.values()) + room
    with pytest.raises(DiskFull):
        simulated.put(CHUNK + 1, 5, content)
    assert simulated.files() == files and clean(simulated)
    simulated.disk.capacity_bytes = 10 * MIB
    simulated.put(CHUNK + 1, 5, content)
    simulated.disk.crash()
    simulated.start()
    assert simulated.get(CHUNK) == SMALL and simulated.get(CHUNK + 1) == content
    assert simulated.recovery.damaged_bytes == simulated.recovery.torn_bytes == 0


def test_no_room_for_the_footer_is_no_room(simulated: SimulatedMachine) -> None:
    simulated.disk.capacity_bytes = len(LARGE) + 10
    with pytest.raises(DiskFull):
        simulated.put(CHUNK, 5, LARGE)
    assert simulated.files() == {}


@pytest.mark.evidence("disk-full")
def test_compaction_on_a_full_disk_fails_and_loses_nothing(simulated: SimulatedMachine) -> None:
    simulated.start(segment_bytes=20_000)
    for number in range(10):
        simulated.put(CHUNK + number, 5, SMALL)
    for number in range(5):
        simulated.run(simulated.store.delete(CHUNK + number, 5))
    simulated.disk.capacity_bytes = sum(simulated.files().values())
    with pytest.raises(DiskFull):
        simulated.run(simulated.store.compact())
    assert all(simulated.get(CHUNK + number) == SMALL for number in range(5, 10))
    simulated.disk.capacity_bytes = 10 * MIB
    assert simulated.run(simulated.store.compact()).removed_segments == 1


# -- a failing disk ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DISK_EFFECTS)
@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
def test_whatever_fails_under_a_write_is_an_error_or_nothing_at_all(content: bytes, kind: type[fx.Effect]) -> None:
    for skip in range(3):
        machine = SimulatedMachine(seed=skip)
        machine.start()
        machine.put(CHUNK, 5, SMALL)
        machine.disk.fail(kind, errno.EIO, skip=skip)
        try:
            machine.put(CHUNK + 1, 5, content)
        except DiskFault:
            assert machine.store.find(CHUNK + 1) is None
            assert clean(machine)
        else:
            machine.disk.heal()
            assert machine.get(CHUNK + 1) == content
        machine.disk.crash()
        machine.start()
        assert machine.get(CHUNK) == SMALL
        machine.put(CHUNK + 1, 5, content)
        assert machine.get(CHUNK + 1) == content


@pytest.mark.evidence("acknowledged-is-durable", "fsync-fails")
def test_a_failed_fsync_is_never_tried_again_into_success(simulated: SimulatedMachine) -> None:
    simulated.put(CHUNK, 5, SMALL)
    (name,) = simulated.segment_files()
    simulated.disk.fail(fx.Sync, errno.EIO)
    with pytest.raises(DiskFault):
        simulated.put(CHUNK + 1, 5, SMALL)
    simulated.driver.effects.clear()
    simulated.put(CHUNK + 1, 5, SMALL)
    synced = [e.file.path for e in simulated.driver.effects if isinstance(e, fx.Sync)]
    assert synced and not any(path.endswith(name) for path in synced)
    assert simulated.get(CHUNK) == SMALL == simulated.get(CHUNK + 1)


def test_records_that_a_failed_fsync_spared_move_to_another_segment(simulated: SimulatedMachine) -> None:
    for number in range(5):
        simulated.put(CHUNK + number, 5, SMALL)
    (name,) = simulated.segment_files()
    simulated.disk.fail(fx.Sync, errno.EIO)
    with pytest.raises(DiskFault):
        simulated.put(CHUNK + 5, 5, SMALL)
    assert simulated.run(simulated.store.compact()).moved_chunks == 5
    assert name not in simulated.files()
    simulated.disk.crash()
    simulated.start()
    assert all(simulated.get(CHUNK + number) == SMALL for number in range(5))
    assert simulated.lost == []


@pytest.mark.evidence("fsync-fails")
def test_records_that_a_failed_fsync_cost_are_dropped_and_reported(
    simulated: SimulatedMachine,
) -> None:
    """The medium lost an acknowledged record that memory still had; reading past the memory shows it."""
    simulated.put(CHUNK, 5, SMALL)
    simulated.put(CHUNK + 1, 5, SMALL)
    (name,) = simulated.segment_files()
    simulated.disk.flip_bit(f"/store/{name}", 500, in_memory_too=False)
    simulated.disk.fail(fx.Sync, errno.EIO)
    with pytest.raises(DiskFault):
        simulated.put(CHUNK + 2, 5, SMALL)
    assert [replica.chunk for replica in simulated.lost] == [CHUNK]
    assert simulated.store.find(CHUNK) is None
    assert simulated.get(CHUNK + 1) == SMALL


@pytest.mark.evidence("fsync-fails")
def test_everyone_in_a_group_whose_fsync_failed_gets_the_error(simulated: SimulatedMachine) -> None:
    simulated.disk.fail(fx.Sync, errno.EIO, skip=1)
    writers = [write_chunk(simulated.store, CHUNK + number, 5, SMALL) for number in range(20)]
    outcomes = simulated.driver.run_all(writers)
    failed = [isinstance(outcome, DiskFault) for outcome in outcomes]
    assert 1 < sum(failed) < 20
    for number, is_failed in enumerate(failed):
        assert (simulated.store.find(CHUNK + number) is None) == is_failed
        if not is_failed:
            assert simulated.get(CHUNK + number) == SMALL


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kind", [fx.OpenLocalFile, fx.ReadAt, fx.CloseFile])
def test_a_read_that_fails_is_a_disk_fault_and_the_next_may_succeed(
    simulated: SimulatedMachine, content: bytes, kind: type[fx.Effect]
) -> None:
    simulated.put(CHUNK, 5, content)
    open_before = simulated.open_files()
    simulated.disk.fail(kind, errno.EIO)
    if kind is fx.CloseFile:
        simulated.get(CHUNK)
    else:
        with pytest.raises(DiskFault):
            simulated.get(CHUNK)
        assert simulated.open_files() == open_before
    assert simulated.get(CHUNK) == content


def test_a_part_of_a_segment_that_cannot_be_read_at_start_does_not_cost_the_rest(
    simulated: SimulatedMachine,
) -> None:
    for number in range(100):
        simulated.put(CHUNK + number, 5, SMALL)
    # The seal is searched at the end first; then the file is scanned.
    simulated.disk.fail(fx.ReadAt, errno.EIO, path="segments/", skip=1)
    simulated.start()
    assert 70 < len(simulated.store.replicas()) < 100
    assert all(simulated.get(replica.chunk) == SMALL for replica in simulated.store.replicas())


def test_a_store_whose_directory_cannot_be_listed_does_not_start(simulated: SimulatedMachine) -> None:
    simulated.disk.fail(fx.ListDirectory, errno.EIO)
    with pytest.raises(StartupError):
        simulated.start()


def test_a_disk_that_never_answers_is_a_fault_to_those_who_wait(simulated: SimulatedMachine) -> None:
    """The leader hangs in its fsync; followers give up in bounded time, and so does another seal of the chunk."""
    leader = write_chunk(simulated.store, CHUNK, 5, SMALL)
    effect = next(leader)
    while not isinstance(effect, fx.Sync):
        effect = leader.send(simulated.disk.perform(effect))
    outcomes = simulated.driver.run_all(
        [write_chunk(simulated.store, CHUNK, 5, SMALL), write_chunk(simulated.store, CHUNK + 1, 5, SMALL)]
    )
    assert [type(outcome) for outcome in outcomes] == [DiskFault, DiskFault]
    # When the disk answers after all, the leader's chunk exists, and the others can be written.
    simulated.disk.perform(effect)
    with pytest.raises(StopIteration):
        leader.send(None)
    assert simulated.get(CHUNK) == SMALL
    simulated.put(CHUNK + 1, 5, SMALL)


class GivenUpInFlight:
    """Version 6 of a chunk is in a hanging append, and its writer has given up. The store has no version."""

    def __init__(self, simulated: SimulatedMachine) -> None:
        self._disk = simulated.disk
        self._leader = write_chunk(simulated.store, CHUNK + 1, 5, SMALL)
        self._advance(self._leader, fx.Sleep)
        writer = write_chunk(simulated.store, CHUNK, 6, SMALL)
        self._advance(writer, fx.Wait)
        self._hangs = self._advance(self._leader, fx.Sync)
        with pytest.raises(DiskFault):
            writer.send(False)

    def _advance(self, steps: fx.Steps[object], until: type[fx.Effect]) -> fx.Effect:
        effect = next(steps)
        while not isinstance(effect, until):
            effect = steps.send(self._disk.perform(effect))
        return effect

    def resume(self) -> None:
        """Let the disk answer, which completes version 6."""
        self._disk.perform(self._hangs)
        with pytest.raises(StopIteration):
            self._leader.send(None)


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.evidence("disk-hangs")
def test_an_older_version_is_refused_when_one_that_was_given_up_is_there_after_all(
    simulated: SimulatedMachine, content: bytes
) -> None:
    given_up = GivenUpInFlight(simulated)
    older = simulated.store.stage(CHUNK, 5)
    given_up.resume()
    with pytest.raises(StaleVersion):
        simulated.run(simulated.store.seal(older, block_checksums(content), content))
    assert simulated.run(read_chunk(simulated.store, CHUNK)) == (6, SMALL)


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.evidence("disk-hangs")
def test_an_older_version_is_refused_when_one_that_was_given_up_comes_while_it_is_sealed(
    simulated: SimulatedMachine, content: bytes
) -> None:
    given_up = GivenUpInFlight(simulated)

    def until_resumed(steps: fx.Steps[object]) -> fx.Steps[object]:
        """Continue when the disk answers, as late as possible."""
        effect = next(steps)
        while not isinstance(effect, fx.Wait | fx.RenameFile):
            effect = steps.send((yield effect))
        given_up.resume()
        effect = steps.send(True if isinstance(effect, fx.Wait) else (yield effect))
        while True:
            effect = steps.send((yield effect))

    older = write_chunk(simulated.store, CHUNK, 5, content)
    with pytest.raises(StaleVersion):
        simulated.run(until_resumed(older))
    for _start in range(2):
        assert simulated.run(read_chunk(simulated.store, CHUNK)) == (6, SMALL)
        assert not simulated.chunk_files()
        simulated.start()
