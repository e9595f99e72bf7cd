"""Executes `peacefs up`: runs a cluster in the foreground until it is stopped."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.supervisor import MemberSupervisor
from peacefs.protocol.errors import PeacefsError

from .errors import report_error

_LOOK_S = 0.2


def default_directory() -> Path:
    """Return the cluster's directory in the user's data directory (XDG)."""
    data_home = os.environ.get("XDG_DATA_HOME")
    return (Path(data_home) if data_home else Path.home() / ".local" / "share") / "peacefs" / "cluster"


def run_until_stopped(cluster: LocalCluster) -> None:
    """Start the cluster, print its URI as the only line of stdout, and stop it on Ctrl-C or SIGTERM.

    Members that die meanwhile are restarted. Raises StartupError if the coordinator does not start, and
    PeacefsError if it is given up later.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        cluster.begin()
        supervisor = MemberSupervisor(cluster, lambda text: report_error("up", text))
        while not supervisor.is_settled:
            supervisor.look()
            time.sleep(_LOOK_S)
        _prepare(cluster)
        _introduce(cluster)
        while True:
            supervisor.look()
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        # The normal end.
        sys.stderr.write("stopping\n")
    finally:
        cluster.stop()


def _prepare(cluster: LocalCluster) -> None:
    """Make the home of the user who runs the cluster, and the directories shared by others on this machine."""
    from peacefs.client.filesystem import PeaceFileSystem
    from peacefs.client.shared_directories import make_shared_directories

    try:
        with PeaceFileSystem(f"unix:{cluster.directory}") as files:
            list(make_shared_directories(files, [files.user]))
    except PeacefsError as error:
        report_error("up", f"/tmp, /checkpoints and the home are not prepared: {error.message}")


def _introduce(cluster: LocalCluster) -> None:
    sys.stdout.write(f"{cluster.webhdfs_uri}\n")
    sys.stdout.flush()
    sys.stderr.write(
        f"{len(cluster.datanodes)} datanodes in 2 racks; data and logs in {cluster.directory}; "
        f"a page about it at {cluster.http_address}/ui/; Ctrl-C stops\n"
        f"clients of HDFS: {cluster.hdfs_uri}\n"
        f"agents: --coordinator {cluster.node_address} --secret-file {cluster.secret_file}\n"
    )
    if cluster.standby is not None:
        standby = cluster.standby.readiness
        sys.stderr.write(
            f"two coordinators: {cluster.address.http} and {standby.http_host}:{standby.http_port}; "
            "`peacefs report` says which one leads\n"
        )
    if cluster.ca_file is not None:
        sys.stderr.write(
            f"over TLS: clients set PEACEFS_CA_FILE={cluster.ca_file}; what to tell Spark is said by\n"
            f"peacefs spark conf --coordinator {cluster.http_address} --truststore {cluster.truststore}\n"
        )


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
