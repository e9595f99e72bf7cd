"""The settings of a ring, and the bounds of what its nodes keep."""

from __future__ import annotations

from dataclasses import dataclass

from peacefs.protocol import limits


@dataclass(frozen=True)
class RingSettings:
    """`r` neighbours keep a copy. The others are times and bounds of `protocol/limits.py`."""

    r: int = 1
    #: True: each tuple counts once, by the coverage of fragments; False: at least once, as in the paper.
    exactly_once: bool = True
    checkpoint_s: float = limits.ring_checkpoint_s
    #: L_n of the paper: the most that the clocks of two mappers differ by, and that a tuple is on its way.
    latency_s: float = limits.ring_latency_s
    beat_s: float = limits.ring_beat_s
    silence_s: float = limits.ring_silence_s
    #: The same after the connection to the neighbour broke.
    suspect_s: float = limits.ring_suspect_s
    #: A node is overloaded from so many rows in its queue, and so busy, on; and it has room below those.
    queue_rows_high: int = limits.ring_queue_rows_high
    queue_rows_low: int = limits.ring_queue_rows_low
    busy_high: float = limits.ring_busy_high
    busy_low: float = limits.ring_busy_low
    balance_s: float = limits.ring_balance_s
    #: True: nodes that have too much to do are relieved by themselves, and spares join.
    balances: bool = True
    #: True: nodes that have too little to do leave by themselves.
    shrinks: bool = False
    backup_bytes_max: int = limits.ring_backup_bytes_max
    results_bytes_max: int = limits.ring_results_bytes_max
    mapper_bytes_max: int = limits.ring_mapper_bytes_max
