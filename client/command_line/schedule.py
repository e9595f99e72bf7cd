"""Executes `peacefs schedule`: shows waiting writes, writes under way, and the scheduling policy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from rich.console import Group
from rich.live import Live
from rich.table import Table

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.values.schedule import Recurrences, Schedule

from .listing import print_line
from .presentation import human_size, printable
from .whole_table import add_row, plain_console, print_whole

_WATCH_INTERVAL_S = 1.0


@dataclass(frozen=True)
class ScheduleStyle:
    """The options of `schedule`: repeat until Ctrl-C, print JSON, change the policy, show recurrences instead."""

    watch: bool
    as_json: bool
    policy: str | None
    recurrences: bool = False


def show_schedule(coordinator: str, style: ScheduleStyle) -> None:
    """Print the schedule. Raises PeacefsError."""
    with PeaceFileSystem(coordinator) as files:
        if style.policy is not None:
            files.change_policy(style.policy)
        look = files.recurrences if style.recurrences else files.schedule
        if style.watch:
            _watch(look, as_json=style.as_json)
        elif style.as_json:
            print_line(msgspec.json.encode(look()).decode())
        else:
            print_whole(*_drawn(look()))


def _watch(look: Callable[[], Schedule | Recurrences], *, as_json: bool) -> None:
    try:
        if as_json:
            while True:
                print_line(msgspec.json.encode(look()).decode())
                time.sleep(_WATCH_INTERVAL_S)
        with Live(Group(*_drawn(look())), console=plain_console(), auto_refresh=False) as live:
            while True:
                time.sleep(_WATCH_INTERVAL_S)
                live.update(Group(*_drawn(look())), refresh=True)
    except KeyboardInterrupt:
        return


def _drawn(shown: Schedule | Recurrences) -> list[str | Table]:
    return _drawn_recurrences(shown) if isinstance(shown, Recurrences) else _drawn_schedule(shown)


def _drawn_recurrences(shown: Recurrences) -> list[str | Table]:
    share = shown.waiting_share
    waited = "" if share is None else f"; urgent writes waited in {share:.0%} of the last minute"
    lines: list[str | Table] = [
        f"{len(shown.recurrences)} regular recurrences of {shown.watched} roots that are watched{waited}"
    ]
    table = Table("root", "class", "every", "next in", "spread", "bytes", "takes", "times")
    for each in shown.recurrences:
        add_row(
            table,
            each.root,
            each.write_class,
            f"{each.period_s:.1f} s",
            f"{each.next_in_s:.1f} s",
            f"{each.spread_s:.2f} s",
            human_size(each.bytes),
            f"{each.duration_s:.1f} s",
            str(each.occurrences),
        )
    return [*lines, table] if table.row_count else lines


def _drawn_schedule(schedule: Schedule) -> list[str | Table]:
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
    table = Table("waits", "class", "from", "checkpoint root", "chunks", "bytes", "for", "starts in")
    for each in schedule.queue:
        add_row(
            table,
            each.write_set,
            each.write_class,
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
