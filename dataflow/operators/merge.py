"""The consuming edge of a partitioned stage: rows of several producers in the order of their numbers (Flux 4.1.1).

It takes rows as they arrive, and holds them until every producer has closed the grain. So a slow or paused
producer does not keep the others' rows on the network, where they would wait for each other forever (Flux 5.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.unit_state.operator_state import OperatorState

from .grains import SEQUENCE, Grains, numbers_of, one_batch, plain, without_numbers
from .interface import OperatorSpecification


@dataclass(frozen=True)
class Merge(OperatorSpecification):
    """One input per producer. With `strips`, rows leave without their numbers, and marks are removed."""

    kind: ClassVar[str] = "merge"
    operator_class = OperatorClass.DETERMINISTIC
    bounds_causes = False
    strips: bool = False

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        return plain(inputs[0]) if self.strips else inputs[0]

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _Merging(self.strips, inputs[0].schema, len(inputs), state)


class _Merging(Operator):
    def __init__(self, strips: bool, schema: pa.Schema, ports: int, state: OperatorState) -> None:
        self._strips = strips
        self._schema = schema
        self._grains = Grains(state, [schema] * ports)

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        self._grains.add(port, rows)
        return self._release()

    def end(self, port: int) -> Iterable[Rows]:
        self._grains.end(port)
        return self._release()

    def _release(self) -> list[Rows]:
        made = []
        while self._grains.ready:
            made.append(self._merged([grain for _, grain in self._grains.take()]))
        return [rows for rows in made if rows.num_rows]

    def _merged(self, grains: Sequence[Rows]) -> Rows:
        """Sort the rows of one grain of all producers by number, without changing the order of any producer.

        If a producer sends a row after one with a higher number, it stays behind that one.
        """
        # Each grain ends with the same mark.
        mark = grains[0].slice(grains[0].num_rows - 1)
        if len(grains) == 1:
            merged = grains[0]
        else:
            together = one_batch(self._schema, [*(grain.slice(0, grain.num_rows - 1) for grain in grains), mark])
            reached = [np.maximum.accumulate(numbers_of(grain, SEQUENCE)[:-1]) for grain in grains]
            order = np.argsort(np.concatenate(reached), kind="stable")
            merged = together.take(pa.array(np.append(order, len(order))))
        if self._strips:
            merged = without_numbers(merged.slice(0, merged.num_rows - 1))
        return merged
