"""The connections through which a client's participants reach the cluster."""

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
    """The driver, calls and grants of one file system. Usable while it is open. Thread-safe."""

    driver: ThreadDriver
    calls: ControlRpc
    grants: GrantClient


def tls_of(where: CoordinatorAddress, ca_file: Path | None) -> TlsIdentity | None:
    """Return the TLS identity for datanodes, or None. With a local socket, a CA must be given for TLS."""
    if where.tls or (where.socket is not None and (ca_file is not None or CA_FILE_VARIABLE in os.environ)):
        return TlsIdentity.of_client(ca_file)
    return None
