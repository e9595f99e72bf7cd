"""The slots that copies for repair and balancing hold at their targets, as a policy counts them. Pure."""

from __future__ import annotations

from peacefs.peace.policies.interface import Policy
from peacefs.peace.policies.ledger import WriteSet
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import chunk_bytes_max


class CopySlots:
    """The copies by chunk: source, target, and the policy's number for each, which changes with the policy."""

    def __init__(self) -> None:
        self._copies: dict[ChunkId, tuple[NodeId, NodeId, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._copies)

    def begin(self, policy: Policy, chunk: ChunkId, source: NodeId, target: NodeId) -> None:
        write_set = WriteSet("copies", source, 1, (chunk_bytes_max,))
        self._copies[chunk] = source, target, policy.adopt(write_set, [target]).number

    def begin_again(self, policy: Policy) -> None:
        """Let a new policy take over all copies."""
        for chunk, (source, target, _) in list(self._copies.items()):
            self.begin(policy, chunk, source, target)

    def end(self, chunk: ChunkId) -> int | None:
        """End a copy. Return the policy's number for it; None if the copy is unknown or has ended."""
        _, _, number = self._copies.pop(chunk, (None, None, None))
        return number
