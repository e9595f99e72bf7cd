"""REST for `peacefs supervise`: queries that are kept going, registered, looked at and stopped."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request, Response
from pydantic import Field

from peacefs.coordinator.metadata.model import QueryRecord
from peacefs.coordinator.operations.supervision import SupervisionService
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.protocol.limits import supervised_restarts_default

from .common import Body, User, named_user


class QueryBody(Body):
    """A query to be kept going. `command` begins with a name from the agents' lists.

    Its writes go to `checkpoint`, as the one writer of it; `nodes` are agents, by name or host, any without. With
    `standby` a second driver is kept ready.
    """

    name: str
    user: str
    command: Annotated[list[str], Field(min_length=1, fail_fast=True)]
    checkpoint: str = ""
    nodes: Annotated[list[str], Field(default_factory=list, fail_fast=True)]
    restarts_max: int = supervised_restarts_default
    standby: bool = False


def add_query_routes(app: FastAPI, supervising: SupervisionService, viewing: Any) -> None:
    """Adds `/v1/queries` to the application; `viewing` says who looks."""

    @app.get("/v1/queries", responses={200: {"description": "Supervised: queries and agents."}})
    async def all_queries(viewer: Viewer = viewing) -> Response:
        """The caller's queries, and agents that may start something for him; superusers see all."""
        return _json(supervising.shown_to(viewer))

    @app.get("/v1/queries/{name}", responses={200: {"description": "A QueryStatus."}})
    async def one(name: str, viewer: Viewer = viewing) -> Response:
        """One query, for its user and superusers."""
        return _json(supervising.status_for(name, viewer))

    @app.get("/v1/queries/{name}/log", responses={200: {"description": "A RunLog."}})
    async def log_of(name: str, user: User) -> Response:
        """The end of the log of the last run, for the query's user; its agent is asked for it."""
        return _json(await supervising.log_of(name, user))

    @app.post("/v1/queries", responses={200: {"description": "The new query's QueryStatus."}})
    async def register(body: QueryBody, request: Request) -> Response:
        """Durable when it is answered. In place of a query of this name that is over."""
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
        return _json(await supervising.stop(name, user))

    @app.delete("/v1/queries/{name}", status_code=204)
    async def forget(name: str, user: User) -> None:
        """Forget a query that has ended."""
        await supervising.forget(name, user)


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
