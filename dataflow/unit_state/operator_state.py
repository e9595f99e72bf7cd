"""The part of a unit's state that belongs to one operator, in which names are local to the operator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from peacefs.state.structures.unordered_map import UnorderedMap

from .interface import Accumulator, Cell, Groups, RowQueue, UnitState, ValueMap


class OperatorState:
    def __init__(
        self,
        unit: UnitState,
        operator: str,
        *,
        keeps_stamps: bool = False,
        chance: random.Random | None = None,
    ) -> None:
        """`keeps_stamps`: True if the operator should store the stamps of rows together with the rows."""
        self.keeps_stamps = keeps_stamps
        self._unit = unit
        self._operator = operator
        #: A source of random numbers that a replay draws again.
        self.chance = chance or random.Random(0)

    def cell(self, name: str, initial: Any) -> Cell:
        return self._unit.cell(f"{self._operator}/{name}", initial)

    def rows(self, name: str, schema: pa.Schema) -> RowQueue:
        return self._unit.rows(f"{self._operator}/{name}", schema)

    def groups(self, name: str, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        return self._unit.groups(f"{self._operator}/{name}", keys, accumulators)

    def table(self, name: str, schema: pa.Schema, key: Sequence[str]) -> UnorderedMap:
        return self._unit.table(f"{self._operator}/{name}", schema, key)

    def mapping(self, name: str) -> ValueMap:
        return self._unit.mapping(f"{self._operator}/{name}")
