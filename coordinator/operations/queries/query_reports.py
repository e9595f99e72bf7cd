"""Drivers' reports about their queries: the latest per checkpoint root, in memory, up to a limit.

After a restart, the coordinator gets the reports again. Only what people see depends on them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from peacefs.coordinator.namespace import access_checks as checks
from peacefs.coordinator.namespace.paths import NamespacePath, parse_path
from peacefs.coordinator.namespace.permissions import Access
from peacefs.coordinator.namespace.resolution import check_writer, find_existing
from peacefs.coordinator.namespace.snapshots import changeable_path
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.viewer import Viewer
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.values.query_reports import QueryReport

# Maximum number of drivers' reports that the coordinator remembers.
reports_remembered_max: Final = 1000


class QueryReports:
    """Keeps reports. Whoever may write to a checkpoint may report about its query and read the report."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context
        self._last: OrderedDict[NamespacePath, QueryReport] = OrderedDict()

    def report(self, said: QueryReport) -> None:
        """Replace the earlier report. Raises RunSuperseded, FileNotFound, AccessDenied."""
        location, caller = changeable_path(said.location), self._ctx.caller(said.user)
        checks.check_access(self._ctx.reader, location, caller, Access.WRITE)
        check_writer(self._ctx.reader, location)
        find_existing(self._ctx.reader, location)
        root = NamespacePath(location.components)
        self._last[root] = msgspec.structs.replace(said, reported_ms=self._ctx.now_ms())
        self._last.move_to_end(root)
        if len(self._last) > reports_remembered_max:
            self._last.popitem(last=False)

    def below(self, path: str, viewer: Viewer) -> list[QueryReport]:
        """Return the last reports of roots at or below a path, in order of their paths.

        A report is visible to its user, to superusers, and to users who may write the root, because they must know
        about the query.
        """
        top, caller = NamespacePath(parse_path(path).components), self._ctx.caller(viewer.user)
        found = []
        for root, said in self._last.items():
            if root == top or root.is_under(top):
                try:
                    checks.check_list(self._ctx.reader, root, caller)
                except AccessDenied:
                    continue
                if viewer.sees(said.user) or checks.may_write(self._ctx.reader, root, caller):
                    found.append((root.components, said))
        return [said for _, said in sorted(found, key=lambda one: one[0])]
