"""What participants of a client talk through."""

from __future__ import annotations

from dataclasses import dataclass

from peacefs.protocol.threads import ThreadDriver

from .control_calls import ControlCalls
from .grants import GrantDesk


@dataclass(frozen=True)
class Channels:
    """Belongs to a file system, and is of use while that is open. Thread-safe."""

    driver: ThreadDriver
    calls: ControlCalls
    grants: GrantDesk
