"""Hadoop's own failover proxy providers over two coordinators, while the one that leads is killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("py4j.protocol")

from support.etcd import etcd_binary
from support.long_runs import IS_LONG, often
from support.stock_hadoop import Hadoop, running_hadoop
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import LocalMember

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(600)]
_PACKAGE = "org.apache.hadoop.hdfs.server.namenode.ha"
_PROVIDERS = ("ConfiguredFailoverProxyProvider", *(("RequestHedgingProxyProvider",) if IS_LONG else ()))
_KILLS = often(1, 4)
_FILES_BETWEEN = 4


def _settings(members: dict[str, LocalMember], provider: str) -> dict[str, str]:
    """Return what an operator of HDFS writes for two NameNodes, and nothing else."""
    return {
        "dfs.nameservices": "peace",
        "dfs.ha.namenodes.peace": ",".join(members),
        **{
            f"dfs.namenode.rpc-address.peace.{name}": f"{each.readiness.http_host}:{each.readiness.hdfs_port}"
            for name, each in members.items()
        },
        "dfs.client.failover.proxy.provider.peace": f"{_PACKAGE}.{provider}",
    }


class _Writer(threading.Thread):
    """Writes, extends and renames files until it is told to stop; keeps what each one has to hold."""

    def __init__(self, hadoop: Hadoop, seed: int) -> None:
        super().__init__(daemon=True)
        self._hadoop = hadoop
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        self.wanted: dict[str, bytes] = {}
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step(len(self.wanted))
        except BaseException as fault:
            self.fault = fault

    def stop(self) -> None:
        self._stopping.set()
        self.join(120)
        assert not self.is_alive(), "the writer is stuck"

    def _step(self, number: int) -> None:
        fs, path = self._hadoop.fs, self._hadoop.path
        data = self._chance.randbytes(self._chance.choice([1, 5000, 200_000]))
        self._hadoop.write(f"/made-{number}", data, overwrite=False)
        stream = fs.append(path(f"/made-{number}"))
        stream.write(b"more")
        stream.hflush()
        stream.close()
        assert fs.rename(path(f"/made-{number}"), path(f"/kept-{number}")), (
            "a repeated rename tells its first answer"
        )
        self.wanted[f"/kept-{number}"] = data + b"more"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    etcd_binary()
    with LocalCluster(tmp_path, datanodes=3, port=0, standby=True) as cluster:
        yield cluster


@pytest.mark.parametrize("provider", _PROVIDERS)
def test_client_goes_on_when_the_leader_is_killed(
    cluster: LocalCluster, stock_gateway: Any, provider: str
) -> None:
    assert cluster.standby is not None
    members = {"a": cluster.coordinator, "b": cluster.standby}
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with running_hadoop(stock_gateway, "hdfs://peace", _settings(members, provider)) as hadoop:
        writer = _Writer(hadoop, seed)
        writer.start()
        for kill in range(_KILLS):
            written = len(writer.wanted)
            wait_until(
                lambda written=written: writer.fault or len(writer.wanted) >= written + _FILES_BETWEEN,
                "files are written",
            )
            leader = members["ab"[kill % 2]]
            leader.kill()
            time.sleep(random.Random(seed + kill).random())
            cluster.restart(leader)
        written = len(writer.wanted)
        wait_until(
            lambda: writer.fault or len(writer.wanted) >= written + _FILES_BETWEEN, "files are written again"
        )
        writer.stop()
        assert writer.fault is None
        assert set(hadoop.names("/")) == {name[1:] for name in writer.wanted}
        for name, data in writer.wanted.items():
            assert hadoop.read(name) == data
    both = ",".join(f"{each.readiness.http_host}:{each.readiness.http_port}" for each in members.values())
    with PeaceFileSystem(both) as files:
        for name, data in writer.wanted.items():
            assert files.read(name) == data
