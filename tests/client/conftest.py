"""Callers of the shared cluster (`support/cluster_fixtures.py`), and how processes are waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; one that nobody has waited for yet counts."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., None]:
    return wait_until


@pytest.fixture(name="has_ended")
def _has_ended() -> Callable[[int], bool]:
    return has_ended


@pytest.fixture
def superuser(shared_cluster: LocalCluster) -> Iterator[PeaceFileSystem]:
    """Return the account that runs the coordinator."""
    with PeaceFileSystem(shared_cluster.http_address) as opened:
        yield opened


@pytest.fixture
def environment(shared_cluster: LocalCluster) -> dict[str, str]:
    """Return the environment of a command that alice runs."""
    return {
        "PEACEFS_COORDINATOR": shared_cluster.http_address,
        "HADOOP_USER_NAME": "alice",
        # Nothing listens there: a client that used it would fail.
        "http_proxy": "http://127.0.0.1:1",
    }
