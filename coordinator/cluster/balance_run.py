"""One run of balancing: its limits, how far it is, and which chunks it has still to look at. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from peacefs.peace.balance_plan import BalancePhase, BalancePlan
from peacefs.protocol.ids import ChunkId, NodeId


class Walk:
    """The chunks of a source, each once; some are left for a second round."""

    def __init__(self, chunks: list[ChunkId]) -> None:
        self._waiting = chunks
        self._postponed: list[ChunkId] = []
        self.is_second_round = False

    def next(self) -> ChunkId | None:
        """None after the last."""
        if not self._waiting and not self.is_second_round:
            self.is_second_round = True
            self._waiting, self._postponed = self._postponed, []
        return self._waiting.pop() if self._waiting else None

    def postpone(self, chunk: ChunkId) -> None:
        """To the second round."""
        self._postponed.append(chunk)

    def put_back(self, chunk: ChunkId) -> None:
        """It is the next again."""
        self._waiting.append(chunk)


@dataclass
class Run:
    """`bytes_per_second` is what each datanode sends, and what it receives, at most for it."""

    name: str
    threshold: float
    bytes_per_second: float
    plan: BalancePlan
    started_s: float
    renewed_s: float
    phase: BalancePhase = BalancePhase.RUNNING
    bytes_moved: int = 0
    moved: int = 0
    failed: int = 0
    #: Copies that failed since the last that did not.
    failed_in_a_row: int = 0
    walks: dict[NodeId, Walk] = field(default_factory=dict)
    #: When a datanode will have sent, or received, what was ordered.
    free_at_s: dict[NodeId, float] = field(default_factory=dict)
