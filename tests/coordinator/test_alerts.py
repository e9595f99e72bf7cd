"""Alerts of the web page say what is wrong and what to do, the worst first; a healthy cluster has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peacefs.coordinator.api.views.alerts import Level, alerts_of
from peacefs.protocol.limits import MIB
from peacefs.protocol.values.cluster_status import (
    ChunkCounts,
    ClusterStatus,
    CoordinatorStatus,
    DatanodeStatus,
    DiskStatus,
    FailoverStatus,
    SlowReason,
    UnreferencedStatus,
)

_DISK = DiskStatus("/data", "working", "", 1 << 40, 1 << 30, 7)
_NODE = DatanodeStatus(
    node="n1",
    host="one.example",
    http_port=1,
    data_port=2,
    rack="/rack-1",
    state="alive",
    capacity_bytes=1 << 40,
    used_bytes=1 << 30,
    available_bytes=1 << 39,
    replicas=7,
    service="in service",
    to_drain=0,
    without_a_place=0,
    slow=[],
    hop_seconds=None,
    disk_seconds=None,
    disks=[_DISK],
)
_SLOW = SlowReason("hop", 0.5, 0.01, 6, 27, ["n2"], 40.0, 3.0, "The way to it is long.", "Shorten it.")
_UNREFERENCED = UnreferencedStatus(0, 0, 0, 0, 0, False)
_WELL = ClusterStatus(
    cluster="c",
    epoch=1,
    ready=True,
    address="here:1",
    datanodes=[_NODE],
    chunks=ChunkCounts(total=7, under_replicated=0, missing=0, being_repaired=0),
    unreferenced=_UNREFERENCED,
    unclaimed=_UNREFERENCED,
    repaired_total=0,
    replicas_lost_total=0,
    metadata_room_bytes=1 << 39,
    commits_missing=False,
)
_STANDBY = CoordinatorStatus("b:1", leads=False, applied=90, lag=10, is_warm=True)
_LEADER = CoordinatorStatus("a:1", True, 100, 0, True)
_FAILOVER = FailoverStatus(True, "a:1", 100, 1000, 0, [_LEADER, _STANDBY])


def with_node(**changes: Any) -> ClusterStatus:
    return replace(_WELL, datanodes=[replace(_NODE, **changes)])


def with_chunks(**changes: Any) -> ClusterStatus:
    return replace(_WELL, chunks=replace(_WELL.chunks, **changes))


def test_alerts_of_a_well_cluster_are_none() -> None:
    assert alerts_of(_WELL) == []
    assert alerts_of(replace(_WELL, failover=_FAILOVER)) == []


@pytest.mark.parametrize(
    ("status", "level", "said", "advised"),
    [
        (
            replace(_WELL, commits_missing=True),
            Level.CRITICAL,
            "changes of the metadata are missing",
            "accept-loss",
        ),
        (replace(_WELL, metadata_room_bytes=0), Level.CRITICAL, "disk is full", "Free some room"),
        (replace(_WELL, metadata_room_bytes=MIB), Level.WARNING, "1.0 MiB left", "Free some room"),
        (
            replace(_WELL, unreferenced=replace(_UNREFERENCED, floor_held=True)),
            Level.NOTICE,
            "restored from a backup",
            "release-floor",
        ),
        (replace(_WELL, ready=False), Level.WARNING, "waits for its datanodes, 1 of which are here", "Start"),
        (with_chunks(missing=1), Level.CRITICAL, "1 chunk without a good replica", "fsck"),
        (with_chunks(under_replicated=3, being_repaired=1), Level.WARNING, "1 copy under way", "Nothing"),
        (with_chunks(under_replicated=3), Level.WARNING, "0 copies under way", "add datanodes"),
        (with_node(state="dead"), Level.WARNING, "n1 is dead", "Start it again on one.example"),
        (with_node(state="suspect"), Level.WARNING, "silent", "Wait"),
        (
            with_node(disks=[replace(_DISK, state="failed", fault="Input/output error")]),
            Level.WARNING,
            "/data of n1 is failed: Input/output error",
            "Replace it",
        ),
        (with_node(disks=[replace(_DISK, state="full")]), Level.WARNING, "n1 is full", "add a disk"),
        (
            with_node(slow=["hop"], slow_reasons=[_SLOW]),
            Level.WARNING,
            "hop of pipelines: 0.500 s a MiB, the median of 6 datanodes is 0.010. The way to it is long.",
            "Shorten it.",
        ),
        (
            with_node(slow=["disk"], slow_reasons=[replace(_SLOW, part="disk")]),
            Level.WARNING,
            "slow at its disk",
            "Shorten it.",
        ),
        (with_node(available_bytes=MIB), Level.WARNING, "gets no new chunks", "peacefs balance"),
        (with_node(service="decommissioning", to_drain=4), Level.NOTICE, "4 chunks still", "recommission n1"),
        (
            with_node(service="decommissioning", to_drain=4, without_a_place=2),
            Level.WARNING,
            "cannot leave: 2 chunks",
            "Add datanodes",
        ),
        (
            replace(_WELL, failover=replace(_FAILOVER, leader="", leads=False)),
            Level.CRITICAL,
            "No coordinator leads",
            "etcd",
        ),
        (
            replace(_WELL, failover=replace(_FAILOVER, coordinators=_FAILOVER.coordinators[:1])),
            Level.WARNING,
            "no standby",
            "Start another",
        ),
        (
            replace(
                _WELL,
                failover=replace(
                    _FAILOVER, coordinators=[_LEADER, _STANDBY, replace(_STANDBY, problem="it differs")]
                ),
            ),
            Level.WARNING,
            "The coordinator b:1 did not start.",
            "It differs.",
        ),
        (
            replace(_WELL, failover=replace(_FAILOVER, coordinators=[replace(_STANDBY, is_warm=False)])),
            Level.NOTICE,
            "10 entries behind",
            "Wait",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_alert_says_what_is_wrong_and_what_to_do(
    status: ClusterStatus, level: Level, said: str, advised: str
) -> None:
    (alert,) = alerts_of(status)
    assert alert.level is level
    assert said in alert.text
    assert advised in alert.advice


def test_alerts_begin_with_the_worst() -> None:
    status = replace(
        with_node(state="dead"), metadata_room_bytes=0, unreferenced=replace(_UNREFERENCED, floor_held=True)
    )
    assert [alert.level for alert in alerts_of(status)] == list(Level)


def test_alert_of_a_standby_is_not_that_it_waits_for_datanodes() -> None:
    """Datanodes report their replicas only to the leader."""
    standing_by = replace(_WELL, ready=False, failover=replace(_FAILOVER, leads=False))
    assert alerts_of(standing_by) == []
