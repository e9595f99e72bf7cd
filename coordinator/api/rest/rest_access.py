"""Who may ask what over REST where it is no matter of files: `user`, a name that is believed, as in WebHDFS."""

from __future__ import annotations

from typing import Any

from fastapi import Depends

from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.webhdfs.query import NOBODY


def superusers_only(callers: Callers) -> Any:
    """For the `dependencies` of a route that changes the cluster, or gives away what all files are called."""

    def check(user: str = NOBODY) -> None:
        callers.need_superuser(user)

    return Depends(check)
