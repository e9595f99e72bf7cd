"""The view of the scheduler: write sets that wait and why, pipelines in use, and a time line of grants. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from peacefs.coordinator.limits import grant_history_max, grant_history_s
from peacefs.coordinator.scheduling.grant_history import EndedGrant
from peacefs.coordinator.scheduling.write_sets import InFlight
from peacefs.protocol.ids import NodeId
from peacefs.protocol.values.schedule import QueuedSet, Recurrences, Schedule
from peacefs.topology.network_view import NetworkView


class Waiting(msgspec.Struct, frozen=True):
    """Why a write set waits, and in how many seconds its last waiting chunk may be written."""

    write_set: str
    why: str
    expected_end_s: float


class Span(msgspec.Struct, frozen=True):
    """A grant on the time line. Times are seconds before now; `to_s` is None while the grant is in flight.

    `bytes` is 0 if the write failed.
    """

    number: int
    write_set: str
    nodes: list[NodeId]
    from_s: float
    to_s: float | None
    bytes: int


class PeaceView(msgspec.Struct, frozen=True):
    """Everything that the page shows of the scheduler. `waiting` has the order of the schedule's queue."""

    schedule: Schedule
    network: NetworkView
    #: Datanodes with a free slot, by the policy's count.
    with_room: list[NodeId]
    waiting: list[Waiting]
    spans: list[Span]
    span_s: float = grant_history_s
    recurrences: Recurrences = Recurrences(0, None, [])


def peace_view(
    now_s: float,
    schedule: Schedule,
    network: NetworkView,
    has_room: Callable[[NodeId], bool],
    in_flight: Iterable[InFlight],
    ended: Sequence[EndedGrant],
) -> PeaceView:
    """Return the view. `schedule` and `network` are the answers of `/v1/schedule` and `/v1/topology`."""
    spans = [
        Span(
            each.number,
            each.write_set,
            list(each.nodes),
            round(now_s - each.granted_s, 1),
            round(now_s - each.ended_s, 1),
            each.length,
        )
        for each in ended
    ]
    spans += [
        Span(
            each.number, each.write_set, list(each.nodes), round(now_s - each.granted_s, 1), None, each.chunk_bytes
        )
        for each in in_flight
    ]
    with_room = [each.server for each in network.servers if has_room(each.server)]
    waiting = [
        Waiting(each.write_set, why_it_waits(place, each, network, len(with_room)), expected_end_s(each, schedule))
        for place, each in enumerate(schedule.queue)
    ]
    return PeaceView(schedule, network, with_room, waiting, spans[-grant_history_max:])


def expected_end_s(queued: QueuedSet, schedule: Schedule) -> float:
    """Estimate when a set is done: its first chunk at the expected start, the others at the current pace."""
    at_once = max(1, schedule.grants_in_flight)
    rounds = 1 + max(0, queued.chunks_waiting - 1) / at_once
    return round(queued.expected_start_s + rounds * schedule.waiting_times.chunk_s, 1)


def why_it_waits(place: int, queued: QueuedSet, network: NetworkView, with_room: int) -> str:
    """Explain why a set waits, as far as the queue and the number of datanodes with room show."""
    if not network.servers:
        return "no datanode that could take it is alive"
    if len(network.servers) < queued.replication:
        return (
            f"it needs {_datanodes(queued.replication)} at once, and there {_are(len(network.servers))} "
            f"{len(network.servers)}"
        )
    if with_room < queued.replication:
        return (
            f"{with_room} of {_datanodes(len(network.servers))} have a slot free, and a chunk of it needs "
            f"{queued.replication}"
        )
    if queued.chunks_in_flight:
        return (
            f"{queued.chunks_in_flight} of its chunks are being written; the links on its ways are taken by them"
        )
    if place:
        return f"{place} {'set' if place == 1 else 'sets'} asked before it, and links on its ways are taken"
    return "the links between its writer and the datanodes with a free slot are taken"


def _datanodes(number: int) -> str:
    return f"{number} {'datanode' if number == 1 else 'datanodes'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
