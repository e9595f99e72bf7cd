"""The coordinator's orders to a datanode, as participants: copy, delete, verify, prove."""

from __future__ import annotations

from peacefs.datanode.store.interface import ReplicaStore
from peacefs.datanode.store.replica_changes import ChangeSink
from peacefs.protocol.errors import ChecksumMismatch, ChunkError, PeacefsError
from peacefs.protocol.messages import (
    DeleteChunks,
    Done,
    Failure,
    Message,
    ProveReplicas,
    Replica,
    ReplicateChunk,
    VerifyChunks,
)
from peacefs.runtime import effects as fx

from .prover import Prover
from .replicator import Replicator


class Orders:
    """Executes orders. The result goes into the answer and into the next heartbeat."""

    def __init__(self, store: ReplicaStore, changes: ChangeSink, replicator: Replicator, prover: Prover) -> None:
        self._store = store
        self._changes = changes
        self._replicator = replicator
        self._prover = prover

    def obey(self, order: Message) -> fx.Steps[Message]:
        """Execute an order and return the answer. An error becomes a Failure."""
        try:
            match order:
                case ReplicateChunk():
                    yield from self._replicator.replicate(order)
                case DeleteChunks():
                    yield from self._delete(order.replicas)
                case ProveReplicas():
                    return (yield from self._prover.prove(order))
                case VerifyChunks():
                    yield from self._verify(order.replicas)
                case _:
                    raise AssertionError(f"{type(order).__name__} is no order")
        except (PeacefsError, OSError) as fault:
            if isinstance(fault, OSError):
                fault = ChunkError(f"the disk failed: {fault.strerror or fault}")
            return Failure(fault.code, fault.message, fault.culprit)
        return Done()

    def _delete(self, replicas: list[Replica]) -> fx.Steps[None]:
        for replica in replicas:
            yield from self._store.delete(replica.chunk, replica.version)
            if self._store.find(replica.chunk) is None:
                self._changes.removed(replica)

    def _verify(self, replicas: list[Replica]) -> fx.Steps[None]:
        for wanted in replicas:
            held = self._store.find(wanted.chunk)
            if held is None:
                self._changes.removed(wanted)
                continue
            if held.length == 0:
                continue
            try:
                plan = yield from self._store.open_read(held.chunk, held.version, 0, held.length)
                while (yield from self._store.read_blocks(plan)) is not None:
                    pass
            except ChecksumMismatch:
                self._changes.corrupt(held)
