"""The peer ring: reducers keep each other's tuples and state, and take over from each other (SMR V to VII)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from peacefs.dataflow.core.output_buffer import PRODUCED, Mark, RowStage
from peacefs.dataflow.core.technique import Guard, Technique
from peacefs.dataflow.limits import ring_checkpoint_s, ring_latency_s, ring_silence_s, ring_suspect_s
from peacefs.dataflow.model.numbers import check_amount, is_number
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.ring.arrangement import RingArrangement, arrange
from peacefs.dataflow.ring.program import plan_of
from peacefs.dataflow.ring.settings import RingSettings
from peacefs.dataflow.ring.view import RingMember
from peacefs.protocol.errors import InvalidQuery

# Neighbours that would keep a copy; each costs as much as the first.
ring_neighbours_max: Final = 8


_LONGEST_S = 86_400.0


class PeerRing(Technique):
    """`PeerRing()` outlives the loss of any nodes but of two neighbours at once.

    r              neighbours that keep a copy of each tuple and of the state: so many neighbours may die at once
    exactly_once   False: a take-over may count tuples again, as in the paper
    checkpoint_s   state goes to the neighbours so often
    latency_s      at least once: what clocks of mappers may differ by, and how long a tuple may be on its way
    silence_s      a neighbour that was silent for so long is dead; one whose process dies is missed at once
    balances       nodes relieve each other, and take spares, by themselves; `shrinks`: and leave
    arrangement    racks, tokens and spares: `RingArrangement(rack_of={...}, tokens={...}, spares=n)`
    """

    name: ClassVar[str] = "peer-ring"

    def __init__(
        self,
        r: int = 1,
        *,
        exactly_once: bool = True,
        checkpoint_s: float = ring_checkpoint_s,
        latency_s: float = ring_latency_s,
        silence_s: float = ring_silence_s,
        balances: bool = True,
        shrinks: bool = False,
        arrangement: RingArrangement | None = None,
    ) -> None:
        if not is_number(r, whole=True) or not 0 <= r <= ring_neighbours_max:
            raise InvalidQuery(f"PeerRing(r={r!r}): r is a number of neighbours, from 0 to {ring_neighbours_max}")
        times = {"checkpoint_s": checkpoint_s, "latency_s": latency_s, "silence_s": silence_s}
        for name, value in times.items():
            check_amount(f"PeerRing({name}={value!r})", value, most=_LONGEST_S)
        self.arrangement = arrangement or RingArrangement()
        self.settings = RingSettings(
            r=r,
            exactly_once=exactly_once,
            checkpoint_s=checkpoint_s,
            latency_s=latency_s,
            silence_s=silence_s,
            suspect_s=min(ring_suspect_s, silence_s),
            balances=balances,
            shrinks=shrinks,
        )

    def check(self, network: Network) -> None:
        plan_of(network)

    def check_nodes(self, nodes: int) -> None:
        super().check_nodes(nodes)
        r, spares = self.settings.r, self.arrangement.spares
        if nodes - spares < r + 1:
            raise InvalidQuery(
                f"PeerRing(r={r}) keeps each tuple on {r + 1} nodes, and the ring has {nodes - spares}: "
                f"start {r + 1 + spares} nodes or more, or choose a smaller r"
            )
        self.arrange(nodes)

    def arrange(self, nodes: int) -> list[RingMember]:
        """Return the members of a ring of so many nodes. Raises InvalidQuery for what cannot be one."""
        names = [f"node-{number}" for number in range(1, nodes + 1)]
        return arrange(names, self.settings.r, self.arrangement)

    def promises(self, network: OperatorClass) -> Recovery:
        """Each tuple counts once; but mappers' tuples may count in another order than without a failure."""
        if self.settings.r == 0:
            return Recovery.GAP
        return Recovery.DIVERGENT

    def retention(self, destinations: Sequence[str]) -> frozenset[Mark]:
        return frozenset({PRODUCED, *(Mark(RowStage.RECEIVED, destination) for destination in destinations)})

    def lineage(self, incarnation: int) -> int:
        return 0

    def guard(self, unit: str, now_s: float) -> Guard:
        return Guard()
