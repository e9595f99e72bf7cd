"""`peacefs prepare` makes directories for ordinary users on a cluster whose root is for superusers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.open_root import open_root_of, root_as_made
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AccessDenied

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with root_as_made(), LocalCluster(tmp_path_factory.mktemp("prepared"), datanodes=1, port=0) as cluster:
        yield cluster


def prepare(cluster: LocalCluster, *arguments: str) -> tuple[int, list[str]]:
    address = f"unix:{cluster.directory}"
    done = CliRunner().invoke(application, ["prepare", *arguments, "-c", address], prog_name="peacefs")
    return done.exit_code, done.stdout.splitlines()


def test_prepared_users_write_at_home_and_in_shared_directories_alone(cluster: LocalCluster) -> None:
    with PeaceFileSystem(cluster.http_address, "ann") as ann, PeaceFileSystem(cluster.http_address, "bob") as bob:
        for path in ("/mine", "/user/ann", "/checkpoints/q", "/tmp/t"):
            with pytest.raises(AccessDenied):
                ann.mkdirs(path)
        assert prepare(cluster, "ann") == (0, ["/tmp", "/checkpoints", "/user/ann"])
        assert prepare(cluster, "ann", "bob") == (0, ["/user/bob"])
        for path in ("/tmp", "/checkpoints"):
            found = ann.status(path)
            assert (oct(found.permission), found.owner) == ("0o1777", cluster.directory.owner())
        assert [(each.owner, oct(each.permission)) for each in (ann.status("/user/ann"), ann.status("/user"))] == [
            ("ann", "0o755"),
            (cluster.directory.owner(), "0o755"),
        ]
        for path in ("/user/ann/d/f", "/checkpoints/of-ann/0/f", "/tmp/t/f"):
            ann.write(path, b"x", replication=1)
            above = path.rpartition("/")[0]
            with pytest.raises(AccessDenied):
                bob.write(f"{above}/g", b"x", replication=1)
            with pytest.raises(AccessDenied):
                bob.rename(path, "/tmp/taken")
        with pytest.raises(AccessDenied):
            bob.rename("/checkpoints/of-ann", "/checkpoints/taken")
        with pytest.raises(AccessDenied):
            ann.mkdirs("/mine")


def test_prepare_is_for_superusers(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    done = CliRunner().invoke(application, ["prepare", "eve", "-c", cluster.http_address], prog_name="peacefs")
    assert done.exit_code == 1
    assert "Permission denied: user=ann" in done.output


def test_start_tells_of_an_old_root_in_one_line(cluster: LocalCluster) -> None:
    open_root_of(cluster.directory)
    cluster.coordinator.kill()
    cluster.restart(cluster.coordinator)
    log = (cluster.directory / "logs" / "coordinator.log").read_text()
    (line,) = (line for line in log.splitlines() if "open to all" in line)
    assert " / is open to all (rwxrwxrwt)" in line
    assert "peacefs chmod 755 /" in line
