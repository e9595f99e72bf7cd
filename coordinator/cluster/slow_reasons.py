"""Explain why a datanode is slow, from the measurements and what else is known of the datanode. Pure.

The first condition that is true gives the reason:

    its heartbeats are late                   the machine is held up
    its disk was found slow, and
      a disk does not work                    that disk
      a disk is nearly full                   that disk
      neither                                 the disk itself, or another program that writes to it
    it was found slow as a hop, and
      its disk is slow as well                the disk holds up the chunks that pass through
      only other racks measured slowness      the network between the racks
      neither                                 its network or its processor

A much higher load than on other datanodes is mentioned besides, because it may be the cause or the effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from peacefs.coordinator.limits import heartbeat_late_s
from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import DiskReport
from peacefs.protocol.values.cluster_status import SlowReason

from .core import Cluster
from .membership import Node
from .slow_peers import SlowEvidence, SlowPart, usual_s_max

# A disk this full counts as nearly full. A load of at least this many streams, and this multiple of the others'
# median, is mentioned.
slow_disk_full_share: Final = 0.95
slow_load_streams_min: Final = 8
slow_load_factor: Final = 3.0
slow_reporters_named_max: Final = 4


@dataclass(frozen=True, slots=True)
class _Cause:
    reason: str
    advice: str


def slow_reasons(cluster: Cluster, node: Node, now_s: float) -> list[SlowReason]:
    """Return a reason for each part of a datanode that counts as slow."""
    found = cluster.slow_peers.evidence(node.id)
    parts = {each.part for each in found}
    return [_reason(cluster, node, now_s, each, parts) for each in found]


def _reason(
    cluster: Cluster, node: Node, now_s: float, evidence: SlowEvidence, parts: set[SlowPart]
) -> SlowReason:
    cause = _held_up(node, now_s)
    if cause is None:
        cause = _at_disk(node) if evidence.part is SlowPart.DISK else _as_hop(cluster, node, evidence, parts)
    return SlowReason(
        part=evidence.part.value,
        seconds=round(evidence.seconds, 4),
        median=round(evidence.median, 4),
        compared=evidence.compared,
        chunks=sum(sample.chunks for sample in evidence.said.values()),
        measured_by=sorted(evidence.said)[:slow_reporters_named_max],
        since_s=round(max(0.0, now_s - evidence.since_s), 1),
        found_s=round(max(0.0, now_s - evidence.found_s), 1),
        reason=cause.reason + _load(cluster, node),
        advice=cause.advice,
    )


def _held_up(node: Node, now_s: float) -> _Cause | None:
    silent_s = now_s - node.heard_s
    if silent_s <= heartbeat_late_s:
        return None
    return _Cause(
        f"Its last heartbeat is {silent_s:.1f} s old: the machine, or its network, is held up.",
        f"Look at processor, memory and swap of {node.registration.data_host}, and at what else runs there.",
    )


def _load(cluster: Cluster, node: Node) -> str:
    others = [each.usage.streams for each in cluster.members.alive() if each is not node]
    streams, usual = node.usage.streams, median(others) if others else 0.0
    if not others or streams < max(slow_load_streams_min, slow_load_factor * usual):
        return ""
    return f" {streams} chunks are being written through it, through others {usual:g} in the median."


def _at_disk(node: Node) -> _Cause:
    ailing = next((disk for disk in node.disks if disk.state != "working"), None)
    if ailing is not None:
        return _Cause(
            f"Its disk {ailing.directory} is {ailing.state}: {ailing.fault or 'it gives no reason'}.",
            "See what is said of that disk.",
        )
    full = max(node.disks, key=_share, default=None)
    if full is not None and _share(full) >= slow_disk_full_share:
        return _Cause(
            f"Its disk {full.directory} is {_share(full):.0%} full, and nearly full disks write slowly.",
            "Free room on it, add a disk, or run `peacefs balance`.",
        )
    which = "Its disk" if len(node.disks) < 2 else f"One of its {len(node.disks)} disks"
    return _Cause(
        f"{which} takes long to write and to fsync, and nothing else that is known of it says why.",
        f"On {node.registration.data_host} look at the disk's own diagnosis (smartctl), at what else uses it "
        "(iostat), and run `peacefs doctor`, which measures its fsyncs.",
    )


def _share(disk: DiskReport) -> float:
    return disk.used_bytes / disk.capacity_bytes if disk.capacity_bytes else 0.0


def _as_hop(cluster: Cluster, node: Node, evidence: SlowEvidence, parts: set[SlowPart]) -> _Cause:
    if SlowPart.DISK in parts:
        return _Cause(
            "Its disk is slow, too, and holds up what passes through it.", "See what is said of its disk."
        )
    near, far = _by_rack(cluster, node, evidence)
    bearable_s = usual_s_max(evidence.median)
    if near and far and median(near) <= bearable_s < median(far):
        return _Cause(
            f"Datanodes of other racks wait for it, {median(far):.3f} s a MiB, those of its own rack do not, "
            f"{median(near):.3f}: the way between the racks is slow.",
            f"Look at the uplink of {node.rack} and its switch.",
        )
    own = cluster.slow_peers.measured[SlowPart.DISK].get(node.id)
    disk = "" if own is None else f"Its disk is not slow, {own:.3f} s a MiB: "
    rest = "what is slow is the way to it, or its processor."
    return _Cause(
        f"{disk}{rest if disk else rest.capitalize()}",
        f"On {node.registration.data_host} look at the network card, its cable and switch port (ethtool), and at "
        "what else runs there.",
    )


def _by_rack(cluster: Cluster, node: Node, evidence: SlowEvidence) -> tuple[Sequence[float], Sequence[float]]:
    """Return the seconds per MiB that datanodes in its own rack and in other racks have measured."""
    near, far = list[float](), list[float]()
    for reporter, sample in evidence.said.items():
        (near if _rack(cluster, reporter) == node.rack else far).append(sample.seconds)
    return near, far


def _rack(cluster: Cluster, node_id: NodeId) -> str | None:
    node = cluster.members.get(node_id)
    return None if node is None else node.rack
