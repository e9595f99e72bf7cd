"""Both coordinators are replaced by newer ones, one after the other, without a failed request."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest
from support.failover_cluster import FailoverCluster, failover_cluster
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem

pytestmark = pytest.mark.cluster


class Client:
    """Makes directories and files and reads them back, one after the other, until the first failure."""

    def __init__(self, cluster: FailoverCluster) -> None:
        self._address = "http://" + ",".join(cluster.http)
        self._stop = threading.Event()
        self.done = 0
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with PeaceFileSystem(self._address, "ann") as files:
                while not self._stop.is_set():
                    path, data = f"/{self.done}", str(self.done).encode()
                    files.mkdirs(path)
                    files.write(f"{path}/file", data)
                    assert files.read(f"{path}/file") == data
                    self.done += 1
        except BaseException as fault:
            self.fault = fault

    def wait_for(self, more: int) -> None:
        wanted = self.done + more
        wait_until(lambda: self.fault is not None or self.done >= wanted, f"{more} more are written and read")
        assert self.fault is None, self.fault

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        assert self.fault is None, self.fault
        return self.done


def hand_over(cluster: FailoverCluster, at: int) -> None:
    """Ask a coordinator to hand over, like `peacefs coordinator hand-over`."""
    url = f"http://{cluster.http[at]}/v1/coordinator/hand-over"
    answer = httpx.post(url, params={"user": "root"}, timeout=60, trust_env=False, verify=False)
    assert answer.is_success, answer.text


def restart(cluster: FailoverCluster, at: int) -> None:
    """Restart a coordinator that has ended, and wait until it could lead."""
    service = cluster.coordinators[at]
    wait_until(lambda: service.exit_status() is not None, "it has ended")
    service.start()
    wait_until(lambda: cluster.stands_by(at), "it stands by")
    wait_until(lambda: cluster.datanodes_at(at) == len(cluster.datanodes), "datanodes have come to it")
    wait_until(lambda: are_warm(cluster, 1 - at), "the leader knows that it is warm")


def are_warm(cluster: FailoverCluster, leader: int) -> bool:
    failover = cluster.status(leader)["failover"]
    assert isinstance(failover, dict)
    return [each["is_warm"] for each in failover["coordinators"]] == [True, True]


def test_upgrade_of_the_pair_fails_no_request(tmp_path: Path) -> None:
    with failover_cluster(tmp_path) as cluster:
        client = Client(cluster)
        client.wait_for(5)
        # Replace the standby, let the leader hand over, replace the earlier leader; then back again.
        cluster.coordinators[1].stop()
        restart(cluster, 1)
        hand_over(cluster, 0)
        assert cluster.leads(1)
        client.wait_for(5)
        restart(cluster, 0)
        assert cluster.coordinators[0].log().count("Restart this coordinator as a standby") == 1
        hand_over(cluster, 1)
        client.wait_for(5)
        made = client.stop()
        assert {str(number) for number in range(made)} <= cluster.names()


def test_hand_over_to_a_standby_that_died_leaves_the_leader_leading(tmp_path: Path) -> None:
    with failover_cluster(tmp_path, datanodes=1) as cluster:
        wait_until(lambda: are_warm(cluster, 0), "the leader knows that its standby is warm")
        cluster.coordinators[1].kill()
        url = f"http://{cluster.http[0]}/v1/coordinator/hand-over?user=root"
        answer = httpx.post(url, timeout=60, trust_env=False, verify=False)
        assert "did not take over" in answer.text and "leads on" in answer.text, answer.text
        assert cluster.coordinators[0].exit_status() is None
        cluster.mkdir("/after")
        assert cluster.leads(0)
