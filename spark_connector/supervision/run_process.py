"""A run as its agent sees it: the guard's process group, started, told that all is well, ended."""

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
# The end of a run's log, as people are shown it, so many at once, and how long an agent has to send it.
run_log_shown_bytes: Final = 32 * KIB


_GUARD = "peacefs.spark_connector.supervision.run_guard"
_LOG_TAIL_BYTES = 4096
_POLL_S = 0.01


class RunProcess:
    """Raises QueryFailed if it cannot be started. Its output goes to `log`."""

    def __init__(self, start: Start, log: Path) -> None:
        self._log = log
        self._status: int | None = None
        self._stopped_at_s: float | None = None
        reading, self._lifeline = os.pipe()
        os.set_blocking(self._lifeline, False)
        try:
            self._process = subprocess.Popen(
                # -I: nothing that the run's account can write is imported by its guard, which keeps our uid.
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
        # Not in arguments, which every user can see.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(msgspec.json.encode(start))

    @property
    def status(self) -> int | None:
        """The exit status once nothing of it runs any more, 128 and more for signals; None until then."""
        if self._status is None and self._guard_has_ended():
            self._status = self._bury()
        return self._status

    def encourage(self) -> None:
        """The coordinator knows of us: it may go on."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._lifeline, b".")

    def stop(self, now_s: float, grace_s: float) -> None:
        """SIGTERM to all of it, and SIGKILL when that was `grace_s` ago: to be called until it has ended."""
        if self.status is not None:
            return
        if self._stopped_at_s is None:
            self._stopped_at_s = now_s
            self._signal(signal.SIGTERM)
        elif now_s - self._stopped_at_s >= grace_s:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL to all of it; returns when nothing is left."""
        if self._status is None:
            self._signal(signal.SIGKILL)
            self._status = self._bury()

    def log_tail(self) -> str:
        """The end of its log."""
        return tail_of(self._log)

    def last_words(self) -> str:
        """The last line that it said."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
            said = [line.strip() for line in lines if line.strip() and not line.startswith("\tat ")]
            return said[-1][:run_last_words_characters_max] if said else ""
        return ""

    def _guard_has_ended(self) -> bool:
        # It is not waited for yet: so long nobody else can have its number, by which its group is killed.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _bury(self) -> int:
        """Ends what the command has left behind."""
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
    """Return the end of a log, from the beginning of a line; nothing of one that is not there."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        start = max(0, log.stat().st_size - bytes_max)
        file.seek(start)
        data = file.read(bytes_max)
        whole = data.partition(b"\n")[2] if start else data
        return (whole or data).decode(errors="replace")
    return ""
