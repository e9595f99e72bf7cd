"""A map of Python values in pages: keys and values as MessagePack, for functions that treat row by row.

Changes are kept in a dictionary and put into the pages many at a time. Keys are iterated over in the order of
their bytes, so that a function which does so is the same after a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from peacefs.protocol.limits import dataflow_pending_changes_max
from peacefs.state.pages.page_set import PageSet
from peacefs.state.structures.unordered_map import UnorderedMap

from .interface import ValueMap

_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_GONE: Final = None
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


class PackedMap(ValueMap):
    def __init__(self, page_set: PageSet) -> None:
        self._stored = UnorderedMap.create(page_set, _SCHEMA, "key")
        #: Changes since the last flush: the packed value, or None for a key that was removed.
        self._pending: dict[bytes, bytes | None] = {}

    def flush(self) -> None:
        """Put all changes into the pages."""
        put = {key: value for key, value in self._pending.items() if value is not _GONE}
        gone = [key for key, value in self._pending.items() if value is _GONE]
        self._pending.clear()
        if put:
            self._stored.upsert(list(put), list(put.values()))
        if gone:
            self._stored.remove(gone)

    def __getitem__(self, key: Any) -> Any:
        packed = _encode(key)
        if packed in self._pending:
            value = self._pending[packed]
        else:
            value = self._stored.get(packed)
        if value is None:
            raise KeyError(key)
        return _decode(value)

    def find_all(self, keys: Sequence[Any]) -> list[Any]:
        packed = [_encode(key) for key in keys]
        found = {key: self._pending[key] for key in packed if key in self._pending}
        missing = [key for key in packed if key not in found]
        if missing:
            found |= zip(missing, self._stored.find(missing).column("value").to_pylist(), strict=True)
        values = [found[key] for key in packed]
        return [None if value is None else _decode(value) for value in values]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._change(_encode(key), _encode(value))

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._change(_encode(key), _GONE)

    def __contains__(self, key: object) -> bool:
        packed = _encode(key)
        return self._pending[packed] is not _GONE if packed in self._pending else packed in self._stored

    def __iter__(self) -> Iterator[Any]:
        self.flush()
        return iter([_hashable(_decode(key)) for key in sorted(self._stored)])

    def __len__(self) -> int:
        self.flush()
        return len(self._stored)

    def clear(self) -> None:
        self._pending.clear()
        self._stored.clear()

    def _change(self, key: bytes, value: bytes | None) -> None:
        self._pending[key] = value
        if len(self._pending) >= dataflow_pending_changes_max:
            self.flush()


def _hashable(key: Any) -> Any:
    return tuple(_hashable(part) for part in key) if isinstance(key, list) else key
