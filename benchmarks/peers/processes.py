"""Servers of others as processes, which end with the benchmark."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_END_TIMEOUT_S = 20.0


@contextmanager
def running_process(
    command: Sequence[str], home: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a directory until the block is left. One that has ended by itself has its log printed."""
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
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
