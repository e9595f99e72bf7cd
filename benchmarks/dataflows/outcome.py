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
    #: (unit, node) of all that ran anywhere at any time.
    places: set[tuple[str, str]] = field(default_factory=set)
    #: (unit, node) of all that the controller had as a unit's place, standbys not among them.
    primaries: set[tuple[str, str]] = field(default_factory=set)
    checkpoints_stored: int = 0
    #: Checkpoints that were cancelled, as when their turn is too far away.
    checkpoints_cancelled: int = 0
    #: The most bytes of pages that the units of one node had.
    state_bytes_max: int = 0
    #: The most bytes of copies that one node kept for the units of others.
    copied_bytes_max: int = 0
    #: Units that began again and have caught up.
    recoveries: int = 0
    #: Units whose new standby came in step with them, in their order, and at which step, of symmetric pairs.
    caught_up: list[tuple[int, str]] = field(default_factory=list)
    #: The most bytes that any output of a node held, and that a source held.
    held_bytes_max: int = 0
    source_held_bytes_max: int = 0
    #: The most bytes that waited at any input.
    queued_bytes_max: int = 0
    #: The node that died of `KillRunning`.
    lost_node: str | None = None
    #: With costs: seconds from the detection of a death until a unit had recovered, bytes that were counted, and
    #: those of pages of checkpoints, as they are.
    recovery_s: Mapping[str, float] = field(default_factory=dict)
    bytes: Mapping[Flow, int] = field(default_factory=dict)
    page_bytes: Mapping[str, int] = field(default_factory=dict)

    def note(self, node: str, core: NodeCore, copied_bytes: int) -> None:
        """Note what a node runs now, and how many bytes it holds."""
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
