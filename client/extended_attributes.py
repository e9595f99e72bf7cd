"""The part of a file system that is about extended attributes."""

from __future__ import annotations

from collections.abc import Collection

from .control.names import ATTRIBUTE_FLAGS, NameApi


class ExtendedAttributes:
    """Named values of files and directories. All methods raise classes of `peacefs.protocol.errors`."""

    _names: NameApi

    def set_attribute(self, path: str, name: str, value: bytes, flags: Collection[str] = ATTRIBUTE_FLAGS) -> None:
        """Give a file or directory a value under a name such as `user.colour`.

        `flags` say whether it may be new (CREATE), and may be there already (REPLACE). Raises FileNotFound,
        AccessDenied, PathError.
        """
        self._names.set_attribute(path, name, value, flags)

    def attributes(self, path: str) -> dict[str, bytes]:
        """Return all that the user may see, by name. Raises FileNotFound, AccessDenied."""
        return self._names.attributes(path)

    def remove_attribute(self, path: str, name: str) -> None:
        """Raises FileNotFound, AccessDenied, and PathError for one that is not there."""
        self._names.remove_attribute(path, name)
