"""Decision 84: a service tells systemd once that it serves, and what it starts cannot speak for it."""

import os
import socket

from peacefs.service.lifeline import announce

with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
    manager.bind(f"\0peacefs-decision-84-{os.getpid()}")
    os.environ["NOTIFY_SOCKET"] = f"@peacefs-decision-84-{os.getpid()}"
    announce(None, {})
    assert manager.recv(64) == b"READY=1"
    assert "NOTIFY_SOCKET" not in os.environ
