"""`GET /health/live` and `/health/ready` of a datanode: 200 or 503, with reasons in words.

Anyone who reaches the port may ask. The answers contain no names and no paths. A datanode that answers is live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from peacefs.protocol.asgi import App, Receive, Scope, Send
from peacefs.protocol.messages import DiskReport
from peacefs.protocol.webhdfs.answers import Answer, send_answer

from ..disks.disk import DiskState

_FAILED = DiskState.FAILED.value
_NOT_TO_BE_KEPT = ((b"cache-control", b"no-store"),)


class DatanodeHealth(msgspec.Struct, frozen=True):
    ok: bool
    role: str
    problems: list[str]


def ready(*, is_registered: bool, disks: Sequence[DiskReport]) -> DatanodeHealth:
    """Return True if this datanode is registered and a disk works. Rolling restarts wait for this."""
    problems = []
    if not is_registered:
        problems.append("no coordinator that leads has registered this datanode")
    if all(disk.state == _FAILED for disk in disks):
        problems.append("every disk has failed")
    return DatanodeHealth(not problems, "datanode", problems)


class HealthAnswers:
    """An ASGI application that answers these two requests and passes others on to `inner`."""

    def __init__(self, inner: App, condition: Callable[[], DatanodeHealth]) -> None:
        """`condition` returns the present readiness."""
        self._inner = inner
        self._condition = condition

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("raw_path") if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") else None
        if path == b"/health/live":
            await _tell(DatanodeHealth(True, "datanode", []), scope, send)
        elif path == b"/health/ready":
            await _tell(self._condition(), scope, send)
        else:
            await self._inner(scope, receive, send)


async def _tell(health: DatanodeHealth, scope: Scope, send: Send) -> None:
    status = 200 if health.ok else 503
    await send_answer(
        scope, send, Answer(status, msgspec.json.encode(health), _NOT_TO_BE_KEPT, b"application/json")
    )
