"""The settings of a ring, and the limits of what its nodes keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from peacefs.dataflow.limits import ring_checkpoint_s, ring_latency_s, ring_silence_s, ring_suspect_s
from peacefs.dataflow.model.numbers import check_count
from peacefs.protocol.limits import MIB

ring_beat_s: Final = 0.1
# Thresholds of balancing: the number of rows queued at a node, and its share of busy time.
ring_queue_rows_high: Final = 200_000
ring_queue_rows_low: Final = 20_000
ring_busy_high: Final = 0.8
ring_busy_low: Final = 0.5
# How often a node checks whether it has too much or too little to do.
ring_balance_s: Final = 1.0
# Maximum bytes of the tuples that a node keeps for others, of the results that the sink has not taken, and of the
# batches that a mapper keeps.
ring_backup_bytes_max: Final = 512 * MIB
ring_results_bytes_max: Final = 64 * MIB
ring_mapper_bytes_max: Final = 64 * MIB


@dataclass(frozen=True)
class RingSettings:
    """Settings of a ring. `r`: the number of neighbours that keep a copy."""

    r: int = 1
    #: True: each tuple counts once, by the coverage of fragments. False: at least once, as in the paper.
    exactly_once: bool = True
    checkpoint_s: float = ring_checkpoint_s
    #: L_n of the paper: the maximum difference between the clocks of two mappers, and maximum transit time of a
    #: tuple.
    latency_s: float = ring_latency_s
    beat_s: float = ring_beat_s
    silence_s: float = ring_silence_s
    #: The same as `silence_s`, after the connection to the neighbour broke.
    suspect_s: float = ring_suspect_s
    #: A node with at least this many queued rows, and at least this busy, is overloaded. Below the lower
    #: thresholds it has room.
    queue_rows_high: int = ring_queue_rows_high
    queue_rows_low: int = ring_queue_rows_low
    busy_high: float = ring_busy_high
    busy_low: float = ring_busy_low
    balance_s: float = ring_balance_s
    #: True: overloaded nodes are relieved automatically, and spares join.
    balances: bool = True
    #: True: nodes with too little to do leave automatically.
    shrinks: bool = False
    backup_bytes_max: int = ring_backup_bytes_max
    results_bytes_max: int = ring_results_bytes_max
    mapper_bytes_max: int = ring_mapper_bytes_max


@dataclass(frozen=True)
class RingArrangement:
    """Where the nodes of a new ring are. Raises InvalidQuery if `spares` is not a number from 0.

    rack_of   the rack of each node ("node-1", ...), so that neighbours are in different racks
    tokens    where the interval of each node begins, from 0 to 2**62 - 1; by default at equal distances
    spares    number of nodes that stay off the ring until others have too much to do
    """

    rack_of: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, int] | None = None
    spares: int = 0

    def __post_init__(self) -> None:
        check_count(f"RingArrangement(spares={self.spares!r})", self.spares, least=0)
        # Copies, since the caller may change its dicts while the ring runs.
        object.__setattr__(self, "rack_of", dict(self.rack_of))
        object.__setattr__(self, "tokens", None if self.tokens is None else dict(self.tokens))


@dataclass(frozen=True)
class RingPlan:
    """A ring: its settings, and where its nodes begin."""

    settings: RingSettings
    arrangement: RingArrangement
