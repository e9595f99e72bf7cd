"""Asynchronous calls of the coordinator, for participants that a reactor runs.

A blocking call would keep one of the reactor's workers asleep until the answer arrives, and waking a thread costs
more than the rest of the call. Instead, the call is started, and the participant waits for a ticket.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from peacefs.protocol.errors import PeerTimeout
from peacefs.protocol.messages import Message
from peacefs.protocol.trace_context import stamped

from . import effects as fx

T = TypeVar("T")
#: Starts a call without waiting, or returns None if that is impossible now. The caller cancels the future when it
#: stops waiting. If the future fails, the call must be repeated; the error itself has no meaning.
BeginCall = Callable[[Message], Future[Message] | None]


def with_begun_calls(steps: fx.Steps[T], begin: BeginCall) -> fx.Steps[T]:
    """Run a participant with asynchronous calls. Calls that cannot be started, or fail, are left to the driver."""
    try:
        effect = next(steps)
        while True:
            try:
                if isinstance(effect, fx.Call):
                    result = yield from _answer(effect, begin)
                else:
                    result = yield effect
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as fault:
                effect = steps.throw(fault)
            else:
                effect = steps.send(result)
    except StopIteration as stop:
        finished: T = stop.value
        return finished


def _answer(call: fx.Call, begin: BeginCall) -> fx.Steps[Message]:
    began_s = yield from fx.now()
    begun = begin(stamped(call.message))
    if begun is None:
        return (yield call)  # type: ignore[no-any-return]
    ticket = fx.Ticket()
    begun.add_done_callback(lambda _answered: ticket.fire())
    if not (yield from fx.wait(ticket, timeout_s=call.timeout_s)):
        begun.cancel()
        raise PeerTimeout(f"the coordinator did not answer within {call.timeout_s:g} s")
    if begun.exception() is None:
        return begun.result()
    left_s = began_s + call.timeout_s - (yield from fx.now())
    return (yield fx.Call(call.message, max(0.0, left_s)))  # type: ignore[no-any-return]
