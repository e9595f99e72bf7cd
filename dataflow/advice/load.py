"""The load of a query, and its surroundings: what the closed forms of techniques are functions of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QueryLoad:
    """One query at a rate. Rates are rows of all its sources a second, sizes bytes, times seconds."""

    rate: float
    #: Processor time of a row of a source through all operators.
    processing_s: float
    row_bytes: float
    #: Rows at the sinks for each row of a source.
    selectivity: float
    #: Pages of all units together; and bytes a second of those that have changed when changes are copied each
    #: `interval_s`, and each `checkpoint_s`, of `Parameters`: a page that changes twice in between counts once.
    state_bytes: float
    copied_bytes_s: float
    changed_bytes_s: float
    #: For how long a row matters to the state: the longest windows, joins and sorts; None if nobody knows.
    remembered_s: float | None
    #: Windows that a technique with a log of windows notes, for each row, and those that are open at a time.
    windows_per_row: float
    open_windows: float
    inputs: int = 1
    #: Units, each of which stores checkpoints, or commits to a log, of its own.
    units: int = 1

    @property
    def processors(self) -> float:
        """Processors that the query takes without any technique."""
        return self.rate * self.processing_s

    @property
    def bytes_s(self) -> float:
        """Bytes of rows of the sources a second."""
        return self.rate * self.row_bytes


@dataclass(frozen=True)
class Parameters:
    """Parameters: M for acknowledgements and copies, the interval of checkpoints, neighbours of a ring."""

    interval_s: float = 0.05
    checkpoint_s: float = 1.0
    neighbours: int = 1


@dataclass(frozen=True)
class Machines:
    """The machines. The defaults were measured on two cores over loopback, by the commands that are named."""

    #: From the death of a process until the controller has noticed (`benchmarks recovery_pictures`).
    detection_s: float = 0.03
    #: r and d of HA: to redirect streams, and the delay of a link.
    redirection_s: float = 0.01
    delay_s: float = 0.0005
    #: Bytes of a checkpoint that are loaded in a second (`benchmarks dataflow`: 99 MiB in 0.05 s).
    load_bytes_s: float = 1e9
    #: From when a checkpoint is taken until it is recorded.
    stored_s: float = 0.1
    #: Seconds to send a byte of a page for a checkpoint or a standby, or to take it in, and to note a window.
    page_byte_s: float = 1.2e-9
    window_s: float = 0.5e-6
    #: Processor time of a checkpoint that is stored, or of a commit to a log, on all machines together, however
    #: small (`benchmarks recovery_costs`, `benchmarks recovery`).
    storing_processor_s: float = 5e-3
    #: Seconds to read one tuple of a log of windows (`benchmarks cec`), and bytes of one.
    tuple_s: float = 3e-6
    tuple_bytes: float = 45.0
    #: Replicas of a file.
    replication: int = 3
    #: The share of the processor that each backup of a tuple takes in a ring (`benchmarks recovery`); 0.15 in the
    #: paper, where functions do more with a tuple than count it (SMR, Figure 5).
    backup_share: float = 1.7
    #: Bandwidth of a link, bytes a second.
    link_bytes_s: float = 125e6
