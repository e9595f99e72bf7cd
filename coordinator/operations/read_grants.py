"""Read grants: readers of checkpoints state what they want, and the scheduler grants reads."""

from __future__ import annotations

from peacefs.coordinator.scheduling.read_scheduler import ReadRequest
from peacefs.protocol.limits import grant_hold_s
from peacefs.protocol.messages import ReadsScheduled, StateReads

from .context import OperationContext


class ReadGrantService:
    """Used from one event loop. A request that must wait is held for a moment, and the reader asks again."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context
        self.reads = context.core.reads

    async def state(self, wanted: StateReads) -> ReadsScheduled:
        """Return a reader's permits: which chunks, and from where. Raises AccessDenied, BadRequest, Overloaded."""
        self._ctx.signer.verify_reader(wanted.token, self._ctx.wall_clock())
        alive = {node.id for node in self._ctx.cluster.members.alive()}
        request = ReadRequest(
            reader=wanted.reader,
            number=wanted.number,
            wanted={number: [node for node in nodes if node in alive] for number, nodes in wanted.wanted},
            holding=dict(wanted.holding),
            at_once=wanted.at_once,
            waited_s=max(0.0, wanted.waited_s),
        )
        self._ctx.perform(self._ctx.core.state_reads(self._ctx.monotonic(), request))
        answer = self._held_grants(request)
        if request.wanted and not answer.grants and wanted.wait_s > 0:
            await self._ctx.driver.reads_awaited.wait(request.reader, min(wanted.wait_s, grant_hold_s))
            answer = self._held_grants(request)
        return answer

    def now_s(self) -> float:
        """Return the time by which grants are judged."""
        return self._ctx.monotonic()

    def _held_grants(self, request: ReadRequest) -> ReadsScheduled:
        grants = self.reads.grants(request.reader)
        new = [(number, node) for number, node in grants.items() if number not in request.holding]
        return ReadsScheduled(new, len(request.wanted) - len(new))
