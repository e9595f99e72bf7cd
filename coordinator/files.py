"""The file system's operations as the fronts (WebHDFS, REST, datanodes' links) call them.

Brings together the namespace (committed state), the cluster (soft state) and tokens. Runs on the event loop. Knows
no wire format.
"""

from __future__ import annotations

from .administration import Administration
from .appending import Appending
from .fencing import Fencing
from .inspection import Inspection
from .leases import Leases
from .limiting import Limiting
from .names import Names
from .placing import Placing
from .probing import Probing
from .read_desk import ReadDesk
from .reading import Reading
from .reporting import Reporting
from .reshaping import Reshaping
from .schedule_desk import ScheduleDesk
from .scheduling import Scheduling
from .snapshotting import Snapshotting
from .temporary_files import TemporaryFiles
from .trash import Trash
from .tree_copying import TreeCopying
from .workplace import Workplace
from .writing import Writing


class Files:
    """All operations over one workplace."""

    def __init__(self, workplace: Workplace, scheduling: Scheduling, trash_minutes: int = 0) -> None:
        self.callers = workplace.callers
        placing = Placing(workplace)
        leases = Leases(workplace.monotonic())
        self.names = Names(workplace)
        self.probing = Probing(workplace, placing)
        self.appending = Appending(workplace, placing, leases)
        self.reshaping = Reshaping(workplace, leases)
        self.schedule = ScheduleDesk(workplace, placing, self.appending, scheduling)
        self.writing = Writing(workplace, placing, self.appending, self.schedule)
        self.snapshots = Snapshotting(workplace, self.names)
        self.copying = TreeCopying(workplace, self.names)
        self.limiting = Limiting(workplace, self.names)
        self.trash = Trash(workplace, self.names, trash_minutes)
        self.reading = Reading(workplace)
        self.recovery = ReadDesk(workplace, scheduling)
        self.administration = Administration(workplace)
        self.temporary_files = TemporaryFiles(workplace, leases)
        self.fencing = Fencing(workplace)
        self.reporting = Reporting(workplace)
        self.inspection = Inspection(workplace)
