"""REST under `/v1`: requests of people and tools, and the control calls of our own client.

This module puts the routes of the package together. A change that is repeated with the same `request_id` is made
once, and gets the cached reply (`retry_cache`). Errors are WebHDFS's RemoteException bodies with their status.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

import peacefs
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.operations.phases import PhaseService
from peacefs.coordinator.side_process.phase_planner import PhasePlanner
from peacefs.coordinator.side_process.planner import Planner
from peacefs.protocol.errors import BadRequest, Overloaded, PeacefsError, remote_exception
from peacefs.protocol.limits import MIB
from peacefs.protocol.trace_context import current_id
from peacefs.service.metrics import CONTENT_TYPE, exposition

from .body_limit import BodyLimit
from .chunks import chunk_routes
from .common import User, superusers_only, viewers
from .docs_page import add_docs_page
from .files import file_routes
from .network import network_routes, probing_routes
from .openapi import complete_description
from .schedule import phase_routes, schedule_routes
from .status import StatusSources, datanode_routes, status_routes
from .trees import tree_routes
from .web_page import PAGE_PREFIX, add_web_page

plan_body_bytes_max: Final = 1 * MIB
# Enough for the largest write set that a writer may state.
schedule_body_bytes_max: Final = 1 * MIB
# Enough for the chunks of a file of over a terabyte, and for the longest lists of names.
completion_body_bytes_max: Final = 8 * MIB
names_body_bytes_max: Final = 2 * MIB


_SHOWN_CHARACTERS = 100
#: The answer at `/` to clients that do not ask for HTML.
_GREETING = f"""\
The coordinator of a peacefs cluster, version {peacefs.__version__}.

/webhdfs/v1/<path>?op=LISTSTATUS  the file system: WebHDFS, for `hdfs dfs`, Spark and `peacefs ls`
/ui/                              the same for people: a page for browsers
/v1/docs                          REST, with its description in /v1/openapi.json
/v1/status                        how the cluster fares, as `peacefs report` shows it
/metrics                          for Prometheus
"""


def build_rest(files: Files, sources: StatusSources) -> FastAPI:
    """Build the application with the routes that need only files and the cluster; `service` adds the others."""
    cluster = sources.cluster
    app = FastAPI(
        title="peacefs", version=peacefs.__version__, docs_url=None, redoc_url=None, openapi_url="/v1/openapi.json"
    )
    for_superusers, viewing = superusers_only(files.callers), viewers(files.callers)
    inspecting = asyncio.Lock()

    @app.get("/v1/fsck", responses={200: {"description": "An FsckPage; the walk goes on with its `after`."}})
    async def fsck(user: User, path: str = "/", after: str | None = None, every_file: bool = False) -> Response:
        """Check files. The caller must have permission to list the directories and read the files."""
        # One at a time, so that other requests get most of the event loop however many checks are requested.
        async with inspecting:
            page = await files.inspection.page(path, user, after, every_file=every_file)
        return Response(msgspec.json.encode(page), media_type="application/json")

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def greeting(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(PAGE_PREFIX)
        return Response(_GREETING, media_type="text/plain")

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(exposition(), media_type=CONTENT_TYPE)

    app.include_router(status_routes(sources, viewing))
    app.include_router(datanode_routes(cluster, files.administration, sources.clock, for_superusers))
    app.include_router(file_routes(files))
    app.include_router(tree_routes(files))
    app.include_router(chunk_routes(files.explanations, for_superusers))
    app.include_router(schedule_routes(lambda: files.schedule, lambda: files.recovery, for_superusers, viewing))
    phases = PhaseService(PhasePlanner().plan, cluster.topology, files.schedule.wall_s)
    app.include_router(phase_routes(phases, viewing))
    app.include_router(network_routes(cluster, Planner(), viewing))
    app.include_router(probing_routes(files.probing, for_superusers))
    app.add_middleware(
        BodyLimit,
        of_path={
            "/v1/plan": plan_body_bytes_max,
            "/v1/files/schedule": schedule_body_bytes_max,
            "/v1/files/complete": completion_body_bytes_max,
            "/v1/files/flush": completion_body_bytes_max,
            "/v1/files/concat": names_body_bytes_max,
            "/v1/exchanges": names_body_bytes_max,
        },
    )
    add_docs_page(app)
    add_web_page(app)
    _answer_errors(app)
    complete_description(app)
    return app


def _refusal(error: PeacefsError, status: int) -> JSONResponse:
    return JSONResponse(remote_exception(error, current_id()), status)


def _answer_errors(app: FastAPI) -> None:
    """Answer every error, including the framework's, with a RemoteException."""

    @app.exception_handler(PeacefsError)
    async def ours(_request: Request, error: PeacefsError) -> JSONResponse:
        return _refusal(error, error.http_status)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return _refusal(BadRequest(f"{where}: {first['msg']}"), 400)

    @app.exception_handler(ClientDisconnect)
    async def gone(_request: Request, _error: ClientDisconnect) -> JSONResponse:
        # The client left in the middle of its body. Nothing is logged, and no client reads the answer.
        return _refusal(BadRequest("the body has no end"), 400)

    @app.exception_handler(HTTPException)
    async def routing(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 503:
            return _refusal(Overloaded(error.detail), Overloaded.http_status)
        what = f"{error.detail}: {request.method} {request.url.path[:_SHOWN_CHARACTERS]}; / says what is here"
        return _refusal(BadRequest(what), error.status_code)

    @app.exception_handler(Exception)
    async def internal(_request: Request, _error: Exception) -> JSONResponse:
        hidden = PeacefsError("an internal error of the coordinator; its log says more")
        return _refusal(hidden, 500)
