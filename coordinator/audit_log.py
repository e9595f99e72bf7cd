"""The audit log: a line of JSON for each request, with caller, address, operation and outcome.

Fields have the names of HDFS's audit log where it has them. A line is ASCII without control characters, so no user
or file name can forge another line. No line contains a token or secret.

Lines are made where requests are answered. A thread of the log collects them for a moment and writes them
together, so a slow disk delays no request; a killed process loses the lines of that moment. Lines that cannot be
written are kept up to a limit and then dropped. The service continues; its own log reports the problem, and a
metric and a later audit line give the number of lost lines. If the file was moved away, a new one is created, at
once on SIGHUP, as logrotate expects.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from peacefs.coordinator.limits import path_characters_max
from peacefs.protocol.errors import StartupError
from peacefs.protocol.limits import MIB

# The audit log: how long lines are gathered before they are written together, what waits for a disk that is
# slow or full before records are lost, how often it is tried again, how long an end waits for it, and how much
# of a name is told.
audit_gather_s: Final = 0.1
audit_waiting_bytes_max: Final = 16 * MIB
audit_retry_s: Final = 1.0
audit_stop_timeout_s: Final = 5.0
audit_field_characters_max: Final = path_characters_max


log = logging.getLogger("peacefs.audit")

_MODE = 0o600
# Escape everything that is not ASCII, and control characters.
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One request. `user` is None if the caller is unknown; `error` is the name of an error class, ours or
    Hadoop's.

    `allowed` is False only if the caller lacked the right.
    """

    user: str | None
    auth: str
    address: str | None
    operation: str
    source: str | None
    destination: str | None
    permission: str | None
    protocol: str
    allowed: bool
    error: str | None
    request_id: str | None
    seconds: float
    #: The id by which logs name the request.
    trace: str = ""
    #: The proxy user that acted for `user`.
    real_user: str | None = None

    def line(self, now_s: float) -> bytes:
        """Return the line of a record."""
        outcome = "denied" if not self.allowed else "allowed" if self.error is None else "error"
        fields = {
            "time": datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds"),
            "allowed": self.allowed,
            "outcome": outcome,
            "error": self.error,
            "ugi": _short(self.user),
            **({} if self.real_user is None else {"real": _short(self.real_user)}),
            "auth": self.auth,
            "ip": self.address,
            "cmd": _short(self.operation),
            "src": _short(self.source),
            "dst": _short(self.destination),
            "perm": self.permission,
            "proto": self.protocol,
            "id": _short(self.request_id),
            **({"request": self.trace} if self.trace else {}),
            "ms": round(self.seconds * 1000, 3),
        }
        return _encode(fields).encode("ascii") + b"\n"


def _short(text: str | None) -> str | None:
    return text if text is None else text[:audit_field_characters_max]


class AuditLog:
    """Takes records from one event loop. Has a thread from its making until `close`."""

    def __init__(self, path: Path, wall_clock: Callable[[], float] = time.time) -> None:
        """Open the file. Raises StartupError if that is impossible; a full disk does not prevent a start."""
        self._path = path
        self._wall_clock = wall_clock
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_closing = False
        self._wants_reopening = False
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self._is_failing = False
        self._unsaid = 0
        self.written = 0
        self.lost = 0
        try:
            self._open()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
            raise StartupError(f"cannot open the audit log {path}: {error.strerror}") from None
        except OSError as error:
            self._failed(error)
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._thread.start()

    def record(self, record: AuditRecord) -> None:
        """Have a record written, soon. Never waits and never fails."""
        line = record.line(self._wall_clock())
        with self._changed:
            if self._waiting_bytes + len(line) > audit_waiting_bytes_max:
                self.lost += 1
                self._unsaid += 1
                return
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            if len(self._waiting) == 1:
                self._changed.notify()

    def reopen(self) -> None:
        """Leave the file and open what is at its path."""
        with self._changed:
            self._wants_reopening = True
            self._changed.notify()

    def close(self) -> None:
        """Write what waits, if that goes on, and end."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(audit_stop_timeout_s)

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._is_closing or self._wants_reopening):
                    self._changed.wait()
                # Others follow, as a rule: to be woken for each costs more than to write it.
                self._changed.wait_for(lambda: self._is_closing or self._wants_reopening, audit_gather_s)
                lines, self._waiting = self._waiting, deque()
                unsaid, self._unsaid = self._unsaid, 0
                wants_reopening, self._wants_reopening = self._wants_reopening, False
            left, unsaid = self._write(lines, unsaid, wants_reopening)
            with self._changed:
                self._waiting_bytes -= sum(map(len, lines)) - sum(map(len, left))
                self._waiting.extendleft(reversed(left))
                self._unsaid += unsaid
                if self._is_closing and (left or not self._waiting):
                    self.lost += len(left)
                    break
                if left:
                    self._changed.wait_for(lambda: self._is_closing, audit_retry_s)
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _write(self, lines: deque[bytes], unsaid: int, wants_reopening: bool) -> tuple[deque[bytes], int]:
        """Return what could not be written: of lines, and of the number of lost lines that no line reports yet."""
        try:
            if wants_reopening or self._is_moved():
                self._open()
            if unsaid:
                note = {"time": datetime.fromtimestamp(self._wall_clock(), UTC).isoformat(), "lost": unsaid}
                self._append(_encode(note).encode("ascii") + b"\n")
                unsaid = 0
            self._append(b"".join(lines))
        except OSError as error:
            self._failed(error)
            return lines, unsaid
        self.written += len(lines)
        if self._is_failing:
            self._is_failing = False
            log.warning(
                "the audit log %s can be written again; %d records were lost so far", self._path, self.lost
            )
        return deque(), 0

    def _append(self, data: bytes) -> None:
        """Write all or nothing: half a line would also damage the next line."""
        assert self._descriptor is not None
        before = os.fstat(self._descriptor).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            if len(rest) < len(data):
                os.ftruncate(self._descriptor, before)
            raise

    def _is_moved(self) -> bool:
        if self._descriptor is None:
            return True
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return True
        return (found.st_dev, found.st_ino) != self._identity

    def _open(self) -> None:
        opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        found = os.fstat(opened)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._identity = opened, (found.st_dev, found.st_ino)
        if found.st_mode & 0o077:
            log.warning("other users may read or write the audit log %s: run chmod 600", self._path)

    def _failed(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.error(
                "the audit log %s cannot be written (%s): requests are served, and up to %d bytes of records "
                "are kept, then lost; see peacefs_audit_records_lost_total",
                self._path,
                error.strerror,
                audit_waiting_bytes_max,
            )
