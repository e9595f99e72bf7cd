"""The live nodes, as far as the controller has heard of them while it listened."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from peacefs.dataflow.limits import dataflow_busy_s_max

from .attention import Attention
from .messages import NodeAlive, NodeHeartbeat

# A pause of the observer counts as silence of the nodes for at most the timeout divided by this.
dataflow_steps_of_silence: Final = 4
# How long a node may be silent after its connection to the controller broke.
dataflow_suspect_s: Final = 0.5


@dataclass
class _Member:
    session: str
    address: str
    #: When the node was last heard of, in seconds that the controller has listened.
    seen_s: float
    #: When the node itself last sent something.
    spoke_s: float


class Members:
    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._attention = Attention(timeout_s / dataflow_steps_of_silence)
        self._members: dict[str, _Member] = {}

    def __contains__(self, node: object) -> bool:
        return node in self._members

    def __len__(self) -> int:
        return len(self._members)

    @property
    def names(self) -> list[str]:
        return sorted(self._members)

    @property
    def addresses(self) -> Mapping[str, str]:
        return {node: member.address for node, member in sorted(self._members.items())}

    def address_of(self, node: str) -> str | None:
        member = self._members.get(node)
        return None if member is None else member.address

    def session_of(self, node: str) -> str | None:
        member = self._members.get(node)
        return None if member is None else member.session

    # -- signs of life ---------------------------------------------------------------------------------------

    def has_begun_again(self, beat: NodeHeartbeat) -> bool:
        """Return True if the node's process is a new one, so that everything it ran is gone."""
        return self.session_of(beat.node) not in (None, beat.session)

    def heartbeat(self, beat: NodeHeartbeat) -> None:
        listened_s = self._attention.listened_s
        self._members[beat.node] = _Member(beat.session, beat.address, listened_s, listened_s)

    def alive(self, message: NodeAlive) -> None:
        """Note that the process of a node runs, even if the node may be busy with one batch."""
        member = self._members.get(message.node)
        if member is not None and member.session == message.session:
            member.seen_s = member.spoke_s = self._attention.listened_s

    def at_work(self, nodes: Collection[str]) -> None:
        """Note that these nodes are slow, but not dead.

        The launcher of the nodes says so. It is believed for a limited time.
        """
        listened_s = self._attention.listened_s
        for member in (self._members[node] for node in nodes if node in self._members):
            if listened_s - member.spoke_s < dataflow_busy_s_max:
                member.seen_s = listened_s

    def disconnected(self, node: str) -> None:
        """Note that the connection to a node broke. The node is dead unless it sends something very soon."""
        member = self._members.get(node)
        if member is not None:
            soon_s = self._attention.listened_s + dataflow_suspect_s
            member.seen_s = min(member.seen_s, soon_s - self._timeout_s)

    def silent(self, now_s: float) -> list[str]:
        """Return the nodes that were silent for too long. Must be called at regular intervals."""
        oldest_s = self._attention.look(now_s) - self._timeout_s
        return [node for node, member in self._members.items() if member.seen_s < oldest_s]

    def remove(self, node: str) -> None:
        del self._members[node]
