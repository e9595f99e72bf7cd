"""Classes of operators, by how a failure can affect their output (HA, 3.2), and kinds of recovery (HA, 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum


class OperatorClass(IntEnum):
    """Each class includes those before it."""

    #: If restarted empty at an earlier point, it produces the same rows again: filter, map, join without timeout.
    REPEATABLE = 1
    #: If restarted empty, it produces the same rows from some row on: sort, resample, windows aligned to time.
    CONVERGENT_CAPABLE = 2
    #: From the same state and the same rows on each input, it produces the same output: windows aligned to a
    #: count.
    DETERMINISTIC = 3
    #: Its output depends on how its inputs interleave, on arrival times, or on chance: union, timeouts.
    ARBITRARY = 4

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


def most_general(classes: Iterable[OperatorClass]) -> OperatorClass:
    """Return the class of a network, which is that of its most general operator."""
    return max(classes, default=OperatorClass.REPEATABLE)


class Recovery(Enum):
    """How the output of a run with a failure differs from one without (HA, Figure 2), best first."""

    #: The same rows, each once, in the same order.
    PRECISE = "precise"
    #: Some rows are repeated unchanged.
    REPEATING = "repeating"
    #: Some rows are repeated and differ. After them, the output is as without a failure.
    CONVERGENT = "convergent"
    #: No rows are lost, but from the failure on the rows may differ from every run without a failure.
    DIVERGENT = "divergent"
    #: Rows are lost.
    GAP = "gap"
