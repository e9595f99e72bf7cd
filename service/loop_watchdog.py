"""Logs when the event loop of a service is blocked: for how long, and by which code.

A timer of the loop fires at fixed intervals and measures its delay, which is the delay of any event on the loop.
If the timer is long overdue, a second thread records the stack of the loop's thread, while the blocking code still
runs. If the loop's thread got less CPU time than the delay, the machine was busy, or another thread held Python's
lock. The watchdog costs a few wake-ups per second.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

from prometheus_client import Gauge, Histogram

from peacefs.runtime.counters import registry

# The interval of the timer; the delay from which a block is logged; the minimum pause between two log lines.
loop_watch_interval_s: Final = 0.05
loop_hold_logged_s: Final = 0.1
loop_log_pause_s: Final = 1.0


log = logging.getLogger("peacefs.loop")

_lateness = Histogram(
    "peacefs_loop_lateness_seconds",
    "Lateness of the event loop",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    registry=registry,
)
_longest = Gauge(
    "peacefs_loop_lateness_longest_seconds",
    "Longest lateness of the event loop since the start",
    registry=registry,
)

_collecting = Gauge("peacefs_gc_longest_seconds", "The longest garbage collection", registry=registry)

_FRAMES_SHOWN = 4


class LoopWatchdog:
    """Watches one event loop. The coordinator runs `watch` as a task of that loop, until it is cancelled.

    At most one line is logged per `log_pause_s`; the metrics contain every delay.
    """

    def __init__(
        self,
        *,
        interval_s: float = loop_watch_interval_s,
        logged_s: float = loop_hold_logged_s,
        log_pause_s: float = loop_log_pause_s,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = interval_s
        self._logged_s = logged_s
        self._log_pause_s = log_pause_s
        self._clock = clock
        self._due_s = clock() + interval_s
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle
        self._stopped = threading.Event()
        self._caught: str | None = None
        self._quiet_until_s = 0.0
        self._ran_until_s = 0.0
        self._collection_began_s = 0.0
        self._collected_s = 0.0
        self._longest_collection_s = 0.0
        self.longest_s = 0.0

    async def watch(self) -> None:
        self._loop_thread = threading.get_ident()
        thread = threading.Thread(target=self._look_from_outside, name="loop-watchdog", daemon=True)
        self._due_s = self._clock() + self._interval_s
        self._ran_until_s = time.thread_time()
        thread.start()
        gc.callbacks.append(self._collects)
        try:
            self._sleep_on(asyncio.get_running_loop())
            await asyncio.get_running_loop().create_future()
        finally:
            self._timer.cancel()
            self._stopped.set()
            gc.callbacks.remove(self._collects)

    def _collects(self, phase: str, _facts: dict[str, int]) -> None:
        """Measure garbage collections. Python calls this before and after each one, from any thread."""
        if phase == "start":
            self._collection_began_s = self._clock()
            return
        taken_s = self._clock() - self._collection_began_s
        self._collected_s += taken_s
        if taken_s > self._longest_collection_s:
            self._longest_collection_s = taken_s
            _collecting.set(taken_s)

    def _sleep_on(self, loop: asyncio.AbstractEventLoop) -> None:
        # A timer and not a sleeping task, which would cost three iterations of an idle loop instead of one.
        self._timer = loop.call_later(self._due_s - self._clock(), self._wake_on, loop)

    def _wake_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._woke()
        self._sleep_on(loop)

    def _woke(self) -> None:
        now_s = self._clock()
        late_s = max(0.0, now_s - self._due_s)
        _lateness.observe(late_s)
        if late_s > self.longest_s:
            self.longest_s = late_s
            _longest.set(late_s)
        where, self._caught = self._caught, None
        collected_s, self._collected_s = self._collected_s, 0.0
        ran_until_s = time.thread_time()
        ran_s, self._ran_until_s = ran_until_s - self._ran_until_s, ran_until_s
        if late_s >= self._logged_s and now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + self._log_pause_s
            log.warning(
                "the event loop was held for %.0f ms; its thread ran %.0f ms, %.0f of them collecting garbage%s",
                late_s * 1000,
                ran_s * 1000,
                collected_s * 1000,
                f", by {where}" if where else "",
            )
        self._due_s = now_s + self._interval_s

    def _look_from_outside(self) -> None:
        while not self._stopped.wait(max(self._logged_s / 2, self._due_s + self._logged_s - self._clock())):
            if self._caught is None and self._clock() >= self._due_s + self._logged_s:
                frame = sys._current_frames().get(self._loop_thread)
                if frame is not None:
                    self._caught = _shown(traceback.extract_stack(frame))


def _shown(stack: traceback.StackSummary) -> str:
    """Format the innermost frames of our own code, innermost first."""
    ours = [frame for frame in stack if "peacefs" in frame.filename] or list(stack)
    return " < ".join(
        f"{frame.name} ({frame.filename.rsplit('/peacefs/', 1)[-1]}:{frame.lineno})"
        for frame in ours[: -_FRAMES_SHOWN - 1 : -1]
    )
