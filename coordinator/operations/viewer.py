"""Who looks at what belongs to several users, and what they see of others' (decision 65).

A user sees his own, a superuser sees everything. Where names are believed everybody does: to hide from a name what
another name shows would protect nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Viewer(NamedTuple):
    """Who looks; `sees_all` for superusers, and where names are believed."""

    user: str
    sees_all: bool

    def sees(self, owner: str) -> bool:
        """Return whether things of this owner are shown."""
        return self.sees_all or owner == self.user
