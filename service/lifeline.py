"""What a service and the process that started it tell each other.

`announce`: when the service is ready to serve, it writes one line of JSON into a pipe and closes the pipe. It also
tells systemd (`Type=notify`), so that `systemctl start` returns when the service can be used.
`when_parent_dies`: the parent holds the other end of a pipe and never writes. The kernel closes it when the parent
dies for any reason, so no service is left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from typing import Final

_NOTIFY_VARIABLE: Final = "NOTIFY_SOCKET"


def announce(ready_fd: int | None, what: dict[str, object]) -> None:
    """Tell the pipe, and systemd if it asks, that the service is ready; ignore it if the parent is gone."""
    _notify_manager("READY=1")
    if ready_fd is None:
        return
    with contextlib.suppress(OSError), os.fdopen(ready_fd, "w") as pipe:
        pipe.write(json.dumps(what) + "\n")


def _notify_manager(state: str) -> None:
    """Send a state to the socket that systemd names (sd_notify), once; child processes do not inherit its name."""
    address = os.environ.pop(_NOTIFY_VARIABLE, "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


def when_parent_dies(parent_fd: int | None, stop: Callable[[], None]) -> None:
    """Call `stop` from a new thread when the parent closes the pipe."""
    if parent_fd is None:
        return

    def watch(descriptor: int = parent_fd) -> None:
        with contextlib.suppress(OSError):
            while os.read(descriptor, 64):
                pass
        stop()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
