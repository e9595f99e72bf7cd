"""The windows of a join. They hold rows of its inputs, so only positions in the inputs are logged (CEC, V)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.unit_state.interface import RowQueue

from .contents import NoContents

_SIDES = ("left", "right")


class JoinContents(NoContents):
    """Counts the rows of a join. Rows of a side come and go in order, so the held rows are the last ones."""

    def __init__(self) -> None:
        #: Number of rows that each side has received since the unit began here.
        self._came = [0, 0]
        self._queues: list[list[_Queue]] = [[], []]

    def rows(self, name: str, inner: RowQueue) -> RowQueue:
        queue = _Queue(inner)
        self._queues[_SIDES.index(name.split(" ", 1)[0])].append(queue)
        return queue

    def watch(self, operator: Operator) -> Operator:
        return _Counting(operator, self._came)

    def marks(self) -> Mapping[str, Any]:
        return {"came": tuple(self._came)}

    def reaches_back_to(self, marks: Mapping[str, Any]) -> bool:
        held = [sum(queue.held for queue in queues) for queues in self._queues]
        return all(
            came - count >= before for came, count, before in zip(self._came, held, marks["came"], strict=True)
        )


class _Queue:
    def __init__(self, inner: RowQueue) -> None:
        self._inner = inner
        self.held = 0

    def append(self, rows: pa.RecordBatch) -> None:
        self.held += rows.num_rows
        self._inner.append(rows)

    def table(self) -> pa.Table:
        return self._inner.table()

    def drop(self, count: int) -> None:
        self.held -= count
        self._inner.drop(count)

    def replace(self, rows: pa.Table) -> None:
        self.held = rows.num_rows
        self._inner.replace(rows)


class _Counting(Operator):
    def __init__(self, operator: Operator, came: list[int]) -> None:
        self._operator = operator
        self._came = came

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        self._came[port] += rows.num_rows
        return self._operator.process(port, rows)

    def end(self, port: int) -> Iterable[Rows]:
        return self._operator.end(port)

    @property
    def late_rows(self) -> int:
        return self._operator.late_rows

    def on_time(self, now_us: int) -> Iterable[Rows]:
        return self._operator.on_time(now_us)
