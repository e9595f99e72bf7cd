"""A process that a test starts, kills, pauses and starts again."""

from __future__ import annotations

import os
import signal
import subprocess


class KillableProcess:
    """A process that can be killed and restarted. Its starter sets `_process`, which may also end by itself."""

    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the process with SIGKILL, if it runs. It can be started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)
