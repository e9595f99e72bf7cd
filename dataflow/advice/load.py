"""The load of a query and its environment: the inputs of the closed forms."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QueryLoad:
    """A query at a given rate. Rates are rows of all sources per second, sizes bytes, times seconds."""

    rate: float
    #: Processor time per source row, through all operators.
    processing_s: float
    row_bytes: float
    #: Rows at the sinks per source row.
    selectivity: float
    #: Bytes of the pages of all units. Then the bytes per second of changed pages, if changes are copied every
    #: `interval_s` or every `checkpoint_s` (see `Parameters`). A page that changes twice within an interval counts
    #: once.
    state_bytes: float
    copied_bytes_s: float
    changed_bytes_s: float
    #: How long a row affects the state: the longest of the windows, joins and sorts. None if unknown.
    remembered_s: float | None
    #: Windows that CEC records in its log per row, and windows that are open at a time.
    windows_per_row: float
    open_windows: float
    inputs: int = 1
    #: Number of units. Each unit stores its own checkpoints, or commits to its own log.
    units: int = 1

    @property
    def processors(self) -> float:
        """Number of processors that the query takes without any technique."""
        return self.rate * self.processing_s

    @property
    def bytes_s(self) -> float:
        """Bytes per second of the sources' rows."""
        return self.rate * self.row_bytes


@dataclass(frozen=True)
class Parameters:
    """Settings of the techniques to estimate.

    `interval_s` is M, the interval of acknowledgements and copies; `checkpoint_s` is the interval of checkpoints;
    `neighbours` is r of a ring.
    """

    interval_s: float = 0.05
    checkpoint_s: float = 1.0
    neighbours: int = 1


@dataclass(frozen=True)
class Machines:
    """Properties of the machines. The defaults were measured on two cores over loopback, by the named commands."""

    #: From the death of a process until the controller notices (`benchmarks recovery_pictures`).
    detection_s: float = 0.03
    #: r and d of HA: the time to redirect streams, and the delay of a link.
    redirection_s: float = 0.01
    delay_s: float = 0.0005
    #: Bytes of a checkpoint that are loaded per second (`benchmarks dataflow`: 99 MiB in 0.05 s).
    load_bytes_s: float = 1e9
    #: From the capture of a checkpoint until it is recorded.
    stored_s: float = 0.1
    #: Seconds to send or receive a byte of a page (for a checkpoint or a standby), and to record a window.
    page_byte_s: float = 1.2e-9
    window_s: float = 0.5e-6
    #: Fixed processor time of one checkpoint or one commit to a log, over all machines (`benchmarks
    #: recovery_costs`, `benchmarks recovery`).
    storing_processor_s: float = 5e-3
    #: Seconds to read one tuple of a log of windows (`benchmarks cec`), and its bytes.
    tuple_s: float = 3e-6
    tuple_bytes: float = 45.0
    #: Replicas per file.
    replication: int = 3
    #: Processor time of each backup of a tuple in a ring, as a share of the time of the query (`benchmarks
    #: recovery`). The paper has 0.15, where functions do more with a tuple than count it (SMR, Figure 5).
    backup_share: float = 1.7
    #: Bandwidth of a link, in bytes per second.
    link_bytes_s: float = 125e6
