"""`peacefs topology calibrate` finds the configured rates of disks, and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from support.services import start_service
from typer.testing import CliRunner

from benchmarks.emulation.cluster import SLOW_DATANODE
from peacefs.client.control.api import current_user
from peacefs.command import application
from peacefs.topology.loader import load_topology

pytestmark = pytest.mark.cluster
_TIMEOUT_S = 180
_CURVES = {"n1": "1=20e6,2=40e6,4=30e6", "n2": "1=10e6"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a coordinator with two datanodes, whose disks differ."""
    tmp_path = tmp_path_factory.mktemp("cluster")
    processes = []
    try:
        process, coordinator = start_service("coordinator", f"--dir={tmp_path / 'c'}", "--port=0", "--node-port=0")
        processes.append(process)
        for name, curve in _CURVES.items():
            process, _ = start_service(
                *(f"--disk={curve}", f"--dir={tmp_path / name}", f"--rack=/{name}"),
                f"--coordinator=127.0.0.1:{coordinator['node_port']}",
                f"--secret-file={tmp_path / 'c' / 'cluster.secret'}",
                program=SLOW_DATANODE,
            )
            processes.append(process)
        yield f"http://127.0.0.1:{coordinator['http_port']}"
    finally:
        for process in processes:
            process.kill()
            process.wait(_TIMEOUT_S)


def _calibrate(file: Path, address: str, seconds: float = 0.1) -> Result:
    arguments = ["topology", "calibrate", str(file), "--coordinator", address, "--seconds", str(seconds)]
    return CliRunner().invoke(application, arguments, prog_name="peacefs")


def test_rates_come_near_those_that_disks_have_and_nothing_stays_behind(address: str, tmp_path: Path) -> None:
    file = tmp_path / "net.toml"
    # A busy machine makes disks slower, never faster. A disk may then look like a slow link; in that case, measure
    # for longer.
    for seconds in (0.6, 1.5, 4.0):
        done = _calibrate(file, address, seconds)
        assert done.exit_code == 0, done.output
        found = load_topology(file)
        fast, slow = sorted((server.disk for server in found.servers.values()), key=lambda disk: -disk.best_rate)
        assert fast.best_rate <= 1.1 * 40e6 and slow.best_rate <= 1.1 * 10e6
        is_near = fast.best_rate >= 0.5 * 40e6 and slow.best_rate >= 0.5 * 10e6
        # Loopback is faster than these disks, so nothing can be learnt about links.
        links = {link.bytes_s for link in found.switch_links()}
        if is_near and fast.rate(1) < 0.8 * fast.rate(2) and links == {125e6}:
            break
        file.unlink()
    else:
        raise AssertionError(f"{fast} and {slow} are not near 40 and 10 MB/s, or {links} not left at 125 MB/s")
    assert "/n1 - /: at least " in done.stdout and "left at 125 MB/s" in done.stdout
    _until_nothing_is_held(address)

    file.write_text("# Ours, by hand.\n# Two lines.\n\n" + file.read_text())
    assert _calibrate(file, address).exit_code == 0
    assert file.read_text().startswith("# Ours, by hand.\n# Two lines.\n\nshape")
    assert list(load_topology(file).racks) == ["/n1", "/n2"]


def _until_nothing_is_held(address: str) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while (
        any(node["replicas"] for node in httpx.get(f"{address}/v1/status").json()["datanodes"])
        or (httpx.get(f"{address}/v1/status").json()["unreferenced"]["chunks"])
    ):
        assert time.monotonic() < deadline_s, "what was written to measure is still there"
        time.sleep(0.05)


def test_servers_that_are_not_in_the_cluster_are_told_before_anything_is_measured(
    address: str, tmp_path: Path
) -> None:
    file = tmp_path / "net.toml"
    text = '[[switch]]\nname = "/r"\n[[servers]]\nrack = "/r"\nnames = ["elsewhere"]\n'
    file.write_text(text)
    refused = _calibrate(file, address)
    assert refused.exit_code == 1 and "none of its servers is alive in this cluster" in refused.stderr
    file.write_text(text.replace("elsewhere", "127.0.0.1"))
    refused = _calibrate(file, address)
    assert (
        refused.exit_code == 1
        and "127.0.0.1 is more than one datanode; name them as HOST:DATA-PORT" in refused.stderr
    )
    assert file.read_text() == text.replace("elsewhere", "127.0.0.1")


def test_a_probe_goes_through_datanodes_that_are_there_and_only_probes_are_forgotten(address: str) -> None:
    node, other = (each["node"] for each in httpx.get(f"{address}/v1/status").json()["datanodes"])

    def ask(what: str, body: dict[str, object], user: str | None = None) -> httpx.Response:
        query = {"user": user or current_user()}
        return httpx.post(f"{address}/v1/topology/probes{what}", json=body, params=query)

    def probe(*pipeline: str) -> httpx.Response:
        return ask("", {"pipeline": pipeline})

    deadline_s = time.monotonic() + _TIMEOUT_S
    while (answer := probe(other, node)).status_code != 200:
        # On a busy machine a datanode may be silent for a moment.
        assert time.monotonic() < deadline_s, answer.text
        time.sleep(0.1)
    assert [hop["node"] if isinstance(hop, dict) else hop[0] for hop in answer.json()["pipeline"]] == [other, node]
    assert "in the pipeline twice" in probe(node, node).json()["RemoteException"]["message"]
    assert "no datanode gone is alive" in probe("gone").json()["RemoteException"]["message"]
    assert ask("/forget", {"chunks": [1, 2]}).status_code == 204
    assert ask("", {"pipeline": [node]}, "somebody").status_code == 403
