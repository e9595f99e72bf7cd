"""REST under `/v1`: what people and tools ask, and the control calls of our own client.

Bodies are JSON. The control calls carry the same messages as the framed protocol. A change that is asked again
under its `request_id` is done once and gets the first answer (`replays`). Errors are the RemoteException bodies of
WebHDFS with their status.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

import peacefs
from peacefs.protocol.errors import BadRequest, PeacefsError, remote_exception
from peacefs.protocol.limits import maintenance_hours_max, plan_body_bytes_max, schedule_body_bytes_max
from peacefs.protocol.messages import (
    AbandonLease,
    AllocateChunk,
    CompleteFile,
    FlushFile,
    GetLayout,
    Message,
    RenewLease,
    ReportCorrupt,
    StateWriteSet,
)
from peacefs.protocol.metrics import CONTENT_TYPE, exposition
from peacefs.protocol.webhdfs_query import NOBODY

from .body_limit import BodyLimit
from .cluster import Cluster
from .files import Files
from .membership import Node
from .planner import Planner
from .records import Mode
from .rest_access import superusers_only
from .rest_network import network_routes, probing_routes
from .rest_schedule import schedule_routes
from .slow_hops import Part
from .standing import Service
from .writing import CreateFile

M = TypeVar("M", bound=Message)


class CreateBody(BaseModel):
    """A file to be written; zero means the cluster's default."""

    path: str
    user: str
    overwrite: bool = False
    permission: int = Field(0o644, ge=0, le=0o1777)
    replication: int = 0
    block_bytes: int = 0
    create_parent: bool = True
    request_id: str = ""


class ExtendBody(BaseModel):
    """A file to be extended. Asked again by the same `holder`, the lease is taken anew."""

    path: str
    user: str
    holder: str = Field(min_length=1)


class TruncateBody(BaseModel):
    """A file to be left with its first `length` bytes."""

    path: str
    user: str
    length: int
    request_id: str = ""


class ConcatBody(BaseModel):
    """Files whose contents go to the end of another."""

    target: str
    sources: list[str]
    user: str
    request_id: str = ""


class OpenBody(BaseModel):
    """A file, and who asks."""

    path: str
    user: str


class RestoreBody(BaseModel):
    """A directory that is to hold what one of its snapshots shows."""

    path: str
    user: str
    snapshot: str
    request_id: str = ""


class CopyBody(BaseModel):
    """A file or tree to be copied to exactly `target`; the source may lie in a snapshot. No data is copied.

    Copies belong to the user and are of now. With `preserve` they keep their times and, for a superuser, owners
    and groups. With a request id it is done once.
    """

    source: str
    target: str
    user: str
    preserve: bool = False
    request_id: str = ""


class CopiedTree(BaseModel):
    """What a copy holds; `space_consumed` counts every replica, which it shares. Bytes."""

    directories: int
    files: int
    length: int
    space_consumed: int


class DiskStatus(BaseModel):
    """One disk of a datanode. A read-only one is still read; what a failed one held counts as lost."""

    directory: str
    #: working, read-only or failed.
    state: str
    #: Why it does not work, if it does not.
    fault: str
    capacity_bytes: int
    used_bytes: int
    replicas: int


class DatanodeStatus(BaseModel):
    """One datanode as the coordinator sees it."""

    node: str
    host: str
    http_port: int
    data_port: int
    rack: str
    state: str
    capacity_bytes: int
    used_bytes: int
    available_bytes: int
    replicas: int
    #: A value of cluster.Service.
    service: str
    #: How many chunks still lack a replica elsewhere before it can leave.
    to_drain: int
    #: What of it is much slower than of others: values of slow_hops.Part.
    slow: list[str]
    #: What it takes over a MiB, as its predecessors in pipelines and as itself measure it; None if unknown.
    hop_seconds: float | None
    disk_seconds: float | None
    disks: list[DiskStatus]


class ChunkCounts(BaseModel):
    """Chunks by the state of their replication."""

    total: int
    under_replicated: int
    missing: int
    being_repaired: int


class UnclaimedStatus(BaseModel):
    """What datanodes hold and no file refers to: writes under way, and what failed ones left.

    While the floor is held, because the metadata was restored from a backup, nothing of it is deleted.
    """

    chunks: int
    replicas: int
    bytes: int
    chunks_of_earlier_epochs: int
    bytes_of_earlier_epochs: int
    floor_held: bool


class ClusterStatus(BaseModel):
    """The cluster at a glance."""

    cluster: str
    epoch: int
    ready: bool
    address: str
    datanodes: list[DatanodeStatus]
    chunks: ChunkCounts
    unclaimed: UnclaimedStatus
    repaired_total: int
    replicas_lost_total: int


def build_rest(
    files: Files,
    cluster: Cluster,
    cluster_id: str,
    epoch: Callable[[], int],
    address: Callable[[], str],
    floor_held: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """The FastAPI application with all `/v1` routes."""
    app = FastAPI(
        title="peacefs", version=peacefs.__version__, docs_url="/v1/docs", openapi_url="/v1/openapi.json"
    )

    for_superusers = superusers_only(files.callers)

    @app.get("/v1/status")
    async def status() -> ClusterStatus:
        return ClusterStatus(
            cluster=cluster_id,
            epoch=epoch(),
            ready=cluster.ready(clock()),
            address=address(),
            datanodes=[_datanode(cluster, node) for node in cluster.members.all()],
            chunks=ChunkCounts(
                total=len(cluster.chunks),
                under_replicated=len(cluster.chunks.under),
                missing=len(cluster.chunks.missing),
                being_repaired=cluster.repair.under_way,
            ),
            unclaimed=UnclaimedStatus(
                **cluster.chunks.unclaimed.counts(epoch())._asdict(), floor_held=floor_held()
            ),
            repaired_total=cluster.repair.repaired_total,
            replicas_lost_total=cluster.replicas_lost_total,
        )

    @app.post("/v1/datanodes/{node}/decommission", dependencies=[for_superusers])
    async def decommission(node: str) -> DatanodeStatus:
        """Nothing new goes there, and what it holds is copied to others. Answers at once; see the status."""
        return _datanode(cluster, await files.administration.decide(node, Mode.DECOMMISSION))

    @app.post("/v1/datanodes/{node}/maintenance", dependencies=[for_superusers])
    async def maintenance(
        node: str, hours: Annotated[float, Query(gt=0, le=maintenance_hours_max)]
    ) -> DatanodeStatus:
        """For so many hours nothing new goes there, and it may be away without its replicas being copied.

        To be switched off once the status says that it is in maintenance.
        """
        return _datanode(cluster, await files.administration.decide(node, Mode.MAINTENANCE, hours * 3600.0))

    @app.post("/v1/datanodes/{node}/recommission", dependencies=[for_superusers])
    async def recommission(node: str) -> DatanodeStatus:
        return _datanode(cluster, await files.administration.decide(node, Mode.IN_SERVICE))

    inspecting = asyncio.Lock()

    @app.get("/v1/fsck", responses={200: {"description": "An FsckPage; the walk goes on with its `after`."}})
    async def fsck(
        path: str = "/", after: str | None = None, every_file: bool = False, user: str = NOBODY
    ) -> Response:
        """For whoever may list the directories and read the files."""
        # One at a time: however many ask, other requests get most of the event loop.
        async with inspecting:
            return _json(await files.inspection.page(path, user, after, every_file=every_file))

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(exposition(), media_type=CONTENT_TYPE)

    @app.post("/v1/files/create")
    async def create(body: CreateBody, request: Request) -> Response:
        wanted = CreateFile(**body.model_dump(), client_host=_client_host(request))
        ticket = await files.writing.create(wanted)
        return _json({"token": ticket.token, "allocated": ticket.allocated})

    @app.post("/v1/files/extend")
    async def extend(body: ExtendBody, request: Request) -> Response:
        return _json(await files.appending.extend(body.path, body.user, body.holder, _client_host(request)))

    @app.post("/v1/files/truncate")
    async def truncate(body: TruncateBody) -> Response:
        done = await files.reshaping.truncate(body.path, body.length, body.user, body.request_id)
        return _json({"boolean": done})

    @app.post("/v1/files/concat")
    async def concat(body: ConcatBody) -> Response:
        await files.reshaping.concat(body.target, body.sources, body.user, body.request_id)
        return _json({})

    @app.post("/v1/files/renew", openapi_extra=_documented(RenewLease))
    async def renew(request: Request) -> Response:
        return _json(await files.appending.renew(await _message(request, RenewLease)))

    @app.post("/v1/files/abandon", openapi_extra=_documented(AbandonLease))
    async def abandon(request: Request) -> Response:
        return _json(await files.appending.abandon(await _message(request, AbandonLease)))

    @app.post("/v1/files/open")
    async def open_file(body: OpenBody, request: Request) -> Response:
        token, layout, found = await files.reading.open_direct(body.path, body.user, _client_host(request))
        status = {"length": found.length, "modified_ms": found.modified_ms, "replication": found.replication}
        return _json({"token": token, "layout": layout, "status": status})

    @app.post("/v1/snapshots/restore")
    async def restore(body: RestoreBody) -> Response:
        await files.snapshots.restore(body.path, body.user, body.snapshot, body.request_id)
        return _json({})

    @app.post("/v1/copies")
    async def copy(body: CopyBody) -> CopiedTree:
        """Atomic, and of one moment, however long it takes: about a second for 10,000 files."""
        copied = await files.copying.copy(
            body.source, body.target, body.user, preserve=body.preserve, request_id=body.request_id
        )
        return CopiedTree(**dataclasses.asdict(copied))

    @app.post("/v1/files/allocate", openapi_extra=_documented(AllocateChunk))
    async def allocate(request: Request) -> Response:
        return _json(await files.writing.allocate(await _message(request, AllocateChunk), _client_host(request)))

    @app.post("/v1/files/complete", openapi_extra=_documented(CompleteFile))
    async def complete(request: Request) -> Response:
        return _json(await files.writing.complete(await _message(request, CompleteFile)))

    @app.post("/v1/files/flush", openapi_extra=_documented(FlushFile))
    async def flush(request: Request) -> Response:
        return _json(await files.writing.flush(await _message(request, FlushFile), _client_host(request)))

    @app.post("/v1/files/recover-lease")
    async def recover_lease(body: OpenBody) -> Response:
        """Ends the lease of a writer that is dead, as HDFS's recoverLease; one that lives can write no more."""
        return _json({"boolean": await files.appending.recover_lease(body.path, body.user)})

    @app.post("/v1/files/layout", openapi_extra=_documented(GetLayout))
    async def layout(request: Request) -> Response:
        return _json(await files.reading.layout(await _message(request, GetLayout), _client_host(request)))

    @app.post("/v1/files/corrupt", openapi_extra=_documented(ReportCorrupt))
    async def corrupt(request: Request) -> Response:
        return _json(await files.reading.report_corrupt(await _message(request, ReportCorrupt)))

    @app.post("/v1/files/schedule", openapi_extra=_documented(StateWriteSet))
    async def schedule(request: Request) -> Response:
        wanted = await _message(request, StateWriteSet)
        return _json(await files.schedule.state(wanted, None, _client_host(request)))

    app.include_router(schedule_routes(lambda: files.schedule, lambda: files.recovery, for_superusers))
    app.include_router(network_routes(cluster, Planner()))
    app.include_router(probing_routes(files.probing, for_superusers))
    app.add_middleware(
        BodyLimit, of_path={"/v1/plan": plan_body_bytes_max, "/v1/files/schedule": schedule_body_bytes_max}
    )
    _answer_errors(app)
    return app


def _datanode(cluster: Cluster, node: Node) -> DatanodeStatus:
    service = cluster.service_of(node)
    return DatanodeStatus(
        node=node.id,
        host=node.registration.data_host,
        http_port=node.registration.http_port,
        data_port=node.registration.data_port,
        rack=node.rack,
        state=node.state.value,
        capacity_bytes=node.usage.capacity_bytes,
        used_bytes=node.usage.used_bytes,
        available_bytes=node.usage.available_bytes,
        replicas=cluster.chunks.held_by(node.id),
        service=service.value,
        to_drain=0 if service is Service.IN_SERVICE else cluster.chunks.to_drain(node.id),
        slow=[part.value for part in cluster.slow_hops.slow_parts(node.id)],
        hop_seconds=cluster.slow_hops.measured[Part.HOP].get(node.id),
        disk_seconds=cluster.slow_hops.measured[Part.DISK].get(node.id),
        disks=[DiskStatus(**msgspec.structs.asdict(disk)) for disk in node.disks],
    )


def _client_host(request: Request) -> str | None:
    return request.client.host if request.client else None


async def _message(request: Request, kind: type[M]) -> M:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is no {kind.__name__}: {error}") from None


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def _documented(kind: type[Message]) -> dict[str, Any]:
    """The OpenAPI description of a body that is one of our messages."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
    inline = components.get(kind.__name__, schema)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": inline}}}}


def _answer_errors(app: FastAPI) -> None:
    """Every answer that is not a success is a RemoteException, those of the framework included."""

    @app.exception_handler(PeacefsError)
    async def ours(_request: Request, error: PeacefsError) -> JSONResponse:
        return JSONResponse(remote_exception(error), error.http_status)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return JSONResponse(remote_exception(BadRequest(f"{where}: {first['msg']}")), 400)

    @app.exception_handler(HTTPException)
    async def routing(_request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse(remote_exception(BadRequest(str(error.detail))), error.status_code)

    @app.exception_handler(Exception)
    async def internal(_request: Request, _error: Exception) -> JSONResponse:
        hidden = PeacefsError("an internal error of the coordinator; its log says more")
        return JSONResponse(remote_exception(hidden), 500)
