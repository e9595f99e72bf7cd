"""Connections between the processes of a dataflow: TCP, one in each direction, messages in order.

A connection is made when there is something to send. When it ends, both ends are told, and what was on its way is
lost. Connections begin with the query's token; who does not know it is not listened to. Loopback only. Beats
have connections of their own (`beats.py`), whose end tells nobody anything.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from peacefs.protocol.errors import ProtocolViolation

from .wire import MessageReader, NodeHello, encode

log = logging.getLogger("peacefs.dataflow")

_HOST = "127.0.0.1"
_READ_BYTES = 1 << 20


class LinkReader(Protocol):
    """Bytes of one connection, in any pieces, to messages."""

    def feed(self, data: bytes) -> Iterable[Any]: ...


class Links:
    def __init__(
        self,
        name: str,
        token: str,
        schemas: Mapping[str, pa.Schema],
        received: Callable[[str, Any], None],
        broken: Callable[[str], None],
        sent: Callable[[Any, int], None] | None = None,
        *,
        encode: Callable[[Any], list[bytes | memoryview]] = encode,
        new_reader: Callable[[], LinkReader] | None = None,
    ) -> None:
        """`sent` is told of each message that was written, and of its bytes.

        Messages are those of `wire.py` unless `encode` and `new_reader` say otherwise.
        """
        self._encode = encode
        self._new_reader: Callable[[], LinkReader] = new_reader or partial(MessageReader, schemas)
        self._hello = NodeHello(name, token)
        self._received = received
        self._broken = broken
        self._sent = sent
        self._outgoing: dict[str, _Outgoing] = {}
        self._server: asyncio.Server | None = None
        self._readers: set[asyncio.Task[None]] = set()
        self._closing = False

    async def listen(self) -> str:
        """Accept connections, and return the address."""
        self._server = await asyncio.start_server(self._accept, _HOST, 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def send(self, peer: str, address: str, message: Any) -> None:
        outgoing = self._outgoing.get(peer)
        if outgoing is None or outgoing.address != address:
            if outgoing is not None:
                outgoing.task.cancel()
            outgoing = self._outgoing[peer] = _Outgoing(address)
            outgoing.task = asyncio.create_task(self._write(peer, outgoing))
        outgoing.messages.put_nowait(message)

    async def close(self) -> None:
        self._closing = True
        tasks = [*(outgoing.task for outgoing in self._outgoing.values()), *self._readers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _write(self, peer: str, outgoing: _Outgoing) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            host, _, port = outgoing.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.writelines(self._encode(self._hello))
            # The peer sends nothing here: whatever comes, or an end, means that it is gone.
            gone = asyncio.create_task(reader.read(1))
            gone.add_done_callback(lambda _: outgoing.messages.put_nowait(None))
            try:
                while (message := await outgoing.messages.get()) is not None:
                    parts = self._encode(message)
                    writer.writelines(parts)
                    if self._sent is not None:
                        self._sent(message, sum(map(len, parts)))
                    await writer.drain()
            finally:
                gone.cancel()
        except OSError:
            pass  # told below, as an end is
        finally:
            if writer is not None:
                writer.close()
            if self._outgoing.get(peer) is outgoing and not self._closing:
                del self._outgoing[peer]
                self._broken(peer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        peer: str | None = None
        beats = False
        messages = self._new_reader()
        try:
            while data := await reader.read(_READ_BYTES):
                for message in messages.feed(data):
                    if isinstance(message, NodeHello):
                        if not hmac.compare_digest(message.token, self._hello.token):
                            return
                        peer, beats = message.node, message.beats
                    elif peer is None:
                        return
                    else:
                        self._received(peer, message)
        except ProtocolViolation as error:
            log.warning("the connection from %s ends: %s", peer, error.message)
        except (OSError, asyncio.CancelledError):
            pass  # the connection ends, which is told below
        finally:
            writer.close()
            self._readers.discard(task)
            if peer is not None and not beats and not self._closing:
                self._broken(peer)


class _Outgoing:
    def __init__(self, address: str) -> None:
        self.address = address
        #: None at the end of the connection.
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.task: asyncio.Task[None]
