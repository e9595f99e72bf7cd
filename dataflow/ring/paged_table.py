"""The state of an interval in pages: master state, active and inactive fragment are maps of `peacefs.state`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peacefs.state.pages.manager import PageManager
from peacefs.state.structures.unordered_map import UnorderedMap

from .key_places import key_places
from .keyed_table import Entries, KeyedTable
from .tokens import RING, Interval


class TableKind:
    """The schema of a state, and the page manager of a node. `name` must be unique among the kinds on the node."""

    def __init__(self, pages: PageManager, schema: pa.Schema, key: tuple[str, ...], name: str = "state") -> None:
        self.pages, self.schema, self.key = pages, schema, key
        self._name = name
        self.values = [name for name in schema.names if name not in key]
        self._numbers = count()

    def new_map(self) -> tuple[str, UnorderedMap]:
        name = f"{self._name}, fragment {next(self._numbers)}"
        return name, UnorderedMap.create(self.pages.page_set(name), self.schema, self.key)


class PagedTable(KeyedTable):
    """The batch methods of `UnorderedMap` (`find`, `upsert`, `add_at`, `aggregate`) over the three maps."""

    def __init__(self, kind: TableKind) -> None:
        self._kind = kind
        self._names: dict[int, str] = {}
        # Maps that another thread may still read. They are freed after the next checkpoint is merged.
        self._retired: list[UnorderedMap] = []
        self._master, self._active, self._inactive = self._new(), self._new(), self._new()

    # -- as operators use it --------------------------------------------------------------------------

    def find(self, keys: Any) -> pa.RecordBatch:
        """Return a row per key: `found`, and the columns of the value, null if there is none."""
        keys = _as_arrow(keys)
        found = np.zeros(len(keys), np.bool_)
        arrays: list[pa.Array] = [
            pa.nulls(len(keys), self._kind.schema.field(name).type) for name in self._kind.values
        ]
        for part in (self._active, self._inactive, self._master):
            at = np.flatnonzero(~found)
            if not len(at) or not len(part):
                continue
            got = part.find(keys.take(pa.array(at)))
            hit = np.asarray(got.column("found"))
            places = at[hit]
            if not len(places):
                continue
            mask = np.zeros(len(keys), np.bool_)
            mask[places] = True
            for number, name in enumerate(self._kind.values):
                values = got.column(name).filter(got.column("found"))
                arrays[number] = pc.replace_with_mask(arrays[number], pa.array(mask), values)
            found |= mask
        return pa.RecordBatch.from_arrays([pa.array(found), *arrays], names=["found", *self._kind.values])

    def upsert(self, keys: Any, values: Any) -> None:
        self._active.upsert(keys, values)

    def add_at(self, keys: Any, deltas: Any, column: str | None = None) -> None:
        self._fetch(_as_arrow(keys))
        self._active.add_at(keys, deltas, column)

    def aggregate(self, keys: Any, changes: Mapping[str, tuple[str, Any]]) -> None:
        self._fetch(_as_arrow(keys))
        self._active.aggregate(keys, changes)

    def _fetch(self, keys: Any) -> None:
        """Copy the current values of keys into the active fragment, before they change there."""
        if not len(self._inactive) and not len(self._master):
            return
        missing = pc.invert(self._active.find(keys).column("found"))
        rest = keys.filter(missing)
        for part in (self._inactive, self._master):
            if not len(rest):
                return
            got = part.find(rest)
            hit = got.column("found")
            known = rest.filter(hit)
            if len(known):
                self._active.upsert(known, got.filter(hit).select(self._kind.values))
            rest = rest.filter(pc.invert(hit))

    def scan(self) -> Iterator[pa.RecordBatch]:
        """Yield all current records, each once."""
        seen = self.empty()
        for part in (self._master, self._inactive, self._active):
            for batch in part.scan():
                seen._put(seen._master, batch)
        yield from seen._master.scan()
        seen._drop()

    @property
    def changed_keys(self) -> int:
        return len(self._inactive)

    @property
    def known_keys(self) -> int:
        return len(self._master)

    # -- checkpoints -----------------------------------------------------------------------------------

    def cut(self) -> None:
        assert not len(self._inactive), "a checkpoint is under way"
        self._active, self._inactive = self._inactive, self._active

    def changes(self) -> Entries:
        return tuple(_encode(batch) for batch in self._inactive.scan())

    def everything(self) -> Entries:
        return tuple(_encode(batch) for part in (self._master, self._inactive) for batch in part.scan())

    def merge(self) -> None:
        for batch in self._inactive.scan():
            self._put(self._master, batch)
        self._inactive.clear()
        for each in self._retired:
            self._destroy(each)
        self._retired.clear()

    def undo_cut(self) -> None:
        for batch in self._inactive.scan():
            keys = self._keys_of(batch)
            older = pc.invert(self._active.find(keys).column("found"))
            self._put(self._active, batch.filter(older))
        self._retired.append(self._inactive)
        self._inactive = self._new()

    def take(self, entries: Entries, interval: Interval, *, anew: bool) -> None:
        if anew:
            self._retired += [self._master, self._inactive, self._active]
            self._master, self._active, self._inactive = self._new(), self._new(), self._new()
        for data in entries:
            batch = self._inside(_decode(data), interval)
            self._put(self._master, batch)
            if len(self._active) and batch.num_rows:
                self._active.remove(self._keys_of(batch))

    def split(self, at: int) -> tuple[PagedTable, PagedTable]:
        halves = PagedTable(self._kind), PagedTable(self._kind)
        for half, part in zip(halves, (Interval(0, at), Interval(at, RING)), strict=True):
            for source, target in (
                (self._master, half._master),
                (self._inactive, half._inactive),
                (self._active, half._active),
            ):
                for batch in source.scan():
                    half._put(target, self._inside(batch, part))
        return halves

    def empty(self) -> PagedTable:
        return PagedTable(self._kind)

    # -- inside --------------------------------------------------------------------------------------------

    def _inside(self, batch: pa.RecordBatch, interval: Interval) -> pa.RecordBatch:
        places = key_places([batch.column(name) for name in self._kind.key])
        inside = (places >= interval.low) & (places < interval.high)
        return batch if inside.all() else batch.filter(pa.array(inside))

    def _keys_of(self, batch: pa.RecordBatch) -> Any:
        key = self._kind.key
        return batch.column(key[0]) if len(key) == 1 else batch.select(list(key))

    def _put(self, target: UnorderedMap, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            target.upsert(self._keys_of(batch), batch.select(self._kind.values))

    def _new(self) -> UnorderedMap:
        name, made = self._kind.new_map()
        self._names[id(made)] = name
        return made

    def _destroy(self, gone: UnorderedMap) -> None:
        self._kind.pages.destroy(self._names.pop(id(gone)))

    def _drop(self) -> None:
        for each in (self._master, self._active, self._inactive):
            self._destroy(each)


def _as_arrow(keys: Any) -> Any:
    if isinstance(keys, pa.ChunkedArray):
        return keys.combine_chunks()
    return keys if isinstance(keys, (pa.Array, pa.RecordBatch)) else pa.array(keys)


def _encode(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _decode(data: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(data).read_next_batch()
