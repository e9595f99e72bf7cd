"""Join of two streams: pairs of rows with equal keys, and times that differ by at most a window or an interval.

The result must not depend on the order of arrival. So the join takes the rows of both inputs in the order of their
*progress*, the latest time that their stream had reached; with equal progress the left row comes first. A row
waits until the other input has come as far. A pair is emitted when the later of its two rows is taken, and has the
later of their times. A row that arrives later than its stream's declared lateness may miss pairs, because the rows
it should have met may be gone.

An outer join also emits rows without a pair, once no later row can be their partner: before the first taken row
whose progress is beyond that. Until then it keeps the rows that they could have met.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.model.timing import Timing, together
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .input_progress import InputProgress
from .interface import OperatorSpecification
from .join_pairs import ABSENT, ORDER, PROGRESS, Nearness, Places, joined_rows
from .keys import check_keys
from .row_times import EARLIEST_US, ENDED_US, times_of
from .stamps import CountedStamps

_SIDES: Final = ("left", "right")
#: For each kind of join, the sides whose rows appear even without a pair.
PRESERVED: Final = {"inner": (), "left": (0,), "right": (1,), "full": (0, 1)}


@dataclass(frozen=True)
class JoinWindow(OperatorSpecification):
    kind: ClassVar[str] = "join"
    judges_times: ClassVar[bool] = True
    keys: tuple[str, ...]
    within_us: int
    #: The bounds of the right time minus the left one, if they are not `-within_us` and `within_us`.
    between_us: tuple[int, ...] = ()
    #: Which rows appear without a pair: "left", "right" or "full". None: only pairs.
    how: str | None = None
    lateness_us: int | None = None
    #: For each input, after how long without rows it holds the other back no more; empty if none is ever idle.
    idle_us: tuple[int | None, ...] = ()

    @property
    def operator_class(self) -> OperatorClass:
        if self.wants_time:
            return OperatorClass.ARBITRARY
        return OperatorClass.REPEATABLE if self.how is None else OperatorClass.CONVERGENT_CAPABLE

    @property
    def wants_time(self) -> bool:
        return any(self.idle_us)

    @property
    def bounds_causes(self) -> bool:
        return not self.wants_time

    @property
    def bounds_us(self) -> tuple[int, int]:
        if not self.between_us:
            return -self.within_us, self.within_us
        lower, upper = self.between_us
        return lower, upper

    def output_timing(self, inputs: Sequence[Timing]) -> Timing:
        both, (lower, upper) = together(inputs), self.bounds_us
        waits = [max(0, -lower if port else upper) + both.lateness_us for port in PRESERVED[self.how or "inner"]]
        return Timing(both.lateness_us + max(waits, default=0), both.idle_us)

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        left, right = inputs
        check_joined_keys(self.keys, left, right)
        if self.bounds_us[0] > self.bounds_us[1]:
            raise InvalidQuery("join(between=(...)): the first duration must be the lower one")
        added = [field for field in right.schema if field.name not in (*self.keys, right.time)]
        twice = [field.name for field in added if field.name in left.schema.names]
        if twice:
            raise InvalidQuery(f"join: both streams have {names_of(twice)}; rename on one side with select")
        return StreamType(pa.schema([*left.schema, *added]), left.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Join(self, inputs, self.output_type(inputs).schema, state)


def check_joined_keys(keys: Sequence[str], left: StreamType, right: StreamType) -> None:
    """Raise InvalidQuery unless both streams have these columns, of the same types."""
    check_keys(keys, left, "join")
    check_keys(keys, right, "join")
    for key in keys:
        if left.schema.field(key).type != right.schema.field(key).type:
            raise InvalidQuery(
                f"join by {key!r}: its type is {left.schema.field(key).type} on the left and "
                f"{right.schema.field(key).type} on the right; cast one with select"
            )


class _Join(Operator):
    """The running operator: rows wait for the other input, are taken in one order, and meet its window.

    The pairs and their order do not depend on how rows of the two inputs interleave. A row leaves the window when
    no later row of the other input can be near enough. Its unit calls it, one batch at a time.
    """

    def __init__(
        self, of: JoinWindow, inputs: Sequence[StreamType], schema: pa.Schema, state: OperatorState
    ) -> None:
        self._times = (inputs[0].time, inputs[1].time)
        self._lateness_us = of.lateness_us or 0
        self._near = Nearness(of.keys, self._times, *of.bounds_us, self._lateness_us)
        self._preserved = PRESERVED[of.how or "inner"]
        self._schema = schema
        extra = [pa.field(PROGRESS, pa.int64()), pa.field(ORDER, pa.int64())]
        schemas = [pa.schema([*stream.schema, *extra]) for stream in inputs]
        #: Rows that wait for the other input, and rows that later rows may join.
        self._waiting = [state.rows(f"{side} waiting", one) for side, one in zip(_SIDES, schemas, strict=True)]
        self._window = [state.rows(f"{side} window", one) for side, one in zip(_SIDES, schemas, strict=True)]
        self._progress = InputProgress(state, 2, of.idle_us)
        # Rows are counted as they are taken, so that pairs can be ordered.
        self._taken = state.cell("taken", 0)
        # Progress up to which rows were taken; with it, which rows without a pair were emitted.
        self._reached = state.cell("reached", EARLIEST_US) if self._preserved else None
        self._late = state.cell("late", 0)
        self._stamps = [CountedStamps(), CountedStamps()]

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        times = times_of(rows, self._times[port])
        maxima = self._progress.advance(port, times)
        self._late.set(self._late.get() + int(np.count_nonzero(times < maxima - self._lateness_us)))
        self._stamps[port].add(self.stamp, rows.num_rows)
        unordered = pa.array(np.zeros(rows.num_rows, dtype=np.int64))
        columns = [*rows.columns, pa.array(maxima), unordered]
        self._waiting[port].append(pa.RecordBatch.from_arrays(columns, [*rows.schema.names, PROGRESS, ORDER]))
        return self._take()

    def end(self, port: int) -> Iterable[Rows]:
        self._progress.end(port)
        return self._take()

    def on_time(self, now_us: int) -> Iterable[Rows]:
        return self._take() if self._progress.on_time(now_us) else ()

    def oldest(self, port: int) -> int | None:
        return self._stamps[port].oldest

    @property
    def late_rows(self) -> int:
        return int(self._late.get())

    def _take(self) -> Iterable[Rows]:
        """Take the rows that no later row can precede, and return their pairs."""
        left_progress, right_progress = self._progress.of()
        # A left row precedes a right row with the same progress.
        ready = [
            self._split(0, compute.less_equal(self._waiting[0].table().column(PROGRESS), right_progress)),
            self._split(1, compute.less(self._waiting[1].table().column(PROGRESS), left_progress)),
        ]
        over = min(left_progress, right_progress) == ENDED_US
        if not ready[0].num_rows and not ready[1].num_rows and not (over and self._preserved):
            return ()
        new = self._number(ready)
        windows = [self._window[port].table() for port in (0, 1)]
        sides = [pa.concat_tables([windows[port], new[port]]) for port in (0, 1)]
        left, right = self._near.pairs(sides[0], sides[1], (windows[0].num_rows, windows[1].num_rows))
        orders = [side.column(ORDER).to_numpy()[at] for side, at in zip(sides, (left, right), strict=True)]
        # A row without a pair comes before the pairs of the row that it has waited for.
        found: list[tuple[Places, ...]] = [
            (left, right, np.maximum(*orders), np.ones(len(left), np.int64), np.minimum(*orders))
        ]
        floor_us = min(left_progress, right_progress)
        if self._reached is not None:
            before_us, floor_us = self._reached.get(), ENDED_US if over else self._reached_with(new)
            self._reached.set(floor_us)
            found += [self._alone(port, sides, new, before_us, floor_us) for port in self._preserved]
        self._taken.set(self._taken.get() + new[0].num_rows + new[1].num_rows)
        self._keep(sides, new, floor_us)
        left, right, position, rank, order = (np.concatenate(each) for each in zip(*found, strict=True))
        sequence = np.lexsort((order, rank, position))
        places = (left[sequence], right[sequence])
        return joined_rows(self._schema, self._near.keys, sides, self._times, places)

    def _split(self, port: int, mask: pa.ChunkedArray) -> pa.Table:
        """Remove the rows of `mask` (the first ones) from the waiting rows, and return them."""
        count = _number_of(mask)
        ready = self._waiting[port].table().slice(0, count)
        self._waiting[port].drop(count)
        return ready

    def _number(self, ready: Sequence[pa.Table]) -> list[pa.Table]:
        progress = np.concatenate([table.column(PROGRESS).to_numpy() for table in ready])
        port = np.concatenate([np.full(table.num_rows, at) for at, table in enumerate(ready)])
        ranks = np.empty(len(progress), dtype=np.int64)
        # Stable sort, so that rows of one input keep their order.
        ranks[np.lexsort((port, progress))] = np.arange(len(progress)) + self._taken.get()
        numbered, begin = [], 0
        for table in ready:
            order = pa.array(ranks[begin : begin + table.num_rows])
            numbered.append(table.set_column(table.schema.get_field_index(ORDER), ORDER, order))
            begin += table.num_rows
        return numbered

    def _reached_with(self, new: Sequence[pa.Table]) -> int:
        assert self._reached is not None
        taken = [compute.max(table.column(PROGRESS)).as_py() for table in new if table.num_rows]
        return int(max([self._reached.get(), *taken]))

    def _alone(
        self, port: int, sides: Sequence[pa.Table], new: Sequence[pa.Table], before_us: int, until_us: int
    ) -> tuple[Places, ...]:
        """Return the rows of a side that have got no pair by now, each with the place where it is emitted.

        A row is decided when the progress is beyond that of its last possible partner.
        """
        near = self._near
        deadlines = sides[port].column(PROGRESS).to_numpy() + near.wait_us(port)
        decided = np.flatnonzero((deadlines >= before_us) & (deadlines < until_us))
        first = int(decided[0]) if len(decided) else 0
        candidates = sides[port].slice(first, len(decided))
        both = (candidates, sides[1]) if port == 0 else (sides[0], candidates)
        paired = near.pairs(*both, (0, 0))[port] + first
        alone = np.setdiff1d(decided, paired)
        taken = pa.concat_tables([table.select([PROGRESS, ORDER]) for table in new]).sort_by(ORDER)
        progress, order = taken.column(PROGRESS).to_numpy(), taken.column(ORDER).to_numpy()
        after = np.searchsorted(progress, deadlines[alone], side="right")
        position = np.append(order, self._taken.get() + len(order))[after]
        places = (alone, np.full(len(alone), ABSENT))
        own = sides[port].column(ORDER).to_numpy()[alone]
        return *(places if port == 0 else places[::-1]), position, np.zeros(len(alone), np.int64), own

    def _keep(self, sides: Sequence[pa.Table], new: Sequence[pa.Table], floor_us: int) -> None:
        """Keep the new rows, and drop the rows that can be of no further use. These come first."""
        near = self._near
        for port, side in enumerate(sides):
            useful_us = near.wait_us(port)
            if 1 - port in self._preserved:
                # Needed until the rows that they could have met are decided.
                useful_us += near.wait_us(1 - port)
            for batch in new[port].combine_chunks().to_batches():
                self._window[port].append(batch)
            gone = _number_of(compute.less(side.column(PROGRESS), floor_us - useful_us))
            self._window[port].drop(gone)
            self._stamps[port].drop(gone)


def _number_of(mask: pa.ChunkedArray) -> int:
    return int(compute.sum(mask).as_py() or 0)
