"""The retry cache: answers to requests by request id. Recent ones are in memory, older ones in the image."""

from __future__ import annotations

from collections import deque
from typing import Final

from .changed_rows import ChangedRows
from .tables import REQUEST, Row

# Maximum number of answers in memory. Older ones are looked up in the image.
answers_in_memory_max: Final = 100_000


class Answers:
    """Answers by request id, numbered in the order in which they were given. Owned by `Rows`."""

    def __init__(self, rows: ChangedRows) -> None:
        self._rows = rows
        self._numbers: dict[str, int] = {}
        self._kept: deque[tuple[int, str]] = deque()
        #: The largest request id that may be in the image without being in memory.
        self._image_only_max = ""
        self.first = self.next = 1

    def load(self) -> None:
        self._numbers.clear()
        self._kept.clear()
        query = self._rows.image.query
        ((first, last, largest),) = query(
            "SELECT min(number), max(number), (SELECT max(request) FROM request) FROM request"
        )
        self.first, self.next = first or 1, (last or 0) + 1
        self._image_only_max = largest or ""

    def find(self, request: str) -> Row | None:
        """Return the row of a request id, None if it has no answer."""
        number = self._numbers.get(request)
        if number is not None:
            return self._rows.row(REQUEST, number)
        if request > self._image_only_max:
            return None
        found = self._rows.image.query("SELECT * FROM request WHERE request = ?", request)
        # The image may still have an answer that was deleted since.
        return found[0] if found and found[0][0] not in self._rows.changed[REQUEST] else None

    def add(self, request: str, answer: bytes, at_ms: int) -> None:
        number = self.next
        self.next += 1
        self._rows.put_single(REQUEST, number, (number, request, answer, at_ms))
        self._numbers[request] = number
        self._kept.append((number, request))

    def found_in_log(self, row: Row) -> None:
        """Index an answer that was read from the log or the journal."""
        self.next = max(self.next, row[0] + 1)
        # A coordinator that has no answers yet numbers its first one 1, whatever the numbers here are.
        self.first = min(self.first, row[0])
        self._numbers[row[1]] = row[0]
        self._kept.append((row[0], row[1]))

    def deleted_in_log(self, number: int) -> None:
        """Remove an answer whose deletion was read from the log or the journal, and all older ones."""
        self.first = max(self.first, number + 1)
        while self._kept and self._kept[0][0] <= number:
            dropped, request = self._kept.popleft()
            if self._numbers.get(request) == dropped:
                del self._numbers[request]

    def take_back(self, number: int, *, is_added: bool, before: tuple[int, Row | None] | None) -> None:
        """Undo adding or deleting an answer. `before` is what `changed` had for it, None for nothing."""
        changed = self._rows.changed[REQUEST]
        undone = changed[number][1]
        if before is None:
            del changed[number]
        else:
            changed[number] = before
        if is_added:
            assert undone is not None, f"answer {number} is not there"
            if self._kept and self._kept[-1][0] == number:
                self._kept.pop()
            if self._numbers.get(undone[1]) == number:
                del self._numbers[undone[1]]
            self.next = number
        else:
            row = self._rows.row(REQUEST, number)
            assert row is not None, f"answer {number} was deleted, and was not there"
            self._numbers[row[1]] = number
            self.first = min(self.first, number)
            if not self._kept or self._kept[0][0] > number:
                # It was deleted in the log, which also removes it from memory.
                self._kept.appendleft((number, row[1]))

    def shrink(self) -> None:
        """Remove the oldest answers from memory, down to `answers_in_memory_max`, if the image has them."""
        while len(self._kept) > answers_in_memory_max and self._kept[0][0] not in self._rows.changed[REQUEST]:
            number, request = self._kept.popleft()
            if self._numbers.get(request) == number:
                del self._numbers[request]
            self._image_only_max = max(self._image_only_max, request)

    def drop_oldest(self, before_ms: int, limit: int, keep: int) -> int:
        """Delete up to `limit` answers older than `before_ms`, oldest first, and return how many.

        The last `keep` answers always stay.
        """
        last = self.next - 1 - keep
        rows = self._rows
        image = rows.image.query(
            "SELECT number, request, at_ms FROM request WHERE number BETWEEN ? AND ? ORDER BY number LIMIT ?",
            *(self.first, last, limit),
        )
        changed = rows.changed[REQUEST]
        gone = {number for number, (_, row) in changed.items() if row is None}
        found = {number: (request, at_ms) for number, request, at_ms in image if number not in gone}
        if len(image) < limit:
            found |= {n: (row[1], row[3]) for n, (_, row) in changed.items() if row is not None and n <= last}
        dropped = 0
        for number in sorted(found)[:limit]:
            request, at_ms = found[number]
            if at_ms >= before_ms:
                break
            rows.delete(REQUEST, number)
            if self._numbers.get(request) == number:
                del self._numbers[request]
            self.first = number + 1
            dropped += 1
        return dropped
