"""Retries of requests to a coordinator: with growing pauses, for as long as that may help."""

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
    """Nobody was there to be asked; `fault` says so to the user."""

    def __init__(self, fault: PeacefsError) -> None:
        self.fault = fault


class Unanswered(Exception):
    """It may have been carried out, but no answer came; `fault` says so to the user."""

    def __init__(self, fault: PeacefsError) -> None:
        self.fault = fault


class RetryPolicy:
    """Thread-safe. One for all ways to one coordinator. `clock`, `sleep` and `rng` are replaced in tests only."""

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
        #: True once the coordinator has answered, if only with a refusal.
        self.has_been_answered = False

    def ask(self, attempt: Callable[[], T], retry_s: float, coordinators: int = 1) -> T:
        """Attempts until there is an answer. What is asked must be safe to repeat.

        No attempt begins after `retry_s`. A coordinator that has never answered is taken for absent at once;
        one that has is given time to come back. `attempt` raises NotReached, Unanswered, or what was answered.
        Of several coordinators each attempt asks the one that may lead, and moves on from one that does not: all
        are asked in turn before there is a pause.
        Raises what the coordinator answered last, or why it did not.
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
                # A standby refuses only while a leader takes connections; of one address no other can be asked.
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
                    # Break the cycle of error and frame, which would keep the callers' objects alive.
                    del fault
            self._sleep(pause_s)


def is_not_leading(refusal: PeacefsError) -> bool:
    """Return whether another coordinator may answer what this one has not: it stands by, or knows no leader."""
    return type(refusal) in (Standby, ServiceUnready)
