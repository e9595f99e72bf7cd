"""Count the steps of calls on names for `request_steps`, which runs this with a tree on its import path.

A step is one bytecode that Python executes. The coordinator's parts run here without sockets and disks; 16 clients
ask in turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.metadata.epochs import epochs_of
from peacefs.coordinator.metadata.group_commit import GroupCommit
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.coordinator.operations.durability.durable_answers import DurableAnswers
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.rpc.client_session import ClientLink, ClientLinks
from peacefs.coordinator.rpc.datanode_links import DatanodeLinks
from peacefs.protocol.frames import FrameReader, encode
from peacefs.protocol.handshake import Identity, connecting
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import (
    ChangeOwner,
    CreateFile,
    DeletePath,
    Failure,
    GetFileInfo,
    Message,
    Mkdirs,
    Register,
    RenamePath,
    ReportChunks,
    Target,
    Usage,
)
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import Signer

_CLIENTS: Final = 16
_CALLS: Final = 64
_SINCE_START_S: Final = 86_400.0
#: The user that runs the coordinator, and an ordinary user, whose permissions are checked.
_USERS: Final = {"root": "/r", "ann": "/a"}
#: Parts of paths of modules, and the layer that they belong to. The first match counts.
_LAYERS: Final = (
    ("coordinator/rpc/", "door"),
    ("coordinator/calls/", "door"),
    ("coordinator/operations/", "operations"),
    ("coordinator/namespace/", "rules"),
    ("coordinator/metadata/", "rows and log"),
    ("protocol/", "frames"),
    ("", "else"),
)


class _Transport:
    """Takes what a link writes."""

    def __init__(self) -> None:
        self.written = b""

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: bytes) -> None:
        self.written += data

    def messages(self) -> list[Message]:
        data, self.written = self.written, b""
        return [frame.message for frame in FrameReader().feed(data)]


class _RunNow:
    """A `Run` that does its work at once."""

    def __call__(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        work()
        done(None)

    def close(self) -> None:
        """Do nothing: no work is under way."""


class _Coordinator:
    """A coordinator without sockets, background tasks or a disk, and connections of clients to it."""

    def __init__(self, signer: Signer) -> None:
        metadata = store_in_memory()
        metadata.begin_epoch()
        self._soon: list[Callable[[], None]] = []
        group = GroupCommit(metadata, _fail, run=_RunNow(), soon=self._soon.append)
        core = CoordinatorCore(0.0, epochs_of(metadata, 0.0), random.Random(1))
        # Empty files can be made once a datanode has registered and reported.
        core.cluster.loaded()
        usage = Usage(1000 * MIB, 0, 1000 * MIB)
        core.cluster.register(0.0, Register("dn", "127.0.0.1", 1, "127.0.0.1", 2, "/rack", usage))
        core.cluster.report(0.0, "dn", ReportChunks([], True))
        commits = Commits(group)
        context = OperationContext(
            metadata.reader(),
            commits,
            core,
            signer,
            DatanodeLinks(),
            DurableAnswers(metadata.rows, commits),
            callers=Callers("root"),
            monotonic=lambda: _SINCE_START_S,
        )
        self._links = ClientLinks(Identity("c", "coordinator", "coordinator", signer), Files(context, 0))
        self._clients = [self._connected() for _ in range(_CLIENTS)]

    def _connected(self) -> tuple[ClientLink, _Transport]:
        link, transport = self._links.link(), _Transport()
        link.connection_made(cast(asyncio.Transport, transport))
        target = Target("coordinator", "coordinator", "coordinator:1", "")
        steps = connecting(Identity("", "client", "steps", None), b"n" * 16, target=target)
        link.data_received(encode(next(steps)))
        try:
            steps.send(transport.messages()[0])
        except StopIteration as stop:
            link.data_received(encode(stop.value.last_word))
        transport.messages()
        return link, transport

    def serve(self, requests: list[bytes]) -> None:
        for first in range(0, len(requests), _CLIENTS):
            for (link, _), data in zip(self._clients, requests[first : first + _CLIENTS], strict=False):
                link.data_received(data)
            self._links.answer()
            while self._soon:
                self._soon.pop(0)()
            self._links.answer()

    def check(self) -> None:
        for _, transport in self._clients:
            for message in transport.messages():
                assert not isinstance(message, Failure), message


def _fail(fault: Exception) -> None:
    raise fault


def _message(what: str, user: str, series: int, number: int) -> Message:
    top, client = _USERS[user], number % _CLIENTS
    path, id = f"{top}/f/{client}/{series}-{number}", os.urandom(16).hex()
    match what:
        case "stat":
            return GetFileInfo(f"{top}/f/{client}", user, trace=id)
        case "mkdir":
            return Mkdirs(f"{top}/d/{client}/{series}-{number}", user, permission=0o755, request_id=id, trace=id)
        case "create":
            new = NewFile(path=path, user=user, replication=1, request_id=id)
            return CreateFile(new, is_empty=True, trace=id)
        case "rename":
            return RenamePath(path, user, request_id=id, target=path + "-renamed", overwrite=False, trace=id)
        case _:
            return DeletePath(path + "-renamed", user, request_id=id, recursive=False, trace=id)


def _requests(what: str, user: str, series: int) -> list[bytes]:
    return [encode(_message(what, user, series, number)) for number in range(_CALLS)]


def _steps_of(coordinator: _Coordinator, requests: list[bytes]) -> dict[str, float]:
    """Return the number of steps per call in each layer, and the number of Python functions entered."""
    steps: Counter[str] = Counter()
    layers: dict[str, str] = {}

    def trace(frame: Any, event: str, _argument: object) -> Any:
        path = frame.f_code.co_filename
        if path not in layers:
            layers[path] = next(layer for part, layer in _LAYERS if part in path)
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            steps[layers[path]] += 1
        elif event == "call":
            steps["functions"] += 1
        return trace

    sys.settrace(trace)
    coordinator.serve(requests)
    sys.settrace(None)
    coordinator.check()
    return {layer: count / len(requests) for layer, count in steps.items()}


async def _count() -> dict[str, dict[str, float]]:
    coordinator = _Coordinator(Signer(b"the secret of a benchmark"))
    for user, top in _USERS.items():
        made: list[Message] = [
            Mkdirs(top, "root", permission=0o755, request_id=""),
            ChangeOwner(top, "root", request_id="", owner=user, group=None),
        ]
        made += [
            Mkdirs(f"{top}/{kind}/{client}", user, permission=0o755, request_id="")
            for kind in "df"
            for client in range(_CLIENTS)
        ]
        for message in made:
            coordinator.serve([encode(message)])
    coordinator.check()
    found = {}
    for user in _USERS:
        for what in ("stat", "mkdir", "create", "rename", "delete"):
            # The first series fills caches.
            coordinator.serve(_requests(what, user, 0))
            found[what if user == "root" else f"{what}, checked user"] = _steps_of(
                coordinator, _requests(what, user, 1)
            )
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_count())))
