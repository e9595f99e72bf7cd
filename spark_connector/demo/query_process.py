"""The process of a streaming query, which its starter can watch, kill and start again.

Python and its JVM form one process group, so one SIGKILL ends both at once, as a machine's failure would. The
process also ends when its standard input ends, so it never outlives its starter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from peacefs.service.signs_of_life import session_processor_s
from peacefs.spark_connector.limits import query_kill_timeout_s

_LOG_TAIL_BYTES = 64 * 1024
_POLL_S = 0.02


class QueryProcess:
    """A process `python -m module plan`. Its output is appended to `log`; `variables` extend our environment."""

    def __init__(self, module: str, plan: Path, log: Path, variables: Mapping[str, str]) -> None:
        self.log = log
        self._gone = False
        with log.open("ab") as output:
            self._log_begins = output.tell()
            # -P keeps our working directory off the import path.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(plan)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **variables},
                start_new_session=True,
            )

    def __enter__(self) -> QueryProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        return self._process.poll()

    @property
    def processor_s(self) -> float:
        return session_processor_s(self._process.pid)

    @property
    def said_bytes(self) -> int:
        """The length of its log."""
        return self.log.stat().st_size

    def kill(self) -> None:
        """Kill the whole group and wait until it is gone. Does nothing if the process has ended.

        The wait is bounded, because orphans that their new parent never reaps seem to exist for ever.
        """
        if self._gone:
            return  # another process group may have its id by now
        deadline = time.monotonic() + query_kill_timeout_s
        while self._signal_group() and time.monotonic() < deadline:
            self._process.poll()
            time.sleep(_POLL_S)
        self._process.wait()
        self._gone = True
        if self._process.stdin is not None:
            self._process.stdin.close()

    def last_words(self, lines: int) -> list[str]:
        """Return the last lines that this run wrote to the log, without Java's stack frames."""
        with self.log.open("rb") as log:
            log.seek(max(self._log_begins, self.log.stat().st_size - _LOG_TAIL_BYTES))
            written = log.read().decode(errors="replace").splitlines()
        return [line for line in written if line.strip() and not line.startswith("\tat ")][-lines:]

    def _signal_group(self) -> bool:
        """Signal the process group. Return whether it still existed."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True
