"""Proofs that datanodes hold the replicas they report: a digest of the content under a nonce. Pure.

    wanted --room at its datanodes--> asked --all have answered, or are overdue--> evidence

A datanode's report is enough to read and copy from it, but not to drop another replica. Before one is dropped,
every holder of the chunk, including the one that may lose its replica, gets the same unpredictable nonce and
answers with a digest of nonce and content. The coordinator has no data, so it compares the answers: a replica is
dropped only if enough other holders gave the digest that its own holder gave. So a lying datanode can only cause
the deletion of its own replicas.

Datanodes must read the content, so each is asked about a limited amount at a time. It reads at the rate of copies.
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

# Limits of the questions to one datanode, and its time to answer. After a refusal (see `refuse`) the chunk is left
# alone for the backoff, which doubles each time.
proofs_per_node_max: Final = 512
proof_bytes_per_node_max: Final = 128 * MIB
proof_timeout_s: Final = repair_timeout_s
proof_backoff_s: Final = 5.0
proof_backoff_max_s: Final = 600.0
proofs_refused_remembered_max: Final = 100_000


@dataclass(frozen=True, slots=True)
class Question:
    """A message to send to a datanode. Pass its answer to `Possession.answered`."""

    node: NodeId
    message: ProveReplicas


@dataclass(slots=True)
class Evidence:
    """The answers of a chunk's holders. Holders that did not or could not answer are missing from `proofs`."""

    chunk: ChunkId
    version: int
    length: int
    deadline_s: float
    waiting: set[NodeId]
    proofs: dict[NodeId, ReplicaProof] = field(default_factory=dict)

    def agreeing(self, nodes: Sequence[NodeId]) -> list[NodeId]:
        """Return the largest group among these nodes that gave the same digest of the content."""
        by_content: dict[bytes, list[NodeId]] = {}
        for node in nodes:
            proof = self.proofs.get(node)
            if proof is not None and proof.content:
                by_content.setdefault(proof.content, []).append(node)
        return max(by_content.values(), key=len, default=[])

    def outlives(self, corrupt: NodeId, good: Sequence[NodeId]) -> bool:
        """Return whether a good replica holds the content of the corrupt one, as far as can still be told.

        Usually the stored checksums of the corrupt replica can be compared. Without them it is not worth keeping.
        """
        lost = self.proofs.get(corrupt)
        if lost is None:
            return False
        proofs = [proof for node in good if (proof := self.proofs.get(node)) is not None and proof.content]
        if lost.content:
            return any(proof.content == lost.content for proof in proofs)
        return any(not lost.sums or proof.sums == lost.sums for proof in proofs)


class Possession:
    """The questions under way, and the chunks to leave alone for a while because their holders disagreed.

    `Surplus` and `Balancer` ask about chunks and judge the evidence; `Cluster` collects the questions to send. A
    datanode has at most one question to answer at a time.
    """

    def __init__(self, nonce: Callable[[], bytes]) -> None:
        """`nonce` draws bytes that no datanode can foresee."""
        self._nonce = nonce
        self._asked: dict[ChunkId, Evidence] = {}
        self._complete: deque[ChunkId] = deque()
        #: The challenges to send to each datanode when it has answered its current ones.
        self._queued: dict[NodeId, list[ReplicaChallenge]] = {}
        self._sent: dict[NodeId, tuple[ProveReplicas, float]] = {}
        self._bytes: Counter[NodeId] = Counter()
        self._count: Counter[NodeId] = Counter()
        #: For each chunk: the number of refusals in a row, and when to ask again. The oldest refusal comes first.
        self._refused: OrderedDict[ChunkId, tuple[int, float]] = OrderedDict()
        self.proven_total = 0
        self.refused_total = 0

    def __contains__(self, chunk: ChunkId) -> bool:
        """Return whether the holders of a chunk are being asked."""
        return chunk in self._asked

    @property
    def doubted(self) -> int:
        """The number of chunks whose holders disagreed, or did not answer, when they were last asked."""
        return len(self._refused)

    def may_ask(self, now_s: float, chunk: ChunkId) -> bool:
        """Return whether it is time to ask about a chunk."""
        return chunk not in self._asked and self._refused.get(chunk, (0, now_s))[1] <= now_s

    def ask(self, now_s: float, state: ChunkState, nodes: Sequence[NodeId]) -> bool:
        """Queue a question about a chunk to these nodes. Return False if one of them has too much to do."""
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
        """Return the questions to send now. Call `answered` for each."""
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
        """Take in a datanode's answer; anything but ReplicasProven is a failure. Ignores outdated questions."""
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
        """Discard the proofs of a datanode that is dead or registers again, and do not wait for it."""
        self._sent.pop(node, None)
        self._queued.pop(node, None)
        for evidence in self._asked.values():
            evidence.proofs.pop(node, None)
            if node in evidence.waiting:
                self._heard(evidence, node)

    def take_evidence(self, now_s: float) -> list[Evidence]:
        """Return the evidence that is complete or overdue. Call `accept`, `refuse` or `forget` for each chunk."""
        for node, (_message, deadline_s) in list(self._sent.items()):
            if deadline_s <= now_s:
                del self._sent[node]
        for evidence in [each for each in self._asked.values() if each.waiting and each.deadline_s <= now_s]:
            for node in list(evidence.waiting):
                self._heard(evidence, node)
        count = min(len(self._complete), surplus_chunks_per_tick)
        return [self._asked.pop(self._complete.popleft()) for _ in range(count)]

    def accept(self, chunk: ChunkId) -> None:
        """Note that the evidence sufficed to drop a replica."""
        self.proven_total += 1
        self._refused.pop(chunk, None)

    def refuse(self, now_s: float, chunk: ChunkId) -> None:
        """Note that the evidence did not suffice. Leave the chunk alone for a pause, which doubles each time."""
        self.refused_total += 1
        times = self._refused.pop(chunk, (0, 0.0))[0]
        pause_s = min(proof_backoff_s * 2.0 ** min(times, 30), proof_backoff_max_s)
        self._refused[chunk] = times + 1, now_s + pause_s
        if len(self._refused) > proofs_refused_remembered_max:
            self._refused.popitem(last=False)

    def forget(self, chunk: ChunkId) -> None:
        """Forget earlier refusals of a chunk."""
        self._refused.pop(chunk, None)
