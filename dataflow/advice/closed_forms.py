"""The closed forms of HA's Tables 3 and 4 (sections 5 and 6), from which the techniques are estimated.

All forms are averages for one unit whose node fails. Times are in seconds, rates in rows per second, sizes in
bytes. Overheads are shares of the bytes of the unit's input: 1.0 means as many bytes again. Symbols are those of
HA's Table 1: `Q` is the number of rows that are processed again, `K` the time until the first of them arrives,
`Delta` the number of rows that consumers receive twice. `benchmarks/papers/closed_forms.py` has the forms that no
estimate needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Processor time of a filter per row (HA's Table 5).
HA_FILTER_S: Final = 10e-6


@dataclass(frozen=True, kw_only=True)
class HAParameters:
    """The input rate of a unit, the intervals and the delays. The defaults are those of HA's Table 5."""

    #: lambda: rows per second, of all inputs together.
    rate: float = 1000.0
    #: M: the interval of checkpoints or acknowledgements.
    interval_s: float = 0.05
    #: d: the delay of a link.
    delay_s: float = 0.005
    #: r: the time to redirect input streams.
    redirection_s: float = 0.04
    bandwidth_bits_s: float = 16e6
    row_bytes: int = 50
    number_bytes: int = 8


@dataclass(frozen=True, kw_only=True)
class UnitLoad(HAParameters):
    """A unit and its load. The defaults are those of HA's filter."""

    #: Output rows per input row.
    selectivity: float = 1.0
    #: p: processor time per input row, in seconds.
    processing_s: float = HA_FILTER_S
    #: |state|: input rows that the state depends on, on average.
    state_rows: float = 0.0
    #: Rows that each input row adds to the state and to the queues inside the unit.
    state_rows_per_row: float = 0.0
    inputs: int = 1
    outputs: int = 1

    @property
    def rate_out(self) -> float:
        return self.rate * self.selectivity


def first_row_s(load: UnitLoad) -> float:
    """K = r + d: from the detection of the failure until the first replayed row arrives."""
    return load.redirection_s + load.delay_s


# -- rows that are processed again, and rows that are emitted again ------------------------------------------


def passive_standby_replayed_rows(load: UnitLoad) -> float:
    """Q = M lambda / 2: on average, the input of half an interval since the last copy."""
    return load.interval_s * load.rate / 2


def upstream_backup_replayed_rows(load: UnitLoad) -> float:
    """Q = |state| + M lambda + 2 d lambda: the state, half an interval per level, and the rows in transit."""
    return load.state_rows + load.interval_s * load.rate + 2 * load.delay_s * load.rate


def active_standby_repeated_rows(load: UnitLoad) -> float:
    """Delta = M lambda_out / 2 + 2 d lambda_out (5.3): rows that the secondary has not trimmed yet."""
    return (load.interval_s / 2 + 2 * load.delay_s) * load.rate_out


# -- recovery time -----------------------------------------------------------------------------------------


def passive_standby_recovery_s(load: UnitLoad) -> float:
    """K + Q p."""
    return first_row_s(load) + passive_standby_replayed_rows(load) * load.processing_s


def upstream_backup_recovery_s(load: UnitLoad) -> float:
    """K + Q p."""
    return first_row_s(load) + upstream_backup_replayed_rows(load) * load.processing_s


def active_standby_recovery_s(load: UnitLoad, *, precise: bool = False) -> float:
    """Return the time to send Delta rows, "negligible" in Table 3. `precise` adds the time r (Table 4)."""
    sending_s = active_standby_repeated_rows(load) * load.row_bytes * 8 / load.bandwidth_bits_s
    return sending_s + (load.redirection_s if precise else 0.0)


# -- bandwidth -----------------------------------------------------------------------------------------------


def trimming_share(load: UnitLoad, numbers: int) -> float:
    """f3(1/M, c): `numbers` row numbers per input and interval, as a share of the bytes of the input."""
    return numbers * load.inputs * load.number_bytes / (load.interval_s * load.rate * load.row_bytes)


def upstream_backup_bandwidth(load: UnitLoad, *, precise: bool = False) -> float:
    """f3(1/M, c) with acknowledgements of both levels. `precise` adds a watermark to each row (Table 4)."""
    return trimming_share(load, 2) + (load.number_bytes / load.row_bytes if precise else 0.0)


def active_standby_bandwidth(load: UnitLoad) -> float:
    """100 % + f3(1/M, c): the input a second time, acknowledgements of both nodes, and trims of the secondary."""
    return 1.0 + trimming_share(load, 3)
