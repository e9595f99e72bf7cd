"""Windows of `size` rows by key, counted by hand; a window begins at every `every`-th row of a key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def sums_of_windows(rows: Iterable[tuple[str, int]], size: int, every: int) -> dict[str, list[int]]:
    """Return, for each key, the sums of the values of its windows, in order, of those that are full."""
    values: dict[str, list[int]] = defaultdict(list)
    for key, value in rows:
        values[key].append(value)
    return {
        key: [sum(each[begin : begin + size]) for begin in range(0, len(each) - size + 1, every)]
        for key, each in values.items()
        if len(each) >= size
    }
