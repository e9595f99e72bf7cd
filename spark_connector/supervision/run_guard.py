"""The process between an agent and a run: kills the run when the agent is gone or silent.

Start it as `python -m peacefs.spark_connector.supervision.run_guard LIFELINE LOG`, in its own process group, to
which the command and all its children belong. It reads what to start as JSON from standard input. The guard keeps
the agent's uid; the command gets its account's uid, only its own variables, and none of their descriptors.

The agent writes a byte to the pipe LIFELINE at each answer of the coordinator. If the pipe ends, because the agent
has, or stays silent for `run_guard_timeout_s`, the guard kills the whole group, itself included. By then the
coordinator does not yet consider the agent dead. The command's output goes to LOG, of which at most twice
`run_log_bytes_max` is kept. The exit status is the command's, or 128 plus the signal that ended the command.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
from io import FileIO
from pathlib import Path
from typing import Final

import msgspec

from peacefs.protocol.limits import MIB, packet_bytes
from peacefs.runtime.private_files import opener

from .command_list import Start
from .run_account import hide_memory

# A run is killed this long after the coordinator's last answer, whatever happened to the agent.
run_guard_timeout_s: Final = 10.0
# The size of a run's log; the log before it is kept as well.
run_log_bytes_max: Final = 16 * MIB


_SIGNALLED = 128
_CANNOT_START = 127
_LAST_WORDS_S = 1.0


def main(arguments: list[str]) -> int:
    """Run the command to its end, and return the exit status."""
    lifeline, log = int(arguments[0]), Path(arguments[1])
    start = msgspec.json.decode(sys.stdin.buffer.read(), type=Start)
    hide_memory()
    # SIGTERM goes to the whole group; the guard stays to collect the status. A handler, unlike SIG_IGN, is not
    # inherited.
    signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=_watch, args=(lifeline,), name="lifeline", daemon=True).start()
    try:
        command = _started(start)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        with _open(log) as file:
            file.write(f"{start.arguments[0]} cannot be started: {error}\n".encode())
        return _CANNOT_START
    assert command.stdout is not None
    keeper = threading.Thread(target=_keep, args=(command.stdout.fileno(), log), name="log", daemon=True)
    keeper.start()
    status = command.wait()
    # A process that the run left behind may keep the pipe open; the agent kills that process later.
    keeper.join(_LAST_WORDS_S)
    return _SIGNALLED - status if status < 0 else status


def _started(start: Start) -> subprocess.Popen[bytes]:
    account = start.account
    changed = account.groups is not None
    return subprocess.Popen(
        start.arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=start.environment,
        user=account.uid if changed else None,
        group=account.gid if changed else None,
        extra_groups=account.groups if changed else None,
        umask=0o077 if changed else -1,
    )


def _watch(lifeline: int) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(lifeline, selectors.EVENT_READ)
        while selector.select(run_guard_timeout_s) and os.read(lifeline, packet_bytes):
            pass
    os.killpg(0, signal.SIGKILL)


def _keep(output: int, log: Path) -> None:
    """Copy the command's output to the log. A full log replaces the older log beside it."""
    file = _open(log)
    while piece := os.read(output, packet_bytes):
        if file.tell() >= run_log_bytes_max:
            file.close()
            log.replace(log.with_name(f"{log.name}.1"))
            file = _open(log)
        file.write(piece)


def _open(log: Path) -> FileIO:
    return open(log, "ab", buffering=0, opener=opener)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
