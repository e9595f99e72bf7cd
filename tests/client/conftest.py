"""Callers of the shared cluster (`support/cluster_fixtures.py`), and a check whether a process has ended."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from peacefs.client.control.addresses import parse_address
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster


def has_ended(pid: int) -> bool:
    """Return whether a process has ended. A zombie counts as ended."""
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
        # Nothing listens there, so a client that used it would fail.
        "http_proxy": "http://127.0.0.1:1",
    }


@pytest.fixture(scope="session")
def fsspec() -> Any:
    """Return fsspec, which knows `peace://` as with the entry point of an installed peacefs."""
    fsspec = pytest.importorskip("fsspec")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["fsspec.specs"].items()
    fsspec.register_implementation(name, value, clobber=True)
    return fsspec


@pytest.fixture
def fs(fsspec: Any, shared_cluster: LocalCluster) -> Iterator[Any]:
    """Yield `peace://` for alice. At the end, close also the clients that a test has made from URLs."""
    address = parse_address(shared_cluster.http_address)
    opened = fsspec.filesystem(
        "peace", host=address.host, port=address.port, user="alice", skip_instance_cache=True
    )
    yield opened
    opened.files.close()
    for cached in type(opened)._cache.values():
        if cached._files is not None:
            cached._files.close()
    type(opened).clear_instance_cache()


@pytest.fixture
def base(fs: Any, shared_cluster: LocalCluster, home: str) -> str:
    """Return the URL of the test's directory."""
    return f"peace://{parse_address(shared_cluster.http_address).netloc}{home}"
