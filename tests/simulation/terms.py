"""Constants that all parts of the simulated cluster share."""

from __future__ import annotations

from peacefs.client.transfer.write_grants import GrantClient
from peacefs.protocol.tokens import Signer

SIGNER = Signer(b"the secret of the simulated cluster")
CHUNK_BYTES = 1 << 19
HOP_TIMEOUT_S = 4.0
CALL_TIMEOUT_S = 5.0
#: The client that receives the grants for all clients.
GRANT_CLIENT = GrantClient("simulated", pushed=True)
#: The prefix of clients that grants cannot be pushed to. They ask over HTTP, and their requests are held.
HTTP_CLIENT = "client-http"
#: How often a story checks all disks. A check takes longer than the simulated events in between.
LOOK_S = 0.1
