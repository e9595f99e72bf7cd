"""Runs several participants on one thread, so that all their requests are under way at the same time.

Small chunks, and then requests to the coordinator, are held back until no participant can continue, and then
sent together. So the datanodes write a group of small files as one batch, and the coordinator publishes the group
in one commit.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from peacefs.client.transfer.chunk_batches import send_chunks
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.messages import Allocated, Message, WrittenChunk
from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver

T = TypeVar("T")


class SendChunk(fx.Effect):
    """Makes `run_together` send a small chunk with those of other participants."""

    __slots__ = ("allocated", "data")

    def __init__(self, allocated: Allocated, data: bytes) -> None:
        self.allocated = allocated
        self.data = data


def send_with_others(allocated: Allocated, data: bytes) -> fx.Steps[WrittenChunk]:
    """Make one attempt to write a chunk of at most `batched_chunk_bytes_max` bytes.

    Raises the pipeline's error.
    """
    return (yield SendChunk(allocated, data))  # type: ignore[no-any-return]


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
        self._sending: list[tuple[int, SendChunk]] = []
        self._calling: list[tuple[int, fx.Call]] = []
        self.results: dict[int, Any] = {}

    def run(self) -> None:
        for number in list(self._running):
            self._go_on(number, None, None)
        while self._receiving or self._sending or self._calling:
            if self._receiving:
                number, effect = self._receiving.popleft()
                self._go_on(number, *self._performed(effect))
            elif self._sending:
                sending, self._sending = self._sending, []
                chunks = [(effect.allocated, effect.data) for _number, effect in sending]
                self._hand_out(sending, self._driver.run(send_chunks(chunks)))
            else:
                calling, self._calling = self._calling, []
                timeout_s = max(effect.timeout_s for _number, effect in calling)
                messages = [effect.message for _number, effect in calling]
                self._hand_out(calling, self._ask(messages, timeout_s))

    def _hand_out(self, waiting: Sequence[tuple[int, fx.Effect]], outcomes: Sequence[object]) -> None:
        """Resume each participant with its outcome. A PeacefsError is raised there."""
        for (number, _effect), outcome in zip(waiting, outcomes, strict=True):
            if isinstance(outcome, PeacefsError):
                self._go_on(number, None, outcome)
            else:
                self._go_on(number, outcome, None)

    def _go_on(self, number: int, result: Any, fault: Exception | None) -> None:
        """Resume a participant until it has to wait for an answer."""
        steps = self._running[number]
        try:
            while True:
                effect = steps.send(result) if fault is None else steps.throw(fault)
                if isinstance(effect, SendChunk):
                    self._sending.append((number, effect))
                    return
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
