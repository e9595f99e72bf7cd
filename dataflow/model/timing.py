"""What a query declares about the order of a stream: how late rows may be, and when the stream is idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """`lateness_us`: a row may be this much older than the latest row before it.

    `idle_us`: after this long without rows, the stream does not hold others back. None: it always does.
    """

    lateness_us: int = 0
    idle_us: int | None = None


def together(inputs: Sequence[Timing]) -> Timing:
    """Return the timing of rows of several streams: as late as the latest, idle only if all are."""
    idle = [each.idle_us for each in inputs if each.idle_us is not None]
    return Timing(
        max((each.lateness_us for each in inputs), default=0),
        max(idle) if idle and len(idle) == len(inputs) else None,
    )
