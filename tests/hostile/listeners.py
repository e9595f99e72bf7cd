"""The TCP ports and local sockets on which a process listens, according to the kernel."""

from __future__ import annotations

import re
from pathlib import Path

_LISTEN = "0A"
#: In /proc/net/unix: a socket that accepts connections.
_ACCEPTS = 0x10000


def _sockets_of(pid: int) -> set[str]:
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            continue
        if match := re.fullmatch(r"socket:\[(\d+)\]", target):
            found.add(match[1])
    return found


def ports_of(pid: int) -> set[int]:
    """Return the TCP ports on which a process listens."""
    own = _sockets_of(pid)
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()
    ]
    return {
        int(fields[1].rpartition(":")[2], 16)
        for fields in lines[1:]
        if len(fields) > 9 and fields[3] == _LISTEN and fields[9] in own
    }


def local_sockets_of(pid: int) -> set[str]:
    """Return the names of the local sockets on which a process listens; those without a file begin with @."""
    own = _sockets_of(pid)
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {
        fields[7] for fields in lines if len(fields) > 7 and int(fields[3], 16) & _ACCEPTS and fields[6] in own
    }
