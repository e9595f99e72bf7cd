"""Extended attributes, as `PeaceFileSystem.xattrs`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from peacefs.protocol.ids import new_request_id
from peacefs.protocol.messages import GetXAttrs, RemoveXAttr, SetXAttr, XAttrs

from .control.names import NameApi

#: Allow the attribute to be new, and to exist already.
ATTRIBUTE_FLAGS: Final = ("CREATE", "REPLACE")


class ExtendedAttributes:
    """Named values of files and directories. All methods raise classes of `peacefs.protocol.errors`."""

    def __init__(self, names: NameApi) -> None:
        self._names = names

    def set(self, path: str, name: str, value: bytes, flags: Collection[str] = ATTRIBUTE_FLAGS) -> None:
        """Set a named value, such as `user.colour`, of a file or directory.

        `flags` allow the name to be new (CREATE) and to exist (REPLACE). Raises FileNotFound, AccessDenied,
        PathError.
        """
        user = self._names.user
        self._names.change(
            SetXAttr(path, user, name=name, value=value, flags=list(flags), request_id=new_request_id())
        )

    def get(self, path: str) -> dict[str, bytes]:
        """Return all values that the user may see, by name. Raises FileNotFound, AccessDenied."""
        return self._names.ask(GetXAttrs(path, self._names.user), XAttrs).values

    def remove(self, path: str, name: str) -> None:
        """Remove a named value. Raises FileNotFound, AccessDenied, and PathError if it does not exist."""
        self._names.change(RemoveXAttr(path, self._names.user, name=name, request_id=new_request_id()))
