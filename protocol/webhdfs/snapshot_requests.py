"""The requests about snapshots; see `requests`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .query import RequestQuery
from .request import Reader, Request, plain


@dataclass(frozen=True, slots=True)
class GetSnapshotDiff(Request):
    """GETSNAPSHOTDIFF; an empty name means the current directory contents."""

    older: str
    newer: str

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> GetSnapshotDiff:
        return cls(path, user, query.text("oldsnapshotname") or "", query.text("snapshotname") or "")


@dataclass(frozen=True, slots=True)
class GetSnapshottableDirectories(Request):
    """GETSNAPSHOTTABLEDIRECTORYLIST; the path is ignored."""


@dataclass(frozen=True, slots=True)
class GetSnapshots(Request):
    """GETSNAPSHOTLIST"""


@dataclass(frozen=True, slots=True)
class GetSnapshotDiffListing(GetSnapshotDiff):
    """GETSNAPSHOTDIFFLISTING: the differences by directory, always complete; the start index is ignored."""


SNAPSHOT_OPERATIONS: Final[Mapping[str, Mapping[str, Reader]]] = {
    "GET": {
        "GETSNAPSHOTTABLEDIRECTORYLIST": plain(GetSnapshottableDirectories),
        "GETSNAPSHOTLIST": plain(GetSnapshots),
        "GETSNAPSHOTDIFF": GetSnapshotDiff.read,
        "GETSNAPSHOTDIFFLISTING": GetSnapshotDiffListing.read,
    },
}
