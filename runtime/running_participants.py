"""The participants that a reactor runs, and the effects that only the reactor uses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from peacefs.protocol.messages import Message
from peacefs.protocol.trace_context import TraceContext, switch_to

from . import effects as fx
from .served_request import ServedRequest

log = logging.getLogger("peacefs.reactor")


@dataclass(slots=True, eq=False)
class RunningParticipant:
    """A running participant. `effect` is the one it waits for, or last waited for, compared by identity."""

    steps: fx.Steps[None]
    ended: Callable[[Exception | None], None]
    effect: fx.Effect | None = None
    waits: bool = False
    deadline_s: float = inf
    #: The time of its next timer, which checks whether the deadline has moved.
    looked_at_s: float = inf
    unsent: memoryview | None = None
    keeps_worker: bool = False
    request: ServedRequest | None = None
    #: The context of its request, if it serves only one.
    context: TraceContext | None = None

    def begin_request(self, message: Message) -> None:
        """Switch to the trace context of the request that is served now."""
        self.request = ServedRequest(message)
        switch_to(self.request.context)

    def end_request(self) -> None:
        if self.request is not None:
            self.request.end()
            self.request = None
            switch_to(None)


@dataclass(slots=True)
class Synced(fx.Effect):
    """Hands a participant back to the reactor's thread with the result of a sync by a worker."""

    fault: OSError | None


class Begun(fx.Effect):
    """Makes the reactor's thread run the first step of a participant."""


def nobody_hears(_fault: Exception | None) -> None:
    """Replace the callback of a participant that has ended."""


def report_bug(fault: Exception | None) -> None:
    """Log the error of a spawned participant, which must not raise any."""
    if fault is not None:
        log.error("a participant failed because of a bug in this process", exc_info=fault)
