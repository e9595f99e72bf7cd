"""A map of Python values in pages, for functions that work row by row. Values are restored exactly.

Changes are collected in a dictionary, and put into the pages many at a time. Recently read or changed values are
also cached in packed form, since one look-up in the pages costs as much as a hundred in a dictionary. Keys are
iterated in the order of their bytes, so that a function that iterates behaves the same after a failure.

A value that is too long for a page is cut into pieces. Each piece is a record under the value's key with a number
before it. The record that stands for such a value, and the keys of pieces, begin with a byte that MessagePack
never uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from peacefs.protocol.errors import RecordRefused
from peacefs.protocol.limits import MIB
from peacefs.state.pages.page_set import PageSet
from peacefs.state.structures.unordered_map import UnorderedMap

from .exact_values import decode_key, decode_value, encode_key, encode_value
from .interface import ValueMap

# A value is cut into pieces if it is longer than a page divided by this. A key can have half a page.
dataflow_pieces_per_page: Final = 4
# Number of changes of a map after which they are put into pages.
dataflow_pending_changes_max: Final = 1024
# Maximum number of values that are cached outside the pages, and their bytes.
dataflow_known_values_max: Final = 65_536
dataflow_known_bytes_max: Final = 16 * MIB


_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_GONE: Final = None
#: First byte of the record that stands for a value in pieces, and of the keys of its pieces. MessagePack never
#: uses it.
_CUT: Final = b"\xc1"
#: The record that says that the map has values in pieces.
_HAS_CUT: Final = _CUT
#: Bytes of a page that are not available for values.
_OVERHEAD_BYTES: Final = 64
_encode_count: Final = msgspec.msgpack.encode
_decode_count: Final = msgspec.msgpack.decode


class PackedMap(ValueMap):
    """The map of Python values that a function with state receives.

    A key's value is the pending one if there is one, else the cached one, else the one in the pages. `PagedState`
    makes the map, and flushes it before each capture, so that a checkpoint has all changes. Functions call the
    rest.
    """

    def __init__(self, page_set: PageSet) -> None:
        self._stored = UnorderedMap.create(page_set, _SCHEMA, "key")
        self._piece_bytes = page_set.frames.page_bytes // dataflow_pieces_per_page - _OVERHEAD_BYTES
        self._key_bytes_max = page_set.frames.page_bytes // 2
        #: Number of pieces of each value in pieces. None until it is needed.
        self._pieces: dict[bytes, int] | None = None
        self._pending_bytes = 0
        #: Changes since the last flush: the packed value, or None for a removed key.
        self._pending: dict[bytes, bytes | None] = {}
        #: Cached packed values as in the pages; None for keys that the pages do not have.
        self._known: dict[bytes, bytes | None] = {}
        self._known_bytes = 0

    def flush(self) -> None:
        """Put all changes into the pages."""
        put = {key: value for key, value in self._pending.items() if value is not _GONE}
        gone = [key for key, value in self._pending.items() if value is _GONE]
        for key, value in self._pending.items():
            self._learn(key, value)
        self._pending.clear()
        self._pending_bytes = 0
        put, surplus = self._cut(put, gone)
        if put:
            self._stored.upsert(list(put), list(put.values()))
        if gone or surplus:
            self._stored.remove([*gone, *surplus])

    def _cut(self, put: dict[bytes, bytes], gone: Sequence[bytes]) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Return the records of values, with long values in pieces, and the keys of old pieces to remove."""
        known = self._known_pieces()
        surplus = []
        for key in (*put, *gone) if known else ():
            had = known.pop(key, 0)
            needed = self._count(put[key]) if key in put else 0
            surplus += [_piece_key(key, piece) for piece in range(needed, had)]
        records = {}
        for key, value in put.items():
            count = self._count(value)
            if not count:
                records[key] = value
                continue
            known[key] = count
            records[key] = _CUT + _encode_count(count)
            for piece in range(count):
                begin = piece * self._piece_bytes
                records[_piece_key(key, piece)] = value[begin : begin + self._piece_bytes]
        if known:
            records[_HAS_CUT] = _HAS_CUT
        elif surplus:
            surplus.append(_HAS_CUT)
        return records, surplus

    def _count(self, value: bytes) -> int:
        """Return the number of pieces into which a value is cut; 0 if it is not cut."""
        return -(-len(value) // self._piece_bytes) if len(value) > self._piece_bytes else 0

    def _known_pieces(self) -> dict[bytes, int]:
        if self._pieces is None:
            self._pieces = {}
            if self._stored.get(_HAS_CUT) is not None:
                keys = [key for key in self._stored if not key.startswith(_CUT)]
                values = self._stored.find(keys).column("value").to_pylist()
                cut = ((key, value) for key, value in zip(keys, values, strict=True) if value.startswith(_CUT))
                self._pieces = {key: _decode_count(value[1:]) for key, value in cut}
        return self._pieces

    def _whole(self, key: bytes, stored: bytes | None) -> bytes | None:
        """Return a whole value, given the record that is stored under its key."""
        if stored is None or not stored.startswith(_CUT):
            return stored
        keys = [_piece_key(key, piece) for piece in range(_decode_count(stored[1:]))]
        return b"".join(self._stored.find(keys).column("value").to_pylist())

    def __getitem__(self, key: Any) -> Any:
        value = self._value(encode_key(key))
        if value is None:
            raise KeyError(key)
        return decode_value(value)

    def find_all(self, keys: Sequence[Any]) -> list[Any]:
        packed = [encode_key(key) for key in keys]
        missing = [key for key in dict.fromkeys(packed) if key not in self._pending and key not in self._known]
        found: dict[bytes, bytes | None] = {}
        if missing:
            stored = self._stored.find(missing).column("value").to_pylist()
            found = {key: self._whole(key, value) for key, value in zip(missing, stored, strict=True)}
        values = [found[key] if key in found else self._value(key) for key in packed]
        for key, value in found.items():
            self._learn(key, value)
        return [None if value is None else decode_value(value) for value in values]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._change(encode_key(key), encode_value(value))

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._change(encode_key(key), _GONE)

    def __contains__(self, key: object) -> bool:
        return self._value(encode_key(key)) is not None

    def __iter__(self) -> Iterator[Any]:
        self.flush()
        keys = sorted(key for key in self._stored if not key.startswith(_CUT))
        return iter([decode_key(key) for key in keys])

    def __len__(self) -> int:
        self.flush()
        pieces = self._known_pieces()
        return len(self._stored) - sum(pieces.values()) - bool(pieces)

    def clear(self) -> None:
        self._pending.clear()
        self._pending_bytes = 0
        self._pieces = {}
        self._forget()
        self._stored.clear()

    def _value(self, packed: bytes) -> bytes | None:
        """Return the packed value of a key; None if the map does not have the key."""
        if packed in self._pending:
            return self._pending[packed]
        if packed not in self._known:
            self._learn(packed, self._whole(packed, self._stored.get(packed)))
        return self._known[packed]

    def _learn(self, packed: bytes, value: bytes | None) -> None:
        """Cache a value that the pages have or are about to have."""
        if len(self._known) >= dataflow_known_values_max or self._known_bytes >= dataflow_known_bytes_max:
            self._forget()
        self._known[packed] = value
        self._known_bytes += len(packed) + len(value or b"")

    def _forget(self) -> None:
        self._known.clear()
        self._known_bytes = 0

    def _change(self, key: bytes, value: bytes | None) -> None:
        if len(key) > self._key_bytes_max:
            raise RecordRefused(f"a key of {len(key)} bytes is too long: there is room for {self._key_bytes_max}")
        self._pending[key] = value
        self._pending_bytes += len(value or b"")
        if len(self._pending) >= dataflow_pending_changes_max or self._pending_bytes >= dataflow_known_bytes_max:
            self.flush()


def _piece_key(key: bytes, piece: int) -> bytes:
    return _CUT + piece.to_bytes(4, "big") + key
