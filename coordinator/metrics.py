"""The coordinator's metrics for Prometheus, beyond those of all services."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from prometheus_client import Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from peacefs.protocol.values.cluster_status import FailoverStatus
from peacefs.protocol.values.supervised_queries import QueryPhase
from peacefs.runtime.counters import CountElsewhere, registry

from .api.admission import Admission
from .api.live import LiveFeed
from .audit_log import AuditLog
from .cluster.core import Cluster
from .cluster.membership import State
from .metadata.group_commit import GroupCommit
from .operations.read_grants import ReadGrantService
from .operations.temporary_files import TemporaryFiles
from .operations.write_grants import WriteGrantService
from .supervision.core import Supervision

_COMMIT_BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_WAITED_BUCKETS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 400.0, 1000.0)


def watch(
    cluster: Cluster, group_commit: GroupCommit, admission: Admission, temporary_files: TemporaryFiles
) -> None:
    """Publish gauges and counters that read the coordinator's parts at each scrape. Call it once per process."""
    states = {state.value: partial(_count, cluster, state) for state in State}
    _labelled("peacefs_datanodes", "Datanodes", "state", states)
    for state, count in states.items():
        _gauge(f"peacefs_datanodes_{state}", f'Deprecated: peacefs_datanodes{{state="{state}"}}', count)
    _gauge("peacefs_datanodes_slow", "Datanodes much slower than others", lambda: len(cluster.slow_peers.slow()))
    chunks = cluster.chunks
    _gauge("peacefs_chunks", "Chunks that files refer to", lambda: len(chunks))
    _gauge("peacefs_chunks_under_replicated", "Chunks with too few replicas", lambda: len(chunks.under))
    low = {str(left): partial(chunks.under.with_left, left) for left in (1, 2)}
    _labelled(
        "peacefs_chunks_low_redundancy",
        "Chunks with fewer good replicas than wanted, by how many are left",
        "replicas",
        low,
    )
    for left, count in low.items():
        name = f"peacefs_chunks_with_{left}_replicas_left"
        _gauge(name, f'Deprecated: peacefs_chunks_low_redundancy{{replicas="{left}"}}', count)
    _gauge("peacefs_chunks_over_replicated", "Chunks with replicas in excess or corrupt", lambda: len(chunks.over))
    _gauge(
        "peacefs_chunks_doubted",
        "Chunks whose holders did not all show the same content when they were asked last",
        lambda: cluster.possession.doubted,
    )
    _gauge("peacefs_chunks_abandoned", "Chunks abandoned by their writers", lambda: len(cluster.assignments))
    _gauge("peacefs_moves_under_way", "Replicas being moved for balance", lambda: cluster.balancer.under_way)
    _gauge("peacefs_chunks_missing", "Chunks without any good replica", lambda: len(chunks.missing))
    transient = cluster.transient
    _gauge("peacefs_chunks_freed", "Freed chunks kept for readers", lambda: transient.freed_count)
    unreferenced = chunks.unreferenced
    _gauge("peacefs_chunks_unreferenced", "Chunks on datanodes that no file refers to", lambda: len(unreferenced))
    _gauge("peacefs_chunks_unclaimed", "Deprecated: peacefs_chunks_unreferenced", lambda: len(unreferenced))
    _gauge("peacefs_http_requests_in_flight", "HTTP requests under way", lambda: admission.in_flight)
    _counter("peacefs_http_requests_refused", "HTTP requests told to try again later", lambda: admission.refused)
    _gauge(
        "peacefs_repairs_under_way",
        "Copies for repair that were ordered and not yet answered",
        lambda: cluster.repair.under_way,
    )
    _counter(
        "peacefs_repairs_done", "Copies for repair made since the start", lambda: cluster.repair.repaired_total
    )
    _counter("peacefs_replicas_lost", "Replicas on datanodes that died", lambda: cluster.replicas_lost_total)
    _counter(
        "peacefs_temporary_files_collected",
        "Temporary files deleted that writers had left",
        lambda: temporary_files.collected,
    )
    _gauge(
        "peacefs_commits_waiting", "Changes of the metadata that wait for a commit", lambda: group_commit.waiting
    )
    _gauge(
        "peacefs_image_rows_behind",
        "Changed rows that the image of the metadata lacks",
        lambda: group_commit.behind,
    )
    _counter("peacefs_commits_made", "Commits of the metadata since the start", lambda: group_commit.commits)
    _counter("peacefs_changes_made", "Changes of the metadata in these commits", lambda: group_commit.requests)


def commit_seconds() -> Histogram:
    """Publish how long commits took. Call it once per process."""
    return Histogram(
        "peacefs_commit_seconds",
        "Duration of commits of the metadata, including syncs",
        buckets=_COMMIT_BUCKETS_S,
        registry=registry,
    )


def grant_waited_seconds() -> Histogram:
    """Publish how long the write sets of granted chunks had waited. Call it once per process."""
    return Histogram(
        "peacefs_grant_waited_seconds",
        "Waiting times of write sets until a chunk was granted",
        buckets=_WAITED_BUCKETS_S,
        registry=registry,
    )


def watch_audit(audit: AuditLog | None) -> None:
    """Publish counters of the audit log; they stay 0 without one. Call it once per process."""
    _counter(
        "peacefs_audit_records",
        "Requests recorded in the audit log",
        lambda: 0 if audit is None else audit.written,
    )
    _counter(
        "peacefs_audit_records_lost",
        "Requests that could not be recorded in the audit log",
        lambda: 0 if audit is None else audit.lost,
    )


def watch_state(
    cluster: Cluster,
    metadata_bytes: Callable[[], int],
    metadata_room: Callable[[], int],
    gc_floor_held: Callable[[], bool],
    lacks_commits: Callable[[], bool],
    held: Callable[[], int],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Publish the state of the service, and the size of its metadata. Call it once per process."""
    _gauge("peacefs_requests_held", "Requests that wait until this coordinator is ready", held)
    _gauge(
        "peacefs_ready",
        "1 when this coordinator knows enough datanodes' chunks to serve",
        lambda: cluster.ready(clock()),
    )
    _gauge("peacefs_gc_floor_held", "1 while unknown chunks are kept, after a restore", gc_floor_held)
    _gauge("peacefs_floor_held", "Deprecated: peacefs_gc_floor_held", gc_floor_held)
    _gauge(
        "peacefs_commits_missing",
        "1 while acknowledged commits are missing: nothing is changed until that is accepted",
        lacks_commits,
    )
    _gauge("peacefs_metadata_bytes", "Size of the metadata's file and log", metadata_bytes)
    _gauge(
        "peacefs_metadata_room_bytes",
        "Room left on the metadata's file system; without any nothing can be changed",
        metadata_room,
    )


def watch_viewers(feed: LiveFeed) -> None:
    """Publish how many viewers the web page has, and how often views were computed. Call it once per process."""
    _gauge("peacefs_page_viewers", "Streams to open web pages", lambda: feed.viewers)
    _counter("peacefs_page_looks", "Views made for web pages", lambda: feed.looks_total)


def watch_failover(status: Callable[[], FailoverStatus | None]) -> None:
    """Publish the state of failover. Without a journal, the coordinator leads. Call it once per process."""

    def of(value: Callable[[FailoverStatus], float], alone: float) -> float:
        return alone if (now := status()) is None else value(now)

    _gauge("peacefs_leads", "1 if this coordinator leads", lambda: of(lambda now: now.leads, 1))
    _gauge(
        "peacefs_journal_lag_entries",
        "Commits of the leader that this coordinator has still to apply",
        lambda: of(lambda now: now.lag, 0),
    )
    _gauge(
        "peacefs_coordinators_not_started",
        "Coordinators of the journal that did not start when they were last tried; the report says why",
        lambda: of(lambda now: sum(1 for each in now.coordinators if each.problem), 0),
    )
    _gauge(
        "peacefs_journal_bytes",
        "Size of the journal that coordinators share, as its leader knows it",
        lambda: of(lambda now: now.journal_bytes, 0),
    )


def watch_schedule(write_grants: WriteGrantService, read_grants: ReadGrantService) -> None:
    """Publish the state of the scheduling service. Call it once per process."""
    scheduling, lane, known = write_grants.scheduling, write_grants.fast_lane, write_grants.recurrences
    _gauge("peacefs_grants_in_flight", "Chunks that may be written now", lambda: len(scheduling.grants))
    _gauge("peacefs_chunks_queued", "Chunks that wait for a grant", lambda: scheduling.chunks_waiting)
    _gauge(
        "peacefs_recurrences_watched",
        "Roots and classes whose writes are watched for recurrences",
        lambda: len(known),
    )
    _counter("peacefs_occurrences", "Observed occurrences of watched writes", lambda: known.occurrences_total)
    _gauge(
        "peacefs_urgent_waiting_share",
        "Share of the last minute in which urgent writes waited; 0 with policies that do not measure it",
        lambda: scheduling.waiting_share or 0.0,
    )
    _counter("peacefs_grants_given", "Grants since the start", lambda: scheduling.times.granted_total)
    _counter(
        "peacefs_grants_lapsed",
        "Grants returned without a report of their end, after every datanode denied them",
        lambda: scheduling.times.lapsed_total,
    )
    _counter("peacefs_small_chunks", "Chunks too small to wait for a grant", lambda: lane.chunks_total)
    _counter(
        "peacefs_small_chunk_bytes", "Bytes in chunks too small to wait for a grant", lambda: lane.bytes_total
    )
    _gauge("peacefs_fast_lane_chunks", "Deprecated: peacefs_small_chunks_total", lambda: lane.chunks_total)
    _gauge("peacefs_fast_lane_bytes", "Deprecated: peacefs_small_chunk_bytes_total", lambda: lane.bytes_total)
    _gauge(
        "peacefs_recovery_reads_in_flight",
        "Chunks of checkpoints that are being read with a grant",
        lambda: sum(read_grants.reads.at_node.values()),
    )
    grants = read_grants.reads
    _counter("peacefs_read_grants_given", "Read grants since the start", lambda: grants.grants_total)
    _counter(
        "peacefs_recovery_leaves_given", "Deprecated: peacefs_read_grants_given_total", lambda: grants.grants_total
    )


def watch_supervision(supervision: Supervision) -> None:
    """Publish the state of agents and supervised queries. Call it once per process."""
    registry.register(_ByLabel(supervision))
    _gauge("peacefs_agents", "Agents that are alive", lambda: len(supervision.agents))
    _counter(
        "peacefs_supervised_runs_taken_over",
        "Runs that were given to a standby",
        lambda: supervision.taken_over_total,
    )
    _counter("peacefs_agents_lost", "Agents that became silent", lambda: supervision.lost_total)
    _counter("peacefs_supervised_runs_begun", "Runs begun for agents to start", lambda: supervision.begun_total)
    _counter(
        "peacefs_supervised_runs_failed",
        "Runs that failed, or whose agent died or was stopped",
        lambda: supervision.failed_total,
    )


class _ByLabel(Collector):
    """Number of queries by phase, with empty phases, and number of runs by agent."""

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision

    def describe(self) -> list[Metric]:
        return list(self._families())

    def collect(self) -> Iterator[Metric]:
        queries, runs, runs_max = self._families()
        phases = Counter(query.record.phase for query in self._supervision.queries.values())
        for phase in QueryPhase:
            queries.add_metric([phase.value], phases[phase])
        for name, agent in sorted(self._supervision.agents.items()):
            runs.add_metric([name], sum(not run.ended for run in agent.beat.runs))
            runs_max.add_metric([name], agent.beat.runs_max)
        yield from (queries, runs, runs_max)

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily("peacefs_supervised_queries", "Supervised queries", labels=["phase"]),
            GaugeMetricFamily(
                "peacefs_agent_runs", "Queries that an agent runs, by its own report", labels=["agent"]
            ),
            GaugeMetricFamily(
                "peacefs_agent_runs_max",
                "Maximum number of queries that an agent may run at the same time",
                labels=["agent"],
            ),
        )


def _count(cluster: Cluster, state: State) -> int:
    return sum(node.state is state for node in cluster.members.all())


def _gauge(name: str, meaning: str, value: Callable[[], float]) -> None:
    Gauge(name, meaning, registry=registry).set_function(value)


def _labelled(name: str, meaning: str, label: str, values: Mapping[str, Callable[[], float]]) -> None:
    gauge = Gauge(name, meaning, [label], registry=registry)
    for value, look in values.items():
        gauge.labels(value).set_function(look)


def _counter(name: str, meaning: str, value: Callable[[], float]) -> None:
    """Return a counter, shown as `name`_total."""
    CountElsewhere(name, meaning, value).publish()
