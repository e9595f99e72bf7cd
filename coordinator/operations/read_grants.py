"""The service of read grants: readers of checkpoints state what they want, the scheduler grants reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from peacefs.coordinator.scheduling.read_scheduler import ReadRequest, RecoveryReads
from peacefs.coordinator.scheduling.scheduler import Scheduling
from peacefs.protocol.limits import grant_hold_s
from peacefs.protocol.messages import ReadsScheduled, StateReads

from .context import OperationContext


class ReadGrantService:
    """Belongs to the event loop. Whoever waits has its question held for a moment, and asks again."""

    def __init__(self, context: OperationContext, scheduling: Scheduling) -> None:
        self._ctx = context
        self.reads = RecoveryReads(scheduling.has_room)
        self._awaited: dict[str, set[asyncio.Event]] = {}

    async def state(self, wanted: StateReads) -> ReadsScheduled:
        """Which of its chunks a reader may read now, and where. Raises AccessDenied, BadRequest, Overloaded."""
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
        self._wake(self.reads.state(self._ctx.monotonic(), request))
        answer = self._held_grants(request)
        if request.wanted and not answer.grants and wanted.wait_s > 0:
            await self._served(request.reader, min(wanted.wait_s, grant_hold_s))
            answer = self._held_grants(request)
        return answer

    def tick(self) -> None:
        """To be called several times a second."""
        self._wake(self.reads.tick(self._ctx.monotonic()))

    def now_s(self) -> float:
        """Return the time by which grants are judged."""
        return self._ctx.monotonic()

    def _held_grants(self, request: ReadRequest) -> ReadsScheduled:
        grants = self.reads.grants(request.reader)
        new = [(number, node) for number, node in grants.items() if number not in request.holding]
        return ReadsScheduled(new, len(request.wanted) - len(new))

    async def _served(self, reader: str, wait_s: float) -> None:
        event = asyncio.Event()
        self._awaited.setdefault(reader, set()).add(event)
        try:
            async with asyncio.timeout(wait_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._awaited[reader].discard(event)
            if not self._awaited[reader]:
                del self._awaited[reader]

    def _wake(self, readers: Sequence[str]) -> None:
        for reader in readers:
            for event in self._awaited.get(reader, ()):
                event.set()
