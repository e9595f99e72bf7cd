"""The systems in the comparison: servers, clients, and what is on disk when they acknowledge."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.processor_time import cpu_s
from peacefs.client.local_cluster.cluster import LocalCluster

from .hdfs import HadoopLoad, NoHadoop, hadoop_classpath, running_hdfs
from .load import Load, PythonLoad
from .peacefs_clients import OurClient, WebHdfsClient
from .seaweedfs import NoWeed, SeaweedClient, find_weed, running_seaweedfs

OURS = "peacefs, our client"
WEBHDFS = "peacefs, WebHDFS"
AROUND_CACHE = "peacefs, around the page cache"
HDFS = "HDFS"
HDFS_SYNC = "HDFS, sync"
SEAWEEDFS = "SeaweedFS"
DATANODES = 3

_AROUND_CACHE_VARIABLE = "PEACEFS_WRITE_AROUND_CACHE"
_BOTH, _NAMES, _DATA, _NOTHING = "data and names", "names", "data", "nothing"


@dataclass(frozen=True)
class System:
    """One way to use one system."""

    name: str
    load: Load
    #: The processes of its servers.
    servers: Sequence[int]
    synced_names: str
    synced_data: str
    #: True if it differs from another system only in how it stores data, or large files.
    only_stores: bool = False
    only_large: bool = False
    #: The URI for a Spark checkpoint in it, if possible.
    hadoop_uri: str = ""

    def cpu_s(self) -> float:
        return sum(cpu_s(server) for server in self.servers)


@dataclass(frozen=True)
class Missing:
    """A system that is missing, and the reason."""

    system: str
    why: str


@contextmanager
def running_systems(directory: Path) -> Iterator[tuple[list[System], list[Missing]]]:
    """Start every available system, and stop all at the end."""
    systems: list[System] = []
    missing: list[Missing] = []
    with ExitStack() as stack:
        systems += _peacefs(directory, stack)
        systems.append(_peacefs_around_cache(directory, stack))
        try:
            systems += _hdfs(directory, stack)
        except NoHadoop as why:
            missing.append(Missing(HDFS, str(why)))
        try:
            systems.append(_seaweedfs(directory, stack))
        except NoWeed as why:
            missing.append(Missing(SEAWEEDFS, str(why)))
        for each in missing:
            print(f"{each.system} does not take part: {each.why}", flush=True)
        yield systems, missing


def _peacefs(directory: Path, stack: ExitStack) -> Iterator[System]:
    cluster = stack.enter_context(LocalCluster(directory / "peacefs", datanodes=DATANODES, port=0))
    servers = [member.pid for member in cluster.members]
    for name, client, top in ((OURS, OurClient, "/frames"), (WEBHDFS, WebHdfsClient, "/http")):
        load = stack.enter_context(PythonLoad(partial(client, cluster.http_address), top))
        yield System(name, load, servers, _BOTH, _BOTH, hadoop_uri=cluster.webhdfs_uri if name == WEBHDFS else "")


def _peacefs_around_cache(directory: Path, stack: ExitStack) -> System:
    os.environ[_AROUND_CACHE_VARIABLE] = "1"
    try:
        cluster = stack.enter_context(LocalCluster(directory / "around-cache", datanodes=DATANODES, port=0))
    finally:
        del os.environ[_AROUND_CACHE_VARIABLE]
    load = stack.enter_context(PythonLoad(partial(OurClient, cluster.http_address)))
    servers = [member.pid for member in cluster.members]
    return System(AROUND_CACHE, load, servers, _BOTH, _BOTH, only_large=True)


def _hdfs(directory: Path, stack: ExitStack) -> Iterator[System]:
    classpath = hadoop_classpath(directory / "hadoop")
    cluster = stack.enter_context(running_hdfs(classpath, directory / "hdfs", DATANODES))
    for name, synced in ((HDFS, _NAMES), (HDFS_SYNC, _BOTH)):
        is_sync = name == HDFS_SYNC
        load = stack.enter_context(HadoopLoad(classpath, cluster.uri, DATANODES, sync=is_sync))
        uri = "" if is_sync else cluster.uri
        yield System(name, load, cluster.servers, _NAMES, synced, only_stores=is_sync, hadoop_uri=uri)


def _seaweedfs(directory: Path, stack: ExitStack) -> System:
    cluster = stack.enter_context(running_seaweedfs(find_weed(), directory / "seaweedfs", DATANODES))
    load = stack.enter_context(PythonLoad(partial(SeaweedClient, cluster.filer)))
    return System(SEAWEEDFS, load, cluster.servers, _NOTHING, _DATA)
