"""Server processes of other systems, which end with the benchmark, however it ends."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_END_TIMEOUT_S = 20.0
_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


@contextmanager
def running_process(command: Sequence[str], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a directory within the block. If it ends by itself, print its log."""
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(
            command,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=_end_with_parent,
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is not None:
                print(f"{command[0]} ended with {process.returncode}:\n{(home / 'log').read_text()[-3000:]}")
            process.terminate()
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _end_with_parent() -> None:
    """Let the kernel kill this process when its parent dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
