"""Appends to a file whose lease the writer holds: writes chunks as for a new file, then adds them in one step."""

from __future__ import annotations

import contextlib
from typing import Final

from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import AbandonLease, Completed, Done, Leased
from peacefs.runtime import effects as fx

from .byte_stream import ByteStream
from .file_writer import WriteStats, write_file
from .lease_renewal import LeaseRenewal
from .write_grants import GrantClient

# Time limit for the call that abandons a lease.
lease_abandon_timeout_s: Final = 2.0


def append_file(
    leased: Leased,
    source: ByteStream,
    *,
    chunk_bytes: int,
    grant_client: GrantClient,
    hop_timeout_s: float = default_hop_timeout_s,
) -> fx.Steps[tuple[Completed, WriteStats]]:
    """Append what `source` brings to the file. Raises the errors of `write_file`, and LeaseExpired.

    After an error nothing was appended, unless only the answer to the completion was lost.
    """
    try:
        return (
            yield from write_file(
                leased.token,
                leased.allocated,
                source,
                chunk_bytes=chunk_bytes,
                grant_client=grant_client,
                hop_timeout_s=hop_timeout_s,
                renewal=LeaseRenewal(leased.token),
            )
        )
    except PeacefsError:
        yield from abandon(leased.token)
        raise


def abandon(token: str) -> fx.Steps[None]:
    """Give back the lease of `token`, so that other writers need not wait until it expires. Raises nothing."""
    with contextlib.suppress(PeacefsError):
        yield from fx.call(AbandonLease(token), Done, timeout_s=lease_abandon_timeout_s)
