"""The methods of a file system for extended attributes."""

from __future__ import annotations

from collections.abc import Collection

from .control.names import ATTRIBUTE_FLAGS, NameApi


class ExtendedAttributes:
    """Named values of files and directories. All methods raise classes of `peacefs.protocol.errors`."""

    _names: NameApi

    def set_attribute(self, path: str, name: str, value: bytes, flags: Collection[str] = ATTRIBUTE_FLAGS) -> None:
        """Set a named value, such as `user.colour`, of a file or directory.

        `flags` allow the name to be new (CREATE) and to exist (REPLACE). Raises FileNotFound, AccessDenied,
        PathError.
        """
        self._names.set_attribute(path, name, value, flags)

    def attributes(self, path: str) -> dict[str, bytes]:
        """Return all values that the user may see, by name. Raises FileNotFound, AccessDenied."""
        return self._names.attributes(path)

    def remove_attribute(self, path: str, name: str) -> None:
        """Remove a named value. Raises FileNotFound, AccessDenied, and PathError if it does not exist."""
        self._names.remove_attribute(path, name)
