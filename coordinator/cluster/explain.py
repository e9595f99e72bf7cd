"""Explain a chunk: the states of its replicas, what is pending, and recent events, like dask's `story`. Pure.

Says nothing about files: `operations/chunk_explanation` adds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from peacefs.coordinator.limits import freed_chunks_kept_s, unconfirmed_replica_kept_s
from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.protocol.ids import ChunkId, NodeId, show
from peacefs.protocol.values.chunk_explanation import (
    ChunkEvent,
    ChunkExplanation,
    ChunkStanding,
    Pending,
    PendingKind,
    ReplicaExplanation,
)

from .core import Cluster
from .health import HealthCheck
from .replica_history import Happened
from .replica_states import TRANSITIONS, ReplicaEvent, ReplicaState

_E = ReplicaEvent
_TEXTS: Final = {
    _E.REPORTED: "the datanode reported it",
    _E.REPORTED_UNREFERENCED: "the datanode reported it while no file referred to the chunk",
    _E.REPORTED_FREED: "the datanode reported it after its file was deleted or replaced",
    _E.REPORTED_NEWER: "the datanode reported a newer version, which belongs to no file yet",
    _E.MISMATCHED: "the datanode reported another version or length, and was told to delete that",
    _E.ATTESTED: "a receipt, or the source of a copy, says that the datanode has it",
    _E.REFERENCED: "a file that refers to it was completed, or loaded at the start",
    _E.DEREFERENCED: "the last file that referred to it was deleted or replaced",
    _E.REMOVED: "the datanode reported that it is gone",
    _E.FOUND_CORRUPT: "the datanode found that it does not match its checksums",
    _E.OVERDUE: "the datanode did not confirm it in time",
    _E.NODE_LOST: "the datanode died, was revoked or started anew",
    _E.NODE_AWAY: "the datanode went down for maintenance",
    _E.NODE_GIVEN_UP: "the datanode is not waited for any more",
    _E.EXPECTED: "the datanode was down for maintenance when the coordinator started",
    _E.SWEPT: "what a lost datanode had was taken out of the lists",
    _E.ABANDONED: "its writer gave the chunk up; the datanode was told to delete it",
    _E.GARBAGE: "it was below the GC floor and nobody kept it; the datanode was told to delete it",
    _E.RELEASED: "nobody can be reading it any more; the datanode was told to delete it",
    _E.EXCESS: "others have shown that they hold the same; the datanode was told to delete it",
    _E.LAPSED: "the datanode did not confirm the deletion in time",
    _E.COPY_ORDERED: "a copy to the datanode was ordered",
    _E.COPY_FAILED: "the copy to the datanode failed",
}
_LISTED: Final = "the datanode listed it when it registered"
_NOT_REMEMBERED: Final = "what brought it there is not remembered"


class Explainer:
    """Explains chunks from the state of a `Cluster` at one moment. `operations/chunk_explanation` calls it."""

    def __init__(self, cluster: Cluster, now_s: float) -> None:
        self._cluster = cluster
        self._now_s = now_s

    def explain(self, chunk: ChunkId, record: ChunkRecord | None) -> ChunkExplanation | None:
        """Explain a chunk; `record` is its record in the namespace. Return None if nothing is known of it."""
        replicas, story = self._cluster.replicas.of(chunk), self._cluster.history.story(chunk)
        standing = self._standing(chunk, record)
        if standing is ChunkStanding.UNREFERENCED and not replicas and not story:
            return None
        judgement = HealthCheck(self._cluster).file("", 0, 0)
        if self._cluster.chunks.get(chunk) is not None:
            HealthCheck(self._cluster).add(judgement, [chunk])
        return ChunkExplanation(
            chunk=show(chunk),
            standing=standing,
            version=None if record is None else show(record.version),
            length=None if record is None else record.length,
            replication=None if record is None else record.replication,
            findings=judgement.findings.findings,
            replicas=[self._replica(node, state, story) for node, state in sorted(replicas.items())],
            pending=list(self._pending(chunk, replicas)),
            history=[
                ChunkEvent(self._ago_s(each.at_s), each.node, each.event.name.lower(), _TEXTS[each.event])
                for each in story
            ],
        )

    def _standing(self, chunk: ChunkId, record: ChunkRecord | None) -> ChunkStanding:
        if record is not None:
            return ChunkStanding.REFERENCED
        if self._cluster.transient.freed_s(chunk) is not None or self._cluster.chunks.get(chunk) is not None:
            return ChunkStanding.FREED
        if chunk in self._cluster.assignments:
            return ChunkStanding.ABANDONED
        if chunk in self._cluster.chunks_being_written or chunk in self._cluster.granted_pipelines():
            return ChunkStanding.BEING_WRITTEN
        return ChunkStanding.UNREFERENCED

    # -- replicas ----------------------------------------------------------------------------------

    def _replica(self, node: NodeId, state: ReplicaState, story: list[Happened]) -> ReplicaExplanation:
        found = self._cluster.members.get(node)
        datanode = "not registered" if found is None else found.state.value
        cause = self._cause(node, state, story)
        if cause is not None:
            return ReplicaExplanation(node, _name(state), datanode, _TEXTS[cause.event], self._ago_s(cause.at_s))
        was_listed = state in (ReplicaState.LIVE, ReplicaState.UNREFERENCED)
        return ReplicaExplanation(node, _name(state), datanode, _LISTED if was_listed else _NOT_REMEMBERED)

    def _cause(self, node: NodeId, state: ReplicaState, story: list[Happened]) -> Happened | None:
        """Return the last event, of the replica or of its datanode, that can have caused the replica's state."""
        causes = [each for each in story if each.node == node and _leads_to(each.event, state)]
        last = causes[-1] if causes else None
        whole = self._cluster.history.of_datanode(node)
        if whole is None or (last is not None and whole.at_s <= last.at_s):
            return last
        if _leads_to(whole.event, state):
            return whole
        # After NODE_LOST the datanode listed all its replicas in a full report, which the history does not keep.
        return None if whole.event is ReplicaEvent.NODE_LOST else last

    # -- pending -----------------------------------------------------------------------------------

    def _pending(self, chunk: ChunkId, replicas: dict[NodeId, ReplicaState]) -> Iterator[Pending]:
        cluster, state = self._cluster, self._cluster.chunks.get(chunk)
        if state is not None and chunk in cluster.chunks.under:
            lasting = len(cluster.chunks.lasting(state))
            yield Pending(
                PendingKind.REPAIR, f"{lasting} of {state.replication} replicas count: it is to be copied"
            )
        if state is not None and chunk in cluster.chunks.missing:
            text = "no datanode that is here has it: it is read and copied again when one comes back with it"
            yield Pending(PendingKind.REPAIR, text)
        if (copy := cluster.repair.copy_of(chunk)) is not None:
            yield Pending(PendingKind.COPY, f"{copy.source} was told to copy it to {copy.target}")
        if state is not None and chunk in cluster.chunks.over:
            asked = "are being asked" if chunk in cluster.possession else "are to be asked"
            text = f"replicas are in excess or corrupt: the datanodes {asked} to show what they hold"
            yield Pending(PendingKind.PROOF, text)
        for node, each in sorted(replicas.items()):
            if each is ReplicaState.DELETING:
                yield Pending(PendingKind.DELETION, f"{node} is to say that it has deleted it")
            elif each is ReplicaState.UNCONFIRMED:
                within = f"within {unconfirmed_replica_kept_s:g} s of the receipt"
                text = f"{node} is to confirm it {within}, or it does not count"
                yield Pending(PendingKind.CONFIRMATION, text)
            elif each is ReplicaState.AWAITED:
                yield Pending(PendingKind.RETURN, f"{node} is to come back with it from its maintenance")
        if (freed_s := cluster.transient.freed_s(chunk)) is not None:
            left_s = max(0.0, freed_s + freed_chunks_kept_s - self._now_s)
            yield Pending(PendingKind.RELEASE, f"its replicas are to be deleted in {left_s:.0f} s")
        if chunk in cluster.chunks_being_written or chunk in cluster.granted_pipelines():
            yield Pending(PendingKind.WRITER, "its writer is to complete a file with it, or to give it up")

    def _ago_s(self, at_s: float) -> float:
        return round(max(0.0, self._now_s - at_s), 3)


def _name(state: ReplicaState) -> str:
    return state.name.lower()


def _leads_to(event: ReplicaEvent, state: ReplicaState) -> bool:
    """Return whether an event can bring a replica from another state into this one."""
    return any(TRANSITIONS[before].get(event) is state for before in ReplicaState if before is not state)
