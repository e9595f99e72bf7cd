"""Run a cluster for `request_path`: print its address and the coordinator's process, and end when stdin ends.

`request_path` runs it as a program, with the tree to measure on the import path.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from peacefs.client.local_cluster.cluster import LocalCluster


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(Path(directory), datanodes=1, port=0) as cluster,
    ):
        hdfs_port = int(cluster.hdfs_uri.rpartition(":")[2])
        where = [cluster.address.host, cluster.address.port, hdfs_port, cluster.coordinator.pid]
        print(json.dumps(where), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
