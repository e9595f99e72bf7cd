"""What a coordinator does by itself, asked by nobody: chunks are loaded, time passes, what is over is tidied away.

Each piece of work is a task of the event loop. The cores decide; here is when, and that no piece holds others up
for long. If one fails the whole service is to stop: it would answer on while, say, nothing is repaired any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import time
from collections.abc import Callable

from peacefs.coordinator.authentication.tokens import Tokens
from peacefs.coordinator.cluster.core import Cluster, Ticked
from peacefs.coordinator.cluster.membership import State
from peacefs.coordinator.cluster.slow_peers import Slowness, SlowPart
from peacefs.coordinator.metadata.store import Reader
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.rpc.server import NodeServer
from peacefs.coordinator.supervision.service import SupervisionService
from peacefs.protocol.errors import ServiceUnready
from peacefs.protocol.limits import (
    commit_record_interval_s,
    load_chunks_per_turn,
    lost_replicas_per_turn,
    repair_tick_interval_s,
    supervision_tick_interval_s,
    temporary_look_interval_s,
    tick_interval_s,
    tidy_interval_s,
    trash_look_interval_s,
)
from peacefs.protocol.service.loop_watchdog import LoopWatchdog

from .epoch_floor import EpochService

log = logging.getLogger("peacefs.coordinator")

_by_itself = contextvars.ContextVar("by_itself", default=False)


def is_background_task() -> bool:
    """Return whether a background task runs, which cannot be told to come again as a request can."""
    return _by_itself.get()


class CoordinatorTasks:
    """The tasks of one coordinator, from `start` to `stop`."""

    def __init__(
        self,
        reader: Reader,
        cluster: Cluster,
        files: Files,
        nodes: NodeServer,
        supervising: SupervisionService,
        epochs: EpochService,
        sync_record: Callable[[], None],
        *,
        collect_temporary_hours: float | None,
        tokens: Tokens | None = None,
    ) -> None:
        """`sync_record` makes the commit record durable, and may take its time.

        Temporary files that have been left for so many hours are deleted; None for never.
        """
        self._tokens = tokens
        self._reader = reader
        self._cluster = cluster
        self._files = files
        self._nodes = nodes
        self._supervision_service = supervising
        self._epochs = epochs
        self._sync_record = sync_record
        self._collect_temporary_hours = collect_temporary_hours
        self._tidy_at_s = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.has_failed = False

    def start(self, on_failure: Callable[[], object]) -> None:
        """`on_failure` is called when a piece of work has failed."""
        by_itself = contextvars.copy_context()
        by_itself.run(_by_itself.set, True)

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (fault := task.exception()) is not None:
                log.critical("a background task failed: stopping", exc_info=fault)
                self.has_failed = True
                on_failure()

        for work in (
            self._load_chunks(),
            self._keep_ticking(),
            LoopWatchdog().watch(),
            self._collect_temporary_files(),
            self._empty_trash(),
            self._supervise(),
            self._keep_record(),
            *([self._tokens.keep_tidy()] if self._tokens is not None else []),
        ):
            task = asyncio.create_task(work, context=by_itself)
            task.add_done_callback(ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Ends all of it, wherever it is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load_chunks(self) -> None:
        # What is loaded stays, and there is much of it: to look through it for garbage would hold the loop up.
        gc.disable()
        after, count = 0, 0
        try:
            while page := namespace.chunk_page(self._reader, after, load_chunks_per_turn):
                self._cluster.load(page)
                after, count = page[-1].chunk, count + len(page)
                await asyncio.sleep(0)
        finally:
            gc.freeze()
            gc.enable()
        self._cluster.loaded()
        self._nodes.chunks_loaded()
        log.info("%d chunks are known; waiting for the datanodes' reports", count)

    async def _keep_ticking(self) -> None:
        was_ready = False
        while True:
            now_s = time.monotonic()
            self._act(self._cluster.tick(now_s, self._epochs.garbage()))
            self._schedule_in_turns()
            self._files.recovery.tick()
            await self._remove_lost()
            if not was_ready and self._cluster.ready(now_s):
                was_ready = True
                log.info("ready: %d datanodes alive", len(self._cluster.members.alive()))
            # What is refused while the disk is full is done when there is room.
            with contextlib.suppress(ServiceUnready):
                await self._epochs.raise_gc_floor(now_s)
            with contextlib.suppress(ServiceUnready):
                await self._tidy_up(now_s)
            self._files.appending.delete_deferred()
            await asyncio.sleep(repair_tick_interval_s if self._cluster.repair.under_way else tick_interval_s)

    async def _tidy_up(self, now_s: float) -> None:
        if now_s >= self._tidy_at_s:
            self._tidy_at_s = now_s + tidy_interval_s
            await self._files.names.forget_answers()
        await self._files.names.reclaim()

    def _act(self, ticked: Ticked) -> None:
        for transition in ticked.transitions:
            level = logging.INFO if transition.after is State.ALIVE else logging.WARNING
            log.log(level, "datanode %s is %s", transition.node, transition.after.value)
            if transition.after is State.DEAD:
                self._files.schedule.died(transition.node)
        for found in ticked.slowness:
            _log_slowness(found)
        self._nodes.send(ticked.orders)
        for question in ticked.questions:
            self._nodes.ask_for_proof(question)
        for copy in ticked.copies:
            self._nodes.start_copy(copy)

    def _schedule_in_turns(self) -> None:
        """What is due; a policy that plans for long gets another turn after all else that waits."""
        self._files.schedule.tick()
        if self._files.schedule.has_more:
            asyncio.get_running_loop().call_later(0, self._schedule_in_turns)

    async def _remove_lost(self) -> None:
        more = True
        while more:
            more = self._cluster.chunks.remove_lost(lost_replicas_per_turn)
            await asyncio.sleep(0)

    async def _collect_temporary_files(self) -> None:
        while True:
            await asyncio.sleep(temporary_look_interval_s)
            if self._collect_temporary_hours is not None:
                await self._files.temporary_files.collect(self._collect_temporary_hours * 3600)

    async def _empty_trash(self) -> None:
        is_prepared = False
        while not is_prepared:
            with contextlib.suppress(ServiceUnready):
                await self._files.trash.prepare()
                is_prepared = True
            await asyncio.sleep(0 if is_prepared else tick_interval_s)
        while True:
            await asyncio.sleep(trash_look_interval_s)
            await self._files.trash.empty()

    async def _keep_record(self) -> None:
        while True:
            await asyncio.sleep(commit_record_interval_s)
            await asyncio.to_thread(self._sync_record)

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(supervision_tick_interval_s)
            with contextlib.suppress(ServiceUnready):
                await self._supervision_service.tick()


def _log_slowness(found: Slowness) -> None:
    what = "as a hop of pipelines" if found.part is SlowPart.HOP else "at its disk"
    if found.is_slow:
        log.warning(
            "datanode %s is slow %s: %.3f s a MiB, the median is %.3f. New chunks avoid it where they can",
            found.node,
            what,
            found.seconds,
            found.median,
        )
    else:
        log.info("datanode %s is not slow %s any more", found.node, what)
