"""Executes `peacefs balance --disks`: moves replicas between the disks of a datanode, like `hdfs diskbalancer`.

By default all live datanodes with several disks take part. They balance at the same time, each by itself. The exit
status is the worst of theirs, with the meanings that `balance` lists.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import msgspec

from peacefs.client.control.addresses import parse_address
from peacefs.client.control.disk_balancing import DiskBalancing
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.limits import balance_renewal_s
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.values.balance_status import DiskBalanceStatus

from .balance import BalanceStyle, ending
from .listing import print_line
from .presentation import human_size
from .progress import transfer_progress


def balance_disks(coordinator: str, nodes: Sequence[str], style: BalanceStyle) -> int:
    """Run until all datanodes have ended or Ctrl-C, and print each result. Raises PeacefsError."""
    chosen = list(nodes) or _with_several_disks(coordinator)
    if not chosen:
        raise BadRequest("no datanode that is alive has several disks: there is nothing to balance between")
    run = uuid.uuid4().hex
    asking = DiskBalancing(parse_address(coordinator), run, style.threshold_percent, style.bytes_per_second)
    try:
        statuses = _watch(asking, run, chosen)
    finally:
        asking.close()
    endings = [ending(run, status.run, status.phase) for status in statuses]
    if style.as_json:
        print_line(msgspec.json.encode(statuses).decode())
    else:
        for status, (_code, said) in zip(statuses, endings, strict=True):
            print_line(
                f"{status.node}: {said}: {status.replicas_moved} replicas, "
                f"{human_size(status.bytes_moved)}B moved, {human_size(status.bytes_left)}B left to move"
            )
    # Exit statuses count downwards from 255, and 0 is the best.
    return min((code for code, _said in endings if code), default=0)


def _with_several_disks(coordinator: str) -> list[str]:
    with PeaceFileSystem(coordinator) as files:
        datanodes = files.cluster_status()["datanodes"]
    return [each["node"] for each in datanodes if each["state"] == "alive" and len(each["disks"]) > 1]


def _watch(asking: DiskBalancing, run: str, nodes: Sequence[str]) -> list[DiskBalanceStatus]:
    statuses = {node: asking.ask(node) for node in nodes}
    try:
        with transfer_progress() as progress:
            progress.name("balancing disks")
            while going := [each.node for each in statuses.values() if (each.run, each.phase) == (run, "running")]:
                moved = sum(each.bytes_moved for each in statuses.values())
                progress.reach(moved, moved + sum(statuses[node].bytes_left for node in going))
                time.sleep(balance_renewal_s)
                statuses.update((node, asking.ask(node)) for node in going)
    except KeyboardInterrupt:
        statuses = {node: asking.ask(node, cancel=True) for node in nodes}
    return list(statuses.values())
