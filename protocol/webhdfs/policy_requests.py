"""The requests about storage policies, erasure coding and symbolic links; see `requests`.

There is one storage policy, HOT, and no erasure coding. Queries are answered; changes are refused with an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from peacefs.protocol.errors import Unsupported

from .query import RequestQuery
from .request import Reader, Request, plain


@dataclass(frozen=True, slots=True)
class GetStoragePolicy(Request):
    """GETSTORAGEPOLICY"""


@dataclass(frozen=True, slots=True)
class GetStoragePolicies(Request):
    """GETALLSTORAGEPOLICY; the path is ignored."""


@dataclass(frozen=True, slots=True)
class SetStoragePolicy(Request):
    policy: str

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> SetStoragePolicy:
        return cls(path, user, query.required("storagepolicy"))


@dataclass(frozen=True, slots=True)
class UnsetStoragePolicy(Request):
    """UNSETSTORAGEPOLICY and SATISFYSTORAGEPOLICY, which change nothing."""


@dataclass(frozen=True, slots=True)
class GetErasureCodingPolicy(Request):
    """GETECPOLICY"""


@dataclass(frozen=True, slots=True)
class GetErasureCodingPolicies(Request):
    """GETECPOLICIES; the path is ignored."""


@dataclass(frozen=True, slots=True)
class GetErasureCodingCodecs(Request):
    """GETECCODECS; the path is ignored."""


@dataclass(frozen=True, slots=True)
class UnsetErasureCodingPolicy(Request):
    """UNSETECPOLICY"""


def _refuse_storage_types(_path: str, _user: str, _query: RequestQuery) -> NoReturn:
    raise Unsupported(
        "SETQUOTABYSTORAGETYPE is not supported: all storage is of one type here; set a quota of bytes with "
        "op=SETQUOTA&storagespacequota=..."
    )


def _refuse_erasure_coding(_path: str, _user: str, query: RequestQuery) -> NoReturn:
    named = f"the erasure coding policy {query.required('ecpolicy')} is"
    raise Unsupported(f"{named} not supported: files are replicated here; set their number with op=SETREPLICATION")


def _refuse_links(_path: str, _user: str, _query: RequestQuery) -> NoReturn:
    # HDFS's message while `dfs.namenode.support.allow.symlinks` is off, as in all its releases.
    raise Unsupported("Symlinks not supported")


POLICY_OPERATIONS: Final[Mapping[str, Mapping[str, Reader]]] = {
    "GET": {
        "GETSTORAGEPOLICY": plain(GetStoragePolicy),
        "GETALLSTORAGEPOLICY": plain(GetStoragePolicies),
        "GETECPOLICY": plain(GetErasureCodingPolicy),
        "GETECPOLICIES": plain(GetErasureCodingPolicies),
        "GETECCODECS": plain(GetErasureCodingCodecs),
    },
    "PUT": {
        "SETSTORAGEPOLICY": SetStoragePolicy.read,
        "SATISFYSTORAGEPOLICY": plain(UnsetStoragePolicy),
        "SETECPOLICY": _refuse_erasure_coding,
        "ENABLEECPOLICY": _refuse_erasure_coding,
        "DISABLEECPOLICY": _refuse_erasure_coding,
        "SETQUOTABYSTORAGETYPE": _refuse_storage_types,
        "CREATESYMLINK": _refuse_links,
    },
    "POST": {
        "UNSETSTORAGEPOLICY": plain(UnsetStoragePolicy),
        "UNSETECPOLICY": plain(UnsetErasureCodingPolicy),
    },
}
