"""Sends heartbeats to clients that wait long for their bytes to be published."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

from .transfer_socket import TransferSocket

# Less than half of the time that a client waits for an acknowledgement.
heartbeat_interval_s: Final = 10.0


class Heartbeats:
    """Sends heartbeats on the connections that are inside `during`. Runs from `start` to `stop`."""

    def __init__(self, interval_s: float = heartbeat_interval_s) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()
        #: For each waiting connection: the time of its last heartbeat, and the bytes of a heartbeat.
        self._waiting: dict[TransferSocket, tuple[float, bytes]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hdfs-heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    @contextlib.contextmanager
    def during(self, socket: TransferSocket, heartbeat: bytes) -> Iterator[None]:
        """Send `heartbeat` regularly during the block. Nothing else may be sent meanwhile."""
        with self._lock:
            self._waiting[socket] = time.monotonic(), heartbeat
        try:
            yield
        finally:
            with self._lock:
                del self._waiting[socket]

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s / 4):
            now_s = time.monotonic()
            with self._lock:
                for socket, (told_s, heartbeat) in self._waiting.items():
                    if now_s - told_s >= self._interval_s:
                        socket.send_now(heartbeat)
                        self._waiting[socket] = now_s, heartbeat
