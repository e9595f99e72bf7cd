"""The channels that a client's participants talk through."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.tls import TlsIdentity
from peacefs.runtime.tls_variables import CA_FILE_VARIABLE

from .control.addresses import CoordinatorAddress
from .control.rpc import ControlRpc
from .transfer.write_grants import GrantClient


@dataclass(frozen=True)
class Channels:
    """Belongs to a file system, and is of use while that is open. Thread-safe."""

    driver: ThreadDriver
    calls: ControlRpc
    grants: GrantClient


def tls_of(where: CoordinatorAddress, ca_file: Path | None) -> TlsIdentity | None:
    """Return the TLS identity for datanodes; behind a local socket's address, if there is a CA."""
    if where.tls or (where.socket is not None and (ca_file is not None or CA_FILE_VARIABLE in os.environ)):
        return TlsIdentity.of_client(ca_file)
    return None
