"""A tree of two users, changed between the check of permissions and the commit of a removal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from support.immediate_commit import CommitsAtOnce, durable_at_once
from support.no_links import NoLinks
from support.play import Play

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.model import RenameMode
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.names import Names
from peacefs.coordinator.operations.snapshots import SnapshotOperations
from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.tokens import Signer


class SharedTree:
    """Ann's /a/d, with changes between the check of permissions and the deletion."""

    def __init__(self, play: Play) -> None:
        self.metadata = store_in_memory()
        play.begin_epoch(self.metadata)
        self.meanwhile: Callable[[], object] = lambda: None
        self.looked = 0

        def before() -> None:
            self.looked += 1
            self.meanwhile()

        async def pause(_s: float) -> None:
            return

        context = OperationContext(
            self.metadata.reader(),
            CommitsAtOnce(self.metadata, before),
            play.core,
            Signer(b"secret"),
            NoLinks(),
            durable_at_once(self.metadata),
            callers=Callers("root"),
            sleep=pause,
        )
        self.names = Names(context)
        self.snapshots = SnapshotOperations(context, self.names)
        self.mkdirs("/a/d/sub")
        self.mkdirs("/a/d/open", mode=0o777)
        self.mkdirs("/a/d/open/x")
        self.mkdirs("/b/full/y", user="bob")

    def change(self, request: Callable[[Transaction], Any]) -> Any:
        return run_now(self.metadata, request)

    def mkdirs(self, path: str, user: str = "ann", mode: int = 0o755) -> None:
        self.change(lambda tx: namespace.mkdirs(tx, parse_path(path), user, mode, 1))

    def once(self, *changes: Callable[[], object]) -> None:
        """Make these changes once, before the next commit."""

        def happen() -> None:
            self.meanwhile = lambda: None
            for change in changes:
                change()

        self.meanwhile = happen

    def never_be_still(self, place: str) -> None:
        """Move another user's directory to `place` before each commit."""
        own = "/mine"
        self.mkdirs(f"{own}/x")

        def move_in_again() -> None:
            if self.is_there(place):
                self.rename(place, own)
            self.rename(own, place)

        self.meanwhile = move_in_again

    def delete(self) -> bool:
        return asyncio.run(self.names.delete("/a/d", True, "ann"))

    def is_there(self, path: str) -> bool:
        try:
            namespace.status(self.metadata.reader(), parse_path(path))
        except FileNotFound:
            return False
        return True

    def rename(self, source: str, target: str) -> None:
        source_path, target_path = parse_path(source), parse_path(target)
        self.change(lambda tx: namespace.rename(tx, source_path, target_path, RenameMode.STRICT, 2))

    def set_mode(self, path: str, mode: int) -> None:
        self.change(lambda tx: namespace.set_permission(tx, parse_path(path), mode))
