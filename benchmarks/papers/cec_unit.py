"""A unit under continuous eventual checkpointing, driven by hand, because CEC's figures measure its inside.

One process: batches of rows go into the unit, and a thread writes its log to a directory. After a crash, which
drops the unit, a new unit loads the log and replays; this is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.core.bounds import Bounds, BufferBounds
from peacefs.dataflow.core.messages import Ack, Data, Subscribe, Subscribed, Subscription
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.core.units.start import UnitStart
from peacefs.dataflow.core.units.unit import HAUnit
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.unit_states import UnitStates
from peacefs.dataflow.logs.segments import MemorySegments, SegmentAppend, SegmentStore
from peacefs.dataflow.model.batches import OLDEST, Batch, Position
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.unit_state.interface import StateCapture
from peacefs.dataflow.window_checkpoints.windowed_state import WindowedState
from peacefs.state.checkpoints.outcome import RunningCheckpoint

#: As in the paper: an item, its price, the time of purchase.
SCHEMA = pa.schema([("item_id", pa.int64()), ("item_time", TIME), ("item_price", pa.int64())])
BATCH_ROWS = 8192
#: The size of a tuple in the paper, to convert its replayed bytes to rows.
PAPER_TUPLE_BYTES = 100


def prices(window_rows: int) -> Network:
    """Average the prices and count the items over windows of an item's rows; give also when each window was
    opened.
    """
    query = Query("prices")
    windows = query.source("sales", SCHEMA, time="item_time").key_by("item_id").count_window(window_rows)
    windows.aggregate(F.mean("item_price"), F.min("item_time").alias("opened")).sink("prices")
    return query.network()


def sales(items: int, count: int, seed: int = 1) -> list[pa.RecordBatch]:
    """Return rows of random items. Their time is filled in when they are offered."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(max(count // BATCH_ROWS, 1)):
        columns = [
            pa.array(random.integers(0, items, BATCH_ROWS)),
            pa.array(np.zeros(BATCH_ROWS, np.int64)).cast(TIME),
            pa.array(random.integers(1, 1000, BATCH_ROWS)),
        ]
        made.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return made


@dataclass
class Totals:
    rows: int = 0
    results: int = 0
    opens: int = 0
    checks: int = 0
    closes: int = 0
    commits: int = 0
    seconds: float = 0.0
    processor_s: float = 0.0
    #: The longest time for which a commit delayed the unit.
    pause_s: float = 0.0
    #: (seconds from the start, seconds from the opening of a window to its closure), for each batch of results
    responses: list[tuple[float, float]] = field(default_factory=list)
    #: (seconds from the start, extent in tuples), at each commit
    extents: list[tuple[float, int]] = field(default_factory=list)


class _NoSegments(MemorySegments):
    def append_all(self, appends: Sequence[SegmentAppend]) -> None:
        """Write nothing."""


class _Nowhere(DirectoryCheckpoints):
    def segments(self) -> SegmentStore:
        return _NoSegments()


class DrivenUnit:
    def __init__(
        self,
        root: Path,
        network: Network,
        technique: Technique,
        *,
        incarnation: int = 1,
        persist: bool = True,
        commit_s: float = 0.05,
    ) -> None:
        """Without `persist`, make the records of commits but do not write them."""
        self._network, self._technique = network, technique
        self._plan = network.units[0]
        self._commit_s = commit_s
        self._threads = ThreadPoolExecutor(1)
        checkpoints = DirectoryCheckpoints(root) if persist else _Nowhere(root)
        recovery = QueryRecovery(network, technique)
        states = UnitStates(checkpoints, Bounds(), recovery, clock=time.monotonic, threads=self._threads)
        begun, processor = time.perf_counter(), time.process_time()
        name = self._plan.name
        loads = technique.windows is not None
        self._state = states.load(name, (incarnation, 0)) if loads else states.new(name)
        self.unit = HAUnit(
            self._plan,
            recovery,
            self._state,
            UnitStart(incarnation),
            BufferBounds(1 << 30, 1 << 30, 1 << 40),
        )
        #: Seconds to read the log and load it into the operator.
        self.load_s = time.perf_counter() - begun
        self.load_processor_s = time.process_time() - processor
        self._input = self.unit.inputs["sales"]
        self._subscription = self._subscribe()
        (self._output,) = self.unit.outputs.values()
        self._consumer = network.consumers[self._output.stream][0]
        # Without a connected consumer, Amnesia drops the output.
        connection = Subscription(self._consumer, 1, 1)
        self._output.subscribe("sink", Subscribe(self._output.stream, connection, incarnation, OLDEST, 1 << 60))
        self._capture: tuple[StateCapture, RunningCheckpoint] | None = None
        self._captures = 0
        self._committed_s = 0.0
        self._acked = 0
        self.totals = Totals()

    @property
    def windowed(self) -> WindowedState:
        assert isinstance(self._state, WindowedState)
        return self._state

    def _subscribe(self) -> object:
        asked = self._input.subscribe(0.0, 1, 1.0)
        assert asked is not None
        self._input.subscribed(Subscribed("sales", asked.subscription, asked.after, 0))
        return asked.subscription

    def offer(self, first: int, rows: pa.RecordBatch) -> None:
        """Process a batch, and take the output like a sink."""
        self._input.accept(Data("sales", self._subscription, Batch(first, rows)))  # type: ignore[arg-type]
        self.unit.process_all()
        self._take()
        self.totals.rows += rows.num_rows

    def play(self, batches: Iterator[pa.RecordBatch], seconds: float, rows_per_s: float | None = None) -> None:
        """Process batches for a given time, at full speed or at a rate, with commits at their intervals."""
        begun, processor = time.perf_counter(), time.process_time()
        offered = self._input.processed.number
        start = offered
        while (now := time.perf_counter() - begun) < seconds:
            if rows_per_s is not None and offered - start > now * rows_per_s:
                self._tick(now)
                time.sleep(0.0005)
                continue
            rows = next(batches)
            stamped = pa.array(np.full(rows.num_rows, int(now * 1e6))).cast(TIME)
            self.offer(offered + 1, rows.set_column(1, "item_time", stamped))
            offered += rows.num_rows
            self._note_responses(now)
            self._tick(now)
        self.totals.seconds += time.perf_counter() - begun
        self.totals.processor_s += time.process_time() - processor

    def finish(self) -> None:
        """Wait for the running commit."""
        if self._capture is not None:
            self._capture[1].result()
            self._capture = None
        self._threads.shutdown()

    # -- internal ---------------------------------------------------------------------------------------

    def _take(self) -> None:
        produced = self._output.buffer.produced
        self._fresh = [sent.batch for _, sent in self._output.due() if isinstance(sent, Data)]
        self.totals.results += produced - self._acked
        self._acked = produced
        if self._fresh:
            position = Position(self._output.lineage, produced)
            self._output.ack(Ack(self._output.stream, self._consumer, 1, RowStage.SAFE, position))

    def _note_responses(self, now: float) -> None:
        for batch in self._fresh:
            opened = batch.rows.column("opened").cast(pa.int64()).to_numpy()
            self.totals.responses.append((now, now - float(opened.mean()) / 1e6))

    def _tick(self, now: float) -> None:
        if self._technique.windows is None:
            return
        if self._capture is not None:
            if not self._capture[1].done:
                return
            self._capture[1].result()
            self._capture = None
        if now - self._committed_s < self._commit_s:
            return
        self._committed_s = now
        self._captures += 1
        capture = self.unit.capture(self._captures)
        self.totals.pause_s = max(self.totals.pause_s, capture.pause_s)
        self._capture = (capture, capture.start())
        extent = self.windowed.extent
        self.totals.opens += extent.opens
        self.totals.checks += extent.checks
        self.totals.closes += extent.closes
        self.totals.commits += 1
        self.totals.extents.append((now, extent.tuples))


def endless(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while True:
        yield from batches
