"""`peacefs report`: its output for a status, and for a real cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.waiting import wait_until
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.command_line.report import report_lines
from peacefs.client.local_cluster.cluster import LocalCluster

GIB = 1 << 30


def datanode(node: str, state: str = "alive", used_bytes: int = GIB) -> dict[str, Any]:
    return {
        "node": node,
        "host": "10.0.0.1",
        "http_port": 9864,
        "data_port": 9866,
        "rack": "/rack-1",
        "state": state,
        "capacity_bytes": 4 * GIB,
        "used_bytes": used_bytes,
        "available_bytes": 4 * GIB - used_bytes,
        "replicas": 17,
        "service": "in service",
        "to_drain": 0,
        "slow": [],
        "hop_seconds": None,
        "disk_seconds": None,
        "disks": [],
    }


def status(*datanodes: dict[str, Any], ready: bool = True) -> dict[str, Any]:
    return {
        "cluster": "c1",
        "epoch": 3,
        "ready": ready,
        "address": "127.0.0.1:9870",
        "datanodes": list(datanodes),
        "chunks": {"total": 20, "under_replicated": 2, "missing": 1, "being_repaired": 1},
        "repaired_total": 5,
        "replicas_lost_total": 6,
        "metadata_room_bytes": GIB,
    }


def test_a_report_is_read_at_a_glance() -> None:
    shown = list(report_lines(status(datanode("dn-1"), datanode("dn-22", "dead", used_bytes=0))))
    assert shown == [
        "Cluster c1 at 127.0.0.1:9870, epoch 3: ready",
        "Capacity: 4294967296 (4 GB)",
        "Used: 1073741824 (1 GB) 25.0%",
        "Available: 3221225472 (3 GB)",
        "Chunks: 20",
        "Under-replicated chunks: 2, 1 being copied",
        "Missing chunks: 1",
        "Since the coordinator's start: 6 replicas lost, 5 copied",
        "Datanodes: 1 alive, 0 suspect, 1 dead",
        "",
        "DATANODE  ADDRESS        RACK     STATE  SERVICE     CAPACITY  USED  USED%  AVAILABLE  REPLICAS",
        "dn-1      10.0.0.1:9866  /rack-1  alive  in service       4 G   1 G  25.0%        3 G        17",
        "dn-22     10.0.0.1:9866  /rack-1  dead   in service       4 G     0   0.0%        4 G        17",
    ]


def test_slow_parts_are_said_below_the_table() -> None:
    slow = datanode("dn-1") | {"slow": ["hop", "disk"], "hop_seconds": 0.5, "disk_seconds": None}
    assert list(report_lines(status(slow, datanode("dn-2"))))[-2:] == [
        "Slow: dn-1 as a hop of pipelines: 0.500 s a MiB; new chunks avoid it where they can",
        "Slow: dn-1 at its disk; new chunks avoid it where they can",
    ]


def test_slow_parts_are_said_with_why_and_what_to_do() -> None:
    told = {"part": "disk", "seconds": 0.9, "median": 0.011, "compared": 6}
    why = {"reason": "Its disk takes long.", "advice": "Look at the disk."}
    slow = datanode("dn-1") | {"slow": ["disk"], "disk_seconds": None, "slow_reasons": [told | why]}
    assert list(report_lines(status(slow, datanode("dn-2"))))[-2:] == [
        "Slow: dn-1 at its disk: 0.900 s a MiB, the median of 6 datanodes is 0.011; "
        "new chunks avoid it where they can",
        "      Its disk takes long. Look at the disk.",
    ]


def test_disks_that_do_not_work_are_named() -> None:
    disks = [
        {"directory": f"/data/{at}", "state": state, "fault": fault, "replicas": 3}
        for at, (state, fault) in enumerate(
            [("working", ""), ("read-only", "it says no"), ("failed", "it is gone")]
        )
    ]
    assert list(report_lines(status(datanode("dn-1") | {"disks": disks})))[-2:] == [
        "Disk: /data/1 of dn-1 is read-only (it says no); its 3 replicas are still read",
        "Disk: /data/2 of dn-1 is failed (it is gone); what it held counts as lost",
    ]


@pytest.mark.evidence("disk-full")
def test_a_datanode_that_gets_no_new_chunks_for_want_of_room_is_named() -> None:
    roomy = datanode("dn-1")
    tight = datanode("dn-2") | {"available_bytes": 30 << 20}
    full = tight | {"disks": [{"directory": "/d", "state": "full", "fault": "0 are left", "replicas": 3}]}
    leaving, gone = tight | {"service": "decommissioning"}, tight | {"state": "dead"}
    shown = list(report_lines(status(roomy, tight, full, leaving, gone)))
    assert shown[-2:] == [
        "Disk: /d of dn-2 is full (0 are left); it takes nothing more in, its 3 replicas are read",
        "Room: dn-2 gets no new chunks: 30 M are left, and one may need 64 M",
    ]
    assert sum(line.startswith("Room:") for line in shown) == 1


@pytest.mark.evidence("coordinator-disk-full")
def test_coordinators_disk_that_fills_up_is_said() -> None:
    shown = list(report_lines(status() | {"metadata_room_bytes": 0}))
    assert "Coordinator's disk: 0 (0B) left; without any, nothing can be changed" in shown
    older = status()
    del older["metadata_room_bytes"]
    assert not any("Coordinator's disk" in line for line in report_lines(older)), "it does not say"


def test_a_cluster_without_datanodes_has_no_table() -> None:
    shown = list(report_lines(status(ready=False)))
    assert shown[0].endswith("waiting for its datanodes")
    assert shown[2] == "Used: 0 (0B) 0.0%"
    assert "Missing chunks: 1, for datanodes have still to say what they hold" in shown
    assert shown[-1] == "Datanodes: 0 alive, 0 suspect, 0 dead"


@pytest.mark.cluster
def test_a_real_cluster_reports(shared_cluster: LocalCluster) -> None:
    arguments = ["report", f"--coordinator={shared_cluster.http_address}"]

    def shown() -> list[str]:
        result = CliRunner().invoke(application, arguments)
        assert result.exit_code == 0
        return result.stdout.splitlines()

    # A heartbeat may be late on a busy machine.
    wait_until(lambda: "Datanodes: 3 alive, 0 suspect, 0 dead" in shown(), "all datanodes are alive")
    machine = json.loads(CliRunner().invoke(application, [*arguments, "--json"]).stdout)
    assert {each["node"] for each in machine["datanodes"]} == {
        member.readiness.node for member in shared_cluster.datanodes
    }
