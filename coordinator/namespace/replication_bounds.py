"""How many replicas may be asked for."""

from __future__ import annotations

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import replication_default, replication_max


def checked_replication(wanted: int) -> int:
    """The number asked for, the default for zero. Raises BadRequest."""
    if not 0 <= wanted <= replication_max:
        raise BadRequest(f"replication {wanted} is out of range: 1 to {replication_max}")
    return wanted or replication_default
