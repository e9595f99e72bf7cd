"""A run as its agent sees it: a guard and its process group, which the agent starts, keeps alive and ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from peacefs.protocol.errors import QueryFailed
from peacefs.protocol.limits import KIB
from peacefs.spark_connector.limits import query_kill_timeout_s

from .command_list import Start
from .run_account import inherited

run_last_words_characters_max: Final = 300
# The end of a run's log, as shown to people.
run_log_shown_bytes: Final = 32 * KIB


_GUARD = "peacefs.spark_connector.supervision.run_guard"
_LOG_TAIL_BYTES = 4096
_POLL_S = 0.01


class RunProcess:
    """Start a guard with a run, whose output goes to `log`; one per run, used by the agent's loop.

    The guard stays unreaped until `_bury`, so its pid and process group cannot be reused meanwhile. Raises
    QueryFailed if the guard cannot be started.
    """

    def __init__(self, start: Start, log: Path) -> None:
        self._log = log
        #: The time from SIGTERM to SIGKILL.
        self.stop_s = start.stop_s
        self._status: int | None = None
        self._stopped_at_s: float | None = None
        reading, self._lifeline = os.pipe()
        os.set_blocking(self._lifeline, False)
        try:
            self._process = subprocess.Popen(
                # -I: the guard keeps our uid, so it must import nothing that the run's account can write.
                [sys.executable, "-I", "-m", _GUARD, str(reading), str(log)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=start.directory,
                env=inherited(os.environ),
                pass_fds=[reading],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(self._lifeline)
            raise QueryFailed(f"it cannot be started in {start.directory}: {error}") from None
        finally:
            os.close(reading)
        assert self._process.stdin is not None
        # Not as arguments, which every user can see.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(msgspec.json.encode(start))

    @property
    def status(self) -> int | None:
        """The exit status once all processes of the run are gone, 128 and more for signals; None until then."""
        if self._status is None and self._guard_has_ended():
            self._status = self._bury()
        return self._status

    def encourage(self) -> None:
        """Tell the guard that the coordinator has answered, so that the run may continue."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._lifeline, b".")

    def stop(self, now_s: float) -> None:
        """Send SIGTERM to the group, and SIGKILL after `stop_s`. Call repeatedly until the run has ended."""
        if self.status is not None:
            return
        if self._stopped_at_s is None:
            self._stopped_at_s = now_s
            self._signal(signal.SIGTERM)
        elif now_s - self._stopped_at_s >= self.stop_s:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill the group. Returns when all its processes are gone."""
        if self._status is None:
            self._signal(signal.SIGKILL)
            self._status = self._bury()

    def log_tail(self) -> str:
        return tail_of(self._log)

    def last_words(self) -> str:
        """Return the last line of its output."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
            said = [line.strip() for line in lines if line.strip() and not line.startswith("\tat ")]
            return said[-1][:run_last_words_characters_max] if said else ""
        return ""

    def _guard_has_ended(self) -> bool:
        # Not reaped yet: until then the pid cannot be reused, and the group can be killed by it.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _bury(self) -> int:
        """Kill what the command has left behind, and return the exit status."""
        deadline_s = time.monotonic() + query_kill_timeout_s
        while not self._guard_has_ended() and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        self._signal(signal.SIGKILL)
        status = self._process.wait()
        os.close(self._lifeline)
        return 128 - status if status < 0 else status

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def tail_of(log: Path, bytes_max: int = run_log_shown_bytes) -> str:
    """Return the end of a log, from the start of a line; empty if there is no log."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        start = max(0, log.stat().st_size - bytes_max)
        file.seek(start)
        data = file.read(bytes_max)
        whole = data.partition(b"\n")[2] if start else data
        return (whole or data).decode(errors="replace")
    return ""
