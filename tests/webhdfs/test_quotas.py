"""Quotas over WebHDFS, exactly as in HDFS where stock clients depend on it."""

from __future__ import annotations

import re

import pytest

NAMES = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException"
BYTES = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException"
MIB = 1 << 20


@pytest.fixture
def home(data, request):
    """Return a directory for this test."""
    path = "/quotas-" + re.sub(r"\W+", "-", request.node.name)
    assert data.names.ask("PUT", f"{path}/sub", "MKDIRS").json == {"boolean": True}
    return path


def set_quota(names, path, **limits):
    answer = names.ask("PUT", path, "SETQUOTA", **limits)
    assert (answer.status, answer.body) == (200, b"")


def usage(names, path):
    return names.ask("GET", path, "GETQUOTAUSAGE").json["QuotaUsage"]


def test_quotas_are_set_shown_and_taken_away(data, home):
    names = data.names
    data.write(f"{home}/f", b"x" * 100)
    counted = {"fileAndDirectoryCount": 3, "quota": -1, "spaceConsumed": 300, "spaceQuota": -1}
    assert usage(names, home) == counted
    set_quota(names, home, namespacequota=10)
    set_quota(names, home, storagespacequota=1000)
    assert usage(names, home) == counted | {"quota": 10, "spaceQuota": 1000}
    assert usage(names, f"{home}/f") == counted | {"fileAndDirectoryCount": 1}
    summary = names.ask("GET", home, "GETCONTENTSUMMARY").json["ContentSummary"]
    assert (summary["quota"], summary["spaceQuota"], summary["spaceConsumed"]) == (10, 1000, 300)
    set_quota(names, home, namespacequota=-1, storagespacequota=2**63 - 1)
    assert usage(names, home) == counted | {"spaceQuota": 1000}


def test_too_many_names_are_refused_in_hdfs_words(data, home):
    set_quota(data.names, home, namespacequota=2)
    message = f"The NameSpace quota (directories and files) of directory {home} is exceeded: quota=2 file count=3"
    for method, operation in (("PUT", "MKDIRS"), ("PUT", "CREATE")):
        assert data.names.ask(method, f"{home}/new", operation).error == (403, NAMES, message)
    assert data.names.ask("PUT", f"{home}/sub", "RENAME", destination=f"{home}/new").json == {"boolean": True}


def test_a_write_is_refused_at_the_first_chunk_that_has_no_room(data, home):
    """The write begins while there is space. The chunks that it has written become garbage, and do not count."""
    set_quota(data.names, home, storagespacequota=300)
    assert data.write(f"{home}/f", b"x" * 100).status == 201
    status, kind, message = data.names.ask("PUT", f"{home}/g", "CREATE").error
    assert (status, kind) == (403, BYTES)
    assert message == (
        f"The DiskSpace quota of {home} is exceeded: quota = 300 B = 300 B but diskspace consumed = 303 B = 303 B"
    )
    set_quota(data.names, home, storagespacequota=300 + 9 * 65536)
    refused = data.write(f"{home}/g", b"x" * (4 * 65536), blocksize=65536)
    assert refused.error[:2] == (403, BYTES)
    assert f"diskspace consumed = {303 + 9 * 65536} B" in refused.error[2], "asked for the fourth chunk"
    assert usage(data.names, home)["spaceConsumed"] == 300
    assert data.write(f"{home}/g", b"x" * (3 * 65536), blocksize=65536).status == 201
    assert usage(data.names, home)["spaceConsumed"] == 300 + 9 * 65536


def test_an_append_is_refused_before_it_is_sent(data, home):
    assert data.write(f"{home}/f", b"x" * 100).status == 201
    set_quota(data.names, home, storagespacequota=302)
    assert data.names.ask("POST", f"{home}/f", "APPEND").error[:2] == (403, BYTES)


@pytest.mark.parametrize(
    ("path", "limits", "status"),
    [
        ("", {}, 400),
        ("", {"namespacequota": 0}, 400),
        ("", {"namespacequota": "many"}, 400),
        ("", {"storagespacequota": -2}, 400),
        ("/none", {"namespacequota": 5}, 404),
    ],
)
def test_quotas_that_cannot_be_set(data, home, path, limits, status):
    assert data.names.ask("PUT", home + path, "SETQUOTA", **limits).error[0] == status


def test_quotas_of_storage_types_are_refused_with_advice(data, home):
    status, kind, message = data.names.ask(
        "PUT", home, "SETQUOTABYSTORAGETYPE", storagetype="SSD", storagespacequota=5
    ).error
    assert (status, kind) == (400, "java.lang.UnsupportedOperationException")
    assert "op=SETQUOTA" in message
