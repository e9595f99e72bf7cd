"""Tasks of an operator: each line of docs/operating.md is run on a cluster of processes, with its promised effect.

Here `systemctl` starts, stops and reloads processes; paths and addresses of the page are replaced by the
cluster's.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from services.extra_datanode import extra_datanode
from support import checkpoints as made
from support.pages import ROOT, Page
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

_PAGE = Page(ROOT / "docs" / "operating.md")
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def sections() -> dict[str, list[str]]:
    """Return the command lines by task."""
    found = {title: "".join(_BLOCK.findall(body)).splitlines() for title, body in _SECTION.findall(_PAGE.text)}
    return {title: lines for title, lines in found.items() if lines}


class Site:
    """A cluster and one more machine, whose datanode has two disks and is a systemd service."""

    def __init__(self, directory: Path, cluster: LocalCluster, files: PeaceFileSystem) -> None:
        self.directory, self.cluster, self.files = directory, cluster, files
        self.disks = [directory / "disk-1", directory / "disk-2"]
        self.ran: list[str] = []
        self._machine = ExitStack()
        #: The value of NODE on the page.
        self.node = ""

    def run(self, line: str, status: int = 0) -> str:
        """Run the next line of the page; return its output."""
        self.ran.append(line)
        words = line.replace("NODE", self.node or "NODE")
        for theirs, ours in {
            "/etc/peacefs/cluster.secret": str(self.cluster.secret_file),
            "/var/lib/peacefs/coordinator": str(self.cluster.directory / "coordinator"),
        }.items():
            words = words.replace(theirs, ours)
        program, *rest = words.split()
        if program == "systemctl":
            self._systemctl(*rest)
            return ""
        shell = ["bash", "-o", "pipefail", "-c", words]
        command = [sys.executable, "-P", "-m", "peacefs", *rest] if program == "peacefs" else shell
        environment = {**os.environ, "PEACEFS_URL": self.cluster.http_address}
        done = subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == status, f"{line}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def _systemctl(self, verb: str, *units: str) -> None:
        named = [unit for unit in units if unit.startswith("peacefs-")]
        assert all((ROOT / "deploy" / "systemd" / f"{unit}.service").exists() for unit in named)
        for unit in named:
            if verb == "reload":
                of_unit = [self.cluster.coordinator] if unit.endswith("coordinator") else self.cluster.datanodes
                for member in of_unit:
                    os.kill(member.pid, signal.SIGHUP)
            elif unit.endswith("coordinator"):
                self._coordinator(verb)
            else:
                self.datanode(verb)

    def _coordinator(self, verb: str) -> None:
        if verb == "stop":
            self.cluster.coordinator.terminate()
            wait_until(lambda: not self.cluster.coordinator.alive, "the coordinator has stopped")
        else:
            assert verb == "start"
            self.cluster.restart(self.cluster.coordinator)

    def datanode(self, verb: str) -> None:
        if verb in ("stop", "restart", "disable"):
            self._machine.close()
        if verb in ("start", "restart", "enable"):
            before = {each["node"] for each in self.datanodes()}
            self._machine.enter_context(extra_datanode(self.cluster, self.directory / "home", *self.disks))
            self.node = self.node or next(each["node"] for each in self.datanodes() if each["node"] not in before)

    def datanodes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.files.cluster_status()["datanodes"]
        return found

    def own(self) -> dict[str, Any]:
        """Return the status of the machine's datanode."""
        return next(each for each in self.datanodes() if each["node"] == self.node)

    def write(self, count: int = 12, replication: int = 2) -> None:
        for number in range(count):
            self.files.write(f"/data/{number}", os.urandom(200_000), replication=replication, overwrite=True)

    def is_whole(self) -> bool:
        chunks = self.files.cluster_status()["chunks"]
        return not chunks["under_replicated"] and not chunks["missing"]

    def close(self) -> None:
        self._machine.close()


def add(site: Site, lines: list[str]) -> None:
    site.write()
    enable, report, balance = lines
    site.run(enable)
    assert site.node in site.run(report) and site.own()["state"] == "alive"
    site.run(balance)
    site.write(4, replication=3)
    wait_until(lambda: sum(disk["replicas"] for disk in site.own()["disks"]) >= 4, "it takes new chunks")


def restart(site: Site, lines: list[str]) -> None:
    site.datanode("start")
    site.write(replication=3)
    maintenance, again, recommission, report = lines
    site.run(maintenance)
    assert site.own()["service"] in ("entering maintenance", "in maintenance")
    site.run(again)
    site.run(recommission)
    assert "Datanodes: 3 alive" in site.run(report)
    wait_until(site.is_whole, "nothing is under-replicated")


def take_out(site: Site, lines: list[str]) -> None:
    site.datanode("start")
    site.write()
    decommission, listing, disable, forget = lines
    site.run(decommission)
    wait_until(lambda: site.own()["service"] == "decommissioned", "all that it held is elsewhere")
    assert "decommissioned" in site.run(listing)
    site.run(disable)
    wait_until(lambda: site.own()["state"] == "dead", "it is away")
    site.run(forget)
    assert site.is_whole()


def replace_disk(site: Site, lines: list[str]) -> None:
    site.datanode("start")
    site.write(24)
    report, stop, start, balance, fsck = lines
    site.datanode("stop")
    shutil.rmtree(site.disks[1])
    site.disks[1].mkdir(mode=0o700)
    # The kernel answers EIO to readers, because nothing is mapped at its start.
    (site.disks[1] / "identity.json").symlink_to("/proc/self/mem")
    site.datanode("start")
    wait_until(lambda: any(disk["state"] == "failed" for disk in site.own()["disks"]), "the disk has failed")
    assert f"Disk: {site.disks[1]} of {site.node} is failed" in site.run(report)
    site.run(stop)
    (site.disks[1] / "identity.json").unlink()
    site.run(start)
    wait_until(
        lambda: [disk["state"] for disk in site.own()["disks"]] == ["working", "working"], "the new one works"
    )
    wait_until(site.is_whole, "what the disk held was copied from others")
    site.run(balance)
    assert "HEALTHY" in site.run(fsck)


def back_up(site: Site, lines: list[str]) -> None:
    (backup,) = lines
    site.write()
    site.run(backup)
    assert (site.directory / "names.backup").stat().st_size > 0


def restore(site: Site, lines: list[str]) -> None:
    stop, put_back, check, start, fsck, release = lines
    site.write()
    backup = Site(site.directory, site.cluster, site.files)
    backup.run(sections()["Back up the coordinator"][0])
    site.run(stop)
    site.run(put_back)
    site.run(check)
    site.run(start)
    wait_until(lambda: bool(site.files.cluster_status()["ready"]), "it has heard its datanodes")
    assert "HEALTHY" in site.run(fsck)
    assert site.files.cluster_status()["unreferenced"]["floor_held"]
    site.run(release)
    assert not site.files.cluster_status()["unreferenced"]["floor_held"]


def roll_back(site: Site, lines: list[str]) -> None:
    for path, data in made.checkpoint(root="/checkpoints/orders").files.items():
        site.files.write(path, data)
    verify, rollback, ancestry, fork = lines
    assert "7" in site.run(verify)
    assert "batch 6 is the latest, before it was 7" in site.run(rollback)
    assert "/checkpoints/orders: rollback from batch 7 to 6" in site.run(ancestry)
    site.run(fork)
    assert site.files.exists("/checkpoints/trial/commits/6")


def replace_secret(site: Site, lines: list[str]) -> None:
    site.write(2)
    before = site.cluster.secret_file.read_text().splitlines()
    for line in lines:
        site.run(line)
        site.write(2)
    after = site.cluster.secret_file.read_text().splitlines()
    assert len(before) == len(after) == 1 and before != after
    assert site.cluster.secret_file.stat().st_mode & 0o077 == 0
    # A datanode with only the new secret is accepted, and the earlier ones still serve.
    site.datanode("start")
    site.write(4, replication=3)


def certify(site: Site, lines: list[str]) -> None:
    create, show = lines
    site.run(create)
    assert "node1" in site.run(show) and (site.directory / "certificates" / "namenode.pem").exists()


def let_spark_write(site: Site, lines: list[str]) -> None:
    conf, mkdir = lines
    assert "spark.sql.streaming" in site.run(conf)
    site.run(mkdir)
    assert site.files.status("/checkpoints").is_directory


_STORIES: dict[str, Callable[[Site, list[str]], None]] = {
    "Add a datanode": add,
    "Restart a datanode or its machine": restart,
    "Take a datanode out": take_out,
    "Replace a disk": replace_disk,
    "Back up the coordinator": back_up,
    "Restore the coordinator": restore,
    "Bring a query back to an earlier batch": roll_back,
    "Replace the secret": replace_secret,
    "Make certificates": certify,
    "Let Spark write there": let_spark_write,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("operated"), datanodes=2, port=0) as cluster:
        yield cluster


@pytest.fixture
def site(tmp_path: Path, cluster: LocalCluster) -> Iterator[Site]:
    """Yield a machine for each task. After its death, no chunk in the cluster lacks replicas."""
    with PeaceFileSystem(cluster.http_address) as files:
        site = Site(tmp_path, cluster, files)
        yield site
        for each in files.list("/"):
            files.delete(each.path, recursive=True)
        site.close()


@pytest.mark.parametrize("task", sections())
def test_operator_does_what_the_page_says_line_by_line(task: str, site: Site) -> None:
    lines = sections()[task]
    _STORIES[task](site, lines)
    assert site.ran == lines


def test_operator_finds_what_each_alert_asks_for() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    rows = [line for line in _PAGE.text.splitlines() if line.startswith("| `Peacefs")]
    assert {name for row in rows for name in re.findall(r"`(Peacefs\w+)`", row)} == alerts
