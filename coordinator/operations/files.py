"""All file system operations, as WebHDFS, REST and the links of datanodes call them.

Brings together the namespace (committed state), the cluster (soft state) and tokens. Runs on the event loop. Knows
no wire format.
"""

from __future__ import annotations

from peacefs.coordinator.limits import reclaim_entries_per_commit
from peacefs.protocol.limits import write_token_lifetime_s
from peacefs.protocol.tokens import ProxyPass

from .acls import AclOperations
from .append import AppendOperations
from .attributes import AttributeOperations
from .chunk_explanation import ChunkExplanations
from .context import OperationContext
from .copy import CopyOperations
from .credentials import Credentials
from .datanode_admin import DatanodeAdmin
from .file_chunks import FileChunkOperations
from .fsck import Fsck
from .names import Names
from .open_files import OpenFiles
from .placement import ChunkPlacer
from .probing import ProbeOperations
from .queries.query_reports import QueryReports
from .queries.query_runs import QueryRuns
from .quotas import QuotaOperations
from .read import ReadOperations
from .read_grants import ReadGrantService
from .snapshots import SnapshotOperations
from .temporary_files import TemporaryFiles
from .trash import Trash
from .truncate_concat import TruncateConcat
from .write import WriteOperations
from .write_grants import WriteGrantService


class Files:
    """All operations over one context."""

    def __init__(
        self,
        context: OperationContext,
        trash_minutes: int = 0,
        *,
        copied_per_commit: int = reclaim_entries_per_commit,
    ) -> None:
        self.callers = context.callers
        placer = ChunkPlacer(context)
        leases = context.leases
        self.names = Names(context)
        self.probing = ProbeOperations(context)
        self.appending = AppendOperations(context, placer, leases)
        self.reshaping = TruncateConcat(context, leases)
        self.schedule = WriteGrantService(context, self.appending)
        self.writing = WriteOperations(context, placer, self.appending, self.schedule)
        self.open_files = OpenFiles(context, placer, self.appending, self.writing)
        self.acls = AclOperations(context)
        self.attributes = AttributeOperations(context)
        self.snapshots = SnapshotOperations(context, self.names)
        self.copying = CopyOperations(context, self.names, copied_per_commit)
        self.limiting = QuotaOperations(context, self.names)
        self.trash = Trash(context, self.names, trash_minutes)
        self.reading = ReadOperations(context)
        self.recovery = ReadGrantService(context)
        self.administration = DatanodeAdmin(context)
        self.credentials = Credentials(context)
        self.temporary_files = TemporaryFiles(context, leases)
        self.fencing = QueryRuns(context)
        self.reporting = QueryReports(context)
        self.inspection = Fsck(context)
        self.explanations = ChunkExplanations(context)
        self.file_chunks = FileChunkOperations(context)
        self.durable = context.durable
        self._context = context

    def proxy_pass(self, real_user: str, token: str) -> str:
        """Return what lets a proxy user use a token that was issued to it in another user's name."""
        expires_s = self._context.wall_clock() + write_token_lifetime_s
        return self._context.signer.sign(ProxyPass.of(expires_s, real_user, token))
