"""Inspect checkpoints for REST: a side process reads their files, and this module adds their runs.

The caller passes the command to run, because the coordinator knows nothing of Spark (decision 12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.operations.queries.query_reports import QueryReports
from peacefs.coordinator.operations.queries.query_runs import QueryRuns
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.protocol.errors import BadRequest, Unsupported, from_wire
from peacefs.protocol.limits import checkpoint_look_timeout_s
from peacefs.protocol.values.query_runs import without_run

from .runner import SideProcess

checkpoint_look_queue_timeout_s: Final = 5.0


class _Inspected(msgspec.Struct, frozen=True):
    answer: msgspec.Raw = msgspec.Raw(b"null")
    code: str = ""
    message: str = ""


class CheckpointInspector:
    """Owned by an event loop. `address` is where the coordinator can be reached from its own machine."""

    def __init__(
        self,
        command: Sequence[str],
        address: str,
        fencing: QueryRuns,
        reporting: QueryReports,
        timeout_s: float = checkpoint_look_timeout_s,
        queue_timeout_s: float = checkpoint_look_queue_timeout_s,
        token_of: Callable[[str], str] = lambda _user: "",
        ca_file: Path | None = None,
    ) -> None:
        """`token_of` makes the token with which the process acts for a user; empty if no tokens are required.

        Over TLS it trusts `ca_file`.
        """
        self._ca_file = "" if ca_file is None else str(ca_file.absolute())
        self._token_of = token_of
        self._command = command
        self._address = address
        self._query_runs = fencing
        self._query_reports = reporting
        self._timeout_s = timeout_s
        self._process = SideProcess("look at checkpoints", command, timeout_s, queue_timeout_s)

    async def all_below(self, path: str, viewer: Viewer, *, partial: bool = False) -> list[dict[str, Any]]:
        """Summarise each checkpoint at and below a path, with its latest run and its driver's last report."""
        answer = await self._ask(path, viewer.user, all_below=True, partial=partial)
        found = await asyncio.to_thread(msgspec.json.decode, answer, type=list[dict[str, Any]])
        return await self._with_what_is_known(found, path, viewer)

    async def one(self, path: str, viewer: Viewer) -> dict[str, Any]:
        """Return everything about one checkpoint. Raises as `all_below` does."""
        answer = await self._ask(path, viewer.user, all_below=False)
        found = await asyncio.to_thread(msgspec.json.decode, answer, type=dict[str, Any])
        return (await self._with_what_is_known([found], path, viewer))[0]

    async def view(self, path: str, user: str, view: str, *, partial: bool = False) -> msgspec.Raw:
        """Return `batches` of a checkpoint, the `verdict` on it, or `units` or `families` below a path.

        Raises as `all_below`.
        """
        return await self._ask(path, user, all_below=False, view=view, partial=partial)

    async def _with_what_is_known(
        self, found: list[dict[str, Any]], path: str, viewer: Viewer
    ) -> list[dict[str, Any]]:
        """Add the latest run of each checkpoint, and its driver's last report; None if there is none."""
        runs = {run.path: run for run in await self._query_runs.latest(path, viewer)}
        reports = {without_run(said.location): said for said in self._query_reports.below(path, viewer)}
        return [each | {"run": runs.get(each["root"]), "report": reports.get(each["root"])} for each in found]

    async def _ask(
        self, path: str, user: str, *, all_below: bool, view: str = "", partial: bool = False
    ) -> msgspec.Raw:
        if not self._command:
            raise Unsupported("this coordinator cannot inspect checkpoints: it was started without an inspector")
        question = {
            "coordinator": self._address,
            "user": user,
            "path": "/" + "/".join(parse_path(path).components),
            "all_below": all_below,
            "view": view,
            "partial": partial,
            "token": self._token_of(user),
            "ca_file": self._ca_file,
        }
        try:
            said = await self._process.ask(msgspec.json.encode(question))
        except TimeoutError:
            raise BadRequest(
                f"the inspection took more than {self._timeout_s:g} s and was ended; ask for a directory "
                "further down"
            ) from None
        answer = await asyncio.to_thread(msgspec.json.decode, said, type=_Inspected)
        if answer.code:
            raise from_wire(answer.code, answer.message)
        return answer.answer
