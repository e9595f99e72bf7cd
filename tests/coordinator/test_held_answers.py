"""Answers over frames leave in order, when their dependencies are durable, and delay no other client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from metadata.group_commits import Group
from support.greeted_link import greeted_link
from support.spoken_link import SIGNER

from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.failover.door import Door
from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.journal.port import Member
from peacefs.coordinator.limits import leader_lease_s
from peacefs.coordinator.metadata.epochs import epochs_of
from peacefs.coordinator.metadata.log.segments import LogFull
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.durability.commits import Commits
from peacefs.coordinator.operations.durability.durable_answers import DurableAnswers
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.rpc.client_session import ClientLinks, calls_per_turn_max
from peacefs.coordinator.rpc.datanode_links import DatanodeLinks
from peacefs.protocol.frames import encode
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import (
    Failure,
    FileInfo,
    GetFileInfo,
    Message,
    Mkdirs,
    NameChanged,
    RenamePath,
)


class Caller:
    """A client."""

    def __init__(self, links: ClientLinks) -> None:
        self._links = links
        self._link, self._writes = greeted_link(links)
        self._tag = 0

    def asks(self, *messages: Message) -> None:
        """Send calls in one piece, and let the coordinator answer those that need not wait."""
        self.sends(*messages)
        self._links.answer()

    def sends(self, *messages: Message) -> None:
        """Send calls in one piece. They are carried out, and not answered yet."""
        frames = []
        for message in messages:
            self._tag += 1
            frames.append(encode(message, tag=self._tag))
        self._link.data_received(b"".join(frames))

    def told(self) -> list[tuple[int, Message]]:
        """Return the tags and messages received since the last call."""
        self._links.answer()
        frames = self._writes.frames()
        self._writes.pieces.clear()
        return [(frame.tag, frame.message) for frame in frames]


class Coordinator:
    """An endpoint for clients. The test decides when entries are written."""

    def __init__(self, door: Door | None = None) -> None:
        self.group = Group()
        metadata = self.group.metadata
        core = CoordinatorCore(0.0, epochs_of(metadata, 0.0), random.Random(1))
        commits = Commits(self.group.commits)
        context = OperationContext(
            metadata.reader(),
            commits,
            core,
            SIGNER,
            DatanodeLinks(),
            DurableAnswers(metadata.rows, commits),
        )
        self._links = ClientLinks(
            Identity("c", "coordinator", "coordinator", SIGNER), Files(context, 0), door=door
        )

    def caller(self) -> Caller:
        return Caller(self._links)


def play(story: Callable[[Coordinator], None], door: Door | None = None) -> None:
    """Run a test on an event loop, which the links' deadlines need."""

    async def main() -> None:
        story(Coordinator(door))

    asyncio.run(main())


def mkdir(path: str) -> Mkdirs:
    return Mkdirs(path, "root", permission=0o755, request_id=f"make {path}")


def stat(path: str) -> GetFileInfo:
    return GetFileInfo(path, "root")


def test_answers_leave_in_order_when_they_are_durable_and_others_do_not_wait() -> None:
    def story(coordinator: Coordinator) -> None:
        writer, reader = coordinator.caller(), coordinator.caller()
        writer.asks(mkdir("/old/a"))
        coordinator.group.writing.turn()
        assert writer.told() == [(1, NameChanged(True))]
        # The second call is executed although the answer to the first one waits.
        writer.asks(mkdir("/new"), stat("/new"))
        reader.asks(stat("/old/a"))
        ((_, info),) = reader.told()
        assert isinstance(info, FileInfo)
        reader.asks(stat("/new"), stat("/old/a"))
        assert writer.told() == reader.told() == []
        coordinator.group.writing.turn()
        (first, second), third = writer.told(), reader.told()
        assert first == (2, NameChanged(True)) and second[0] == 3 and isinstance(second[1], FileInfo)
        assert [tag for tag, _ in third] == [2, 3]

    play(story)


class Lease:
    """The lease of a coordinator that leads, until `pass_by` lets it run out."""

    def __init__(self) -> None:
        self._now_s = 100.0
        leadership = Leadership(self._clock, Member("a:9870"))
        leadership.begin(5)
        leadership.confirmed(self._now_s)
        self.door = Door(leadership, self._clock, asyncio.sleep, leader_lives=self._leader_lives)

    def _clock(self) -> float:
        return self._now_s

    async def _leader_lives(self) -> bool:
        return False

    def pass_by(self) -> None:
        self._now_s += leader_lease_s


def test_answer_that_was_read_is_refused_when_another_coordinator_may_have_led_before_it_leaves() -> None:
    lease = Lease()

    def story(coordinator: Coordinator) -> None:
        caller = coordinator.caller()
        caller.asks(mkdir("/made"), stat("/made"))
        assert caller.told() == []
        lease.pass_by()
        coordinator.group.writing.turn()
        made, (tag, read) = caller.told()
        assert made == (1, NameChanged(True)), "the journal has fenced the change"
        assert tag == 2 and isinstance(read, Failure) and read.code == "ServiceUnready"

    play(story, lease.door)


def test_error_of_a_change_is_withheld_when_another_coordinator_may_have_led_before_it_leaves() -> None:
    """The journal fences only changes that were made. Another leader may have created the missing name."""
    lease = Lease()

    def codes(caller: Caller) -> list[str]:
        return [message.code for _tag, message in caller.told() if isinstance(message, Failure)]

    def story(coordinator: Coordinator) -> None:
        caller = coordinator.caller()
        impossible = RenamePath("/missing", "root", target="/new", overwrite=False, request_id="rename")
        caller.asks(impossible)
        assert codes(caller) == ["FileNotFound"]
        caller.sends(impossible)
        lease.pass_by()
        assert codes(caller) == ["ServiceUnready"]

    play(story, lease.door)


def test_answers_that_depend_on_an_undone_entry_say_that_there_is_no_room() -> None:
    def story(coordinator: Coordinator) -> None:
        writer, reader = coordinator.caller(), coordinator.caller()
        coordinator.group.log.fails = LogFull("no room")
        writer.asks(mkdir("/a"), mkdir("/a/b"), stat("/a/b"))
        reader.asks(stat("/a"))
        coordinator.group.writing.turn()
        for tag, message in writer.told() + reader.told():
            assert isinstance(message, Failure) and message.code == "ServiceUnready", (tag, message)
        coordinator.group.log.fails = None
        reader.asks(stat("/a"), mkdir("/a"))
        coordinator.group.writing.turn()
        (_, missing), made = reader.told()
        assert isinstance(missing, Failure) and missing.code == "FileNotFound"
        assert made == (3, NameChanged(True))

    play(story)


def test_connection_with_many_answers_that_wait_carries_out_no_further_call() -> None:
    def story(coordinator: Coordinator) -> None:
        caller = coordinator.caller()
        caller.asks(*(mkdir(f"/{number:03}") for number in range(calls_per_turn_max + 10)))
        assert coordinator.group.commits.requests == calls_per_turn_max
        coordinator.group.writing.turn()
        assert [tag for tag, _ in caller.told()] == [number + 1 for number in range(calls_per_turn_max + 10)]

    play(story)
