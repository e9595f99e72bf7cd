"""The state of an HA unit in pages (SGuard, section 4). Operators get structures of `peacefs.state`.

A capture is a checkpoint of all pages of the unit at one moment. It copies the list of changed pages and marks
these read-only. They are written while the unit continues, and copied if the unit changes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from peacefs.state.checkpoints.checkpointer import Checkpointer
from peacefs.state.checkpoints.outcome import PreparedCheckpoint, RunningCheckpoint
from peacefs.state.pages.manager import PageManager
from peacefs.state.pages.page_set import PageSet
from peacefs.state.structures.sequences import List
from peacefs.state.structures.unordered_map import UnorderedMap

from .batch_log import BatchLog, LoggedOutput, LoggedRows
from .interface import Accumulator, Cell, Groups, NumberedRows, RowQueue, ValueMap
from .packed_map import PackedMap
from .paged_groups import PagedGroups

_EDGES = "edges"
_WORDS = pa.schema([("word", pa.int64())])


class PagedCapture:
    """A prepared checkpoint of a unit. `start` and `cancel` must be called on the thread of the unit."""

    def __init__(self, checkpointer: Checkpointer, prepared: PreparedCheckpoint) -> None:
        self._checkpointer = checkpointer
        self._prepared = prepared

    @property
    def pause_s(self) -> float:
        """How long the unit was stopped."""
        return self._prepared.pause_s

    def start(self, *, patience_s: float | None = None) -> RunningCheckpoint:
        """Begin to write. If the turn of the capture is further away than `patience_s`, cancel it (SGuard 5)."""
        return self._checkpointer.start(self._prepared, patience_s=patience_s)

    def cancel(self) -> None:
        """Discard the capture. Its changes since the last checkpoint go into the next one."""
        self._checkpointer.cancel(self._prepared)


class PagedState:
    """The structures of a unit.

    `pages` are empty, or were loaded by `checkpointer`. No other unit uses either of them.
    """

    def __init__(self, pages: PageManager, checkpointer: Checkpointer) -> None:
        self._pages = pages
        self._checkpointer = checkpointer
        self._recovered = list(pages.names)
        self._blob = List.create(pages.page_set(_EDGES), _WORDS)
        stored = self._read_blob()
        self._edges: Mapping[str, Any] | None = stored["edges"] if stored else None
        self._values: dict[str, Any] = stored["cells"] if stored else {}
        self._cells: dict[str, _Cell] = {}
        self._queues: dict[str, LoggedRows] = {}
        self._maps: list[PackedMap] = []
        self._names: set[str] = set()

    # -- structures -----------------------------------------------------------------------------------------

    def cell(self, name: str, initial: Any) -> Cell:
        self._new(name)
        cell = self._cells[name] = _Cell(self._values.get(name, initial))
        return cell

    def rows(self, name: str, schema: pa.Schema) -> RowQueue:
        self._new(name)
        log = BatchLog(self._pages.page_set(name), schema)
        queue = self._queues[name] = LoggedRows(log, schema, self._values.get(name, 0))
        return queue

    def numbered_rows(self, name: str, schema: pa.Schema) -> NumberedRows:
        self._new(name)
        return LoggedOutput(BatchLog(self._pages.page_set(name), schema))

    def groups(self, name: str, keys: pa.Schema, accumulators: Sequence[Accumulator]) -> Groups:
        self._new(name)
        recovered = [each for each in self._recovered if each.startswith(f"{name}/")]
        return PagedGroups(keys, accumulators, name, self._page_set, self._destroy, recovered)

    def table(self, name: str, schema: pa.Schema, key: Sequence[str]) -> UnorderedMap:
        self._new(name)
        return UnorderedMap.create(self._pages.page_set(name), schema, key)

    def mapping(self, name: str) -> ValueMap:
        self._new(name)
        made = PackedMap(self._pages.page_set(name))
        self._maps.append(made)
        return made

    # -- checkpoints ------------------------------------------------------------------------------------------

    @property
    def uncovered_rows(self) -> int:
        """Always 0: a capture has all pages, so it covers every row before it."""
        return 0

    def hurry(self) -> None:
        """Do nothing: a capture always covers everything."""

    @property
    def journal(self) -> None:
        """None: pages are loaded as they were, so no row is processed twice."""
        return None

    def capture(self, sequence: int, edges: Mapping[str, Any], *, full: bool = False) -> PagedCapture:
        def flush() -> None:
            for each in self._maps:
                each.flush()
            cells = {name: cell.get() for name, cell in self._cells.items()}
            cells |= {name: queue.dropped for name, queue in self._queues.items()}
            self._write_blob(msgspec.msgpack.encode({"edges": edges, "cells": cells}))

        return PagedCapture(self._checkpointer, self._checkpointer.prepare(sequence, full=full, flush=flush))

    def edges(self) -> Mapping[str, Any] | None:
        return self._edges

    @property
    def memory_bytes(self) -> int:
        """Bytes of the pages, including copies that are still being written."""
        return self._pages.memory_bytes

    def close(self) -> None:
        """Give up a checkpoint that is being written."""
        self._checkpointer.close()

    # -- inside -------------------------------------------------------------------------------------------------

    def _new(self, name: str) -> None:
        assert name not in {*self._names, _EDGES}, f"two structures have the name {name}"
        self._names.add(name)

    def _page_set(self, name: str) -> PageSet:
        return self._pages.page_set(name)

    def _destroy(self, name: str) -> None:
        self._pages.settle()
        self._pages.destroy(name)

    def _write_blob(self, blob: bytes) -> None:
        words = np.zeros(1 + -(-len(blob) // 8), np.int64)
        words[0] = len(blob)
        words[1:].view(np.uint8)[: len(blob)] = np.frombuffer(blob, np.uint8)
        self._blob.clear()
        self._blob.extend_batch(words)

    def _read_blob(self) -> dict[str, Any] | None:
        if not len(self._blob):
            return None
        words = self._blob.slice_batch(0, len(self._blob)).column(0).to_numpy()
        read: dict[str, Any] = msgspec.msgpack.decode(words[1:].tobytes()[: int(words[0])])
        return read


class _Cell:
    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value

    def set(self, value: Any) -> None:
        self._value = value
