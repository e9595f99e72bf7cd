"""Decide where queries run, and what to do when a driver or node dies. Pure: events in, records to commit out.

    WAITING --an agent is chosen--> STARTING --the run is begun, and committed--> RUNNING --exit status 0--> ENDED
       ^                                |                                            |
       |<----- refused for now ---------'      exit status, silence or return of the |
       |<------------------------------------- agent without it, not too often ------'--- too often --> FAILED

    WAITING, STARTING, RUNNING --asked to stop--> STOPPING --its agent has ended it, or is dead--> STOPPED

Every second an agent reports what it runs, and the answer lists exactly what it should run. So lost messages need
not be repeated. A query gets another run only when the one before has ended: its agent said so, the agent was
restarted, or it has been silent for so long that its runs have ended by themselves (`agent_dead_after_s`). If that
assumption fails, because a whole node was paused, the fence of the run still refuses the old run's writes.

A query may have a standby: a second driver that has a number but no run, and waits. If the query's run fails, the
standby gets the next run at once. The coordinator forgets standbys when it restarts: an agent ends a standby that
it is not told to run, and another one is started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from peacefs.coordinator.limits import suspect_after_s
from peacefs.coordinator.metadata.model import QueryRecord
from peacefs.protocol.errors import BadRequest, FileAlreadyExists, FileNotFound, NodeIdTaken, Overloaded
from peacefs.protocol.messages import PROTOCOL_VERSION, AgentBeat, RunOrder, RunReport
from peacefs.protocol.messages.supervision import LOGS_SINCE
from peacefs.protocol.values.supervised_queries import OVER, QueryPhase

from .locality import AgentCandidate, Holdings, choose
from .obstacles import Obstacle, obstacle, why_no_agent

# After this silence an agent counts as dead. By then everything that it ran has ended by itself.
agent_dead_after_s: Final = 15.0
supervised_queries_max: Final = 1000
# The pause between two starts, which doubles each time up to the maximum.
supervised_backoff_s: Final = 1.0
supervised_backoff_max_s: Final = 60.0
# After a run that lasted this long, earlier failures do not count any more.
supervised_settled_s: Final = 600.0
# A standby is started this long after its query, because two starts at the same time take twice as long.
supervised_standby_after_s: Final = 5.0


_NEVER_STARTED = "stopped before it was started"
_WITH_AN_AGENT = (QueryPhase.RUNNING, QueryPhase.STOPPING)


@dataclass(slots=True)
class KnownAgent:
    """An agent and its last report."""

    beat: AgentBeat
    heard_s: float
    #: The protocol version that it speaks.
    version: int

    @property
    def sends_logs(self) -> bool:
        """Whether the agent can send logs. An older version ignores such requests."""
        return self.version >= LOGS_SINCE


@dataclass(slots=True)
class StandbyRun:
    """A driver that waits for a run. Its agent knows it by `number`, which no run of the checkpoint has."""

    agent: str
    process: str
    number: str
    location: str
    is_ready: bool = False


@dataclass(slots=True)
class SupervisedQuery:
    """A query's record, and its soft state, which a restart of the coordinator loses."""

    record: QueryRecord
    #: `due_s` is the earliest time to start the query, `running_since_s` the start of its current run.
    due_s: float
    running_since_s: float
    failed_on: str | None = None
    #: The query's standby, the time from which it may get another one, the number of consecutive failed ones, and
    #: the reason of the last failure.
    standby: StandbyRun | None = None
    standby_due_s: float = 0.0
    standbys_failed: int = 0
    standby_reason: str = ""
    #: The number of the standby whose process gets the run; empty if the run is a new process.
    takes_over_from: str = ""

    def numbers(self) -> set[str]:
        """Return the numbers under which agents run the query: its run's, and its standby's."""
        return {self.record.run} if self.standby is None else {self.record.run, self.standby.number}


@dataclass(slots=True)
class Supervision:
    """All queries and agents. `operations/queries/supervision` drives it, `CoordinatorCore` owns it.

    Commit the records that methods return before telling an agent or user of them. A query has at most one run,
    and gets the next one only when the run before has ended.
    """

    now_s: float
    queries: dict[str, SupervisedQuery] = field(default_factory=dict)
    agents: dict[str, KnownAgent] = field(default_factory=dict)
    #: Counts since the coordinator's start: runs begun; runs begun by a standby; failed runs; silent agents.
    begun_total: int = 0
    taken_over_total: int = 0
    failed_total: int = 0
    lost_total: int = 0

    def recall(self, records: Iterable[QueryRecord]) -> None:
        """Take in the committed records after a start. Agents get as much time as if they had just been heard."""
        for record in records:
            query = self.queries[record.name] = SupervisedQuery(record, self.now_s, self.now_s)
            if record.phase is QueryPhase.STOPPING and not record.run:
                self._over(query, QueryPhase.STOPPED, _NEVER_STARTED)

    # -- what users ask ------------------------------------------------------------------------------

    def register(self, now_s: float, record: QueryRecord) -> list[QueryRecord]:
        """Register a query to be started. Does nothing if the same query is registered already.

        Replaces the user's own query of that name if it is over. Raises FileAlreadyExists if the name is in use,
        BadRequest if the checkpoint is, Overloaded.
        """
        known = self.queries.get(record.name)
        if known is not None and known.record.user != record.user and not record.is_superuser:
            raise FileAlreadyExists(f"another user has a query {record.name}; say another --name")
        if known is not None and known.record.phase not in OVER:
            if _is_same(known.record, record):
                return []
            raise FileAlreadyExists(f"a query {record.name} is supervised already; stop it first, or say --name")
        for other in self.queries.values():
            if (
                record.checkpoint
                and other.record.checkpoint == record.checkpoint
                and other.record.phase not in OVER
            ):
                which = (
                    f"query {other.record.name}" if other.record.user == record.user else "another user's query"
                )
                raise BadRequest(f"{record.checkpoint} is the checkpoint of {which} already")
        if known is None and len(self.queries) >= supervised_queries_max:
            raise Overloaded(f"{supervised_queries_max} queries are known already; forget some that are over")
        self.queries[record.name] = SupervisedQuery(record, now_s, now_s)
        return [record]

    def stop(self, name: str) -> list[QueryRecord]:
        """Stop a query for good. Does nothing if it is over. Raises FileNotFound."""
        query = self.existing(name)
        phase = query.record.phase
        if phase is QueryPhase.WAITING:
            return [self._over(query, QueryPhase.STOPPED, _NEVER_STARTED)]
        query.standby = None
        if phase is QueryPhase.STARTING:
            # No agent has learned of the run, and none will.
            return [self._change(query, phase=QueryPhase.STOPPING, run="", reason="asked to stop")]
        if phase is QueryPhase.RUNNING:
            return [self._change(query, phase=QueryPhase.STOPPING, reason="asked to stop")]
        return []

    def forget(self, name: str) -> None:
        """Forget a query that is over. Raises FileNotFound, and BadRequest if it is not over."""
        if self.existing(name).record.phase not in OVER:
            raise BadRequest(f"query {name} is not over; stop it first")
        del self.queries[name]

    def stamp(self, record: QueryRecord, now_ms: int) -> QueryRecord:
        """Set the time of the last change in a record and in its query. Return the record."""
        self.queries[record.name].record = replace(self.queries[record.name].record, changed_ms=now_ms)
        return replace(record, changed_ms=now_ms)

    def existing(self, name: str) -> SupervisedQuery:
        """Return a query by its name. Raises FileNotFound."""
        query = self.queries.get(name)
        if query is None:
            raise FileNotFound(f"there is no supervised query {name}")
        return query

    # -- what agents say -----------------------------------------------------------------------------

    def heard(self, now_s: float, beat: AgentBeat, version: int = PROTOCOL_VERSION) -> list[QueryRecord]:
        """Take in an agent's report, in protocol `version`. Raises NodeIdTaken if another process has its name."""
        known = self.agents.get(beat.agent)
        if (
            known is not None
            and known.beat.process != beat.process
            and not known.beat.leaving
            and now_s - known.heard_s < suspect_after_s
        ):
            raise NodeIdTaken(
                f"an agent named {beat.agent} was heard a moment ago: is it another? Give each its own --name"
            )
        self.agents[beat.agent] = KnownAgent(beat, now_s, version)
        reports = {(report.query, report.run): report for report in beat.runs}
        for query in self.queries.values():
            if query.standby is not None and query.standby.agent == beat.agent:
                self._judge_standby(now_s, query, beat, reports.get((query.record.name, query.standby.number)))
        return [
            changed
            for query in self._of(beat.agent)
            if (changed := self._judge(now_s, query, beat, reports.get((query.record.name, query.record.run))))
        ]

    def orders(self, agent: str) -> list[RunOrder]:
        """Return everything that an agent should run."""
        orders = []
        for query in self.queries.values():
            record, standby = query.record, query.standby
            if record.phase is QueryPhase.RUNNING and record.agent == agent and record.run:
                order = _order(record, record.run, record.location)
                orders.append(msgspec.structs.replace(order, takes_over_from=query.takes_over_from))
            if standby is not None and standby.agent == agent:
                order = _order(record, standby.number, standby.location)
                orders.append(msgspec.structs.replace(order, standby=True))
        return orders

    def _judge(
        self, now_s: float, query: SupervisedQuery, beat: AgentBeat, report: RunReport | None
    ) -> QueryRecord | None:
        record = query.record
        if record.phase is QueryPhase.STOPPING:
            gone = report is None or report.ended or record.process != beat.process
            return self._over(query, QueryPhase.STOPPED, "stopped") if gone else None
        if record.process != beat.process or beat.leaving:
            return self._fail(now_s, query, f"agent {beat.agent} was stopped, and what it ran with it")
        if report is None or not report.ended:
            return None
        if report.status == 0:
            return self._over(query, QueryPhase.ENDED, "it ended with exit status 0")
        return self._fail(now_s, query, _why(report))

    def _judge_standby(
        self, now_s: float, query: SupervisedQuery, beat: AgentBeat, report: RunReport | None
    ) -> None:
        assert query.standby is not None
        if query.standby.process != beat.process or beat.leaving:
            self._standby_failed(now_s, query, f"agent {beat.agent} was stopped, and what it ran with it")
        elif report is not None and report.ended:
            self._standby_failed(now_s, query, _why(report))
        elif report is not None and report.is_ready and not query.standby.is_ready:
            query.standby.is_ready = True
            if query.record.phase is QueryPhase.WAITING:
                query.due_s = now_s

    # -- time ----------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> list[QueryRecord]:
        """Find agents that are dead, and fail or stop their runs. Call this several times a second."""
        self._forgive_own_pause(now_s)
        changed = []
        for query in self.queries.values():
            if query.record.phase in _WITH_AN_AGENT and self._is_dead(now_s, query.record.agent):
                why = f"nothing was heard of agent {query.record.agent} for {agent_dead_after_s:g} s"
                if query.record.phase is QueryPhase.STOPPING:
                    changed.append(self._over(query, QueryPhase.STOPPED, f"stopped: {why}"))
                else:
                    changed.append(self._fail(now_s, query, why))
            if query.standby is not None and self._is_dead(now_s, query.standby.agent):
                self._standby_failed(now_s, query, f"nothing was heard of agent {query.standby.agent}")
        for name in [name for name in self.agents if self._is_dead(now_s, name)]:
            self.lost_total += not self.agents.pop(name).beat.leaving
        return changed

    def _forgive_own_pause(self, now_s: float) -> None:
        gap_s = now_s - self.now_s
        self.now_s = now_s
        if gap_s > suspect_after_s / 2:
            for agent in self.agents.values():
                agent.heard_s += gap_s
            for query in self.queries.values():
                query.running_since_s += gap_s

    def _is_dead(self, now_s: float, agent: str) -> bool:
        known = self.agents.get(agent)
        if known is not None:
            return now_s - known.heard_s >= agent_dead_after_s
        # The agent was not heard since the coordinator's start, or since it got the run.
        waiting = [query.running_since_s for query in self._of(agent)]
        return now_s - max(waiting, default=now_s) >= agent_dead_after_s

    # -- starting ------------------------------------------------------------------------------------

    def due(self, now_s: float) -> list[QueryRecord]:
        """Return the waiting queries whose pause is over and that have a ready standby or a possible agent."""
        runs = self.runs_of_agents()
        return [
            query.record
            for query in self.queries.values()
            if query.record.phase is QueryPhase.WAITING
            and query.due_s <= now_s
            and (_has_ready_standby(query) or self._candidates(query.record, runs))
        ]

    def due_to_standbys(self, now_s: float) -> list[QueryRecord]:
        """Return the queries of `due` that have a ready standby."""
        return [record for record in self.due(now_s) if _has_ready_standby(self.queries[record.name])]

    def without_standby(self, now_s: float) -> list[QueryRecord]:
        """Return the running queries that should have a standby by now, have none, and have a possible agent."""
        runs = self.runs_of_agents()
        return [
            query.record
            for query in self.queries.values()
            if query.record.has_standby
            and query.record.phase is QueryPhase.RUNNING
            and query.standby is None
            and now_s >= max(query.standby_due_s, query.running_since_s + supervised_standby_after_s)
            and self._candidates(query.record, runs)
        ]

    def stand_by(self, name: str, number: str, location: str, holdings: Holdings) -> None:
        """Choose an agent for a query's standby, preferably another one than the query's."""
        query = self.queries.get(name)
        if query is None or query.record.phase is not QueryPhase.RUNNING or query.standby is not None:
            return
        agent = choose(self._candidates(query.record, self.runs_of_agents()), holdings, query.record.agent)
        if agent is not None:
            query.standby = StandbyRun(agent, self.agents[agent].beat.process, number, location)

    def place(self, now_s: float, name: str, holdings: Holdings) -> QueryRecord | None:
        """Choose an agent for a query. Return the record to commit; None if it is not due or has no agent."""
        query = self.queries.get(name)
        if query is None or query.record.phase is not QueryPhase.WAITING or query.due_s > now_s:
            return None
        query.takes_over_from = ""
        if query.standby is not None and query.standby.is_ready:
            query.takes_over_from = query.standby.number
            takes, process = query.standby.agent, query.standby.process
            return self._change(query, phase=QueryPhase.STARTING, agent=takes, process=process)
        agent = choose(self._candidates(query.record, self.runs_of_agents()), holdings, query.failed_on)
        if agent is None:
            return None
        process = self.agents[agent].beat.process
        return self._change(query, phase=QueryPhase.STARTING, agent=agent, process=process)

    def begun(self, now_s: float, name: str, run: str, location: str) -> list[QueryRecord]:
        """Note that a run was begun for a query. Once the returned record is committed, its agent may be told."""
        query = self.queries.get(name)
        if query is None:
            return []
        if query.record.phase is not QueryPhase.STARTING:
            return [self._not_to_be_started(query)]
        query.running_since_s = now_s
        self.begun_total += 1
        if query.takes_over_from:
            if query.standby is None or query.standby.number != query.takes_over_from:
                # The standby has failed meanwhile, so the agent starts the run as a new process.
                query.takes_over_from = ""
            else:
                query.standby = None
                query.standbys_failed = 0
                query.standby_reason = ""
                self.taken_over_total += 1
        record = self._change(query, phase=QueryPhase.RUNNING, run=run, location=location, reason="")
        agent = self.agents.get(record.agent)
        if agent is not None and agent.beat.process != record.process:
            return [self._fail(now_s, query, f"agent {record.agent} was started anew")]
        return [record]

    def refused(self, now_s: float, name: str, why: str, *, for_good: bool) -> list[QueryRecord]:
        """Note that no run could be begun for a query."""
        query = self.queries.get(name)
        if query is None:
            return []
        if query.record.phase is not QueryPhase.STARTING:
            return [self._not_to_be_started(query)]
        if for_good:
            return [self._over(query, QueryPhase.FAILED, why)]
        query.due_s = now_s + supervised_backoff_s
        return [self._change(query, phase=QueryPhase.WAITING, agent="", process="", reason=why)]

    def _not_to_be_started(self, query: SupervisedQuery) -> QueryRecord:
        """Return the record of a query that was stopped, or replaced by another, before its run was begun."""
        if query.record.phase is QueryPhase.STOPPING:
            return self._over(query, QueryPhase.STOPPED, _NEVER_STARTED)
        return query.record

    def _candidates(self, record: QueryRecord, runs: Mapping[str, int]) -> list[AgentCandidate]:
        """Return the agents that may start a query and have room besides `runs`."""
        return [
            AgentCandidate(name, agent.beat.host, agent.beat.rack, runs.get(name, 0))
            for name, agent in self.agents.items()
            if obstacle(agent.beat, record, runs.get(name, 0)) is None
        ]

    def waits_for(self, record: QueryRecord, runs: Mapping[str, int]) -> str:
        """Say why no agent starts a query or its standby; empty if an agent may start it."""
        agents = {name: agent.beat for name, agent in self.agents.items()}
        obstacles: dict[str, Obstacle] = {}
        for name, beat in agents.items():
            found = obstacle(beat, record, runs.get(name, 0))
            if found is None:
                return ""
            obstacles[name] = found
        return why_no_agent(record, agents, obstacles)

    def runs_of_agents(self) -> Mapping[str, int]:
        """Count the runs and standbys at each agent."""
        running = (QueryPhase.STARTING, *_WITH_AN_AGENT)
        runs: Counter[str] = Counter()
        for query in self.queries.values():
            if query.record.phase in running and not (
                query.record.phase is QueryPhase.STARTING and query.takes_over_from
            ):
                runs[query.record.agent] += 1
            if query.standby is not None:
                runs[query.standby.agent] += 1
        return runs

    def _of(self, agent: str) -> list[SupervisedQuery]:
        return [
            query
            for query in self.queries.values()
            if query.record.agent == agent and query.record.phase in _WITH_AN_AGENT and query.record.run
        ]

    # -- changes -------------------------------------------------------------------------------------

    def _fail(self, now_s: float, query: SupervisedQuery, why: str) -> QueryRecord:
        """End the run of a query. It waits for another one, or has FAILED if there were too many restarts."""
        record = query.record
        self.failed_total += 1
        lasted_s = now_s - query.running_since_s
        restarts = (0 if record.run and lasted_s >= supervised_settled_s else record.restarts) + 1
        if restarts > record.restarts_max:
            return self._over(query, QueryPhase.FAILED, f"it failed {restarts} times, in the end because {why}")
        query.failed_on = record.agent or None
        pause_s = min(supervised_backoff_s * 2 ** (restarts - 1), supervised_backoff_max_s)
        query.due_s = now_s if _has_ready_standby(query) else now_s + pause_s
        return self._change(query, phase=QueryPhase.WAITING, agent="", process="", restarts=restarts, reason=why)

    def _standby_failed(self, now_s: float, query: SupervisedQuery, why: str) -> None:
        """Forget a failed standby. The next one is started after a pause, which grows with each failure."""
        query.standby = None
        query.standbys_failed += 1
        query.standby_reason = why
        pause_s = supervised_backoff_s * 2 ** min(query.standbys_failed - 1, 30)
        query.standby_due_s = now_s + min(pause_s, supervised_backoff_max_s)

    def _over(self, query: SupervisedQuery, phase: QueryPhase, why: str) -> QueryRecord:
        query.standby = None
        return self._change(query, phase=phase, reason=why)

    @staticmethod
    def _change(query: SupervisedQuery, **changes: object) -> QueryRecord:
        query.record = replace(query.record, **changes)  # type: ignore[arg-type]
        return query.record


def _order(record: QueryRecord, run: str, location: str) -> RunOrder:
    return RunOrder(record.name, run, record.user, record.command[0], list(record.command[1:]), location)


def _has_ready_standby(query: SupervisedQuery) -> bool:
    return query.standby is not None and query.standby.is_ready


def _is_same(known: QueryRecord, asked: QueryRecord) -> bool:
    """Return whether two records ask for the same query."""

    def contents(record: QueryRecord) -> tuple[object, ...]:
        return (
            *(record.user, record.command, record.checkpoint, record.nodes),
            *(record.restarts_max, record.has_standby),
        )

    return contents(known) == contents(asked)


def _why(report: RunReport) -> str:
    how = "it could not be started" if report.status is None else f"exit status {report.status}"
    return f"{how}: {report.last_words}" if report.last_words else how
