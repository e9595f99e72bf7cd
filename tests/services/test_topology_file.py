"""A coordinator with a topology file, which places datanodes and may be changed at run time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from support.services import start_service
from typer.testing import CliRunner

from peacefs.command import application
from peacefs.coordinator.options import CoordinatorOptions
from peacefs.coordinator.process import run
from peacefs.protocol.errors import StartupError

_TIMEOUT_S = 180

_FILE = """
[[switch]]
name = "/core"
[[switch]]
name = "/{rack}"
uplink = "/core"
bytes_s = {bytes_s}
[[servers]]
rack = "/{rack}"
names = ["127.0.0.1"]
bytes_s = 40e6
"""


def test_a_file_with_a_mistake_is_refused_with_its_line_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(_FILE.format(rack="attic", bytes_s=-1))
    with pytest.raises(StartupError, match=r"net.toml: line 7: link /attic - /core: -1 bytes a second is no rate"):
        run(CoordinatorOptions(directory=tmp_path / "c", topology=tmp_path / "net.toml"))
    assert not (tmp_path / "c").exists()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a coordinator whose file puts its only datanode into a rack."""
    (tmp_path / "net.toml").write_text(_FILE.format(rack="attic", bytes_s=20e6))
    processes = []
    try:
        process, coordinator = start_service(
            *("coordinator", f"--dir={tmp_path / 'c'}", "--port=0", "--node-port=0"),
            f"--topology={tmp_path / 'net.toml'}",
        )
        processes.append(process)
        process, _ = start_service(
            *("datanode", f"--dir={tmp_path / 'd'}", "--port=0", "--data-port=0", "--rack=/where-it-thinks"),
            f"--coordinator=127.0.0.1:{coordinator['node_port']}",
            f"--secret-file={tmp_path / 'c' / 'cluster.secret'}",
        )
        processes.append(process)
        yield f"http://127.0.0.1:{coordinator['http_port']}"
    finally:
        for process in processes:
            process.kill()
            process.wait(_TIMEOUT_S)


def _topology(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["topology", *arguments], prog_name="peacefs")


@pytest.mark.cluster
def test_the_file_says_where_datanodes_stand_and_is_read_again_when_told(address: str, tmp_path: Path) -> None:
    (datanode,) = httpx.get(f"{address}/v1/status").json()["datanodes"]
    assert datanode["rack"] == "/attic"
    shown = httpx.get(f"{address}/v1/topology").json()
    assert shown["described"] and shown["servers"][0]["network_bytes_s"] == 40e6
    assert "/attic  20 MB/s  (1 server)" in _topology("show", "--coordinator", address).stdout

    (tmp_path / "net.toml").write_text(_FILE.format(rack="cellar", bytes_s=30e6))
    told = _topology("reload", "--coordinator", address)
    assert told.stdout == "1 datanode alive, 1 of them described, in 1 rack\n"
    assert "/cellar  30 MB/s  (1 server)" in _topology("show", "--coordinator", address).stdout

    (tmp_path / "net.toml").write_text(_FILE.format(rack="roof", bytes_s=0))
    refused = _topology("reload", "--coordinator", address)
    assert refused.exit_code == 1
    assert "net.toml: line 7: link /roof - /core: 0 bytes a second is no rate" in refused.stderr
    assert httpx.get(f"{address}/v1/topology").json()["racks"] == [
        {"rack": "/cellar", "servers": [datanode["node"]]}
    ]
