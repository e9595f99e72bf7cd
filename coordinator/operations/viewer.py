"""The caller of a view, and what it may see of other users (decision 65).

A user sees its own things, a superuser sees everything. If user names are believed, everybody sees everything:
hiding would protect nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Viewer(NamedTuple):
    """A user who looks. `sees_all` is True for superusers, and if user names are believed."""

    user: str
    sees_all: bool

    def sees(self, owner: str) -> bool:
        """Return whether the viewer sees things of this owner."""
        return self.sees_all or owner == self.user
