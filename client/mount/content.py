"""Decides where the bytes of an open file are, and when they are sent and published. Pure.

A file of the cluster can be replaced as a whole, extended at its end, and truncated. But programs also write in
the middle. So each local change goes to a *stage*, a local file. As long as a program only appends, the bytes also
go to a *stream* that writes them to datanodes. The end of the stream publishes them. A write anywhere else ends
the stream, and the stage is published as a whole file when the file is closed or synced.

A stream that was not synced has published nothing and can be dropped. If the stage of a streamed file exceeds its
space, the stage is dropped instead; then the file can only be extended.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from peacefs.protocol.limits import MIB

# A new file is streamed when it exceeds this length. A smaller file is written in one call when it is closed.
stream_after_bytes: Final = 8 * MIB


class Stream(Enum):
    """What a stream writes: a new file, which replaces an existing one at the end, or an append to a file."""

    NEW = auto()
    APPEND = auto()


@dataclass(frozen=True)
class Fetch:
    """Copy the first bytes of the published version into the stage."""

    length: int


@dataclass(frozen=True)
class Keep:
    """Write the caller's bytes to the stage, at this offset of the file."""

    offset: int


@dataclass(frozen=True)
class Resize:
    """Set the length of the stage to match a file of this length. Added bytes are zeros."""

    length: int


@dataclass(frozen=True)
class DropStage:
    """Discard the stage."""


@dataclass(frozen=True)
class Begin:
    """Begin a stream, and send it the bytes in the stage."""

    stream: Stream


@dataclass(frozen=True)
class Send:
    """Send the caller's bytes to the stream."""


@dataclass(frozen=True)
class SendZeros:
    """Send this number of zeros to the stream."""

    count: int


@dataclass(frozen=True)
class Sync:
    """Publish the bytes sent to the stream, and continue the stream."""


@dataclass(frozen=True)
class End:
    """Publish the bytes sent to the stream, and end it."""


@dataclass(frozen=True)
class Drop:
    """End the stream. Unsynced bytes are never published."""


@dataclass(frozen=True)
class Publish:
    """Publish the stage as a whole file, which replaces an existing one."""


@dataclass(frozen=True)
class Cut:
    """Truncate the published version to this length."""

    length: int


Step = Fetch | Keep | Resize | DropStage | Begin | Send | SendZeros | Sync | End | Drop | Publish | Cut


class FileContent:
    """The content of one file, as local processes see it. Methods return the steps to execute.

    The caller executes the steps in order. If a `Publish` fails, the stage is unchanged, and the caller may call
    `publish_failed` and try again. If another step fails, the content must not be used any more. Methods raise
    OSError with EFBIG, without a change, if the stage would need more than `room` bytes.
    """

    def __init__(self, published: int | None) -> None:
        """Begin with a version of `published` bytes in the cluster; None if the file is new."""
        #: The length of the published version that the local changes are based on; None if there is none.
        self.published = published
        self.length = published or 0
        #: The offset from which the stage has all bytes to the end; None if nothing is staged.
        self.staged_from: int | None = None
        self.stream: Stream | None = None
        #: True if local changes have not been published.
        self.is_dirty = published is None
        #: True if the stream has published something.
        self._is_synced = False
        #: False once a program has written anywhere except at the end.
        self._is_sequential = True
        if published is None:
            self.staged_from = 0

    @property
    def staged_bytes(self) -> int:
        return 0 if self.staged_from is None else self.length - self.staged_from

    def replace(self) -> list[Step]:
        """Begin a new, empty content, for O_TRUNC. The published version stays until `close`."""
        steps = self._end_stream()
        self.length, self.staged_from, self._is_sequential = 0, 0, True
        self.is_dirty = True
        return [*steps, Resize(0)]

    def write(self, offset: int, count: int, room: int) -> list[Step]:
        """Write `count` bytes at `offset`. A gap before them is filled with zeros."""
        end = max(self.length, offset + count)
        if offset < self.length:
            return self._change_staged(room, end, [Keep(offset)], self.length)
        return self._extend(offset, end, room)

    def truncate(self, length: int, room: int) -> list[Step]:
        """Set the length. If there are no local changes, a longer published version is truncated at once."""
        if length == self.length:
            return []
        if length > self.length:
            return self._extend(length, length, room)
        if not self.is_dirty and self.stream is None:
            steps: list[Step] = [Cut(length)]
            self.published = self.length = length
            if self.staged_from is not None:
                self.staged_from = min(self.staged_from, length)
                steps.append(Resize(length))
            return steps
        return self._change_staged(room, length, [Resize(length)], length)

    def sync(self) -> list[Step]:
        """Publish the content, for fsync. A stream continues."""
        if not self.is_dirty:
            return []
        if self.stream is not None:
            self._is_synced = True
            self._have_published()
            return [Sync()]
        self._have_published()
        return [Publish()]

    def close(self) -> list[Step]:
        """Publish the content, for the last close. The stage stays for other users of the file."""
        steps: list[Step] = []
        if self.stream is not None:
            self.stream, self._is_synced = None, False
            steps = [End()]
        elif self.is_dirty:
            steps = [Publish()]
        self._have_published()
        return steps

    def publish_failed(self) -> None:
        """Keep the local changes so that another `sync` or `close` can publish them."""
        self.is_dirty = True

    def detach(self, room: int) -> list[Step]:
        """Copy the whole content to the stage, because the published version will be deleted."""
        steps = self._change_staged(room, self.length, [], self.length)
        self.published = None
        return steps

    def delete(self) -> list[Step]:
        """Keep the content for local processes only, because its name was deleted."""
        if self.stream is None or self.staged_from != 0:
            return []
        self.stream, self._is_synced, self._is_sequential = None, False, False
        return [Drop()]

    def abandon(self) -> list[Step]:
        """Discard all unpublished local changes."""
        steps: list[Step] = [] if self.stream is None else [Drop()]
        self.stream, self._is_synced, self.is_dirty = None, False, False
        return steps

    def staged_part(self, offset: int, count: int) -> tuple[int, int]:
        """Return how many of these bytes are in the published version, and how many after them in the stage.

        Raises EFBIG for bytes that were only streamed, which cannot be read back.
        """
        count = max(min(count, self.length - offset), 0)
        if self.staged_from is None:
            if offset + count > (self.published or 0):
                raise OSError(errno.EFBIG, "The file is too long to be read before it is closed or synced")
            return count, 0
        below = max(min(count, self.staged_from - offset), 0)
        return below, count - below

    def _extend(self, offset: int, end: int, room: int) -> list[Step]:
        """Write at or after the end of the content. With a count of 0, only extend the file with zeros."""
        steps: list[Step] = []
        gap = offset - self.length
        if gap > room:
            raise _too_long()
        is_clean = not self.is_dirty and self.stream is None
        if is_clean and self._is_sequential and self.published is not None:
            if self.staged_from is None:
                self.staged_from = self.length
            steps.append(Begin(Stream.APPEND))
            self.stream = Stream.APPEND
        begins = self.stream is None and self._is_sequential and end > min(stream_after_bytes, room)
        if begins:
            steps.append(Begin(Stream.NEW))
            self.stream = Stream.NEW
        if self.staged_from is not None and end - self.staged_from > room:
            if self.stream is None:
                raise _too_long()
            steps.append(DropStage())
            self.staged_from = None
        if gap:
            steps += [Resize(offset)] if self.staged_from is not None else []
            steps += [SendZeros(gap)] if self.stream is not None else []
        if end > offset:
            steps += [Keep(offset)] if self.staged_from is not None else []
            steps += [Send()] if self.stream is not None else []
        self.length, self.is_dirty = end, True
        return steps

    def _change_staged(self, room: int, length: int, changes: list[Step], kept: int) -> list[Step]:
        """Change bytes in the middle: end the stream, fetch the first `kept` bytes to the stage, change it."""
        if self.staged_from is None and self.length > (self.published or 0):
            raise _too_long()
        if max(length, self.length) > room:
            raise _too_long()
        missing = min(self.length if self.staged_from is None else self.staged_from, kept)
        steps = self._end_stream()
        if self.staged_from is None:
            steps.append(Resize(0))
        if missing:
            steps.append(Fetch(missing))
        self.staged_from, self._is_sequential = 0, False
        self.length, self.is_dirty = length, True
        return [*steps, *changes]

    def _end_stream(self) -> list[Step]:
        if self.stream is None:
            return []
        steps: list[Step] = [End() if self._is_synced else Drop()]
        if self._is_synced:
            self.published = self.length
        self.stream, self._is_synced = None, False
        return steps

    def _have_published(self) -> None:
        self.published, self.is_dirty = self.length, False


def _too_long() -> OSError:
    return OSError(errno.EFBIG, "File too large to be changed here")
