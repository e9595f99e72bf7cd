"""Unix sockets between processes of one host, over which open files can be passed.

They have names in Linux's abstract namespace: no file is left behind, and processes in the same network namespace
can see them, like a loopback port. A listener draws a random name and sends it to peers over TCP. So no other
process can have taken the name before.
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

#: Used as the port of an address whose host is the name of a local socket.
_NO_PORT = -1
#: Used as the port of an address whose host is the path of a Unix socket.
_IN_FILE_SYSTEM = -2


def local_address(name: str) -> Address:
    return name, _NO_PORT


def named(name: str) -> Address | None:
    """Return the address of the local socket with this name; None for an empty name."""
    return local_address(name) if name else None


def socket_file(path: Path) -> Address:
    """Return the address of a socket in the file system."""
    return str(path), _IN_FILE_SYSTEM


def show_address(address: Address) -> str:
    """Format an address, for messages and for the target of a handshake."""
    is_local = address[1] in (_NO_PORT, _IN_FILE_SYSTEM)
    return f"its local socket {address[0]}" if is_local else f"{address[0]}:{address[1]}"


def show_end(ends: tuple[Address, Address] | None, which: int) -> str:
    """Format one end of a connection like `show_address`; empty if the connection has no addresses."""
    return "" if ends is None else show_address(ends[which])


def listen_locally(backlog: int) -> tuple[socket.socket, str]:
    """Return a listening socket and its name. Raises OSError if the system has no abstract sockets."""
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
    """Connect to an address of any kind. Raises OSError, TimeoutError."""
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
    """Reopen a file read-only. Raises OSError."""
    for_reading = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield for_reading
    finally:
        os.close(for_reading)


def send_with_file(sock: socket.socket, data: memoryview, descriptor: int) -> int:
    """Send some of `data` together with an open file; return the number of bytes sent. Raises OSError."""
    return socket.send_fds(sock, [data], [descriptor])


def receive_with_file(sock: socket.socket, into: memoryview) -> tuple[int, int | None]:
    """Receive data; return the number of bytes, and the descriptor sent with them, if any. Raises OSError."""
    room = socket.CMSG_SPACE(array.array("i").itemsize)
    count, ancillary, _flags, _address = sock.recvmsg_into([into], room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    for surplus in descriptors[1:]:
        os.close(surplus)
    return count, descriptors[0] if descriptors else None
