"""Commands and environment of the Kubernetes manifests, without containers: over TLS, with tokens."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.etcd import etcd_binary
from support.manifests import HOST, OneMachine, container, resources
from support.services import ROOT
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.member_process import PEACEFS
from peacefs.protocol.errors import AccessDenied

pytestmark = pytest.mark.cluster
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


class Pods:
    """The containers of all StatefulSets as processes, with one datanode because all are alike."""

    def __init__(self, directory: Path) -> None:
        made = directory / "certificates"
        subprocess.run(
            [*PEACEFS, "certificates", "create", "--directory", str(made), "--host", HOST],
            check=True,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        secrets = directory / "secrets"
        secrets.mkdir()
        (secrets / "cluster.secret").write_text("0123456789abcdef" * 3)
        names = (("certificate.pem", f"{HOST}.pem"), ("key.pem", f"{HOST}-key.pem"), ("ca.pem", "ca.pem"))
        for name, file in names:
            (secrets / name).write_bytes((made / file).read_bytes())
        for file in secrets.iterdir():
            file.chmod(0o440)  # as Kubernetes mounts them
        self.ca = made / "ca.pem"
        self.machine = OneMachine(directory, secrets)
        self._sets = resources("StatefulSet")
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, count: int | None = None) -> None:
        """Start the Pods of a StatefulSet all at once, because it is declared parallel."""
        stateful_set = self._sets[name]
        assert stateful_set["spec"]["podManagementPolicy"] == "Parallel"
        program = [etcd_binary()] if name == "etcd" else [*PEACEFS]
        for pod in (f"{name}-{at}" for at in range(count or stateful_set["spec"]["replicas"])):
            # A volume belongs to root and the Pod's group.
            self.machine.data(pod).mkdir(mode=0o2775)
            told = self.machine.environment(pod, container(stateful_set))
            with (self._directory / f"{pod}.log").open("wb") as log:
                self._running[pod] = subprocess.Popen(
                    [*program, *self.machine.command(pod, container(stateful_set))],
                    **{"stdout": log, "stderr": log, "cwd": ROOT},
                    env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine, **told},
                )

    def passes(self, pod: str, kind: str) -> bool:
        """Probe as Kubernetes does, without verifying certificates."""
        where = self.machine.probe(pod, container(self._sets[pod.rpartition("-")[0]]), kind)
        if "://" not in where:
            with socket.create_connection((HOST, int(where.rpartition(":")[2])), timeout=30):
                return True
        try:
            with urllib.request.urlopen(where, timeout=30, context=ssl._create_unverified_context()):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def url(self) -> str:
        addresses = [f"{HOST}:{self.machine.port(f'coordinator-{at}', 9870)}" for at in range(2)]
        return f"https://{','.join(addresses)}"

    def token(self) -> str:
        """Make a token for ann, as an administrator in the leading Pod; empty while no Pod leads."""
        return self._administer("token", "create", "--user", "ann", "--ttl", "1h")

    def prepare(self) -> str:
        """Prepare ann's directories in the same way."""
        return self._administer("prepare", "ann")

    def _administer(self, *command: str) -> str:
        for at in range(2):
            words = ("--directory", str(self.machine.data(f"coordinator-{at}") / "coordinator"))
            done = subprocess.run(
                [*PEACEFS, *words, *command],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            if done.returncode == 0:
                return done.stdout.strip()
        return ""

    def stop(self, pod: str) -> int:
        """End a Pod as Kubernetes does; return its exit status."""
        process = self._running.pop(pod)
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_S)

    def kill(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    pods = Pods(tmp_path)
    try:
        yield pods
    finally:
        pods.kill()


def test_kubernetes_pods_come_up_pass_their_probes_and_serve(pods: Pods) -> None:
    pods.start("etcd")
    for at in range(3):
        wait_until(lambda at=at: pods.passes(f"etcd-{at}", "startupProbe"), "etcd has a quorum")
    pods.start("coordinator")
    pods.start("datanode", count=1)
    for pod in ("coordinator-0", "coordinator-1", "datanode-0", "etcd-0"):
        for kind in _PROBES:
            wait_until(lambda pod=pod, kind=kind: pods.passes(pod, kind), f"{pod} passes its {kind}")
    wait_until(pods.token, "a coordinator leads, and makes tokens")
    with PeaceFileSystem(pods.url(), token=pods.token(), ca_file=pods.ca) as files:
        with pytest.raises(AccessDenied):
            files.mkdirs("/tables")
        assert pods.prepare().split() == ["/tmp", "/checkpoints", "/user/ann"]
        files.write("/user/ann/one", b"all replicas are well", replication=1)
        assert files.read("/user/ann/one") == b"all replicas are well"
        assert [each["rack"] for each in files.cluster_status()["datanodes"]] == ["/node-of-datanode-0"]
    # The image's health check, for use without Kubernetes.
    url = pods.machine.probe("datanode-0", container(resources("StatefulSet")["datanode"]), "readinessProbe")
    assert checked(url).returncode == 0
    for at in range(2):
        pods.stop(f"coordinator-{at}")
    wait_until(lambda: not pods.passes("datanode-0", "readinessProbe"), "a datanode without a leader is not ready")
    said = checked(url)
    assert said.returncode == 1 and "no coordinator that leads has registered this datanode" in said.stderr
    assert pods.passes("datanode-0", "livenessProbe")
    assert pods.stop("datanode-0") == 0
    refused = checked(url)
    assert refused.returncode == 1 and "refused" in refused.stderr


def checked(url: str) -> subprocess.CompletedProcess[str]:
    """Run the image's health check."""
    script = ROOT / "deploy" / "container" / "health.py"
    return subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "HEALTH_URL": url},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
