"""Where readers of checkpoints meet the scheduling service: statements in, leaves to read out."""

from __future__ import annotations

from peacefs.coordinator.scheduling.read_scheduler import ReadWish
from peacefs.protocol.limits import grant_hold_s
from peacefs.protocol.messages import ReadsScheduled, StateReads

from .context import Workplace


class ReadDesk:
    """Belongs to the event loop. Whoever waits has its question held for a moment, and asks again."""

    def __init__(self, workplace: Workplace) -> None:
        self._at = workplace
        self.reads = workplace.core.reads

    async def state(self, wanted: StateReads) -> ReadsScheduled:
        """Which of its chunks a reader may read now, and where. Raises AccessDenied, BadRequest, Overloaded."""
        self._at.signer.verify_reader(wanted.token, self._at.wall_clock())
        alive = {node.id for node in self._at.cluster.members.alive()}
        wish = ReadWish(
            reader=wanted.reader,
            number=wanted.number,
            wanted={number: [node for node in nodes if node in alive] for number, nodes in wanted.wanted},
            holding=dict(wanted.holding),
            at_once=wanted.at_once,
            waited_s=max(0.0, wanted.waited_s),
        )
        self._at.perform(self._at.core.state_reads(self._at.monotonic(), wish))
        answer = self._standing(wish)
        if wish.wanted and not answer.leaves and wanted.patience_s > 0:
            await self._at.driver.reads_awaited.wait(wish.reader, min(wanted.patience_s, grant_hold_s))
            answer = self._standing(wish)
        return answer

    def now_s(self) -> float:
        """The clock by which leaves are timed."""
        return self._at.monotonic()

    def _standing(self, wish: ReadWish) -> ReadsScheduled:
        leaves = self.reads.leaves(wish.reader)
        new = [(number, node) for number, node in leaves.items() if number not in wish.holding]
        return ReadsScheduled(new, len(wish.wanted) - len(new))
