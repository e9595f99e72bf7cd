"""Balancing the disks of one datanode: chunks move from fuller to emptier disks.

No chunk gets lost, duplicated or resurrected, whenever the process is killed.
"""

from __future__ import annotations

import contextlib
import errno
from random import Random
from typing import Any

import pytest
from store.machine import read_chunk, write_chunk
from store.rack import CHUNK, LARGE, SMALL, Rack
from store.seeded_driver import PowerLoss, SeededDriver

from peacefs.datanode.disks.disk_balancer import BalancePhase, DiskBalancer
from peacefs.datanode.disks.disk_moves import DiskMoves
from peacefs.datanode.rate_limiter import CopyBudget
from peacefs.protocol.errors import ChunkError, ChunkNotFound, DiskFault, StaleVersion
from peacefs.protocol.limits import MIB, balance_failures_max, balance_silence_s
from peacefs.protocol.messages import BalanceDisks, DiskBalance, Replica
from peacefs.runtime import effects as fx

CONTENTS = pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
FAST = 1e12


class ClockedDriver(SeededDriver):
    """Also has a clock, which sleeps advance. The run is requested again meanwhile if `renew` does so."""

    now_s = 100.0
    slept_s = 0.0

    def renew(self) -> None:
        """Do not request the run again."""

    def _perform(self, effect: fx.Effect | None) -> Any:
        match effect:
            case fx.Now() | fx.WallClock():
                return self.now_s
            case fx.Sleep(seconds):
                self.now_s += seconds
                self.slept_s += seconds
                self.renew()
                return None
            case _:
                return super()._perform(effect)


class LopsidedRack(Rack):
    """A rack whose chunks are on disk 0, as if the other disks were new."""

    def __init__(self) -> None:
        self.corrupt: list[Replica] = []
        self.faults: list[ChunkError] = []
        self.balancer: DiskBalancer
        super().__init__()
        self.use()

    def use(self, seed: int = 1, lives: int | None = None) -> None:
        self.driver: ClockedDriver = ClockedDriver(self.medium, Random(seed), lives)

    def start(self):
        recovery = super().start()
        self.corrupt, self.faults = [], []
        self.balancer = DiskBalancer(
            self.set,
            lambda: self.driver.now_s,
            self.corrupt.append,
            on_fault=lambda _replica, fault: self.faults.append(fault),
        )
        return recovery

    def pile_up(self, chunks: int, data: bytes) -> None:
        self.rooms = [100 * MIB, 0, 0]
        self.fill(chunks, data)
        self.measure_rooms()
        assert self.counts() == [chunks, 0, 0]

    def measure_rooms(self) -> None:
        """Return the free space; all disks have one size."""
        self.rooms = [100 * MIB - disk.usage().used_bytes for disk in self.disks]

    def counts(self) -> list[int]:
        return [len(disk.store.replicas()) for disk in self.disks]

    def ask(
        self, run: str = "r", *, threshold: float = 0.0001, rate: float = FAST, cancel: bool = False
    ) -> DiskBalance:
        return self.balancer.asked(BalanceDisks(run, threshold, rate, cancel))

    def balance(self, run: str = "r", **options: float) -> DiskBalance:
        self.ask(run, **options)
        self.driver.run(self.balancer.advance())
        return self.ask(run, **options)

    def mover(self) -> DiskMoves:
        return DiskMoves(self.set, lambda: True)

    def move(self, replica: Replica, source: int = 0, target: int = 1) -> fx.Steps[bool]:
        return self.mover().move(replica, self.disks[source], self.disks[target], CopyBudget(FAST))

    def is_told_once(self, chunk: int) -> bool:
        return [replica.chunk for replica in self.set.replicas()].count(chunk) == 1


@pytest.fixture
def rack() -> LopsidedRack:
    return LopsidedRack()


@CONTENTS
def test_disks_that_are_filled_unevenly_come_to_hold_as_much(rack: LopsidedRack, content: bytes) -> None:
    chunks = 60 if content is SMALL else 30
    rack.pile_up(chunks, content)
    started = rack.ask()
    assert started.phase == "running" and started.bytes_left > 0
    status = rack.balance()
    moved = sum(rack.counts()[1:])
    assert status == DiskBalance("r", "balanced", moved * len(content), 0, moved, 0)
    assert max(rack.counts()) - min(rack.counts()) <= chunks // 10
    assert all(rack.get(CHUNK + number) == content for number in range(chunks))
    assert rack.lost == rack.corrupt == rack.faults == [] and rack.set._hidden == {}
    assert (rack.balancer.moved_total, rack.balancer.bytes_moved_total) == (moved, moved * len(content))
    spread = rack.counts()
    rack.driver.run(rack.set.close())
    rack.start()
    assert rack.counts() == spread
    rack.measure_rooms()
    assert rack.balance().moved == 0


@pytest.mark.parametrize("seed", range(3))
@CONTENTS
@pytest.mark.evidence("killed-in-disk-move")
def test_killed_at_any_moment_of_a_move_it_leaves_one_good_replica(content: bytes, seed: int) -> None:
    replica = Replica(CHUNK, 5, len(content))
    lives = 0
    while True:
        rack = LopsidedRack()
        rack.pile_up(1, content)
        rack.use(seed, lives)
        try:
            assert rack.driver.run(rack.move(replica)) is True
            break
        except PowerLoss:
            rack.medium.crash()
        rack.use(seed)
        rack.start()
        assert rack.is_told_once(CHUNK) and len(rack.holders(CHUNK)) == 1, f"killed before effect {lives}"
        assert rack.get(CHUNK) == content
        lives += 1
    assert lives > 3
    assert rack.holders(CHUNK) == [1]


@CONTENTS
@pytest.mark.evidence("killed-in-disk-move")
def test_between_the_copy_and_the_removal_one_of_the_two_counts_and_a_start_drops_one(
    rack: LopsidedRack, content: bytes
) -> None:
    """The process ends exactly when both are complete."""
    rack.pile_up(1, content)
    replica = Replica(CHUNK, 5, len(content))
    steps = rack.move(replica)
    # A scan of all replicas delays the removal.
    rack.set._listings += 1
    effect = next(steps)
    while not (isinstance(effect, fx.Sleep) and effect.seconds > 0):
        effect = steps.send(rack.driver._perform(effect))
    assert rack.holders(CHUNK) == [0, 1] and rack.is_told_once(CHUNK) and rack.get(CHUNK) == content
    rack.start()
    assert rack.holders(CHUNK) == [0] and rack.get(CHUNK) == content


@pytest.mark.parametrize("seed", range(40))
@CONTENTS
@pytest.mark.evidence("killed-in-disk-move")
def test_disk_balancing_changes_no_outcome_of_writes_reads_and_deletes(content: bytes, seed: int) -> None:
    random = Random(seed)
    rack = LopsidedRack()
    rack.pile_up(2, content)
    rack.use(seed)
    replica, newer = Replica(CHUNK, 5, len(content)), Random(7).randbytes(len(content) + 1)
    others = {
        "write": write_chunk(rack.set, CHUNK, 6, newer),
        "read": read_chunk(rack.set, CHUNK),
        "delete": rack.set.delete(CHUNK, 5),
    }
    chosen = random.sample(sorted(others), random.randint(1, 3))
    print(f"seed {seed}: {chosen}")
    done = rack.driver.run_all([rack.move(replica), *(others[each] for each in chosen)])
    outcomes = dict(zip(["move", *chosen], done, strict=True))
    called_off = isinstance(outcomes["move"], ChunkNotFound | StaleVersion)
    assert called_off or not isinstance(outcomes["move"], ChunkError), outcomes
    assert not any(isinstance(outcomes.get(name), ChunkError) for name in ("write", "delete")), outcomes
    if "read" in chosen and not isinstance(outcomes["read"], ChunkError):
        assert outcomes["read"] in [(5, content), (6, newer)]
    if chosen == ["read"]:
        assert outcomes["read"] == (5, content) and outcomes["move"] is True
    for _ in range(2):
        held = rack.set.find(CHUNK)
        if "write" in chosen:
            assert held == Replica(CHUNK, 6, len(newer)) and rack.get(CHUNK) == newer
        elif "delete" in chosen:
            assert held is None
        else:
            assert held == replica and rack.get(CHUNK) == content
        assert len(rack.holders(CHUNK)) == (held is not None)
        assert rack.set._hidden == {}
        rack.driver.run(rack.set.close())
        rack.start()
    assert rack.get(CHUNK + 1) == content


def test_a_full_report_names_every_replica_once_whenever_it_is_made(rack: LopsidedRack) -> None:
    rack.pile_up(1, LARGE)
    steps = rack.move(Replica(CHUNK, 5, len(LARGE)))
    effect = next(steps)
    with contextlib.suppress(StopIteration):
        while True:
            assert rack.is_told_once(CHUNK) and rack.set.find(CHUNK) is not None
            assert rack.set.chunks_after(0, 10) == [CHUNK]
            effect = steps.send(rack.driver._perform(effect))
    assert rack.holders(CHUNK) == [1] and rack.is_told_once(CHUNK)


@CONTENTS
def test_a_disk_that_has_no_room_after_all_costs_nothing(rack: LopsidedRack, content: bytes) -> None:
    rack.pile_up(4, content)
    rack.medium.fail(fx.AppendToFile, errno.ENOSPC, path="/disk-1")
    rack.medium.fail(fx.AppendToFile, errno.ENOSPC, path="/disk-2")
    status = rack.balance(threshold=1e-6)
    assert status.failed and all("No space" in fault.message for fault in rack.faults)
    assert all(rack.get(CHUNK + number) == content for number in range(4))
    assert rack.failed == [] and rack.lost == []


def test_one_failure_after_the_other_ends_a_run(rack: LopsidedRack) -> None:
    rack.pile_up(2 * balance_failures_max, SMALL)
    for _ in range(balance_failures_max):
        rack.medium.fail(fx.AppendToFile, errno.ENOSPC, path="/disk-1")
        rack.medium.fail(fx.AppendToFile, errno.ENOSPC, path="/disk-2")
    status = rack.balance()
    assert (status.phase, status.failed, status.moved) == ("failing", balance_failures_max, 0)


def test_a_replica_that_has_rotted_is_reported_and_not_moved(rack: LopsidedRack) -> None:
    rack.pile_up(3, LARGE)
    path = next(path for path, _ in rack.medium.files() if f"{CHUNK + 1:016x}" in path)
    rack.medium.flip_bit(path, 1000)
    rack.balance()
    assert [replica.chunk for replica in rack.corrupt] == [CHUNK + 1]
    assert rack.holders(CHUNK + 1) == [0] and rack.counts()[0] >= 1
    assert rack.get(CHUNK) == LARGE and rack.get(CHUNK + 2) == LARGE


def test_a_target_that_fails_for_good_in_the_middle_costs_what_it_held_and_no_more(rack: LopsidedRack) -> None:
    rack.pile_up(6, LARGE)
    steps = rack.move(Replica(CHUNK, 5, len(LARGE)))
    # A scan of all replicas is running, so the complete copy does not count yet.
    rack.set._listings += 1
    effect = next(steps)
    while not (isinstance(effect, fx.Sleep) and effect.seconds > 0):
        effect = steps.send(rack.driver._perform(effect))
    assert rack.holders(CHUNK) == [0, 1] and rack.is_told_once(CHUNK)
    rack.medium.break_down("/disk-1")
    rack.driver.run(rack.set._examine(rack.disks[1]))
    assert rack.failed == [("/disk-1", 0)] and rack.lost == [], "what did not count is not lost"
    rack.set._listings -= 1
    with pytest.raises(DiskFault):
        rack.driver.run(steps)
    assert rack.get(CHUNK) == LARGE and rack.set._hidden == {}


# -- runs ------------------------------------------------------------------------------------------------


def test_a_run_keeps_to_its_rate(rack: LopsidedRack) -> None:
    rack.pile_up(3, LARGE)
    rack.driver.renew = lambda: rack.ask(rate=MIB)  # type: ignore[method-assign]
    assert rack.balance(rate=MIB).phase == "balanced"
    assert rack.counts() == [1, 1, 1]
    # An unused budget may be used later at once, up to one packet.
    assert 0.9 <= rack.driver.slept_s <= 2.0


def test_a_run_that_nobody_asks_for_any_more_ends_and_leaves_no_half(rack: LopsidedRack) -> None:
    rack.pile_up(9, LARGE)
    rack.ask()
    rack.driver.now_s += balance_silence_s + 1
    rack.driver.run(rack.balancer.advance())
    assert rack.ask().phase == BalancePhase.ABANDONED.value and rack.counts() == [9, 0, 0]
    assert rack.balance("another").phase == "balanced"


def test_one_run_at_a_time_and_a_cancelled_one_begins_nothing(rack: LopsidedRack) -> None:
    rack.pile_up(9, LARGE)
    assert rack.ask("first").run == "first"
    assert rack.ask("second").run == "first"
    assert rack.ask("first", cancel=True).phase == "cancelled"
    rack.driver.run(rack.balancer.advance())
    assert rack.counts() == [9, 0, 0]
    assert rack.ask("third", cancel=True).phase == "cancelled"
    assert rack.ask("second").run == "second"


def test_a_datanode_that_stops_gives_up_what_is_under_way(rack: LopsidedRack) -> None:
    rack.pile_up(9, LARGE)
    rack.ask()
    rack.balancer.stop()
    rack.driver.run(rack.balancer.advance())
    assert rack.counts() == [9, 0, 0]


def test_disks_that_take_nothing_take_no_part(rack: LopsidedRack) -> None:
    rack.pile_up(9, LARGE)
    rack.medium.break_down("/disk-2")
    rack.driver.run(rack.set._examine(rack.disks[2]))
    assert rack.balance().phase in ("balanced", "stuck")
    assert rack.counts()[0] in (4, 5) and rack.counts()[2] == 0
