"""Classes of operators by what a failure may do to their output (HA, section 3.2), and kinds of recovery (3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum


class OperatorClass(IntEnum):
    """Each class contains those before it."""

    #: Restarted empty at an earlier point, it produces the same rows again: filter, map, join without timeout.
    REPEATABLE = 1
    #: Restarted empty, it produces the same rows from some row on: sort, resample, windows aligned to time.
    CONVERGENT_CAPABLE = 2
    #: From the same state and the same rows on each input it produces the same: windows aligned to a count.
    DETERMINISTIC = 3
    #: Its output depends on how its inputs interleave, on when they arrive, or on chance: union, timeouts.
    ARBITRARY = 4

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


def most_general(classes: Iterable[OperatorClass]) -> OperatorClass:
    """Return the class of a network: that of its most general operator."""
    return max(classes, default=OperatorClass.REPEATABLE)


class Recovery(Enum):
    """The output of a run with a failure, compared with one without (HA, Figure 2), from best to worst."""

    #: The same rows, each once, in the same order.
    PRECISE = "precise"
    #: Some rows again, as they were.
    REPEATING = "repeating"
    #: Some rows again and different; after them as without a failure.
    CONVERGENT = "convergent"
    #: Rows that no run without a failure has, and they go on; nothing is lost.
    DIVERGENT = "divergent"
    #: Rows are lost.
    GAP = "gap"
