"""Retries of requests to a coordinator, with growing pauses, as long as they may help."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from peacefs.client.limits import client_backoff_max_s
from peacefs.protocol.errors import PeacefsError, ServiceUnready, Standby

client_backoff_s: Final = 0.1


T = TypeVar("T")


class NotReached(Exception):
    """The coordinator could not be reached. `fault` is the error for the user."""

    def __init__(self, fault: PeacefsError) -> None:
        self.fault = fault


class Unanswered(Exception):
    """The request may have been executed, but no answer came. `fault` is the error for the user."""

    def __init__(self, fault: PeacefsError) -> None:
        self.fault = fault


class RetryPolicy:
    """Retries requests to one cluster; shared by all connections to it. Thread-safe.

    `clock`, `sleep` and `rng` are replaced in tests only.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random()
        #: True once the coordinator has answered, even if with an error.
        self.has_been_answered = False

    def ask(self, attempt: Callable[[], T], retry_s: float, coordinators: int = 1) -> T:
        """Call `attempt` until there is an answer. The request must be safe to repeat.

        No attempt begins after `retry_s`. A coordinator that has never answered is not retried; one that has
        answered before gets time to come back. `attempt` raises NotReached, Unanswered, or the coordinator's
        error. With several `coordinators`, each attempt asks the presumed leader and moves on if it does not lead.
        All are asked before there is a pause. Raises the last error.
        """
        deadline_s = self._clock() + retry_s
        pause_s = client_backoff_s
        unasked, absent = coordinators - 1, 0
        while True:
            elsewhere, is_absent = True, False
            try:
                answer = attempt()
            except NotReached as absence:
                fault = absence.fault
                absent += 1
                is_absent = not self.has_been_answered and absent >= coordinators
            except Unanswered as loss:
                fault = loss.fault
            except PeacefsError as refusal:
                self.has_been_answered = True
                # A standby refuses only while a leader accepts connections. With a single address, no other can be
                # asked.
                is_astray = coordinators == 1 and isinstance(refusal, Standby)
                if is_astray or not refusal.retriable:
                    raise
                fault = refusal
                elsewhere = is_not_leading(refusal)
            else:
                self.has_been_answered = True
                return answer
            if elsewhere and unasked and not is_absent and self._clock() < deadline_s:
                unasked -= 1
                continue
            unasked = coordinators - 1
            pause_s = min(pause_s * 2, client_backoff_max_s) * self._rng.uniform(0.5, 1.0)
            if is_absent or self._clock() + pause_s > deadline_s:
                try:
                    raise fault from None
                finally:
                    # Break the reference cycle of error and frame, which would keep the callers' objects alive.
                    del fault
            self._sleep(pause_s)


def is_not_leading(refusal: PeacefsError) -> bool:
    """Return whether another coordinator may be able to answer: this one is a standby, or knows no leader."""
    return type(refusal) in (Standby, ServiceUnready)
