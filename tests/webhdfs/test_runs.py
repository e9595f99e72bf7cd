"""A superseded run is refused every change by name, with HDFS's message."""

from __future__ import annotations

from typing import Any

import pytest

from peacefs.coordinator.calls.webhdfs_requests import OPERATIONS
from peacefs.protocol.errors import RunSuperseded
from peacefs.protocol.webhdfs.policy_requests import POLICY_OPERATIONS

from .conftest import DataSide

ROOT = "/ck/orders"
LEASE_EXPIRED = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"

#: Every WebHDFS operation that changes something, applied to a file and a directory of the root.
CHANGES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("PUT", "/new", "CREATE", {}),
    ("PUT", "/file", "CREATE", {"overwrite": "true"}),
    ("POST", "/file", "APPEND", {}),
    ("POST", "/file", "TRUNCATE", {"newlength": 0}),
    ("POST", "/file", "CONCAT", {"sources": f"{ROOT}/other"}),
    ("PUT", "/offsets/0", "MKDIRS", {}),
    ("PUT", "", "MKDIRS", {}),
    ("PUT", "/file", "RENAME", {"destination": f"{ROOT}/moved"}),
    ("PUT", "/file", "RENAME", {"destination": f"{ROOT}/other", "renameoptions": "OVERWRITE"}),
    ("DELETE", "/file", "DELETE", {}),
    ("DELETE", "", "DELETE", {"recursive": "true"}),
    ("PUT", "/file", "SETTIMES", {"modificationtime": 1}),
    ("PUT", "/file", "SETPERMISSION", {"permission": "600"}),
    ("PUT", "/file", "SETOWNER", {"owner": "bob"}),
    ("PUT", "/file", "SETREPLICATION", {"replication": 2}),
    ("PUT", "/file", "SETXATTR", {"xattr.name": "user.a", "xattr.value": "v", "flag": "CREATE"}),
    ("PUT", "/file", "REMOVEXATTR", {"xattr.name": "user.a"}),
    ("PUT", "/file", "MODIFYACLENTRIES", {"aclspec": "user:bob:r--"}),
    ("PUT", "/file", "REMOVEACLENTRIES", {"aclspec": "user:bob:"}),
    ("PUT", "/file", "REMOVEDEFAULTACL", {}),
    ("PUT", "/file", "REMOVEACL", {}),
    ("PUT", "/file", "SETACL", {"aclspec": "user::rwx,group::r--,other::---"}),
    ("PUT", "", "SETQUOTA", {"namespacequota": 10}),
    ("PUT", "", "ALLOWSNAPSHOT", {}),
    ("PUT", "", "DISALLOWSNAPSHOT", {}),
    ("PUT", "", "CREATESNAPSHOT", {"snapshotname": "s"}),
    ("PUT", "", "RENAMESNAPSHOT", {"oldsnapshotname": "a", "snapshotname": "b"}),
    ("DELETE", "", "DELETESNAPSHOT", {"snapshotname": "a"}),
]


def begin(data: DataSide, request_id: str = "") -> str:
    """Begin a run; return its location."""
    begun = data.names.served.run(data.names.files.fencing.begin(ROOT, "ann", "host-a", 77, request_id))
    location: str = begun.location
    return location


@pytest.fixture(scope="module", name="fenced")
def _fenced(data: DataSide) -> str:
    """Return the location of a run that is fenced off."""
    for name in ("file", "other"):
        assert data.write(f"{ROOT}/{name}", b"before").status == 201
    older = begin(data)
    begin(data)
    return older


@pytest.mark.parametrize(("method", "below", "op", "query"), CHANGES, ids=lambda value: str(value))
@pytest.mark.evidence("two-drivers")
def test_no_change_of_an_older_run_is_done(
    data: DataSide, fenced: str, method: str, below: str, op: str, query: dict[str, Any]
) -> None:
    before = tree(data)
    status, java_class, message = data.names.ask(method, fenced + below, op, **query).error
    assert (status, java_class) == (403, LEASE_EXPIRED)
    assert f"of {ROOT} may write no more" in message
    assert tree(data) == before


def tree(data: DataSide) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = data.names.ask("GET", ROOT, "LISTSTATUS").json["FileStatuses"]["FileStatus"]
    return [data.names.ask("GET", ROOT, "GETFILESTATUS").json["FileStatus"], *listed]


def test_every_changing_operation_is_in_the_table() -> None:
    changing = {op for method, ops in OPERATIONS.items() if method != "GET" for op in ops}
    of_no_path = {"RENEWDELEGATIONTOKEN", "CANCELDELEGATIONTOKEN"}
    # These operations are refused, or change nothing.
    of_policies = {op for method, ops in POLICY_OPERATIONS.items() if method != "GET" for op in ops}
    assert changing - of_policies - of_no_path == {op for _, _, op, _ in CHANGES}


def test_a_rename_into_the_root_of_an_older_run_is_not_done(data: DataSide, fenced: str) -> None:
    assert data.write("/outside", b"x").status == 201
    moved = data.names.ask("PUT", "/outside", "RENAME", destination=f"{fenced}/inside")
    assert moved.error[1] == LEASE_EXPIRED
    assert data.names.ask("GET", "/outside", "GETFILESTATUS").status == 200


def test_an_older_run_reads_what_is_there(data: DataSide, fenced: str) -> None:
    assert data.read(f"{fenced}/file").body == data.read(f"{ROOT}/file").body == b"before"
    under_run, plain = (data.names.ask("GET", path, "LISTSTATUS").body for path in (fenced, ROOT))
    assert under_run == plain


def test_a_file_that_was_being_written_when_a_run_took_over_does_not_appear(data: DataSide) -> None:
    older = begin(data)
    redirect = data.names.ask("PUT", f"{older}/late", "CREATE")
    assert redirect.status == 307
    younger = begin(data)
    status, java_class, message = data.follow("PUT", redirect, b"data").error
    assert (status, java_class) == (403, LEASE_EXPIRED)
    assert younger.rpartition(".run-")[2] in message
    assert data.names.ask("GET", f"{ROOT}/late", "GETFILESTATUS").status == 404


def test_a_run_whose_beginning_is_asked_again_is_begun_once(data: DataSide) -> None:
    first = begin(data, "request")
    assert begin(data, "request") == first
    begin(data)
    with pytest.raises(RunSuperseded):
        begin(data, "request")
