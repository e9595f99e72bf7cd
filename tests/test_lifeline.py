"""A service reports to systemd that it is ready, with the datagram that sd_notify(3) describes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from peacefs.service.lifeline import announce


@pytest.mark.parametrize("abstract", [False, True])
def test_service_manager_is_told_once_that_a_service_is_ready(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"peacefs-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if abstract else name)
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        announce(None, {})
        assert manager.recv(100) == b"READY=1"
        # Child processes of the service must not notify systemd for it.
        assert "NOTIFY_SOCKET" not in os.environ
        announce(None, {})
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(100)
