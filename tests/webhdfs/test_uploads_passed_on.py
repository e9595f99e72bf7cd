"""Uploads through the coordinator, beside a peer in a datanode's place that answers in pieces, early or never."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

import pytest

from peacefs.coordinator.api import uploads
from peacefs.coordinator.api.uploads import Uploads
from peacefs.protocol.asgi import Message, Receive, Scope
from peacefs.protocol.webhdfs.answers import Answer, empty_answer

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_REFUSAL = json.dumps({"RemoteException": {"message": "the quota of /user/ann is used up " + "." * 3000}}).encode()
_HEAD = b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(_REFUSAL)
_PIECE = bytes(1 << 16)


def upload(peer: Peer, receive: Receive, length: int = len(_PIECE)) -> Answer:
    """Return the answer to an upload that is passed on to `peer`."""

    async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await peer(reader, writer)
        writer.close()

    async def answered() -> Answer:
        server = await asyncio.start_server(ended, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()

            async def redirecting(_scope: Scope) -> Answer:
                return empty_answer(307, location=f"http://{host}:{port}/webhdfs/v1/user/ann/file?op=CREATE")

            headers = [(b"content-length", b"%d" % length)]
            scope: Scope = {"method": "PUT", "headers": headers, "client": ("127.0.0.1", 1)}
            return await asyncio.wait_for(Uploads(None).answer(scope, receive, redirecting), 60)

    return asyncio.run(answered())


def said(answer: Answer) -> str:
    return str(json.loads(answer.body)["RemoteException"]["message"])


async def one_piece() -> Message:
    return {"type": "http.request", "body": _PIECE, "more_body": False}


def test_answer_arrives_whole_in_whatever_pieces_the_datanode_sends_it() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(_PIECE))
        whole = _HEAD + _REFUSAL
        for begin, end in ((0, 9), (9, len(_HEAD) + 5), (len(_HEAD) + 5, len(whole))):
            writer.write(whole[begin:end])
            await writer.drain()
            await asyncio.sleep(0.1)

    answer = upload(peer, one_piece)
    assert (answer.status, answer.body) == (403, _REFUSAL)


def test_reason_of_a_datanode_that_refuses_before_it_has_the_body_is_passed_on() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_HEAD + _REFUSAL)

    async def endless() -> Message:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": _PIECE, "more_body": True}

    answer = upload(peer, endless, 1 << 30)
    assert (answer.status, answer.body) == (403, _REFUSAL)


@pytest.mark.parametrize("pause_s", [0.05, 60.0], ids=["drips", "silent"])
def test_browser_that_sends_too_slowly_loses_its_place(monkeypatch: pytest.MonkeyPatch, pause_s: float) -> None:
    monkeypatch.setattr(uploads, "upload_idle_timeout_s", 0.5)

    async def peer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async def slow() -> Message:
        await asyncio.sleep(pause_s)
        return {"type": "http.request", "body": b"x", "more_body": True}

    answer = upload(peer, slow, 1 << 30)
    assert answer.status == 400 and "the upload is given up" in said(answer)


def test_datanode_that_is_silent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "upload_idle_timeout_s", 0.5)

    async def peer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    answer = upload(peer, one_piece)
    assert answer.status == 500 and "datanode 127.0.0.1:" in said(answer) and "was silent" in said(answer)
