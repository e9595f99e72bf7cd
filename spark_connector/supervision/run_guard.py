"""The process between an agent and what it runs: nothing of that outlives the agent's word.

`python -m peacefs.spark_connector.supervision.run_guard LIFELINE LOG`, in a process group of its own, which the
command and whatever it starts belong to. What is to be started comes as JSON on standard input. The guard keeps
the agent's uid; the command has that of its account, none of their descriptors, and its own variables alone.

The agent writes a byte to the pipe LIFELINE whenever the coordinator has answered it. When the pipe ends, because
the agent has, or brings nothing for `run_guard_timeout_s`, all of the group is killed, the guard included:
by then the coordinator has not yet taken the agent for dead. What the command says goes to LOG, of which at most
twice `run_log_bytes_max` is kept.

Its exit status is the command's, or 128 and the number of the signal that ended that.
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

# An agent's run ends when it has had no answer for so long, whatever has become of the agent.
run_guard_timeout_s: Final = 10.0
# A run's output is kept up to this size, and as much of the output before; for so many runs.
run_log_bytes_max: Final = 16 * MIB


_SIGNALLED = 128
_CANNOT_START = 127
_LAST_WORDS_S = 1.0


def main(arguments: list[str]) -> int:
    """Runs the command to its end, and gives the exit status."""
    lifeline, log = int(arguments[0]), Path(arguments[1])
    start = msgspec.json.decode(sys.stdin.buffer.read(), type=Start)
    hide_memory()
    # The whole group is asked to end: the guard stays to see it. A handler, unlike SIG_IGN, is not inherited.
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
    # A process that the run left behind may hold the pipe open; the agent kills it.
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
    """Copies what the command says; a log that is full is put aside, in place of the one put aside before."""
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
