"""Quotas on a real cluster, as a user sets them; writers that are refused at once or in the middle of a file."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.command_line.quotas import parse_size
from peacefs.client.file_objects import FileSink
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AccessDenied, BadRequest, BytesQuotaExceeded, NamesQuotaExceeded

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(shared_cluster: LocalCluster) -> Run:
    """Run a command as a user. Return its exit status, stdout and stderr."""

    def run(user: str, *arguments: str) -> tuple[int, str, str]:
        environment = {"PEACEFS_COORDINATOR": shared_cluster.http_address, "HADOOP_USER_NAME": user}
        result = CliRunner().invoke(application, arguments, env=environment, prog_name="peacefs")
        return result.exit_code, result.stdout, result.stderr

    return run


@pytest.mark.cluster
def test_a_superuser_limits_what_a_directory_holds(files: PeaceFileSystem, home: str, run: Run) -> None:
    root = getpass.getuser()
    with pytest.raises(AccessDenied, match="Superuser privilege"):
        files.quotas.set(home, names=5)
    assert run(root, "quota", "set", "--names", "3", "--space", "1m", home) == (0, "", "")
    files.write(f"{home}/f", b"x" * 1000)
    files.mkdirs(f"{home}/d")
    with pytest.raises(NamesQuotaExceeded, match=f"of directory {home} is exceeded: quota=3 file count=4"):
        files.write(f"{home}/g", b"x")
    with pytest.raises(BytesQuotaExceeded, match="quota = 1048576 B = 1 MB"):
        files.write(f"{home}/f", bytes(400_000), overwrite=True)
    assert files.content_summary(home).length == 1000
    usage = files.quotas.usage(home)
    assert (usage.names, usage.names_quota, usage.space_consumed, usage.space_quota) == (3, 3, 3000, 1 << 20)

    assert run("alice", "count", home)[1].split() == ["2", "1", "1000", home]
    columns = ["3", "0", "1048576", "1045576", "2", "1", "1000", home]
    assert run("alice", "count", "-q", home)[1].split() == columns
    assert run("alice", "count", "-q", "-h", home)[1].startswith("           3               0             1 M")
    shown = json.loads(run("alice", "count", "--json", home)[1])
    assert (shown["path"], shown["quota"], shown["spaceQuota"]) == (home, 3, 1 << 20)
    assert run(root, "quota", "clear", "--names", home) == (0, "", "")
    assert run("alice", "count", "-q", home)[1].split()[:3] == ["none", "inf", "1048576"]
    assert run(root, "quota", "clear", home) == (0, "", "")
    files.write(f"{home}/g", bytes(400_000))
    assert run(root, "quota", "set", "--space", "lots", home)[0] == 1
    assert run(root, "quota", "set", home)[0] == 2


@pytest.mark.cluster
def test_a_long_file_is_refused_soon_after_the_quota_is_reached(files: PeaceFileSystem, home: str) -> None:
    with PeaceFileSystem(files.address, user=getpass.getuser()) as superusers:
        superusers.quotas.set(home, space=3 * 4 * 65536)
    sink = files.open_for_writing(f"{home}/f", block_bytes=65536)
    with pytest.raises(BytesQuotaExceeded) as refused:
        _write_on(sink, 1 << 26)
    assert f"diskspace consumed = {3 * (4 * 65536 + 1)} B" in refused.value.message, "before the fifth chunk"
    sink.discard()
    assert not files.exists(f"{home}/f")
    files.write(f"{home}/f", bytes(4 * 65536))


def _write_on(sink: FileSink, length: int) -> None:
    for _ in range(length // 65536):
        sink.write(bytes(65536))


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1000", 1000), ("64m", 64 << 20), ("10G", 10 << 30), ("1 TiB", 1 << 40), ("2kb", 2048)],
)
def test_sizes_may_have_a_binary_prefix(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "m", "-1", "1.5g", "10 z", "9e", "99999999999g"])
def test_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"bytes|counted|too large"):
        parse_size(text)
