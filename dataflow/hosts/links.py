"""Connections between the processes of a dataflow: TCP, one per direction, messages in order.

A connection is opened when there is something to send. When it breaks, both ends are told, and messages in transit
are lost. A connection begins with a greeting (`greeting.py`). Until the greeting has proved that the other end
belongs to the query, nothing else is read. Connections that have not greeted have a deadline, and their number is
limited. Loopback only. Beats use separate connections (`beats.py`), whose end is not reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from peacefs.protocol.errors import ProtocolViolation

from .greeting import Greeting, greet, read_greeting
from .wire import MessageReader, encode

# Time limit for the greeting of a connection, and the maximum number of connections that have not greeted. Above
# that, the oldest is closed. A greeting that is sent immediately is read before that many others can be accepted.
dataflow_greeting_s: Final = 5.0
dataflow_strangers_max: Final = 256
dataflow_strangers_backlog: Final = 32


log = logging.getLogger("peacefs.dataflow")

_HOST = "127.0.0.1"
#: The time limit of a connection that has not greeted is counted in this many rounds. While the loop is busy with
#: one batch, at most one round passes, however long that takes. A greeting that arrived meanwhile is then read.
_ROUNDS = 10


class Links:
    """The connections of one process to the other processes of its query.

    Messages to a peer arrive in order, except urgent ones, which use a separate connection. When a connection
    ends, messages in transit are lost, and `broken` is called with the peer. Until a connection has greeted with
    the query's token, nothing else of it is read. Every edge and node, of units and of rings, has one `Links`, and
    calls it only on its event loop.
    """

    def __init__(
        self,
        name: str,
        token: str,
        schemas: Mapping[str, pa.Schema],
        received: Callable[[str, Any], None],
        broken: Callable[[str], None],
        sent: Callable[[Any, int], None] | None = None,
    ) -> None:
        """`sent` is called with each message that was written, and its number of bytes."""
        self._schemas = schemas
        self._name, self._token = name, token
        self._address = ""
        self._received = received
        self._broken = broken
        self._sent = sent
        # By peer, and whether the connection is for urgent messages.
        self._outgoing: dict[tuple[str, bool], _Outgoing] = {}
        self._server: asyncio.Server | None = None
        self._incoming: set[_Incoming] = set()
        # Connections that have not greeted yet, with the number of rounds so far; oldest first.
        self._strangers: dict[_Incoming, int] = {}
        self._round: asyncio.TimerHandle | None = None
        self._warned = False
        self._closing = False

    async def listen(self) -> str:
        """Accept connections, and return the address."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Incoming(self), _HOST, 0, backlog=dataflow_strangers_backlog
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        self._address = f"{host}:{port}"
        return self._address

    def send(self, peer: str, address: str, message: Any, *, urgent: bool = False) -> None:
        """Send a message after those before it, or if `urgent` after earlier urgent ones.

        A busy peer reads rows slowly. Urgent messages need not wait for the rows, and have no order relative to
        them.
        """
        lane = (peer, urgent)
        outgoing = self._outgoing.get(lane)
        if outgoing is None or outgoing.address != address:
            if outgoing is not None:
                outgoing.task.cancel()
            outgoing = self._outgoing[lane] = _Outgoing(address)
            outgoing.task = asyncio.create_task(self._write(lane, outgoing))
        outgoing.messages.put_nowait(message)

    async def close(self) -> None:
        self._closing = True
        if self._server is not None:
            self._server.close()
        if self._round is not None:
            self._round.cancel()
        for incoming in self._incoming:
            incoming.abort()
        tasks = [outgoing.task for outgoing in self._outgoing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _write(self, lane: tuple[str, bool], outgoing: _Outgoing) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            host, _, port = outgoing.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(greet(self._name, self._token, outgoing.address))
            # The peer sends nothing on this connection, so any data or the end means that the peer is gone.
            gone = asyncio.create_task(reader.read(1))
            gone.add_done_callback(lambda _: outgoing.messages.put_nowait(None))
            try:
                while (message := await outgoing.messages.get()) is not None:
                    parts = encode(message)
                    writer.writelines(parts)
                    if self._sent is not None:
                        self._sent(message, sum(map(len, parts)))
                    await writer.drain()
            finally:
                gone.cancel()
        except OSError:
            pass  # reported below, like an end
        finally:
            if writer is not None:
                writer.close()
            if self._outgoing.get(lane) is outgoing and not self._closing:
                del self._outgoing[lane]
                self._broken(lane[0])

    # -- called by incoming connections ---------------------------------------------------------------------

    def opened(self, incoming: _Incoming) -> None:
        """Register a connection. Above the limit, close the oldest connection that has not greeted."""
        self._incoming.add(incoming)
        self._strangers[incoming] = 0
        if len(self._strangers) > dataflow_strangers_max:
            self._refuse(next(iter(self._strangers)), "too many connections have not greeted")
        if self._round is None:
            self._begin_round()

    def greeting_of(self, incoming: _Incoming, data: bytearray) -> Greeting | None:
        """Parse the greeting at the beginning of the received bytes. None if it is incomplete or refused."""
        try:
            greeting = read_greeting(data, self._token, self._address)
        except ProtocolViolation as refusal:
            self._refuse(incoming, refusal.message)
            return None
        if greeting is not None:
            del self._strangers[incoming]
        return greeting

    def new_reader(self) -> MessageReader:
        return MessageReader(self._schemas)

    def received(self, peer: str, message: Any) -> None:
        self._received(peer, message)

    def closed(self, incoming: _Incoming) -> None:
        self._incoming.discard(incoming)
        self._strangers.pop(incoming, None)
        greeting = incoming.greeting
        if greeting is not None and not greeting.beats and not self._closing:
            self._broken(greeting.node)

    # -- strangers ------------------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        loop = asyncio.get_running_loop()
        self._round = loop.call_later(dataflow_greeting_s / _ROUNDS, self._end_round)

    def _end_round(self) -> None:
        self._round = None
        for incoming in list(self._strangers):
            self._strangers[incoming] += 1
            if self._strangers[incoming] > _ROUNDS:
                self._refuse(incoming, f"no greeting came within {dataflow_greeting_s:g} s")
        if self._strangers:
            self._begin_round()

    def _refuse(self, incoming: _Incoming, reason: str) -> None:
        self._strangers.pop(incoming, None)
        incoming.abort()
        if not self._warned:
            # Log only once, so that someone who connects endlessly cannot fill the log.
            self._warned = True
            log.warning("refused a connection to %s (further refusals are not logged): %s", self._address, reason)


class _Incoming(asyncio.Protocol):
    """A connection opened by a peer. Until the greeting is accepted, it reads nothing else."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._transport: asyncio.Transport
        self._begun = bytearray()
        self._messages: MessageReader
        self.greeting: Greeting | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._links.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if self.greeting is None:
            self._begun += data
            self.greeting = self._links.greeting_of(self, self._begun)
            if self.greeting is None:
                return
            data = bytes(self._begun[self.greeting.length :])
            self._begun.clear()
            self._messages = self._links.new_reader()
        try:
            for message in self._messages.feed(data):
                self._links.received(self.greeting.node, message)
        except ProtocolViolation as error:
            log.warning("the connection from %s ended: %s", self.greeting.node, error.message)
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._links.closed(self)

    def abort(self) -> None:
        self._transport.abort()


class _Outgoing:
    def __init__(self, address: str) -> None:
        self.address = address
        #: None at the end of the connection.
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.task: asyncio.Task[None]
