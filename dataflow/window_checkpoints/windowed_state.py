"""The state of a unit under continuous eventual checkpointing (CEC, II and III).

Structures are in memory. A log makes them durable: a *commit* is written to it from time to time. A commit has the
rows that the unit has emitted since the last one, and a tuple for each window that has opened (*open*) or closed
since. It also has new tuples for windows with old ones (*check*), as many as time and targets allow. To load a
state, the log is read backwards from its end until each open window was found once.

The first commit of a start has all windows, so that the logs of earlier starts may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from peacefs.dataflow.model.batches import Batch, Position
from peacefs.dataflow.model.operator import Operator
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.interface import (
    ROWS_OF,
    Accumulator,
    Cell,
    Groups,
    NumberedRows,
    RowQueue,
    UnitState,
    ValueMap,
)
from peacefs.state.checkpoints.outcome import PublishedPages, RunningCheckpoint
from peacefs.state.structures.unordered_map import UnorderedMap

from .commit_moments import CommitMoment, CommitMoments
from .commit_parts import WindowChecks, all_windows, changed_windows
from .commits import LoadedLog, UnitLog, WindowCommit
from .contents import WindowContents
from .control_tuples import CommitDetail, CommitPlace, TupleKind, commit_rows, stream_type
from .extent import CheckPolicy
from .footprints import COMMIT_OF_WINDOW, Footprints
from .logged_results import LoggedResults
from .replay import Replay


@dataclass(frozen=True)
class UnitWindows:
    """The windows of a unit: the name of the operator that has windows (None if none has), and their contents."""

    operator: str | None
    contents: WindowContents


@dataclass
class ExtentNow:
    """The extent of the last commit, for measurements."""

    open_windows: int = 0
    tuples: int = 0
    rows: int = 0
    opens: int = 0
    checks: int = 0
    closes: int = 0
    capture_s: float = 0.0


@dataclass
class _Loaded:
    edges: Mapping[str, Any] | None = None
    cells: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Sequence[Batch]] = field(default_factory=dict)
    #: For each output, the last emitted row, and the last row that nobody needs.
    last: Mapping[str, int] = field(default_factory=dict)
    floors: Mapping[str, int] = field(default_factory=dict)


class WindowedState:
    """The state of one unit under CEC: structures in pages, and a log that makes them durable.

    At most one commit is under way, and no commit is made during a replay. Producers must keep the rows after
    `covered`, whatever fails. `UnitStates` makes it, empty or from a log. Operators and the unit use it like any
    `UnitState`; the unit also uses its `journal`.
    """

    def __init__(
        self,
        pages: UnitState,
        log: UnitLog,
        windows: UnitWindows,
        inputs: Sequence[str],
        outputs: Mapping[str, StreamType],
        checks: CheckPolicy,
        clock: Callable[[], float],
        loaded: LoadedLog | None = None,
    ) -> None:
        self._pages, self._log = pages, log
        self._contents, self._operator = windows.contents, windows.operator
        self._policy, self._clock = checks, clock
        self._cells: dict[str, Cell] = {}
        self._results_types = outputs
        self._footprints: Footprints | None = None
        self.replay: Replay | None = None
        self._loaded = _Loaded()
        self._outputs: dict[str, LoggedResults] = {}
        start = CommitPlace(0, {name: [0, 0, False] for name in inputs}, {})
        self._number = 0
        if loaded is not None:
            start = loaded.detail.since
            self._number = loaded.detail.place.commit
            self._begin_from(loaded)
        self._seen, self.tuples_read = (None, 0) if loaded is None else (loaded.seen, loaded.tuples)
        self._next_tuple = 1
        #: Commits from the oldest footprint on.
        self._moments = CommitMoments(
            CommitMoment(start, 1, _rows_of(start.inputs), clock(), self._contents.marks())
        )
        self._begins = True
        self._durable: Mapping[str, Position] = _positions(start.inputs)
        self._checked_s = clock()
        self._capturing = self._hurries = False
        self.extent = ExtentNow()

    # -- structures -----------------------------------------------------------------------------------------

    def cell(self, name: str, initial: Any) -> Cell:
        cell = self._cells[name] = self._pages.cell(name, self._loaded.cells.get(name, initial))
        return cell

    def rows(self, name: str, schema: pa.Schema) -> RowQueue:
        inner = self._pages.rows(name, schema)
        own = self._own(name)
        return inner if own is None else self._contents.rows(own, inner)

    def numbered_rows(self, name: str, schema: pa.Schema) -> NumberedRows:
        stream = name.removeprefix(ROWS_OF)
        loaded = self._loaded
        output = LoggedResults(
            loaded.results.get(stream, ()), loaded.last.get(stream, 0), loaded.floors.get(stream, 0)
        )
        self._outputs[stream] = output
        return output

    def groups(self, name: str, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        own = self._own(name)
        if own is None:
            return self._pages.groups(name, keys, accumulators)
        if self._footprints is None:
            self._footprints = Footprints()
            if self.replay is not None:
                if not self.replay.over and self._seen is not None:
                    seen = self._pages.groups("seen", keys, [COMMIT_OF_WINDOW])
                    self.replay.remember(self._seen, seen)
                self._contents.begin(self.replay)
            self._seen = None
        inner = self._pages.groups(name, keys, self._contents.accumulators(own, accumulators))
        return self._contents.groups(own, inner, keys, accumulators)

    def table(self, name: str, schema: pa.Schema, key: Sequence[str]) -> UnorderedMap:
        return self._pages.table(name, schema, key)

    def mapping(self, name: str) -> ValueMap:
        return self._pages.mapping(name)

    @property
    def memory_bytes(self) -> int:
        return self._pages.memory_bytes

    def edges(self) -> Mapping[str, Any] | None:
        return self._loaded.edges

    # -- the unit's journal ---------------------------------------------------------------------------------

    @property
    def uncovered_rows(self) -> int:
        """Number of rows since the oldest footprint of an open window, as of the last commit."""
        return self.extent.rows

    def hurry(self) -> None:
        """Check windows at the next commit, whatever the targets are."""
        self._hurries = True

    @property
    def journal(self) -> WindowJournal:
        return WindowJournal(self)

    @property
    def replaying(self) -> bool:
        """True while rows that were processed before are replayed. Their output was emitted then."""
        return self.replay is not None and not self.replay.over

    @property
    def covered(self) -> Mapping[str, Position]:
        """The positions of the oldest footprint in the log. No row up to them is needed, whatever fails."""
        return self._durable

    def watch(self, name: str, operator: Operator) -> Operator:
        """Return the operator to run in place of `operator`."""
        return self._contents.watch(operator) if name == self._operator else operator

    # -- commits ----------------------------------------------------------------------------------------------

    def capture(self, sequence: int, edges: Mapping[str, Any], *, full: bool = False) -> WindowCapture:
        begun_s = self._clock()
        if self.replay is not None:
            self.replay.settle()
            if self.replay.over:
                self.replay = None
        if self.replaying or self._capturing:
            return WindowCapture(self, sequence, None, 0.0)
        commit, place = self._commit(edges, begun_s)
        self._capturing = True
        self.extent.capture_s = self._clock() - begun_s
        return WindowCapture(self, sequence, commit, self.extent.capture_s, place)

    def start(self, commit: WindowCommit, running: RunningCheckpoint) -> None:
        self._log.append(commit, running)

    def settled(self, commit: WindowCommit, since: Mapping[str, Position]) -> None:
        """Note, on the unit's thread, that a commit is durable or has failed."""
        self._capturing = False
        if commit.bytes_written is None:
            self._begins = True
        else:
            self._durable = since

    def _commit(self, edges: Mapping[str, Any], now_s: float) -> tuple[WindowCommit, Mapping[str, Position]]:
        self._number += 1
        number = self._number
        cells = {name: cell.get() for name, cell in self._cells.items()}
        place = CommitPlace(number, dict(edges["inputs"]), cells)
        rows = _rows_of(place.inputs)
        begins, self._begins = self._begins, False
        if begins:
            self._next_tuple = 1
            self._moments.begin_log()
        first_tuple = self._next_tuple
        moment = CommitMoment(place, first_tuple, rows, now_s, self._contents.marks())
        parts: list[tuple[TupleKind, pa.Table]] = []
        if self._footprints is not None:
            found = all_windows if begins else changed_windows
            parts += found(self._contents, self._footprints, number)
        self._moments.add(moment)
        made = sum(part.num_rows for _, part in parts)
        self.extent = ExtentNow(opens=sum(part.num_rows for kind, part in parts if kind is TupleKind.OPEN))
        self.extent.closes = made - self.extent.opens
        if self._hurries or now_s - self._checked_s >= self._policy.period_s:
            self._checked_s = now_s
            if self._footprints is not None:
                now = replace(moment, first_tuple=first_tuple + made)
                checks = list(self._checked(self._footprints, now))
                parts += [(TupleKind.CHECK, part) for part in checks]
                self.extent.checks = sum(part.num_rows for part in checks)
            self._hurries = False
        since = self._moments.since(self._footprints, self._contents, number)
        open_windows = self._footprints.open_windows if self._footprints is not None else 0
        kind = stream_type(self._contents.ids, self._contents.state)
        floors = {stream: output.floor for stream, output in self._outputs.items()}
        detail = CommitDetail(
            place,
            edges["outputs"],
            since.place,
            {stream: output.last for stream, output in self._outputs.items()},
            floors,
            self._contents.closed_before,
        )
        tuples = commit_rows(
            kind.schema,
            parts,
            at_us=int(now_s * 1e6),
            commit=number,
            open_windows=open_windows,
            detail=detail,
        )
        self._next_tuple += tuples.num_rows
        self.extent.open_windows = open_windows
        self.extent.tuples = self._next_tuple - since.first_tuple
        self.extent.rows = rows - since.rows
        results = {stream: output.take(everything=begins) for stream, output in self._outputs.items()}
        commit = WindowCommit(
            number,
            begins,
            results,
            self._results_types,
            tuples,
            kind,
            floors,
            # Without footprints, the last commit contains everything.
            since.first_tuple if self._footprints is not None else first_tuple,
        )
        return commit, _positions(since.place.inputs)

    def _checked(self, footprints: Footprints, now: CommitMoment) -> Iterator[pa.Table]:
        """Check the oldest windows, as long as checks are wanted and there is time."""
        choice = None if self._hurries else self._policy.choice
        checks = WindowChecks(self._contents, footprints, self._moments, choice)
        # The time limit is for checks only, and begins after the tuples of opened and closed windows.
        begun_s = self._clock()
        while (contents := checks.next(now)) is not None:
            now = replace(now, first_tuple=now.first_tuple + contents.num_rows)
            yield contents
            if self._clock() - begun_s >= self._policy.interval_s:
                return

    # -- loading ------------------------------------------------------------------------------------------------

    def _own(self, name: str) -> str | None:
        operator, _, own = name.rpartition("/")
        return own if operator and operator == self._operator else None

    def _begin_from(self, loaded: LoadedLog) -> None:
        detail = loaded.detail
        self.replay = Replay(detail.since, loaded.commits, loaded.windows)
        # During a replay the end of an output comes again.
        outputs = {
            name: [lineage, ended and self.replay.over, marks]
            for name, (lineage, ended, marks) in detail.outputs.items()
        }
        self._loaded = _Loaded(
            {"inputs": detail.since.inputs, "outputs": outputs},
            detail.since.cells,
            loaded.results,
            detail.results,
            detail.floors,
        )


class WindowJournal:
    """A windowed state as its unit sees it: what must be processed again, and which rows are no longer needed."""

    def __init__(self, state: WindowedState) -> None:
        self._state = state
        self.watch = state.watch

    @property
    def replaying(self) -> bool:
        return self._state.replaying

    @property
    def covered(self) -> Mapping[str, Position]:
        return self._state.covered

    def cuts(self, stream: str) -> Sequence[int]:
        """Return the numbers of the rows of an input after which its batches must be cut."""
        replay = self._state.replay
        return replay.cuts(stream) if replay is not None and self.replaying else ()

    def holds(self, stream: str, number: int) -> bool:
        """Return True if a row of an input must wait for rows of other inputs."""
        replay = self._state.replay
        return replay is not None and replay.holds(stream, number)

    def holds_end(self, stream: str) -> bool:
        replay = self._state.replay
        return replay is not None and replay.holds_end(stream)

    def enter(self, stream: str, number: int, *, ended: bool = False) -> None:
        """Note that the rows of an input up to a number, or its end, are processed now."""
        replay = self._state.replay
        if replay is not None:
            replay.enter(stream, number, ended=ended)
            if replay.over:
                self._state.replay = None


class WindowCapture:
    """A prepared commit. It does not change any more, so the unit may continue at once."""

    def __init__(
        self,
        state: WindowedState,
        sequence: int,
        commit: WindowCommit | None,
        pause_s: float,
        since: Mapping[str, Position] | None = None,
    ) -> None:
        self._state, self._sequence, self._commit, self._since = state, sequence, commit, since or {}
        self.pause_s = pause_s

    def start(self, *, patience_s: float | None = None) -> RunningCheckpoint:
        commit = self._commit
        if commit is None:
            # During a replay nothing has changed that the log lacks.
            running = RunningCheckpoint(self._sequence, self.pause_s, lambda: None)
            running.succeed(PublishedPages(self._sequence, 0, 0, 0, self.pause_s, ()))
            return running
        settled = False

        def settle() -> None:
            nonlocal settled
            if not settled:
                settled = True
                self._state.settled(commit, self._since)

        running = RunningCheckpoint(self._sequence, self.pause_s, settle)
        self._state.start(commit, running)
        return running

    def cancel(self) -> None:
        """Discard the commit. The next one begins a new log."""
        if self._commit is not None:
            self._state.settled(self._commit, {})


def _positions(inputs: Mapping[str, Sequence[Any]]) -> dict[str, Position]:
    return {stream: Position(lineage, number) for stream, (lineage, number, _) in inputs.items()}


def _rows_of(inputs: Mapping[str, Sequence[Any]]) -> int:
    return sum(number for _, number, _ in inputs.values())
