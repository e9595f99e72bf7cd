"""A new file as its writer describes it: the one shape from the doors to the commit that creates the name.

WebHDFS, REST and frames read it; CREATE checks it and signs it into the token that completion brings back; the
namespace makes an inode of it.
"""

from __future__ import annotations

import msgspec

from peacefs.protocol.limits import checksum_block_bytes, chunk_bytes_max

from .errors import BadRequest


class NewFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Zero for `replication` or `block_bytes`, which is where the writer cuts chunks, means the cluster's default.

    Under one `request_id` the file is created once, however often it is asked for. `permission` is what `chmod`
    takes; other bits are passed over. `unmasked` is the permission before the client's own mask, if it said that:
    it counts where the parent has a default ACL.
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


def possible_block_bytes(wanted: int) -> int:
    """Return the block size that a file gets where this one is asked for: whole checksum blocks, within the limit.

    0 asks for the cluster's default. Raises BadRequest.
    """
    if wanted < 0:
        raise BadRequest(f"block size {wanted} is negative")
    wanted = min(wanted or chunk_bytes_max, chunk_bytes_max)
    return max(checksum_block_bytes, wanted // checksum_block_bytes * checksum_block_bytes)


def block_bytes_notice(wanted: int, given: int) -> str | None:
    """Return what to tell a user whose file gets another block size than was asked for; None if it does not."""
    if wanted in (0, given):
        return None
    return (
        f"the block size is {given} bytes in place of {wanted}: "
        f"multiples of {checksum_block_bytes} up to {chunk_bytes_max} are possible"
    )
