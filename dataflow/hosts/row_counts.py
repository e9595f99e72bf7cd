"""Counts the rows that go into a query and come out of it, in the program that started it."""

from __future__ import annotations

from collections import defaultdict


class RowCounts:
    """Rows by source and sink, and for how long each source had to wait. One thread counts, any thread reads."""

    def __init__(self) -> None:
        self.given: dict[str, int] = defaultdict(int)
        self.taken: dict[str, int] = defaultdict(int)
        #: Seconds that a source had rows and the query had no room for them.
        self.waited_s: dict[str, float] = defaultdict(float)
