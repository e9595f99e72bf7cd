"""Supervised queries: commit the core's decisions before telling anybody about them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from peacefs.coordinator.limits import run_token_s
from peacefs.coordinator.metadata.model import QueryRecord
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import query_runs
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.coordinator.supervision.core import SupervisedQuery, Supervision
from peacefs.coordinator.supervision.locality import Holdings
from peacefs.protocol.errors import BadRequest, PeacefsError, ServiceUnready
from peacefs.protocol.ids import show
from peacefs.protocol.limits import KIB, supervised_restarts_max
from peacefs.protocol.messages import PROTOCOL_VERSION, AgentBeat, AgentOrders, RunOrder, WantedLog
from peacefs.protocol.values.supervised_queries import (
    OVER,
    AgentStatus,
    QueryPhase,
    QueryStatus,
    RunLog,
    Supervised,
)

from .checkpoint_locality import find_locality
from .query_runs import QueryRuns
from .run_logs import RunLogs

supervised_name_characters_max: Final = 100
supervised_arguments_max: Final = 256
supervised_command_characters_max: Final = 32 * KIB
supervised_nodes_max: Final = 256

log = logging.getLogger("peacefs.coordinator")


class SupervisionService:
    """Used from the event loop only. `address` is the coordinator's for HTTP, `token_of` makes user tokens."""

    def __init__(
        self,
        context: OperationContext,
        fence: QueryRuns,
        address: Callable[[], str],
        token_of: Callable[[str, float], str] | None = None,
    ) -> None:
        """Without `token_of`, user names are believed, and runs get no tokens."""
        self._token_of = token_of
        #: The token of each run that an agent has been told about, and until when the agent gets this token.
        self._tokens: dict[tuple[str, str], tuple[str, float]] = {}
        self._ctx = context
        self._fence = fence
        self._address = address
        self._core = context.core.supervision
        self._logs = RunLogs(context.wait)
        #: The run of each query that, according to a committed record, an agent runs.
        self._committed: dict[str, str] = {}
        #: The core's last decision about each query, and the decisions that are not committed yet.
        self._latest: dict[str, QueryRecord] = {}
        self._refused: list[QueryRecord] = []

    @property
    def core(self) -> Supervision:
        """The core, for reading."""
        return self._core

    def recall(self) -> None:
        """Load the committed state at a start."""
        records = self._ctx.reader.supervised_queries()
        self._core.recall(records)
        self._committed = {record.name: record.run for record in records}

    # -- requests of users ---------------------------------------------------------------------------

    async def register(self, record: QueryRecord) -> QueryStatus:
        """Register a query, durable on return. Raises BadRequest, FileAlreadyExists, Overloaded, AccessDenied."""
        _check(record)
        if record.checkpoint:
            record = replace(record, checkpoint=str(parse_path(record.checkpoint)))
        record = replace(record, is_superuser=self._ctx.caller(record.user).is_superuser)
        await self._record(self._core.register(self._ctx.monotonic(), record))
        return self.status(record.name)

    async def stop(self, name: str, user: str) -> QueryStatus:
        """Ask for a stop, durable on return; see `status` for its end. Raises FileNotFound, AccessDenied."""
        self._check_owner(name, user)
        await self._record(self._core.stop(name))
        return self.status(name)

    async def forget(self, name: str, user: str) -> None:
        """Forget a query. Raises FileNotFound, AccessDenied, BadRequest for a query that is not over."""
        self._check_owner(name, user)
        self._core.forget(name)
        self._refused = [record for record in self._refused if record.name != name]
        self._latest.pop(name, None)
        await self._ctx.commit(lambda tx: tx.forget_query(name))

    def status(self, name: str) -> QueryStatus:
        """Return the status of a query. Raises FileNotFound."""
        return self._status(self._core.existing(name), self._core.runs_of_agents())

    def status_for(self, name: str, viewer: Viewer) -> QueryStatus:
        """Return the status of a query if the viewer may see it. Raises FileNotFound, AccessDenied."""
        if not viewer.sees_all:
            self._check_owner(name, viewer.user)
        return self.status(name)

    def shown_to(self, viewer: Viewer) -> Supervised:
        """Return the queries that a viewer sees, and by name the agents that start commands for it."""
        queries = [self._core.queries[name] for name in sorted(self._core.queries)]
        agents = [self._agent(name, viewer) for name in sorted(self._core.agents)]
        runs = self._core.runs_of_agents()
        return Supervised(
            [self._status(query, runs) for query in queries if viewer.sees(query.record.user)],
            [agent for agent in agents if viewer.sees_all or agent.commands],
        )

    def _agent(self, name: str, viewer: Viewer) -> AgentStatus:
        """Describe an agent. Users see the commands that it starts for them, and not its address."""
        agent = self._core.agents[name]
        beat = agent.beat
        return AgentStatus(
            name,
            beat.host if viewer.sees_all else "",
            beat.rack if viewer.sees_all else "",
            [command.name for command in beat.commands if viewer.sees_all or viewer.user in command.users],
            beat.runs_max,
            len(beat.runs),
            round(self._ctx.monotonic() - agent.heard_s, 3),
        )

    async def log_of(self, name: str, user: str) -> RunLog:
        """Return the end of the log of a query's last run, for the user that registered it.

        Raises FileNotFound, AccessDenied, BadRequest if no agent has a log.
        """
        self._check_owner(name, user)
        record = self._core.existing(name).record
        if not record.agent or not record.run:
            raise BadRequest(f"query {name} has not been started")
        agent = self._core.agents.get(record.agent)
        if agent is not None and not agent.sends_logs:
            raise BadRequest(f"agent {record.agent} is older and sends no logs: upgrade peacefs where it runs")
        text = await self._logs.of(record.agent, WantedLog(name, record.run))
        return RunLog(name, record.run, record.agent, text)

    def _status(self, query: SupervisedQuery, runs: Mapping[str, int]) -> QueryStatus:
        record, standby = query.record, query.standby
        return QueryStatus(
            name=record.name,
            user=record.user,
            command=list(record.command),
            checkpoint=record.checkpoint,
            nodes=list(record.nodes),
            phase=record.phase.value,
            agent=record.agent,
            run=record.run,
            location=record.location,
            restarts=record.restarts,
            restarts_max=record.restarts_max,
            reason=self._reason(query, runs),
            changed_ms=record.changed_ms,
            standby=self._standby_of(query, runs),
            standby_agent="" if standby is None else standby.agent,
        )

    def _reason(self, query: SupervisedQuery, runs: Mapping[str, int]) -> str:
        """Return the reason for a query's state. For a waiting query it also names the agent."""
        record = query.record
        if record.phase is not QueryPhase.WAITING or not (awaited := self._core.waits_for(record, runs)):
            return record.reason
        return f"{awaited} (before: {record.reason})" if record.reason else awaited

    def _standby_of(self, query: SupervisedQuery, runs: Mapping[str, int]) -> str:
        if not query.record.has_standby or query.record.phase in OVER:
            return ""
        if query.standby is not None:
            return "ready" if query.standby.is_ready else "starting"
        if query.standby_reason:
            return f"the last one failed: {query.standby_reason}"
        awaited = self._core.waits_for(query.record, runs)
        return f"none yet: {awaited}" if awaited else "none yet"

    def _check_owner(self, name: str, user: str) -> None:
        if user != self._core.existing(name).record.user:
            self._ctx.callers.need_superuser(user)

    # -- reports of agents ----------------------------------------------------------------------------

    async def heard(self, beat: AgentBeat, version: int = PROTOCOL_VERSION) -> AgentOrders:
        """Take the report of an agent of this version, and return its orders. Raises NodeIdTaken."""
        if beat.agent not in self._core.agents:
            log.info("agent %s on %s may run %s", beat.agent, beat.host, [each.name for each in beat.commands])
        await self._record(self._core.heard(self._ctx.monotonic(), beat, version))
        self._logs.came(beat.agent, beat.logs)
        for record in self._core.due_to_standbys(self._ctx.monotonic()):
            await self._start(record)
        orders = [
            committed
            for order in self._core.orders(beat.agent)
            if (committed := self._as_committed(order)) is not None
        ]
        return AgentOrders(
            self._address(), [self._with_token(order) for order in orders], self._logs.wanted_of(beat.agent)
        )

    def _as_committed(self, order: RunOrder) -> RunOrder | None:
        if order.standby or self._committed.get(order.query) == order.run:
            return order
        if not order.takes_over_from:
            return None
        # The standby waits on until its run is durable.
        return msgspec.structs.replace(order, run=order.takes_over_from, standby=True, takes_over_from="")

    def _with_token(self, order: RunOrder) -> RunOrder:
        if self._token_of is None:
            return order
        key, now_s = (order.query, order.run), self._ctx.monotonic()
        token, until_s = self._tokens.get(key, ("", 0.0))
        if now_s >= until_s:
            token = self._token_of(order.user, run_token_s)
            # Forget the tokens of earlier runs.
            told = self._core.existing(order.query).numbers()
            self._tokens = {
                each: made for each, made in self._tokens.items() if each[0] != order.query or each[1] in told
            }
            self._tokens[key] = token, now_s + run_token_s / 2
        return msgspec.structs.replace(order, token=token)

    # -- in the background ---------------------------------------------------------------------------

    async def tick(self) -> None:
        """Advance the core's clock. Call it several times a second."""
        await self._record(self._core.tick(self._ctx.monotonic()), in_any_case=True)
        for record in self._core.due(self._ctx.monotonic()):
            await self._start(record)
        for record in self._core.without_standby(self._ctx.monotonic()):
            await self._start_standby(record)

    async def _start(self, waiting: QueryRecord) -> None:
        holdings = Holdings()
        if waiting.checkpoint:
            holdings = await self._ctx.in_turns(
                find_locality(self._ctx.reader, self._ctx.cluster, waiting.checkpoint)
            )
        record = self._core.place(self._ctx.monotonic(), waiting.name, holdings)
        if record is None:
            return
        try:
            run, location = await self._begin(record)
        except PeacefsError as fault:
            changed = self._core.refused(
                self._ctx.monotonic(), record.name, fault.message, for_good=not fault.retriable
            )
        else:
            changed = self._core.begun(self._ctx.monotonic(), record.name, run, location)
        await self._record(changed, in_any_case=True)

    async def _start_standby(self, record: QueryRecord) -> None:
        """Start a second driver. Writes to its location are refused until its run is the latest."""
        number, location, holdings = self._ctx.numbering.next(), "", Holdings()
        if record.checkpoint:
            location = str(query_runs.location(parse_path(record.checkpoint), number))
            holdings = await self._ctx.in_turns(
                find_locality(self._ctx.reader, self._ctx.cluster, record.checkpoint)
            )
        self._core.stand_by(record.name, show(number), location, holdings)

    async def _begin(self, record: QueryRecord) -> tuple[str, str]:
        """Begin a run. Writes of earlier runs are refused from here on."""
        if not record.checkpoint:
            return show(self._ctx.numbering.next()), ""
        run = await self._fence.begin(record.checkpoint, record.user, record.agent, 0, in_any_case=True)
        return run.run, run.location

    async def _record(self, changed: Sequence[QueryRecord], *, in_any_case: bool = False) -> None:
        """Commit decisions in the order in which the core made them. Raises ServiceUnready; then try again later.

        `in_any_case` is for background tasks, as in `Commits`.
        """
        stamped = [self._core.stamp(record, self._ctx.now_ms()) for record in changed]
        records, self._refused = [*self._refused, *stamped], []
        if not records:
            return
        self._latest.update((record.name, record) for record in stamped)
        try:
            # Orders must leave in the order of the decisions, so nothing may be awaited between a decision and
            # this.
            await self._ctx.commit(lambda tx: _record_all(tx, records), in_any_case=in_any_case)
        except ServiceUnready:
            # Do not overwrite a later decision that may be committed by now.
            self._refused += [record for record in records if self._latest.get(record.name) is record]
            raise
        for record in records:
            self._committed[record.name] = record.run
            log.info("query %s is %s%s", record.name, record.phase.value, _told(record))
            if record.phase in OVER and record.location:
                await self._end(record, in_any_case=in_any_case)

    async def _end(self, record: QueryRecord, *, in_any_case: bool) -> None:
        try:
            await self._fence.end(record.location, record.user, in_any_case=in_any_case)
        except PeacefsError as fault:
            log.info("run %s of query %s has already ended: %s", record.run, record.name, fault.message)


def _check(record: QueryRecord) -> None:
    name = record.name
    if not name or len(name) > supervised_name_characters_max or not name.isprintable() or set(name) & set("/ "):
        raise BadRequest(
            f"a query's name has 1 to {supervised_name_characters_max} characters, no space and no slash: {name!r}"
        )
    words = record.command
    if not words or not words[0] or len(words) - 1 > supervised_arguments_max:
        raise BadRequest(f"a command is a name and up to {supervised_arguments_max} arguments")
    if sum(map(len, words)) > supervised_command_characters_max or any("\0" in word for word in words):
        raise BadRequest(f"a command has up to {supervised_command_characters_max} characters, and no NUL")
    if len(record.nodes) > supervised_nodes_max or not all(record.nodes):
        raise BadRequest(f"up to {supervised_nodes_max} nodes can be named, each by its agent's name or host")
    if not 0 <= record.restarts_max <= supervised_restarts_max:
        raise BadRequest(f"a query may be restarted 0 to {supervised_restarts_max} times")


def _told(record: QueryRecord) -> str:
    where = f" on {record.agent}, run {record.run}" if record.agent else ""
    return f"{where}: {record.reason}" if record.reason else where


def _record_all(tx: Transaction, records: Sequence[QueryRecord]) -> None:
    for record in records:
        tx.record_query(record)
