"""A writer's description of a new file, used from the request up to the commit that creates the name.

WebHDFS, REST and frames produce it. CREATE checks it and signs it into a token. The writer returns the token when
the file is complete, and the namespace then creates an inode.
"""

from __future__ import annotations

import msgspec

from peacefs.protocol.limits import checksum_block_bytes, chunk_bytes_max

from .errors import BadRequest


class NewFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The properties of a new file. `block_bytes` is the chunk size.

    If `replication` or `block_bytes` is 0, the cluster's default applies. Requests with the same `request_id`
    create the file once. `permission` has the bits of `chmod`; other bits are ignored. `unmasked` is the
    permission before the client applied its umask, if known; it is used if the parent has a default ACL.
    `write_class` is blocking, due or bulk; if it is empty, the class is told from the path.
    """

    path: str
    user: str
    overwrite: bool = False
    permission: int = 0o644
    replication: int = 0
    block_bytes: int = 0
    create_parent: bool = True
    request_id: str = ""
    unmasked: int | None = None
    write_class: str = ""


def possible_block_bytes(wanted: int) -> int:
    """Round a requested block size down to whole checksum blocks, within the limits; 0 gives the default.

    Raises BadRequest if it is negative.
    """
    if wanted < 0:
        raise BadRequest(f"block size {wanted} is negative")
    wanted = min(wanted or chunk_bytes_max, chunk_bytes_max)
    return max(checksum_block_bytes, wanted // checksum_block_bytes * checksum_block_bytes)


def block_bytes_notice(wanted: int, given: int) -> str | None:
    """Return a notice for the user if the file's block size differs from the requested one; else None."""
    if wanted in (0, given):
        return None
    return (
        f"the block size is {given} bytes in place of {wanted}: "
        f"multiples of {checksum_block_bytes} up to {chunk_bytes_max} are possible"
    )
