"""Appends the leader's entries. An append without an answer is repeated until its outcome is known.

Each entry has the number of bytes that were appended before it. So the first and last entry give the journal's
length.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Final, TypeVar

from peacefs.coordinator.limits import journal_unsure_max_s
from peacefs.protocol.limits import MIB

from .port import Entry, Fenced, Journal, JournalFull, JournalRefused, JournalUnsure

# Pause before an append without an answer is repeated, and seconds after which the writer gives up.
journal_repeat_pause_s: Final = 0.05
journal_bytes_max: Final = 1024 * MIB


R = TypeVar("R")
_POSITION = struct.Struct(">Q")


def position_of(entry: Entry) -> int:
    """Return how many bytes were appended before an entry."""
    return int(_POSITION.unpack_from(entry.data)[0])


def content_of(entry: Entry) -> bytes:
    return entry.data[_POSITION.size :]


class JournalWriter:
    """Used by the thread that commits. `epoch` is the epoch of this coordinator, 0 if it has none."""

    def __init__(
        self,
        journal: Journal,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        bytes_max: int = journal_bytes_max,
    ) -> None:
        self.journal = journal
        self._clock = clock
        self._pause = pause
        self._bytes_max = bytes_max
        self.epoch = 0
        #: The last entry of the journal when the epoch was taken.
        self.last: Entry | None = None
        #: The bytes appended so far, and the bytes before the first kept entry.
        self._appended_bytes = 0
        self._trimmed_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Return the length of the journal in bytes."""
        return self._appended_bytes - self._trimmed_bytes

    def take(self, old: int, epoch: int) -> bool:
        """Take an epoch. Return whether this coordinator has it. Raises JournalUnsure, JournalRefused."""
        if not self.journal.take(old, epoch):
            return False
        self.epoch = epoch
        ends = self.measure()
        self.last = None if ends is None else ends[1]
        return True

    def advance(self, epoch: int) -> None:
        """Move from this coordinator's epoch to a later one. Raises Fenced."""
        if not self._repeat(lambda: self.journal.take(self.epoch, epoch)):
            raise Fenced(f"epoch {self.epoch} is over")
        self.epoch = epoch

    def measure(self) -> tuple[Entry, Entry] | None:
        """Measure the journal. Return its first and last entry. Raises JournalUnsure, JournalRefused."""
        ends = self.journal.ends()
        if ends is None:
            self._appended_bytes = self._trimmed_bytes = 0
            return None
        first, last = ends
        self._appended_bytes = max(self._appended_bytes, position_of(last) + len(content_of(last)))
        self._trimmed_bytes = position_of(first)
        return ends

    def append(self, number: int, content: bytes) -> None:
        """Append an entry. Raises Fenced, JournalFull, JournalRefused."""
        if self.size_bytes + len(content) > self._bytes_max:
            raise JournalFull(
                f"the journal has {self.size_bytes} bytes, which not all coordinators have read: start those that "
                "are down, or wait until they are forgotten"
            )
        data = _POSITION.pack(self._appended_bytes) + content
        epoch = self.epoch
        self._repeat(lambda: self.journal.append(epoch, number, data))
        self._appended_bytes += len(content)

    def _repeat(self, call: Callable[[], R]) -> R:
        give_up_s = self._clock() + journal_unsure_max_s
        is_unsure = False
        while True:
            try:
                return call()
            except (JournalUnsure, JournalFull) as unsure:
                if isinstance(unsure, JournalFull) and not is_unsure:
                    raise
                # The journal is full now, but an earlier attempt without an answer may have succeeded, or may
                # still arrive.
                is_unsure = True
                if self._clock() >= give_up_s:
                    raise JournalRefused(f"{unsure}; it is not known whether the last change was made") from None
                self._pause(journal_repeat_pause_s)
