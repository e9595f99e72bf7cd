"""Parse changelogs and deltas of state, and the snapshots of the provider without RocksDB.

RocksDB's changelogs have four forms. Forms 1 and 3 (one column family) hold keys and values; a length of -1 for
the value marks a removal, for the key the end. Forms 2 and 4 (several families) have a type byte before each
record. Forms 3 and 4 begin with the lineage: the state versions since the last snapshot, with their unique ids.
The files of the other provider have form 1.
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
    """A state version, and the unique id under which it was written."""

    version: int
    checkpoint_unique_id: str


@dataclass(frozen=True, slots=True)
class Changelog:
    """A parsed changelog. `form` is 1 to 4; only 3 and 4 have a `lineage`."""

    form: int
    records: int
    lineage: tuple[LineageStep, ...]


@dataclass(frozen=True, slots=True)
class UnreadableChangelog:
    """A changelog that could not be unpacked, and why. Its records and lineage are unknown."""

    reason: str


_lineage = msgspec.json.Decoder(tuple[LineageStep, ...])


def parse_changelog(data: bytes) -> Changelog | UnreadableChangelog:
    """Parse a changelog. Raises CheckpointDamaged, CheckpointTooNew."""
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
