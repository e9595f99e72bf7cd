"""Changelogs and deltas of state, snapshots of the provider without RocksDB: their records and lineage.

RocksDB's changelogs have four forms. 1 and 3 (one column family) hold key and value, a length of -1 in place of a
value is a removal, in place of a key the end. 2 and 4 (several) have a byte before each record that says what it
is. 3 and 4 begin with the lineage: the state versions, with their unique ids, since the last snapshot. Those of
the other provider are as form 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from peacefs.protocol.errors import CheckpointDamaged, CheckpointTooNew

from .binary import DataInput
from .codecs import CannotUnpack, unpack

_VERSION_MARK = b"\x00\x02v"
_NEWEST = 4
_END = -1
_END_RECORD = 0


class LineageStep(msgspec.Struct, frozen=True, rename="camel"):
    """A state version and the unique id that it was written under."""

    version: int
    checkpoint_unique_id: str


@dataclass(frozen=True, slots=True)
class Changelog:
    """`form` 1 to 4; `lineage` only of 3 and 4."""

    form: int
    records: int
    lineage: tuple[LineageStep, ...]


@dataclass(frozen=True, slots=True)
class UnreadableChangelog:
    """One that could not be looked into, and why: nothing is known of its records or its lineage."""

    reason: str


_lineage = msgspec.json.Decoder(tuple[LineageStep, ...])


def parse_changelog(data: bytes) -> Changelog | UnreadableChangelog:
    """Raises CheckpointDamaged, CheckpointTooNew."""
    try:
        contents = unpack(data)
    except CannotUnpack as trouble:
        return UnreadableChangelog(str(trouble))
    source = DataInput(contents)
    form = 1
    if contents.startswith(_VERSION_MARK):
        version = source.text()[1:]
        form = int(version) if version.isdecimal() else 0
        if form > _NEWEST:
            raise CheckpointTooNew(f"a changelog of version {form}; this program knows up to {_NEWEST}")
        if form == 0:
            raise CheckpointDamaged(f"a changelog of version {version!r}")
    lineage = _read_lineage(source) if form >= 3 else ()
    records = _count_records(source, typed=form in (2, 4))
    return Changelog(form, records, lineage)


def _read_lineage(source: DataInput) -> tuple[LineageStep, ...]:
    try:
        return _lineage.decode(source.text().encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointDamaged(f"its lineage cannot be read: {error}") from None


def _count_records(source: DataInput, *, typed: bool) -> int:
    count = 0
    while True:
        if typed and source.byte() == _END_RECORD:
            break
        key = source.int()
        if key == _END:
            break
        source.take(key)
        value = source.int()
        if value != _END:
            source.take(value)
        count += 1
    if not source.at_end:
        raise CheckpointDamaged("records follow its end mark")
    return count
