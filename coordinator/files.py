"""The file system's operations as the fronts (WebHDFS, REST, datanodes' links) call them.

Brings together the namespace (committed state), the cluster (soft state) and tokens. Runs on the event loop. Knows
no wire format.
"""

from __future__ import annotations

from .administration import Administration
from .inspection import Inspection
from .names import Names
from .reading import Reading
from .workplace import Workplace
from .writing import Writing


class Files:
    """All operations over one workplace."""

    def __init__(self, workplace: Workplace) -> None:
        self.names = Names(workplace)
        self.writing = Writing(workplace)
        self.reading = Reading(workplace)
        self.administration = Administration(workplace)
        self.inspection = Inspection(workplace)
