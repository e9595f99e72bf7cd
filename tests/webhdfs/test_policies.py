"""Storage policies, erasure coding, links and replication: answers as in HDFS when none of them is used."""

from __future__ import annotations

import re

import pytest

ILLEGAL = "org.apache.hadoop.HadoopIllegalArgumentException"
IO = "java.io.IOException"
NOT_FOUND = "java.io.FileNotFoundException"
UNSUPPORTED = "java.lang.UnsupportedOperationException"


@pytest.fixture
def home(names, request):
    """Return a directory for this test."""
    path = "/policies-" + re.sub(r"\W+", "-", request.node.name)
    assert names.ask("PUT", path, "MKDIRS").json == {"boolean": True}
    return path


def test_storage_policy_of_everything_is_hot(names, home):
    policy = names.ask("GET", home, "GETSTORAGEPOLICY").json["BlockStoragePolicy"]
    assert (policy["id"], policy["name"], policy["storageTypes"]) == (7, "HOT", ["DISK"])
    listed = names.ask("GET", "/", "GETALLSTORAGEPOLICY").json["BlockStoragePolicies"]["BlockStoragePolicy"]
    assert listed == [policy], "no policy is offered that could not be kept"
    assert names.ask("GET", f"{home}/none", "GETSTORAGEPOLICY").error[:2] == (404, NOT_FOUND)


def test_storage_policy_is_set_to_hot_alone(names, home):
    for method, op, query in (
        ("PUT", "SETSTORAGEPOLICY", {"storagepolicy": "hot"}),
        ("PUT", "SATISFYSTORAGEPOLICY", {}),
        ("POST", "UNSETSTORAGEPOLICY", {}),
    ):
        done = names.ask(method, home, op, **query)
        assert (done.status, done.body) == (200, b"")
        assert names.ask(method, f"{home}/none", op, **query).error[:2] == (404, NOT_FOUND)
    refused = names.ask("PUT", home, "SETSTORAGEPOLICY", storagepolicy="COLD")
    assert refused.error == (
        400,
        UNSUPPORTED,
        "the storage policy COLD is not supported: all storage is of one type, DISK, and all files are under HOT",
    )
    unknown = names.ask("PUT", home, "SETSTORAGEPOLICY", storagepolicy="LUKEWARM")
    assert unknown.error == (400, ILLEGAL, "Cannot find a block policy with the name LUKEWARM")


def test_erasure_coding_is_answered_and_refused_to_be_set(names, home):
    policy = names.ask("GET", home, "GETECPOLICY").json
    assert (policy["id"], policy["codecName"]) == (0, "replication")
    assert names.ask("GET", "/", "GETECPOLICIES").json == {
        "ErasureCodingPolicies": {"ErasureCodingPolicyInfo": []}
    }
    assert names.ask("GET", "/", "GETECCODECS").json == {"ErasureCodingCodecs": {}}
    for op in ("SETECPOLICY", "ENABLEECPOLICY", "DISABLEECPOLICY"):
        status, kind, message = names.ask("PUT", home, op, ecpolicy="RS-6-3-1024k").error
        assert (status, kind) == (400, UNSUPPORTED)
        assert "RS-6-3-1024k is not supported: files are replicated here" in message
    unset = names.ask("POST", home, "UNSETECPOLICY").error
    assert unset[:2] == (403, "org.apache.hadoop.hdfs.protocol.NoECPolicySetException")
    summary = names.ask("GET", home, "GETCONTENTSUMMARY").json["ContentSummary"]
    assert summary["ecPolicy"] == "", "a directory without a policy"


def test_links_are_refused_in_hdfss_words(names, home):
    refused = names.ask("PUT", f"{home}/link", "CREATESYMLINK", destination=home)
    assert refused.error == (400, UNSUPPORTED, "Symlinks not supported")
    assert names.ask("GET", home, "GETLINKTARGET").error == (403, IO, f"Path {home} is not a symbolic link")
    assert names.ask("GET", f"{home}/none", "GETLINKTARGET").error[:2] == (404, NOT_FOUND)


@pytest.mark.parametrize("op", ["CREATE", "SETREPLICATION"])
def test_replication_may_be_as_high_as_in_hdfs_and_no_higher(names, home, op):
    path = f"{home}/f"
    assert names.ask("PUT", path, op, replication=512).status in (200, 307)
    refused = names.ask("PUT", path, op, replication=513).error
    assert refused == (403, IO, f"Requested replication factor of 513 exceeds maximum of 512 for {path}")
