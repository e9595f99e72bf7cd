"""Tells clients whose datanode takes long to publish their bytes that it is alive."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

from .transfer_socket import TransferSocket

# Less than half of what a client waits for an acknowledgement.
heartbeat_interval_s: Final = 10.0


class Heartbeats:
    """Sends heartbeats, from `start` to `stop`, to clients whose connections wait inside `during`."""

    def __init__(self, interval_s: float = heartbeat_interval_s) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()
        #: For each waiting connection: when it was told last, and what it is told.
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
        """Send `heartbeat` regularly during the block, in which nothing else may be sent."""
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
