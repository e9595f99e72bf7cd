"""Dry runs of policies, each in its own process, because a solver would block the interpreter for seconds.

One dry run at a time; one that takes too long is ended. It does not change the coordinator's state. The process is
this module: a `Task` as JSON comes in on stdin, a `DryRunPlan` or an error goes out on stdout.
"""

from __future__ import annotations

import asyncio
import resource
import sys

import msgspec

from peacefs.peace.dry_run import DryRunPlan, Task, dry_run
from peacefs.protocol.errors import BadRequest, PeacefsError, from_wire
from peacefs.protocol.limits import plan_queue_timeout_s, plan_timeout_s

from .runner import SideProcess


class _Refused(msgspec.Struct, frozen=True, tag="refused"):
    code: str
    message: str


class _Planned(msgspec.Struct, frozen=True, tag="planned"):
    plan: DryRunPlan


results: msgspec.json.Decoder[_Planned | _Refused] = msgspec.json.Decoder(_Planned | _Refused)


class Planner:
    """Owned by an event loop. `timeout_s` bounds one dry run, `queue_timeout_s` the wait for the one before it."""

    def __init__(self, timeout_s: float = plan_timeout_s, queue_timeout_s: float = plan_queue_timeout_s) -> None:
        self._timeout_s = timeout_s
        self._process = SideProcess("plan", (sys.executable, "-P", "-m", __name__), timeout_s, queue_timeout_s)

    async def plan(self, task: Task) -> DryRunPlan:
        """Plan a dry run. Raises what `dry_run` raises, BadRequest if it takes too long, and Overloaded."""
        result = await self._in_a_process(_encoded(task))
        if isinstance(result, _Refused):
            raise from_wire(result.code, result.message)
        return result.plan

    async def _in_a_process(self, task: bytes) -> _Planned | _Refused:
        try:
            answer = await self._process.ask(task)
        except TimeoutError:
            raise BadRequest(
                f"planning took more than {self._timeout_s:g} s and was ended; ask for fewer chunks"
            ) from None
        return await asyncio.to_thread(results.decode, answer)


def _encoded(task: Task) -> bytes:
    """Encode a task. Raises BadRequest for text that is no Unicode, and for numbers beyond 64 bits."""
    try:
        return msgspec.json.encode(task)
    except (ValueError, OverflowError, RecursionError) as error:
        raise BadRequest(f"topology: {error}") from None


def carry_out(task: bytes) -> bytes:
    """Run the planning process: read its input, write its output."""
    result: _Planned | _Refused
    try:
        result = _Planned(dry_run(msgspec.json.decode(task, type=Task)))
    except PeacefsError as error:
        result = _Refused(error.code, error.message)
    return msgspec.json.encode(result)


def _main() -> None:
    # The coordinator may be gone, and then nothing else would end this process.
    seconds = int(2 * plan_timeout_s)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    sys.stdout.buffer.write(carry_out(sys.stdin.buffer.read()))


if __name__ == "__main__":
    _main()
