"""The terms that all parts of the simulated cluster agree on."""

from __future__ import annotations

from peacefs.client.transfer.write_grants import GrantClient
from peacefs.protocol.tokens import Signer

SIGNER = Signer(b"the secret of the simulated cluster")
CHUNK_BYTES = 1 << 19
HOP_TIMEOUT_S = 4.0
CALL_TIMEOUT_S = 5.0
#: The client at which grants for all clients arrive.
GRANT_CLIENT = GrantClient("simulated", pushed=True)
#: The beginning of the names of clients to which nothing can be pushed: they ask over HTTP, and are held.
HTTP_CLIENT = "client-http"
#: So often a story looks at all disks, which takes longer than what happens meanwhile.
LOOK_S = 0.1
