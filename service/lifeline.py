"""Two pipes between a service and the process that started it.

`announce`: the service writes one line of JSON when it is ready to serve, then closes the pipe.
`when_parent_dies`: the parent holds the other end of a pipe and never writes. The kernel closes it when the parent
dies for any reason, so no service is left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable


def announce(ready_fd: int | None, what: dict[str, object]) -> None:
    """Write to the pipe that the service is ready; ignore it if the parent is gone."""
    if ready_fd is None:
        return
    with contextlib.suppress(OSError), os.fdopen(ready_fd, "w") as pipe:
        pipe.write(json.dumps(what) + "\n")


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
