"""The file system's operations as the fronts (WebHDFS, REST, datanodes' links) call them.

Brings together the namespace (committed state), the cluster (soft state) and tokens. Runs on the event loop. Knows
no wire format.
"""

from __future__ import annotations

from peacefs.coordinator.scheduling.scheduler import Scheduling

from .append import Appending
from .context import OperationContext
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
from .read_grants import ReadGrantService
from .snapshots import Snapshotting
from .temporary_files import TemporaryFiles
from .trash import Trash
from .truncate_concat import Reshaping
from .write import Writing
from .write_grants import WriteGrantService


class Files:
    """All operations over one context."""

    def __init__(self, context: OperationContext, scheduling: Scheduling, trash_minutes: int = 0) -> None:
        self.callers = context.callers
        placing = Placing(context)
        leases = Leases(context.monotonic())
        self.names = Names(context)
        self.probing = Probing(context, placing)
        self.appending = Appending(context, placing, leases)
        self.reshaping = Reshaping(context, leases)
        self.schedule = WriteGrantService(context, placing, self.appending, scheduling)
        self.writing = Writing(context, placing, self.appending, self.schedule)
        self.snapshots = Snapshotting(context, self.names)
        self.copying = TreeCopying(context, self.names)
        self.limiting = Limiting(context, self.names)
        self.trash = Trash(context, self.names, trash_minutes)
        self.reading = Reading(context)
        self.recovery = ReadGrantService(context, scheduling)
        self.administration = Administration(context)
        self.credentials = Credentials(context)
        self.temporary_files = TemporaryFiles(context, leases)
        self.fencing = Fencing(context)
        self.reporting = Reporting(context)
        self.inspection = Inspection(context)
