"""Runs several participants on one thread, so that all their requests are under way at the same time.

Requests for small chunks, and then requests to the coordinator, are held back until no participant can continue.
Then they are sent together. So the datanodes write a group of small files as one batch, and the coordinator
publishes the group in one commit.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from peacefs.client.transfer.chunk_batches import read_chunks, send_chunks
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.messages import Allocated, ChunkLayout, Message, WrittenChunk
from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver

T = TypeVar("T")


@dataclass(slots=True)
class SendChunk(fx.Effect):
    """Makes `run_together` send a small chunk together with those of other participants."""

    allocated: Allocated
    data: bytes


@dataclass(slots=True)
class FetchChunk(fx.Effect):
    """Makes `run_together` read a small chunk together with those of other participants."""

    chunk: ChunkLayout


def send_with_others(allocated: Allocated, data: bytes) -> fx.Steps[WrittenChunk]:
    """Make one attempt to write a chunk of at most `batched_chunk_bytes_max` bytes.

    Raises the pipeline's error.
    """
    return (yield SendChunk(allocated, data))  # type: ignore[no-any-return]


def fetch_with_others(chunk: ChunkLayout) -> fx.Steps[bytes]:
    """Make one attempt to read a chunk as `read_chunks` does. Raises its error."""
    return (yield FetchChunk(chunk))  # type: ignore[no-any-return]


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
        #: Effects that are performed together, in this order, when no participant can continue.
        self._held: dict[type[fx.Effect], list[tuple[int, Any]]] = {SendChunk: [], FetchChunk: [], fx.Call: []}
        self.results: dict[int, Any] = {}

    def run(self) -> None:
        for number in list(self._running):
            self._go_on(number, None, None)
        while True:
            if self._receiving:
                number, effect = self._receiving.popleft()
                self._go_on(number, *self._performed(effect))
                continue
            kind = next((kind for kind, held in self._held.items() if held), None)
            if kind is None:
                return
            held, self._held[kind] = self._held[kind], []
            self._hand_out(held, self._performed_together(kind, [effect for _number, effect in held]))

    def _performed_together(self, kind: type[fx.Effect], effects: Sequence[Any]) -> Sequence[object]:
        if kind is SendChunk:
            return self._driver.run(send_chunks([(effect.allocated, effect.data) for effect in effects]))
        if kind is FetchChunk:
            return self._driver.run(read_chunks([effect.chunk for effect in effects]))
        timeout_s = max(effect.timeout_s for effect in effects)
        return self._ask([effect.message for effect in effects], timeout_s)

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
                if (held := self._held.get(type(effect))) is not None:
                    held.append((number, effect))
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
