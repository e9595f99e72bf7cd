"""REST for `peacefs supervise`: register, show, stop and forget supervised queries."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request, Response
from pydantic import Field

from peacefs.coordinator.metadata.model import QueryRecord
from peacefs.coordinator.operations.queries.supervision import SupervisionService
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.protocol.limits import supervised_restarts_default

from .common import Body, User, named_user


class QueryBody(Body):
    """A query to supervise. `command` begins with a name from the agents' lists.

    The query becomes the only writer of `checkpoint`. `nodes` are the agents that may run it, by name or host; any
    agent may if it is empty. With `standby` a second driver is kept ready.
    """

    name: str
    user: str
    command: Annotated[list[str], Field(min_length=1, fail_fast=True)]
    checkpoint: str = ""
    nodes: Annotated[list[str], Field(default_factory=list, fail_fast=True)]
    restarts_max: int = supervised_restarts_default
    standby: bool = False


def add_query_routes(app: FastAPI, supervising: SupervisionService, viewing: Any) -> None:
    """Add the routes; `viewing` is the dependency for the viewer."""

    @app.get("/v1/queries", responses={200: {"description": "Supervised: queries and agents."}})
    async def all_queries(viewer: Viewer = viewing) -> Response:
        """Return the caller's queries, and the agents that may start a command for him. Superusers see all."""
        return _json(supervising.shown_to(viewer))

    @app.get("/v1/queries/{name}", responses={200: {"description": "A QueryStatus."}})
    async def one(name: str, viewer: Viewer = viewing) -> Response:
        """Return a query, for its user and superusers."""
        return _json(supervising.status_for(name, viewer))

    @app.get("/v1/queries/{name}/log", responses={200: {"description": "A RunLog."}})
    async def log_of(name: str, user: User) -> Response:
        """Return the end of the last run's log, for the query's user. The agent is asked for it."""
        return _json(await supervising.log_of(name, user))

    @app.post("/v1/queries", responses={200: {"description": "The new query's QueryStatus."}})
    async def register(body: QueryBody, request: Request) -> Response:
        """Register a query, durably. It replaces the user's own query of that name if it is over."""
        record = QueryRecord(
            name=body.name,
            user=named_user(request, body.user),
            is_superuser=False,
            command=tuple(body.command),
            checkpoint=body.checkpoint,
            nodes=tuple(body.nodes),
            restarts_max=body.restarts_max,
            has_standby=body.standby,
        )
        return _json(await supervising.register(record))

    @app.post(
        "/v1/queries/{name}/stop", responses={200: {"description": "Its QueryStatus, on the way to stopped."}}
    )
    async def stop(name: str, user: User) -> Response:
        """Stop a query. Its run ends, and no other begins."""
        return _json(await supervising.stop(name, user))

    @app.delete("/v1/queries/{name}", status_code=204)
    async def forget(name: str, user: User) -> None:
        """Forget a query that has ended."""
        await supervising.forget(name, user)


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
