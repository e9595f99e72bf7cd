"""Restrict views to what a viewer may see: only superusers see hosts, disks and other users' writes. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from msgspec import structs

from peacefs.coordinator.operations.viewer import Viewer
from peacefs.protocol.values.cluster_status import ClusterStatus, DatanodeStatus
from peacefs.protocol.values.schedule import Schedule
from peacefs.topology.network_view import NetworkView

from .peace import PeaceView


def visible_status(status: ClusterStatus, viewer: Viewer) -> ClusterStatus:
    """Return the status, for ordinary users without hosts, disks and reasons of slowness."""
    if viewer.sees_all:
        return status
    return replace(status, datanodes=[_without_places(each) for each in status.datanodes])


def _without_places(datanode: DatanodeStatus) -> DatanodeStatus:
    return replace(datanode, host="", http_port=0, data_port=0, disks=[], slow_reasons=[])


def visible_network(network: NetworkView, viewer: Viewer) -> NetworkView:
    """Return the network, for ordinary users without hosts."""
    if viewer.sees_all:
        return network
    return replace(network, servers=[replace(each, host="", data_port=0) for each in network.servers])


def visible_schedule(schedule: Schedule, own_sets: Set[str], viewer: Viewer) -> Schedule:
    """Return the schedule, for ordinary users with only their own write sets in queue and grants."""
    if viewer.sees_all:
        return schedule
    return replace(
        schedule,
        queue=[each for each in schedule.queue if each.write_set in own_sets],
        grants=[each for each in schedule.grants if each.write_set in own_sets],
    )


def visible_peace(view: PeaceView, own_sets: Set[str], viewer: Viewer) -> PeaceView:
    """Return the view of the scheduler, for ordinary users with only their own write sets."""
    if viewer.sees_all:
        return view
    return structs.replace(
        view,
        schedule=visible_schedule(view.schedule, own_sets, viewer),
        network=visible_network(view.network, viewer),
        waiting=[each for each in view.waiting if each.write_set in own_sets],
        spans=[each for each in view.spans if each.write_set in own_sets],
    )
