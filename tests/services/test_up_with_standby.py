"""`peacefs up --standby`: two coordinators and etcd on one machine, and the message if etcd is missing."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from support.etcd import etcd_binary
from support.waiting import wait_until

from peacefs.client.local_cluster import cluster as local_cluster
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import LocalMember
from peacefs.protocol.errors import StartupError

pytestmark = pytest.mark.cluster


def answers(member: LocalMember) -> str:
    address = f"http://{member.readiness.http_host}:{member.readiness.http_port}"
    try:
        return httpx.get(
            f"{address}/webhdfs/v1/?op=LISTSTATUS&user.name=ann", timeout=60, trust_env=False, verify=False
        ).text
    except httpx.HTTPError as error:
        return repr(error)


def test_up_with_a_standby_goes_on_when_its_coordinator_is_killed_and_again_another_day(tmp_path: Path) -> None:
    etcd_binary()
    with LocalCluster(tmp_path / "up", 1, 0, standby=True) as cluster:
        assert cluster.standby is not None
        wait_until(lambda: "FileStatuses" in answers(cluster.coordinator), "the coordinator leads")
        assert "StandbyException" in answers(cluster.standby)
        address = cluster.http_address
        made = httpx.put(
            f"{address}/webhdfs/v1/kept?op=MKDIRS&user.name=ann", timeout=60, trust_env=False, verify=False
        )
        assert made.is_success
        cluster.coordinator.kill()
        wait_until(lambda: '"kept"' in answers(cluster.standby), "the other one leads")
        cluster.restart(cluster.coordinator)
        wait_until(lambda: "StandbyException" in answers(cluster.coordinator), "the one that was killed stands by")
    with LocalCluster(tmp_path / "up", 1, 0, standby=True) as cluster:
        wait_until(lambda: '"kept"' in answers(cluster.coordinator), "all of it is there")


def test_up_with_a_standby_says_how_to_get_etcd_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_cluster, "find_etcd", lambda: None)
    with pytest.raises(StartupError, match="apt-get install etcd-server"):
        LocalCluster(tmp_path / "up", 1, 0, standby=True).start()
