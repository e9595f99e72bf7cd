"""Executes `peacefs report`: an overview of the cluster and its datanodes, like `hdfs dfsadmin -report`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.limits import chunk_bytes_max, metadata_room_low_bytes

from .listing import print_line
from .presentation import human_size

_HEADINGS = (
    "DATANODE",
    "ADDRESS",
    "RACK",
    "STATE",
    "SERVICE",
    "CAPACITY",
    "USED",
    "USED%",
    "AVAILABLE",
    "REPLICAS",
)
#: Number of columns with text. The others contain numbers and are aligned to the right.
_WORDS = 5


def report(coordinator: str, *, as_json: bool) -> None:
    """Print the answer to `GET /v1/status`. Raises PeacefsError."""
    with PeaceFileSystem(coordinator) as files:
        status = files.cluster_status()
    if as_json:
        print_line(msgspec.json.encode(status).decode())
        return
    for line in report_lines(status):
        print_line(line)


def _failover_lines(failover: dict[str, Any] | None) -> Iterator[str]:
    """Format the leader and the standbys, if coordinators share a journal."""
    if failover is None:
        return
    leader, entries = failover["leader"] or "none at this moment", failover["journal_entries"]
    yield f"Leader: {leader}; the journal has {human_size(failover['journal_bytes'])}B, up to entry {entries}"
    for each in failover["coordinators"]:
        if each.get("problem"):
            yield f"Coordinator {each['address']} did not start: {each['problem']}"
        elif not each["leads"]:
            state = "ready to lead" if each["is_warm"] else "not ready to lead yet"
            yield f"Standby {each['address']}: {each['lag']} entries behind, {state}"


def report_lines(status: dict[str, Any]) -> Iterator[str]:
    """Format a status for people."""
    datanodes, chunks = status["datanodes"], status["chunks"]
    # An older coordinator does not report this.
    metadata_room = status.get("metadata_room_bytes", metadata_room_low_bytes)
    living = [each for each in datanodes if each["state"] != "dead"]
    capacity, used, available = (
        sum(each[key] for each in living) for key in ("capacity_bytes", "used_bytes", "available_bytes")
    )
    readiness = "ready" if status["ready"] else "waiting for its datanodes"
    yield f"Cluster {status['cluster']} at {status['address']}, epoch {status['epoch']}: {readiness}"
    yield from _failover_lines(status.get("failover"))
    yield f"Capacity: {_size(capacity)}"
    yield f"Used: {_size(used)} {_percent(used, capacity)}"
    yield f"Available: {_size(available)}"
    yield f"Chunks: {chunks['total']}"
    yield f"Under-replicated chunks: {chunks['under_replicated']}, {chunks['being_repaired']} being copied"
    unheard = "" if status["ready"] else ", for datanodes have still to say what they hold"
    yield f"Missing chunks: {chunks['missing']}{unheard}"
    yield f"Since the coordinator's start: {status['replicas_lost_total']} replicas lost, " + (
        f"{status['repaired_total']} copied"
    )
    counts = ", ".join(
        f"{sum(each['state'] == state for each in datanodes)} {state}" for state in ("alive", "suspect", "dead")
    )
    yield f"Datanodes: {counts}"
    if status.get("commits_missing"):
        yield (
            "Commits of the coordinator's metadata are missing: names can be read and not changed, until a backup "
            "is restored or `peacefs metadata accept-loss` is said"
        )
    if metadata_room < metadata_room_low_bytes:
        yield f"Coordinator's disk: {_size(metadata_room)} left; without any, nothing can be changed"
    if datanodes:
        yield ""
        yield from table([_HEADINGS, *(_row(each) for each in datanodes)], _WORDS)
    disks = [(each["node"], disk) for each in datanodes for disk in each["disks"] if disk["state"] != "working"]
    yield from (_bad_disk(node, disk) for node, disk in disks)
    yield from (_lack_of_room(each) for each in datanodes if _lacks_room(each))
    for each in datanodes:
        yield from _slowness(each)


def _bad_disk(node: str, disk: dict[str, Any]) -> str:
    held = {
        "failed": "what it held counts as lost",
        "full": f"it takes nothing more in, its {disk['replicas']} replicas are read",
    }.get(disk["state"], f"its {disk['replicas']} replicas are still read")
    return f"Disk: {disk['directory']} of {node} is {disk['state']} ({disk['fault']}); {held}"


def _lacks_room(datanode: dict[str, Any]) -> bool:
    """Return whether a datanode lacks room although none of its disks is reported as full."""
    return (
        datanode["state"] == "alive"
        and datanode["service"] == "in service"
        and datanode["available_bytes"] < chunk_bytes_max
        and all(disk["state"] == "working" for disk in datanode["disks"])
    )


def _lack_of_room(datanode: dict[str, Any]) -> str:
    room, wanted = human_size(datanode["available_bytes"]), human_size(chunk_bytes_max)
    return f"Room: {datanode['node']} gets no new chunks: {room} are left, and one may need {wanted}"


def _slowness(datanode: dict[str, Any]) -> Iterator[str]:
    # An older coordinator gives no reasons.
    reasons = {each["part"]: each for each in datanode.get("slow_reasons", [])}
    for part in datanode["slow"]:
        what = "as a hop of pipelines" if part == "hop" else "at its disk"
        found, seconds = reasons.get(part), datanode[f"{part}_seconds"]
        if found is not None:
            beside = f", the median of {found['compared']} datanodes is {found['median']:.3f}"
            pace = f": {found['seconds']:.3f} s a MiB{beside}"
        else:
            pace = "" if seconds is None else f": {seconds:.3f} s a MiB"
        yield f"Slow: {datanode['node']} {what}{pace}; new chunks avoid it where they can"
        if found is not None:
            yield f"      {found['reason']} {found['advice']}"


def _row(datanode: dict[str, Any]) -> Sequence[str]:
    return (
        datanode["node"],
        f"{datanode['host']}:{datanode['data_port']}" if datanode["host"] else "-",
        datanode["rack"],
        datanode["state"],
        datanode["service"],
        human_size(datanode["capacity_bytes"]),
        human_size(datanode["used_bytes"]),
        _percent(datanode["used_bytes"], datanode["capacity_bytes"]),
        human_size(datanode["available_bytes"]),
        str(datanode["replicas"]),
    )


def table(rows: Sequence[Sequence[str]], words: int) -> Iterator[str]:
    """Format rows as columns; the first `words` columns are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{cell:<{width}}" if number < words else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _size(size_bytes: int) -> str:
    return f"{size_bytes} ({human_size(size_bytes)}B)"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole if whole else 0:.1f}%"
