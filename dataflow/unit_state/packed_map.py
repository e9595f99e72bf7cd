"""A map of Python values in pages: keys and values as MessagePack, for functions that treat row by row.

Changes are kept in a dictionary and put into the pages many at a time; what was read or changed lately is kept
besides, as it is packed, since one look into the pages costs as much as a hundred into a dictionary. Keys are
iterated over in the order of their bytes, so that a function which does so is the same after a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from peacefs.protocol.limits import (
    dataflow_known_bytes_max,
    dataflow_known_values_max,
    dataflow_pending_changes_max,
)
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
        #: Packed values of keys as the pages have them, None for those that they do not have.
        self._known: dict[bytes, bytes | None] = {}
        self._known_bytes = 0

    def flush(self) -> None:
        """Put all changes into the pages."""
        put = {key: value for key, value in self._pending.items() if value is not _GONE}
        gone = [key for key, value in self._pending.items() if value is _GONE]
        for key, value in self._pending.items():
            self._learn(key, value)
        self._pending.clear()
        if put:
            self._stored.upsert(list(put), list(put.values()))
        if gone:
            self._stored.remove(gone)

    def __getitem__(self, key: Any) -> Any:
        value = self._value(_encode(key))
        if value is None:
            raise KeyError(key)
        return _decode(value)

    def find_all(self, keys: Sequence[Any]) -> list[Any]:
        packed = [_encode(key) for key in keys]
        missing = [key for key in dict.fromkeys(packed) if key not in self._pending and key not in self._known]
        found: dict[bytes, bytes | None] = {}
        if missing:
            found = dict(zip(missing, self._stored.find(missing).column("value").to_pylist(), strict=True))
        values = [found[key] if key in found else self._value(key) for key in packed]
        for key, value in found.items():
            self._learn(key, value)
        return [None if value is None else _decode(value) for value in values]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._change(_encode(key), _encode(value))

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._change(_encode(key), _GONE)

    def __contains__(self, key: object) -> bool:
        return self._value(_encode(key)) is not None

    def __iter__(self) -> Iterator[Any]:
        self.flush()
        return iter([_hashable(_decode(key)) for key in sorted(self._stored)])

    def __len__(self) -> int:
        self.flush()
        return len(self._stored)

    def clear(self) -> None:
        self._pending.clear()
        self._forget()
        self._stored.clear()

    def _value(self, packed: bytes) -> bytes | None:
        """Return the packed value of a key; None: it is not there."""
        if packed in self._pending:
            return self._pending[packed]
        if packed not in self._known:
            self._learn(packed, self._stored.get(packed))
        return self._known[packed]

    def _learn(self, packed: bytes, value: bytes | None) -> None:
        """Remember a value as the pages have it, or will have it at once."""
        if len(self._known) >= dataflow_known_values_max or self._known_bytes >= dataflow_known_bytes_max:
            self._forget()
        self._known[packed] = value
        self._known_bytes += len(packed) + len(value or b"")

    def _forget(self) -> None:
        self._known.clear()
        self._known_bytes = 0

    def _change(self, key: bytes, value: bytes | None) -> None:
        self._pending[key] = value
        if len(self._pending) >= dataflow_pending_changes_max:
            self.flush()


def _hashable(key: Any) -> Any:
    return tuple(_hashable(part) for part in key) if isinstance(key, list) else key
