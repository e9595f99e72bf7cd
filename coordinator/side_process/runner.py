"""Runs work in a process beside the coordinator, because it would block the interpreter for long.

One process at a time: a task goes in on stdin, an answer comes out on stdout. A process is ended if it takes too
long, or if the caller no longer waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from peacefs.protocol.errors import Overloaded, PeacefsError

log = logging.getLogger("peacefs.coordinator")


class SideProcess:
    """Owned by an event loop. `timeout_s` bounds one task, `queue_timeout_s` the wait for the one before it."""

    def __init__(self, what: str, command: Sequence[str], timeout_s: float, queue_timeout_s: float) -> None:
        self._what = what
        self._command = command
        self._timeout_s = timeout_s
        self._queue_timeout_s = queue_timeout_s
        self._turn = asyncio.Lock()

    async def ask(self, task: bytes) -> bytes:
        """Return the answer to a task."""
        try:
            await asyncio.wait_for(self._turn.acquire(), self._queue_timeout_s)
        except TimeoutError:
            raise Overloaded(f"another {self._what} is still being made; try again") from None
        try:
            return await self._run(task)
        finally:
            self._turn.release()

    async def _run(self, task: bytes) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            answer, complaint = await asyncio.wait_for(process.communicate(task), self._timeout_s)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            said = complaint.decode(errors="replace")
            log.error("a %s failed with status %d: %s", self._what, process.returncode, said)
            raise PeacefsError(f"the {self._what} failed; the coordinator's log says more")
        return answer
