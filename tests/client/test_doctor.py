"""`peacefs doctor` on a healthy cluster, then on one with several faults at once."""

from __future__ import annotations

import json
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.open_root import root_as_made
from support.waiting import wait_until
from typer.testing import CliRunner

from peacefs.client.control.addresses import parse_address
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.command import application
from peacefs.commands.doctor.facts import Diagnosis, Urgency
from peacefs.commands.doctor.judgements import doctor_descriptors_min
from peacefs.commands.doctor.probes import ClusterProbes
from peacefs.commands.doctor.visit import EXIT_STATUS
from peacefs.spark_connector.session import installed_spark, settings
from peacefs.spark_connector.setting_formats import FORMATS

pytestmark = pytest.mark.cluster


def _is_of_the_machine(found: Diagnosis) -> bool:
    """Return whether a finding depends on the machine: its disk, its limits, its Java."""
    few = resource.getrlimit(resource.RLIMIT_NOFILE)[1] < doctor_descriptors_min
    return found.check == "durability" or found.about == "java" or (found.check == "descriptors" and few)


def _visit(*arguments: str) -> tuple[int, list[Diagnosis]]:
    done = CliRunner().invoke(application, ["doctor", "--json", *arguments])
    assert done.exit_code in EXIT_STATUS.values(), done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.exit_code, [Diagnosis(**line | {"verdict": Urgency(line["verdict"])}) for line in lines]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with root_as_made(), LocalCluster(tmp_path / "cluster", datanodes=2, port=0) as running:
        yield running


def test_doctor_finds_a_running_cluster_well_and_names_what_is_then_harmed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    address = cluster.http_address
    conf = tmp_path / "spark-defaults.conf"
    good = FORMATS["defaults"](settings(address, spark_version=installed_spark()))
    conf.write_text(good)
    found: list[Diagnosis] = []

    def is_well() -> bool:
        nonlocal found
        _status, found = _visit("-c", address, f"--spark-conf={conf}")
        return all(each.verdict is Urgency.FINE for each in found if not _is_of_the_machine(each))

    wait_until(is_well, "everything is fine")
    nodes = {each.about for each in found if each.check == "ports"}
    assert len(nodes) == 2
    assert {"answers", "cluster", "versions", "clocks", "addresses", "ports", "descriptors", "spark"} <= {
        each.check for each in found
    }

    conf.write_text(good.replace("retry.policy.enabled true", "retry.policy.enabled false"))
    few, gone = cluster.datanodes
    resource.prlimit(few.pid, resource.RLIMIT_NOFILE, (512, 512))
    gone.kill()
    status, found = _visit(
        "-c", address, f"--spark-conf={conf}", f"--dir={tmp_path / 'nowhere'}", f"--dir={tmp_path}"
    )
    assert status == 4
    harms = {(each.check, each.about): each for each in found if each.verdict is not Urgency.FINE}
    setting = harms["spark", "spark.hadoop.dfs.http.client.retry.policy.enabled"]
    assert setting.verdict is Urgency.CHANGE and "retry.policy.enabled true" in setting.advice
    scarce = harms["descriptors", few.readiness.node]
    assert "of 512 are open" in scarce.seen and "LimitNOFILE" in scarce.advice
    assert harms["directory", str(tmp_path / "nowhere")].verdict is Urgency.BROKEN
    assert any(each.about == str(tmp_path) and "MiB/s" in each.seen for each in found)
    # Until the coordinator considers it dead, the doctor tries its ports.
    of_gone = [each for (check, about), each in harms.items() if about == gone.readiness.node]
    assert of_gone and all(each.advice for each in of_gone)
    assert {each.check for each in of_gone} <= {"answers", "ports", "cluster"}


@contextmanager
def _stranger() -> Iterator[int]:
    """Yield a web server that does not belong to the cluster."""

    class Greeting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Greeting) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            serving.join()


def test_doctor_tells_a_stranger_or_another_datanode_at_a_port(shared_cluster: LocalCluster) -> None:
    probes = ClusterProbes(parse_address(shared_cluster.http_address))
    status = probes.status()
    mine, other, *_rest = status.datanodes
    with _stranger() as port:
        moved = replace(mine, http_port=port, data_port=other.data_port)
        [seen] = probes.datanodes(replace(status, datanodes=[moved]))
    assert "something else than peacefs" in seen.fault
    assert other.node in seen.data_fault and mine.node in seen.data_fault


def test_doctor_speaks_tls_with_services_also_where_an_administrator_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--authentication=token"]
    with LocalCluster(tmp_path, datanodes=1, port=0, tls=True, coordinator_options=options) as cluster:
        monkeypatch.setenv("PEACEFS_CA_FILE", str(cluster.directory / "certificates" / "ca.pem"))
        address = parse_address(f"unix:{tmp_path}")
        [datanode] = ClusterProbes(address).datanodes(ClusterProbes(address).status())
        assert (datanode.fault, datanode.data_fault) == ("", "")
        assert datanode.metrics is not None and 0 < (datanode.metrics.tls_days_left or 0) < 1000
        # Without a token, the doctor says so, and checks what needs none.
        status, found = _visit("-c", cluster.http_address)
        assert status == 4
        [refused] = [each for each in found if each.verdict is Urgency.BROKEN and not _is_of_the_machine(each)]
        assert refused.check == "cluster" and "--token-file" in refused.advice
        # Without TLS nothing answers, and the reason is reported.
        _status, found = _visit("-c", cluster.http_address.replace("https", "http"))
        [unheard] = [each for each in found if each.check == "answers"]
        assert unheard.verdict is Urgency.BROKEN and "TLS" in unheard.seen
