"""A whole cluster over TLS, as processes: all kinds of clients, deaths, new certificates, refused peers."""

from __future__ import annotations

import functools
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from pipeline.relay import Relay
from support.long_runs import often
from support.supervised_world import accounts_of_tests
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import LocalMember
from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.protocol.errors import PeacefsError, PeerRefused
from peacefs.protocol.limits import MIB
from peacefs.runtime.tls import TlsFiles, TlsIdentity

pytestmark = pytest.mark.cluster
#: The last file has two chunks; with PEACEFS_LONG, chunks of Spark's size.
_CHUNK_BYTES, LARGE = often(8, 64) * MIB, often(9, 70) * MIB
SIZES = (0, 1, 1024, 300_000, 3 * MIB, LARGE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), datanodes=3, port=0, tls=True) as cluster:
        yield cluster


@pytest.fixture
def files(cluster: LocalCluster) -> Iterator[PeaceFileSystem]:
    with PeaceFileSystem(cluster.http_address, ca_file=cluster.ca_file) as opened:
        yield opened


@pytest.fixture
def http(cluster: LocalCluster) -> Iterator[httpx.Client]:
    context = TlsIdentity(TlsFiles(ca=cluster.ca_file)).connector_context()
    with httpx.Client(
        base_url=cluster.http_address, verify=context, trust_env=False, follow_redirects=True, timeout=60
    ) as client:
        yield client


@functools.cache
def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


class TestClients:
    def test_our_client_writes_and_reads_files_of_any_size(self, cluster, files):
        for size in SIZES:
            files.write(f"/ours/{size}", content(size), block_bytes=_CHUNK_BYTES)
        for local_sockets in (True, False):
            with PeaceFileSystem(
                cluster.http_address, ca_file=cluster.ca_file, local_sockets=local_sockets
            ) as reader:
                for size in SIZES:
                    assert reader.read(f"/ours/{size}") == content(size)
                with reader.open(f"/ours/{LARGE}") as source:
                    at = _CHUNK_BYTES - 500
                    assert source.read_at(at, 1000) == content(LARGE)[at : at + 1000]

    def test_append_flush_and_truncate(self, files):
        files.write("/changed", content(2 * MIB))
        with files.open_for_appending("/changed") as sink:
            sink.write(content(1024))
            sink.hsync()
            sink.write(content(300_000))
        files.truncate("/changed", 2 * MIB + 1500)
        expected = content(2 * MIB) + content(1024) + content(300_000)
        assert files.read("/changed") == expected[: 2 * MIB + 1500]

    def test_webhdfs_is_redirected_to_https(self, http, cluster):
        asked = f"/webhdfs/v1/web/{{}}?op=CREATE&user.name=ann&blocksize={_CHUNK_BYTES}"
        redirect = http.put(asked.format(0), follow_redirects=False)
        assert (redirect.status_code, redirect.headers["location"][:18]) == (307, "https://127.0.0.1:")
        for size in SIZES:
            assert http.put(asked.format(size), content=content(size)).status_code == 201
        for size in SIZES:
            assert http.get(f"/webhdfs/v1/web/{size}?op=OPEN").content == content(size)

    @pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
    def test_curl(self, cluster, files):
        files.write("/for-curl", b"over TLS")
        url = f"{cluster.http_address}/webhdfs/v1/for-curl?op=OPEN"
        command = ["curl", "-sS", "-L", "--cacert", str(cluster.ca_file), url]
        assert subprocess.run(command, capture_output=True, timeout=180, check=True).stdout == b"over TLS"

    def test_command_takes_the_authority_by_option_and_by_environment(self, cluster, files):
        files.write("/for-commands", b"over TLS")
        ca, address = str(cluster.ca_file), cluster.http_address
        peacefs = [sys.executable, "-P", "-m", "peacefs"]
        for command, variables in (
            ([*peacefs, "--ca-file", ca, "cat", "-c", address, "/for-commands"], {}),
            ([*peacefs, "cat", f"{cluster.webhdfs_uri}/for-commands"], {"PEACEFS_CA_FILE": ca}),
        ):
            done = subprocess.run(
                command, capture_output=True, timeout=180, env=_environment() | variables, check=False
            )
            assert done.stdout == b"over TLS", done.stderr
        report = [*peacefs, "--ca-file", ca, "report", "-c", address, "--json"]
        assert b'"alive"' in subprocess.run(report, capture_output=True, timeout=180, check=True).stdout

    def test_fsspec(self, cluster):
        fsspec = pytest.importorskip("fsspec")
        options = {"host": "127.0.0.1", "port": cluster.address.port, "ca_file": str(cluster.ca_file)}
        with fsspec.filesystem("peace", **options).open("/spec", "wb") as sink:
            sink.write(content(300_000))
        url = f"peace://{cluster.address.netloc}/spec"
        with fsspec.open(url, ca_file=str(cluster.ca_file)) as source:
            assert source.read() == content(300_000)

    def test_checkpoints_are_looked_at_by_the_process_beside_the_coordinator(self, http):
        answer = http.get("/v1/checkpoints", params={"path": "/", "user": "ann"})
        assert (answer.status_code, answer.json()) == (200, {"checkpoints": []})

    def test_metrics_say_how_long_the_certificate_lasts(self, cluster, http):
        for member in cluster.members:
            said = http.get(f"https://127.0.0.1:{member.readiness.http_port}/metrics").text
            (line,) = [line for line in said.splitlines() if line.startswith("peacefs_tls_certificate_days_left")]
            assert 89 < float(line.split()[1]) <= 90


class TestKeptOut:
    @pytest.fixture
    def other(self, tmp_path: Path) -> TrialAuthority:
        return TrialAuthority(tmp_path / "other")

    def test_client_of_another_authority(self, cluster, other):
        for ca in (other.ca, None):
            with (
                PeaceFileSystem(cluster.http_address, ca_file=ca) as files,
                pytest.raises(
                    PeerRefused, match="a certificate of a CA that is not trusted here: give that CA with"
                ),
            ):
                files.status("/")
            with (
                PeaceFileSystem(cluster.http_address, ca_file=ca) as files,
                pytest.raises(
                    PeerRefused, match="a certificate of a CA that is not trusted here: give that CA with"
                ),
            ):
                files.read("/x")

    def test_host_that_the_certificate_is_not_for(self, cluster):
        relay = Relay("127.0.0.2")
        relay.target = ("127.0.0.1", cluster.address.port)
        try:
            with PeaceFileSystem(f"https://127.0.0.2:{relay.address[1]}", ca_file=cluster.ca_file) as files:
                for ask in (lambda: files.status("/"), lambda: files.read("/x")):
                    with pytest.raises(PeerRefused, match=r"a certificate that is not for 127\.0\.0\.2"):
                        ask()
        finally:
            relay.stop()

    def test_plain_client(self, cluster):
        plain = cluster.http_address.replace("https", "http")
        with PeaceFileSystem(plain) as files:
            for ask in (lambda: files.status("/"), lambda: files.read("/x")):
                with pytest.raises(PeacefsError, match="this port speaks TLS: use https://"):
                    ask()
        refused = httpx.get(f"{plain}/v1/status", trust_env=False, verify=False)
        assert refused.status_code == 400 and "use https://" in refused.text

    def test_datanode_without_tls(self, cluster, tmp_path):
        said = _complaint(cluster, tmp_path)
        assert "this port speaks TLS" in said

    def test_datanode_of_another_authority(self, cluster, other, tmp_path):
        said = _complaint(cluster, tmp_path, *_options(other.issue(["127.0.0.1"])))
        assert "a certificate of a CA that is not trusted here" in said

    def test_datanode_whose_certificate_the_coordinator_does_not_trust(self, cluster, other, tmp_path):
        files = other.issue(["127.0.0.1"])
        both = tmp_path / "both.pem"
        assert files.ca is not None and cluster.ca_file is not None
        both.write_bytes(files.ca.read_bytes() + cluster.ca_file.read_bytes())
        log = tmp_path / "datanode.log"
        with log.open("w") as stream:
            command = _datanode(cluster, tmp_path, *_options(TlsFiles(files.certificate, files.key, both)))
            waiting = subprocess.Popen(command, stderr=stream, env=_environment())
        try:
            wait_until(lambda: "Does it trust the CA of this side's certificate?" in log.read_text(), "it says so")
            wait_until(
                lambda: "shows a certificate of a CA that is not trusted here" in _log(cluster.coordinator),
                "the coordinator says so",
            )
        finally:
            waiting.terminate()
            waiting.wait(PATIENCE_S)

    def test_client_without_tls_at_a_data_port_and_strangers_everywhere(self, cluster, files):
        """They may get an answer, and nobody else has to wait for them."""
        ports = [cluster.coordinator.readiness.node_port, cluster.coordinator.readiness.http_port]
        ports += [
            port for node in cluster.datanodes for port in (node.readiness.data_port, node.readiness.http_port)
        ]
        wires = [socket.create_connection(("127.0.0.1", port), timeout=180) for port in ports for _ in range(3)]
        try:
            for wire, words in zip(wires, [b"", b"\x16\x03", b"GET / HTTP/1.1\r\n\r\n"] * len(ports), strict=True):
                wire.sendall(words)
            files.write("/meanwhile", content(MIB), overwrite=True)
            assert files.read("/meanwhile") == content(MIB)
        finally:
            for wire in wires:
                wire.close()


def test_deaths_of_a_datanode_and_of_the_coordinator_are_survived(tmp_path: Path) -> None:
    # More than the writer's buffer: the first half is being sent when the datanode dies.
    half = content(often(6, 20) * MIB)
    with (
        LocalCluster(tmp_path, datanodes=4, port=0, tls=True) as cluster,
        PeaceFileSystem(cluster.http_address, ca_file=cluster.ca_file, local_sockets=False) as files,
    ):
        with files.open_for_writing("/large") as sink:
            sink.write(half)
            cluster.datanodes[0].kill()
            sink.write(half)
        assert files.read("/large") == 2 * half
        cluster.coordinator.kill()
        cluster.restart(cluster.coordinator)
        cluster.restart(cluster.datanodes[0])
        assert files.read("/large") == 2 * half
        files.write("/after", b"the restart")


def test_new_certificates_are_taken_under_load_and_broken_ones_are_not(tmp_path: Path) -> None:
    """One writer works all the time. New connections see the new certificate, and none fails."""
    with LocalCluster(tmp_path, datanodes=3, port=0, tls=True) as cluster:
        ca = cluster.ca_file
        assert ca is not None
        authority = TrialAuthority(ca.parent)
        ports = [
            port for each in cluster.datanodes for port in (each.readiness.data_port, each.readiness.http_port)
        ]
        ports += [cluster.coordinator.readiness.http_port]
        stop, faults, written = threading.Event(), [], []

        def load() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                # Open new connections each time.
                try:
                    with PeaceFileSystem(cluster.http_address, ca_file=ca, local_sockets=False) as files:
                        files.write(f"/load/{number}", content(300_000))
                        assert files.read(f"/load/{number}") == content(300_000)
                except Exception as fault:
                    faults.append(fault)
                    return
                written.append(number)
                stop.wait(0.05)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            before = {_shown(port, ca) for port in ports}
            assert len(before) == 1
            certificate = authority.files_of("127.0.0.1").certificate
            assert certificate is not None
            certificate.write_text("-----BEGIN CERTIFICATE-----\nhalf")
            wait_until(
                lambda: all("the former ones stay in use" in _log(member) for member in cluster.members),
                "the broken file is reported",
            )
            assert {_shown(port, ca) for port in ports} == before
            authority.issue(["127.0.0.1"])
            wait_until(lambda: before.isdisjoint({_shown(port, ca) for port in ports}), "the new one is shown")
            since = len(written)
            wait_until(lambda: len(written) > since + 3 or faults, "the load goes on")
        finally:
            stop.set()
            thread.join()
        assert not faults


def test_expired_certificate_starts_nothing(tmp_path: Path) -> None:
    old = TrialAuthority(tmp_path / "ca", datetime.now(UTC) - timedelta(days=10)).issue(["127.0.0.1"], days=5)
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "peacefs",
            "coordinator",
            f"--dir={tmp_path / 'c'}",
            "--port=0",
            *_options(old),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        env=_environment(),
        check=False,
    )
    assert done.returncode == 1
    assert "or its CA, has expired" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "c").exists()


def test_agent_runs_queries_that_reach_the_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    from peacefs.client.control.supervised_queries import SupervisedQueries, WantedQuery

    script = (
        "import os\n"
        "from peacefs.client.filesystem import PeaceFileSystem\n"
        "with PeaceFileSystem(os.environ['PEACEFS_COORDINATOR']) as files:\n"
        "    files.write('/by-the-query', os.environ['PEACEFS_CHECKPOINT'].encode())\n"
    )
    commands = tmp_path / "commands.toml"
    commands.write_text(
        f'[commands.once]\nprogram = "{sys.executable}"\narguments = ["-P", {str(tmp_path / "query.py")!r}]\n'
        + accounts_of_tests()
    )
    (tmp_path / "query.py").write_text(script)
    pipe = os.pipe()
    ready = cluster.coordinator.readiness
    ca = cluster.ca_file
    assert ca is not None
    arguments = [
        "agent",
        f"--dir={tmp_path / 'agent'}",
        f"--commands={commands}",
        "--name=north",
        "--host=127.0.0.1",
        f"--coordinator={ready.node_host}:{ready.node_port}",
        f"--secret-file={cluster.directory / 'coordinator' / 'cluster.secret'}",
        *_options(TrialAuthority(ca.parent).files_of("127.0.0.1")),
    ]
    log = tmp_path / "agent.log"
    log.touch()
    agent = LocalMember("north", lambda _before: arguments, lambda: log, pipe[0], [])
    try:
        agent.start()
        agent.await_ready()
        with pytest.MonkeyPatch.context() as patch, PeaceFileSystem(cluster.http_address, ca_file=ca) as files:
            patch.setenv("PEACEFS_CA_FILE", str(ca))
            with SupervisedQueries(cluster.http_address) as queries:
                queries.register(WantedQuery("once", ["once"], checkpoint="/checkpoints/once"))
                wait_until(lambda: files.exists("/by-the-query"), "the query has written")
            assert files.read("/by-the-query").startswith(
                f"swebhdfs://{cluster.address.netloc}/checkpoints/once/".encode()
            )
    finally:
        agent.terminate()
        agent.await_end(time.monotonic() + PATIENCE_S)
        agent.kill()
        for end in pipe:
            os.close(end)


# -- helpers -------------------------------------------------------------------------------------------


def _environment() -> dict[str, str]:
    ours = ("PEACEFS_CA_FILE", "PEACEFS_SECRET_FILE", "PEACEFS_COORDINATOR")
    return {name: value for name, value in os.environ.items() if name not in ours}


def _options(files: TlsFiles) -> list[str]:
    return [f"--tls-certificate={files.certificate}", f"--tls-key={files.key}", f"--tls-ca={files.ca}"]


def _complaint(cluster: LocalCluster, tmp_path: Path, *options: str) -> str:
    """Return the last line of a datanode that cannot start."""
    done = subprocess.run(
        _datanode(cluster, tmp_path, *options),
        capture_output=True,
        text=True,
        timeout=60,
        env=_environment(),
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def _datanode(cluster: LocalCluster, tmp_path: Path, *options: str) -> list[str]:
    ready = cluster.coordinator.readiness
    return [
        *(sys.executable, "-P", "-m", "peacefs", "datanode", f"--dir={tmp_path / 'd'}"),
        f"--coordinator={ready.node_host}:{ready.node_port}",
        f"--secret-file={cluster.directory / 'coordinator' / 'cluster.secret'}",
        *("--port=0", "--data-port=0", *options),
    ]


def _shown(port: int, ca: Path) -> bytes:
    """Return the certificate that a port presents."""
    context = TlsIdentity(TlsFiles(ca=ca)).connector_context()
    with (
        socket.create_connection(("127.0.0.1", port), timeout=180) as wire,
        context.wrap_socket(wire, server_hostname="127.0.0.1") as secured,
    ):
        found = secured.getpeercert(binary_form=True)
        assert found is not None
        return found


def _log(member: LocalMember) -> str:
    assert member.log is not None
    return member.log.read_text()
