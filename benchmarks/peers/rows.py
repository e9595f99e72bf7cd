"""The rows in selectable groups: the operation, the number of clients, and the results to show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from .load import CLIENTS_MAX, KEPT_FILES, Done, Work
from .systems import System

NAMES, LISTING, SMALL, LARGE = "names", "listing", "small", "large"
GROUPS = (NAMES, LISTING, SMALL, LARGE)


class Does(Enum):
    """What an operation needs from a system, and what is on disk when it is acknowledged."""

    READ = "read"
    CHANGE = "change"
    STORE = "store"


@dataclass(frozen=True)
class Measured:
    """One row of one system, with a figure per round. `cpu_ms` is per operation; for large files, per MiB."""

    row: str
    clients: int
    system: str
    synced: str
    unit: str
    rates: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Step:
    """An operation of a group. It gets a row unless it only prepares others."""

    work: Work
    row: str = ""
    does: Does = Does.CHANGE
    mebibytes: int = 0


def measure(
    group: str, systems: Sequence[System], *, seconds: float, rounds: int, mebibytes: int, names: int
) -> list[Measured]:
    """Run the steps with the systems in turns, and return the measurements."""
    systems = [system for system in systems if group == LARGE or not system.only_large]
    for system in systems:
        if not system.only_stores:
            for work in _preparation(group, names):
                system.load.run(work)
    rows: dict[tuple[str, int, str], Measured] = {}
    # The first round warms up connections, compilers and caches.
    for turn in range(-1, rounds):
        for step in _steps(group, seconds, mebibytes, names):
            for system in systems[:: -1 if turn % 2 else 1]:
                if system.only_stores and step.does is not Does.STORE:
                    continue
                before_s = system.cpu_s()
                done = system.load.run(step.work)
                cpu_s = system.cpu_s() - before_s
                if turn >= 0 and step.row:
                    _keep(rows, step, system, done, cpu_s)
            print(f"round {turn + 2} of {rounds + 1}: {step.work.operation}, {step.work.clients}", flush=True)
    return list(rows.values())


def _keep(
    rows: dict[tuple[str, int, str], Measured], step: _Step, system: System, done: Done, cpu_s: float
) -> None:
    unit = "MiB/s" if step.mebibytes else "/s"
    synced = {Does.READ: "", Does.CHANGE: system.synced_names, Does.STORE: system.synced_data}[step.does]
    made = Measured(step.row, step.work.clients, system.name, synced, unit)
    row = rows.setdefault((step.row, step.work.clients, system.name), made)
    count = done.done * (step.mebibytes or 1)
    row.rates.append(count / done.seconds)
    row.cpu_ms.append(cpu_s / max(1, count) * 1000)


def _preparation(group: str, names: int) -> Iterator[Work]:
    if group in (NAMES, SMALL):
        yield Work("keep", 1, times=KEPT_FILES)
    if group == LISTING:
        yield Work("fill", CLIENTS_MAX, times=names // CLIENTS_MAX)


def _steps(group: str, seconds: float, mebibytes: int, names: int) -> Iterator[_Step]:
    match group:
        case "names":
            yield _Step(Work("mkdir", CLIENTS_MAX, seconds), "mkdir")
            yield _Step(Work("create", CLIENTS_MAX, seconds), "create empty")
            yield _Step(Work("stat", CLIENTS_MAX, seconds), "stat", Does.READ)
            yield _Step(Work("rename", CLIENTS_MAX, seconds), "rename")
            yield _Step(Work("delete", CLIENTS_MAX, seconds), "delete")
        case "listing":
            yield _Step(Work("list", 1, seconds), f"list {names:,} names", Does.READ)
        case "small":
            for clients in (1, CLIENTS_MAX):
                yield _Step(Work("write", clients, seconds), "write 1 KiB", Does.STORE)
                yield _Step(Work("read", clients, seconds), "read 1 KiB", Does.READ)
        case "large":
            for clients in (1, 4):
                write = Work("write_large", clients, times=1, mebibytes=mebibytes)
                yield _Step(write, f"write {mebibytes} MiB", Does.STORE, mebibytes=mebibytes)
                read = Work("read_large", clients, times=1, mebibytes=mebibytes)
                yield _Step(read, f"read {mebibytes} MiB", Does.READ, mebibytes=mebibytes)
                yield _Step(Work("delete_large", clients, times=1), does=Does.STORE)
