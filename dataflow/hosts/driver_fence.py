"""Fences between drivers of one query: once a younger driver has begun, older ones cannot write or deliver.

A driver is the program that started a query, with its sources, sinks and controller. Two drivers on one directory
would both deliver all rows. The one that begins last continues. The others stop with an error that names it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from peacefs.protocol.errors import RunSuperseded, StartupError
from peacefs.runtime.file_locks import lock_within

from .durable_files import replace_file

# How long a new driver waits for the end of a delivery of the previous one.
dataflow_delivery_s_max: Final = 30.0


_DRIVER = ".driver"
_LOCK = ".driver.lock"
_POLL_S = 0.005


class DriverFence(Protocol):
    """The right of one driver to write and deliver. Thread-safe."""

    def check(self) -> None:
        """Raise RunSuperseded if a younger driver has begun. May take long."""
        ...

    def delivery(self) -> AbstractContextManager[None]:
        """Return a context in which rows may be delivered, and during which a younger driver waits.

        Raises RunSuperseded if a younger driver has begun, and QueryFailed if that cannot be found out.
        """
        ...

    def close(self) -> None:
        """Wake up everyone who waits in `delivery`."""


class OpenFence:
    """The fence of a query that stores nothing for another driver: delivery is always allowed."""

    def check(self) -> None:
        """Do nothing: no other driver can take over."""

    def delivery(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        """Do nothing: nobody waits."""


class MemoryFence:
    """A fence within one process. `drivers` lists all drivers that have begun."""

    def __init__(self, drivers: list[MemoryFence]) -> None:
        self._drivers = drivers
        drivers.append(self)

    def check(self) -> None:
        if self._drivers[-1] is not self:
            raise RunSuperseded("another driver of this process has taken over; this driver should stop")

    @contextlib.contextmanager
    def delivery(self) -> Iterator[None]:
        self.check()
        yield

    def close(self) -> None:
        """Do nothing: nobody waits."""


class DeliveryLock:
    """A lock on this host. Drivers share it while they deliver, and a younger driver waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with self._opened() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    def wait_for_others(self, older: str) -> None:
        """Wait until all current deliveries are over. Raises StartupError if one takes too long."""
        with self._opened() as lock:
            if not lock_within(lock, dataflow_delivery_s_max):
                raise StartupError(
                    f"the previous driver ({older}) has been delivering rows to a sink for "
                    f"{dataflow_delivery_s_max:g} s: end it, and resume the query then"
                )

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        # Open the file each time: threads that share an open file would share the lock.
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            yield lock
        finally:
            os.close(lock)


class DirectoryFence:
    """The fence of a local directory, where a file names the youngest driver.

    To deliver, a driver takes a shared lock, checks the file, delivers, and releases the lock. A driver that
    begins first writes its own name to the file, so that no other delivery begins. Then it briefly takes the
    exclusive lock, so that all deliveries of older drivers are finished.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = DeliveryLock(root / _LOCK)
        self._run = secrets.token_hex(16)

    def begin(self) -> None:
        """Become the youngest driver. Raises StartupError if an older driver does not finish a delivery."""
        self._root.mkdir(parents=True, exist_ok=True)
        older = self._driver()
        driver = {
            "run": self._run,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        }
        replace_file(self._root / _DRIVER, json.dumps(driver).encode(), staged=f"{_DRIVER}.{self._run}")
        self._lock.wait_for_others(_described(older))
        self.check()

    def check(self) -> None:
        youngest = self._driver()
        if youngest.get("run") == self._run:
            return
        if not youngest:
            file = self._root / _DRIVER
            gone = (
                f"{file} was deleted or damaged" if self._root.is_dir() else "the directory was deleted or renamed"
            )
            raise RunSuperseded(
                f"this driver of the query in {self._root} may write no more: {gone}. Nothing was changed; begin "
                "the query again"
            )
        raise RunSuperseded(
            f"this driver of the query in {self._root} may write no more: another one has taken over "
            f"({_described(youngest)}). Nothing was changed; this driver should stop"
        )

    @contextlib.contextmanager
    def delivery(self) -> Iterator[None]:
        if not self._root.is_dir():
            self.check()
        with self._lock.held():
            self.check()
            yield

    def close(self) -> None:
        """Do nothing: nobody waits for long."""

    def _driver(self) -> dict[str, object]:
        """Return the youngest driver; empty if there is none, or its file is damaged."""
        try:
            found = json.loads((self._root / _DRIVER).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def lock_of_this_host(name: str) -> DeliveryLock:
    """Return the lock for drivers on this host of a query that is stored elsewhere. Raises StartupError."""
    directory = Path(tempfile.gettempdir(), f"peacefs-drivers-{os.geteuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise StartupError(f"{directory} is not a directory of this user alone: delete it, or set TMPDIR")
    return DeliveryLock(directory / hashlib.sha256(name.encode()).hexdigest())


def _described(driver: dict[str, object]) -> str:
    if not driver:
        return "an unknown process"
    return f"process {driver.get('pid')} on {driver.get('host')}, since {driver.get('since')} UTC"
