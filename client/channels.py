"""The channels that a client's participants talk through."""

from __future__ import annotations

from dataclasses import dataclass

from peacefs.protocol.runtime.thread_driver import ThreadDriver

from .control.rpc import ControlRpc
from .transfer.write_grants import GrantClient


@dataclass(frozen=True)
class Channels:
    """Belongs to a file system, and is of use while that is open. Thread-safe."""

    driver: ThreadDriver
    calls: ControlRpc
    grants: GrantClient
