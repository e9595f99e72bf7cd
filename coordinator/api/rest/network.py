"""REST on the network, `/v1/topology`, and dry runs of policies, `POST /v1/plan`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import ceil
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Response
from pydantic import BaseModel, ConfigDict, Field

from peacefs.coordinator.api.views.visible import visible_network
from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.cluster.network import NetworkLoad, load_of
from peacefs.coordinator.limits import probes_max
from peacefs.coordinator.operations.probing import ProbeOperations
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.coordinator.side_process.planner import Planner
from peacefs.peace import dry_run
from peacefs.protocol.errors import NoDatanodes
from peacefs.protocol.limits import pipeline_hops_max, plan_chunks_max, plan_requests_max, replication_default
from peacefs.topology.calibration import Calibration, calibrate
from peacefs.topology.model import Topology
from peacefs.topology.network_view import LinkView, NetworkView, RackView, ServerView
from peacefs.topology.toml_writer import to_structure

from .common import Body


class PlanRequest(BaseModel):
    """A writer's request for `chunks` chunks, each on `replication` servers."""

    model_config = ConfigDict(extra="forbid", strict=True)

    writer: str | None = Field(None, description="A server's name; none for a writer outside the cluster.")
    replication: int = Field(replication_default, ge=1, le=pipeline_hops_max)
    chunks: int = Field(ge=1, le=plan_chunks_max)


class PlanBody(BaseModel):
    """A dry run, which reserves nothing and assumes an idle cluster."""

    model_config = ConfigDict(extra="forbid", strict=True)

    policy: str = Field("express", description="random, paper, paper-3, paper-5, flow, express or timely.")
    seed: int = Field(0, ge=0, lt=1 << 63)
    requests: list[PlanRequest] = Field(min_length=1, max_length=plan_requests_max, fail_fast=True)
    topology: str | dict[str, Any] | None = Field(
        None, description="TOML as text, or its tables as a structure; the cluster's own network without it."
    )


class ProbeBody(Body):
    """Datanodes by id, in the order of the pipeline."""

    pipeline: list[str] = Field(min_length=1, max_length=pipeline_hops_max, fail_fast=True)


class ProbesBody(Body):
    """Chunks that were allocated as probes. Other chunks are ignored."""

    chunks: list[int] = Field(max_length=probes_max, fail_fast=True)


def network_routes(cluster: Cluster, planner: Planner, viewing: Any) -> APIRouter:
    """Return the routes `GET /v1/topology` and `POST /v1/plan`; `viewing` is the dependency for the viewer."""
    router = APIRouter(prefix="/v1")

    @router.get("/topology")
    async def topology(viewer: Viewer = viewing) -> NetworkView:
        """Return racks, servers and links with their load. Only superusers see hosts."""
        return visible_network(described_network(cluster), viewer)

    @router.post("/plan", response_model=dry_run.DryRunPlan)
    async def plan(body: PlanBody) -> Response:
        """Show where a policy would put the chunks of some requests in an idle network, and when."""
        requests = [dry_run.DryRunRequest(each.writer, each.replication, each.chunks) for each in body.requests]
        if body.topology is None:
            task = _for_cluster(body, requests, cluster)
        else:
            task = dry_run.Task(body.policy, body.seed, requests, body.topology)
        planned = await planner.plan(task)
        return Response(msgspec.json.encode(planned), media_type="application/json")

    return router


def add_reload_route(
    app: FastAPI, reload: Callable[[], Awaitable[None]], cluster: Cluster, for_superusers: Any
) -> None:
    """Add `POST /v1/topology/reload`. `reload` reads the file again, or raises."""

    @app.post("/v1/topology/reload", dependencies=[for_superusers])
    async def reload_topology() -> NetworkView:
        """Read the topology file again. If the file has a mistake, nothing changes."""
        await reload()
        return described_network(cluster)


def probing_routes(probing: ProbeOperations, for_superusers: Any) -> APIRouter:
    """Return the routes that `peacefs topology calibrate` uses to measure the network."""
    router = APIRouter(prefix="/v1/topology/probes", dependencies=[for_superusers])

    @router.post("")
    async def allocate(body: ProbeBody) -> Response:
        """Sign a token to write a probe chunk, which belongs to no file, through exactly these datanodes."""
        return Response(msgspec.json.encode(probing.allocate(body.pipeline)), media_type="application/json")

    @router.post("/forget", status_code=204)
    async def forget(body: ProbesBody) -> None:
        """Delete probe chunks that have been written."""
        probing.forget(body.chunks)

    return router


def _for_cluster(body: PlanBody, requests: list[dry_run.DryRunRequest], cluster: Cluster) -> dry_run.Task:
    """Return the task for the cluster's own network. Nodes that are not in service get no replicas."""
    staying = cluster.members.in_service()
    if not staying:
        raise NoDatanodes("no datanode that could take a replica is alive: there is nothing to plan for")
    topology = cluster.topology()
    leaving = topology.servers.keys() - {node.id for node in staying}
    return dry_run.Task(body.policy, body.seed, requests, to_structure(topology), frozenset(leaving))


def described_network(cluster: Cluster) -> NetworkView:
    """Return the answer to `GET /v1/topology` for a superuser."""
    nodes = {node.id: node.registration for node in cluster.members.alive()}
    topology = cluster.topology()
    calibration, load = calibrate(topology), load_of(topology, cluster.pipelines())
    return NetworkView(
        described=cluster.network.is_described,
        root=topology.root,
        stream_bytes_s=calibration.stream_bytes_s,
        switches=list(topology.switches),
        racks=[RackView(rack=rack, servers=list(names)) for rack, names in topology.racks.items()],
        servers=[
            ServerView(
                server=name,
                host=nodes[name].data_host,
                data_port=nodes[name].data_port,
                rack=server.rack,
                described=cluster.network.is_known(nodes[name]),
                network_bytes_s=topology.network_bytes_s(name),
                disk_bytes_s=server.disk.best_rate,
                slots=calibration.slots[name],
                streams=load.servers[name],
            )
            for name, server in topology.servers.items()
        ],
        links=_links(topology, calibration, load),
    )


def _links(topology: Topology, calibration: Calibration, load: NetworkLoad) -> list[LinkView]:
    return [
        LinkView(
            a=link.a,
            b=link.b,
            bytes_s=link.bytes_s,
            cost=link.cost,
            capacity_streams=calibration.link_streams.get(
                (link.a, link.b), max(1, ceil(link.bytes_s / calibration.stream_bytes_s))
            ),
            streams_a_to_b=load.links[link.a, link.b],
            streams_b_to_a=load.links[link.b, link.a],
        )
        for link in topology.links
    ]
