"""The progress of the balancers: the answers of `/v1/balancer` and `/v1/datanodes/<id>/disks/balance`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BalanceStatus:
    """The current or last run; name and phase are empty if there was none.

    `bytes_left` is the minimum to be moved until all datanodes are within the threshold.
    """

    run: str
    #: A value of BalancePhase.
    phase: str
    threshold_percent: float
    bytes_per_second: float
    bytes_moved: int
    bytes_left: int
    replicas_moved: int
    moves_failed: int
    moves_under_way: int


@dataclass(frozen=True)
class DiskBalanceStatus:
    """The current or last run on a datanode; name and phase are empty if there was none.

    `bytes_left` is the minimum to be moved until all disks are within the threshold.
    """

    node: str
    run: str
    #: A value of BalancePhase.
    phase: str
    bytes_moved: int
    bytes_left: int
    replicas_moved: int
    moves_failed: int
