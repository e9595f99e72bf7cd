"""kill -9 at any moment: acknowledged changes exist, and the store is sound."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.long_runs import often

from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace import operations as namespace
from peacefs.protocol.errors import FileNotFound

from .conftest import Space

PROCESS = Path(__file__).with_name("committing_process.py")


def run_and_kill(path: Path, lines: int) -> dict[str, str]:
    """Let the process work for some acknowledgements. Return the last known fact about each path."""
    with subprocess.Popen([sys.executable, str(PROCESS), str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    return {line[1:-1].decode(): chr(line[0]) for line in said if line.endswith(b"\n")}


@pytest.mark.evidence("answers-survive-kill")
def test_everything_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    randomly = random.Random(20261120)
    path = tmp_path / "metadata.sqlite"
    said: dict[str, str] = {}
    for _ in range(often(3, 6)):
        latest = run_and_kill(path, randomly.randrange(1, 600))
        assert not latest.keys() & said.keys(), "each run is an epoch of its own"
        said |= latest
        metadata = open_store(path, owner="root")
        space = Space(metadata)
        for name, sign in said.items():
            try:
                status = space.status(name)
            except FileNotFound:
                # Its deletion was not acknowledged: at most the deletes under way when the process died.
                assert sign == "-" or name in unacknowledged_deletes(said), name
            else:
                assert sign == "+", name
                assert [c.length for c in namespace.layout(space.reader, status.inode)] == [100]
        space.check_references()
        assert space.sql("PRAGMA integrity_check") == [("ok",)]
        metadata.close()


@pytest.mark.evidence("commits-lost")
def test_kill_9_at_any_moment_is_never_taken_for_a_loss_of_commits(tmp_path: Path) -> None:
    randomly = random.Random(20261122)
    path = tmp_path / "metadata.sqlite"
    for _ in range(often(5, 12)):
        run_and_kill(path, randomly.randrange(1, 80))
        open_store(path, owner="root").close()


def unacknowledged_deletes(said: dict[str, str]) -> set[str]:
    """Return names with a possible unacknowledged delete: the oldest remaining one of each worker."""
    left: dict[str, list[int]] = {}
    for name, sign in said.items():
        directory, _, number = name.rpartition("/")
        if sign == "+":
            left.setdefault(directory, []).append(int(number))
    return {f"{directory}/{min(numbers)}" for directory, numbers in left.items()}
