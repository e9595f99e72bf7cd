"""Executes `peacefs balance`: moves replicas from fuller datanodes to emptier ones, like `hdfs balancer`.

The exit status is that of `hdfs balancer`, whose negative numbers a shell shows from 255 downwards: 0 balanced,
255 another run is under way, 254 nothing more can be moved, 253 moves keep failing, 252 the coordinator has
forgotten the run, 250 interrupted. (1 is an error, 2 wrong usage.)
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

import msgspec

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.limits import balance_renewal_s
from peacefs.protocol.values.balance_status import BalanceStatus

from .listing import print_line
from .presentation import human_size
from .progress import transfer_progress

_ALREADY_RUNNING, _NO_MOVE, _NO_PROGRESS, _LOST, _INTERRUPTED = 255, 254, 253, 252, 250
_ENDINGS = {
    "balanced": (0, "balanced"),
    "stuck": (_NO_MOVE, "no other replica can be moved"),
    "failing": (_NO_PROGRESS, "one move after the other failed; the coordinator's log says why"),
    "cancelled": (_INTERRUPTED, "cancelled"),
    "abandoned": (_LOST, "given up: nothing was heard of this command for too long"),
}


@dataclass(frozen=True)
class BalanceStyle:
    threshold_percent: float
    bytes_per_second: int
    as_json: bool


def balance(coordinator: str, style: BalanceStyle) -> int:
    """Run until balanced or interrupted, print the result and return the exit status. Raises PeacefsError."""
    run = uuid.uuid4().hex
    with PeaceFileSystem(coordinator) as files:
        try:
            status = files.start_balancing(run, style.threshold_percent, style.bytes_per_second)
            if status.run == run:
                status = _watch(files, run, status)
        except KeyboardInterrupt:
            status = files.cancel_balancing(run)
    code, said = ending(run, status.run, status.phase)
    if style.as_json:
        print_line(msgspec.json.encode(status).decode())
    else:
        print_line(
            f"{said}: {status.replicas_moved} replicas, {human_size(status.bytes_moved)}B moved, "
            f"{human_size(status.bytes_left)}B left to move"
        )
    return code


def _watch(files: PeaceFileSystem, run: str, status: BalanceStatus) -> BalanceStatus:
    with transfer_progress() as progress:
        progress.name("balancing")
        while status.run == run and status.phase == "running":
            progress.reach(status.bytes_moved, status.bytes_moved + status.bytes_left)
            time.sleep(balance_renewal_s)
            status = files.renew_balancing(run)
    return status


def ending(run: str, told_of: str, phase: str) -> tuple[int, str]:
    """Return the exit status and the message for `run`, given a status of this run or of another one."""
    if told_of == run:
        return _ENDINGS[phase]
    if phase == "running":
        return _ALREADY_RUNNING, "another run is under way"
    return _LOST, "it was started anew meanwhile and has forgotten the run; start it again"
