"""The open sessions of each key: which session a row belongs to, and which sessions it merges."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field


@dataclass
class Session:
    key: tuple[Hashable, ...]
    number: int
    first_us: int
    last_us: int
    merged: bool = field(default=False, repr=False)


class OpenSessions:
    """An index of sessions that have not been emitted. It can be built again from their accumulators."""

    def __init__(self, gap_us: int) -> None:
        self._gap_us = gap_us
        self._of: dict[tuple[Hashable, ...], list[Session]] = {}
        # (end when it was put here, number, session); a session may have grown since.
        self._ends: list[tuple[int, int, Session]] = []

    def add(self, session: Session) -> None:
        self._of.setdefault(session.key, []).append(session)
        heapq.heappush(self._ends, (session.last_us + self._gap_us, session.number, session))

    def near(self, key: tuple[Hashable, ...], time_us: int, watermark_us: int) -> list[Session]:
        """Return the sessions of a key that a row belongs to, oldest number first, except those that are over."""
        gap_us = self._gap_us
        return [
            each
            for each in self._of.get(key, ())
            if each.first_us - gap_us < time_us < each.last_us + gap_us and each.last_us + gap_us > watermark_us
        ]

    def merge(self, into: Session, others: Iterable[Session]) -> None:
        for other in others:
            into.first_us = min(into.first_us, other.first_us)
            into.last_us = max(into.last_us, other.last_us)
            other.merged = True
            self._of[into.key].remove(other)

    def over(self, watermark_us: int) -> list[Session]:
        """Remove and return the sessions that end at or before a time."""
        found = []
        while self._ends and self._ends[0][0] <= watermark_us:
            _, number, session = heapq.heappop(self._ends)
            end_us = session.last_us + self._gap_us
            if session.merged:
                continue
            if end_us > watermark_us:
                heapq.heappush(self._ends, (end_us, number, session))
                continue
            found.append(session)
            of_key = self._of[session.key]
            of_key.remove(session)
            if not of_key:
                del self._of[session.key]
        return found
