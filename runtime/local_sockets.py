"""Sockets between processes of one host, over which open files can be passed.

Their names are of Linux's abstract kind: no file is left behind, and who shares the network's namespace sees them,
as it sees a port on loopback. A name is drawn anew by whoever listens, and told to those who have connected to its
port: nobody can have taken it before.
"""

from __future__ import annotations

import array
import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

from peacefs.runtime.admin_socket import within_limit

from .effects import Address

#: In place of a port: the host is then such a name.
_NO_PORT = -1
#: The host is then the path of a socket in the file system.
_IN_FILE_SYSTEM = -2


def local_address(name: str) -> Address:
    """The address of the local socket of this name."""
    return name, _NO_PORT


def named(name: str) -> Address | None:
    """The same; None for no name."""
    return local_address(name) if name else None


def socket_file(path: Path) -> Address:
    """The address of a socket in the file system."""
    return str(path), _IN_FILE_SYSTEM


def show_address(address: Address) -> str:
    """For messages, and as a handshake says whom it means."""
    is_local = address[1] in (_NO_PORT, _IN_FILE_SYSTEM)
    return f"its local socket {address[0]}" if is_local else f"{address[0]}:{address[1]}"


def show_end(ends: tuple[Address, Address] | None, which: int) -> str:
    """One of the two ends of a connection in the same form; empty for one that has no address."""
    return "" if ends is None else show_address(ends[which])


def listen_locally(backlog: int) -> tuple[socket.socket, str]:
    """A listening socket and its name. Raises OSError where there are none of this kind."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        name = f"peacefs-{secrets.token_hex(16)}"
        listener.bind(f"\0{name}")
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener, name


def dial(address: Address, timeout_s: float) -> socket.socket:
    """A connected socket, of either kind. Raises OSError, TimeoutError."""
    if address[1] >= 0:
        return socket.create_connection(address, timeout=timeout_s)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        if address[1] == _IN_FILE_SYSTEM:
            with within_limit(Path(address[0])) as name:
                sock.connect(name)
        else:
            sock.connect(f"\0{address[0]}")
    except BaseException:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def file_for_reading(descriptor: int) -> Iterator[int]:
    """The same file, opened anew so that it cannot be written to. Raises OSError."""
    for_reading = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield for_reading
    finally:
        os.close(for_reading)


def send_with_file(sock: socket.socket, data: memoryview, descriptor: int) -> int:
    """Sends the beginning of `data`, and the open file with its first byte. How much was sent. Raises OSError."""
    return socket.send_fds(sock, [data], [descriptor])


def receive_with_file(sock: socket.socket, into: memoryview) -> tuple[int, int | None]:
    """Return how many bytes were received, and the descriptor that came with the first of them, if one did. Raises
    OSError.
    """
    room = socket.CMSG_SPACE(array.array("i").itemsize)
    count, ancillary, _flags, _address = sock.recvmsg_into([into], room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    for surplus in descriptors[1:]:
        os.close(surplus)
    return count, descriptors[0] if descriptors else None
