"""Two coordinators with real etcd and datanodes, and a writer, with one fault after the other.

The writer's list of acknowledged changes determines what must exist.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from random import Random

import httpx
import pytest
from oracles.damaged_pages import DAMAGES
from support.etcd import EtcdMember
from support.failover_cluster import FailoverCluster, failover_cluster
from support.failover_writer import Writer
from support.long_runs import often
from support.one_way_relay import OneWayRelay
from support.waiting import wait_until

from peacefs.client.command_line.report import report_lines

pytestmark = pytest.mark.cluster
_NEEDS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a small disk needs root"
)


def until_pair(cluster: FailoverCluster) -> tuple[int, int]:
    """Wait until one leads and the other is a ready standby; return both, the leader first."""
    found: list[tuple[int, int]] = []

    def is_pair() -> bool:
        found.clear()
        for leader, other in ((0, 1), (1, 0)):
            if cluster.stands_by(other) and cluster.leads(leader) and is_warm(cluster, leader, other):
                found.append((leader, other))
        return bool(found)

    wait_until(is_pair, "one leads and the other is ready to")
    return found[0]


def is_warm(cluster: FailoverCluster, leader: int, other: int) -> bool:
    failover = cluster.status(leader)["failover"]
    assert isinstance(failover, dict)
    return any(
        each["is_warm"] and each["lag"] < 50
        for each in failover["coordinators"]
        if each["address"] == cluster.http[other]
    )


def answers_nothing(cluster: FailoverCluster, at: int) -> bool:
    """Check that nothing is answered without a leader, without waiting until held requests time out."""
    url = f"http://{cluster.http[at]}/webhdfs/v1/?op=LISTSTATUS&user.name=ann"
    try:
        return not httpx.get(url, timeout=2, trust_env=False, verify=False).is_success
    except httpx.HTTPError:
        return True


def is_shown(cluster: FailoverCluster, leader: int, other: int) -> bool:
    said = f"Coordinator {cluster.http[other]} did not start: {cluster.directory / f'coordinator-{other}'}"
    return any(line.startswith(said) for line in report_lines(cluster.status(leader)))


@pytest.mark.evidence("standby-dies")
@pytest.mark.evidence("etcd-majority-dies")
@pytest.mark.evidence("all-die-at-once")
@pytest.mark.evidence("standby-damaged")
def test_failover_after_deaths_of_everything_and_damage_of_a_standby(tmp_path: Path) -> None:
    seed = int(os.environ.get("PEACEFS_SEED") or Random().randrange(2**32))
    print(f"seed {seed}")
    random = Random(seed)
    with failover_cluster(tmp_path, members=3, datanodes=1) as cluster:
        members = cluster.etcd.members
        with Writer(cluster) as writer:
            for _ in range(often(1, 5)):
                # The standby dies, and nobody waits for it. It comes back and gets what it missed.
                leader, other = until_pair(cluster)
                cluster.coordinators[other].kill()
                writer.wait_for(20)
                assert cluster.leads(leader)
                cluster.coordinators[other].start()
                leader, other = until_pair(cluster)

                # Two of three members of etcd die: nothing is acknowledged until one is back.
                killed = random.sample(members, 2)
                for member in killed:
                    member.kill()
                wait_until(partial(answers_nothing, cluster, leader), "a leader without its lease answers nothing")
                for member in killed:
                    member.start(cluster.etcd.cluster)
                writer.wait_for(10)
                writer.check()

                # Everything dies at once.
                until_pair(cluster)
                everything = [*cluster.coordinators, *members, *cluster.datanodes]
                random.shuffle(everything)
                for each in everything:
                    each.kill()
                for each in everything:
                    if isinstance(each, EtcdMember):
                        each.start(cluster.etcd.cluster)
                    else:
                        each.start()
                writer.wait_for(10)
                writer.check()

                # The standby's image is damaged while it is down. It does not start, and the leader reports why.
                leader, other = until_pair(cluster)
                standby = cluster.coordinators[other]
                assert standby.stop() == 0, standby.log()
                place = tmp_path / f"coordinator-{other}"
                what = damage_until_it_is_noticed(cluster, other, random)
                wait_until(
                    partial(is_shown, cluster, leader, other),
                    f"the report names the damage: {what}",
                )

                # The directory is moved away, the metadata is copied from the leader, and then the leader dies.
                place.rename(tmp_path / f"damaged-{random.random()}")
                standby.start()
                leader, other = until_pair(cluster)
                cluster.coordinators[leader].kill()
                writer.wait_for(10)
                writer.check()
                cluster.coordinators[leader].start()
            writer.stop()
            writer.check()


def damage_until_it_is_noticed(cluster: FailoverCluster, other: int, random: Random) -> str:
    """Damage the image of a stopped coordinator until a start is refused. A page may contain no row."""
    image = cluster.directory / f"coordinator-{other}" / "metadata.sqlite"
    standby = cluster.coordinators[other]
    for _ in range(20):
        what = random.choice(DAMAGES[:3])(image, b"", random)
        standby.start()
        wait_until(lambda: standby.exit_status() is not None or cluster.stands_by(other), "it starts, or does not")
        if standby.exit_status() is not None:
            assert standby.exit_status() == 1, standby.log()
            return what
        standby.stop()
    pytest.fail("no damage was noticed")


@pytest.mark.evidence("journal-partition")
@pytest.mark.parametrize("way", ["from", "to"][: often(1, 2)])
@pytest.mark.long("waits for leases of etcd")
def test_failover_of_a_leader_that_etcd_does_not_hear_or_that_does_not_hear_etcd(tmp_path: Path, way: str) -> None:
    with failover_cluster(tmp_path, members=1, datanodes=1) as cluster:
        relay = OneWayRelay(cluster.etcd.members[0].endpoint)
        try:
            first = cluster.coordinators[0]
            first.stop()
            wait_until(lambda: cluster.leads(1), "the other one leads")
            behind = first.without("--journal").with_options(f"--journal=etcd://{relay.endpoint}")
            cluster.coordinators[0] = behind
            behind.start()
            until_pair(cluster)
            cluster.coordinators[1].stop()
            wait_until(lambda: cluster.leads(0), "the one behind the relay leads")
            cluster.coordinators[1].start()
            until_pair(cluster)
            with Writer(cluster) as writer:
                for number in range(often(1, 3)):
                    if number:
                        behind.start()
                        until_pair(cluster)
                        cluster.coordinators[1].stop()
                        wait_until(lambda: cluster.leads(0), "it leads again")
                        cluster.coordinators[1].start()
                        until_pair(cluster)
                    writer.wait_for(10)
                    relay.drops.add(way)
                    wait_until(partial(answers_nothing, cluster, 0), "it answers nothing while it is cut off")
                    wait_until(lambda: cluster.leads(1), "the other one leads")
                    writer.wait_for(10)
                    relay.drops.clear()
                    wait_until(lambda: behind.exit_status() is not None, "the one that was replaced ends")
                    assert behind.exit_status() in (74, 75), behind.log()
                writer.stop()
                writer.check()
        finally:
            for each in cluster.coordinators:
                each.kill()
            relay.close()


@_NEEDS_ROOT
@pytest.mark.evidence("coordinator-disk-full")
@pytest.mark.long("waits for leases of etcd")
def test_failover_between_coordinators_whose_disks_are_full(tmp_path: Path) -> None:
    with (
        failover_cluster(tmp_path, datanodes=1, standby_disk_bytes=128 << 20) as cluster,
        Writer(cluster) as writer,
    ):
        writer.wait_for(10)
        # A standby without disk space does not delay the leader. The log has preallocated a segment of 1 MiB.
        free = cluster.fill_disk(1)
        for number in range(often(0, 3000)):
            cluster.mkdir(f"/{number}-{'x' * 240}")
        writer.wait_for(10)
        free()
        until_pair(cluster)
        cluster.coordinators[0].kill()
        writer.wait_for(10)
        assert cluster.leads(1)
        # As the leader it refuses changes before they reach the journal, and answers reads.
        free = cluster.fill_disk(1)

        def is_refused() -> bool:
            url = f"http://{cluster.http[1]}/webhdfs/v1/refused?op=MKDIRS&user.name=ann"
            answer = httpx.put(url, timeout=60, trust_env=False, verify=False)
            return "RetriableException" in answer.text and "no room" in answer.text

        wait_until(is_refused, "changes are refused")
        assert cluster.leads(1)
        free()
        writer.wait_for(10)
        writer.stop()
        writer.check()
        assert "refused" not in cluster.names()
