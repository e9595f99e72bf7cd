"""The two file systems: peacefs as processes, and a NameNode with three DataNodes in a JVM."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peacefs.client.local_cluster.cluster import LocalCluster

from .toolchain import Toolchain

_END_TIMEOUT_S = 60.0
#: As in HdfsPeer.java.
_PROXY_USERS = """
hadoop.proxyuser.oozie.hosts = "127.0.0.1"
hadoop.proxyuser.oozie.users = "alice"
hadoop.proxyuser.elsewhere.hosts = "192.0.2.1"
hadoop.proxyuser.elsewhere.users = "*"
"""


@contextmanager
def running_peacefs(directory: Path) -> Iterator[dict[str, str]]:
    """Yield its URI for each protocol."""
    rules = directory.with_name("proxy-users.toml")
    rules.write_text(_PROXY_USERS)
    options = [f"--proxy-users={rules}"]
    with LocalCluster(directory, datanodes=3, port=0, coordinator_options=options) as cluster:
        yield {"webhdfs": cluster.webhdfs_uri, "hdfs": cluster.hdfs_uri}


@contextmanager
def running_hdfs(toolchain: Toolchain, directory: Path) -> Iterator[dict[str, str]]:
    """Yield the same of HDFS. Raises RuntimeError when it does not start."""
    command = toolchain.command("contract.HdfsPeer", [str(directory)], {}, log="hdfs")
    errors = toolchain.build / "hdfs.err"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            uris = process.stdout.readline().split()
            if len(uris) != 2:
                raise RuntimeError(f"HDFS did not start: {errors} says why")
            yield {"webhdfs": uris[0], "hdfs": uris[1]}
        finally:
            process.stdin.close()
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
