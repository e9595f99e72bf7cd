"""Version skew of one release: clients, datanodes and coordinators of this tree and the previous release.

The previous release is a wheel, built from its commit. If that is missing, as in a shallow clone, the tests are
skipped with a reason.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support import client_of_a_release
from support.etcd import free_ports
from support.open_root import open_root_of
from support.releases import NEW, Service, previous_release, python_of
from support.services import ROOT
from support.supervised_world import accounts_of_tests
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.control.supervised_queries import SupervisedQueries
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.values.supervised_queries import QueryPhase
from peacefs.spark_connector.supervision.registration import supervise

pytestmark = pytest.mark.cluster
_CLIENT = client_of_a_release.__file__


@pytest.fixture(scope="module")
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Return the command of the previous release."""
    cache = getattr(request.config, "cache", None)  # None with `-p no:cacheprovider`
    return previous_release(cache.mkdir("releases") if cache else tmp_path_factory.mktemp("releases"))


class Cluster:
    """A coordinator, three datanodes and an agent, each of a release that the test chooses."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        secret = directory / "cluster.secret"
        secret.write_text("0123456789abcdef" * 3)
        secret.chmod(0o600)
        port, node_port, *ports = free_ports(8)
        self.url = f"http://127.0.0.1:{port}"
        shared = (f"--secret-file={secret}",)
        self.coordinator = Service(
            directory / "coordinator.log",
            *("coordinator", f"--dir={directory / 'coordinator'}", f"--port={port}", f"--node-port={node_port}"),
            *shared,
        )
        self.datanodes = [
            Service(
                directory / f"datanode-{at}.log",
                *("datanode", f"--dir={directory / f'datanode-{at}'}", f"--coordinator=127.0.0.1:{node_port}"),
                *(f"--port={ports[2 * at]}", f"--data-port={ports[2 * at + 1]}", *shared),
            )
            for at in range(3)
        ]
        (directory / "commands.toml").write_text(
            f"""
            [commands.driver]
            program = "/bin/sh"
            arguments = ["-c", "echo it runs; exec sleep 3600"]
            {accounts_of_tests()}
            """
        )
        self.agent = Service(
            directory / "agent.log",
            *(
                "agent",
                f"--dir={directory / 'agent'}",
                f"--commands={directory / 'commands.toml'}",
                "--name=north",
            ),
            *(f"--coordinator=127.0.0.1:{node_port}", *shared),
        )

    def start(self, coordinator: tuple[str, ...], *datanodes: tuple[str, ...]) -> None:
        self.coordinator.start(coordinator)
        for service, program in zip(self.datanodes, datanodes, strict=True):
            service.start(program)
        self.wait_for_datanodes()
        # A coordinator of 0.1.0 makes this directory itself.
        open_root_of(self._directory / "coordinator")

    def wait_for_datanodes(self) -> None:
        wait_until(lambda: self._alive() == len(self.datanodes), "all datanodes are registered")

    def _alive(self) -> int:
        try:
            status = httpx.get(f"{self.url}/v1/status", timeout=30, trust_env=False, verify=False).json()
        except httpx.HTTPError:
            return 0
        return sum(1 for each in status["datanodes"] if each["state"] == "alive")

    def restart(self, service: Service, program: tuple[str, ...]) -> None:
        """Stop a service and start it as another release; return when the cluster is complete."""
        assert service.stop() == 0, service.log()
        service.start(program)
        wait_until(lambda: service.exit_status() is None and self._alive() == len(self.datanodes), "it is back")

    def use(self, program: tuple[str, ...], home: str) -> None:
        """Let a client of a release change, write and read everything that it can."""
        done = subprocess.run(
            [*python_of(program), _CLIENT, self.url, home, "1"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        said = subprocess.run(
            [*program, "fsck", "-c", self.url, home], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert said.returncode == 0 and "HEALTHY" in said.stdout.upper(), said.stdout + said.stderr

    def stop(self) -> None:
        for service in (self.agent, *self.datanodes, self.coordinator):
            service.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        yield cluster
    finally:
        cluster.stop()


def test_skew_of_clients_and_datanodes_with_a_newer_coordinator(cluster: Cluster, old: tuple[str, ...]) -> None:
    """This is the middle of an upgrade that starts with the coordinator; pipelines contain both releases."""
    cluster.start(NEW, old, old, NEW)
    cluster.use(old, "/old")
    cluster.use(NEW, "/new")


def test_skew_of_clients_and_datanodes_with_an_older_coordinator(cluster: Cluster, old: tuple[str, ...]) -> None:
    """A datanode and a client were upgraded too early; written data survives the upgrade."""
    cluster.start(old, NEW, NEW, old)
    cluster.use(old, "/old")
    cluster.use(NEW, "/new")
    cluster.restart(cluster.coordinator, NEW)
    cluster.restart(cluster.datanodes[2], NEW)
    with PeaceFileSystem(cluster.url, "ann") as files:
        assert {files.read(f"/{home}/0/renamed") for home in ("old", "new")} == {b"all replicas are well"}
    cluster.use(NEW, "/upgraded")


def test_skew_of_an_agent_is_told_to_who_wants_to_see_a_log(cluster: Cluster, old: tuple[str, ...]) -> None:
    """A previous release's agent runs queries, and nobody waits for a log that it cannot send."""
    cluster.coordinator.start(NEW)
    wait_until(lambda: _answers(cluster.url), "the coordinator answers")
    cluster.agent.start(old)
    supervise(["driver"], coordinator=cluster.url, name="rates")
    with SupervisedQueries(cluster.url) as queries:

        def runs_after(restarts: int) -> bool:
            status = queries.status("rates")
            return status.phase == QueryPhase.RUNNING.value and status.restarts >= restarts

        def log() -> str:
            user = queries.status("rates").user
            answer = httpx.get(
                f"{cluster.url}/v1/queries/rates/log",
                params={"user": user},
                timeout=180,
                trust_env=False,
                verify=False,
            ).json()
            return str(answer["text"] if "text" in answer else answer["RemoteException"]["message"])

        wait_until(lambda: runs_after(0), "the query runs")
        assert log() == "agent north is older and sends no logs: upgrade peacefs where it runs"
        cluster.agent.stop()
        cluster.agent.start(NEW)
        wait_until(lambda: runs_after(1), "the query runs again")
        wait_until(lambda: "it runs" in log(), "its log is shown")


def _answers(url: str) -> bool:
    try:
        with PeaceFileSystem(url, "ann") as files:
            return files.exists("/")
    except PeacefsError:
        return False
