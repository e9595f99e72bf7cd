"""What is told of checkpoints over REST: what a process beside the coordinator finds in their files, and runs.

Which command that process is, is given from above: the coordinator knows nothing of Spark (decision 12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from peacefs.protocol.errors import BadRequest, Unsupported, from_wire
from peacefs.protocol.limits import checkpoint_report_patience_s, checkpoint_report_timeout_s

from .fencing import Fencing
from .paths import parse_path
from .side_process import SideProcess


class _Answer(msgspec.Struct, frozen=True):
    answer: msgspec.Raw = msgspec.Raw(b"null")
    code: str = ""
    message: str = ""


class CheckpointReports:
    """Owned by an event loop. `address` is where the coordinator can be reached from its own machine."""

    def __init__(
        self,
        command: Sequence[str],
        address: str,
        fencing: Fencing,
        timeout_s: float = checkpoint_report_timeout_s,
        patience_s: float = checkpoint_report_patience_s,
    ) -> None:
        self._command = command
        self._address = address
        self._fencing = fencing
        self._timeout_s = timeout_s
        self._process = SideProcess("look at checkpoints", command, timeout_s, patience_s)

    async def all_below(self, path: str, user: str) -> list[dict[str, Any]]:
        """A summary of every checkpoint at and below a path, with the latest run of each that had one.

        Raises FileNotFound, AccessDenied, BadRequest, Overloaded, Unsupported.
        """
        answer = await self._ask(path, user, all_below=True)
        found = await asyncio.to_thread(msgspec.json.decode, answer, type=list[dict[str, Any]])
        runs = {run.path: run for run in await self._fencing.latest(path, user)}
        return [each | {"run": runs.get(each["root"])} for each in found]

    async def one(self, path: str, user: str) -> dict[str, Any]:
        """All of one checkpoint; raises as `all_below`."""
        answer = await self._ask(path, user, all_below=False)
        found = await asyncio.to_thread(msgspec.json.decode, answer, type=dict[str, Any])
        runs = {run.path: run for run in await self._fencing.latest(path, user)}
        return found | {"run": runs.get(found["root"])}

    async def _ask(self, path: str, user: str, *, all_below: bool) -> msgspec.Raw:
        if not self._command:
            raise Unsupported("this coordinator was started without what looks at checkpoints")
        question = {
            "coordinator": self._address,
            "user": user,
            "path": "/" + "/".join(parse_path(path).components),
            "all_below": all_below,
        }
        try:
            said = await self._process.ask(msgspec.json.encode(question))
        except TimeoutError:
            raise BadRequest(
                f"looking took more than {self._timeout_s:g} s and was ended; ask for a directory further down"
            ) from None
        answer = await asyncio.to_thread(msgspec.json.decode, said, type=_Answer)
        if answer.code:
            raise from_wire(answer.code, answer.message)
        return answer.answer
