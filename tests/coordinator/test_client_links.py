"""Clients' framed connections: what is accepted, what is refused, and the effect on others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.greeted_link import greeted_link
from support.immediate_commit import durable_at_once
from support.spoken_link import SIGNER, told_by

from peacefs.coordinator.audit_log import AuditLog, AuditRecord
from peacefs.coordinator.limits import link_at_once_bytes
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.rpc import client_session as client_link
from peacefs.coordinator.rpc.audited_calls import AuditedRpc
from peacefs.coordinator.rpc.client_session import ClientLinks
from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.frames import Frame, FrameReader, encode
from peacefs.protocol.handshake import Identity, connecting
from peacefs.protocol.messages import (
    ChunkLayout,
    Failure,
    GetLayout,
    Heartbeat,
    Layout,
    Message,
    Opened,
    OpenFile,
    ReportChunks,
    TakeLease,
    Target,
    Usage,
    Welcome,
)

STRANGE: list[Message] = [
    Heartbeat(Usage(1, 1, 1)),
    ReportChunks([], last=True),
    TakeLease("t", "me"),
]


class ReadOperations:
    """Answers on request; records the requested paths, and from which host."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.was_asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.fault: Exception | None = None

    async def open_direct(self, path: str, user: str, host: str | None) -> tuple[str, Layout, None]:
        self.asked.append((path, user, host))
        self.was_asked.set()
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return f"token of {path}", Layout(0, []), None

    async def layout(self, wanted: GetLayout, _host: str | None) -> Layout:
        chunk = ChunkLayout(1, 1, 1, "t" * 100, [])
        return Layout(0, [chunk] * int(wanted.token))


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames = FrameReader()

    async def receive(self) -> Frame:
        while (frame := self._frames.next()) is None:
            data = await self._reader.read(65536)
            if not data:
                raise ConnectionError("the coordinator hung up")
            self._frames.take(data)
        return frame

    def send(self, message: Message, tag: int = 0) -> None:
        self.writer.write(encode(message, tag=tag))

    async def greet(self) -> Client:
        target = Target("coordinator", "coordinator", "coordinator:1", "")
        steps = connecting(Identity("", "client", "test", None), b"n" * 16, target=target)
        self.send(next(steps))
        self.send(told_by(steps, (await self.receive()).message).last_word)
        assert isinstance((await self.receive()).message, Welcome)
        return self

    async def ask(self, message: Message) -> Message:
        self.send(message, 9)
        frame = await self.receive()
        assert frame.tag == 9
        return frame.message

    async def has_ended(self) -> bool:
        with suppress(ConnectionError):
            while True:
                await self.receive()
        return True


class Coordinator:
    def __init__(self) -> None:
        self.reading = ReadOperations()
        durable = durable_at_once(store_in_memory())
        files = cast(Files, SimpleNamespace(reading=self.reading, durable=durable))
        self.links = ClientLinks(Identity("c", "coordinator", "coordinator", SIGNER), files)
        self.port = 0
        self._clients: list[Client] = []

    async def connected(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    async def client(self) -> Client:
        return await (await self.connected()).greet()

    async def close(self) -> None:
        self.links.stop()
        for client in self._clients:
            client.writer.close()
            with suppress(ConnectionError):
                await client.writer.wait_closed()


def tell(story: Callable[[Coordinator], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        coordinator = Coordinator()
        server = await asyncio.get_running_loop().create_server(coordinator.links.link, "127.0.0.1", 0)
        coordinator.port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(20):
            await story(coordinator)
        await coordinator.close()
        server.close()

    asyncio.run(play())


def test_a_client_without_the_secret_asks_and_is_answered_as_the_user_that_it_names() -> None:
    async def story(coordinator: Coordinator) -> None:
        client = await coordinator.client()
        assert await client.ask(OpenFile("/a", "alice")) == Opened("token of /a", Layout(0, []))
        assert coordinator.reading.asked == [("/a", "alice", "127.0.0.1")]

    tell(story)


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (FileNotFound("/a does not exist"), "FileNotFound", "/a does not exist"),
        (RuntimeError("secret details"), "PeacefsError", "its log says more"),
    ],
)
def test_a_fault_is_an_answer_and_the_connection_goes_on(fault: Exception, code: str, words: str) -> None:
    async def story(coordinator: Coordinator) -> None:
        client = await coordinator.client()
        coordinator.reading.fault = fault
        answer = await client.ask(OpenFile("/a", "alice"))
        assert isinstance(answer, Failure) and answer.code == code and words in answer.message
        coordinator.reading.fault = None
        assert isinstance(await client.ask(OpenFile("/a", "alice")), Opened)

    tell(story)


@pytest.mark.parametrize("message", STRANGE, ids=lambda message: type(message).__name__)
def test_client_that_speaks_as_a_datanode_is_disconnected(message: Message) -> None:
    async def story(coordinator: Coordinator) -> None:
        client = await coordinator.client()
        client.send(message)
        answer = (await client.receive()).message
        assert isinstance(answer, Failure) and "a client may not send" in answer.message
        assert "--node-port" in answer.message, "where a datanode that was given the wrong port belongs"
        assert await client.has_ended()

    tell(story)


def test_a_stranger_who_says_what_is_no_hello_gets_no_further() -> None:
    async def story(coordinator: Coordinator) -> None:
        stranger = await coordinator.connected()
        stranger.send(OpenFile("/a", "alice"))
        assert isinstance((await stranger.receive()).message, Failure)
        assert await stranger.has_ended()
        noise = await coordinator.connected()
        noise.writer.write(b"post / http/1.1 and more than a prefix of noise\r\n\r\n")
        assert await noise.has_ended()
        assert coordinator.reading.asked == []

    tell(story)


def test_calls_on_one_connection_are_answered_one_after_the_other_and_hold_up_no_other() -> None:
    async def story(coordinator: Coordinator) -> None:
        eager, other = await coordinator.client(), await coordinator.client()
        coordinator.reading.gate.clear()
        many = 3 * link_at_once_bytes // 50
        for tag in range(1, many + 1):
            eager.send(OpenFile(f"/{tag}", "alice"), tag)
        await coordinator.reading.was_asked.wait()
        assert await other.ask(GetLayout("0")) == Layout(0, [])
        assert len(coordinator.reading.asked) == 1
        coordinator.reading.gate.set()
        assert [(await eager.receive()).tag for _ in range(many)] == list(range(1, many + 1))

    tell(story)


def test_a_file_of_very_many_chunks_has_a_layout_that_fits() -> None:
    async def story(coordinator: Coordinator) -> None:
        answer = await (await coordinator.client()).ask(GetLayout("50000"))
        assert isinstance(answer, Layout) and len(answer.chunks) == 50000

    tell(story)


def test_client_connections_over_the_limit_close_the_longest_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_link, "client_links_max", 3)

    async def story(coordinator: Coordinator) -> None:
        busy = await coordinator.client()
        coordinator.reading.gate.clear()
        busy.send(OpenFile("/a", "alice"))
        await coordinator.reading.was_asked.wait()
        silent = [await coordinator.connected() for _ in range(5)]
        last = await coordinator.client()
        assert [await stranger.has_ended() for stranger in silent[:4]] == [True] * 4
        coordinator.reading.gate.set()
        assert isinstance((await busy.receive()).message, Opened)
        assert isinstance(await last.ask(OpenFile("/b", "bob")), Opened)

    tell(story)


def test_too_many_calls_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_link, "http_requests_in_flight_max", 1)

    async def story(coordinator: Coordinator) -> None:
        first, second = await coordinator.client(), await coordinator.client()
        coordinator.reading.gate.clear()
        first.send(OpenFile("/a", "alice"))
        await coordinator.reading.was_asked.wait()
        refusal = await second.ask(OpenFile("/b", "bob"))
        assert isinstance(refusal, Failure) and refusal.code == "Overloaded"
        coordinator.reading.gate.set()
        assert isinstance((await first.receive()).message, Opened)
        assert isinstance(await second.ask(OpenFile("/b", "bob")), Opened)

    tell(story)


def test_call_that_is_refused_before_its_caller_is_known_is_recorded_as_nobodys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_link, "http_requests_in_flight_max", 0)
    records: list[AuditRecord] = []

    async def story(coordinator: Coordinator) -> None:
        coordinator.links.authenticate = lambda credential: pytest.fail("it is refused before")
        coordinator.links.audited = AuditedRpc(cast(AuditLog, SimpleNamespace(record=records.append)), SIGNER)
        link, writes = greeted_link(coordinator.links)
        link.data_received(encode(OpenFile("/a", "alice")))
        coordinator.links.answer()
        refusal = writes.frames()[0].message
        assert isinstance(refusal, Failure) and refusal.code == "Overloaded"
        link.connection_lost(None)

    tell(story)
    assert [(record.user, record.auth, record.source, record.error) for record in records] == [
        (None, "none", "/a", "Overloaded")
    ]


def test_calls_that_arrive_together_are_answered_in_one_write_without_a_task() -> None:
    async def story(coordinator: Coordinator) -> None:
        link, writes = greeted_link(coordinator.links)
        before = asyncio.all_tasks()
        calls = b"".join(encode(GetLayout("1" if tag % 2 else "0"), tag=tag) for tag in range(1, 9))
        link.data_received(calls[:-5])
        link.data_received(calls[-5:])
        coordinator.links.answer()
        assert len(writes.pieces) == 1
        assert [frame.tag for frame in writes.frames()] == list(range(1, 9))
        assert asyncio.all_tasks() == before
        link.connection_lost(None)

    tell(story)


def test_answer_that_cannot_be_sent_ends_its_connection_and_holds_up_no_other() -> None:
    async def story(coordinator: Coordinator) -> None:
        (broken, nothing), (other, answered) = greeted_link(coordinator.links), greeted_link(coordinator.links)
        # Over 16 MiB, which no frame may have.
        broken.data_received(encode(GetLayout("200000")))
        other.data_received(encode(GetLayout("0"), tag=1))
        coordinator.links.answer()
        assert nothing.is_aborted and not nothing.pieces
        assert [frame.message for frame in answered.frames()] == [Layout(0, [])]
        for link in (broken, other):
            link.connection_lost(None)

    tell(story)


def test_after_so_many_calls_of_one_connection_others_have_their_turn() -> None:
    async def story(coordinator: Coordinator) -> None:
        link, writes = greeted_link(coordinator.links)
        many = 2 * client_link.calls_per_turn_max + 3
        link.data_received(b"".join(encode(GetLayout("0"), tag=tag) for tag in range(1, many + 1)))
        answered = []
        while not answered or answered[-1] < many:
            coordinator.links.answer()
            answered.append(len(writes.frames()))
        assert answered == [client_link.calls_per_turn_max, 2 * client_link.calls_per_turn_max, many]
        assert [frame.tag for frame in writes.frames()] == list(range(1, many + 1))
        link.connection_lost(None)

    tell(story)


def test_a_frame_out_of_place_among_good_ones_ends_the_connection_after_their_answers() -> None:
    async def story(coordinator: Coordinator) -> None:
        client = await coordinator.client()
        client.writer.write(encode(GetLayout("0"), tag=1) + encode(TakeLease("t", "me"), tag=2))
        assert (await client.receive()) == Frame(Layout(0, []), b"", 1)
        assert isinstance((await client.receive()).message, Failure)
        assert await client.has_ended()

    tell(story)
