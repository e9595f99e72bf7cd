"""A coordinator without sockets: the core and everything that drives it.

The service connects it to real sockets, the simulated cluster to simulated ones. `Surroundings` holds everything
that differs between the two. So everything that is added here, or to the background tasks, is also simulated under
seeds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn

from peacefs.coordinator.limits import reclaim_entries_per_commit
from peacefs.protocol.limits import read_token_lifetime_s, streams_per_node_default, unreferenced_chunk_kept_s
from peacefs.protocol.messages import Trust
from peacefs.protocol.tokens import Signer
from peacefs.topology.model import Topology

from .background.chunk_loading import ChunkLoading
from .background.epoch_floor import EpochService
from .background.tasks import CoordinatorTasks
from .background.ticking import Ticking
from .cluster.replica_history import ReplicaHistory
from .core import CoordinatorCore
from .failover.leadership import Leadership
from .health import Condition
from .metadata.epochs import Begun, draw_epoch, epochs_of
from .metadata.journal_chain import Touched
from .metadata.reader import Reader
from .metadata.store import Metadata, MetadataFault
from .namespace.permissions import Callers
from .operations.context import OperationContext
from .operations.durability.commits import Commits
from .operations.durability.durable_answers import DurableAnswers
from .operations.files import Files
from .operations.queries.supervision import SupervisionService
from .operations.waiters import Wait, wait_on_loop
from .rpc.agent_service import AgentService
from .rpc.audited_calls import AuditedRpc
from .rpc.coordinator_news import CoordinatorNews
from .rpc.datanode_calls import DatanodeCalls
from .rpc.datanode_links import DatanodeLinks
from .rpc.datanode_service import DatanodeService
from .rpc.node_service import NodeService
from .rpc.store_copies import MakeCopy, StoreCopies
from .scheduling.policies import POLICY_DEFAULT


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The world around a coordinator: its disk, its clocks, its links, chance, and who runs what waits."""

    metadata: Metadata
    reader: Reader
    #: Commit a change whether or not commits are missing.
    commits: Commits
    signer: Signer
    links: DatanodeLinks
    #: Runs a request of a datanode that may wait, or raises Overloaded.
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    #: Called when the metadata can no longer be written.
    on_fault: Callable[[MetadataFault], NoReturn]
    rng: Random
    #: Draws numbers that no datanode can predict; if None, `rng` draws them.
    nonce: Callable[[], bytes] | None = None
    monotonic: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    wait: Wait = wait_on_loop
    #: Entered while the chunks are being loaded.
    loading: Callable[[], AbstractContextManager[None]] = nullcontext
    audited: AuditedRpc | None = None
    #: The keys by which gateways verify their callers: the same object until it changes.
    trust: Callable[[], Trust] = Trust
    #: Makes a token for a user that is valid for a number of seconds; None if user names are believed.
    token_of: Callable[[str, float], str] | None = None
    #: The coordinator's address for HTTP, which agents are told.
    address: Callable[[], str] = str
    #: Receives events of replicas; if None, a bounded history is kept.
    history: ReplicaHistory | None = None
    #: Hears how long the set of each grant had waited, in seconds.
    on_waited: Callable[[float], object] = lambda seconds: None
    #: Copies the metadata for coordinators that join; if None, none can join.
    make_copy: MakeCopy | None = None
    #: Says whether this coordinator leads.
    leadership: Leadership = field(default_factory=Leadership.alone)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The choices of an operator; see `options.CoordinatorOptions`."""

    callers: Callers = field(default_factory=Callers)
    described: Topology | None = None
    policy: str = POLICY_DEFAULT
    streams_per_node: int = streams_per_node_default
    trash_minutes: int = 0
    collect_temporary_hours: float | None = None
    read_token_lifetime_s: float = read_token_lifetime_s
    access_time_precision_s: float = 0.0
    unreferenced_kept_s: float = unreferenced_chunk_kept_s
    copied_per_commit: int = reclaim_entries_per_commit


class Assembly:
    """All parts of a coordinator behind its doors. Run `background` until it ends."""

    def __init__(self, around: Surroundings, settings: Settings) -> None:
        """Start as a standby; if there is no journal, begin an epoch and lead.

        Raises MetadataFull, MetadataFault; BadRequest for an unknown policy, Unsupported for a policy that is not
        installed.
        """
        now_s = around.monotonic()
        self.core = CoordinatorCore(
            now_s,
            epochs_of(around.metadata, now_s, settled_after_s=settings.unreferenced_kept_s),
            around.rng,
            described=settings.described,
            nonce=around.nonce,
            history=around.history,
            policy=settings.policy,
            streams_per_node=settings.streams_per_node,
        )
        self.epochs = EpochService(self.core, around.metadata, around.reader, around.commits, around.on_fault)
        self.context = OperationContext(
            around.reader,
            self.epochs.commit,
            self.core,
            around.signer,
            around.links,
            DurableAnswers(around.metadata.rows, around.commits),
            settings.callers,
            monotonic=around.monotonic,
            wall_clock=around.wall_clock,
            sleep=around.sleep,
            wait=around.wait,
            read_token_lifetime_s=settings.read_token_lifetime_s,
            access_time_precision_s=settings.access_time_precision_s,
            on_waited=around.on_waited,
        )
        self.files = Files(self.context, settings.trash_minutes, copied_per_commit=settings.copied_per_commit)
        self.supervising = SupervisionService(self.context, self.files.fencing, around.address, around.token_of)
        links, leadership = around.links, around.leadership
        self.datanodes = DatanodeService(
            self.core,
            self.context.perform,
            links,
            self.files.credentials,
            CoordinatorNews(
                self.epochs,
                leadership,
                wall_clock=around.wall_clock,
                durable_commit=lambda: around.metadata.tx_durable,
                trust=around.trust,
            ),
            DatanodeCalls(self.files, leadership, around.spawn, around.audited),
            spawn=around.spawn,
            monotonic=around.monotonic,
        )
        self.nodes = NodeService(
            self.datanodes,
            AgentService(self.supervising, leadership, around.spawn),
            StoreCopies(around.make_copy, around.spawn),
        )
        self.ticking = Ticking(
            self.core,
            self.context.perform,
            self.epochs,
            self.files.names,
            monotonic=around.monotonic,
            sleep=around.sleep,
        )
        self.background = CoordinatorTasks(
            ChunkLoading(
                self.core,
                around.reader,
                sleep=around.sleep,
                on_loaded=self.datanodes.chunks_loaded,
                loading=around.loading,
            ),
            self.ticking,
            self.files,
            self.context.access_times,
            self.supervising,
            sleep=around.sleep,
            collect_temporary_hours=settings.collect_temporary_hours,
        )
        self._around = around
        self.files.administration.recall()
        self.files.credentials.recall()
        if around.leadership.leads:
            self.lead(draw_epoch(around.metadata))
        else:
            around.links.stand_by()

    def lead(self, begun: Begun) -> None:
        """Start to lead in `epoch`, and load the decisions of earlier epochs."""
        now_s = self.context.monotonic()
        self.epochs.begin(begun, now_s)
        self.context.leases.lead(now_s)
        if self._around.leadership.me is not None:
            self.core.cluster.await_epoch(begun.epoch)
        self.supervising.recall()
        self.files.administration.recall()
        self.files.credentials.recall()
        self._around.links.lead(self.epochs.epoch)
        self.datanodes.lead()

    def changed_elsewhere(self, touched: Touched) -> None:
        """While standing by: the leader has changed the metadata."""
        now_s, reader = self.context.monotonic(), self._around.reader
        for chunk in touched.chunks:
            self.core.changed_elsewhere(now_s, chunk, reader.chunk(chunk))
        if "credential" in touched.tables:
            self.files.credentials.recall()

    def stand_by(self) -> None:
        """Do the periodic work of a standby. Call it regularly while another coordinator leads."""
        self.ticking.stand_by()

    def condition(self) -> Condition:
        """Return the facts by which health is judged."""
        leadership, now_s = self._around.leadership, self.context.monotonic()
        return Condition(
            tick_age_s=now_s - self.ticking.ticked_s,
            leads=leadership.leads,
            somebody_leads=leadership.leads or leadership.knows_leader,
            has_loaded=self.core.cluster.is_loaded,
            is_ready=self.core.cluster.ready(now_s),
            has_room=self._around.metadata.has_room,
            commits_missing=self._around.reader.lacks_commits(),
        )
