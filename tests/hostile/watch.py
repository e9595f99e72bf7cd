"""Watch services under attack: they live, answer, log no faults of their own, and leak nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import LocalMember

#: Allowed growth. Heaps keep some freed memory; this is a limit, not a goal.
MEMORY_BYTES_MAX = 96 * 1024 * 1024
DESCRIPTORS_MAX = 24
_FAULTS = re.compile(
    r"Traceback|internal (?:fault|error)|because of a bug in|CRITICAL|Exception in callback|never retrieved"
)


@dataclass
class Held:
    """Resources of a process."""

    memory_bytes: int
    descriptors: int

    @classmethod
    def by(cls, member: LocalMember) -> Held:
        return cls.of(member.pid)

    @classmethod
    def of(cls, pid: int) -> Held:
        status = Path(f"/proc/{pid}/status").read_text()
        (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
        return cls(int(kib) * 1024, sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))


class Watch:
    """Watches from its creation on."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._serve(b"before")
        self._before = {member.name: Held.by(member) for member in cluster.members}

    def check(self) -> None:
        """Raise AssertionError if a service is worse off."""
        self._serve(b"after")
        for member in self._cluster.members:
            assert member.alive, member.end
            assert member.log is not None
            log = member.log.read_text(errors="replace")
            fault = _FAULTS.search(log)
            assert fault is None, f"{member.name} logged: {log[max(0, fault.start() - 500) : fault.end() + 3000]}"
            before = self._before[member.name]
            wait_until(
                lambda member=member, before=before: (
                    Held.by(member).descriptors <= before.descriptors + DESCRIPTORS_MAX
                ),
                f"{member.name} holds descriptors: {Held.by(member)} after {before}",
            )
            now = Held.by(member)
            grown = now.memory_bytes - before.memory_bytes
            assert grown <= MEMORY_BYTES_MAX, (
                f"{member.name} grew by {grown >> 20} MiB to {now.memory_bytes >> 20}"
            )

    def _serve(self, data: bytes) -> None:
        with PeaceFileSystem(self._cluster.http_address) as files:
            files.write("/watched", data * 500_000, overwrite=True)
            assert files.read("/watched") == data * 500_000
