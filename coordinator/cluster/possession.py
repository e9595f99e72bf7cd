"""Proofs of datanodes that they hold what they say: a digest of the content under a nonce. Pure.

    wanted --room at its datanodes--> asked --all have answered, or are overdue--> evidence

A datanode's word makes it a source to copy and to read from. Before a replica is dropped for it, it has to know
the content now: every holder of the chunk, the one whose replica is to go among them, is sent the same nonce,
which nobody could know before, and answers with a digest of nonce and content. What it says is compared with what
the others say, for the coordinator has no data: a replica goes only if enough others gave the digest that its own
holder gave. So those who say what is not so cause the deletion of nothing but what is theirs.

Reading costs, so that only so much is asked of a datanode at a time, and it reads at the rate of copies.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from peacefs.coordinator.limits import repair_timeout_s, surplus_chunks_per_tick
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import (
    Message,
    ProveReplicas,
    ReplicaChallenge,
    ReplicaProof,
    ReplicasProven,
)

from .chunk_map import ChunkState

# Before a replica in excess goes, those that stay show that they hold it. What a datanode is asked at a time, and
# how long it may take; after answers that differ the chunk is left alone, each time for twice as long.
proofs_per_node_max: Final = 512
proof_bytes_per_node_max: Final = 128 * MIB
proof_timeout_s: Final = repair_timeout_s
proof_backoff_s: Final = 5.0
proof_backoff_max_s: Final = 600.0
proofs_refused_remembered_max: Final = 100_000


@dataclass(frozen=True, slots=True)
class Question:
    """A message to be sent to a datanode, whose answer is wanted."""

    node: NodeId
    message: ProveReplicas


@dataclass(slots=True)
class Evidence:
    """The answers of a chunk's holders; those that did not, or could not, are missing."""

    chunk: ChunkId
    version: int
    length: int
    deadline_s: float
    waiting: set[NodeId]
    proofs: dict[NodeId, ReplicaProof] = field(default_factory=dict)

    def agreeing(self, nodes: Sequence[NodeId]) -> list[NodeId]:
        """The most of these that gave one digest of the content."""
        by_content: dict[bytes, list[NodeId]] = {}
        for node in nodes:
            proof = self.proofs.get(node)
            if proof is not None and proof.content:
                by_content.setdefault(proof.content, []).append(node)
        return max(by_content.values(), key=len, default=[])

    def outlives(self, corrupt: NodeId, good: Sequence[NodeId]) -> bool:
        """Return whether a good replica holds what a corrupt one did, as far as that can still be told.

        What is left of it tells its checksums, as a rule; what tells nothing is nothing to be kept.
        """
        lost = self.proofs.get(corrupt)
        if lost is None:
            return False
        proofs = [proof for node in good if (proof := self.proofs.get(node)) is not None and proof.content]
        if lost.content:
            return any(proof.content == lost.content for proof in proofs)
        return any(not lost.sums or proof.sums == lost.sums for proof in proofs)


class Possession:
    """The questions under way, and for how long chunks are left alone about which the answers differed."""

    def __init__(self, nonce: Callable[[], bytes]) -> None:
        """`nonce` draws one that nobody can foresee."""
        self._nonce = nonce
        self._asked: dict[ChunkId, Evidence] = {}
        self._complete: deque[ChunkId] = deque()
        #: The challenges to send to a datanode once it has answered the last ones.
        self._queued: dict[NodeId, list[ReplicaChallenge]] = {}
        self._sent: dict[NodeId, tuple[ProveReplicas, float]] = {}
        self._bytes: Counter[NodeId] = Counter()
        self._count: Counter[NodeId] = Counter()
        #: For each chunk, how often in a row it was refused and until when it is not asked about again; the oldest
        #: first.
        self._refused: OrderedDict[ChunkId, tuple[int, float]] = OrderedDict()
        self.proven_total = 0
        self.refused_total = 0

    def __contains__(self, chunk: ChunkId) -> bool:
        """Return whether the holders of a chunk are being asked."""
        return chunk in self._asked

    @property
    def doubted(self) -> int:
        """About how many chunks the holders said different things, or nothing, when they were asked last."""
        return len(self._refused)

    def may_ask(self, now_s: float, chunk: ChunkId) -> bool:
        """Return whether it is time to ask about a chunk."""
        return chunk not in self._asked and self._refused.get(chunk, (0, now_s))[1] <= now_s

    def ask(self, now_s: float, state: ChunkState, nodes: Sequence[NodeId]) -> bool:
        """Asks these about a chunk, as soon as they can be; False if they have enough to do."""
        if not all(self._has_room(node, state.length) for node in nodes):
            return False
        challenge = ReplicaChallenge(state.chunk, state.version, self._nonce())
        self._asked[state.chunk] = Evidence(
            state.chunk, state.version, state.length, now_s + proof_timeout_s, set(nodes)
        )
        for node in nodes:
            self._queued.setdefault(node, []).append(challenge)
            self._bytes[node] += state.length
            self._count[node] += 1
        return True

    def _has_room(self, node: NodeId, length: int) -> bool:
        count = self._count[node]
        return count == 0 or (
            count < proofs_per_node_max and self._bytes[node] + length <= proof_bytes_per_node_max
        )

    def take_questions(self, now_s: float) -> list[Question]:
        """To be sent now, and to be followed by `answered` for each."""
        questions = []
        for node in [node for node in self._queued if node not in self._sent]:
            challenges = [each for each in self._queued.pop(node) if self._awaits(node, each)]
            if challenges:
                message = ProveReplicas(challenges)
                self._sent[node] = message, now_s + proof_timeout_s
                questions.append(Question(node, message))
        return questions

    def _awaits(self, node: NodeId, challenge: ReplicaChallenge) -> bool:
        evidence = self._asked.get(challenge.chunk)
        return evidence is not None and node in evidence.waiting

    def answered(self, question: Question, answer: Message) -> None:
        """A datanode has answered, or is gone. What it was asked in another question it has not answered."""
        sent = self._sent.get(question.node)
        if sent is None or sent[0] is not question.message:
            return
        del self._sent[question.node]
        given = answer.proofs if isinstance(answer, ReplicasProven) else []
        proofs = {proof.chunk: proof for proof in given}
        for challenge in question.message.challenges:
            evidence = self._asked.get(challenge.chunk)
            if evidence is None or question.node not in evidence.waiting:
                continue
            proof = proofs.get(challenge.chunk)
            if proof is not None and proof.version == evidence.version:
                evidence.proofs[question.node] = proof
            self._heard(evidence, question.node)

    def _heard(self, evidence: Evidence, node: NodeId) -> None:
        evidence.waiting.discard(node)
        self._count[node] -= 1
        self._bytes[node] -= evidence.length
        if not evidence.waiting:
            self._complete.append(evidence.chunk)

    def node_lost(self, node: NodeId) -> None:
        """A datanode is dead or starts anew: what it has shown counts no more, and it answers nothing."""
        self._sent.pop(node, None)
        self._queued.pop(node, None)
        for evidence in self._asked.values():
            evidence.proofs.pop(node, None)
            if node in evidence.waiting:
                self._heard(evidence, node)

    def take_evidence(self, now_s: float) -> list[Evidence]:
        """Chunks for which nobody is waited for any more. `accept` or `refuse` says what came of each."""
        for node, (_message, deadline_s) in list(self._sent.items()):
            if deadline_s <= now_s:
                del self._sent[node]
        for evidence in [each for each in self._asked.values() if each.waiting and each.deadline_s <= now_s]:
            for node in list(evidence.waiting):
                self._heard(evidence, node)
        count = min(len(self._complete), surplus_chunks_per_tick)
        return [self._asked.pop(self._complete.popleft()) for _ in range(count)]

    def accept(self, chunk: ChunkId) -> None:
        """Accept a proof: the replica that was asked for has been shown."""
        self.proven_total += 1
        self._refused.pop(chunk, None)

    def refuse(self, now_s: float, chunk: ChunkId) -> None:
        """It has not been shown: the chunk is asked about again later, each time after twice as long."""
        self.refused_total += 1
        times = self._refused.pop(chunk, (0, 0.0))[0]
        pause_s = min(proof_backoff_s * 2.0 ** min(times, 30), proof_backoff_max_s)
        self._refused[chunk] = times + 1, now_s + pause_s
        if len(self._refused) > proofs_refused_remembered_max:
            self._refused.popitem(last=False)

    def forget(self, chunk: ChunkId) -> None:
        """Nobody wants to know any more."""
        self._refused.pop(chunk, None)
