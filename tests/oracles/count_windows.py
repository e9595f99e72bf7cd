"""Count windows by key, in plain Python: the last `size` rows of a key, whenever `every` more have come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def sums_and_minima(rows: Iterable[tuple[str, int]], *, size: int, every: int) -> list[tuple[str, int, int]]:
    """Return (key, sum, minimum) of each full window, in the order of the rows that filled them."""
    of_key: dict[str, list[int]] = defaultdict(list)
    made = []
    for key, value in rows:
        values = of_key[key]
        values.append(value)
        if len(values) >= size and (len(values) - size) % every == 0:
            window = values[-size:]
            made.append((key, sum(window), min(window)))
    return made
