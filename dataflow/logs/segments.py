"""Stores of segments: a port, and its in-memory twin, which can simulate torn writes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from peacefs.protocol.errors import FileNotFound


@dataclass(frozen=True, slots=True)
class SegmentAppend:
    stream: str
    #: A segment is named after the lowest number that it may contain.
    segment: int
    data: bytes


class SegmentFile(Protocol):
    """A segment that is open for reading. Only one thread may use it at a time."""

    def read_into(self, offset: int, target: memoryview) -> int:
        """Fill `target` with the bytes from `offset` on, and return the number of bytes read.

        Sequential reads are faster.
        """
        ...

    def close(self) -> None: ...


class SegmentStore(Protocol):
    def append_all(self, appends: Sequence[SegmentAppend]) -> None:
        """Append to segments, create those that do not exist, and return when everything is durable.

        One call for many streams is a group commit. If it fails, any part of it may have been written.
        """
        ...

    def claim(self, stream: str) -> None:
        """Become the writer of a stream: the previous writer is refused from now on.

        Raises LeaseError if the previous writer is alive and cannot be refused.
        """
        ...

    def segments(self, stream: str) -> Sequence[tuple[int, int]]:
        """Return the (segment, bytes) pairs of a stream in order; empty if the stream does not exist."""
        ...

    def streams(self) -> Sequence[str]: ...

    def read(self, stream: str, segment: int, offset: int, length: int) -> bytes:
        """Return the existing bytes of a range. Raises FileNotFound if the segment is gone."""
        ...

    def open(self, stream: str, segment: int) -> SegmentFile:
        """Open a segment for several reads. Raises FileNotFound if it is gone."""
        ...

    def truncate(self, stream: str, segment: int, length: int) -> None: ...

    def delete(self, stream: str, segment: int) -> None: ...


class MemorySegments:
    """Segments in memory. After `cut_short`, the next append stops in the middle, as in a crash."""

    def __init__(self) -> None:
        self._segments: dict[str, dict[int, bytearray]] = {}
        self._chance: random.Random | None = None

    def cut_short(self, chance: random.Random) -> None:
        self._chance = chance

    def append_all(self, appends: Sequence[SegmentAppend]) -> None:
        chance, self._chance = self._chance, None
        for append in appends:
            data = append.data if chance is None else append.data[: chance.randint(0, len(append.data))]
            self._segments.setdefault(append.stream, {}).setdefault(append.segment, bytearray()).extend(data)
        if chance is not None:
            raise OSError("cut short")

    def claim(self, stream: str) -> None:
        """Do nothing: memory has only one writer."""

    def segments(self, stream: str) -> Sequence[tuple[int, int]]:
        return sorted((segment, len(data)) for segment, data in self._segments.get(stream, {}).items())

    def streams(self) -> Sequence[str]:
        return sorted(stream for stream, segments in self._segments.items() if segments)

    def read(self, stream: str, segment: int, offset: int, length: int) -> bytes:
        try:
            return bytes(self._segments[stream][segment][offset : offset + length])
        except KeyError:
            raise _gone(stream, segment) from None

    def open(self, stream: str, segment: int) -> SegmentFile:
        try:
            return _OpenBytes(self._segments[stream][segment])
        except KeyError:
            raise _gone(stream, segment) from None

    def truncate(self, stream: str, segment: int, length: int) -> None:
        del self._segments[stream][segment][length:]

    def delete(self, stream: str, segment: int) -> None:
        self._segments.get(stream, {}).pop(segment, None)


class _OpenBytes:
    def __init__(self, data: bytearray) -> None:
        self._data = data

    def read_into(self, offset: int, target: memoryview) -> int:
        part = self._data[offset : offset + len(target)]
        target[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Do nothing: there is no open file."""


def directory_name(stream: str) -> str:
    """Return the name of the directory that holds the segments of a stream."""
    return stream.replace("%", "%25").replace("/", "%2F")


def stream_name(directory: str) -> str:
    """Return the stream whose segments are in the directory with that name."""
    return directory.replace("%2F", "/").replace("%25", "%")


def _gone(stream: str, segment: int) -> FileNotFound:
    return FileNotFound(f"segment {segment} of stream {stream!r} is gone: it was trimmed, or never there")
