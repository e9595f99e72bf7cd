"""Runs several participants on one thread, so that all their requests are under way at the same time.

Requests to the coordinator are held back until no participant can continue, and then sent together. So the
datanodes write a group of small files as one batch, and the coordinator publishes the group in one commit.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.messages import Message
from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver

T = TypeVar("T")
#: Sends requests together. Returns for each its answer or its error.
AskTogether = Callable[[Sequence[Message], float], list[Message | PeacefsError]]


def run_together(
    driver: ThreadDriver, ask: AskTogether, participants: Sequence[fx.Steps[T]]
) -> list[T | PeacefsError]:
    """Run participants to their ends; return the result or the error of each. They must not wait for each other.

    On Ctrl-C, throw KeyboardInterrupt into the unfinished participants, let them clean up, then raise it.
    """
    running = _Together(driver, ask, participants)
    try:
        running.run()
    except KeyboardInterrupt:
        running.interrupt()
        raise
    return [running.results[number] for number in range(len(participants))]


class _Together:
    """Numbered participants, and the effects that each waits for."""

    def __init__(self, driver: ThreadDriver, ask: AskTogether, participants: Sequence[fx.Steps[Any]]) -> None:
        self._driver = driver
        self._ask = ask
        self._running = dict(enumerate(participants))
        self._receiving: deque[tuple[int, fx.Effect]] = deque()
        self._calling: list[tuple[int, fx.Call]] = []
        self.results: dict[int, Any] = {}

    def run(self) -> None:
        for number in list(self._running):
            self._go_on(number, None, None)
        while self._receiving or self._calling:
            if self._receiving:
                number, effect = self._receiving.popleft()
                self._go_on(number, *self._performed(effect))
                continue
            calling, self._calling = self._calling, []
            timeout_s = max(effect.timeout_s for _number, effect in calling)
            answers = self._ask([effect.message for _number, effect in calling], timeout_s)
            for (number, _effect), answer in zip(calling, answers, strict=True):
                if isinstance(answer, PeacefsError):
                    self._go_on(number, None, answer)
                else:
                    self._go_on(number, answer, None)

    def _go_on(self, number: int, result: Any, fault: Exception | None) -> None:
        """Resume a participant until it has to wait for an answer."""
        steps = self._running[number]
        try:
            while True:
                effect = steps.send(result) if fault is None else steps.throw(fault)
                if isinstance(effect, fx.Call):
                    self._calling.append((number, effect))
                    return
                if isinstance(effect, fx.Receive):
                    self._receiving.append((number, effect))
                    return
                result, fault = self._performed(effect)
        except StopIteration as stop:
            self._end(number, stop.value)
        except PeacefsError as error:
            self._end(number, error)

    def _performed(self, effect: fx.Effect) -> tuple[Any, Exception | None]:
        try:
            return self._driver.perform(effect), None
        except (PeacefsError, OSError) as error:
            return None, error

    def _end(self, number: int, result: Any) -> None:
        del self._running[number]
        self.results[number] = result

    def interrupt(self) -> None:
        """Let each participant clean up after Ctrl-C."""
        for steps in self._running.values():
            with contextlib.suppress(KeyboardInterrupt, PeacefsError):
                self._driver.run(_interrupted(steps))


def _interrupted(steps: fx.Steps[None]) -> fx.Steps[None]:
    """Throw KeyboardInterrupt into a participant, and run its clean-up."""
    fault: BaseException | None = KeyboardInterrupt()
    result = None
    while True:
        try:
            effect = steps.throw(fault) if fault is not None else steps.send(result)
        except StopIteration:
            return
        result, fault = None, None
        try:
            result = yield effect
        except (PeacefsError, OSError, KeyboardInterrupt) as error:
            fault = error
