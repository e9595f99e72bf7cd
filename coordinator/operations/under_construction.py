"""Files under construction: bodies that pass through gateways, and operations that meet their names.

A CREATE over WebHDFS commits nothing, so a small file costs one commit. To keep that invisible, this module
remembers the names that were begun. An operation that meets such a name has the gateway publish the file first.
After a moment, the gateway publishes it by itself. A name that nobody looks for in that time appears with its
file, complete.

All of this is soft and bounded state. After a restart, the coordinator knows no such names; their writers, which
have all that the files need, publish or complete them a moment later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from peacefs.coordinator.metadata.model import InodeId
from peacefs.coordinator.namespace.paths import NamespacePath
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import FlushUploads, Message, UploadsFlushed
from peacefs.runtime.effects import Ticket

from .core_driver import DatanodeSender
from .leases import Leases
from .waiters import NOTHING_TO_WAIT_FOR, Wait, wait_on_loop

# Seconds within which the body of a redirected CREATE must arrive to be waited for, and after which its name is
# forgotten.
upload_awaited_s: Final = 2.0
upload_of_directory_awaited_s: Final = 0.2
upload_answer_timeout_s: Final = 6.0
begun_name_kept_s: Final = 60.0
begun_names_max: Final = 10_000

Components = tuple[str, ...]


class BegunName(NamedTuple):
    """A name that was begun: its request id, and the datanode that receives the body."""

    path: Components
    upload: str
    node: NodeId
    begun_s: float


class BegunNames:
    """The names that were begun and are not visible yet. Over the limit, forget the oldest. Pure."""

    def __init__(self, *, names_max: int = begun_names_max, kept_s: float = begun_name_kept_s) -> None:
        self._names_max = names_max
        self._kept_s = kept_s
        #: Oldest first.
        self.begun: dict[str, BegunName] = {}
        self._at: dict[Components, dict[str, BegunName]] = {}
        #: Names whose bodies had not arrived while an operation waited for them, and how long it waited.
        self._missing: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self.begun)

    def begin(self, begun: BegunName) -> None:
        """Remember a name that was begun."""
        self.begun[begun.upload] = begun
        self._at.setdefault(begun.path, {})[begun.upload] = begun
        self._forget_old(begun.begun_s)

    def end(self, upload: str) -> None:
        """Forget a name that is visible now, or never will be."""
        begun = self.begun.pop(upload, None)
        if begun is None:
            return
        self._missing.pop(upload, None)
        there = self._at[begun.path]
        del there[upload]
        if not there:
            del self._at[begun.path]

    def missed(self, upload: str, waited_s: float) -> None:
        """Note that the body did not arrive in this time. It is not waited for as long again, but may still
        arrive.
        """
        if upload in self.begun:
            self._missing[upload] = max(waited_s, self._missing.get(upload, 0.0))

    def is_awaited(self, upload: str, wait_s: float) -> bool:
        """Return whether it is worth waiting this long for the body."""
        return self._missing.get(upload, 0.0) < wait_s

    def at(self, now_s: float, path: Components) -> list[BegunName]:
        """Return the files that were begun at exactly this path."""
        there = self._at.get(path)
        return [] if there is None else self._fresh(now_s, there.values())

    def listed(self, now_s: float, path: Components) -> list[BegunName]:
        """Return the files that were begun at this path and directly below it."""
        depth = len(path)
        found = (one for one in self.begun.values() if one.path[:depth] == path and len(one.path) <= depth + 1)
        return self._fresh(now_s, found)

    def within(self, now_s: float, path: Components) -> list[BegunName]:
        """Return the files that were begun at this path and anywhere below it."""
        depth = len(path)
        return self._fresh(now_s, (one for one in self.begun.values() if one.path[:depth] == path))

    def _fresh(self, now_s: float, found: Iterable[BegunName]) -> list[BegunName]:
        return [one for one in found if now_s - one.begun_s < self._kept_s]

    def _forget_old(self, now_s: float) -> None:
        while self.begun:
            oldest = next(iter(self.begun.values()))
            if len(self.begun) <= self._names_max and now_s - oldest.begun_s < self._kept_s:
                return
            self.end(oldest.upload)


class UnderConstruction:
    """Has gateways publish their files for operations that meet them. Used from one event loop only."""

    def __init__(
        self, links: DatanodeSender, leases: Leases, monotonic: Callable[[], float], wait: Wait = wait_on_loop
    ) -> None:
        self._links = links
        self._leases = leases
        self._monotonic = monotonic
        self._wait = wait
        self._names = BegunNames()
        #: Empty if no operation has anything to settle. For looking only.
        self.begun: Mapping[str, BegunName] = self._names.begun

    def __len__(self) -> int:
        return len(self._names)

    def begin(self, path: NamespacePath, upload: str, node: NodeId) -> None:
        """Remember that a datanode will receive the body of this name."""
        self._names.begin(BegunName(path.components, upload, node, self._monotonic()))

    def end(self, upload: str) -> None:
        """Forget a name that is visible, or whose writer was refused."""
        self._names.end(upload)

    def give_up(self, path: NamespacePath, nodes: frozenset[NodeId]) -> None:
        """Forget an attempt of a client that begins the name anew because it could not reach these datanodes."""
        if nodes:
            for one in self._names.at(self._monotonic(), path.components):
                if one.node in nodes:
                    self._names.end(one.upload)

    def settle(self, *paths: NamespacePath) -> Awaitable[None]:
        """Before an operation on these names: have their writers' gateways publish them, as in HDFS."""
        return self._settle(self._names.at, *paths)

    def settle_listing(self, directory: NamespacePath) -> Awaitable[None]:
        """Before a listing: have the gateways publish the names in a directory, or the file at this path."""
        return self._settle(self._names.listed, directory)

    def settle_trees(self, *paths: NamespacePath) -> Awaitable[None]:
        """Before an operation on whole trees: have the gateways publish all names at and below these paths."""
        return self._settle(self._names.within, *paths)

    def _settle(
        self, find: Callable[[float, Components], list[BegunName]], *paths: NamespacePath
    ) -> Awaitable[None]:
        if not self._names:
            return NOTHING_TO_WAIT_FOR
        now_s = self._monotonic()
        return self._show([one for path in paths for one in find(now_s, path.components)], *paths)

    async def flush(self, inode: InodeId) -> bool:
        """Before a read: have the gateway flush what it has of the body. Return whether a gateway was asked."""
        upload = self._leases.upload_of(inode)
        if upload is None:
            return False
        await self._ask({(upload.node, 0.0): [upload.name]})
        return True

    def is_uploaded(self, inode: InodeId) -> bool:
        """Return whether a datanode is uploading the file, so that `flush` would ask that datanode."""
        return self._leases.upload_of(inode) is not None

    async def _show(self, begun: Sequence[BegunName], *named: NamespacePath) -> None:
        """Have files published. Wait for a body if its file is looked for by name, and only briefly for others."""
        names = {path.components for path in named}
        wanted: dict[tuple[NodeId, float], list[str]] = {}
        for one in begun:
            wait_s = upload_awaited_s if one.path in names else upload_of_directory_awaited_s
            wait_s = wait_s if self._names.is_awaited(one.upload, wait_s) else 0.0
            wanted.setdefault((one.node, wait_s), []).append(one.upload)
        if wanted:
            await self._ask(wanted)

    async def _ask(self, wanted: dict[tuple[NodeId, float], list[str]]) -> None:
        """Ask gateways, and wait this long for each. A gateway that does not answer in time publishes nothing."""
        tickets = []
        for (node, wait_s), uploads in wanted.items():
            tickets.append(ticket := Ticket())
            self._links.ask(node, FlushUploads(uploads, wait_s), self._answered(uploads, wait_s, ticket))
        deadline_s = self._monotonic() + upload_answer_timeout_s
        for ticket in tickets:
            await self._wait(ticket, max(0.0, deadline_s - self._monotonic()))

    def _answered(self, uploads: Sequence[str], waited_s: float, ticket: Ticket) -> Callable[[Message], None]:
        """Return the callback for a gateway's reply."""

        def answered(reply: Message) -> None:
            for upload in reply.missing if isinstance(reply, UploadsFlushed) else uploads:
                self._names.missed(upload, waited_s)
            ticket.fire()

        return answered
