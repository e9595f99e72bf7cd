"""Metrics of a running cluster, after a write and a read."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path

import pytest
from support.prometheus import scraped
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.api.request_metrics import operation_of

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "metrics.md"


@pytest.mark.cluster
def test_writes_and_reads_are_counted_where_they_happen(
    shared_cluster: LocalCluster, files: PeaceFileSystem, home: str
) -> None:
    addresses = [f"127.0.0.1:{member.readiness.http_port}" for member in shared_cluster.datanodes]
    before = [scraped(address) for address in addresses]
    data = os.urandom(300_000)
    files.write(f"{home}/f", data, replication=3)
    assert files.read(f"{home}/f") == data
    with PeaceFileSystem(shared_cluster.http_address, user="alice", local_sockets=False) as from_elsewhere:
        assert from_elsewhere.read(f"{home}/f") == data

    def grown(name: str, label: str = "") -> float:
        return sum(
            now.get((name, label), 0.0) - then.get((name, label), 0.0)
            for now, then in zip(map(scraped, addresses), before, strict=True)
        )

    # Other clients of this cluster may read and write, so some of the growth is theirs.
    wait_until(lambda: grown("peacefs_descriptors_shared_total") >= 1, "the shared descriptor is counted")
    wait_until(
        lambda: grown("peacefs_chunks_lent_total") == grown("peacefs_descriptors_shared_total"),
        "and under its old name for one release",
    )
    # Sent bytes may be counted after the reader has them.
    wait_until(lambda: grown("peacefs_read_bytes_total") >= len(data), "the read is counted")
    after = [scraped(address) for address in addresses]

    assert grown("peacefs_written_bytes_total") >= 3 * len(data)
    assert grown("peacefs_forwarded_bytes_total") >= 2 * len(data)
    wait_until(
        lambda: grown("peacefs_seal_seconds_count") == grown("peacefs_chunks_written_total") >= 3,
        "every chunk that is written was sealed",
    )
    # Totals of the stores may not have grown, because replicas of earlier files may be deleted meanwhile.
    assert sum(now["peacefs_store_replicas", ""] for now in after) >= 3
    assert sum(now["peacefs_store_live_bytes", ""] for now in after) >= 3 * len(data)
    assert all(now["peacefs_disks", "working"] == 1 for now in after)
    told = scraped(shared_cluster.address.http.removeprefix("http://"))
    assert told["peacefs_call_seconds_count", "Mkdirs"] >= 1
    assert told["peacefs_commits_waiting", ""] >= 0
    assert told["peacefs_commits_made_total", ""] >= 1 and told["peacefs_repairs_done_total", ""] >= 0


@pytest.mark.cluster
def test_metrics_page_is_what_its_command_writes_for_a_running_cluster(shared_cluster: LocalCluster) -> None:
    command = runpy.run_path(str(_ROOT / "docs" / "site" / "metrics.py"))
    coordinator = command["exposed"](shared_cluster.address.http.removeprefix("http://"))
    datanode = command["exposed"](f"127.0.0.1:{shared_cluster.datanodes[0].readiness.http_port}")
    page = _PAGE.read_text()
    assert page == command["rewritten"](page, coordinator, datanode), "python docs/site/metrics.py writes it anew"
    # A new metric, a removed one, a changed meaning and a changed label.
    name = "peacefs_commits_made_total"
    new = {
        **coordinator,
        "peacefs_new": ("gauge", "Something new", frozenset({"of"})),
        name: ("counter", "x", frozenset()),
    }
    del new["peacefs_agents"]
    other = command["rewritten"](page, new, datanode)
    assert "| `peacefs_new{of}` | Something new |" in other and f"| `{name}` | x |" in other
    assert "| `peacefs_agents` |" in page and "| `peacefs_agents` |" not in other


def test_every_route_of_the_rest_has_a_name_of_its_own() -> None:
    sources = (source.read_text() for source in (_ROOT / "coordinator").rglob("*.py"))
    routes = {route for source in sources for route in re.findall(r'"/v1/(\w+)', source)}
    routes -= {"docs", "openapi"}
    assert len(routes) > 10
    for route in routes:
        assert operation_of({"path": f"/v1/{route}/x"}) == f"v1/{route}"


@pytest.mark.parametrize(
    ("path", "query", "name"),
    [
        ("/webhdfs/v1/a/b", b"user.name=x&op=liststatus", "LISTSTATUS"),
        ("/webhdfs/v1/a", b"OP=DANCE", "other"),
        ("/webhdfs/v1/a", b"", "other"),
        ("/v1/files/create", b"", "v1/files"),
        ("/v1/datanodes/dn-1/decommission", b"", "v1/datanodes"),
        ("/v1/whatever", b"", "other"),
        ("/", b"", "other"),
    ],
)
def test_operations_have_a_bounded_number_of_names(path: str, query: bytes, name: str) -> None:
    assert operation_of({"path": path, "query_string": query}) == name
