"""One more datanode of a local cluster, as a process, with data directories chosen by the test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.waiting import PATIENCE_S

from peacefs.client.local_cluster.cluster import LocalCluster


@contextlib.contextmanager
def extra_datanode(
    cluster: LocalCluster, directory: Path, *disks: Path, options: Sequence[str] = ()
) -> Iterator[Path]:
    """Yield the log after its registration. At the end it must stop on request."""
    ready, theirs = os.pipe()
    member = cluster.coordinator.readiness
    command = [
        *(sys.executable, "-P", "-m", "peacefs", "datanode", f"--dir={directory}", "--port=0", "--data-port=0"),
        f"--coordinator={member.node_host}:{member.node_port}",
        f"--secret-file={cluster.directory / 'coordinator' / 'cluster.secret'}",
        f"--ready-fd={theirs}",
        *(f"--data-dir={disk}" for disk in disks),
        *options,
    ]
    log = directory.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(command, stderr=output, pass_fds=[theirs])
    os.close(theirs)
    try:
        with os.fdopen(ready) as pipe:
            assert pipe.readline(), log.read_text()
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, log.read_text()
