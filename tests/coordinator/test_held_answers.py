"""Answers over frames leave when what they depend on is durable, in order, and hold up nobody else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from metadata.group_commits import Group
from support.spoken_link import SIGNER, told_by

from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.metadata.epochs import epochs_of
from peacefs.coordinator.metadata.log.segments import LogFull
from peacefs.coordinator.operations.commits import Commits
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.durable_answers import DurableAnswers
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.rpc.client_session import ClientLinks, calls_per_turn_max
from peacefs.coordinator.rpc.datanode_links import DatanodeLinks
from peacefs.protocol.frames import FrameReader, encode
from peacefs.protocol.handshake import Identity, connecting
from peacefs.protocol.messages import (
    Failure,
    FileInfo,
    GetFileInfo,
    Message,
    Mkdirs,
    NameChanged,
    Target,
    Welcome,
)


class Transport:
    """Keeps what was written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 1) if name == "peername" else None

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class Caller:
    """A client whose handshake is done."""

    def __init__(self, links: ClientLinks) -> None:
        self.transport = Transport()
        self.link = links.link()
        self.link.connection_made(cast(asyncio.BaseTransport, self.transport))
        target = Target("coordinator", "coordinator", "coordinator:1", "")
        steps = connecting(Identity("", "client", "test", None), b"n" * 16, target=target)
        self.link.data_received(encode(next(steps)))
        ((_, proof),) = self.told()
        self.link.data_received(encode(told_by(steps, proof).last_word))
        assert isinstance(self.told()[0][1], Welcome)
        self._tag = 0

    def asks(self, *messages: Message) -> None:
        """Send calls in one piece."""
        frames = []
        for message in messages:
            self._tag += 1
            frames.append(encode(message, tag=self._tag))
        self.link.data_received(b"".join(frames))

    def told(self) -> list[tuple[int, Message]]:
        """Return the tags and messages that came since the last call."""
        frames = FrameReader().feed(b"".join(self.transport.writes))
        self.transport.writes.clear()
        return [(frame.tag, frame.message) for frame in frames]


class Coordinator:
    """A door for clients. The test decides when entries are written."""

    def __init__(self) -> None:
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
        self._links = ClientLinks(Identity("c", "coordinator", "coordinator", SIGNER), Files(context, 0))

    def caller(self) -> Caller:
        return Caller(self._links)


@pytest.fixture
def play() -> Callable[[Callable[[Coordinator], None]], None]:
    def run(story: Callable[[Coordinator], None]) -> None:
        async def main() -> None:
            story(Coordinator())

        asyncio.run(main())

    return run


def mkdir(path: str) -> Mkdirs:
    return Mkdirs(path, "root", permission=0o755, request_id=f"make {path}")


def stat(path: str) -> GetFileInfo:
    return GetFileInfo(path, "root")


def test_answers_leave_in_order_when_they_are_durable_and_others_do_not_wait(play: Any) -> None:
    def story(coordinator: Coordinator) -> None:
        writer, reader = coordinator.caller(), coordinator.caller()
        writer.asks(mkdir("/old/a"))
        coordinator.group.writing.turn()
        assert writer.told() == [(1, NameChanged(True))]
        # The second call is carried out although the answer to the first one waits.
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


def test_answers_that_depend_on_an_undone_entry_say_that_there_is_no_room(play: Any) -> None:
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


def test_connection_with_many_answers_that_wait_carries_out_no_further_call(play: Any) -> None:
    def story(coordinator: Coordinator) -> None:
        caller = coordinator.caller()
        caller.asks(*(mkdir(f"/{number:03}") for number in range(calls_per_turn_max + 10)))
        assert coordinator.group.commits.requests == calls_per_turn_max
        coordinator.group.writing.turn()
        assert [tag for tag, _ in caller.told()] == [number + 1 for number in range(calls_per_turn_max + 10)]

    play(story)
