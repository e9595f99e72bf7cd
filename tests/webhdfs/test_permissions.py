"""Permission checks of a coordinator: HDFS's rules, operation by operation."""

from __future__ import annotations

import contextlib
import re

import pytest
from support.webhdfs_operations import CHANGES

from peacefs.coordinator.namespace import access_checks
from peacefs.coordinator.namespace.permissions import Callers

from .conftest import NameSide

ACCESS = "org.apache.hadoop.security.AccessControlException"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, signer):
    """Yield a name side with authenticated users: hdfs is the superuser, ann and bob are analysts."""
    callers = Callers("hdfs", {"analysts": ["ann", "bob"]})
    side = NameSide(tmp_path_factory.mktemp("guarded"), signer, callers)
    with contextlib.closing(side), side.served:
        side.register("dn-1", 9866, 9864)
        yield side


@pytest.fixture
def ask(guarded):
    """Request an operation as a user."""

    def ask(user, method, path, op, **query):
        return guarded.ask(method, path, op, user_name=user, **query)

    return ask


@pytest.fixture
def home(ask, request):
    """Create ann's directory: she may do everything, analysts may read, and others may not enter."""
    path = "/" + re.sub(r"\W+", "-", request.node.name)
    assert ask("ann", "PUT", path, "MKDIRS", permission="750").json == {"boolean": True}
    ask("hdfs", "PUT", path, "SETOWNER", group="analysts")
    return path


def denied(reply):
    status, java_class, message = reply.error
    assert (status, java_class) == (403, ACCESS)
    return message


def test_everyone_may_begin_at_the_root_and_nobody_removes_what_is_anothers(ask):
    assert ask("ann", "PUT", "/anns", "MKDIRS").json == {"boolean": True}
    assert ask("spark", "PUT", "/sparks/checkpoint", "MKDIRS").json == {"boolean": True}
    message = denied(ask("spark", "DELETE", "/anns", "DELETE", recursive="true"))
    assert message.startswith(
        'Permission denied by sticky bit: user=spark, path="/anns":ann:supergroup:drwxr-xr-x, parent="/":'
    )
    assert "sticky" in denied(ask("spark", "PUT", "/anns", "RENAME", destination="/mine"))
    assert ask("ann", "DELETE", "/anns", "DELETE").json == {"boolean": True}


@pytest.mark.parametrize("below", ["/x", "/missing/y"])
@pytest.mark.parametrize(
    ("method", "op", "query"),
    [
        ("GET", "GETFILESTATUS", {}),
        ("GET", "LISTSTATUS", {}),
        ("GET", "LISTSTATUS_BATCH", {}),
        ("GET", "GETCONTENTSUMMARY", {}),
        ("GET", "GETFILEBLOCKLOCATIONS", {}),
        ("GET", "OPEN", {}),
        ("GET", "CHECKACCESS", {"fsaction": "---"}),
        ("GET", "GETXATTRS", {}),
        ("GET", "GETACLSTATUS", {}),
        ("GET", "GETSTORAGEPOLICY", {}),
        ("GET", "GETECPOLICY", {}),
        *CHANGES,
    ],
)
def test_no_operation_passes_through_a_directory_that_one_may_not_enter(ask, home, method, op, query, below):
    message = denied(ask("eve", method, home + below, op, **query))
    assert message == f'Permission denied: user=eve, access=EXECUTE, inode="{home}":ann:analysts:drwxr-x---'


def test_a_group_that_may_read_may_not_write(ask, home):
    ask("ann", "PUT", f"{home}/sub", "MKDIRS", permission="750")
    assert ask("bob", "GET", home, "LISTSTATUS").status == 200
    assert ask("bob", "GET", home, "GETCONTENTSUMMARY").status == 200
    for method, op in (("PUT", "MKDIRS"), ("PUT", "CREATE")):
        message = denied(ask("bob", method, f"{home}/new/er", op))
        assert message == f'Permission denied: user=bob, access=WRITE, inode="{home}":ann:analysts:drwxr-x---'
    assert "access=WRITE" in denied(ask("bob", "DELETE", f"{home}/sub", "DELETE"))
    assert "access=WRITE" in denied(ask("bob", "PUT", f"{home}/sub", "RENAME", destination="/bobs"))
    assert "access=WRITE" in denied(ask("bob", "PUT", f"{home}/sub", "SETTIMES", modificationtime=1))
    # The directory exists already, so MKDIRS succeeds for everyone who can reach it.
    assert ask("bob", "PUT", f"{home}/sub", "MKDIRS").json == {"boolean": True}


def test_a_list_needs_read_and_a_status_only_the_way(ask, home):
    ask("ann", "PUT", home, "SETPERMISSION", permission="711")
    assert ask("eve", "GET", home, "GETFILESTATUS").status == 200
    assert "access=READ_EXECUTE" in denied(ask("eve", "GET", home, "LISTSTATUS"))
    assert "access=READ_EXECUTE" in denied(ask("eve", "GET", home, "GETCONTENTSUMMARY"))
    assert ask("eve", "GET", f"{home}/nothing", "GETFILESTATUS").status == 404


def test_a_summary_needs_read_on_all_directories_below(ask, home):
    ask("ann", "PUT", f"{home}/a/b", "MKDIRS", permission="700")
    message = denied(ask("bob", "GET", home, "GETCONTENTSUMMARY"))
    assert f'inode="{home}/a"' in message
    assert ask("ann", "GET", home, "GETCONTENTSUMMARY").json["ContentSummary"]["directoryCount"] == 3


@pytest.mark.parametrize("page", [1, 1000])
def test_a_tree_is_deleted_whole_or_not_at_all(ask, home, monkeypatch, page):
    monkeypatch.setattr(access_checks, "tree_entries_per_turn", page)
    ask("ann", "PUT", home, "SETPERMISSION", permission="777")
    tree = f"{home}/tree-{page}"
    for name in ("b", "c"):
        ask("bob", "PUT", f"{tree}/{name}/of-bob", "MKDIRS")
    ask("bob", "PUT", tree, "SETPERMISSION", permission="777")
    message = denied(ask("ann", "DELETE", tree, "DELETE", recursive="true"))
    assert "access=ALL" in message and f'inode="{tree}/' in message
    for name in ("b", "c"):
        ask("bob", "PUT", f"{tree}/{name}", "SETPERMISSION", permission="777")
    # The directories further below are empty, so their owners do not matter.
    assert ask("ann", "DELETE", tree, "DELETE", recursive="true").json == {"boolean": True}


def test_a_sticky_directory_in_a_tree_keeps_the_tree(ask, home):
    ask("ann", "PUT", home, "SETPERMISSION", permission="777")
    ask("bob", "PUT", f"{home}/t", "MKDIRS", permission="777")
    ask("bob", "PUT", f"{home}/t", "SETPERMISSION", permission="1777")
    ask("bob", "PUT", f"{home}/t/of-bob", "MKDIRS", permission="777")
    assert "sticky" in denied(ask("ann", "DELETE", f"{home}/t", "DELETE", recursive="true"))
    assert ask("bob", "DELETE", f"{home}/t", "DELETE", recursive="true").json == {"boolean": True}


@pytest.mark.parametrize("options", [None, "NONE", "OVERWRITE"])
def test_a_rename_needs_write_where_it_goes_too(ask, home, options):
    query = {"renameoptions": options} if options else {}
    mine = f"/of-bob-{options}"
    ask("bob", "PUT", mine, "MKDIRS")
    message = denied(ask("bob", "PUT", mine, "RENAME", destination=f"{home}/x", **query))
    assert "access=WRITE" in message and f'inode="{home}"' in message
    ask("ann", "PUT", home, "SETPERMISSION", permission="770")
    assert ask("bob", "PUT", mine, "RENAME", destination=f"{home}/{options}", **query).status == 200


def test_a_legacy_rename_into_a_directory_needs_write_there(ask, home):
    ask("bob", "PUT", "/goes-in", "MKDIRS")
    assert "access=WRITE" in denied(ask("bob", "PUT", "/goes-in", "RENAME", destination=home))
    ask("ann", "PUT", home, "SETPERMISSION", permission="770")
    assert ask("bob", "PUT", "/goes-in", "RENAME", destination=home).json == {"boolean": True}


def test_a_rename_does_not_replace_what_a_sticky_bit_protects(ask, home):
    ask("ann", "PUT", home, "SETPERMISSION", permission="1777")
    ask("ann", "PUT", f"{home}/anns", "MKDIRS")
    ask("bob", "PUT", f"{home}/bobs", "MKDIRS")
    ask("hdfs", "PUT", home, "SETOWNER", owner="hdfs")
    refused = ask("bob", "PUT", f"{home}/bobs", "RENAME", destination=f"{home}/anns", renameoptions="OVERWRITE")
    assert "sticky" in denied(refused)


def test_the_owner_changes_the_permission_and_gives_the_file_only_to_groups_of_their_own(ask, home):
    message = denied(ask("bob", "PUT", home, "SETPERMISSION", permission="777"))
    assert message == f"Permission denied. user=bob is not the owner of inode={home}"
    assert denied(ask("bob", "PUT", home, "SETOWNER", group="analysts")) == message
    assert "cannot change owner" in denied(ask("ann", "PUT", home, "SETOWNER", owner="bob"))
    assert denied(ask("ann", "PUT", home, "SETOWNER", group="wheel")) == "User ann does not belong to wheel"
    assert ask("ann", "PUT", home, "SETOWNER", owner="ann", group="ann").status == 200
    assert ask("hdfs", "PUT", home, "SETOWNER", owner="bob", group="wheel").status == 200
    status = ask("hdfs", "GET", home, "GETFILESTATUS").json["FileStatus"]
    assert (status["owner"], status["group"]) == ("bob", "wheel")


@pytest.mark.parametrize(
    ("user", "action", "allowed"),
    [
        ("ann", "rwx", True),
        ("bob", "r-x", True),
        ("bob", "-w-", False),
        ("eve", "---", True),
        ("eve", "r--", False),
        ("hdfs", "rwx", True),
    ],
)
def test_one_can_ask_what_one_may(ask, home, user, action, allowed):
    reply = ask(user, "GET", home, "CHECKACCESS", fsaction=action)
    assert reply.status == (200 if allowed else 403)
    assert ask("ann", "GET", f"{home}/nothing", "CHECKACCESS", fsaction=action).status == 404


def test_deleting_a_tree_asks_first_for_the_right_to_remove_its_name(ask, home):
    ask("ann", "PUT", f"{home}/tree/full", "MKDIRS", permission="700")
    message = denied(ask("bob", "DELETE", f"{home}/tree", "DELETE", recursive="true"))
    assert message.startswith(f'Permission denied: user=bob, access=WRITE, inode="{home}":')
