"""One process of a local cluster: starts it, waits until it is ready, watches it, stops it.

A member is `python -m peacefs <role> ... --ready-fd R --parent-fd P`. When ready, it writes one JSON line to R. It
stops when it reads the end of the pipe P, whose writing end only the launcher holds. So no member outlives its
launcher, however the launcher dies. Each member has its own process group: Ctrl-C in a terminal reaches only the
launcher, which then stops the members in order.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from peacefs.client.limits import local_stop_timeout_s
from peacefs.protocol.errors import StartupError
from peacefs.runtime.secret import SECRET_FILE_VARIABLE
from peacefs.runtime.tls_variables import SERVICE_VARIABLES
from peacefs.service.signs_of_life import SignsOfLife, processor_s

# A starting member is given up after the first time without any progress, or if it is not ready after the second.
local_start_timeout_s: Final = 20.0
local_start_longest_s: Final = 300.0


_LOG_TAIL_BYTES = 4096
# Interval at which a start is checked.
_LOOK_S = 0.5
#: The program of a member. -P keeps the caller's working directory off the import path.
PEACEFS = (sys.executable, "-P", "-m", "peacefs")
_OTHERS_VARIABLES = (SECRET_FILE_VARIABLE, *SERVICE_VARIABLES)


class MemberReady(msgspec.Struct, frozen=True):
    """The message of a member that is ready. Fields that belong to other roles keep their defaults."""

    role: str
    pid: int
    http_host: str = ""
    http_port: int = 0
    cluster: str = ""
    node_host: str = ""
    node_port: int = 0
    node: str = ""
    data_port: int = 0
    hdfs_port: int = 0


class LocalMember:
    """A process of a local cluster. `LocalCluster` makes it. Not thread-safe.

    `arguments` returns the command line for the previous run's readiness (None at first), so that a restarted
    member keeps its ports. `inherited` are additional descriptors for the process. `prefix` is a command that runs
    the following command in its place. `program` receives the arguments.
    """

    def __init__(
        self,
        name: str,
        arguments: Callable[[MemberReady | None], Sequence[str]],
        new_log: Callable[[], Path],
        parent_pipe: int,
        inherited: Sequence[int],
        prefix: Sequence[str] = (),
        program: Sequence[str] = PEACEFS,
    ) -> None:
        self.name = name
        self._arguments = arguments
        self._new_log = new_log
        self._parent_pipe = parent_pipe
        self._inherited = tuple(inherited)
        self._prefix = tuple(prefix)
        self._program = tuple(program)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready_pipe: int | None = None
        self._readiness: MemberReady | None = None
        # The state of the current start.
        self._received = b""
        self._life: SignsOfLife | None = None
        self.log: Path | None = None

    # -- state ---------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def readiness(self) -> MemberReady:
        """The message that the member sent when it became ready."""
        assert self._readiness is not None, f"{self.name} has not been ready yet"
        return self._readiness

    @property
    def node(self) -> str:
        """The datanode's id; empty for a coordinator."""
        return self.readiness.node

    @property
    def is_starting(self) -> bool:
        """True from the start until the member is ready or is given up."""
        return self._ready_pipe is not None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def last_words(self) -> str:
        """The last line of the log, which usually says why the member stopped."""
        assert self.log is not None, f"{self.name} was never started"
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    @property
    def end(self) -> str:
        """How the member ended, in words."""
        status = self._process.poll() if self._process else None
        if status is None:
            return "is running"
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}: {self.last_words or 'its log is empty'}"

    def _complaint(self) -> str:
        """Return the last words without the prefix `peacefs: <command>: ` of a service's error."""
        words = self.last_words
        return words.split(": ", 2)[2] if re.match(r"peacefs: \w+: ", words) else words

    # -- start and stop ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process. `await_ready` waits until it is ready."""
        assert not self.alive, f"{self.name} is running"
        self._drop_ready_pipe()
        self.log = self._new_log()
        reading, writing = os.pipe()
        self._ready_pipe, self._received = reading, b""
        self._life = SignsOfLife(
            time.monotonic(), silence_s=local_start_timeout_s, longest_s=local_start_longest_s
        )
        command = [
            *self._prefix,
            *self._program,
            *self._arguments(self._readiness),
            *("--ready-fd", str(writing), "--parent-fd", str(self._parent_pipe)),
        ]
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    # The caller's secret file and TLS files belong to another cluster.
                    env={name: value for name, value in os.environ.items() if name not in _OTHERS_VARIABLES},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writing, self._parent_pipe, *self._inherited),
                    process_group=0,
                )
        finally:
            os.close(writing)

    def await_ready(self) -> MemberReady:
        """Wait as long as the process makes progress, at most `local_start_longest_s`.

        Raises StartupError with the member's own last words.
        """
        while (ready := self.poll_ready(_LOOK_S)) is None:
            pass
        return ready

    def poll_ready(self, wait_s: float = 0.0) -> MemberReady | None:
        """Return the ready message if it comes within `wait_s`, else None. Raises like `await_ready`."""
        assert self._ready_pipe is not None, f"{self.name} was not started"
        assert self._life is not None
        if not self._received_line(wait_s):
            now_s = time.monotonic()
            self._life.seen(now_s, processor_s=processor_s(self.pid))
            if not self._life.is_given_up(now_s):
                return None
            self._drop_ready_pipe()
            raise StartupError(f"{self.name} did not become ready in time: {self.log} says why")
        self._drop_ready_pipe()
        if not self._received.endswith(b"\n"):
            # The pipe closed without a message: the process is ending.
            self.await_end(time.monotonic() + local_stop_timeout_s)
            raise StartupError(f"{self.name} did not start: {self._complaint() or 'it said nothing'}")
        self._readiness = msgspec.json.decode(self._received, type=MemberReady)
        return self._readiness

    def _received_line(self, wait_s: float) -> bool:
        """Read from the pipe; return whether a line is complete or the pipe has ended."""
        assert self._ready_pipe is not None
        until_s = time.monotonic() + wait_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._ready_pipe, selectors.EVENT_READ)
            while selector.select(max(0.0, until_s - time.monotonic())):
                piece = os.read(self._ready_pipe, 4096)
                self._received += piece
                if not piece or self._received.endswith(b"\n"):
                    return True
        return False

    def terminate(self) -> None:
        """Ask the process to stop. `await_end` waits until it has."""
        if self._process is not None and self.alive:
            self._process.terminate()

    def await_end(self, deadline: float) -> bool:
        """Wait until `deadline` (monotonic seconds); return whether it has ended."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill the process and wait for its end. Succeeds if it has ended already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._drop_ready_pipe()

    def _drop_ready_pipe(self) -> None:
        if self._ready_pipe is not None:
            os.close(self._ready_pipe)
            self._ready_pipe = None
