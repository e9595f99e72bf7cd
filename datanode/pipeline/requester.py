"""Sends the answers to the small requests of one data connection, which are served in batches.

A request with a tag gets an answer with the same tag. The peer may send further tagged requests before the answer,
and answers come in any order. A request without a tag is answered before the next request is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from peacefs.protocol.errors import PeacefsError, PeerError
from peacefs.protocol.frames import Frame
from peacefs.protocol.messages import Failure, Message
from peacefs.runtime import effects as fx

# Maximum number of unanswered small requests per connection. A peer that sends more has to wait.
requests_in_flight_max: Final = 256


class Requester:
    """One connection whose requests are served. Any thread may answer; only one at a time sends."""

    def __init__(self, connection: fx.Connection, answer_timeout_s: float, count: Callable[[int], None]) -> None:
        """`count` is called with each change of the number of unanswered requests."""
        self.connection = connection
        self._answer_timeout_s = answer_timeout_s
        self._count = count
        self._lock = Lock()
        self._unsent: list[Frame] = []
        self._is_sending = False
        self._in_flight = 0
        #: Fires when the last request is answered; None if nobody waits for that.
        self._drained: fx.Ticket | None = None

    def has_room(self, tag: int, *, is_crowded: bool) -> bool:
        """Return whether another request may be served now. If False, wait for `drained` first."""
        return not self._in_flight or (tag != 0 and not is_crowded and self._in_flight < requests_in_flight_max)

    def begun(self) -> None:
        """Count an accepted request. Each one must later be answered, or its connection closed."""
        with self._lock:
            self._in_flight += 1
        self._count(1)

    def drained(self, *, timeout_s: float) -> fx.Steps[bool]:
        """Wait until every request is answered; return False if that takes too long."""
        with self._lock:
            if not self._in_flight:
                return True
            ticket = self._drained = self._drained or fx.Ticket()
        return (yield from fx.wait(ticket, timeout_s=timeout_s))

    def answer(self, frames: Sequence[Frame]) -> fx.Steps[None]:
        """Send one answer per request. If sending fails, close the connection, so that no more requests arrive."""
        with self._lock:
            self._unsent += frames
            if self._is_sending:
                return
            self._is_sending = True
        while sending := self._next():
            try:
                yield from fx.send_frames(self.connection, sending, timeout_s=self._answer_timeout_s)
            except PeerError:
                # A part of a frame may have been sent.
                yield from fx.close(self.connection)
            self._answered(len(sending))

    def hang_up(self) -> fx.Steps[None]:
        """Close the connection instead of sending one answer."""
        yield from fx.close(self.connection)
        self._answered(1)

    def _next(self) -> list[Frame]:
        with self._lock:
            frames, self._unsent = self._unsent, []
            self._is_sending = bool(frames)
            return frames

    def _answered(self, count: int) -> None:
        self._count(-count)
        with self._lock:
            self._in_flight -= count
            ticket = None
            if not self._in_flight:
                ticket, self._drained = self._drained, None
        if ticket is not None:
            ticket.fire()


@dataclass(slots=True, eq=False)
class SmallRequest:
    """A request that is served in a batch. It is answered at most once."""

    requester: Requester
    tag: int
    is_answered: bool = field(default=False, init=False)


Answer = tuple[SmallRequest, Message, bytes]


def answer_all(answers: Iterable[Answer]) -> fx.Steps[None]:
    """Send answers to requests that have none yet, all those of one connection together."""
    by_requester: dict[Requester, list[Frame]] = {}
    for request, message, payload in answers:
        if not request.is_answered:
            request.is_answered = True
            by_requester.setdefault(request.requester, []).append(Frame(message, payload, request.tag))
    for requester, frames in by_requester.items():
        yield from requester.answer(frames)


def guarded(steps: fx.Steps[None], requests: Sequence[SmallRequest]) -> fx.Steps[None]:
    """Run a participant that answers requests. If a bug ends it, hang up on the unanswered ones."""
    try:
        yield from steps
    except Exception:
        yield from _hang_up_on(requests)
        raise


def _hang_up_on(requests: Sequence[SmallRequest]) -> fx.Steps[None]:
    """Close the connections of all unanswered requests."""
    for request in requests:
        if not request.is_answered:
            request.is_answered = True
            yield from request.requester.hang_up()


def failure_of(fault: PeacefsError) -> Failure:
    return Failure(fault.code, fault.message, fault.culprit)
