"""Flux: each part of a stage is a pair of equals on two nodes (Shah, Hellerstein and Brewer, Flux 3 to 5).

Both nodes of a pair get the same rows in the same order, and both send their output. Each sends to the consumers
in its own slot, which acknowledge to the other node. If a node dies, the other halves continue at once and feed
both slots. Pairs that lost a half get a new one on a standby node, one at a time, while all others continue.

`core/pair_reading.py` is the protocol of a consumer, and `core/exchange.py` that of a producer.
`core/pair_plan.py` decides where pairs are and in which order they are restored.
"""

from __future__ import annotations

from peacefs.dataflow.limits import dataflow_acknowledge_interval_s_max, dataflow_tick_s
from peacefs.dataflow.model.numbers import check_count, is_number
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import PRECISE_UNLESS_ARBITRARY, PairPlacing, Replicas, Technique
from peacefs.protocol.errors import InvalidQuery

from .intervals import checked_interval

_LONGEST_S = 86_400.0


def Flux(
    *, standby_nodes: int = 0, interval_s: float = dataflow_tick_s, catch_up_after_s: float = 0.0
) -> Technique:
    """Return the Flux technique. `Flux()` uses all nodes, and restores pairs as soon as possible.

    standby_nodes     number of nodes that run nothing until another one dies
    interval_s        how often consumers acknowledge
    catch_up_after_s  delay from the loss, or from the previous stage, until a stage is restored
    """
    check_count(f"Flux(standby_nodes={standby_nodes!r})", standby_nodes, least=0)
    if not is_number(catch_up_after_s) or not 0 <= catch_up_after_s <= _LONGEST_S:
        raise InvalidQuery(
            f"Flux(catch_up_after_s={catch_up_after_s!r}): it must be from 0 to {_LONGEST_S:g} seconds"
        )
    return Technique(
        name="flux",
        retention=RowStage.RECEIVED,
        replicas=Replicas.EQUALS,
        interval_s=checked_interval("Flux", interval_s, longest_s=dataflow_acknowledge_interval_s_max),
        pairs=PairPlacing(standby_nodes, catch_up_after_s),
        gives=PRECISE_UNLESS_ARBITRARY,
    )
