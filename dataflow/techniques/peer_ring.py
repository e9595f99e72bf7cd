"""The peer ring: reducers keep each other's tuples and state, and take over from each other (SMR V to VII)."""

from __future__ import annotations

from typing import Final

from peacefs.dataflow.limits import ring_checkpoint_s, ring_latency_s, ring_silence_s, ring_suspect_s
from peacefs.dataflow.model.numbers import check_amount, is_number
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.ring_settings import RingArrangement, RingPlan, RingSettings
from peacefs.dataflow.recovery.technique import ALWAYS_DIVERGENT, ALWAYS_GAP, Replicas, Technique
from peacefs.protocol.errors import InvalidQuery

# Maximum number of neighbours that keep a copy.
ring_neighbours_max: Final = 8
_LONGEST_S = 86_400.0


def PeerRing(
    r: int = 1,
    *,
    exactly_once: bool = True,
    checkpoint_s: float = ring_checkpoint_s,
    latency_s: float = ring_latency_s,
    silence_s: float = ring_silence_s,
    balances: bool = True,
    shrinks: bool = False,
    arrangement: RingArrangement | None = None,
) -> Technique:
    """Return the technique. `PeerRing()` survives any losses except two neighbours at once.

    Each tuple counts once, but tuples of different mappers may count in another order than without a failure.

    r              number of neighbours with a copy of each tuple and of the state; as many may die at once
    exactly_once   False: a take-over may count tuples again, as in the paper
    checkpoint_s   how often state is sent to the neighbours
    latency_s      for at least once: maximum difference of mappers' clocks, and maximum transit time of a tuple
    silence_s      silence after which a neighbour is dead; at most half a second if its process has ended
    balances       nodes relieve each other and take spares automatically; `shrinks`: and leave
    arrangement    racks, tokens and spares: `RingArrangement(rack_of={...}, tokens={...}, spares=n)`
    """
    if not is_number(r, whole=True) or not 0 <= r <= ring_neighbours_max:
        raise InvalidQuery(f"PeerRing(r={r!r}): r is a number of neighbours, from 0 to {ring_neighbours_max}")
    times = {"checkpoint_s": checkpoint_s, "latency_s": latency_s, "silence_s": silence_s}
    for name, value in times.items():
        check_amount(f"PeerRing({name}={value!r})", value, most=_LONGEST_S)
    settings = RingSettings(
        r=r,
        exactly_once=exactly_once,
        checkpoint_s=checkpoint_s,
        latency_s=latency_s,
        silence_s=silence_s,
        suspect_s=min(ring_suspect_s, silence_s),
        balances=balances,
        shrinks=shrinks,
    )
    return Technique(
        name="peer-ring",
        retention=RowStage.RECEIVED,
        replicas=Replicas.RING,
        ring=RingPlan(settings, arrangement or RingArrangement()),
        gives=ALWAYS_DIVERGENT if r else ALWAYS_GAP,
    )
