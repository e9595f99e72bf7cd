"""The log of a unit under CEC, cut and corrupted: a load returns the committed state or reports the damage."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest
from support.dataflows import SCHEMA, Row, input_rows
from support.long_runs import often

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.core.bounds import Bounds, BufferBounds
from peacefs.dataflow.core.messages import Data, Subscribed
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.core.units.start import UnitStart
from peacefs.dataflow.core.units.unit import HAUnit
from peacefs.dataflow.hosts.checkpoint_store import MemoryCheckpoints
from peacefs.dataflow.hosts.unit_states import UnitStates
from peacefs.dataflow.logs.segments import MemorySegments, SegmentAppend
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.window_checkpoints.extent import CostBenefit, Extent, OpenOnly, Targets, WindowChoice
from peacefs.protocol.errors import CheckpointDamaged

_BOUNDS = Bounds(page_bytes=8192, state_bytes_max=1 << 26)
_BATCHES = 14


def counting() -> Network:
    query = Query("counting")
    windows = query.source("in", SCHEMA, time="at").key_by("key").count_window(3)
    windows.aggregate(F.sum("value"), F.count()).sink("out")
    return query.network()


def timing() -> Network:
    query = Query("timing")
    windows = query.source("in", SCHEMA, time="at").key_by("key").window("4s", every="2s")
    windows.aggregate(F.sum("value"), F.count()).sink("out")
    return query.network()


class Unit:
    """A start of a unit, which receives batches directly from the test."""

    def __init__(
        self, network: Network, store: MemoryCheckpoints, incarnation: int, choice: WindowChoice | None = None
    ) -> None:
        technique = CEC(choice or Targets(extent=1.0, replay_rows=10), period_s=0.01)
        recovery = QueryRecovery(network, technique)
        # Time advances at each reading, so that there is always time for some checks.
        clock = itertools.count()
        states = UnitStates(store, _BOUNDS, recovery, clock=lambda: next(clock) / 1000)
        plan = network.units[0]
        state = states.load(plan.name, (incarnation, 0))
        bounds = BufferBounds(1 << 30, 1 << 30, 1 << 30)
        self.unit = HAUnit(plan, recovery, state, UnitStart(incarnation), bounds)
        self._input = self.unit.inputs["in"]
        asked = self._input.subscribe(0.0, 1, 1.0)
        assert asked is not None
        self._subscription = asked.subscription
        self._input.subscribed(Subscribed("in", asked.subscription, asked.after, 0))
        self._commits = 0

    @property
    def processed(self) -> int:
        return self._input.processed.number

    def give(self, batch: Batch) -> None:
        self._input.accept(Data("in", self._subscription, batch))
        self.unit.process_all()

    def commit(self) -> None:
        self._commits += 1
        self.unit.capture(self._commits).start().result()

    def rows(self) -> dict[int, Row]:
        """Return the rows that consumers can get, by number."""
        (output,) = self.unit.outputs.values()
        return {
            batch.first + at: row
            for batch in output.buffer.held()
            for at, row in enumerate(zip(*(column.to_pylist() for column in batch.rows.columns), strict=True))
        }


def batches() -> list[Batch]:
    return [Batch(1 + 4 * at, rows) for at, rows in enumerate(input_rows(1, batches=_BATCHES, size=4))]


def played(
    network: Network, store: MemoryCheckpoints, until: int = _BATCHES, choice: WindowChoice | None = None
) -> Unit:
    """Run a unit that commits after every other batch."""
    unit = Unit(network, store, 1, choice)
    for at, batch in enumerate(batches()[:until]):
        unit.give(batch)
        if at % 2:
            unit.commit()
    return unit


def recovered(network: Network, store: MemoryCheckpoints) -> Unit:
    """Start the unit again, and process the rest of the input."""
    unit = Unit(network, store, 2)
    begin = unit.processed
    for batch in batches():
        fresh = batch.after(begin)
        if fresh is not None:
            unit.give(fresh)
    return unit


def last_segment(store: MemoryCheckpoints, part: str) -> tuple[MemorySegments, str, int, int]:
    segments = store.segments()
    (stream,) = [name for name in segments.streams() if name.endswith(part)]
    segment, length = segments.segments(stream)[-1]
    return segments, stream, segment, length


@pytest.mark.parametrize("network", [counting(), timing()], ids=lambda network: network.name)
@pytest.mark.parametrize("part", ["windows", "results"])
def test_log_of_a_unit_that_was_cut_at_any_byte_is_loaded_as_far_as_it_is_whole(
    network: Network, part: str
) -> None:
    """After a torn tail, the input since the last whole commit is processed again, with the same rows."""
    expected = played(network, MemoryCheckpoints()).rows()
    _, _, _, length = last_segment(_stored(network), part)
    # Of the output, only the last commit's rows may be torn: tuples are written after their rows are stored.
    least = 0 if part == "windows" else length
    assert length > 1000
    for cut in range(least, length + 1, length // often(7, 14)):
        store = _stored(network)
        segments, stream, segment, _ = last_segment(store, part)
        segments.truncate(stream, segment, cut)
        rows = recovered(network, store).rows()
        assert rows == expected, f"cut at byte {cut}"


def _stored(network: Network) -> MemoryCheckpoints:
    store = MemoryCheckpoints()
    played(network, store)
    return store


@pytest.mark.parametrize("network", [counting(), timing()], ids=lambda network: network.name)
def test_rotten_record_of_a_unit_is_said_and_gives_no_wrong_rows(network: Network) -> None:
    expected = played(network, MemoryCheckpoints()).rows()
    said = 0
    _, _, _, length = last_segment(_stored(network), "windows")
    places = range(0, length, length // often(7, 14))
    for at in places:
        store = _stored(network)
        segments, stream, segment, _ = last_segment(store, "windows")
        _spoil(segments, stream, segment, at)
        try:
            rows = recovered(network, store).rows()
        except CheckpointDamaged as rotten:
            said += "rotten" in rotten.message
        else:
            # If the length field of the last record is corrupt, the record looks torn.
            assert rows == expected, f"spoilt at byte {at}"
    assert said > len(places) // 2


def _spoil(segments: MemorySegments, stream: str, segment: int, at: int) -> None:
    (length,) = [length for number, length in segments.segments(stream) if number == segment]
    data = bytearray(segments.read(stream, segment, 0, length))
    data[at] ^= 0xFF
    segments.truncate(stream, segment, 0)
    segments.append_all([SegmentAppend(stream, segment, bytes(data))])


@pytest.mark.parametrize("crash_after", range(1, _BATCHES, 4))
@pytest.mark.parametrize("make", [counting, timing], ids=["counting", "timing"])
def test_unit_that_crashes_twice_begins_with_what_was_there(make: Callable[[], Network], crash_after: int) -> None:
    """The second start crashes before or after its first commit, so the third may load either log."""
    network = make()
    expected = played(network, MemoryCheckpoints()).rows()
    for commits in (False, True):
        store = MemoryCheckpoints()
        played(network, store, crash_after)
        second = Unit(network, store, 2)
        begin = second.processed
        for batch in batches()[: crash_after + 1]:
            fresh = batch.after(begin)
            if fresh is not None:
                second.give(fresh)
        if commits:
            second.commit()
        third = Unit(network, store, 3)
        begin = third.processed
        for batch in batches():
            fresh = batch.after(begin)
            if fresh is not None:
                third.give(fresh)
        assert third.rows() == expected


def test_log_of_the_start_before_goes_when_the_next_has_all_windows() -> None:
    store = MemoryCheckpoints()
    network = counting()
    played(network, store)
    before = set(store.segments().streams())
    second = recovered(network, store)
    assert set(store.segments().streams()) == before
    second.commit()
    assert not before & set(store.segments().streams())


def test_extent_is_bounded_by_checks_and_grows_without_them() -> None:
    """A rare key holds the extent back, unless its window is checked. Otherwise the whole log must be read."""
    rows = []
    for at in range(often(110, 200)):
        keys = ["slow"] if at == 0 else [f"key {at % 5}", f"key {(at + 1) % 5}"]
        times = pa.array([at] * len(keys)).cast(SCHEMA.field("at").type)
        rows.append(pa.record_batch([pa.array(keys), times, pa.array(range(len(keys)))], schema=SCHEMA))
    read = {}
    for choice in (OpenOnly(), Targets(extent=2.0, replay_rows=None), Targets(extent=None, replay_rows=20)):
        store = MemoryCheckpoints()
        unit = Unit(counting(), store, 1, choice)
        number = 1
        for batch in rows:
            unit.give(Batch(number, batch))
            number += batch.num_rows
            unit.commit()
        again = Unit(counting(), store, 2, choice)
        read[repr(choice)] = number - 1 - again.processed
    without, by_extent, by_rows = read.values()
    assert without == number - 2, "all since the first row"
    assert by_extent < 60
    assert by_rows <= 24


def test_choice_by_cost_and_benefit_checks_old_windows_when_failures_are_likely() -> None:
    def extent(age_s: float, windows: int = 10) -> Extent:
        return Extent(1000, 5000, 10**6, age_s, windows, tuples_saved=100, rows_saved=20_000)

    likely, seldom = CostBenefit(failures_per_day=24), CostBenefit(failures_per_day=0.001)
    assert likely.wants_check(extent(10)) and not seldom.wants_check(extent(10))
    assert seldom.wants_check(extent(1e5))
    assert not likely.wants_check(extent(0.0))
    assert not likely.wants_check(extent(10, windows=0))
    cheap = CostBenefit(failures_per_day=24, check_window_s=1e-9)
    dear = CostBenefit(failures_per_day=24, check_window_s=1.0)
    assert cheap.wants_check(extent(10)) and not dear.wants_check(extent(10))
