"""One process of a local cluster: started, found ready, watched, stopped.

A member is `python -m peacefs <role> ... --ready-fd R --parent-fd P`. It writes one JSON line to R when it is
ready, and stops when P, the reading end of a pipe whose writing end only the launcher holds, reaches its end: so
no member outlives a launcher, however that one dies. It runs in a process group of its own, so that Ctrl-C in a
terminal reaches the launcher alone, which then stops all members in good order.
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

# A member that starts is given up when it has done nothing at all for so long, or is not ready after the longer.
local_start_timeout_s: Final = 20.0
local_start_longest_s: Final = 300.0


_LOG_TAIL_BYTES = 4096
# A start is checked so often.
_LOOK_S = 0.5
#: The program of a member. -P keeps the working directory of whoever called us off the import path.
PEACEFS = (sys.executable, "-P", "-m", "peacefs")
_OTHERS_VARIABLES = (SECRET_FILE_VARIABLE, *SERVICE_VARIABLES)


class MemberReady(msgspec.Struct, frozen=True):
    """A member's message once it is ready; fields of other roles keep their defaults."""

    role: str
    pid: int
    http_host: str = ""
    http_port: int = 0
    cluster: str = ""
    node_host: str = ""
    node_port: int = 0
    node: str = ""
    data_port: int = 0


class LocalMember:
    """A coordinator or datanode of a local cluster. Not thread-safe.

    `arguments` gives the command line from the readiness of the run before (None at first), so that a restarted
    member comes back with its ports. `inherited` are descriptors that the process is to have besides; `prefix` is
    a command that runs the one that follows it, in its own place; `program` is what takes the arguments.
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
        # The start that is under way.
        self._received = b""
        self._life: SignsOfLife | None = None
        self.log: Path | None = None

    # -- what it is ----------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def readiness(self) -> MemberReady:
        """Return its message of when it became ready."""
        assert self._readiness is not None, f"{self.name} has not been ready yet"
        return self._readiness

    @property
    def node(self) -> str:
        """The id of a datanode; empty for the coordinator."""
        return self.readiness.node

    @property
    def is_starting(self) -> bool:
        """Return whether it was started and has not said yet that it is ready, nor was given up."""
        return self._ready_pipe is not None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def last_words(self) -> str:
        """The last line of its log: why it stopped, as a rule."""
        assert self.log is not None, f"{self.name} was never started"
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    @property
    def end(self) -> str:
        """Return in words how it ended."""
        status = self._process.poll() if self._process else None
        if status is None:
            return "is running"
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}: {self.last_words or 'its log is empty'}"

    def _complaint(self) -> str:
        """Its last words, without the `peacefs: <command>: ` that a service's refusal begins with."""
        words = self.last_words
        return words.split(": ", 2)[2] if re.match(r"peacefs: \w+: ", words) else words

    # -- what becomes of it --------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the process; `await_ready` tells when it is of use."""
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
                    # A secret file of the caller's belongs to another cluster, and so do TLS files.
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
        """Waits for as long as the process gets something done, within `local_start_longest_s`.

        Raises StartupError with the member's own last words.
        """
        while (ready := self.poll_ready(_LOOK_S)) is None:
            pass
        return ready

    def poll_ready(self, wait_s: float = 0.0) -> MemberReady | None:
        """Return its message if it comes within `wait_s`; None while it is waited for. Raises as `await_ready`."""
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
            # The pipe closed without a word: the process is ending.
            self.await_end(time.monotonic() + local_stop_timeout_s)
            raise StartupError(f"{self.name} did not start: {self._complaint() or 'it said nothing'}")
        self._readiness = msgspec.json.decode(self._received, type=MemberReady)
        return self._readiness

    def _received_line(self, wait_s: float) -> bool:
        """Take what the pipe has; return whether it has come to the end of a line, or to its own."""
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
        """Asks it to stop; `await_end` tells when it has."""
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
        """SIGKILL, and waits for the end; that it has ended already is fine."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._drop_ready_pipe()

    def _drop_ready_pipe(self) -> None:
        if self._ready_pipe is not None:
            os.close(self._ready_pipe)
            self._ready_pipe = None
