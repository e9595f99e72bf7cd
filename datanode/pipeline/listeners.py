"""The listening sockets of a datanode's data port: TCP, and a local socket for sharing open files."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
import threading
from collections.abc import Callable
from typing import Final

from peacefs.protocol.errors import StartupError
from peacefs.protocol.handshake import Identity
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.effects import Address
from peacefs.runtime.local_sockets import listen_locally, local_address, show_address

data_connections_max: Final = 1024
accept_retry_s: Final = 0.1


log = logging.getLogger("peacefs.datanode")


class DataListeners:
    """Listens from construction, and accepts connections from `start` to `close`, with one thread per socket."""

    def __init__(
        self,
        host: str,
        port: int,
        me: Identity,
        *,
        advertised: Address | str = "",
        shares_descriptors: bool = False,
    ) -> None:
        """Listen on a port, 0 for a free one. `advertised` is the host or address given to others.

        With `shares_descriptors`, readers on this host may get open files. Raises StartupError.
        """
        tcp = _listen(host, port)
        self._sockets = [tcp]
        self._closing = threading.Event()
        self._acceptors: list[threading.Thread] = []
        self.address: Address = tcp.getsockname()[:2]
        others = (advertised, self.address[1]) if isinstance(advertised, str) else advertised
        me = dataclasses.replace(me, addresses=(show_address(others),))
        #: The datanode's identity, with all its addresses.
        self.me = self._listening_locally(me) if shares_descriptors else me

    def _listening_locally(self, me: Identity) -> Identity:
        try:
            listener, name = listen_locally(data_connections_max)
        except OSError as error:
            log.info(
                "cannot open a local socket (%s): readers on this host read over TCP", error.strerror or error
            )
            return me
        self._sockets.append(listener)
        return dataclasses.replace(
            me, local_socket=name, addresses=(*me.addresses, show_address(local_address(name)))
        )

    def start(self, take: Callable[[SocketConnection], None]) -> None:
        """Call `take` with each new connection, on the thread of its socket."""
        for listener in self._sockets:
            acceptor = threading.Thread(
                target=self._accept, args=(listener, take), name="data-acceptor", daemon=True
            )
            self._acceptors.append(acceptor)
            acceptor.start()

    def close(self) -> None:
        """Accept nothing more. On return, no call of `take` is running."""
        self._closing.set()
        for listener in self._sockets:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
        for acceptor in self._acceptors:
            acceptor.join()
        for listener in self._sockets:
            listener.close()

    def _accept(self, listener: socket.socket, take: Callable[[SocketConnection], None]) -> None:
        while not self._closing.is_set():
            try:
                sock, address = listener.accept()
                # A local connection has no peer address.
                connection = SocketConnection(sock, f"{address[0]}:{address[1]}" if address else "a local socket")
            except OSError as error:
                # For example because there are no free descriptors. Wait until other connections end.
                if not self._closing.wait(accept_retry_s):
                    log.warning("cannot accept a data connection: %s", error.strerror or error)
                continue
            take(connection)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=data_connections_max)
    except OSError as error:
        raise StartupError(f"cannot listen on {host}:{port} for data: {error.strerror or error}") from None
