"""A cluster with agents, all of them real processes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import LocalMember

from .waiting import PATIENCE_S


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def accounts_of_tests() -> str:
    """Return the part of a permission list by which queries run under the uid of the tests."""
    return '[accounts]\n"root" = "root"' if os.geteuid() == 0 else ""


@contextmanager
def open_directory() -> Iterator[Path]:
    """Make a directory that other users can enter. Pytest closes its own directories to others at each start."""
    with tempfile.TemporaryDirectory(prefix="peacefs-agent-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


@dataclass
class World:
    """A cluster, and agents that may start little besides the counter."""

    cluster: LocalCluster
    directory: Path
    pipe: tuple[int, int]
    agents: dict[str, LocalMember]

    def agent(self, name: str, commands: str) -> LocalMember:
        """Start an agent with this permission list."""
        home = self.directory / name
        home.mkdir()
        (home / "commands.toml").write_text(commands)
        coordinator = self.cluster.coordinator.readiness
        arguments = [
            "agent",
            f"--dir={home}",
            f"--commands={home / 'commands.toml'}",
            f"--name={name}",
            "--host=127.0.0.1",
            f"--coordinator={coordinator.node_host}:{coordinator.node_port}",
            f"--secret-file={self.cluster.directory / 'coordinator' / 'cluster.secret'}",
        ]
        log = home / "agent.log"
        log.touch()
        member = LocalMember(name, lambda _before: arguments, lambda: log, self.pipe[0], [])
        member.start()
        member.await_ready()
        self.agents[name] = member
        return member

    def said(self, query: str) -> list[list[str]]:
        """Return the start of each run of the counter, in order: agent, process, location."""
        logs = [log for agent in self.agents for log in (self.directory / agent / "logs").glob(f"{query}.*.log")]
        logs.sort(key=lambda log: log.stat().st_ctime)
        return [words for log in logs if (words := log.read_text().split()[:3])]

    @classmethod
    @contextmanager
    def running(cls, directory: Path, coordinator_options: Sequence[str] = ()) -> Iterator[World]:
        """Yield a world; end all its processes at the end."""
        pipe = os.pipe()
        with LocalCluster(
            directory / "c", datanodes=2, port=0, coordinator_options=coordinator_options
        ) as cluster:
            world = cls(cluster, directory, pipe, {})
            try:
                yield world
            finally:
                for agent in world.agents.values():
                    agent.terminate()
                for agent in world.agents.values():
                    agent.await_end(time.monotonic() + PATIENCE_S)
                    agent.kill()
                os.close(pipe[0])
                os.close(pipe[1])
