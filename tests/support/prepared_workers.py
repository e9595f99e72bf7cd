"""Python workers of Spark by forks of an interpreter that has imported what they import.

A JVM starts its Python as `python -m pyspark.daemon ...`, and each of these, and each worker of that, spends a
second or two on imports before it does anything. `PreparedPython.path` is what PYSPARK_PYTHON is to name: a
program of a few lines (`worker_stub`), which hands over its pipes and arguments and stays until what was forked
for it has ended. That runs the real module.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support import worker_stub
from support.prepared_starts import ForkServer, Surroundings

_ROLE = "spark worker"
_REQUEST_BYTES_MAX = 1 << 17
_PIPES = (0, 1, 2)
_CREDENTIALS = struct.Struct("3i")
_TESTS = Path(__file__).parent.parent


class PreparedPython:
    """Serves programs that stand for Python, each by a fork. Create it on the main thread."""

    def __init__(self, directory: Path) -> None:
        # Spark gives all workers this seed, so that they agree on hashes of strings.
        environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(_TESTS)}
        self._server = ForkServer(_ROLE, Surroundings(dict(environment), Path.cwd()))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        #: The stub process of each fork.
        self.stubs: dict[int, int] = {}
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.path = Path(sys.executable)
        if self._server.is_of_use:
            self.path = self._listen(directory)

    def _listen(self, directory: Path) -> Path:
        self._socket.bind(str(directory / "socket"))
        self._socket.listen(socket.SOMAXCONN)
        words = (sys.executable, "-IS", worker_stub.__file__, str(directory / "socket"))
        python = directory / "python"
        python.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        python.chmod(0o755)
        self._begin(self._accept)
        return python

    def _begin(self, run: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=run, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # this object was shut down
            self._begin(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            data, descriptors, _flags, _address = socket.recv_fds(connection, _REQUEST_BYTES_MAX, len(_PIPES))
            if not data:
                return
            try:
                stub = _CREDENTIALS.unpack(
                    connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
                )[0]
                pid = self._fork(json.loads(data), str(Path(f"/proc/{stub}/cwd").readlink()), descriptors)
            except FileNotFoundError:
                return  # the stub was killed before its fork started
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            self.stubs[pid] = stub
            self._connections.add(connection)
            ending = threading.Thread(target=_end_with, args=(connection, pid), daemon=True)
            ending.start()
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            _shut_down(connection)
            ending.join()
            self._connections.remove(connection)
            os.waitpid(pid, 0)

    def _fork(self, asked: dict[str, object], directory: str, descriptors: list[int]) -> int:
        return self._server.start(
            {
                "program": ("support.worker_module", asked["words"], True),
                "environment": asked["environment"],
                "directory": directory,
                "descriptors": _PIPES,
                "is_session": False,
                "process_group": -1,
                "umask": asked["umask"],
                "files_max": resource.getrlimit(resource.RLIMIT_NOFILE),
            },
            descriptors,
        )

    def close(self) -> None:
        """End all processes that have not ended with their JVM."""
        for each in (self._socket, *self._connections):
            _shut_down(each)
        for thread in self._threads:
            thread.join()
        self._socket.close()
        self._server.stop()


def _shut_down(connection: socket.socket) -> None:
    """Wake all waiting threads."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _end_with(connection: socket.socket, pid: int) -> None:
    """End a process together with its stub. Its pid is not reused before this returns."""
    with suppress(OSError):
        connection.recv(1)
    os.kill(pid, signal.SIGTERM)


@contextmanager
def prepared_python(directory: Path) -> Iterator[PreparedPython]:
    """Serve workers of the JVMs that start and end within the block."""
    prepared = PreparedPython(directory)
    try:
        yield prepared
    finally:
        prepared.close()
