"""Replace every service of a cluster with a standby and an agent by the next release, one after the other."""

from __future__ import annotations

import getpass
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import httpx
from support import client_of_a_release
from support.failover_cluster import FailoverCluster, Service
from support.long_runs import often
from support.releases import NEW
from support.services import ROOT
from support.supervised_world import accounts_of_tests
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.control.supervised_queries import SupervisedQueries
from peacefs.protocol.values.supervised_queries import QueryPhase
from peacefs.spark_connector.supervision.registration import supervise

_QUERY = "driver"
#: A client's round is dozens of requests, and each step of an upgrade takes several rounds.
_PAUSE_S = often(1, 0) / 10
_COMMAND = f"""
    [commands.{_QUERY}]
    program = "/bin/sh"
    arguments = ["-c", "echo it runs; exec sleep 3600"]
    {accounts_of_tests()}
"""


def upgrade_everything(cluster: FailoverCluster, runner: Service, user: Client, check: Callable[[], None]) -> None:
    """Upgrade coordinators, datanodes and the agent `runner` as the guide says, with `check` after each step."""
    with SupervisedQueries("http://" + ",".join(cluster.http)) as queries:

        def runs_after(restarts: int) -> bool:
            status = queries.status(_QUERY)
            return status.phase == QueryPhase.RUNNING.value and status.restarts == restarts

        supervise([_QUERY], coordinator="http://" + ",".join(cluster.http), name=_QUERY)
        wait_until(partial(runs_after, 0), "the agent runs a query")
        check()
        upgrade_coordinators(cluster, check)
        for service in cluster.datanodes:
            # New writers avoid the datanode from now on; active writes finish.
            decide(cluster, service, "maintenance", hours="1")
            user.wait_for(2)
            wanted = registrations(service) + len(cluster.coordinators)
            upgrade(service)
            wait_until(partial(has_registered, service, wanted), "it is registered with both")
            decide(cluster, service, "recommission")
            wait_until(partial(is_replicated, cluster), "nothing is under-replicated")
            check()
        upgrade(runner)
        wait_until(partial(runs_after, 1), "its query ended with the agent, and runs again")
        check()


def decide(cluster: FailoverCluster, datanode: Service, decision: str, **asked: str) -> None:
    """Ask the leader, which is now the second coordinator, as `peacefs datanodes` does."""
    found = re.search(r"datanode (dn-\w+) of cluster", datanode.log())
    assert found is not None
    url = f"http://{cluster.http[1]}/v1/datanodes/{found[1]}/{decision}"
    answer = httpx.post(
        url, params={"user": getpass.getuser(), **asked}, timeout=60, trust_env=False, verify=False
    )
    assert answer.is_success, answer.text


def is_replicated(cluster: FailoverCluster) -> bool:
    """Return whether the leader, now the second coordinator, knows no under-replicated chunk."""
    chunks = cluster.status(1)["chunks"]
    assert isinstance(chunks, dict)
    return not chunks["under_replicated"]


def has_registered(service: Service, times: int) -> bool:
    return registrations(service) >= times


class Client:
    """A program that changes, writes and reads in rounds. Any failed request ends it."""

    def __init__(self, cluster: FailoverCluster) -> None:
        urls = "http://" + ",".join(cluster.http)
        command = [sys.executable, client_of_a_release.__file__, urls, "/client", "0", f"{_PAUSE_S}"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.rounds = 0
        self._reader = threading.Thread(target=self._count)
        self._reader.start()

    def _count(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.rounds = int(line)

    def wait_for(self, more: int) -> None:
        wanted = self.rounds + more
        wait_until(
            lambda: self.rounds >= wanted or self.process.poll() is not None, f"{more} rounds of the client"
        )
        assert self.process.poll() is None, "a request of the client has failed"

    def end(self) -> int:
        """Let the program end after its round; return its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.write("that is all\n")
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def client(cluster: FailoverCluster) -> Iterator[Client]:
    """Yield a client within the block. None of its requests may fail."""
    own = Client(cluster)
    try:
        yield own
        assert own.end() == 0, "a request of the client has failed"
    finally:
        own.close()


def upgrade(service: Service) -> None:
    """Stop a service, unless it has ended by itself, and start it as the next release."""
    if service.exit_status() is None:
        assert service.stop() == 0, service.log()
    service.program = NEW
    service.start()


def registrations(service: Service) -> int:
    """Count in a coordinator's log how often a datanode was registered."""
    return service.log().count("registered with the coordinator")


def upgrade_coordinators(cluster: FailoverCluster, batches_go_on: Callable[[], None]) -> None:
    """Upgrade the standby, hand over, and upgrade the earlier leader."""
    upgrade(cluster.coordinators[1])
    wait_until(lambda: stands_by(cluster, 1, leader=0), "the new standby is warm")
    batches_go_on()
    answer = httpx.post(
        f"http://{cluster.http[0]}/v1/coordinator/hand-over",
        params={"user": "root"},
        timeout=60,
        trust_env=False,
        verify=False,
    )
    assert answer.is_success, answer.text
    assert cluster.leads(1)
    wait_until(lambda: cluster.coordinators[0].exit_status() is not None, "the old leader has ended")
    batches_go_on()
    upgrade(cluster.coordinators[0])
    wait_until(lambda: stands_by(cluster, 0, leader=1), "it stands by for the one that leads")
    batches_go_on()


def stands_by(cluster: FailoverCluster, at: int, leader: int) -> bool:
    """Return whether a coordinator is ready to lead: it is warm, and all datanodes are connected."""
    if not cluster.stands_by(at) or cluster.datanodes_at(at) < len(cluster.datanodes):
        return False
    failover = cluster.status(leader)["failover"]
    assert isinstance(failover, dict)
    return [each["is_warm"] for each in failover["coordinators"]] == [True, True]


@contextmanager
def agent(cluster: FailoverCluster, program: tuple[str, ...]) -> Iterator[Service]:
    (cluster.directory / "commands.toml").write_text(_COMMAND)
    addresses = ",".join(f"127.0.0.1:{port}" for port in cluster.node_ports)
    service = Service(
        cluster.directory / "agent.log",
        *("agent", f"--dir={cluster.directory / 'agent'}", f"--commands={cluster.directory / 'commands.toml'}"),
        *("--name=north", f"--coordinator={addresses}", f"--secret-file={cluster.secret}"),
    )
    service.program = program
    service.start()
    try:
        yield service
    finally:
        service.kill()
