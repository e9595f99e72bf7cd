"""Progress of the balancers: the answers of `/v1/balancer` and `/v1/datanodes/<id>/disks/balance`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BalanceStatus:
    """The run that is under way, or the last one; an empty name and phase when there was none.

    `bytes_left` have to be moved at least until no datanode is further from the mean than the threshold.
    """

    run: str
    #: A value of balance_run.Phase.
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
    """The run that is under way on a datanode, or the last one; an empty name and phase when there was none.

    `bytes_left` have to be moved at least until no disk is further from the mean than the threshold.
    """

    node: str
    run: str
    #: A value of datanode.disk_balancer.Phase.
    phase: str
    bytes_moved: int
    bytes_left: int
    replicas_moved: int
    moves_failed: int
