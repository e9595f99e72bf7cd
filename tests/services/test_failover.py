"""Two coordinators, real etcd and datanodes: the leader is killed or frozen, and nothing is lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import httpx
import pytest
from support.etcd import EtcdMember
from support.failover_cluster import FailoverCluster, failover_cluster
from support.failover_writer import Writer
from support.waiting import wait_until

from peacefs.coordinator.journal.etcd import EtcdJournal
from peacefs.coordinator.journal.port import JournalFull

pytestmark = pytest.mark.cluster


def flip_a_bit(directory: Path) -> None:
    """Flip a bit in the first entry of the log's last segment, which makes all later entries unusable."""
    log = max(directory.glob("metadata.sqlite.log-*"))
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.write_bytes(content)


@pytest.mark.evidence("leader-dies")
@pytest.mark.evidence("leader-frozen")
@pytest.mark.evidence("etcd-member-dies")
def test_failover_loses_nothing_acknowledged_when_the_leader_dies_and_when_it_is_frozen(tmp_path: Path) -> None:
    with failover_cluster(tmp_path, members=3) as cluster:
        first, second = cluster.coordinators
        with Writer(cluster) as writer:
            writer.wait_for(20)
            first.kill()
            writer.wait_for(20)
            assert cluster.leads(1)

            # It comes back with a damaged log, gets what is missing from the journal, and stands by.
            flip_a_bit(tmp_path / "coordinator-0")
            first.start()
            wait_until(lambda: cluster.stands_by(0), "the one that was killed stands by")
            wait_until(lambda: cluster.datanodes_at(0) == 3, "datanodes have come to it")

            # A member of etcd dies; the other two continue.
            cluster.etcd.members[0].kill()
            writer.wait_for(10)

            # The leader is stopped for longer than its lease, and then continues as if nothing had happened.
            second.pause()
            wait_until(lambda: cluster.leads(0), "the other one leads")
            writer.wait_for(10)
            second.go_on()
            wait_until(lambda: second.exit_status() is not None, "the one that was replaced ends")
            assert second.exit_status() in (74, 75)
            writer.wait_for(10)

            names = set(writer.stop())
            assert names <= cluster.names()
            for name in sorted(names)[::7]:
                if cluster.ask("GET", f"/{name}", op="GETFILESTATUS").json()["FileStatus"]["type"] == "FILE":
                    assert cluster.read(f"/{name}") == name.encode()


def test_failover_of_a_leader_that_stops_in_good_order_is_at_once(tmp_path: Path) -> None:
    with failover_cluster(tmp_path, datanodes=1) as cluster:
        cluster.mkdir("/before")
        assert cluster.coordinators[0].stop() == 0
        cluster.mkdir("/after")
        assert cluster.leads(1)
        assert {"before", "after"} <= cluster.names()


def test_standby_answers_operators_and_sends_clients_to_the_leader(tmp_path: Path) -> None:
    with failover_cluster(tmp_path, datanodes=1) as cluster:
        assert cluster.stands_by(1)
        assert cluster.status(1)["cluster"] == cluster.status(0)["cluster"]
        cluster.write("/file", b"data")
        wait_until(lambda: cluster.status(1)["chunks"]["total"] == 1, "the standby knows of the chunk")


def test_coordinator_of_another_cluster_is_refused_below_the_same_prefix(tmp_path: Path) -> None:
    with failover_cluster(tmp_path, datanodes=0) as cluster:
        for service in cluster.coordinators:
            service.stop()
        other = tmp_path / "other"
        other.mkdir()
        alone = FailoverCluster(other, cluster.etcd, 1, 0)
        own = alone.coordinators[0]
        # It has a store from a time without a journal.
        before = own.without("--journal")
        before.start()
        wait_until(lambda: alone.leads(0), "it serves by itself")
        before.stop()
        own.start()
        wait_until(lambda: own.exit_status() is not None, "it is refused")
        assert own.exit_status() == 1
        assert "the journal belongs to cluster" in own.log()
        assert "a prefix of its own" in own.log()


@pytest.mark.evidence("etcd-full")
def test_etcd_that_is_full_refuses_changes_and_leaves_reads_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with failover_cluster(tmp_path, datanodes=0, coordinators=2, quota_bytes=24 << 20) as cluster:
        cluster.mkdir("/before")
        other = cluster.etcd.journal("/another-user")
        assert other.take(0, 1)
        with pytest.raises(JournalFull):
            fill(other)
        refused = httpx.put(
            f"http://{cluster.http[0]}/webhdfs/v1/refused?op=MKDIRS&user.name=ann",
            timeout=120,
            trust_env=False,
            verify=False,
        )
        assert "RetriableException" in refused.text
        assert "database space exceeded" in refused.text
        assert cluster.names() == {"before"}
        # Delete the file that filled the disk; an operator then clears etcd's alarm.
        other.trim(1_000_000)
        cluster.etcd.members[0].defragment()
        cluster.mkdir("/after")
        assert cluster.names() == {"before", "after"}
        other.close()


@pytest.mark.evidence("etcd-member-dies")
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="a small disk needs root")
def test_etcd_whose_leader_dies_and_whose_next_leader_has_a_full_disk_goes_on(tmp_path: Path) -> None:
    # etcd preallocates two logs of 64 MiB.
    with failover_cluster(tmp_path, members=3, datanodes=1, last_disk_bytes=200 << 20) as cluster:
        first, _, last = members = cluster.etcd.members

        def lead(member: EtcdMember) -> None:
            next(each for each in members if each.leads()).hand_over(member)
            wait_until(member.leads, f"{member.name} of etcd leads")

        lead(first)
        with Writer(cluster) as writer:
            writer.wait_for(10)
            first.kill()
            writer.wait_for(10)
            first.start(cluster.etcd.cluster)
            cluster.etcd.until_healthy()
            lead(last)
            last.fill_disk()
            wait_until(last.has_ended, "etcd gives up where it cannot write")
            writer.wait_for(10)
            assert set(writer.stop()) <= cluster.names()


def fill(journal: EtcdJournal) -> None:
    for number in range(1, 1000):
        journal.append(1, number, bytes(1 << 20))
