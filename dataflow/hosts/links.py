"""Connections between the processes of a dataflow: TCP, one per direction, messages in order.

A connection is opened when there is something to send. When it breaks, both ends are told, and messages in transit
are lost. A connection begins with the services' handshake, on other threads than the event loop (`membership.py`,
`door.py`). Loopback only. Beats use separate connections (`beats.py`), whose end is not reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa

from peacefs.protocol.errors import PeacefsError, PeerError
from peacefs.protocol.handshake import Peer
from peacefs.runtime.protected_stream import ProtectedStream

from .door import Door
from .membership import BEATS, Membership
from .wire import MessageReader, encode

# Maximum number of connections that a process makes at the same time. Others wait.
dataflow_dials_max: Final = 64


log = logging.getLogger("peacefs.dataflow")


class Links:
    """The connections of one process to the other processes of its query.

    Messages to a peer arrive in order, except urgent ones, which use a separate connection. When a connection
    ends, messages in transit are lost, and `broken` is called with the peer. Every edge and node, of units and of
    rings, has one `Links`, and calls it only on its event loop.
    """

    def __init__(
        self,
        membership: Membership,
        schemas: Mapping[str, pa.Schema],
        received: Callable[[str, Any], None],
        broken: Callable[[str], None],
        sent: Callable[[Any, int], None] | None = None,
    ) -> None:
        """`sent` is called with each message that was written, and its number of bytes."""
        self._membership = membership
        self._schemas = schemas
        self._received = received
        self._broken = broken
        self._sent = sent
        # By peer, and whether the connection is for urgent messages.
        self._outgoing: dict[tuple[str, bool], _Outgoing] = {}
        self._door: Door | None = None
        self._dials = ThreadPoolExecutor(dataflow_dials_max, thread_name_prefix="dial")
        self._incoming: set[_Incoming] = set()
        self._entering: set[asyncio.Task[None]] = set()
        self._closing = False
        # Connections whose handshake is complete and that the loop does not read from yet. With the lock, no
        # connection is added after `close` has begun.
        self._accepted: set[socket.socket] = set()
        self._lock = threading.Lock()

    def listen(self) -> str:
        """Accept connections, and return the address."""
        loop = asyncio.get_running_loop()

        def entered(peer: Peer, stream: ProtectedStream) -> None:
            with self._lock:
                if self._closing:
                    stream.sock.close()
                    return
                self._accepted.add(stream.sock)
                loop.call_soon_threadsafe(self._entered, peer, stream)

        self._door = Door(self._membership, entered)
        return self._door.address

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
        with self._lock:
            self._closing = True
        if self._door is not None:
            self._door.close()
        tasks = [*(outgoing.task for outgoing in self._outgoing.values()), *self._entering]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for accepted in self._accepted:
            accepted.close()
        for incoming in self._incoming:
            incoming.abort()
        self._dials.shutdown(wait=False, cancel_futures=True)

    async def _write(self, lane: tuple[str, bool], outgoing: _Outgoing) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            stream = await self._dialled(lane[0], outgoing.address)
            reader, writer = await asyncio.open_connection(sock=stream.sock)
            # The peer sends nothing on this connection, so any data or the end means that the peer is gone.
            gone = asyncio.create_task(reader.read(1))
            gone.add_done_callback(lambda _: outgoing.messages.put_nowait(None))
            try:
                while (message := await outgoing.messages.get()) is not None:
                    head, *rows = encode(message)
                    parts = stream.seal(head, rows[0] if rows else b"")
                    writer.writelines(parts)
                    if self._sent is not None:
                        self._sent(message, sum(map(len, parts)))
                    await writer.drain()
            finally:
                gone.cancel()
        except (OSError, PeacefsError) as fault:
            # Reported below, like an end.
            log.debug("no connection to %s: %s", lane[0], fault)
        except Exception as error:
            # Report this now: asyncio would report it only when it collects the task.
            context = {"message": f"messages to {lane[0]!r} cannot be sent", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        finally:
            if writer is not None:
                writer.close()
            if self._outgoing.get(lane) is outgoing and not self._closing:
                del self._outgoing[lane]
                self._broken(lane[0])

    async def _dialled(self, peer: str, address: str) -> ProtectedStream:
        wanted = True
        dial = self._dials.submit(self._membership.dial, peer, address, lambda: wanted)
        try:
            return await asyncio.wrap_future(dial)
        except asyncio.CancelledError:
            wanted = False
            dial.add_done_callback(_close_dialled)
            raise

    # -- incoming connections -------------------------------------------------------------------------------

    def _entered(self, peer: Peer, stream: ProtectedStream) -> None:
        """Read from a connection whose handshake is complete."""
        if self._closing:
            return
        task = asyncio.create_task(self._read(peer, stream))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    async def _read(self, peer: Peer, stream: ProtectedStream) -> None:
        incoming = _Incoming(self, peer, stream, MessageReader(self._schemas))
        await asyncio.get_running_loop().connect_accepted_socket(lambda: incoming, stream.sock)
        with self._lock:
            self._accepted.discard(stream.sock)

    def opened(self, incoming: _Incoming) -> None:
        self._incoming.add(incoming)

    def received(self, peer: str, message: Any) -> None:
        self._received(peer, message)

    def closed(self, incoming: _Incoming) -> None:
        self._incoming.discard(incoming)
        if incoming.peer.role != BEATS and not self._closing:
            self._broken(incoming.peer.name)


class _Incoming(asyncio.Protocol):
    """A connection that a peer has opened, after its handshake."""

    def __init__(self, links: Links, peer: Peer, stream: ProtectedStream, messages: MessageReader) -> None:
        self.peer = peer
        self._links = links
        self._stream = stream
        self._messages = messages
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._links.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            for message in self._messages.feed(self._stream.open(data)):
                self._links.received(self.peer.name, message)
        except PeerError as error:
            log.warning("the connection from %s ended: %s", self.peer.name, error.message)
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


def _close_dialled(dial: Future[ProtectedStream]) -> None:
    """Close a connection that is not wanted any more."""
    with contextlib.suppress(CancelledError, PeacefsError, OSError):
        dial.result().sock.close()
