"""The output buffer that all recovery techniques share: the buffer of Flux's abstract producer (section 3.2).

It holds numbered rows, marks that say who has produced or acknowledged each number, and a cursor for each
destination. A number may be acknowledged before its row exists. Such a *dangling* number makes the buffer drop the
row when it arrives; so a secondary does not repeat what its primary has sent. Marks are kept as ranges after rows
are dropped, so that a row that is produced again is recognised.

Each technique has its own *retention rule*, a set of marks: a row that has all of them is dropped (`del` in the
paper).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.row_stage import RowStage

from .number_ranges import NumberRanges


class Mark(NamedTuple):
    level: RowStage
    #: The destination that acknowledged; empty for the producer.
    destination: str = ""


PRODUCED = Mark(RowStage.PRODUCED)


#: Each mark, with the ranges of numbers that have it.
MarkedRanges = tuple[tuple[Mark, tuple[tuple[int, int], ...]], ...]


class OutputBuffer:
    """The numbered rows of one stream that somebody may still need, and the marks of all numbers.

    A row is dropped as soon as it has every mark of the retention rule. Marks outlive rows, so that rows that are
    produced again are ignored, and acknowledged rows are not sent. `HAOutput` calls it.
    """

    def __init__(self, retention: frozenset[Mark]) -> None:
        self._retention = retention
        self._marks: dict[Mark, NumberRanges] = {PRODUCED: NumberRanges()}
        # In the order of their numbers, with gaps where rows were dropped.
        self._batches: list[Batch] = []
        self._firsts: list[int] = []
        self._cursors: dict[str, int] = {}
        self.held_bytes = 0

    # -- the producer -------------------------------------------------------------------------------

    def put(self, batch: Batch) -> None:
        """Insert rows and mark them as produced. Rows that were produced before are ignored."""
        fresh = [batch.between(*gap) for gap in self._marks[PRODUCED].gaps(batch.first, batch.last)]
        self._marks[PRODUCED].add(batch.first, batch.last)
        for part in fresh:
            assert part is not None
            if not self._may_go(part):
                self._insert(part)

    # -- destinations ----------------------------------------------------------------------------------

    def peek(self, destination: str) -> Batch | None:
        """Return the first rows that `destination` was not sent and has not acknowledged; None if none."""
        cursor = self._cursors.get(destination, 1)
        if not self._batches or self._batches[-1].last < cursor:
            return None
        for at in range(max(bisect_right(self._firsts, cursor) - 1, 0), len(self._batches)):
            batch = self._batches[at].after(cursor - 1)
            if batch is None:
                continue
            wanted = self._first_unacknowledged(destination, batch)
            if wanted is not None:
                return wanted
        return None

    def advance(self, destination: str, peeked: Batch | None = None) -> None:
        """Move the cursor of `destination` behind the batch that `peek` returns.

        `peeked`: the batch, if `peek` has just returned it.
        """
        batch = peeked or self.peek(destination)
        assert batch is not None, "there is nothing to move behind"
        self._cursors[destination] = batch.last + 1

    def ack(self, first: int, last: int, mark: Mark) -> None:
        """Set `mark` on the numbers from `first` to `last`, whether or not their rows exist yet."""
        assert mark != PRODUCED
        self._ranges(mark).add(first, last)
        self._release(first, last)

    def reset(self, destination: str) -> None:
        """Move the cursor of `destination` back to the first row that it has not acknowledged (Flux 3.4)."""
        self._cursors.pop(destination, None)

    def forget(self, mark: Mark, number: int) -> None:
        """Remove `mark` from all numbers above `number`: the destination has lost those rows."""
        self._ranges(mark).remove_above(number)

    # -- retention ---------------------------------------------------------------------------------------

    def retain_until(self, retention: frozenset[Mark]) -> None:
        """Change the retention rule, for example without a dead destination (Flux 3.3.2)."""
        self._retention = retention
        self._release_all()

    @property
    def produced(self) -> int:
        """The highest produced number; 0 before the first."""
        return self._marks[PRODUCED].highest

    @property
    def first_held(self) -> int:
        """The lowest number whose row is in the buffer, or the next number if the buffer is empty."""
        return self._firsts[0] if self._firsts else self.produced + 1

    def reached(self, level: RowStage, destination: str) -> int:
        """Return the number up to which `destination` has acknowledged all rows, at `level` or a later one."""
        return max(self._ranges(Mark(each, destination)).from_first for each in RowStage if each >= level)

    def unreceived_bytes(self, destinations: Iterable[str]) -> int:
        """Return the bytes of all rows from the first one that some destination has not acknowledged."""
        first = min(self.reached(RowStage.RECEIVED, each) for each in destinations) + 1
        begin = max(bisect_right(self._firsts, first) - 1, 0)
        return sum(batch.bytes for batch in self._batches[begin:] if batch.last >= first)

    def begin_after(self, number: int) -> None:
        """Continue after a number. The rows up to it were produced elsewhere, and are not available here."""
        assert not self.produced, "the buffer is in use"
        self._ranges(PRODUCED).add(1, number)

    def dangling(self) -> list[tuple[int, int]]:
        """Return the numbers that somebody acknowledged and that are not produced yet."""
        found = NumberRanges()
        for mark, ranges in self._marks.items():
            if mark != PRODUCED:
                for first, last in ranges.ranges():
                    for gap in self._marks[PRODUCED].gaps(first, last):
                        found.add(*gap)
        return found.ranges()

    def held(self) -> tuple[Batch, ...]:
        return tuple(self._batches)

    # -- copies -------------------------------------------------------------------------------------------

    def marks(self) -> MarkedRanges:
        """Return a copy of all marks."""
        return tuple((mark, tuple(ranges.ranges())) for mark, ranges in self._marks.items())

    def load(self, marks: MarkedRanges, batches: Iterable[Batch]) -> None:
        """Load marks, and those rows that the retention rule does not drop."""
        assert not self.produced, "the buffer is in use"
        self._marks = {mark: NumberRanges(ranges) for mark, ranges in marks}
        for batch in batches:
            if not self._may_go(batch):
                self._insert(batch)

    # -- inside ---------------------------------------------------------------------------------------------

    def _ranges(self, mark: Mark) -> NumberRanges:
        return self._marks.setdefault(mark, NumberRanges())

    def _first_unacknowledged(self, destination: str, batch: Batch) -> Batch | None:
        received, safe = (
            self._ranges(Mark(RowStage.RECEIVED, destination)),
            self._ranges(Mark(RowStage.SAFE, destination)),
        )
        if received.highest < batch.first > safe.highest:
            return batch
        for first, last in received.gaps(batch.first, batch.last):
            for gap in safe.gaps(first, last):
                return batch.between(*gap)
        return None

    def _insert(self, batch: Batch) -> None:
        at = bisect_right(self._firsts, batch.first)
        self._batches.insert(at, batch)
        self._firsts.insert(at, batch.first)
        self.held_bytes += batch.bytes

    def _may_go(self, batch: Batch) -> bool:
        for mark in self._retention:
            ranges = self._marks.get(mark)
            if ranges is None or not ranges.covers(batch.first, batch.last):
                return False
        return True

    def _release(self, first: int, last: int) -> None:
        begin = max(bisect_right(self._firsts, first) - 1, 0)
        end = bisect_right(self._firsts, last)
        self._keep(begin, end, [batch for batch in self._batches[begin:end] if not self._may_go(batch)])

    def _release_all(self) -> None:
        self._keep(0, len(self._batches), [batch for batch in self._batches if not self._may_go(batch)])

    def _keep(self, begin: int, end: int, kept: Iterable[Batch]) -> None:
        kept = list(kept)
        if len(kept) == end - begin:
            return
        self.held_bytes -= sum(batch.bytes for batch in self._batches[begin:end]) - sum(b.bytes for b in kept)
        self._batches[begin:end] = kept
        self._firsts[begin:end] = [batch.first for batch in kept]
