"""One cell of HA's section 7: a unit with a technique, run several times through a failure and its recovery.

Three units run on nodes of their own, as in HA's Figure 1: the second unit fails, the first and the third pass
rows on. There are nodes for standbys and for recovery, too. By default the unit is HA's aggregate, of its Table 5.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cache
from statistics import mean, stdev
from typing import Literal

import pyarrow as pa

from benchmarks.dataflows.costs import Costs, Traffic, VirtualTimes
from benchmarks.dataflows.failures import KillRunning
from benchmarks.dataflows.outcome import Outcome
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow.advice.closed_forms import HA_FILTER_S, HAParameters, UnitLoad
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.functions import col, count
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.query.query import Query
from peacefs.dataflow.query.streams import Stream
from peacefs.dataflow.recovery.technique import Technique
from peacefs.protocol.limits import MIB

Kind = Literal["filter", "aggregate", "union"]

_UNIT = "second"
_NODES = 7
#: A guard acts at the first tick after its interval. Half a tick less makes that exactly the interval.
_TICK_S = 0.005
#: Placement, subscriptions and the rows that waited for them are done by then.
_BEGUN_S = 0.2
_BOUNDS = Bounds(page_bytes=8192, state_bytes_max=256 * MIB)
_SCHEMA = pa.schema([("at", TIME), ("value", pa.int64())])


@dataclass(frozen=True)
class Setup(HAParameters):
    """The operators of the failing unit, its load and environment."""

    kind: Kind = "aggregate"
    #: Number of aggregates in a chain.
    operators: int = 1
    #: Number of the unit's input rows, as a duration.
    window: int = 100
    advance: int = 10
    filter_s: float = HA_FILTER_S
    detection_s: float = 0.25
    #: Minimum time for which bytes are counted.
    counted_s: float = 0.5

    @property
    def sources(self) -> int:
        return 2 if self.kind == "union" else 1

    @property
    def operator_names(self) -> tuple[str, ...]:
        return tuple(f"operator {number + 1}" for number in range(self.operators))

    @property
    def operator_s(self) -> float:
        """The processor time of an operator per input row."""
        return self.filter_s * (self.window / self.advance if self.kind == "aggregate" else 1.0)

    @property
    def load(self) -> UnitLoad:
        """The load for the closed forms. After the first aggregate, rows come at its output rate."""
        aggregates = self.kind == "aggregate"
        # Rows that each operator receives per input row of the unit.
        share = 1 / self.advance if aggregates else 1.0
        given = [1.0, *(share for _ in range(self.operators - 1))]
        kept = sum(given) if aggregates else 0.0
        parameters = {field.name: getattr(self, field.name) for field in fields(HAParameters)}
        return UnitLoad(
            **parameters,
            selectivity=share,
            processing_s=sum(given) * self.operator_s,
            state_rows=float(self.window * self.operators) if aggregates else 0.0,
            # Queues between operators count like operators' states.
            state_rows_per_row=kept + sum(given[1:]),
            inputs=self.sources,
        )

    def network(self) -> Network:
        query = Query("reproduction")
        first = [
            query.source(f"in {at}", _SCHEMA, time="at").unit("first").map(_same, name=f"passed {at}")
            for at in range(self.sources)
        ]
        stream = first[0].unit(_UNIT)
        for name in self.operator_names:
            stream = self._operator(name, stream, first[1:])
        return stream.unit("third").map(_same, name="taken").sink("out").network()

    def _operator(self, name: str, stream: Stream, others: list[Stream]) -> Stream:
        match self.kind:
            case "filter":
                return stream.filter(col("value") >= 0, name=name)
            case "union":
                return stream.union(*others, name=name)
            case "aggregate":
                size, every = (timedelta(seconds=rows / self.rate) for rows in (self.window, self.advance))
                windows = stream.window(size, every)
                return windows.aggregate(count(), name=name)

    def costs(self, counted_from_s: float) -> Costs:
        return Costs(
            processing_s=dict.fromkeys(self.operator_names, self.operator_s),
            keeps_rows=frozenset(self.operator_names if self.kind == "aggregate" else ()),
            bandwidth_bits_s=self.bandwidth_bits_s,
            delay_s=self.delay_s,
            row_bytes=self.row_bytes,
            number_bytes=self.number_bytes,
            detection_s=self.detection_s,
            redirection_s=self.redirection_s,
            tick_s=_TICK_S,
            counted_from_s=counted_from_s,
        )


@dataclass(frozen=True)
class Measured:
    """Means over the runs of a cell."""

    recovery_s: float
    recovery_deviation_s: float
    #: Bytes for recovery, as a share of the unit's input bytes.
    bandwidth: float
    #: The same, but copies of state count with all bytes of their pages.
    bandwidth_of_pages: float
    runs: int


def measure(setup: Setup, technique: Callable[[float], Technique], runs: int) -> Measured:
    """Run a cell with the seeds from 1 on. `technique` makes a technique for an interval in seconds."""
    found = [_run(setup, technique(setup.interval_s - _TICK_S / 2), seed) for seed in range(1, runs + 1)]
    recoveries = [recovery_s for recovery_s, _, _ in found]
    return Measured(
        mean(recoveries),
        stdev(recoveries) if runs > 1 else 0.0,
        mean(each for _, each, _ in found),
        mean(each for _, _, each in found),
        runs,
    )


def _run(setup: Setup, technique: Technique, seed: int) -> tuple[float, float, float]:
    counted_from_s = _BEGUN_S + setup.operators * setup.window / setup.rate + 2 * setup.interval_s
    # The failure is at a random point of an interval, and of a window's advance.
    chance = random.Random(seed)
    counted_s = max(setup.counted_s, 4 * setup.interval_s) + chance.uniform(0, 0.2)
    seconds = counted_from_s + counted_s + setup.detection_s + 1.0
    rows = dict(_input(setup, int(seconds * setup.rate)))
    run = SeededRun(
        setup.network(),
        technique,
        rows,
        seed=seed,
        nodes=_NODES,
        failures=[KillRunning(counted_from_s + counted_s, _UNIT)],
        bounds=_BOUNDS,
        times=VirtualTimes(
            rows_every_s=setup.sources / setup.rate, store_s=setup.delay_s, costs=setup.costs(counted_from_s)
        ),
    )
    outcome = run.run(until_s=seconds + 10, until_recovered={_UNIT})
    plain, paged = _overheads(setup, outcome)
    return outcome.recovery_s[_UNIT], plain, paged


def _overheads(setup: Setup, outcome: Outcome) -> tuple[float, float]:
    """Return the share of bytes for recovery, and the same with whole pages."""
    streams = setup.network().unit(_UNIT).inputs
    ordinary = extra = copies = 0
    for flow, size in outcome.bytes.items():
        if flow.kind is Traffic.DATA and flow.subject in streams and flow.receiver == outcome.lost_node:
            ordinary += size
        elif flow.kind is Traffic.REPLICATION and flow.subject == _UNIT:
            copies += size
        elif flow.kind in (Traffic.DATA, Traffic.ACKNOWLEDGEMENT) and flow.subject in streams:
            extra += size
    pages = outcome.page_bytes.get(_UNIT, copies)
    return (extra + copies) / ordinary, (extra + pages) / ordinary


@cache
def _batches(rows: int, apart_us: int, first_us: int) -> list[pa.RecordBatch]:
    times = [first_us + number * apart_us for number in range(rows)]
    arrays = [pa.array(times, pa.int64()).cast(TIME), pa.array(range(rows), pa.int64())]
    whole = pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
    return [whole.slice(number, 1) for number in range(rows)]


def _input(setup: Setup, rows: int) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    """Yield batches of one row; the sources take turns."""
    apart_us = int(1e6 / setup.rate)
    for at in range(setup.sources):
        yield f"in {at}", _batches(rows // setup.sources, setup.sources * apart_us, at * apart_us)


def _same(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows
