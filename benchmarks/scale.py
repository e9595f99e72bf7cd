"""How the coordinator's costs grow with nodes, chunks and recurrences: the slopes of docs/scale.md.

Each part is its core alone, driven in this process, without sockets and disks. Times are seconds of the processor,
and memory is what Python has allocated. Sizes rise by factors of ten; `--quick` leaves out the largest.

    python -m benchmarks scale
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any, Final

from peacefs.coordinator.core import CoordinatorCore
from peacefs.coordinator.metadata.epochs import Epochs
from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.peace.phase_flow import assign_equal_periods
from peacefs.peace.phases import DISKS, Phased, plan_phases
from peacefs.peace.policies.express import ExpressPolicy
from peacefs.peace.policies.interface import Finished, Submitted
from peacefs.peace.policies.ledger import WriteSet
from peacefs.peace.recurrences import RecurrenceKey, Recurrences
from peacefs.peace.simulator.scenarios import CHUNK_BYTES, star
from peacefs.protocol.ids import Numbering
from peacefs.protocol.messages import Heartbeat, Register, Replica, ReportChunks, Usage
from peacefs.protocol.values.write_classes import WriteClass

from .report import show

_USAGE: Final = Usage(capacity_bytes=1 << 40, used_bytes=0, available_bytes=1 << 39)
_ROUNDS: Final = 5


def main(*, quick: bool = False) -> None:
    nodes = (10, 100) if quick else (10, 100, 1000)
    chunks = (1000, 10_000) if quick else (1000, 10_000, 100_000)
    show("scale_nodes", "By datanodes", [_of_nodes(count) for count in nodes])
    show("scale_chunks", "By chunks with three replicas", [_of_chunks(count) for count in chunks])
    show("scale_recurrences", "By recurrences", [_of_recurrences(count) for count in chunks[:2]])


def _cluster(count: int) -> CoordinatorCore:
    core = CoordinatorCore(0.0, Epochs(Numbering(1), 0.0), Random(1))
    for number in range(count):
        name = f"n{number}"
        core.register(0.0, Register(name, name, 9866, name, 9864, f"/rack-{number % max(1, count // 20)}", _USAGE))
        core.report(0.0, name, ReportChunks([], last=True))
    return core


def _cpu_s(action: Callable[..., object], *arguments: object) -> float:
    begun_s = time.process_time()
    action(*arguments)
    return time.process_time() - begun_s


def _of_nodes(count: int) -> dict[str, Any]:
    """Measure a heartbeat of one datanode, a tick, a change of the network, and a grant."""
    core = _cluster(count)
    core.loaded()
    now_s = 1.0
    heartbeat_s = tick_s = 0.0

    def beat(now_s: float) -> None:
        for number in range(count):
            core.heartbeat(now_s, f"n{number}", Heartbeat(_USAGE))

    for _ in range(_ROUNDS):
        now_s += 0.25
        heartbeat_s += _cpu_s(beat, now_s)
        tick_s += _cpu_s(core.tick, now_s)
    change_s = _cpu_s(core.scheduling.use, now_s, star(max(1, count // 20), 20, 2.0))
    return {
        "datanodes": count,
        "heartbeat, us": 1e6 * heartbeat_s / _ROUNDS / count,
        "tick, ms": 1e3 * tick_s / _ROUNDS,
        "a changed network, ms": 1e3 * change_s,
        "a grant, us": _grant_us(count),
    }


def _grant_us(count: int) -> float:
    """Return the time for one grant and its end, with as many writers as datanodes."""
    topology = star(max(1, count // 20), min(20, count), 2.0)
    policy = ExpressPolicy(topology, Random(1))
    names = sorted(topology.servers)
    sets = [Submitted(WriteSet(f"s{n}", names[n % len(names)], 3, (CHUNK_BYTES,) * 4)) for n in range(count)]
    granted = 0

    def run() -> None:
        nonlocal granted
        grants = policy.handle(sets, 0.0)
        while grants:
            granted += 1
            grants += policy.handle([Finished(grants.pop().number)], 1.0 + granted)

    return 1e6 * _cpu_s(run) / max(1, granted)


def _of_chunks(count: int) -> dict[str, Any]:
    """Measure chunks that are loaded from the metadata, and then reported by 100 datanodes."""
    gc.collect()
    tracemalloc.start()
    core = _cluster(100)
    before = tracemalloc.get_traced_memory()[0]
    _load(core, count)
    loaded = tracemalloc.get_traced_memory()[0]
    _report_all(core, count)
    reported = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    core = _cluster(100)
    _load(core, count)
    return {
        "chunks": count,
        "memory, B a chunk": (loaded - before) / count,
        "its three holders, B": (reported - loaded) / count,
        "a report, us a replica": 1e6 * _report_all(core, count) / (3 * count),
    }


def _load(core: CoordinatorCore, count: int) -> None:
    core.load([ChunkRecord(number, 1, CHUNK_BYTES, 3, ()) for number in range(1, count + 1)])
    core.loaded()


def _report_all(core: CoordinatorCore, count: int) -> float:
    """Report three replicas of each chunk; return the time without that for making the reports."""
    report_s = 0.0
    for node in range(100):
        of_node = (number for copy in range(3) for number in range((node - 33 * copy) % 100, count + 1, 100))
        replicas = [Replica(number, 1, CHUNK_BYTES) for number in of_node if number]
        report_s += _cpu_s(core.report, 2.0, f"n{node}", ReportChunks(replicas, last=True))
    return report_s


def _of_recurrences(count: int) -> dict[str, Any]:
    known = Recurrences()
    keys = [RecurrenceKey(f"/query-{number}", WriteClass.BLOCKING) for number in range(count)]
    learn_s = 0.0

    def write_all(begin_s: float) -> None:
        for number, key in enumerate(keys):
            known.wrote(begin_s + number / count, key, 1)

    for begin_s in range(0, 10 * _ROUNDS, 10):
        learn_s += _cpu_s(write_all, float(begin_s))
    rng = Random(1)
    phased = []
    for number in range(count):
        loads = {DISKS: rng.uniform(0.1, 0.3) / count}
        phased.append(Phased(f"r{number}", rng.choice((10.0, 20.0, 40.0)), rng.uniform(0.2, 2), loads))
    return {
        "recurrences": count,
        "learning a write, us": 1e6 * learn_s / _ROUNDS / count,
        "planning all phases, s": _cpu_s(plan_phases, phased, assign_equal_periods),
    }
