"""Dry runs of policies, each in a process of its own: a solver holds the interpreter for seconds, and the
coordinator has heartbeats to hear.

One at a time; one that takes too long is ended. Nothing of the coordinator's state is touched. The process is
this module: a `Task` as JSON comes in on stdin, a `Plan` or an error goes out on stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import sys

import msgspec

from peacefs.peace.dry_run import Plan, Task, dry_run
from peacefs.protocol.errors import BadRequest, Overloaded, PeacefsError, from_wire
from peacefs.protocol.limits import plan_patience_s, plan_timeout_s

log = logging.getLogger("peacefs.planner")


class _Refused(msgspec.Struct, frozen=True, tag="refused"):
    code: str
    message: str


class _Planned(msgspec.Struct, frozen=True, tag="planned"):
    plan: Plan


results: msgspec.json.Decoder[_Planned | _Refused] = msgspec.json.Decoder(_Planned | _Refused)


class Planner:
    """Owned by an event loop. `timeout_s` bounds one dry run, `patience_s` the wait for the one before it."""

    def __init__(self, timeout_s: float = plan_timeout_s, patience_s: float = plan_patience_s) -> None:
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._turn = asyncio.Lock()

    async def plan(self, task: Task) -> Plan:
        """Raises what `dry_run` raises, BadRequest for what takes too long, and Overloaded."""
        encoded = _encoded(task)
        try:
            await asyncio.wait_for(self._turn.acquire(), self._patience_s)
        except TimeoutError:
            raise Overloaded("another plan is still being made; try again") from None
        try:
            result = await self._in_a_process(encoded)
        finally:
            self._turn.release()
        if isinstance(result, _Refused):
            raise from_wire(result.code, result.message)
        return result.plan

    async def _in_a_process(self, task: bytes) -> _Planned | _Refused:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", __name__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            answer, complaint = await asyncio.wait_for(process.communicate(task), self._timeout_s)
        except TimeoutError:
            raise BadRequest(
                f"planning took more than {self._timeout_s:g} s and was ended; ask for fewer chunks"
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            log.error(
                "a dry run failed with status %d: %s", process.returncode, complaint.decode(errors="replace")
            )
            raise PeacefsError("the dry run failed; the coordinator's log says more")
        return await asyncio.to_thread(results.decode, answer)


def _encoded(task: Task) -> bytes:
    """A structure that came as JSON may hold what is none: halves of characters, numbers beyond 64 bits."""
    try:
        return msgspec.json.encode(task)
    except (ValueError, OverflowError, RecursionError) as error:
        raise BadRequest(f"topology: {error}") from None


def carry_out(task: bytes) -> bytes:
    """What the process does: its input to its output."""
    result: _Planned | _Refused
    try:
        result = _Planned(dry_run(msgspec.json.decode(task, type=Task)))
    except PeacefsError as error:
        result = _Refused(error.code, error.message)
    return msgspec.json.encode(result)


def _main() -> None:
    # Whoever asked may be gone, and kill nobody.
    seconds = int(2 * plan_timeout_s)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    sys.stdout.buffer.write(carry_out(sys.stdin.buffer.read()))


if __name__ == "__main__":
    _main()
