"""Plans of phases, made in a process beside the coordinator: thousands of recurrences take most of a second.

The process is this module: recurrences as JSON come in on stdin, a plan goes out on stdout. Without OR-Tools the
plan is made by local search alone.
"""

from __future__ import annotations

import asyncio
import importlib
import resource
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from peacefs.peace.phases import AssignEqual, Phased, PhasePlan, plan_phases
from peacefs.protocol.errors import Overloaded

from .runner import SideProcess

phase_plan_timeout_s: Final = 10.0
phase_plan_queue_timeout_s: Final = 20.0

_decoder = msgspec.json.Decoder(PhasePlan)


class PhasePlanner:
    """Owned by an event loop."""

    def __init__(self) -> None:
        command = (sys.executable, "-P", "-m", __name__)
        self._process = SideProcess("plan of phases", command, phase_plan_timeout_s, phase_plan_queue_timeout_s)

    async def plan(self, recurrences: Sequence[Phased]) -> PhasePlan:
        """Plan in a process. Raises Overloaded if that takes, or has to wait, too long."""
        try:
            answer = await self._process.ask(msgspec.json.encode(list(recurrences)))
        except TimeoutError:
            raise Overloaded(f"planning phases took more than {phase_plan_timeout_s:g} s; try again") from None
        return await asyncio.to_thread(_decoder.decode, answer)


def carry_out(recurrences: bytes) -> bytes:
    """Make the plan of the process."""
    return msgspec.json.encode(
        plan_phases(msgspec.json.decode(recurrences, type=list[Phased]), _flow_if_installed())
    )


def _flow_if_installed() -> AssignEqual | None:
    try:
        found: AssignEqual = importlib.import_module("peacefs.peace.phase_flow").assign_equal_periods
    except ImportError:  # OR-Tools is an extra
        return None
    return found


def _main() -> None:
    seconds = int(2 * phase_plan_timeout_s)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    sys.stdout.buffer.write(carry_out(sys.stdin.buffer.read()))


if __name__ == "__main__":
    _main()
