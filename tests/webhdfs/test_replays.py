"""Repeated changes with the same id are done once, whatever has happened since."""

from __future__ import annotations

import re

import pytest

NOT_THE_SAME = "has been used for another request"


@pytest.fixture
def home(names, request):
    path = "/replays-" + re.sub(r"\W+", "-", request.node.name)
    assert names.ask("PUT", f"{path}/d", "MKDIRS").json == {"boolean": True}
    return path


def test_a_directory_that_was_made_and_is_gone_is_not_made_again(names, home):
    made = [names.ask("PUT", f"{home}/x", "MKDIRS", requestid="m-1")]
    names.ask("DELETE", f"{home}/x", "DELETE")
    made.append(names.ask("PUT", f"{home}/x", "MKDIRS", requestid="m-1"))
    assert [reply.json for reply in made] == [{"boolean": True}] * 2
    assert names.ask("GET", f"{home}/x", "GETFILESTATUS").status == 404


def test_a_deletion_spares_what_was_made_since_and_says_again_what_it_did(names, home):
    for wanted in (True, True):
        assert names.ask("DELETE", f"{home}/d", "DELETE", requestid="d-1", recursive="true").json == {
            "boolean": wanted
        }
        names.ask("PUT", f"{home}/d", "MKDIRS")
    assert names.ask("GET", f"{home}/d", "GETFILESTATUS").status == 200
    assert names.ask("DELETE", f"{home}/none", "DELETE", requestid="d-2").json == {"boolean": False}


@pytest.mark.parametrize("options", [{}, {"renameoptions": "NONE"}, {"renameoptions": "OVERWRITE"}])
def test_a_rename_moves_nothing_that_came_since(names, home, options):
    request_id = f"r-{sorted(options.values())}"
    replies = []
    for _ in range(2):
        replies.append(
            names.ask("PUT", f"{home}/d", "RENAME", destination=f"{home}/e", requestid=request_id, **options)
        )
        names.ask("PUT", f"{home}/d/younger", "MKDIRS")
    assert [(reply.status, reply.body) for reply in replies] == [(200, replies[0].body)] * 2
    assert names.ask("GET", f"{home}/d/younger", "GETFILESTATUS").status == 200
    assert names.ask("GET", f"{home}/e/younger", "GETFILESTATUS").status == 404


def test_attributes_that_were_set_since_stay(names, home):
    def set_all(number, mode, owner, group, time):
        for operation, values in (
            ("SETPERMISSION", {"permission": mode}),
            ("SETOWNER", {"owner": owner, "group": group}),
            ("SETTIMES", {"modificationtime": time}),
        ):
            asked = names.ask("PUT", f"{home}/d", operation, requestid=f"{operation}-{number}", **values)
            assert (asked.status, asked.body) == (200, b"")

    set_all(1, "700", "ann", "staff", "1000")
    set_all(2, "711", "bob", "users", "2000")
    set_all(1, "700", "ann", "staff", "1000")
    status = names.ask("GET", f"{home}/d", "GETFILESTATUS").json["FileStatus"]
    found = [status[name] for name in ("permission", "owner", "group", "modificationTime")]
    assert found == ["711", "bob", "users", 2000]


def test_snapshots_are_taken_named_and_dropped_once(names, home):
    names.ask("PUT", home, "ALLOWSNAPSHOT", requestid="allow")
    taken = [names.ask("PUT", home, "CREATESNAPSHOT", requestid="take").json["Path"] for _ in range(2)]
    assert taken[0] == taken[1]
    name = taken[0].rpartition("/")[2]
    for _ in range(2):
        moved = names.ask("PUT", home, "RENAMESNAPSHOT", requestid="name", oldsnapshotname=name, snapshotname="s")
        assert moved.status == 200
    for _ in range(2):
        assert names.ask("DELETE", home, "DELETESNAPSHOT", requestid="drop", snapshotname="s").status == 200
        names.ask("PUT", home, "CREATESNAPSHOT", snapshotname="s")
    assert names.ask("GET", f"{home}/.snapshot/s", "GETFILESTATUS").status == 200
    names.ask("DELETE", home, "DELETESNAPSHOT", snapshotname="s")
    assert names.ask("PUT", home, "DISALLOWSNAPSHOT", requestid="disallow").status == 200
    assert names.ask("PUT", home, "ALLOWSNAPSHOT", requestid="allow").status == 200
    assert names.ask("PUT", home, "CREATESNAPSHOT").status == 403, "it was allowed once, and is no more"


def test_another_request_under_the_id_is_refused_clearly(names, home):
    names.ask("PUT", f"{home}/x", "MKDIRS", requestid="one")
    for reply in (
        names.ask("PUT", f"{home}/y", "MKDIRS", requestid="one"),
        names.ask("PUT", f"{home}/x", "MKDIRS", requestid="one", permission="700"),
        names.ask("DELETE", f"{home}/x", "DELETE", requestid="one"),
        names.ask("PUT", f"{home}/x", "RENAME", destination=f"{home}/z", requestid="one"),
    ):
        status, java_class, message = reply.error
        assert (status, java_class) == (400, "java.lang.IllegalArgumentException") and NOT_THE_SAME in message
    assert names.ask("PUT", f"{home}/x", "MKDIRS", requestid="x" * 129).status == 400
    assert names.ask("GET", f"{home}/x", "GETFILESTATUS").status == 200
