"""A checkpoint in a local directory, a cluster, and the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from support import checkpoints as made
from typer.testing import CliRunner

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.command import application


@pytest.fixture(scope="session")
def peacefs() -> Callable[..., Result]:
    """Run `peacefs checkpoint ...`, and check that it never prints a traceback."""

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(application, ["checkpoint", *arguments], prog_name="peacefs")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """Return a checkpoint in a local directory."""
    for path, data in made.checkpoint().files.items():
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return tmp_path / made.ROOT.lstrip("/")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("checkpoints"), datanodes=1, port=0) as cluster:
        yield cluster
