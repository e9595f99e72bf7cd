"""Parse the text files of a checkpoint: metadata, offsets, commits, logs of file sources and sinks. Pure.

All but `metadata` begin with a line `v1` or `v2`. All parsers raise CheckpointDamaged, or CheckpointTooNew for a
version that this program does not know.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from peacefs.protocol.errors import CheckpointDamaged, CheckpointTooNew

_NEWEST_OFFSETS = 2
_NEWEST_COMMIT = 3
_NEWEST_FILE_LOG = 1
_NO_OFFSET = "-"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
#: Recorded by Spark 4.0 and newer, which also write metadata of operators.
_SINCE_4_0 = "spark.sql.streaming.stateStore.encodingFormat"
#: Recorded by Spark 4.1 and newer, which also fall back on an earlier snapshot of state.
_SINCE_4_1 = "spark.sql.streaming.stateStore.rowChecksum.enabled"


class QueryMetadata(msgspec.Struct, frozen=True):
    """The contents of `metadata`: the query's id, the same for all its runs."""

    id: str


class _OffsetMetadata(msgspec.Struct, frozen=True, rename="camel"):
    batch_watermark_ms: int = 0
    batch_timestamp_ms: int = 0
    conf: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Offsets:
    """The contents of `offsets/N`: where batch N ends in each source, None if a source had nothing."""

    watermark_ms: int
    planned_ms: int
    conf: dict[str, str]
    sources: tuple[str | None, ...]

    @property
    def shuffle_partitions(self) -> int | None:
        text = self.conf.get(_SHUFFLE_PARTITIONS, "")
        return int(text) if text.isascii() and text.isdecimal() else None

    @property
    def before_operator_metadata(self) -> bool:
        """Whether a Spark older than 4.0 wrote it, judged by the settings that it recorded."""
        return _SHUFFLE_PARTITIONS in self.conf and _SINCE_4_0 not in self.conf

    @property
    def falls_back(self) -> bool:
        """Whether the Spark that wrote it falls back on an earlier snapshot if one cannot be loaded."""
        return _SHUFFLE_PARTITIONS not in self.conf or _SINCE_4_1 in self.conf

    def file_log_end(self, source: int) -> int | None:
        """Return the last entry of the source's log that the batch read; None if it is no file source."""
        text = self.sources[source] if source < len(self.sources) else None
        try:
            return msgspec.json.decode(text or "", type=_FileOffset).log_offset
        except msgspec.DecodeError:
            return None


class _FileOffset(msgspec.Struct, frozen=True, rename="camel"):
    log_offset: int


class BatchCommit(msgspec.Struct, frozen=True, rename="camel"):
    """The contents of `commits/N`, with the unique ids of its state by operator, partition and store.

    Only format 2 has ids. A query without state has none; with asynchronous progress, as in Real-time Mode, they
    are left out. Version 3 of the file also describes the sink.
    """

    next_batch_watermark_ms: int = 0
    state_unique_ids: dict[int, list[list[str]]] | None = None
    sink_metadata_map: dict[str, Any] = {}
    version: int = 1


class FileLogEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A file that a source has read (then with `batch_id`) or that a sink has written."""

    path: str
    batch_id: int | None = None
    action: str | None = None


_Value = TypeVar("_Value")


def parse_query_metadata(data: bytes) -> QueryMetadata:
    """Parse the file `metadata`. Raises CheckpointDamaged."""
    metadata = _decode(_text(data), QueryMetadata)
    try:
        uuid.UUID(metadata.id)
    except ValueError:
        raise CheckpointDamaged("the id is no UUID" if metadata.id else "the id is empty") from None
    return metadata


def parse_offsets(data: bytes) -> Offsets:
    """Parse a file of `offsets`. Raises CheckpointDamaged, CheckpointTooNew."""
    _, lines = _lines(data, _NEWEST_OFFSETS)
    if not lines:
        raise CheckpointDamaged("cut short: no metadata after the version")
    metadata = _decode(lines[0], _OffsetMetadata)
    if not lines[1:]:
        raise CheckpointDamaged("cut short: it names no source")
    for line in lines[1:]:
        if not line.strip():
            raise CheckpointDamaged("a source has an empty offset")
        if line[0] in '{["':
            _decode(line, Any)
    sources = tuple(None if line == _NO_OFFSET else line for line in lines[1:])
    return Offsets(metadata.batch_watermark_ms, metadata.batch_timestamp_ms, metadata.conf, sources)


def parse_commit(data: bytes) -> BatchCommit:
    """Parse a file of `commits`. Raises CheckpointDamaged, CheckpointTooNew."""
    version, lines = _lines(data, _NEWEST_COMMIT)
    if len(lines) != 1:
        raise CheckpointDamaged(f"{len(lines)} lines after the version, not one")
    commit = _decode(lines[0], BatchCommit)
    if version >= 3 and not commit.sink_metadata_map:
        raise CheckpointDamaged(f"version {version} without a sink")
    return replace(commit, version=version)


def parse_file_log(data: bytes) -> list[FileLogEntry]:
    """Parse a file of a file source's or sink's log, compacted or not."""
    _, lines = _lines(data, _NEWEST_FILE_LOG)
    return [_decode(line, FileLogEntry) for line in lines if line]


def parse_version(data: bytes) -> int:
    """Return the version of a log file whose content only its source understands. Kafka's begins with a NUL."""
    text = _text(data.removeprefix(b"\x00"))
    return _version(text.split("\n", 1)[0])


def _lines(data: bytes, newest: int) -> tuple[int, list[str]]:
    first, *rest = _text(data).split("\n")
    version = _version(first)
    if version > newest:
        raise CheckpointTooNew(f"version {version}; this program knows up to {newest}")
    while rest and not rest[-1]:
        rest.pop()
    return version, rest


def _version(line: str) -> int:
    digits = line[1:]
    if not line.startswith("v") or not (digits.isascii() and digits.isdecimal()) or int(digits[:9]) < 1:
        raise CheckpointDamaged("it does not begin with a version" if line else "empty")
    return int(digits[:9])


def _text(data: bytes) -> str:
    if not data:
        raise CheckpointDamaged("empty")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CheckpointDamaged("no text") from None


def _decode(text: str, kind: type[_Value]) -> _Value:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CheckpointDamaged(f"cannot be read: {error}") from None
