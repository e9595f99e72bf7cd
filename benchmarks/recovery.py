"""All recovery techniques side by side: two queries, one load, one schedule of failures.

One query counts failed log-ins per source in windows of a second, every 50 ms; the other counts words. Both read
the same 5,000 rows per second, on three nodes, as local processes and as tasks on Spark's executors, and in
Spark's own micro-batches and Real-time Mode. Checkpoints and logs are in peacefs, with three replicas. The process
with the state is killed with SIGKILL.

*Costs* are the processor time of all processes without failures, including this program and the file system, and
the bytes over a separate loopback. *Memory* is that of the nodes, or of Spark. *Recovered* is the time from the
kill until rows come again and none is late. *Lost*, *repeated* and *wrong* rows are counted by comparison with a
batch over all rows; the kind of recovery is HA's.

    python -m benchmarks recovery [--technique sguard,flux] [--hosts processes,executors,spark] [--publish]
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow.advice.advice import WRITTEN
from peacefs.dataflow.advice.load import Parameters, QueryLoad
from peacefs.dataflow.advice.measure import measure
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.protocol.errors import InvalidQuery
from peacefs.state.warm import warm

from .report import RESULTS, head_line, show
from .side_by_side import pictures, tables
from .side_by_side.contest import NODES, Contestant, NodeHost, Nodes, Played, Processes, Schedule, play
from .side_by_side.queries import FEEDS_PER_S, QUERIES, ROWS_PER_FEED, SOURCE, SideQuery, made_at
from .side_by_side.tables import Cell
from .side_by_side.usage import descendants, own_network
from .state_pictures import draw

#: Techniques by their names on the command line, as a user would configure them.
TECHNIQUES: Mapping[str, str] = {
    "amnesia": "Amnesia",
    "upstream-backup": "UpstreamBackup",
    "upstream-backup-precise": "UpstreamBackup, precise",
    "passive-standby": "PassiveStandby",
    "active-standby": "ActiveStandby",
    "sguard": "SGuard",
    "cec": "CEC",
    "flux": "Flux",
    "peer-ring": "PeerRing",
}
#: Spark's own ways, by their names on the command line.
SPARK: Mapping[str, str] = {"micro-batches": "micro-batches", "Real-time Mode": "real-time"}
HOSTS = ("processes", "executors", "spark")
PAGE = Path(__file__).parent.parent / "docs" / "recovery" / "side-by-side.md"
_PARAMETERS = Parameters()
_SAMPLE_S = 3
_QUICK = Schedule(warm_s=0.8, before_s=1.2, kills=1, gap_s=2.0)
#: A JVM takes long to warm up, and Spark takes long to replace an executor.
_SPARK = Schedule(warm_s=12.0, before_s=4.0, kills=1, gap_s=12.0)
_QUICK_SPARK = Schedule(warm_s=5.0, before_s=2.0, kills=1, gap_s=7.0)
#: Techniques that `--quick` without a selection also runs with word counts, because they differ there.
_QUICK_WORDS = ("SGuard", "PeerRing", "Real-time Mode")
#: Techniques that it runs on executors.
_QUICK_ON_EXECUTORS = ("SGuard",)


@dataclass
class _Contest:
    """All runs with their results, and the reasons for runs that are impossible."""

    directory: Path
    coordinator: str
    beside: Sequence[int]
    quick: bool
    found: dict[Cell, Played] = field(default_factory=dict)
    absent: dict[Cell, str] = field(default_factory=dict)
    failed: bool = False

    def try_out(self, cell: Cell, make: Callable[[], Contestant], schedule: Schedule) -> None:
        """Run a cell and print its result. If it is refused or fails, print the reason."""
        began_s = time.monotonic()
        try:
            played = play(QUERIES[cell.query], make(), schedule, self.beside)
        except InvalidQuery as refusal:
            self.absent[cell] = f"refused: {refusal.message}"
        except Exception as fault:  # report any error, and continue with the other runs
            self.absent[cell] = f"failed: {type(fault).__name__}: {fault}".splitlines()[0]
            self.failed = True
        else:
            self.found[cell] = played
        if cell in self.absent:
            said = self.absent[cell]
        else:
            row = tables.costs(cell, played)
            said = ", ".join(
                f"{name} {value:.0f}" if isinstance(value, float) else f"{name} {value}"
                for name, value in list(row.items())[2:]
            )
        print(
            f"  {time.monotonic() - began_s:3.0f} s  {cell.query}, {cell.technique}, {cell.host}: {said}",
            flush=True,
        )

    def store(self) -> PeaceCheckpoints:
        return PeaceCheckpoints(self.coordinator, self._own_path())

    def checkpoint(self) -> str:
        return f"webhdfs://{self.coordinator.removeprefix('http://')}{self._own_path()}"

    def _own_path(self) -> str:
        return f"/recovery/{len(self.found) + len(self.absent)}"


def main(
    *,
    quick: bool = False,
    technique: str | None = None,
    hosts: str | None = None,
    publish: bool = False,
) -> None:
    chosen = _chosen("technique", technique, (*TECHNIQUES, *SPARK.values()))
    on = _chosen("host", hosts, HOSTS)
    warm()
    with own_network() as alone, tempfile.TemporaryDirectory() as name:
        if not alone:
            print("  no loopback of its own without root's rights: bytes are those of the whole machine")
        with LocalCluster(Path(name, "cluster"), datanodes=3, port=0) as cluster:
            contest = _Contest(Path(name), cluster.http_address, descendants(os.getpid()), quick)
            names = [TECHNIQUES[each] for each in TECHNIQUES if each in chosen]
            everything = technique is None
            if "processes" in on:
                _on_processes(contest, names, everything)
            if "executors" in on and names:
                _on_executors(contest, names, everything)
            if "spark" in on and set(SPARK.values()) & set(chosen):
                _by_spark(contest, chosen, everything)
    if not contest.found:
        raise SystemExit(f"nothing was measured: {'; '.join(contest.absent.values())}")
    _report(contest, publish=publish)
    if contest.failed:
        raise SystemExit("some runs failed: see above")


def _chosen(what: str, given: str | None, known: Sequence[str]) -> list[str]:
    wanted = list(known) if given is None else given.split(",")
    unknown = set(wanted) - set(known)
    if unknown:
        raise SystemExit(f"no {what} is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return wanted


# -- hosts ------------------------------------------------------------------------------------------------


def _on_processes(contest: _Contest, names: Sequence[str], everything: bool) -> None:
    schedule = _QUICK if contest.quick else Schedule()
    for query in QUERIES:
        for name in names:
            if everything and contest.quick and query == "word counts" and name not in _QUICK_WORDS:
                continue
            cell = Cell(query, name, "processes")
            contest.try_out(cell, lambda name=name: _nodes(contest, name, Processes), schedule)  # type: ignore[misc]


def _on_executors(contest: _Contest, names: Sequence[str], everything: bool) -> None:
    from .side_by_side.executors import Executors, spark_with_executors

    if contest.quick and everything:
        names = [name for name in names if name in _QUICK_ON_EXECUTORS]
    # A Python worker ends a moment after its executor, and Spark needs seconds to replace it, so there is one
    # failure per run.
    schedule = replace(_QUICK if contest.quick else Schedule(), kills=1, gap_s=5.0)
    with spark_with_executors(contest.directory / "spark") as spark:
        for query in list(QUERIES)[: 1 if contest.quick and everything else None]:
            for name in names:
                cell = Cell(query, name, "executors")
                contest.try_out(
                    cell,
                    lambda name=name: _nodes(contest, name, lambda store: Executors(spark, store)),  # type: ignore[misc]
                    schedule,
                )


def _by_spark(contest: _Contest, chosen: Sequence[str], everything: bool) -> None:
    from peacefs.spark_connector.session import as_dict, settings

    from .side_by_side.executors import spark_with_executors
    from .side_by_side.spark_queries import spark_queries

    schedule = _QUICK_SPARK if contest.quick else _SPARK
    wanted = as_dict(settings(contest.coordinator)) | {"spark.sql.shuffle.partitions": str(NODES)}
    with spark_with_executors(contest.directory / "spark", cores=2, settings=wanted) as spark:
        for name, query in QUERIES.items():
            for kind in spark_queries(query):
                skipped = contest.quick and everything and name == "word counts" and kind.name not in _QUICK_WORDS
                if SPARK[kind.name] in chosen and not skipped:
                    cell = Cell(name, kind.name, "spark")
                    contest.try_out(cell, lambda kind=kind: kind(spark, contest.checkpoint()), schedule)  # type: ignore[misc]


def _nodes(contest: _Contest, name: str, host: Callable[[PeaceCheckpoints], NodeHost]) -> Nodes:
    return Nodes(host(contest.store()), WRITTEN[name](_PARAMETERS))


# -- measurements -------------------------------------------------------------------------------------------


def load_of(query: SideQuery, seconds: float = _SAMPLE_S) -> QueryLoad:
    """Return a query's load as `peacefs dataflow advise` measures it on a sample of rows."""
    sample = pa.Table.from_batches(made_at(number) for number in range(int(seconds * FEEDS_PER_S)))
    return measure(query.network(), {SOURCE: sample}, FEEDS_PER_S * ROWS_PER_FEED, _PARAMETERS)


def _report(contest: _Contest, *, publish: bool) -> None:
    found = contest.found
    queries = list(dict.fromkeys(cell.query for cell in found))
    show("recovery", "Costs, and what failures did", [_named(tables.costs, *each) for each in found.items()])
    show("recovery_latency", "Latency, ms", [_named(tables.latencies, *each) for each in found.items()])
    if contest.absent:
        rows = [{"query": cell.query, **cell.row, "reason": why} for cell, why in contest.absent.items()]
        show("recovery_absent", "Not to be had", rows)
    drawn = []
    with_pictures = bool(find_spec("matplotlib"))
    for query in queries:
        mine = {cell: played for cell, played in found.items() if cell.query == query}
        name = f"side-by-side-{query.replace(' ', '-')}"
        drawn.append(draw(name, pictures.latency_figure(query, mine) if with_pictures else None))
    drawn.append(draw("side-by-side-costs", pictures.cost_figure(found) if with_pictures else None))
    loads = {query: load_of(QUERIES[query]) for query in queries}
    text = tables.page_text(found, contest.absent, loads, head_line())
    (RESULTS / "recovery.md").write_text(text)
    print(f"tables for a page: {RESULTS / 'recovery.md'}")
    if publish:
        tables.publish(PAGE, text)
        for picture in drawn:
            if picture is not None:
                (PAGE.parent / picture.name).write_bytes(picture.read_bytes())
        print(f"published: {PAGE}")


def _named(row: Callable[[Cell, Played], dict[str, object]], cell: Cell, played: Played) -> dict[str, object]:
    return {"query": cell.query, **row(cell, played)}
