"""The outcome of a seeded run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from peacefs.dataflow.core.late_rows import LateRowCounts
from peacefs.dataflow.core.node import NodeCore

from .costs import Flow


@dataclass
class Outcome:
    """The results of a run."""

    sinks: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    steps: int = 0
    seconds: float = 0.0
    late: LateRowCounts = field(default_factory=LateRowCounts)
    #: All pairs (unit, node) that ran at any time.
    places: set[tuple[str, str]] = field(default_factory=set)
    #: All pairs (unit, node) that the controller placed, without standbys.
    primaries: set[tuple[str, str]] = field(default_factory=set)
    checkpoints_stored: int = 0
    #: The number of cancelled checkpoints, for example because their turn was too late.
    checkpoints_cancelled: int = 0
    #: The maximum bytes of state pages of the units on one node.
    state_bytes_max: int = 0
    #: The maximum bytes of copies that one node kept for other nodes' units.
    copied_bytes_max: int = 0
    #: The number of units that restarted and have caught up.
    recoveries: int = 0
    #: For symmetric pairs: each step at which a new standby caught up with its unit, and the unit, in order.
    caught_up: list[tuple[int, str]] = field(default_factory=list)
    #: The maximum bytes that any output of a node held, and that any source held.
    held_bytes_max: int = 0
    source_held_bytes_max: int = 0
    #: The maximum bytes that waited at any input.
    queued_bytes_max: int = 0
    #: The node that `KillRunning` killed.
    lost_node: str | None = None
    #: With costs: seconds from the detection of a death until each unit recovered, the counted bytes, and the real
    #: bytes of checkpoint pages.
    recovery_s: Mapping[str, float] = field(default_factory=dict)
    bytes: Mapping[Flow, int] = field(default_factory=dict)
    page_bytes: Mapping[str, int] = field(default_factory=dict)

    def note(self, node: str, core: NodeCore, copied_bytes: int) -> None:
        """Record what a node runs now, and how many bytes it holds."""
        self.copied_bytes_max = max(self.copied_bytes_max, copied_bytes)
        if not core.runs:
            return
        self.held_bytes_max = max(self.held_bytes_max, core.held_bytes)
        self.queued_bytes_max = max(self.queued_bytes_max, core.queued_bytes)
        self.state_bytes_max = max(self.state_bytes_max, core.state_bytes)
        self.places.update((unit, node) for unit in core.runs)

    def rows(self, sink: str) -> list[tuple[object, ...]]:
        return [
            row for batch in self.sinks[sink] for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
        ]
