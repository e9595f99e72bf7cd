"""Proves to the coordinator that replicas are here: reads and digests them with its nonce (decision 29)."""

from __future__ import annotations

import hashlib

from peacefs.datanode.limits import scrub_cost_bytes_min
from peacefs.datanode.rate_limiter import CopyBudget
from peacefs.datanode.store.chunk_store import ReadPlan
from peacefs.datanode.store.interface import ReplicaStore
from peacefs.datanode.store.replica_changes import ChangeSink
from peacefs.protocol.errors import ChecksumMismatch, ChunkNotFound, DiskFault, StaleVersion
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import chunk_bytes_max, copy_bytes_per_second
from peacefs.protocol.messages import (
    ProveReplicas,
    Replica,
    ReplicaChallenge,
    ReplicaProof,
    ReplicasProven,
)
from peacefs.runtime import effects as fx

_DIGEST_BYTES = 16


def digest_of_content(challenge: ReplicaChallenge) -> hashlib.blake2b:
    """Return a digest to be fed with the replica's data. Computing it requires every byte of the replica."""
    return _digest(b"content", challenge)


def digest_of_sums(challenge: ReplicaChallenge) -> hashlib.blake2b:
    """Return a digest to be fed with the packed checksums of the replica's blocks, as stored."""
    return _digest(b"sums", challenge)


def _digest(of: bytes, challenge: ReplicaChallenge) -> hashlib.blake2b:
    replica = f"{challenge.chunk}\0{challenge.version}\0".encode()
    return hashlib.blake2b(replica, digest_size=_DIGEST_BYTES, key=challenge.nonce, person=of)


class Prover:
    """Answers challenges, at its own limited rate. Also reports replicas that are corrupt or missing."""

    def __init__(self, store: ReplicaStore, changes: ChangeSink, *, budget: CopyBudget | None = None) -> None:
        self._store = store
        self._changes = changes
        self._budget = budget or CopyBudget(copy_bytes_per_second)

    def prove(self, order: ProveReplicas) -> fx.Steps[ReplicasProven]:
        """Return proofs. Omit an unreadable replica; give a corrupt one an empty digest. Neither raises."""
        proofs = []
        for challenge in order.challenges:
            proof = yield from self._prove(challenge)
            if proof is not None:
                proofs.append(proof)
        return ReplicasProven(proofs)

    def _prove(self, challenge: ReplicaChallenge) -> fx.Steps[ReplicaProof | None]:
        held = self._store.find(challenge.chunk)
        if held is None:
            self._changes.removed(Replica(challenge.chunk, challenge.version, 0))
            return None
        yield from self._wait_for_turn(held.length)
        try:
            plan = yield from self._store.open_read(challenge.chunk, challenge.version, 0, chunk_bytes_max)
        except ChecksumMismatch:
            self._report_corrupt(challenge.chunk)
            return ReplicaProof(challenge.chunk, challenge.version, b"", b"")
        except (ChunkNotFound, StaleVersion, DiskFault):
            return None
        if plan.version != challenge.version:
            yield from self._store.close_read(plan)
            return None
        sums = digest_of_sums(challenge)
        sums.update(plan.sums)
        try:
            content = yield from self._digest_all(challenge, plan)
        except ChecksumMismatch:
            self._report_corrupt(challenge.chunk)
            content = b""
        except DiskFault:
            return None
        return ReplicaProof(challenge.chunk, challenge.version, content, sums.digest())

    def _wait_for_turn(self, length: int) -> fx.Steps[None]:
        now_s = yield from fx.now()
        read_at_s = self._budget.reserve(now_s, max(length, scrub_cost_bytes_min))
        if read_at_s > now_s:
            yield from fx.sleep(read_at_s - now_s)

    def _digest_all(self, challenge: ReplicaChallenge, plan: ReadPlan) -> fx.Steps[bytes]:
        """Digest all data of a replica. The plan is closed at the end and after an error."""
        content = digest_of_content(challenge)
        while (blocks := (yield from self._store.read_blocks(plan))) is not None:
            content.update(blocks.data)
        yield from self._store.close_read(plan)
        return content.digest()

    def _report_corrupt(self, chunk: ChunkId) -> None:
        held = self._store.find(chunk)
        if held is not None:
            self._changes.corrupt(held)
