"""REST for checkpoints: list and inspect them; begin, end and list runs of queries; receive drivers' reports."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request, Response
from pydantic import Field

from peacefs.coordinator.operations.queries.query_reports import QueryReports
from peacefs.coordinator.operations.queries.query_runs import QueryRuns
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.coordinator.side_process.checkpoint_inspector import CheckpointInspector
from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.values.query_reports import QueryReport

from .common import Body, User, named_user


class BeginRunBody(Body):
    """A run to begin, of the query with the checkpoint root `path`. Host and pid are only shown to people.

    A request that is repeated with the same request id begins only one run.
    """

    path: str
    user: str
    host: Annotated[str, Field(min_length=1)]
    pid: Annotated[int, Field(ge=0, le=2**31)] = 0
    request_id: str = ""


class EndRunBody(Body):
    """A run that is over, named by its location."""

    location: str
    user: str
    request_id: str = ""


def add_checkpoint_routes(app: FastAPI, fencing: QueryRuns, reporting: QueryReports, viewing: Any) -> None:
    """Add the routes for runs and reports; `viewing` is the dependency for the viewer."""

    @app.post("/v1/checkpoints/runs", responses={200: {"description": "The RunStatus of the new run."}})
    async def begin(body: BeginRunBody, request: Request) -> Response:
        """Begin a run, which makes the caller the only writer of a checkpoint root. Earlier runs cannot write.

        Creates the root if it is missing. Paths below the answer's `location` are aliases of paths below the root.
        """
        user = named_user(request, body.user)
        return _json(await fencing.begin(body.path, user, body.host, body.pid, body.request_id))

    @app.post("/v1/checkpoints/runs/end")
    async def end(body: EndRunBody, request: Request) -> dict[str, str]:
        """End a run. It stays the latest run, so no other run may write until a new one begins."""
        await fencing.end(body.location, named_user(request, body.user), body.request_id)
        return {}

    @app.get("/v1/checkpoints/runs", responses={200: {"description": "The latest RunStatus of each root."}})
    async def latest(viewer: Viewer = viewing, path: str = "/") -> Response:
        """Return the latest run of each root at or below a path. Only its user and writers see its host."""
        return _json({"runs": await fencing.latest(path, viewer)})

    @app.post("/v1/checkpoints/reports", responses={400: {"description": "The body is no QueryReport."}})
    async def report(request: Request) -> dict[str, str]:
        """Keep a driver's report about its query in memory. It replaces the last report."""
        try:
            said = msgspec.json.decode(await request.body(), type=QueryReport)
        except UNREADABLE as error:
            raise BadRequest(f"the body is no QueryReport: {error}") from None
        reporting.report(msgspec.structs.replace(said, user=named_user(request, said.user)))
        return {}

    @app.get("/v1/checkpoints/reports", responses={200: {"description": "The last QueryReport of each root."}})
    async def reports(viewer: Viewer = viewing, path: str = "/") -> Response:
        """Return the last report of each of the caller's queries at or below a path. Superusers see all."""
        return _json({"reports": reporting.below(path, viewer)})


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def add_checkpoint_look_routes(app: FastAPI, inspector: CheckpointInspector, viewing: Any) -> None:
    """Add the routes that list and inspect checkpoints; `viewing` is the dependency for the viewer."""

    @app.get("/v1/checkpoints", responses={200: {"description": "A summary of each, with its latest run."}})
    async def all_below(viewer: Viewer = viewing, path: str = "/", partial: bool = False) -> Response:
        """Return every checkpoint at and below a path, as `peacefs checkpoint ls --json` does.

        Directories that the user may not list are an error, or with `partial` left out.
        """
        return await _json_in_thread({"checkpoints": await inspector.all_below(path, viewer, partial=partial)})

    @app.get("/v1/checkpoints/show", responses={200: {"description": "A checkpoint, with its latest run."}})
    async def show(path: str, viewer: Viewer = viewing) -> Response:
        """Return a checkpoint with all stores of all partitions, as `peacefs checkpoint show --json` does."""
        return await _json_in_thread(await inspector.one(path, viewer))

    @app.get("/v1/checkpoints/batches", responses={200: {"description": "The latest 100 batches, with files."}})
    async def batches(path: str, user: User) -> Response:
        """Return the latest batches of a checkpoint: when they were planned and committed, and their files."""
        return await _json_in_thread({"batches": await inspector.view(path, user, "batches")})

    @app.get("/v1/checkpoints/verify", responses={200: {"description": "A Verdict."}})
    async def verify(path: str, user: User) -> Response:
        """Return whether a query would start from a checkpoint, as `peacefs checkpoint verify --json` does."""
        return await _json_in_thread(await inspector.view(path, user, "verdict"))

    @app.get("/v1/checkpoints/ancestry", responses={200: {"description": "Families, as trees told from the top."}})
    async def ancestry(user: User, path: str = "/") -> Response:
        """Return the ancestry of the checkpoints at and below a path, as `checkpoint ancestry --json` does."""
        return await _json_in_thread({"families": await inspector.view(path, user, "families")})

    @app.get("/v1/checkpoints/units", responses={200: {"description": "Units of dataflows, each a UnitSummary."}})
    async def units(user: User, path: str = "/", partial: bool = False) -> Response:
        """Return every dataflow unit, and program with paged state, at and below a path.

        Directories that the user may not list are an error, or with `partial` left out.
        """
        return await _json_in_thread({"units": await inspector.view(path, user, "units", partial=partial)})


async def _json_in_thread(content: object) -> Response:
    """Encode an answer in a thread, because it may be large."""
    return Response(await asyncio.to_thread(msgspec.json.encode, content), media_type="application/json")
