"""Executes `peacefs schedule`: shows waiting writes, writes under way, and the scheduling policy."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec
from rich.console import Group
from rich.live import Live
from rich.table import Table

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.values.schedule import Schedule

from .listing import print_line
from .presentation import human_size, printable
from .whole_table import add_row, plain_console, print_whole

_WATCH_INTERVAL_S = 1.0


@dataclass(frozen=True)
class ScheduleStyle:
    """The options of `schedule`: repeat until Ctrl-C, one JSON object per line, a policy to change to."""

    watch: bool
    as_json: bool
    policy: str | None


def show_schedule(coordinator: str, style: ScheduleStyle) -> None:
    """Print the schedule. Raises PeacefsError."""
    with PeaceFileSystem(coordinator) as files:
        schedule = files.schedule() if style.policy is None else files.change_policy(style.policy)
        if style.watch:
            _watch(files, schedule, as_json=style.as_json)
        elif style.as_json:
            print_line(msgspec.json.encode(schedule).decode())
        else:
            print_whole(*_drawn(schedule))


def _watch(files: PeaceFileSystem, schedule: Schedule, *, as_json: bool) -> None:
    try:
        if as_json:
            while True:
                print_line(msgspec.json.encode(schedule).decode())
                time.sleep(_WATCH_INTERVAL_S)
                schedule = files.schedule()
        with Live(Group(*_drawn(schedule)), console=plain_console(), auto_refresh=False) as live:
            while True:
                time.sleep(_WATCH_INTERVAL_S)
                live.update(Group(*_drawn(files.schedule())), refresh=True)
    except KeyboardInterrupt:
        return


def _drawn(schedule: Schedule) -> list[str | Table]:
    times, recovery = schedule.waiting_times, schedule.recovery
    lines = [
        f"policy {schedule.policy}, epoch {schedule.epoch}, {schedule.datanodes} datanodes may receive chunks",
        f"{schedule.grants_in_flight} grants in flight, {schedule.granted_total} given, "
        f"{schedule.lapsed_total} lapsed; {schedule.chunks_waiting} chunks of {schedule.sets_waiting} sets wait",
        f"{schedule.fast_lane_chunks_total} small chunks passed: {human_size(schedule.fast_lane_bytes_total)}",
        f"sets waited {times.median_s:.2f} s (median), {times.p95_s:.2f} s (95 %), {times.longest_s:.2f} s "
        f"(longest); a chunk takes {times.chunk_s:.2f} s",
        f"{recovery.readers} readers of checkpoints read {recovery.chunks_read} chunks at "
        f"{len(recovery.at_datanode)} datanodes; {recovery.chunks_waiting} wait",
    ]
    tables = [table for table in (_queue(schedule), _grants(schedule)) if table.row_count]
    return [*map(printable, lines), *tables]


def _queue(schedule: Schedule) -> Table:
    table = Table("waits", "from", "checkpoint root", "chunks", "bytes", "for", "starts in")
    for each in schedule.queue:
        add_row(
            table,
            each.write_set,
            each.writer or each.host or "elsewhere",
            each.root or "stated",
            str(each.chunks_waiting),
            human_size(each.bytes_waiting),
            f"{each.age_s:.1f} s",
            f"{each.expected_start_s:.1f} s",
        )
    return table


def _grants(schedule: Schedule) -> Table:
    table = Table("grant", "write set", "checkpoint root", "bytes", "pipeline", "waited", "granted")
    for each in schedule.grants:
        add_row(
            table,
            f"({each.epoch}, {each.number})",
            each.write_set,
            each.root or "stated",
            human_size(each.bytes),
            " > ".join(each.pipeline),
            f"{each.waited_s:.1f} s",
            f"{each.granted_s_ago:.1f} s ago{', idle' if each.idle else ''}",
        )
    return table
