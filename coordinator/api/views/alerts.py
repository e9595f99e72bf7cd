"""Alerts: what is wrong with the cluster, and what to do about it, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from peacefs.protocol.limits import chunk_bytes_max, metadata_room_low_bytes
from peacefs.protocol.values.cluster_status import ClusterStatus, DatanodeStatus, FailoverStatus, SlowReason


class Level(StrEnum):
    """The urgency of an alert, the worst first."""

    #: Data cannot be read, or nothing can be changed.
    CRITICAL = "critical"
    #: Something is broken, but the cluster compensates for it.
    WARNING = "warning"
    #: An operator wanted it, or it ends by itself.
    NOTICE = "notice"


class Alert(msgspec.Struct, frozen=True):
    """A problem. `about` is the datanode concerned, or empty if it concerns the whole cluster."""

    level: Level
    text: str
    advice: str
    about: str = ""


def alerts_of(status: ClusterStatus) -> list[Alert]:
    """Return all alerts, the worst first."""
    found = [*_of_metadata(status), *_of_chunks(status), *_of_failover(status.failover)]
    for datanode in status.datanodes:
        found += _of_datanode(datanode)
    order = list(Level)
    return sorted(found, key=lambda alert: order.index(alert.level))


def _of_metadata(status: ClusterStatus) -> Iterator[Alert]:
    if status.commits_missing:
        yield Alert(
            Level.CRITICAL,
            "Acknowledged changes of the metadata are missing. Names can be read and not changed.",
            "Restore a backup (`peacefs metadata restore`), or accept the loss (`peacefs metadata accept-loss`).",
        )
    room = status.metadata_room_bytes
    if room <= 0:
        yield Alert(
            Level.CRITICAL,
            "The coordinator's disk is full: names can be read, and nothing can be changed.",
            "Free some room on the disk of its directory; it goes on by itself.",
        )
    elif room < metadata_room_low_bytes:
        yield Alert(
            Level.WARNING,
            f"The coordinator's disk has {_mebibytes(room)} left.",
            "Free some room on the disk of its directory; without any, nothing can be changed.",
        )
    if status.unreferenced.floor_held:
        yield Alert(
            Level.NOTICE,
            "The metadata was restored from a backup, and no garbage is deleted since.",
            "Look whether all files are there, then let garbage go with `peacefs metadata release-floor`.",
        )


def _of_chunks(status: ClusterStatus) -> Iterator[Alert]:
    chunks, standing_by = status.chunks, status.failover is not None and not status.failover.leads
    if not status.ready and not standing_by:
        alive = sum(each.state == "alive" for each in status.datanodes)
        yield Alert(
            Level.WARNING,
            f"The coordinator waits for its datanodes, {alive} of which are here. Some files may be unavailable.",
            "Start datanodes that are not running. It goes on without the rest after a while.",
        )
    elif chunks.missing and not standing_by:
        yield Alert(
            Level.CRITICAL,
            f"{_count(chunks.missing, 'chunk')} without a good replica on any datanode that is here.",
            "Start the datanodes that are dead; `peacefs fsck /` names the files.",
        )
    if chunks.under_replicated and status.ready:
        under_way = chunks.being_repaired
        yield Alert(
            Level.WARNING,
            f"{_count(chunks.under_replicated, 'chunk')} with fewer replicas than wanted; "
            f"{_count(under_way, 'copy', 'copies')} under way.",
            "Nothing is to be done while copies go on."
            if under_way
            else "Copies begin within seconds. If none does, add datanodes, or room on those that there are.",
        )


def _of_failover(failover: FailoverStatus | None) -> Iterator[Alert]:
    if failover is None:
        return
    if not failover.leader:
        yield Alert(
            Level.CRITICAL,
            "No coordinator leads at this moment.",
            "Wait some seconds; then look whether etcd is there and coordinators are running.",
        )
    for each in failover.coordinators:
        if each.problem:
            yield Alert(Level.WARNING, f"The coordinator {each.address} did not start.", _sentence(each.problem))
    standbys = [each for each in failover.coordinators if not each.leads and not each.problem]
    if failover.leader and not standbys:
        yield Alert(
            Level.WARNING,
            "There is no standby: if this coordinator dies, nobody leads.",
            "Start another `peacefs coordinator` with the same journal.",
        )
    for each in standbys:
        if not each.is_warm:
            yield Alert(
                Level.NOTICE,
                f"The standby {each.address} is not ready to lead yet; it is {each.lag} entries behind.",
                "Wait: it is reading the metadata.",
            )


def _sentence(text: str) -> str:
    """Return a problem as a sentence."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _of_datanode(node: DatanodeStatus) -> Iterator[Alert]:
    name = node.node
    if node.state == "dead" and node.service == "in service":
        yield Alert(
            Level.WARNING,
            f"Datanode {name} is dead. What it held is copied from other replicas.",
            f"Start it again on {node.host}, or look there why it cannot be reached.",
            name,
        )
    elif node.state == "suspect":
        yield Alert(
            Level.WARNING,
            f"Datanode {name} has been silent for some seconds; it gets no new chunks.",
            f"Wait a few seconds. If it stays away, look at {node.host}.",
            name,
        )
    for disk in node.disks:
        if disk.state != "working":
            yield Alert(
                Level.WARNING,
                f"Disk {disk.directory} of {name} is {disk.state}: {disk.fault or 'it gives no reason'}.",
                _DISK_ADVICE.get(disk.state, "Replace it, then start the datanode again."),
                name,
            )
    for found in node.slow_reasons:
        yield _slowness(node, found)
    is_taking = node.state == "alive" and node.service == "in service"
    if is_taking and node.available_bytes < chunk_bytes_max and all(d.state == "working" for d in node.disks):
        yield Alert(
            Level.WARNING,
            f"Datanode {name} gets no new chunks: {_mebibytes(node.available_bytes)} are left.",
            "Free room on its disks, add a disk, or run `peacefs balance`.",
            name,
        )
    if node.without_a_place:
        yield Alert(
            Level.WARNING,
            f"Datanode {name} cannot leave: {_count(node.without_a_place, 'chunk')} with more replicas wanted "
            "than there are datanodes that stay.",
            "Add datanodes, or lower the replication of those files.",
            name,
        )
    elif node.service != "in service":
        rest = f"; {_count(node.to_drain, 'chunk')} still to be copied" if node.to_drain else ""
        yield Alert(
            Level.NOTICE,
            f"Datanode {name} is {node.service}{rest}.",
            f"`peacefs datanodes recommission {name}` takes it back.",
            name,
        )


_DISK_ADVICE = {
    "full": "Free room on it, or add a disk. Its replicas are read meanwhile.",
    "read-only": "Look at the machine's log, and mount it for writing again. Its replicas are read meanwhile.",
    "failed": "Replace it, then start the datanode again. What it held counts as lost and is copied.",
}


def _slowness(node: DatanodeStatus, found: SlowReason) -> Alert:
    where = "as a hop of pipelines" if found.part == "hop" else "at its disk"
    return Alert(
        Level.WARNING,
        f"Datanode {node.node} is slow {where}: {found.seconds:.3f} s a MiB, the median of {found.compared} "
        f"datanodes is {found.median:.3f}. {found.reason} New chunks avoid it where they can.",
        found.advice,
        node.node,
    )


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _mebibytes(number: int) -> str:
    return f"{number / (1 << 20):.1f} MiB"
