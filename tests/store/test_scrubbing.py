"""The scrubber reads every replica within its period, continues after a restart, and reports corruption."""

from __future__ import annotations

import errno
from typing import TypeVar

import pytest
from store.machine import Machine, SimulatedMachine, data_of

from peacefs.datanode.disks.scrubber import Scrubber, scrub_batch_chunks, scrub_recheck_s
from peacefs.datanode.limits import scrub_cost_bytes_min, scrub_rest_s
from peacefs.datanode.store.replica_changes import ReplicaChanges
from peacefs.protocol.limits import KIB, MIB, packet_bytes, small_chunk_bytes_max
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx

T = TypeVar("T")

CHUNK = 1 << 40
PERIOD_S = 1000.0
RATE = 1 * MIB
SMALL, LARGE = 5000, small_chunk_bytes_max + 5000


class Scrubbing:
    """A scrubber of a machine's store, and a wall clock that advances while it rests."""

    def __init__(self, machine: Machine, now_s: float = 1_000_000.0) -> None:
        self.machine = machine
        self.now_s = now_s
        self.corrupt: list[Replica] = []
        #: Paths of files opened for reading, except its own.
        self.opened: list[str] = []
        self.restart()

    def restart(self) -> None:
        """Start a new process."""
        store, directory = self.machine.start(), self.machine.directory
        self.scrubber = Scrubber(store, directory, self.corrupt.append, period_s=PERIOD_S, bytes_per_second=RATE)

    def run(self, steps: fx.Steps[T]) -> T:
        return self.machine.run(self._timed(steps))

    def _timed(self, steps: fx.Steps[T]) -> fx.Steps[T]:
        """Answer requests for the time, and forward disk effects."""
        result: object = None
        fault: OSError | None = None
        try:
            while True:
                effect = steps.send(result) if fault is None else steps.throw(fault)
                result, fault = None, None
                if isinstance(effect, fx.WallClock):
                    result = self.now_s
                    continue
                is_opened = isinstance(effect, fx.OpenLocalFile) and not effect.create
                if is_opened or isinstance(effect, fx.ReadPart):
                    self.opened.append(effect.path.removeprefix(f"{self.machine.directory}/"))
                try:
                    result = yield effect
                except OSError as error:
                    fault = error
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def advance(self) -> float:
        rest_s = self.run(self.scrubber.advance())
        self.now_s += rest_s
        return rest_s

    @property
    def rounds_done(self) -> int:
        return self.scrubber.progress.rounds_done if self.scrubber.progress else 0

    def finish_round(self) -> None:
        rounds = self.rounds_done
        for _turn in range(10_000):
            if self.rounds_done > rounds:
                return
            self.advance()
        raise AssertionError("the round does not end")


@pytest.fixture
def scrubbing(machine: Machine) -> Scrubbing:
    return Scrubbing(machine)


def rot(machine: Machine, name: str, data: bytes) -> None:
    """Flip a bit in the middle of `data` on the disk."""
    machine.damage(name, machine.content(name).index(data) + len(data) // 2)


def test_a_round_reads_every_replica_small_and_large(scrubbing: Scrubbing, machine: Machine) -> None:
    for number in range(4):
        machine.put(CHUNK + number, 1, data_of(SMALL, number))
        machine.put(CHUNK + 10 + number, 1, data_of(LARGE, number))
    scrubbing.opened.clear()
    scrubbing.finish_round()
    read = [path for path in scrubbing.opened if path != "scrubbing.json"]
    assert read == machine.segment_files() * 4 + [
        path for number in range(4) for path in machine.chunk_files() if f"{CHUNK + 10 + number:016x}" in path
    ]
    assert scrubbing.corrupt == []
    assert machine.open_files() == 1, "that of the active segment"


def test_rotten_replica_is_reported_whether_small_or_large(
    scrubbing: Scrubbing, machine: Machine, content: bytes
) -> None:
    machine.put(CHUNK, 1, data_of(len(content), seed=1))
    machine.put(CHUNK + 1, 7, content)
    machine.put(CHUNK + 2, 1, data_of(len(content), seed=2))
    (name,) = [name for name in machine.files() if content in machine.content(name)]
    rot(machine, name, content)
    scrubbing.finish_round()
    assert set(scrubbing.corrupt) == {Replica(CHUNK + 1, 7, len(content))}


def test_a_replica_whose_file_is_gone_is_reported_as_removed(simulated: SimulatedMachine) -> None:
    scrubbing = Scrubbing(simulated)
    simulated.put(CHUNK, 1, data_of(LARGE))
    (name,) = simulated.chunk_files()
    simulated.disk.perform(fx.Remove(f"/store/{name}"))
    scrubbing.finish_round()
    assert simulated.lost == [Replica(CHUNK, 1, LARGE)]
    assert scrubbing.corrupt == []


def test_the_bandwidth_limit_holds_within_a_chunk_too(scrubbing: Scrubbing, machine: Machine) -> None:
    machine.put(CHUNK, 1, data_of(3 * packet_bytes + 70 * KIB))
    scrubbing.advance()
    rests = [scrubbing.advance() for _packet in range(4)]
    assert rests == [packet_bytes / RATE] * 3 + [70 * KIB / RATE]


def test_small_replicas_are_not_read_faster_than_a_disk_can_seek(scrubbing: Scrubbing, machine: Machine) -> None:
    for number in range(50):
        machine.put(CHUNK + number, 1, b"tiny")
    started_s = scrubbing.now_s
    scrubbing.finish_round()
    assert scrubbing.now_s - started_s >= 50 * scrub_cost_bytes_min / RATE


def test_a_round_that_is_done_early_is_followed_by_rest(scrubbing: Scrubbing, machine: Machine) -> None:
    machine.put(CHUNK, 1, data_of(SMALL))
    started_s = scrubbing.now_s
    scrubbing.finish_round()
    scrubbing.opened.clear()
    while scrubbing.now_s < started_s + PERIOD_S:
        assert scrubbing.advance() == scrub_rest_s
    assert scrubbing.opened == []
    scrubbing.finish_round()
    assert scrubbing.opened == machine.segment_files()


def test_more_replicas_than_a_batch_are_read_once_each(scrubbing: Scrubbing, machine: Machine) -> None:
    count = scrub_batch_chunks + 5
    for number in range(count):
        machine.put(CHUNK + number, 1, b"")
    scrubbing.opened.clear()
    scrubbing.finish_round()
    assert scrubbing.opened.count(machine.segment_files()[0]) == count


def test_a_restart_goes_on_with_what_was_verified_longest_ago(scrubbing: Scrubbing, machine: Machine) -> None:
    for number in range(20):
        machine.put(CHUNK + number, 1, data_of(LARGE, number))
    scrubbing.opened.clear()
    while f"{CHUNK + 12:016x}" not in "".join(scrubbing.opened):
        scrubbing.advance()
    scrubbing.run(scrubbing.scrubber.stop())
    assert machine.open_files() == 0
    scrubbing.restart()
    scrubbing.opened.clear()
    scrubbing.finish_round()
    numbers = [int(path[10:26], 16) - CHUNK for path in scrubbing.opened if path.startswith("chunks/")]
    assert numbers == list(range(12, 20)), "the one that it was reading is read from its start"


def test_a_process_that_is_killed_loses_a_minute_of_scrubbing_at_most(
    scrubbing: Scrubbing, machine: Machine
) -> None:
    for number in range(150):
        machine.put(CHUNK + number, 1, data_of(MIB, number)[:MIB])
    for _turn in range(100 * (1 + MIB // packet_bytes)):
        scrubbing.advance()
    assert scrubbing.scrubber.progress is not None
    reached = scrubbing.scrubber.progress.after
    scrubbing.restart()
    scrubbing.advance()
    assert scrubbing.scrubber.progress is not None
    assert reached - 61 <= scrubbing.scrubber.progress.after <= reached


@pytest.mark.parametrize("left", [b"", b"{", b'{"begins_s": "soon"}', b"\xff\xfe"])
def test_progress_that_cannot_be_read_begins_a_new_round(
    scrubbing: Scrubbing, machine: Machine, left: bytes
) -> None:
    machine.put(CHUNK, 1, data_of(SMALL))
    scrubbing.finish_round()
    machine.overwrite("scrubbing.json", left)
    scrubbing.restart()
    scrubbing.opened.clear()
    scrubbing.finish_round()
    assert machine.segment_files()[0] in scrubbing.opened


def test_a_clock_that_was_set_back_delays_the_next_round_by_a_period_at_most(
    scrubbing: Scrubbing, machine: Machine
) -> None:
    machine.put(CHUNK, 1, data_of(SMALL))
    scrubbing.finish_round()
    scrubbing.now_s -= 900_000.0
    began_s = scrubbing.now_s
    scrubbing.restart()
    scrubbing.finish_round()
    assert scrubbing.now_s <= began_s + PERIOD_S + 2 * scrub_rest_s


def test_a_corrupt_replica_that_stays_is_reported_again_and_ends_no_round(
    scrubbing: Scrubbing, machine: Machine
) -> None:
    """The coordinator may have restarted between the report and the order to delete."""
    data = data_of(LARGE)
    machine.put(CHUNK, 1, data)
    rot(machine, machine.chunk_files()[0], data)
    scrubbing.finish_round()
    reports = len(scrubbing.corrupt)
    until_s = scrubbing.now_s + scrub_recheck_s + 2 * scrub_rest_s
    while scrubbing.now_s < until_s:
        scrubbing.advance()
    assert len(scrubbing.corrupt) == reports + 1
    scrubbing.restart()
    for _turn in range(5):
        scrubbing.advance()
    assert len(scrubbing.corrupt) == reports + 2, "what was found is remembered on the disk"
    scrubbing.finish_round()


def test_a_corrupt_replica_that_was_replaced_is_forgotten(scrubbing: Scrubbing, machine: Machine) -> None:
    data = data_of(LARGE)
    machine.put(CHUNK, 1, data)
    rot(machine, machine.chunk_files()[0], data)
    scrubbing.finish_round()
    machine.put(CHUNK, 1, data)
    scrubbing.corrupt.clear()
    scrubbing.finish_round()
    assert scrubbing.corrupt == []
    assert scrubbing.scrubber.progress is not None
    assert scrubbing.scrubber.progress.corrupt == ()


def test_a_disk_that_fails_once_condemns_nothing_and_twice_does(simulated: SimulatedMachine) -> None:
    scrubbing = Scrubbing(simulated)
    simulated.put(CHUNK, 1, data_of(LARGE))
    simulated.disk.fail(fx.ReadAt, errno.EIO, path="chunks/")
    scrubbing.finish_round()
    assert scrubbing.corrupt == []
    scrubbing.now_s += PERIOD_S
    for _time in range(2):
        scrubbing.advance()
        simulated.disk.fail(fx.ReadAt, errno.EIO, path="chunks/")
    scrubbing.finish_round()
    assert set(scrubbing.corrupt) == {Replica(CHUNK, 1, LARGE)}


def test_rot_on_the_medium_is_found_behind_a_sound_cache(simulated: SimulatedMachine) -> None:
    scrubbing = Scrubbing(simulated)
    simulated.put(CHUNK, 1, data_of(LARGE))
    (name,) = simulated.chunk_files()
    simulated.disk.flip_bit(f"/store/{name}", 1000, in_memory_too=False)
    assert simulated.get(CHUNK) == data_of(LARGE)
    scrubbing.finish_round()
    assert set(scrubbing.corrupt) == {Replica(CHUNK, 1, LARGE)}


def test_a_full_disk_does_not_end_scrubbing(simulated: SimulatedMachine) -> None:
    scrubbing = Scrubbing(simulated)
    simulated.put(CHUNK, 1, data_of(SMALL))
    simulated.disk.fail(fx.AppendToFile, errno.ENOSPC, path="scrubbing")
    with pytest.raises(OSError, match="No space"):
        scrubbing.advance()
    scrubbing.finish_round()
    assert scrubbing.rounds_done == 1


def test_corrupt_replica_is_still_to_be_reported_after_a_full_report() -> None:
    changes = ReplicaChanges()
    changes.added(Replica(1, 1, 1))
    changes.corrupt(Replica(2, 1, 1))
    changes.forget()
    assert changes.take() == ([], [], [Replica(2, 1, 1)])
