"""The extent of an eventual checkpoint, and policies for which windows to check to shorten it (CEC, III.A)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from peacefs.dataflow.model.numbers import is_number
from peacefs.protocol.errors import InvalidQuery

# Default of `Targets.replay_rows`: the maximum number of rows that may be replayed.
cec_replay_rows: Final = 1_000_000
# Defaults of `CostBenefit`: the cost to load a tuple, to replay a row, and to check a window.
cec_load_tuple_s: Final = 0.5e-6
cec_replay_row_s: Final = 0.5e-6
cec_check_window_s: Final = 1e-6


@dataclass(frozen=True)
class Extent:
    """The cost of a failure at this moment, and how much a check of the oldest windows would reduce it."""

    open_windows: int
    #: Number of control tuples that a load reads: q of the paper.
    tuples: int
    #: Number of rows that producers send again: u of the paper.
    rows: int
    #: The age of the oldest footprint that counts.
    age_s: float = 0.0
    #: Number of windows with the oldest footprint, and by how much a check of them reduces `tuples` and `rows`.
    oldest_windows: int = 0
    tuples_saved: int = 0
    rows_saved: int = 0


@runtime_checkable
class WindowChoice(Protocol):
    def wants_check(self, extent: Extent) -> bool:
        """Return True if the windows with the oldest footprints should be checked now."""
        ...


@dataclass(frozen=True)
class OpenOnly:
    """Never check a window: what the paper calls minimum recovery-time guarantees."""

    def wants_check(self, extent: Extent) -> bool:
        return False


@dataclass(frozen=True)
class Targets:
    """Check the oldest windows while the extent, or the rows to replay, are above their targets Q and U.

    `extent` is Q as a multiple of the number of open windows. It is at least 1, since a load reads one tuple of
    each.
    """

    extent: float | None = 2.0
    replay_rows: int | None = cec_replay_rows

    def __post_init__(self) -> None:
        if self.extent is None and self.replay_rows is None:
            raise InvalidQuery("Targets needs extent or replay_rows; OpenOnly() checks no window")
        if self.extent is not None and not (is_number(self.extent) and self.extent >= 1):
            raise InvalidQuery(f"Targets(extent={self.extent!r}): a load reads a tuple of each window: 1 or more")
        if self.replay_rows is not None and not (is_number(self.replay_rows) and self.replay_rows >= 1):
            raise InvalidQuery(f"Targets(replay_rows={self.replay_rows!r}): it must be 1 or more")

    def wants_check(self, extent: Extent) -> bool:
        above = self.extent is not None and extent.tuples > self.extent * extent.open_windows
        return above or (self.replay_rows is not None and extent.rows > self.replay_rows)


@dataclass(frozen=True)
class CostBenefit:
    """Check the oldest windows while the expected savings exceed the cost.

    A check costs processor time now. If the unit fails while the old footprint would still be the oldest, the
    check saves the tuples that need not be loaded, and the rows that need not be replayed. A footprint is expected
    to stay the oldest for as long as its present age. `second_of_outage`: how many seconds of processor time a
    second without output is worth.
    """

    failures_per_day: float = 1.0
    second_of_outage: float = 1000.0
    load_tuple_s: float = cec_load_tuple_s
    replay_row_s: float = cec_replay_row_s
    check_window_s: float = cec_check_window_s

    def __post_init__(self) -> None:
        for name in ("failures_per_day", "second_of_outage", "load_tuple_s", "replay_row_s", "check_window_s"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < float("inf"):
                raise InvalidQuery(f"CostBenefit({name}={value!r}): it must be above 0")

    def wants_check(self, extent: Extent) -> bool:
        if not extent.oldest_windows:
            return False
        # The tuples of the check itself are part of the extent from now on.
        tuples = extent.tuples_saved - extent.oldest_windows
        saved_s = tuples * self.load_tuple_s + extent.rows_saved * self.replay_row_s
        failures = self.failures_per_day / 86_400 * extent.age_s
        return failures * saved_s * self.second_of_outage > extent.oldest_windows * self.check_window_s


@dataclass(frozen=True)
class CheckPolicy:
    """Which windows are checked, for `interval_s` in each `period_s`: CI and CP of the paper."""

    choice: WindowChoice
    interval_s: float
    period_s: float
