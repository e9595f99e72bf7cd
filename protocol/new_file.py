"""A new file as its writer describes it: the one shape from the doors to the commit that creates the name.

WebHDFS, REST and frames read it; CREATE checks it and signs it into the token that completion brings back; the
namespace makes an inode of it.
"""

from __future__ import annotations

import msgspec


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
