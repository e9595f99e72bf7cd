"""`GET /v1/live/<view>`: the views of the web page, as server-sent events.

The first event, `session`, says who is authenticated. A `view` follows for each change. The last event is `again`,
which asks the page to reconnect, or `refused`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from fastapi import FastAPI, Request
from msgspec import structs

import peacefs
from peacefs.coordinator.api.live import EventStream, LiveFeed
from peacefs.coordinator.api.views.cluster import RepairProgress, cluster_view
from peacefs.coordinator.api.views.peace import peace_view
from peacefs.coordinator.api.views.visible import visible_peace, visible_status
from peacefs.coordinator.limits import grant_history_s
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.operations.queries.supervision import SupervisionService
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.protocol.asgi import client_host
from peacefs.protocol.callers.caller import caller_of
from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.values.query_reports import QueryReport
from peacefs.protocol.values.supervised_queries import Supervised
from peacefs.service.client_shares import client_of

from .common import viewers
from .network import described_network
from .schedule import described_recurrences, described_schedule, sets_of
from .status import StatusSources


class PageSession(msgspec.Struct, frozen=True):
    """The viewer, and the coordinator that answers."""

    user: str
    authentication: str
    administrator: bool
    #: True if the viewer may set quotas, and see everything.
    superuser: bool
    #: True if the viewer may administer the cluster: by an administrator's token, or as a superuser by name.
    administers: bool
    version: str
    cluster: str
    leads: bool
    #: The address of the leader; empty if there is none, or no journal.
    leader: str


class QueriesView(msgspec.Struct, frozen=True):
    """Supervised queries with their agents, and the last report of each driver."""

    supervised: Supervised
    reports: list[QueryReport]


def add_live_routes(
    app: FastAPI, feed: LiveFeed, sources: StatusSources, files: Files, supervising: SupervisionService
) -> None:
    """Add the route. `feed` sends each view to all its viewers."""
    views, viewing = _Views(sources, files, supervising), viewers(files.callers)

    @app.get("/v1/live/{view}", include_in_schema=False)
    async def live(view: str, request: Request, viewer: Viewer = viewing) -> EventStream:
        made = views.by_name.get(view)
        if made is None:
            raise FileNotFound(f"there is no view {view[:40]!r}")
        # Viewers who see everything share a view, except of queries: their reports depend on what each may list.
        key = (view, "" if viewer.sees_all and view != "queries" else viewer.user, viewer.sees_all)
        opening = _event_of(_session(request, viewer, sources))
        return feed.stream(key, partial(made, viewer), client_of(client_host(request.scope)), opening)


def _event_of(session: PageSession) -> bytes:
    return b"event: session\ndata: " + msgspec.json.encode(session) + b"\n\n"


class _Views:
    """Computes the views."""

    def __init__(self, sources: StatusSources, files: Files, supervising: SupervisionService) -> None:
        self._sources = sources
        self._files = files
        self._supervising = supervising
        self._progress = RepairProgress()
        self.by_name: dict[str, Callable[[Viewer], Awaitable[bytes]]] = {
            "cluster": self.cluster,
            "peace": self.peace,
            "queries": self.queries,
        }

    async def cluster(self, viewer: Viewer) -> bytes:
        cluster = self._sources.cluster
        view = cluster_view(
            self._sources.clock(),
            visible_status(self._sources.status(), viewer),
            cluster.repair.copies(),
            cluster.chunks,
            self._progress,
            cluster.pipelines(),
        )
        return msgspec.json.encode(view)

    async def peace(self, viewer: Viewer) -> bytes:
        write_grants, now_s = self._files.schedule, self._files.schedule.now_s()
        scheduling = write_grants.scheduling
        view = peace_view(
            now_s,
            described_schedule(write_grants, self._files.recovery),
            described_network(self._sources.cluster),
            scheduling.has_room,
            scheduling.grants,
            scheduling.history.since(now_s - grant_history_s),
        )
        view = structs.replace(view, recurrences=described_recurrences(write_grants, viewer))
        return msgspec.json.encode(visible_peace(view, sets_of(write_grants, viewer), viewer))

    async def queries(self, viewer: Viewer) -> bytes:
        reports = self._files.reporting.below("/", viewer)
        return msgspec.json.encode(QueriesView(self._supervising.shown_to(viewer), reports))


def _session(request: Request, viewer: Viewer, sources: StatusSources) -> PageSession:
    caller, failover = caller_of(request.scope), sources.failover()
    return PageSession(
        user=viewer.user,
        authentication="simple" if caller is None else caller.via.value,
        administrator=caller is not None and caller.is_administrator,
        superuser=viewer.sees_all,
        administers=viewer.sees_all if caller is None else caller.is_administrator,
        version=peacefs.__version__,
        cluster=sources.cluster_id,
        leads=failover is None or failover.leads,
        leader="" if failover is None else failover.leader,
    )
