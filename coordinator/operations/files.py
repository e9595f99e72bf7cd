"""The file system's operations as the fronts (WebHDFS, REST, datanodes' links) call them.

Brings together the namespace (committed state), the cluster (soft state) and tokens. Runs on the event loop. Knows
no wire format.
"""

from __future__ import annotations

from peacefs.coordinator.scheduling.scheduler import Scheduling

from .append import Appending
from .chunk_explanation import ChunkExplanations
from .context import Workplace
from .copy import TreeCopying
from .credentials import Credentials
from .datanode_admin import Administration
from .fsck import Inspection
from .leases import Leases
from .names import Names
from .placement import Placing
from .probing import Probing
from .query_reports import Reporting
from .query_runs import Fencing
from .quotas import Limiting
from .read import Reading
from .read_grants import ReadDesk
from .snapshots import Snapshotting
from .temporary_files import TemporaryFiles
from .trash import Trash
from .truncate_concat import Reshaping
from .write import Writing
from .write_grants import ScheduleDesk


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
        self.credentials = Credentials(workplace)
        self.temporary_files = TemporaryFiles(workplace, leases)
        self.fencing = Fencing(workplace)
        self.reporting = Reporting(workplace)
        self.inspection = Inspection(workplace)
        self.explanations = ChunkExplanations(workplace)
