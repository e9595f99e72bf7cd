"""The coordinator as a service: connects the parts, and serves HTTP and framed links. `process` starts it."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from fastapi import FastAPI

from peacefs.coordinator.limits import bearer_token_min_s, proof_nonce_bytes
from peacefs.protocol.asgi import App
from peacefs.protocol.errors import BadRequest, StartupError
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import checkpoint_look_timeout_s
from peacefs.protocol.messages import Trust
from peacefs.protocol.tokens import Signer
from peacefs.protocol.values.cluster_status import FailoverStatus
from peacefs.runtime.tls import TlsIdentity
from peacefs.runtime.tracing import spanning
from peacefs.service.browser_guard import BrowserGuard, OwnNames
from peacefs.service.http_server import build_server, listen
from peacefs.service.loop_watchdog import LoopWatchdog
from peacefs.service.process import stop_event, when_told_to_reload
from peacefs.topology.loader import load_topology
from peacefs.topology.model import Topology

from .announcement import Ports, announce_ready
from .api.admin_socket import is_own_user, listen_for_administrators
from .api.admission import Admission
from .api.audited_requests import AuditedRequests
from .api.authentication import Authentication, Authenticator, LocalAdministration
from .api.durable_responses import DurableResponses
from .api.impersonation import Impersonation
from .api.live import LiveFeed
from .api.rest.app import build_rest
from .api.rest.balancer import add_balancer_routes, add_disk_balance_route
from .api.rest.checkpoints import add_checkpoint_look_routes, add_checkpoint_routes
from .api.rest.common import superusers_only, viewers
from .api.rest.credentials import add_credential_routes
from .api.rest.failover import add_failover_routes
from .api.rest.health import add_health_routes
from .api.rest.history import add_history_route
from .api.rest.live import add_live_routes
from .api.rest.metadata import add_metadata_routes
from .api.rest.network import add_reload_route
from .api.rest.oauth import add_token_endpoint
from .api.rest.queries import add_query_routes
from .api.rest.status import StatusSources
from .api.rest.tokens import no_token_routes, token_routes
from .api.uploads import Uploads
from .api.webhdfs import WebHdfs
from .assembly import Assembly, Settings, Surroundings
from .audit_log import AuditLog
from .authentication.proxy_users import ProxyRule, ProxyUsers
from .authentication.proxy_users_file import reload_proxy_users
from .authentication.service import WhoIsWho, who_is_who
from .background.runner import TaskRunner, nothing_is_garbage
from .failover.door import HttpDoor
from .failover.leadership import Leadership
from .failover.process import FailoverProcess
from .failover.relay import Relay, Relayed, ask_over_http
from .hdfs.assembly import build_hdfs_server
from .journal.port import Member
from .metadata.epochs import Begun
from .metadata.group_commit import GroupCommit, Settled, metadata_tend_interval_s
from .metadata.journal_chain import Touched
from .metadata.sqlite import exact_copies
from .metadata.sqlite.file import STORE_NAME, room_bytes, size_bytes
from .metadata.sqlite.online_backup import OnlineBackup
from .metadata.store import Metadata, MetadataFault
from .metadata.token_records import TOKEN_TABLES
from .metadata.writer import Writer
from .metrics import (
    commit_seconds,
    grant_waited_seconds,
    watch,
    watch_audit,
    watch_failover,
    watch_schedule,
    watch_state,
    watch_supervision,
    watch_viewers,
)
from .namespace.permissions import Callers
from .operations.durability.commits import Commits, settled_on_loop
from .operations.open_directories import warn_of_open_directories
from .options import CoordinatorOptions
from .rpc.audited_calls import AuditedRpc
from .rpc.client_session import ClientLinks
from .rpc.datanode_links import DatanodeLinks
from .rpc.server import NodeServer, RunningCalls
from .side_process.checkpoint_inspector import CheckpointInspector

# After a power cut, the record of the last commit may be this much older than the commit. Each record costs a sync
# of its own.
commit_record_interval_s: Final = 1.0
# Pages of the metadata whose checksums are verified per second: 1 MiB, half a millisecond.
metadata_scrub_pages: Final = 256


log = logging.getLogger("peacefs.coordinator")
T = TypeVar("T")

#: The loopback address for each address that means all interfaces.
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_NAMES_ARE_BELIEVED = Trust()
_EXIT_AFTER_DISK_FAULT = 74  # EX_IOERR
_EXIT_AFTER_FAILED_WORK = 70  # EX_SOFTWARE


class Coordinator:
    """All parts of a running coordinator, owned by its event loop."""

    def __init__(
        self,
        options: CoordinatorOptions,
        metadata: Metadata,
        signer: Signer,
        described: Topology | None,
        proxy_rules: Mapping[str, ProxyRule],
        tls: TlsIdentity | None = None,
        failover: FailoverProcess | None = None,
    ) -> None:
        self._tls = tls
        self._failover = failover
        self._leadership = Leadership.alone() if failover is None else failover.leadership
        self._options = options
        self._metadata = metadata
        self._signer = signer
        self._audit = None if options.audit_log is None else AuditLog(options.audit_log)
        audited = None if self._audit is None else AuditedRpc(self._audit, signer)
        loop = asyncio.get_running_loop()
        self._group = GroupCommit(
            metadata,
            self._stop_at_once,
            self._tell_of_room,
            run=Writer(loop.call_soon_threadsafe, stays_off_loop=failover is not None),
            soon=loop.call_soon,
            on_taken=commit_seconds().observe,
        )
        commits = Commits(self._group, _settled, self._leadership.refuse_to_commit)
        self._reader = metadata.reader()
        self._advertised = options.advertise or options.host
        self._address = ""
        callers = Callers(getpass.getuser() if options.check_permissions else None, options.groups)
        self._proxy_users = ProxyUsers(callers, proxy_rules)
        self._who: WhoIsWho | None = None
        if options.asks_for_tokens:
            # These commits work even while commits are missing, so that an administrator can log in and accept the
            # loss.
            self._who = who_is_who(self._reader, commits, options.directory, metadata.cluster_id, callers, signer)
        links, calls = DatanodeLinks(), RunningCalls()
        self._parts = parts = Assembly(
            Surroundings(
                metadata=metadata,
                reader=self._reader,
                commits=commits,
                signer=signer,
                links=links,
                spawn=calls.spawn,
                on_fault=self._stop_at_once,
                rng=random.Random(),
                nonce=lambda: secrets.token_bytes(proof_nonce_bytes),
                loading=nothing_is_garbage,
                audited=audited,
                trust=self._trust,
                token_of=self._mint if self._who is not None else None,
                address=self._addresses,
                on_waited=grant_waited_seconds().observe,
                make_copy=None if failover is None else partial(exact_copies.make, options.directory / STORE_NAME),
                leadership=self._leadership,
            ),
            Settings(
                callers=callers,
                described=described,
                policy=options.policy,
                streams_per_node=options.streams_per_node,
                trash_minutes=options.trash_minutes,
                collect_temporary_hours=options.collect_temporary_hours,
                read_token_lifetime_s=options.read_token_lifetime_s,
                access_time_precision_s=options.access_time_precision_s,
                unreferenced_kept_s=options.unreferenced_kept_s,
            ),
        )
        if self._who is not None:
            self._who.tokens.book.on_trust = parts.datanodes.tell_trust
        self._links = links
        me = Identity(metadata.cluster_id, "coordinator", "coordinator", signer)
        self._nodes = NodeServer(me, parts.nodes, links, calls)
        self._authenticator = (
            Authenticator(self._who.verifier, self._who.delegation) if self._who is not None else None
        )
        self._clients = ClientLinks(
            me,
            parts.files,
            authenticate=self._authenticator.of_client if self._authenticator is not None else None,
            audited=audited,
            door=None if failover is None else failover.door,
        )
        self._hdfs = build_hdfs_server(
            parts,
            metadata.cluster_id,
            self._leadership,
            self._proxy_users,
            delegation=None if self._who is None else self._who.delegation,
            door=None if failover is None else failover.door,
            audit=self._audit,
        )
        self._live = LiveFeed()
        self._tasks = TaskRunner()
        self._stop: asyncio.Event

    async def serve(self, reload: Callable[[], None]) -> None:
        """Serve until a signal, or the parent's death; call `reload` at each SIGHUP.

        Raises StartupError if it cannot begin, SystemExit if its own work has failed.
        """
        try:
            await self._serve(reload)
        finally:
            if self._audit is not None:
                self._audit.close()
            # Also after a failed start, because the writer thread must end before the metadata is closed.
            self._group.close()
            self._reader.close()
        log.info("stopped")
        if self._tasks.has_failed:
            raise SystemExit(_EXIT_AFTER_FAILED_WORK)

    async def _serve(self, reload: Callable[[], None]) -> None:
        options = self._options
        stop = self._stop = stop_event(options.parent_fd)
        when_told_to_reload(reload)
        when_told_to_reload(partial(reload_proxy_users, options.proxy_users, self._proxy_users))
        if self._audit is not None:
            when_told_to_reload(self._audit.reopen)
        if self._who is not None and self._leadership.leads:
            await self._who.tokens.begin()
        local_socket = listen_for_administrators(options.directory)
        sock = listen(options.host, options.port)
        http_port = sock.getsockname()[1]
        self._address = f"{self._advertised}:{http_port}"
        app = self._http(http_port)
        server = build_server(app, self._clients.link, tls=self._tls)
        local = LocalAdministration(app, getpass.getuser())
        local_server = build_server(local, lambda: self._clients.link_of(local.caller), is_own_user)
        try:
            node_port = await self._nodes.start(options.host, options.node_port, self._advertised, self._tls)
        except OSError as error:
            sock.close()
            local_socket.close()
            raise StartupError(
                f"cannot listen on {options.host} port {options.node_port}: {error.strerror or error}"
            ) from None
        hdfs_port = await self._start_hdfs()
        if self._tls is not None:
            self._tls.start_watch()
            when_told_to_reload(self._tls.reload)
        serving = asyncio.gather(server.serve(sockets=[sock]), local_server.serve(sockets=[local_socket.listener]))
        self._tasks.start(self._background(), on_failure=stop.set)
        if self._failover is not None:
            me = Member(self._address, f"{self._advertised}:{node_port}")
            keeping = self._failover.keep(me, self._metadata, self, self._stop_at_once)
            self._tasks.start([("following the journal", keeping)], on_failure=stop.set)
        announce_ready(
            options,
            self._tls,
            self._metadata.cluster_id,
            self._parts.epochs.epoch(),
            Ports(http_port, node_port, hdfs_port),
            opens_directories=partial(warn_of_open_directories, self._reader),
        )
        await stop.wait()
        self._live.stop()
        server.should_exit = local_server.should_exit = True
        await self._nodes.stop()
        self._clients.stop()
        self._hdfs.stop()
        await serving
        if self._tls is not None:
            self._tls.stop_watch()
        local_socket.close()
        await self._tasks.stop()

    async def _start_hdfs(self) -> int | None:
        """Listen for clients of HDFS; return the port. Raises StartupError."""
        options = self._options
        if options.hdfs_port is None:
            return None
        try:
            return await self._hdfs.start(options.host, options.hdfs_port)
        except OSError as error:
            raise StartupError(
                f"cannot listen on {options.host} port {options.hdfs_port}: {error.strerror or error}"
            ) from None

    def _background(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Return the background tasks of any coordinator, of this process's store, and of a leader."""
        yield from self._parts.background.of_any()
        yield "watching the loop", LoopWatchdog().watch()
        yield "keeping the commit record", self._keep_record()
        yield "tending the metadata", self._tend()
        if self._leadership.leads:
            yield from self._of_leader()

    def _of_leader(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield from self._parts.background.of_leader()
        if self._who is not None:
            yield "forgetting tokens", self._who.tokens.keep_tidy()

    # -- for failover ----------------------------------------------------------------------------------

    def changed(self, touched: Touched) -> None:
        self._parts.changed_elsewhere(touched)
        if self._who is not None and not touched.tables.isdisjoint(TOKEN_TABLES):
            self._who.tokens.book.recall(self._reader.token_records())

    def tick(self) -> None:
        self._parts.stand_by()

    @property
    def is_warm(self) -> bool:
        return self._parts.core.cluster.is_loaded

    def lead(self, begun: Begun) -> None:
        self._parts.lead(begun)
        self._tasks.start(self._of_leader(), on_failure=self._stop.set)
        if self._who is not None:
            self._tasks.start([("beginning tokens", self._who.tokens.begin())], on_failure=self._stop.set)

    async def _keep_record(self) -> None:
        while True:
            await asyncio.sleep(commit_record_interval_s)
            await asyncio.to_thread(self._sync_record)
            try:
                # Do this on the event loop, which also starts the writer of the image: a page that is being
                # written would not match.
                self._metadata.scrub(metadata_scrub_pages)
            except MetadataFault as fault:
                self._stop_at_once(fault)

    def _http(self, http_port: int) -> Admission:
        """Return the whole HTTP application, and publish its metrics."""
        options = self._options
        sources = StatusSources(
            cluster=self._parts.core.cluster,
            cluster_id=self._metadata.cluster_id,
            epoch=self._parts.epochs.epoch,
            address=lambda: self._address,
            gc_floor_held=self._reader.gc_floor_held,
            lacks_commits=self._reader.lacks_commits,
            metadata_room=partial(room_bytes, options.directory),
            clock=self._parts.context.monotonic,
            failover=self._failover_status,
        )
        rest = build_rest(self._parts.files, sources)
        add_health_routes(rest, self._parts.condition)
        add_live_routes(rest, self._live, sources, self._parts.files, self._parts.supervising)
        for_superusers, viewing = superusers_only(self._parts.files.callers), viewers(self._parts.files.callers)
        lane = self._parts.files.schedule.fast_lane
        recording = add_history_route(rest, self._parts.core.cluster, lane, self._group, viewing)
        self._tasks.start([("recording the last day", recording)], on_failure=self._stop.set)
        make_copy = OnlineBackup(options.directory / STORE_NAME).make
        add_metadata_routes(rest, make_copy, self._parts.epochs, for_superusers)
        add_failover_routes(rest, None if self._failover is None else self._hand_over, for_superusers)
        add_reload_route(rest, self._reload_topology, self._parts.core.cluster, for_superusers)
        add_balancer_routes(rest, self._parts.core.cluster, for_superusers)
        add_disk_balance_route(rest, self._nodes.ask, for_superusers)
        add_credential_routes(rest, self._parts.files.credentials, self._links.hang_up, for_superusers)
        fencing, reporting = self._parts.files.fencing, self._parts.files.reporting
        add_checkpoint_routes(rest, fencing, reporting, viewing)
        here, ca_file = self._own_address(http_port), None if self._tls is None else self._tls.files.ca
        inspector = CheckpointInspector(
            options.look_at_checkpoints, here, fencing, reporting, token_of=self._look_token, ca_file=ca_file
        )
        add_checkpoint_look_routes(rest, inspector, viewing)
        add_query_routes(rest, self._parts.supervising, viewing)
        names = OwnNames(options.host, self._advertised, options.allowed_hosts)
        durable = DurableResponses(self._authenticated(rest, for_superusers), self._parts.context.durable)
        app: App = BrowserGuard(durable, names)
        if self._audit is not None:
            app = AuditedRequests(app, self._audit, self._signer)
        if self._failover is not None:
            app = HttpDoor(app, self._failover.door, self._leadership)
            if self._who is not None:
                app = Relay(app, self._leadership, self._ask_leader, time.monotonic, asyncio.sleep)
        admission = Admission(app)
        watch_audit(self._audit)
        watch(self._parts.core.cluster, self._group, admission, self._parts.files.temporary_files)
        watch_state(
            self._parts.core.cluster,
            partial(size_bytes, options.directory / STORE_NAME),
            partial(room_bytes, options.directory),
            self._reader.gc_floor_held,
            self._reader.lacks_commits,
            lambda: self._parts.context.held,
        )
        watch_failover(self._failover_status)
        watch_viewers(self._live)
        watch_schedule(self._parts.files.schedule, self._parts.files.recovery)
        watch_supervision(self._parts.core.supervision)
        return admission

    def _addresses(self) -> str:
        """Return where runs find the coordinators of this cluster, this one first."""
        others = [] if self._failover is None else self._failover.others()
        return ",".join([self._address, *others])

    async def _ask_leader(self, leader: Member, path: str, headers: dict[str, str], body: bytes) -> Relayed:
        return await asyncio.to_thread(ask_over_http(self._tls), leader, path, headers, body)

    def _failover_status(self) -> FailoverStatus | None:
        return None if self._failover is None else self._failover.status()

    async def _hand_over(self) -> str:
        assert self._failover is not None
        return await self._failover.hand_over(self._stop.set)

    def _own_address(self, http_port: int) -> str:
        """Return the address for processes on this machine; over TLS, by the name in the certificate."""
        if self._tls is not None:
            host = f"[{self._advertised}]" if ":" in self._advertised else self._advertised
            return f"https://{host}:{http_port}"
        host = self._options.host
        return f"http://{_LOOPBACK_OF.get(host, host)}:{http_port}"

    def _authenticated(self, rest: FastAPI, for_superusers: Any) -> App:
        """Put WebHDFS before REST and, unless names are believed, authentication before both."""
        who, authenticator = self._who, self._authenticator
        delegation, uploads = None if who is None else who.delegation, Uploads(self._tls)
        webhdfs = WebHdfs(self._parts.files, rest, delegation=delegation, uploads=uploads)
        if who is None or authenticator is None:
            rest.include_router(no_token_routes())
            return Impersonation(webhdfs, self._proxy_users)
        rest.include_router(token_routes(who.tokens, who.clients, for_superusers))
        add_token_endpoint(rest, who.clients)
        return Authentication(Impersonation(webhdfs, self._proxy_users), authenticator)

    def _trust(self) -> Trust:
        return self._who.tokens.book.trust if self._who is not None else _NAMES_ARE_BELIEVED

    def _look_token(self, user: str) -> str:
        """Make a token for inspecting checkpoints, valid for as long as that may take."""
        if self._who is None:
            return ""
        return self._mint(user, 2 * checkpoint_look_timeout_s + bearer_token_min_s)

    def _mint(self, user: str, lifetime_s: float) -> str:
        """Make a token that is not listed."""
        assert self._who is not None
        return self._who.tokens.mint(user, lifetime_s).token

    async def _tend(self) -> None:
        """Call `GroupCommit.tend` repeatedly, with `idle` if nothing was committed since the last call."""
        seen = self._group.commits
        while True:
            await asyncio.sleep(metadata_tend_interval_s)
            self._group.tend(idle=self._group.commits == seen)
            seen = self._group.commits

    def _sync_record(self) -> None:
        """Write the record in a thread of its own, for which commits do not wait."""
        try:
            self._metadata.sync_record()
        except MetadataFault as fault:
            self._stop_at_once(fault)

    async def _reload_topology(self) -> None:
        file = self._options.topology
        if file is None:
            raise BadRequest("this coordinator was started without --topology: there is no file to read again")
        self._parts.core.cluster.describe_network(await asyncio.to_thread(load_topology, file))
        log.info("the topology file %s was reloaded", file)

    def _tell_of_room(self, has_room: bool) -> None:
        if has_room:
            log.warning("the disk of %s has room again: names can be changed", self._options.directory)
        else:
            log.error(
                "the disk of %s is full: names can be read but not changed until there is room",
                self._options.directory,
            )

    def _stop_at_once(self, fault: BaseException) -> NoReturn:
        """End the process at once after a commit failed with a disk fault, so that none of its answers is sent."""
        log.critical("the metadata cannot be written (%s): stopping. Check the disk, then start again", fault)
        logging.shutdown()
        os._exit(_EXIT_AFTER_DISK_FAULT)


async def _settled(register: Callable[[Settled], None]) -> None:
    with spanning("commit"):
        await settled_on_loop(register)
