"""The administrators' Unix socket, in the coordinator's directory, which only the service's user and root can use.

The modes of its directory and file keep other users out, and the user of each peer is checked besides. With this
socket an administrator can create the first token of a coordinator that requires tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from peacefs.protocol.errors import StartupError
from peacefs.runtime.admin_socket import socket_path, within_limit

log = logging.getLogger("peacefs.coordinator")

_BACKLOG = 16
# struct ucred of Linux: pid, uid, gid.
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class LocalSocket:
    """A listening socket, and the device and inode number of its file."""

    listener: socket.socket
    path: Path
    identity: tuple[int, int]

    def close(self) -> None:
        """Close the socket and remove its file, unless another coordinator has replaced the file."""
        self.listener.close()
        with contextlib.suppress(OSError):
            if _identity(self.path) == self.identity:
                self.path.unlink()


def listen_for_administrators(directory: Path) -> LocalSocket:
    """Listen in a coordinator's directory, which no other process may use. Raises StartupError."""
    path = socket_path(directory)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.parent.chmod(0o700)
        path.unlink(missing_ok=True)
        with within_limit(path) as name:
            listener.bind(name)
        path.chmod(0o600)
        listener.listen(_BACKLOG)
        return LocalSocket(listener, path, _identity(path))
    except OSError as error:
        listener.close()
        raise StartupError(f"cannot listen on {path} for administrators: {error.strerror or error}") from None


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def is_own_user(transport: asyncio.BaseTransport) -> bool:
    """Return whether the peer of a local connection is the service's own user, or root."""
    with _peer(transport) as sock:
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(raw)
    if uid in (0, os.geteuid()):
        return True
    log.warning("user id %d was refused at the administrators' socket", uid)
    return False


@contextlib.contextmanager
def _peer(transport: asyncio.BaseTransport) -> Iterator[socket.socket]:
    """Yield a socket object that can be asked for the peer, which the event loop's own object cannot."""
    descriptor = os.dup(transport.get_extra_info("socket").fileno())
    with socket.socket(fileno=descriptor) as sock:
        yield sock
